"""Functions along axes: of sections and random layouts, with blocks that are uneven or empty."""

import numpy as np
import pytest
from fields import assert_holds, both, draw, spread
from mpi_helpers import all_raise, everywhere, random_pencil, ranks_at_fault

import pencils
from pencils.errors import ArgumentError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

KEYS = [np.s_[1:-1], np.s_[::2], np.s_[1], np.s_[..., 1:], np.s_[:0], np.s_[-1:, ...]]

# Functions of an array and an axis; how many points they need, and what rounding may change.
ALONG = {
    "cumsum": (np.cumsum, 0, 1e-13),
    "cumprod": (np.cumprod, 0, 1e-12),
    "roll": (lambda x, axis: np.roll(x, 2, axis), 0, 0),
    "flip": (np.flip, 0, 0),
    "diff": (lambda x, axis: np.diff(x, axis=axis), 0, 0),
    "third diff": (lambda x, axis: np.diff(x, 3, axis), 0, 0),
    "trapezoid": (lambda x, axis: np.trapezoid(x, axis=axis), 0, 1e-12),
    "gradient": (lambda x, axis: np.gradient(x, axis=axis), 2, 1e-13),
    "second gradient": (lambda x, axis: np.gradient(x, axis=axis, edge_order=2), 3, 1e-13),
}


def assert_along(u, a, axis):
    """Check all functions of a field along an axis, over which an integral leaves a plane."""
    dim = axis % a.ndim - len(u.components)
    for name, (function, least, rtol) in ALONG.items():
        if a.shape[axis] < least:
            continue
        if "diff" in name and dim in u.singletons:
            with pytest.raises(ArgumentError, match="replicated"):
                function(u, axis)
            continue
        found, expected = function(u, axis), function(a, axis)
        if expected.ndim < a.ndim and dim >= 0:
            expected = np.expand_dims(expected, axis)
            assert found.singletons == u.singletons | {dim}
        else:
            assert found.singletons == u.singletons
            assert found.pencil is u.pencil or "diff" in name
        assert_holds(found, expected, rtol=rtol)


def kept(key):
    """Return the key with slices of one point instead of integers."""
    keys = key if isinstance(key, tuple) else (key,)
    return tuple(slice(one, one + 1) if isinstance(one, int) else one for one in keys)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_sections(pencil, key):
    whole = draw(pencil.shape)
    u, part = spread(pencil, whole, halo=1)[key], whole[kept(key)]
    for axis in range(part.ndim):
        assert_along(u, part, axis)
    if u.size:
        v = np.flip(np.roll(u, 1, 0)) + u
        assert_holds(v, np.flip(np.roll(part, 1, 0)) + part)


@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_components_and_singletons(pencil, dtype):
    u, a = both(pencil, draw((2, 3, *pencil.shape), dtype))
    for axis in (0, 1, 2, -1):
        assert_along(u, a, axis)
    for dim in range(pencil.ndim):
        few = [1 if d == dim else n for d, n in enumerate(pencil.shape)]
        line = [n if d == dim else 1 for d, n in enumerate(pencil.shape)]
        for shape in (few, line):
            dims = [d for d in range(pencil.ndim) if (d == dim) == (shape is line)]
            u, a = both(pencil, draw(shape, dtype), dims=dims)
            for axis in range(pencil.ndim):
                assert_along(u, a, axis)


def test_sections_of_results(pencil):
    u, whole = both(pencil, draw(pencil.shape))
    assert_holds(np.cumsum(u, 0)[::2] - u[::2], np.cumsum(whole, 0)[::2] - whole[::2], rtol=1e-13)
    if pencil.shape[0] > 1:
        assert_holds(np.diff(u[1:], axis=0), np.diff(whole[1:], axis=0))
        assert_holds(
            np.gradient(u, axis=0)[1:-1] * u[1:-1], np.gradient(whole, axis=0)[1:-1] * whole[1:-1]
        )


def test_random_layouts(comm):
    rng = np.random.default_rng(7)
    for least in [0] * 10 + [3] * 10:
        shape = tuple(rng.integers(least, 9, rng.integers(1, 4)).tolist())
        u, whole = both(random_pencil(rng, comm, shape), draw(shape))
        axes, steps = tuple(range(len(shape))), tuple(rng.integers(-9, 10, len(shape)).tolist())
        assert_holds(np.roll(u, steps, axes), np.roll(whole, steps, axes))
        assert_holds(np.flip(u), np.flip(whole))
        for axis in axes:
            assert_along(u, whole, axis)
        at = [rng.random(extent).cumsum() for extent in shape]
        for order in (1, 2) if least else ():
            found, expected = (np.gradient(x, *at, edge_order=order) for x in (u, whole))
            if len(shape) == 1:
                found, expected = [found], [expected]
            for one, other in zip(found, expected, strict=True):
                assert_holds(one, other, rtol=1e-12 * np.abs(other).max())


A, T = ArgumentError, TypeError
REFUSED = [
    (lambda u: np.roll(u, 1.5), T, "shift"),
    (lambda u: np.roll(u, 1, 2), A, "axis"),
    (lambda u: np.roll(u, [[1]], (0,)), A, "shift"),
    (lambda u: np.roll(u, (1, 2, 3), (0, 1)), ValueError),
    (lambda u: np.flip(u, (0, 0)), A, "axis"),
    (lambda u: np.fliplr(pencils.ones(pencils.Pencil((4,), u.pencil.comm))), A, "axis"),
    (lambda u: np.diff(u, axis=2), A, "axis"),
    (lambda u: np.diff(u, -1), A, "n=-1"),
    (lambda u: np.diff(u, append=u[:1]), A, "shapes"),
    (lambda u: np.trapezoid(u, axis=2), A, "axis"),
    (lambda u: np.trapezoid(u, np.arange(4.0)), A, "coordinates"),
    (lambda u: np.trapezoid(u, np.ones((4, 5))), A, "coordinates"),
    (lambda u: np.trapezoid(u, dx=np.ones(4)), A, "dx"),
    (lambda u: np.trapezoid(u, u), T, "NumPy array"),
    (lambda u: np.gradient(u, edge_order=3), A, "edge_order"),
    (lambda u: np.gradient(u[:2], axis=0, edge_order=2), A, "at least 3"),
    (lambda u: np.gradient(u, axis=2), A, "axis"),
    (lambda u: np.gradient(u, axis=()), A, "axis"),
    (lambda u: np.gradient(u, 1.0, 2.0, 3.0), T, "spacings"),
    (lambda u: np.gradient(u, np.arange(3.0), axis=1), A, "coordinates"),
    (lambda u: np.gradient(u, u.mean(axis=0), axis=1), T, "NumPy array"),
    (lambda u: np.gradient(u > 0), T),
    (np.cumsum, A, "flatten", "axis"),
    (lambda u: np.cumsum(u, 2), A, "axis=(2,)"),
    (lambda u: np.cumsum(u, 0, out=u), T, "out="),
    (lambda u: np.add.accumulate(u, out=u), T, "out="),
    (np.subtract.accumulate, T, "subtract.accumulate does not take a PencilArray"),
    (lambda u: np.cumsum(u, 0, dtype=object), T),
    (lambda u: np.cumsum(u, 0, dtype="m8[s]"), T, "timedelta64"),
]
if hasattr(np, "cumulative_sum"):
    initial = {"axis": 0, "include_initial": True}
    REFUSED.append((lambda u: np.cumulative_sum(u, **initial), A, "one point more"))


def test_refused(comm):
    u = pencils.ones(pencils.Pencil((4, 5), comm))
    for call, kind, *texts in REFUSED:
        all_raise(comm, kind, texts, call, u)
    for call in (np.cumprod, lambda u, axis: np.trapezoid(u.astype("M8[s]"), axis=axis)):
        with pytest.raises(TypeError):
            call(u.astype("m8[s]"), 0)
    assert_holds(np.diff(u), np.zeros((4, 4)))
    assert_holds(np.roll(pencils.ones(pencils.Pencil((4,), comm)), 1), np.ones(4))


# Functions of a field and a number, in which a rank may be wrong: by 1, and by 9.
OF_NUMBER = [
    (lambda u, n: np.roll(u, n, 0), None),
    (np.roll, None),
    (np.flip, "axis"),
    (lambda u, n: np.roll(u, 1, n), "axis"),
    (lambda u, n: np.diff(u, 1 + n), None),
    (lambda u, n: np.diff(u, axis=n), ""),
    (lambda u, n: np.trapezoid(u, axis=n), ""),
    (lambda u, n: np.trapezoid(u, dx=1.0 + n), None),
    (lambda u, n: np.gradient(u, axis=n), ""),
    (lambda u, n: np.gradient(u, 1.0 + n, axis=0), None),
    (lambda u, n: np.gradient(u, axis=0, edge_order=1 + (n > 0)), None),
    (np.cumsum, ""),
]


@pytest.mark.parallel([2, 3, 4, 6])
def test_a_rank_that_is_wrong(comm):
    u = pencils.ones(pencils.Pencil((4, 5), comm))
    for rank in ranks_at_fault(comm):
        here = int(comm.rank == rank)
        for call, text in OF_NUMBER:
            one, many = (lambda n=n, call=call: call(u, n) for n in (here, 9 * here))
            all_raise(comm, RankDisagreementError, "rank 0 has", one)
            if text is not None:
                all_raise(comm, ArgumentError, (f"rank {rank}: ", text), many)
        all_raise(comm, ArgumentError, f"rank {rank}: ", np.diff, u, -here)
    dx = True if comm.rank == 0 else 1.0  # the same number
    assert everywhere(comm, np.trapezoid(u, dx=dx, axis=0).local[0, 0] == 3)
    assert_holds(np.cumsum(u, 0), np.cumsum(np.ones((4, 5)), 0))
