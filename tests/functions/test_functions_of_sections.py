"""Functions of sections: `u[key]` is a field of its own."""

import numpy as np
import pytest
from fields import assert_holds, draw, spread

import pencils
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

KEYS = {
    "inner": np.s_[..., 1:-1],
    "every second": np.s_[..., ::2],
    "plane": np.s_[..., 0, :],
    "corner": np.s_[..., 1:, :-1],
    "first": np.s_[..., :1],
}


@pytest.fixture(params=KEYS)
def section(request, pencil):
    """Make a field with components, and the array of a section of it."""
    key = KEYS[request.param]
    if pencil.ndim == 1:
        key = (Ellipsis, key[-1])
    a = draw((2, *pencil.shape))
    kept = tuple(slice(i, i + 1) if isinstance(i, int) else i for i in key)
    return spread(pencil, a, halo=1)[key], np.ascontiguousarray(a[kept])


def test_components(section):
    u, a = section
    assert_holds(np.concatenate([u, a, u]), np.concatenate([a, a, a]))
    assert_holds(np.stack([u, a]), np.stack([a, a]))
    assert_holds(np.einsum("ij,j...->i...", [[0, -1], [1, 0]], u), np.stack([-a[1], a[0]]))
    assert_holds(np.vecdot(u, a, axis=0), (a * a).sum(0), rtol=1e-13)


def test_elements(section):
    u, a = section
    edges = np.array([-1.0, 0, 2])
    assert_holds(np.searchsorted(edges, u), np.searchsorted(edges, a))
    assert_holds(np.select([u > 1, a < 0], [u, 2], a), np.select([a > 1, a < 0], [a, 2], a))
    assert_holds(np.piecewise(u, [u > 0], [np.sqrt]), np.piecewise(a, [a > 0], [np.sqrt]))
    assert_holds(u.clip(-1, a + 1), a.clip(-1, a + 1))
    assert u.nbytes == a.nbytes


def test_lines(section):
    u, a = section
    for axis in range(a.ndim):
        if axis - 1 in u.pencil.decomp and axis - 1 not in u.singletons:
            with pytest.raises(ArgumentError, match=r"u\.whole\("):
                np.sort(u, axis)
        else:
            assert_holds(np.sort(u, axis), np.sort(a, axis))
            if a.size:
                total = np.apply_along_axis(np.sum, axis, a)
                expected = total if axis == 0 else np.expand_dims(total, axis)
                assert_holds(np.apply_along_axis(np.sum, axis, u), expected, rtol=1e-13)


def test_sorting_in_place_writes_the_field(pencil):
    a = draw((3, *pencil.shape))
    u = spread(pencil, a)
    u[..., :1].sort(axis=0)
    a[..., :1].sort(axis=0)
    assert_holds(u, a)


def test_points(comm, section):
    u, a = section
    rows = sorted(
        map(tuple, np.concatenate(comm.allgather(pencils.functions.own_points(u > 0))).tolist())
    )
    assert rows == [tuple(row) for row in np.argwhere(a > 0).tolist()]


def test_assertions(section):
    u, a = section
    pencils.testing.assert_allclose(u, a)
    if a.size:
        index = tuple(n - 1 for n in a.shape)
        b = a.copy()
        b[index] += 1
        owner = u.pencil.owner(index[1:])
        with pytest.raises(AssertionError, match=f"on rank {owner}") as caught:
            pencils.testing.assert_equal(u, b)
        assert f"global index {index}" in str(caught.value)


def test_sections_of_other_points_do_not_mix(comm):
    u = pencils.zeros(pencils.Pencil((6, 5), comm), components=2)
    with pytest.raises(PencilMismatchError):
        np.concatenate([u[:, 1:], u[:, :-1]])
    with pytest.raises(AssertionError, match="sections of different points"):
        pencils.testing.assert_equal(u[:, 1:], u[:, :-1])
    assert np.concatenate([u[:1], u]).shape == (3, 6, 5)
