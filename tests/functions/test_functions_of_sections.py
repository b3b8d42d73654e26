"""Functions of sections: `u[key]` is a field of its own."""

from functools import partial

import numpy as np
import pytest
from agreement import assert_agrees, kept, outcome
from fields import assert_holds, both, draw, lay, spread

import pencils
from pencils.errors import PencilMismatchError

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
        assert_holds(np.sort(u, axis), np.sort(a, axis))
        if a.size:
            total = np.apply_along_axis(np.sum, axis, a)
            expected = total if axis == 0 else np.expand_dims(total, axis)
            assert_holds(np.apply_along_axis(np.sum, axis, u), expected, rtol=1e-13)
            middle = np.median(a, axis, keepdims=axis > 0)
            assert_holds(np.median(u, axis), middle)


def test_other_shapes(section):
    u, a = section
    for axis in range(a.ndim):
        assert_holds(np.repeat(u, 2, axis), np.repeat(a, 2, axis))
        assert_holds(np.concatenate([u, 2 * u], axis), np.concatenate([a, 2 * a], axis))
        assert_holds(np.diff(u, axis=axis, prepend=0), np.diff(a, axis=axis, prepend=0))
    assert_holds(np.tile(u, 2), np.tile(a, 2))
    assert_holds(np.pad(u, 1), np.pad(a, 1))


def test_sorting_in_place_writes_the_field(pencil):
    u, a = both(pencil, draw((3, *pencil.shape)))
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


CUTS = [np.s_[..., 1:], np.s_[:, ::2], np.s_[:, 1:2], np.s_[1], np.s_[:, 2:2]]


@pytest.mark.parametrize("layout", ["line", "plane", "pencils", "blocks"])
@pytest.mark.parametrize("key", CUTS, ids=str)
def test_values_of_sections(comm, layout, key):
    pencil = lay(comm, layout)
    a = draw((2, *pencil.shape))
    a.reshape(-1)[::5] = np.nan
    section, part = spread(pencil, a, halo=1)[key], a[key]
    for name in ("nansum", "nanmin", "nanmean", "nanvar", "nanargmax", "nanmedian"):
        function = getattr(np, name)
        for axis in (None, 0):
            if axis == 0 and name == "nanmedian" and part.ndim == pencil.ndim:
                continue  # cut on several ranks
            expected, texts, error = outcome(lambda: kept(part, axis, pencil.ndim, function))  # noqa: B023
            result, found, raised = outcome(lambda: function(section, axis))  # noqa: B023
            assert isinstance(raised, ValueError if error else type(None)), raised
            if error is None:
                assert_agrees(result, expected, rtol=1e-11)
                assert {text for _, text in found} == {text for _, text in texts}
    for call in (
        partial(np.histogram, bins=[-2, 0, 1]),
        partial(np.unique, return_counts=True),
        partial(np.nanquantile, q=[0.1, 0.9]),
    ):
        (expected, _, _), (result, _, _) = (outcome(partial(call, x)) for x in (part, section))
        both = (result, expected) if isinstance(expected, tuple) else ([result], [expected])
        for mine, theirs in zip(*both, strict=True):
            assert_agrees(mine, theirs)


def test_weights_that_vary_along_whole_dimensions(comm):
    pencil = lay(comm, "pencils")
    a, weights = draw(pencil.shape), draw(pencil.shape, seed=1) ** 2
    u, w = spread(pencil, a), spread(pencil, weights)
    profile = spread(pencil, weights[:1], dims=(1, 2))
    every = np.broadcast_to(weights[:1], a.shape)
    expected = np.average(a[1:-1], weights=every[1:-1])
    assert_agrees(np.average(u[1:-1], weights=profile), expected, rtol=1e-12)
    expected = np.histogram(a[1:-1], 4, weights=weights[1:-1])[0]
    assert_agrees(np.histogram(u[1:-1], 4, weights=w[1:-1])[0], expected, rtol=1e-12)
    with pytest.raises(PencilMismatchError):
        np.average(u[1:], weights=w[:-1])
    planes = np.histogram2d(u[::2], u[::2] ** 2, 3)[0]
    assert_agrees(planes, np.histogram2d(a[::2].ravel(), a[::2].ravel() ** 2, 3)[0])
