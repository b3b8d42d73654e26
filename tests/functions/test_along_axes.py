"""Functions along axes: of sections and random layouts, with blocks that are uneven or empty."""

import numpy as np
import pytest
from fields import assert_holds, both, draw, spread
from mpi_helpers import everywhere, raise_together, random_pencil, ranks_at_fault

import pencils
from pencils.errors import ArgumentError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

KEYS = [np.s_[1:-1], np.s_[::2], np.s_[1], np.s_[..., 1:], np.s_[:0], np.s_[-1:, ...]]


def kept(key):
    """Return the key with slices of one point instead of integers."""
    keys = key if isinstance(key, tuple) else (key,)
    return tuple(slice(one, one + 1) if isinstance(one, int) else one for one in keys)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_functions_of_sections(pencil, key):
    whole = draw(pencil.shape)
    u = spread(pencil, whole, halo=1)[key]
    part = whole[kept(key)]
    for axis, points in enumerate(part.shape):
        assert_holds(np.cumsum(u, axis), np.cumsum(part, axis), rtol=1e-13)
        assert_holds(np.roll(u, 2, axis), np.roll(part, 2, axis))
        assert_holds(np.flip(u, axis), np.flip(part, axis))
        assert_holds(np.diff(u, axis=axis), np.diff(part, axis=axis))
        assert np.cumsum(u, axis).pencil is np.roll(u, 2, axis).pencil is u.pencil
        area = np.expand_dims(np.trapezoid(part, axis=axis), axis)
        assert_holds(np.trapezoid(u, axis=axis), area, rtol=1e-13)
        for order in (1, 2):
            if points > order:
                given = {"axis": axis, "edge_order": order}
                expected = np.gradient(part, **given)
                assert_holds(np.gradient(u, **given), expected, rtol=1e-13)
    if u.size:
        v = np.flip(np.roll(u, 1, 0)) + u
        assert_holds(v, np.flip(np.roll(part, 1, 0)) + part)


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
    for _ in range(12):
        shape = tuple(rng.integers(0, 9, rng.integers(1, 4)).tolist())
        u, whole = both(random_pencil(rng, comm, shape), draw(shape))
        axes, steps = tuple(range(len(shape))), tuple(rng.integers(-9, 10, len(shape)).tolist())
        assert_holds(np.roll(u, steps, axes), np.roll(whole, steps, axes))
        assert_holds(np.flip(u), np.flip(whole))
        for axis in axes:
            for n in (1, 3):
                assert_holds(np.diff(u, n, axis), np.diff(whole, n, axis))
            expected = np.expand_dims(np.trapezoid(whole, axis=axis), axis)
            assert_holds(np.trapezoid(u, axis=axis), expected, rtol=1e-12)


A, T = ArgumentError, TypeError
REFUSED = [
    (lambda u: np.roll(u, 1), A, "flatten", "axis="),
    (lambda u: np.roll(u, 1, 2), A, "axis"),
    (lambda u: np.roll(u, [[1]], (0,)), A, "shift"),
    (lambda u: np.roll(u, (1, 2, 3), (0, 1)), ValueError),
    (lambda u: np.flip(u, (0, 0)), A, "axis"),
    (lambda u: np.fliplr(pencils.ones(pencils.Pencil((4,), u.pencil.comm))), A, "axis"),
    (lambda u: np.diff(u, axis=2), A, "axis"),
    (lambda u: np.diff(u, -1), A, "n=-1"),
    (lambda u: np.diff(u, prepend=0), T, "prepend"),
    (lambda u: np.diff(u, append=u), T, "append"),
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
        raise_together(comm, kind, *texts, call=lambda call=call: call(u))
    for call in (np.cumprod, lambda u, axis: np.trapezoid(u.astype("M8[s]"), axis=axis)):
        with pytest.raises(TypeError):
            call(u.astype("m8[s]"), 0)
    assert_holds(np.diff(u), np.zeros((4, 4)))
    assert_holds(np.roll(pencils.ones(pencils.Pencil((4,), comm)), 1), np.ones(4))


# Functions of a field and a number, in which a rank may be wrong: by 1, and by 9.
OF_NUMBER = [
    (lambda u, n: np.roll(u, n, 0), None),
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
            raise_together(comm, RankDisagreementError, "rank 0 has", call=one)
            if text is not None:
                raise_together(comm, ArgumentError, f"rank {rank}: ", text, call=many)
        raise_together(comm, ArgumentError, f"rank {rank}: ", call=lambda n=-here: np.diff(u, n))
    dx = True if comm.rank == 0 else 1.0  # the same number
    assert everywhere(comm, np.trapezoid(u, dx=dx, axis=0).local[0, 0] == 3)
    assert_holds(np.cumsum(u, 0), np.cumsum(np.ones((4, 5)), 0))
