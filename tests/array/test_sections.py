"""Sections: ``u[key]`` is a field of what NumPy selects of the global array."""

import numpy as np
import pytest
from fields import assert_holds, both, draw, lay, spread
from mpi_helpers import all_raise, everywhere

import pencils
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SLICES = [
    *(slice(None), slice(1, -1), slice(None, None, 2), slice(None, None, -1), slice(-1, 0, -2)),
    *(slice(2, 2), slice(5, 100), slice(-3, None), slice(None, 1)),
]


def keys_for(pencil):
    """Draw keys of all kinds for a field with one component axis of length 2."""
    shape = (2, *pencil.shape)
    rng = np.random.default_rng(3)
    rising = [key for key in SLICES if key.step is None or key.step > 0]
    yield from (..., (), slice(None), slice(1, None), slice(None, None, -1), 0, -1, (..., 0))
    for _ in range(40):
        key = []
        for axis, n in enumerate(shape[: rng.integers(1, len(shape) + 1)]):
            slices = rising if axis - 1 in pencil.decomp else SLICES
            plain = rng.random() < 0.4
            key.append(int(rng.integers(-n, n)) if plain else slices[rng.integers(len(slices))])
        if rng.random() < 0.3 and len(key) == len(shape):
            key.insert(rng.integers(len(key) + 1), ...)
        yield tuple(key)


def with_space(key, ndim, lead=1):
    """Return the key for NumPy that keeps all dimensions of space: there, integers are slices."""
    entries = list(key) if isinstance(key, tuple) else [key]
    if ... not in [one for one in entries if not isinstance(one, np.ndarray)]:
        entries.append(...)
    at = entries.index(...)
    entries[at : at + 1] = [slice(None)] * (ndim - len(entries) + 1)
    return tuple(
        slice(one, one + 1 or None) if isinstance(one, int) and axis >= lead else one
        for axis, one in enumerate(entries)
    )


def test_a_section_is_a_field_of_the_selected_points(pencil):
    u, a = both(pencil, draw((2, *pencil.shape)), halo=1)
    for key in keys_for(pencil):
        part = u[key]
        assert_holds(part, a[with_space(key, a.ndim)])
        assert part.local.size == 0 or np.shares_memory(part.local, u.local)
        assert part.pencil.same_ranks(pencil)
        assert part.pencil.order == pencil.order


def test_sections_of_sections(pencil):
    u, a = both(pencil, draw(pencil.shape))
    for first in (slice(1, None), slice(None, None, 2), slice(None, -1)):
        for second in (slice(1, None), slice(None, None, 2), -1, slice(None)):
            one = a[first]
            if isinstance(second, int) and not len(one):
                continue
            assert_holds(u[first][second], one[with_space(second, a.ndim, lead=0)])
            kept = range(pencil.shape[0])[first][with_space(second, 1, lead=0)[0]]
            assert u[first][second].pencil == pencil.section(
                slice(kept.start, kept.stop, kept.step)
            )


def test_the_halo_and_the_edges_of_a_section(comm):
    pencil = lay(comm, "pencils")  # periodic
    u = pencils.zeros(pencil, halo=[1, (0, 2), 2], components=2)
    assert u[0].pencil is u[..., :].pencil is pencil
    assert u[0].halo == u.component(0).halo == u.halo
    assert np.shares_memory(u[0].padded, u.padded)
    inner = u[:, 1:-1]
    assert inner.halo == ((0, 0), (0, 2), (2, 2))
    assert inner.pencil.periodic == (False, True, True)
    assert u[:, :, :, 2].pencil.periodic == (True, True, False)
    assert u[:, 1:-1][:, :, :, 2].halo == ((0, 0), (0, 2), (0, 0))
    assert u[:, 1:-1].pencil is u[:, 1:-1].pencil is pencil.section(slice(1, -1))


def test_sections_are_views(pencil):
    u = pencils.zeros(pencil, halo=1)
    u[...][...] = 1
    u[1:] += 1
    u[:1][...] *= 5
    np.add(u[:1], 1, out=u[:1])
    expected = np.full(pencil.shape, 2.0)
    expected[:1] = 6
    assert_holds(u, expected)
    v = pencils.zeros(pencil, components=2)
    v[1] -= u
    v[1, :1] += 7
    assert_holds(v[0], 0 * expected)
    expected[:1] -= 7
    assert_holds(v[1], -expected)


def test_assignment_in_place(pencil):
    u, a = both(pencil, draw((2, *pencil.shape)), halo=1)
    for key in keys_for(pencil):
        a[with_space(key, a.ndim)] += 1
        u[key] += 1
        a[with_space(key, a.ndim)] *= 2
        u[key] *= 2
        assert_holds(u, a)
    u[...] -= a
    assert not u.local.any()


def test_keys_of_the_same_hash_are_different(comm):
    """True equals 1 and 1.0, but is no integer; nothing is looked up by equality."""
    u = spread(lay(comm, "pencils"), draw((5, 4, 6)))
    expected = draw((5, 4, 6))[1:2]
    assert_holds(u[1], expected)
    for key in (True, 1.0, (True, ...), slice(1.0, 2)):
        with pytest.raises(TypeError):
            u[key]
    for key in (np.int64(1), np.int8(1), slice(np.int64(1), np.int64(2))):
        assert_holds(u[key], expected)


def test_bad_keys(pencil):
    u = pencils.zeros(pencil)
    n = pencil.shape[0]
    for key in (n, -n - 1, (0,) * (pencil.ndim + 1), (..., ...)):
        for call in (lambda key=key: u[key], lambda key=key: u.__setitem__(key, 0)):
            with pytest.raises(IndexError):
                call()
    for key, text in (
        *((key, r"u\.take_points\(index\)") for key in ([0, 1], np.array([0]), ([0], ...))),
        (None, r"np\.stack\(\[u\]\)"),
        *((key, "mask is a boolean field or array") for key in (True, np.True_, (True, ...))),
        (1.0, "round or convert"),
        ("x", r"points are u\[...\]"),
    ):
        for call in (lambda key=key: u[key], lambda key=key: u.__setitem__(key, 0)):
            with pytest.raises(TypeError, match=rf"integers, slices and one Ellipsis.*{text}"):
                call()
    for mask in (np.ones(pencil.shape, bool), u > 0, np.ones(pencil.shape, bool).tolist()):
        with pytest.raises(TypeError, match=r"u\.sum\(where=mask\).*u\.local\[mask\.local\]"):
            u[mask]
    falling = tuple(
        slice(None, None, -1 if dim == pencil.decomp[0] else 1) for dim in range(pencil.ndim)
    )
    if pencil.shape[pencil.decomp[0]] > 1:
        with pytest.raises(ArgumentError, match=rf"np\.flip\(u, {pencil.decomp[0]}\)"):
            u[falling]


def mixes(pencil, one, other):
    """Whether two keys select fields that mix."""
    u = spread(pencil, draw(pencil.shape))
    try:
        return u[one] + u[other]
    except PencilMismatchError as error:
        return str(error)


def test_fields_of_other_points_do_not_mix(comm):
    """On one rank, too."""
    pencil = pencils.Pencil((6, 5), comm)
    for one, other, text in (
        (np.s_[1:], np.s_[:-1], "(u.shift((1, 0)) - u)[:-1]"),
        (np.s_[:, 1:], np.s_[:, :-1], "(u.shift((0, 1)) - u)[:, :-1]"),
        (np.s_[::2], np.s_[1::2], "(u.shift((-1, 0)) - u)[1::2]"),
        (np.s_[1:], np.s_[...], "the same section of both, as in v[1:]"),
        (np.s_[3], np.s_[...], "u[3].replicate()"),
        (np.s_[3], np.s_[2], "sections of different points: u[2].replicate()"),
        (np.s_[1:, 3], np.s_[:-1, 3], "(u.shift((1, 0)) - u)[:-1, 3]"),
        (np.s_[:-1], np.s_[...], "the same section of both, as in v[:-1]"),
        (np.s_[:, 1:], np.s_[:, ::-1], "global shapes differ"),
        (np.s_[:, ::-1], np.s_[...], "transpose(v, u[:, ::-1].pencil)"),
        (np.s_[1:, 0], np.s_[1:, 1:], "u[1:, 0].replicate()"),
    ):
        assert text in mixes(pencil, one, other), (one, other)
    for one, other in (
        (np.s_[1:3], np.s_[1:-3]),
        (np.s_[2], np.s_[2:3]),
        (np.s_[4:5:3], np.s_[4]),
        (np.s_[3:3], np.s_[1:1]),
        (np.s_[:, ::-1], np.s_[:, ::-1]),
    ):
        a = draw(pencil.shape)
        assert_holds(mixes(pencil, one, other), 2 * a[with_space(one, 2, lead=0)])


def test_fields_mix_where_they_vary(comm):
    """Along other dimensions, in which they are singletons, their pencils may differ."""
    pencil = lay(comm, "pencils")
    a, n = draw(pencil.shape), pencil.shape
    u = spread(pencil, a)
    x, y = (
        spread(pencil, draw(shape), dims=dims)
        for shape, dims in (((n[0], 1, 1), 0), ((1, n[1], 1), 1))
    )
    b, c = draw((n[0], 1, 1)), draw((1, n[1], 1))
    assert_holds(u[1:-1] - u.max(axis=0), a[1:-1] - a.max(axis=0, keepdims=True))
    assert_holds(u[1:-1] * y, a[1:-1] * c)
    assert_holds(x[2:] * y[:, 1:] * u[2:, 1:], b[2:] * c[:, 1:] * a[2:, 1:])
    assert_holds(x[2:] * y[:, 1:], b[2:] * c[:, 1:])
    assert (x[2:] * y[:, 1:]).pencil == pencil.section(np.s_[2:, 1:])
    assert_holds(np.where(u[1:] > 0, x[1:], y), np.where(a[1:] > 0, b[1:], c))
    assert_holds(u[::2] * np.arange(6.0), a[::2] * np.arange(6.0))
    assert_holds(
        u[1:-1] * np.arange(3.0).reshape(3, 1, 1), a[1:-1] * np.arange(3.0).reshape(3, 1, 1)
    )
    with pytest.raises(PencilMismatchError, match="different points"):
        x[1:] * u[:-1]
    with pytest.raises(PencilMismatchError, match="same section"):
        x * u[1:]


def test_masks(pencil):
    a, b = draw((3, *pencil.shape)), draw(pencil.shape, seed=1)
    u, v = spread(pencil, a, halo=1), spread(pencil, b)
    u[v > 0] = 7
    a[:, b > 0] = 7
    assert_holds(u, a)
    u[u < 0] = v
    np.copyto(a, b, where=a < 0)
    assert_holds(u, a)
    u[b < -1] = -1.5
    a[:, b < -1] = -1.5
    assert_holds(u, a)
    x = spread(pencil, draw((pencil.shape[0],) + (1,) * (pencil.ndim - 1)), dims=0)
    u[1, ...][x > 0] = x
    np.copyto(a[1], draw(x.shape), where=draw(x.shape) > 0)
    assert_holds(u, a)
    u[:, 1:][v[1:] > 1] = 3
    a[:, 1:][:, b[1:] > 1] = 3
    assert_holds(u, a)


def test_bad_masks(pencil):
    u, mask = pencils.zeros(pencil), np.ones(pencil.shape, bool)
    with pytest.raises(TypeError, match="must be boolean"):
        u[u] = 1
    with pytest.raises(TypeError, match=r"np\.copyto\(u, values, where=mask\)"):
        u[mask] = np.zeros(mask.sum())
    with pytest.raises(ArgumentError, match="must have all"):
        u[mask[..., None]] = 0
    with pytest.raises(ValueError, match="NaN"):
        pencils.zeros(pencil, dtype=int)[mask] = np.nan
    if pencil.shape[0] > 1:
        with pytest.raises(PencilMismatchError):
            u[1:][u > 0] = 0
        with pytest.raises(ArgumentError, match="do not broadcast"):
            u[np.ones([n + 1 for n in pencil.shape], bool)] = 0
        thin = (
            pencils.zeros(pencil, dims=())
            if pencil.ndim == 1
            else pencils.zeros(pencil, dims=pencil.ndim - 1)
        )
        with pytest.raises(ArgumentError, match="do not fit into a field"):
            thin[u > 0] = 1
    assert not u.any()


@pytest.mark.parametrize("name", ["few", "plane", "thin", "blocks"])
def test_scalars_and_global_arrays_are_assigned(comm, name):
    pencil = lay(comm, name)
    a = draw((2, *pencil.shape))
    for number, key in enumerate(keys_for(pencil)):
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
    u[:, 1:] = -v[1:]
    expected = np.stack([a[0], b]) * 2
    expected[:, 1:] = -b[1:]
    assert_holds(u, expected)
    if pencil.shape[0] > 1:
        with pytest.raises(PencilMismatchError, match=r"the same section of both|replicate"):
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
        u[(0, *before, 0)] = (2 * u)[(0, *before, 0)]
        expected[(0, *before, 0)] *= 2
        assert_holds(u, expected)
        u[(0, *before, 0)] = u[(0, *before, -1)]
        expected[(0, *before, 0)] = expected[(0, *before, -1)]
        assert_holds(u, expected)


def test_fields_of_other_pencils_are_not_assigned(comm):
    pencil = lay(comm, "pencils")
    u = pencils.zeros(pencil)
    with pytest.raises(PencilMismatchError, match="the same section"):
        u[...] = pencils.zeros(pencil)[1:]
    thin = pencils.ones(pencil, dims=(0, 2))
    u[...] = thin
    assert_holds(u, np.ones(pencil.shape))
    with pytest.raises(ArgumentError, match="do not fit into a field"):
        thin[...] = u


def test_singletons_are_indexed(comm):
    pencil = lay(comm, "pencils")
    u, a = both(pencil, draw((pencil.shape[0], 1, pencil.shape[2])), dims=(0, 2))
    u[:, 0, 1] = 7
    a[:, 0, 1] = 7
    assert_holds(u, a)
    assert u[:, 0].singletons == u[1:, -1].singletons == {1}
    assert_holds(u[:, 0], a)
    assert_holds(u[1:, -1, ::2], a[1:, :, ::2])
    for key in (np.s_[:, 1], np.s_[:, -2]):
        with pytest.raises(IndexError, match="out of bounds"):
            u[key]
    with pytest.raises(IndexError, match="would select no points"):
        u[:, 1:]


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
    all_raise(comm, kind, "", u.__setitem__, 0, value)
    all_raise(comm, kind, "", u.__setitem__, (1, 2), value)
    assert everywhere(comm, (u.local == 1).all())


def test_shapes_that_do_not_fit_raise_even_where_nothing_is_owned(comm):
    u = pencils.ones(pencils.Pencil((2, 5, 3), comm))
    text = "taken as global and do not broadcast to the global shape"
    for key, shape in (((0,), (4, 3)), ((0,), (2, 5, 3)), ((0, 0, 0), (2,)), ((...,), (3, 5, 3))):
        values = np.zeros(shape)
        all_raise(comm, ArgumentError, text, u.__setitem__, key, values)
    masked = np.ma.masked_array(np.ones(3), [True, False, False])
    all_raise(comm, TypeError, "masked", u.__setitem__, 0, masked)
    assert everywhere(comm, (u.local == 1).all())


def test_components_that_do_not_fit_raise_on_all_ranks(comm):
    """Also where nothing of the plane is owned."""
    pen = pencils.Pencil((comm.size, 4), comm, decomp=0)
    wall = pencils.zeros(pen, components=3, dims=1)
    all_raise(comm, ArgumentError, "components", pencils.zeros(pen).__setitem__, 0, wall)
    locked = pencils.partition(pen, np.broadcast_to(0.0, pen.shape))
    all_raise(comm, ArgumentError, "read-only", locked.__setitem__, 0, 1.0)
