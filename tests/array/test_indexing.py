"""Global basic indices: the local part of what NumPy gives for the global array."""

import numpy as np
import pytest
from fields import assert_holds, draw, lay, spread
from mpi_helpers import everywhere, other_blocks, raise_together

import pencils
from pencils.errors import ArgumentError, NotLocalError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SLICES = [
    *(slice(None), slice(1, -1), slice(None, None, 2), slice(None, None, -1), slice(-1, 0, -2)),
    *(slice(2, 2), slice(5, 100), slice(-3, None), slice(None, 1)),
]


def keys_for(shape):
    """Draw keys of all kinds for an array of this shape."""
    rng = np.random.default_rng(3)
    yield from (..., (), slice(None), slice(1, None), (..., slice(None, None, -2)), 0, -1, (..., 0))
    for _ in range(40):
        key = [
            int(rng.integers(-n, n)) if rng.random() < 0.4 else SLICES[rng.integers(len(SLICES))]
            for n in shape[: rng.integers(1, len(shape) + 1)]
        ]
        if rng.random() < 0.3:
            key.insert(rng.integers(len(key) + 1), ...)
        yield tuple(key)


def owned(field, key):
    """Mask of the selected elements that this rank owns."""
    mask = np.zeros(field.shape, bool)
    mask[field.local_slices] = True
    return mask[key]


def test_reading_gives_the_local_part(pencil):
    a = draw((2, *pencil.shape))
    u = spread(pencil, a, halo=1)
    for key in keys_for(a.shape):
        expected, mask = a[key], owned(u, key)
        if np.ndim(expected) == 0 and not mask:
            with pytest.raises(NotLocalError):
                u[key]
            continue
        part = u[key]
        assert np.ndim(part) == expected.ndim, key
        np.testing.assert_array_equal(np.ravel(part), np.ravel(expected[mask]), str(key))
        assert np.ndim(part) == 0 or part.base is not None or part is u.local


def test_parts_are_views(pencil):
    u = pencils.zeros(pencil, halo=1)
    u[...][...] = 1
    u[1:] += 1
    u[:1][...] *= 5
    expected = np.full(pencil.shape, 2.0)
    expected[:1] = 5
    assert_holds(u, expected)
    assert u[...] is u.local
    assert np.shares_memory(u[-1:], u.padded) == (u[-1:].size > 0)


def test_assignment_in_place(pencil):
    a = draw((2, *pencil.shape))
    u = spread(pencil, a, halo=1)
    for key in keys_for(a.shape):
        if a[key].ndim:
            a[key] += 1
            u[key] += 1
            a[key] *= 2
            u[key] *= 2
            assert_holds(u, a)
    u[...] -= a[u.local_slices]
    assert not u.local.any()


def test_empty_parts_have_the_right_form(comm):
    u = pencils.zeros(pencils.Pencil((comm.size, 4, 5), comm, decomp=0), dtype="f4")
    plane = u[(comm.rank + 1) % comm.size, 1:3]
    assert plane.dtype == np.float32
    assert plane.shape == ((2, 5) if comm.size == 1 else (0, 5))
    assert u[2:2].shape == (0, 4, 5)


def test_a_single_element_names_its_owner(comm):
    u = spread(pencils.Pencil((comm.size, 2), comm), draw((2, comm.size, 2)))
    owner = comm.size - 1
    if comm.rank == owner:
        assert u[1, -1, 0] == draw((2, comm.size, 2))[1, -1, 0]
    else:
        with pytest.raises(NotLocalError, match=rf"\(1, {owner}, 0\) is owned by rank {owner}"):
            u[1, -1, 0]
        with pytest.raises(IndexError, match="gather"):
            u[1, -1, 0]


def test_bad_keys(pencil):
    u = pencils.zeros(pencil)
    n = pencil.shape[0]
    for key in (n, -n - 1, (0,) * (pencil.ndim + 1), (..., ...)):
        for call in (lambda key=key: u[key], lambda key=key: u.__setitem__(key, 0)):
            with pytest.raises(IndexError):
                call()
    mask = np.ones(pencil.shape, bool)
    for key in (None, True, [0, 1], np.array([0]), mask, u > 0, 1.0, "x"):
        for call in (lambda key=key: u[key], lambda key=key: u.__setitem__(key, 0)):
            with pytest.raises(TypeError, match=r"integers, slices and Ellipsis.*u\.local"):
                call()
    assert u[np.int64(0) :].shape == u.local.shape
    assert u[np.intp(0) :: np.intp(2)].ndim == pencil.ndim


@pytest.mark.parametrize("name", ["few", "plane", "thin", "blocks"])
def test_scalars_and_global_arrays_are_assigned(comm, name):
    pencil = lay(comm, name)
    a = draw((2, *pencil.shape))
    for number, key in enumerate(keys_for(a.shape)):
        expected, u = a.copy(), spread(pencil, a, halo=1)
        values = draw(a[key].shape, seed=number)
        expected[key] = u[key] = values
        assert_holds(u, expected)
        expected[key] = u[key] = number
        assert_holds(u, expected)
        if values.ndim:
            row = values[..., :1, :] if values.ndim > 1 else values[:1]
            if row.size:
                expected[key] = u[key] = row[None]
                assert_holds(u, expected)
                expected[key] = u[key] = row.tolist()
                assert_holds(u, expected)


def test_fields_are_assigned(pencil):
    a, b = draw((2, *pencil.shape)), draw(pencil.shape, seed=1)
    u, v = spread(pencil, a), spread(pencil, b, halo=1)
    u[...] = v
    assert_holds(u, np.stack([b, b]))
    u[...] = spread(pencil, a)
    u[1] = v
    assert_holds(u, np.stack([a[0], b]))
    u[:, :] = u * 2
    assert_holds(u, np.stack([a[0], b]) * 2)
    with pytest.raises(ArgumentError, match="varies along dimension 0"):
        u[:, 1:] = v
    with pytest.raises(ValueError, match="broadcast"):
        v[...] = u


def test_planes_take_fields_that_are_singletons_across_them(pencil):
    """A field without extent along a dimension fills planes and slabs of it."""
    if min(pencil.shape) == 0:
        return
    a, b = draw((2, *pencil.shape)), draw(pencil.shape, seed=1)
    for dim in range(pencil.ndim):
        u, expected = spread(pencil, a), a.copy()
        wall = b.take([0], axis=dim)
        others = tuple(d for d in range(pencil.ndim) if d != dim)
        field = pencils.partition(pencil, wall.take(0, axis=dim), dims=others)
        before = (slice(None),) * dim
        u[(1, *before, -1)] = field
        expected[(1, *before, -1)] = wall.take(0, axis=dim)
        u[(0, *before, slice(0, None, 2))] = field
        expected[(0, *before, slice(0, None, 2))] = wall
        assert_holds(u, expected)
        if pencil.ndim > 1:
            with pytest.raises(ArgumentError, match="must be a singleton"):
                u[(..., *(slice(1) if d != dim else slice(None) for d in range(pencil.ndim)))] = (
                    spread(pencil, b)
                )


def test_fields_of_other_pencils_are_not_assigned(comm):
    pencil = lay(comm, "pencils")
    u = pencils.zeros(pencil)
    with pytest.raises(PencilMismatchError, match="transpose"):
        u[...] = pencils.zeros(other_blocks(pencil))
    thin = pencils.ones(pencil, dims=(0, 2))
    u[...] = thin
    assert_holds(u, np.ones(pencil.shape))
    with pytest.raises(ArgumentError, match="do not fit into a field"):
        thin[...] = u


def test_singletons_are_indexed(comm):
    pencil = lay(comm, "pencils")
    a = draw((pencil.shape[0], 1, pencil.shape[2]))
    u = spread(pencil, a, dims=(0, 2))
    u[:, 0, 1] = 7
    a[:, 0, 1] = 7
    assert_holds(u, a)
    np.testing.assert_array_equal(u[:, 0], a[u.local_slices][:, 0])


def test_records_are_assigned(pencil):
    kind = np.dtype([("mass", "f4"), ("charge", "i2")])
    u, a = pencils.zeros(pencil, dtype=kind), np.zeros(pencil.shape, kind)
    u[0] = a[0] = (1.5, 2)
    assert_holds(u, a)


def test_conversions_are_those_of_numpy(pencil):
    a, u = np.zeros(pencil.shape, int), pencils.zeros(pencil, dtype=int)
    a[0] = u[0] = 2.7
    a[1:] = u[1:] = draw(a[1:].shape) * 5
    assert_holds(u, a)


@pytest.mark.parametrize(
    ("dtype", "value", "kind"),
    [
        (float, 1j, TypeError),
        (float, "word", ValueError),
        (int, np.nan, ValueError),
        (int, 2**70, OverflowError),
        (float, np.array("word"), ValueError),
    ],
)
def test_values_that_do_not_fit_raise_even_where_nothing_is_owned(comm, dtype, value, kind):
    u = pencils.ones(pencils.Pencil((2, 3), comm), dtype=dtype)
    raise_together(comm, kind, call=lambda: u.__setitem__(0, value))
    raise_together(comm, kind, call=lambda: u.__setitem__((1, 2), value))
    assert everywhere(comm, (u.local == 1).all())


def test_shapes_that_do_not_fit_raise_even_where_nothing_is_owned(comm):
    u = pencils.ones(pencils.Pencil((2, 5, 3), comm))
    text = "taken as global and do not broadcast to the global shape"
    for key, shape in (((0,), (4, 3)), ((0,), (2, 5, 3)), ((0, 0, 0), (2,)), ((...,), (3, 5, 3))):
        values = np.zeros(shape)
        raise_together(comm, ArgumentError, text, call=lambda k=key, v=values: u.__setitem__(k, v))
    masked = np.ma.masked_array(np.ones(3), [True, False, False])
    raise_together(comm, TypeError, "masked", call=lambda: u.__setitem__(0, masked))
    assert everywhere(comm, (u.local == 1).all())


def test_components_that_do_not_fit_raise_on_all_ranks(comm):
    """Also where nothing of the plane is owned."""
    pen = pencils.Pencil((comm.size, 4), comm, decomp=0)
    wall = pencils.zeros(pen, components=3, dims=1)
    raise_together(
        comm, ArgumentError, "components", call=lambda: pencils.zeros(pen).__setitem__(0, wall)
    )
    locked = pencils.partition(pen, np.broadcast_to(0.0, pen.shape))
    raise_together(comm, ArgumentError, "read-only", call=lambda: locked.__setitem__(0, 1.0))
