"""NumPy functions of single points with replicated tables, against NumPy."""

import numpy as np
import pytest
from fields import assert_holds, both, draw, in_memory_order, lay, spread

import pencils
from pencils.errors import PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "g", "u1", ">i4", "?"])
def test_searchsorted_and_digitize(pencil, dtype):
    a = draw((2, *pencil.shape), dtype)
    if np.dtype(dtype).kind == "f":
        a.reshape(-1)[0] = np.nan
    u, edges = spread(pencil, a, halo=1), np.array([-2, 0, 0.5, 3])
    for side in ("left", "right"):
        result = np.searchsorted(edges, u, side)
        assert_holds(result, np.searchsorted(edges, a, side))
        assert in_memory_order(result)
        assert_holds(np.digitize(u, edges, side == "left"), np.digitize(a, edges, side == "left"))
    assert_holds(np.searchsorted(edges[::-1], u, sorter=[3, 2, 1, 0]), np.searchsorted(edges, a))
    assert_holds(np.digitize(u, edges[::-1]), np.digitize(a, edges[::-1]))


def test_times_are_sorted_in(pencil):
    a = draw(pencil.shape, int).astype("M8[h]")
    u, edges = spread(pencil, a), np.array([-3, 2], "M8[h]")
    assert_holds(np.searchsorted(edges, u), np.searchsorted(edges, a))


def test_what_is_not_sorted_in(pencil):
    u = pencils.ones(pencil)
    with pytest.raises(TypeError, match="a must be a NumPy array that all ranks have"):
        np.searchsorted(u, 1)
    with pytest.raises(TypeError, match="bins must be a NumPy array that all ranks have"):
        np.digitize(u, u)
    with pytest.raises(ValueError, match="monotonically"):
        np.digitize(u, [1, 3, 2])
    with pytest.raises(ValueError, match=r"side|search"):
        np.searchsorted([1], u, side="middle")
    few = pencils.ones(pencils.Pencil(1))  # most ranks have no point
    for sorter in ([0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="sorter"):
            np.searchsorted([1, 2], few, sorter=sorter)


@pytest.mark.parametrize("dtype", ["f8", "i4", "u1", "?", "c8", "M8[s]"])
def test_isin(pencil, dtype):
    a = draw(pencil.shape, int).astype(dtype)
    u, values = spread(pencil, a), draw((4,), int).astype(dtype)
    for options in ({}, {"invert": True}, {"kind": "sort"}):
        assert_holds(np.isin(u, values, **options), np.isin(a, values, **options))
    assert_holds(np.isin(u, []), np.isin(a, []))
    with pytest.raises(TypeError, match=r"numpy\.unique"):
        np.isin(values, u)


def test_select(pencil):
    a, b = draw(pencil.shape), draw(pencil.shape, seed=1)
    u, v = spread(pencil, a, halo=1), spread(pencil, b)
    expected = np.select([a > 1, b > 0], [a, 2], b)
    for first, second, value, default in (
        (u > 1, v > 0, u, v),
        (u > 1, b > 0, a, b),
        (a > 1, v > 0, u, b),
    ):
        result = np.select([first, second], [value, 2], default)
        assert_holds(result, expected)
        assert in_memory_order(result)
    assert_holds(np.select((u > 1,), (v,)), np.select([a > 1], [b]))
    counts = u.astype("i2")
    assert np.select([u > 1], [counts], 1).dtype == np.int16
    with pytest.raises(ValueError, match="same length"):
        np.select([u > 1], [u, v])
    with pytest.raises(TypeError, match="bool"):
        np.select([u], [v])
    other = pencils.ones(pencil.with_(shape=[n + 1 for n in pencil.shape]))
    with pytest.raises(PencilMismatchError):
        np.select([u > 1], [other])


def test_select_of_singletons(comm):
    pencil = lay(comm, "pencils")
    x, y = draw((*pencil.shape[:1], 1, 1)), draw((1, pencil.shape[1], 1))
    u, v = spread(pencil, x, dims=0), spread(pencil, y, dims=1)
    assert_holds(np.select([u > 0], [v], 1), np.select([x > 0], [y], 1))
    assert np.select([u > 0], [u]).singletons == u.singletons


def test_piecewise(pencil):
    a, b = draw(pencil.shape), draw(pencil.shape, seed=1)
    u, v = spread(pencil, a, halo=1), spread(pencil, b)
    pieces = [lambda x: x**2, -1, lambda x: x + 1]
    expected = np.piecewise(a, [a > 1, b > 0], pieces)
    for first, second in ((u > 1, v > 0), (a > 1, v > 0), (u > 1, b > 0)):
        result = np.piecewise(u, [first, second], pieces)
        assert_holds(result, expected)
        assert in_memory_order(result)
    assert_holds(np.piecewise(u, u > 0, [1]), np.piecewise(a, [a > 0], [1]))
    assert_holds(np.piecewise(u, a > 0, [1, 2]), np.piecewise(a, [a > 0], [1, 2]))
    doubled = np.piecewise(u, [u > 0], [lambda x, k: k * x], 2)
    assert_holds(doubled, np.piecewise(a, [a > 0], [lambda x: 2 * x]))
    counts = np.trunc(u).astype(int)
    assert np.piecewise(counts, [u > 0], [0.5]).dtype == int
    with pytest.raises(ValueError, match="functions"):
        np.piecewise(u, [u > 0], [1, 2, 3])


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c16"])
def test_polyval(pencil, dtype):
    u, a = both(pencil, draw(pencil.shape, dtype))
    for p in ([1, 2, 3], np.array([0.5, 1]), []):
        assert_holds(np.polyval(p, u), np.polyval(p, a))
    with pytest.raises(TypeError, match="p must be a NumPy array"):
        np.polyval(u, 2.0)


def test_fix_and_astype(pencil):
    a = draw(pencil.shape)
    u, out = spread(pencil, a, halo=1), pencils.empty(pencil)
    assert_holds(np.fix(u), np.fix(a))
    assert np.fix(u, out=out) is out
    assert_holds(out, np.fix(a))
    assert_holds(np.astype(u, int), a.astype(int))
    assert np.astype(u, float) is not u
    assert np.astype(u, float, copy=False) is u
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        with pytest.raises(ValueError, match="cpu"):
            np.astype(u, int, device="gpu")


def test_methods(pencil):
    u, a = both(pencil, draw((2, *pencil.shape), "c8"), halo=1)
    assert_holds(u.conjugate(), a.conjugate())
    assert_holds(u.conj(), a.conj())
    assert_holds(u.round(1), a.round(1))
    assert u.nbytes == a.nbytes
    assert u.itemsize == 8
    assert u.mean(axis=1).nbytes == a.mean(axis=1, keepdims=True).nbytes
    v, b = u.real, a.real
    assert_holds(v.clip(-1, 1), b.clip(-1, 1))
    assert_holds(v.clip(min=0), b.clip(min=0))
    assert_holds(v.clip(max=v.component(0)), b.clip(max=b[0]))
    assert_holds(v.clip(0, 2, dtype="f8"), b.clip(0, 2, dtype="f8"))
    out = pencils.empty(pencil, components=2, dtype="f4")
    assert v.clip(0, 1, out=out) is out
    assert v.round(out=out) is out
    assert_holds(out, b.round())
    assert v.ptp() == np.ptp(b)
    assert_holds(v.ptp(axis=1), np.ptp(b, axis=1, keepdims=True))
    assert_holds(v.ptp(axis=0), np.ptp(b, axis=0))


@pytest.mark.parametrize("components", [(), (2,)])
def test_own_points(comm, pencil, components):
    m, mask = both(pencil, draw((*components, *pencil.shape), "?"), halo=1)
    mine = pencils.functions.own_points(m)
    assert mine.dtype == np.int64
    assert mine.shape == (mine.shape[0], mask.ndim)
    rows = sorted(map(tuple, np.concatenate(comm.allgather(mine)).tolist()))
    assert rows == [tuple(row) for row in np.argwhere(mask).tolist()]
    assert mask[tuple(mine.T)].all()


def test_points_of_replicas_count_once(comm, pencil):
    everywhere = spread(pencil, draw(pencil.shape)).max(axis=0) < np.inf
    rows = comm.allgather(len(pencils.functions.own_points(everywhere)))
    assert sum(rows) == everywhere.size


def test_no_points(pencil):
    assert pencils.functions.own_points(pencils.zeros(pencil, dtype=bool)).shape == (0, pencil.ndim)


def test_what_is_no_mask(pencil):
    with pytest.raises(TypeError, match="as in u != 0"):
        pencils.functions.own_points(pencils.ones(pencil))
    with pytest.raises(TypeError, match="must be a PencilArray"):
        pencils.functions.own_points(np.ones(pencil.shape, bool))
