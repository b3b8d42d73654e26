"""Fields interpolated at any positions, against SciPy on the global array, and the adjoint."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI
from mpi_helpers import (
    all_raise,
    everywhere,
    holds,
    numbered,
    one_is_wrong,
    other_blocks,
    random_field,
    ranks_at_fault,
    same,
    spread,
)
from scipy.ndimage import map_coordinates
from tiers import examples

import pencils
from pencils import Pencil, PencilArray
from pencils.errors import ArgumentError, PencilMismatchError, TypeDisagreementError
from pencils.indexer import Interpolation, interpolate, one_shot
from pencils.indexer.interpolation import _distinct

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

COMM = MPI.COMM_WORLD
SHAPE = (5, 4, 6)
DTYPES = ["f8", "f4", "c16", "c8", "g", ">f8", "f2", "i4", "u8", "?"]
few = examples(40)


def any_case(seed, dtypes):
    """Make any field, the global data it holds, and positions for every rank."""
    rng = np.random.default_rng(seed)
    field, data = random_field(rng, COMM, dtypes, wraps=True)
    anywhere = [p or d in field.singletons for d, p in enumerate(field.pencil.periodic)]
    shape = field.shape[len(field.components) :]
    return field, data, [any_points(rng, shape, anywhere) for _ in range(COMM.size)]


def any_points(rng, shape, anywhere):
    """Draw positions, now and then at the ends, within the grid or anywhere."""
    size = int(rng.integers(0, 4)), int(rng.integers(0, 4))
    found = []
    for n, free in zip(shape, anywhere, strict=True):
        at = rng.uniform(-2 * n, 3 * n, size) if free else rng.uniform(0, n - 1, size)
        at = np.where(rng.random(size) < 0.2, np.round(at), at)
        found.append(np.where(rng.random(size) < 0.2, n - 1, at))
    return found


def oracle(data, lead, points, periodic):
    """Interpolate in a copy of the global array that repeats a point along every dimension."""
    wide = data if data.dtype.kind in "fc" else data.astype(float)
    wide = np.moveaxis(wide.astype(np.result_type(wide.dtype, "f8")), range(lead), range(-lead, 0))
    at = []
    for dim, (position, wraps) in enumerate(zip(points, periodic, strict=True)):
        n = wide.shape[dim]
        extra = [(0, int(axis == dim)) for axis in range(wide.ndim)]
        wide = np.pad(wide, extra, mode="wrap" if wraps else "edge")
        at.append(np.zeros_like(position) if n == 1 else np.mod(position, n) if wraps else position)
    from scipy.interpolate import RegularGridInterpolator  # takes seconds, which most runs save

    axes = [np.arange(n) for n in wide.shape[: len(points)]]
    found = RegularGridInterpolator(axes, wide)(np.stack(at, -1))
    return np.moveaxis(found, range(found.ndim - lead, found.ndim), range(lead))


def near(found, expected):
    """Whether values agree up to rounding in their type."""
    close = np.allclose(found, expected, rtol=0, atol=1000 * np.finfo(found.dtype).eps)
    return found.shape == expected.shape and close


@few
@given(st.integers(0, 2**32))
def test_any_field_at_any_positions(seed):
    field, data, every = any_case(seed, DTYPES)
    mine, lead = every[COMM.rank], len(field.components)
    found = interpolate(field, mine)
    expected = oracle(data, lead, mine, field.pencil.periodic)
    kind = data.dtype.newbyteorder("=") if data.dtype.kind in "fc" else np.dtype(float)
    out = np.empty(found.shape, kind)
    assert everywhere(COMM, found.dtype is np.dtype(kind.char) and near(found, expected))
    assert everywhere(COMM, interpolate(field, mine, out=out) is out)
    assert everywhere(COMM, same(out, found) and holds(field, data))


@few
@given(st.integers(0, 2**32))
def test_deposition_is_the_adjoint_and_keeps_the_sum(seed):
    field, data, every = any_case(seed, ["f8", "c16"])
    pen, mine = field.pencil, every[COMM.rank]
    dims = [dim for dim in range(pen.ndim) if dim not in field.singletons]
    with Interpolation(pen, mine, dims=dims) as plan:
        found = plan(field)
        weights = numbered(found.shape, data.dtype) * (1 + COMM.rank)
        here = pencils.zeros_like(field)
        plan.deposit(here, weights)
        assert np.isclose(np.vdot(field, here), COMM.allreduce(np.vdot(found, weights)))
        assert np.isclose(here.sum(), COMM.allreduce(weights.sum()))
        plan.deposit(here, 2 * weights)  # on top
        assert np.isclose(here.sum(), 3 * COMM.allreduce(weights.sum()))
        pencils.debug.verify_replicas(here)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("mode", ["grid-wrap", "reflect", "mirror"])
def test_shapes_of_particles(comm, mode, order):
    """The weights are those of B-splines, mirrored in the walls of cells, or in the last points."""
    shape, cells, periodic = (5, 2, 6), mode == "reflect", mode == "grid-wrap"
    pen = Pencil(shape, comm, periodic=periodic)
    low, high = (0.5, 0.5) if cells else (20.0, 20.0) if periodic else (0.0, 0.0)
    rng = np.random.default_rng(comm.rank)
    last = np.array([[n - 1.0] for n in shape])
    points = rng.uniform(-low, last + high, (3, 40))
    points[:, :1], points[:, 1:2], points[:, 2:3] = -low, last + high, np.round(last / 2)
    data = np.random.default_rng(7).normal(size=shape)
    u = spread(pen, data)
    found = interpolate(u, points, order=order, cells=cells)
    expected = map_coordinates(data, points, order=order, mode=mode, prefilter=False)
    assert everywhere(comm, near(found, expected))
    if not periodic:
        text = "not in [-0.5, 4.5]" if cells else "not in [0, 4]"
        all_raise(comm, IndexError, text, interpolate, u, (-0.6, 0, 0), order=order, cells=cells)
    weights, here = rng.normal(size=40), pencils.zeros(pen)
    with Interpolation(pen, points, order=order, cells=cells) as plan:
        assert everywhere(comm, near(plan(u), expected))
        plan.deposit(here, weights)
    assert np.isclose(here.sum(), comm.allreduce(weights.sum()))
    assert np.isclose(np.vdot(u, here), comm.allreduce(np.vdot(expected, weights)))


@pytest.mark.parametrize("count", [3, 500])  # far fewer points than the grid has, and far more
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_particles_of_a_periodic_box(comm, ndim, count):
    shape = SHAPE[:ndim]
    pen = Pencil(shape, comm, periodic=True)
    data = numbered(shape)
    every = np.random.default_rng(1).uniform(-20, 20, (comm.size, ndim, count))
    expected = map_coordinates(data, every[comm.rank], order=1, mode="grid-wrap")
    assert everywhere(comm, near(interpolate(spread(pen, data), every[comm.rank]), expected))

    charge = pencils.ones(pen, halo=1, dtype="f4")
    with Interpolation(pen, every[comm.rank]) as plan:
        plan.deposit(charge, comm.rank + 1)
    expected = np.ones(shape)
    for rank, points in enumerate(every):
        cell = np.floor(points).astype(int)
        for corner in np.ndindex(*(2,) * ndim):
            step = np.array(corner)[:, None]
            share = np.prod(np.where(step, points - cell, 1 - (points - cell)), axis=0)
            at = tuple(index % n for index, n in zip(cell + step, shape, strict=True))
            np.add.at(expected, at, (rank + 1) * share)
    assert everywhere(comm, np.allclose(charge.local, expected[charge.local_slices], rtol=1e-4))


def test_one_rank_asks_and_the_others_do_not(comm):
    u = spread(Pencil(SHAPE, comm), numbered(SHAPE))
    for rank in ranks_at_fault(comm):
        mine = (0.5, range(4), 2) if comm.rank == rank else [[]] * 3
        found = interpolate(u, mine)
        expected = numbered(SHAPE)[:2, :, 2].mean(0) if comm.rank == rank else np.empty(0)
        assert everywhere(comm, near(found, expected))
    assert everywhere(comm, interpolate(u, (1, 2, 3)).shape == ())


def test_a_grid_without_points(comm):
    for wraps in (True, False):
        u = pencils.ones(Pencil((0, 4), comm, periodic=wraps))
        assert everywhere(comm, interpolate(u, ([], 1)).shape == (0,))
        for cells in (False, True):
            found = interpolate(u, ([-0.5, 1.0], 1), fill_value=7, cells=cells)
            assert everywhere(comm, same(found, np.full(2, 7.0)))
        all_raise(comm, IndexError, "point ()", interpolate, u, (0, 0))


def test_singletons_ignore_their_position(comm):
    pen = Pencil(SHAPE, comm)
    surface = spread(pen, numbered((5, 1, 6)), dims=(0, 2))
    expected = interpolate(surface, ([1.5, 4], 0, [2, 2.5]))
    for ignored in (np.nan, 77, None, "anything"):
        assert everywhere(comm, same(interpolate(surface, ([1.5, 4], ignored, [2, 2.5])), expected))
    assert everywhere(comm, interpolate(surface, (0, np.zeros(3), 0)).shape == (3,))
    mean = pencils.ones(pen, dims=())
    assert everywhere(comm, (interpolate(mean, ([np.nan] * 4, 0, 0)) == np.ones(4)).all())


def test_outside_is_filled_and_its_deposits_are_lost(comm):
    pen = Pencil((5, 4), comm, periodic=(False, True))
    u = spread(pen, numbered((2, 5, 4)))
    points = ([-1e-9, 0, 4, 4.001, np.nan, 2], [0, 9, -1, 2, 3, np.inf])
    inside = [False, True, True, False, False, False]
    expected = np.full((2, 6), -1.0)
    expected[:, inside] = numbered((2, 5, 4))[:, [0, 4], [1, 3]]
    with Interpolation(pen, points, fill_value=-1) as plan:
        assert everywhere(comm, same(plan(u), expected))
        rho = pencils.zeros(pen)
        plan.deposit(rho, [1, 2, 4, 8, 16, 32])
        assert rho.sum() == comm.size * 6
    assert everywhere(comm, np.isnan(interpolate(u, (9, 9), fill_value=np.nan)).all())


def test_one_plan_serves_any_field_of_the_pencil(comm):
    pen = Pencil(SHAPE, comm)
    points = [[0.5, 4], [comm.rank % 4, 2.25], [5, 1]]
    with Interpolation(pen, points) as plan, Interpolation(pen, points, check=False) as quick:
        assert plan.shape == (2,)
        for where in (pen, pen.with_(order=(2, 0, 1))):
            for dtype in DTYPES:
                u = spread(where, numbered((2, *SHAPE), dtype), halo=1)
                expected = interpolate(u, points)
                assert everywhere(comm, same(plan(u), expected) and same(quick(u), expected))


def test_ghosts_go_stale_where_that_is_watched(comm):
    u = pencils.zeros(Pencil((6, 4), comm, periodic=True), halo=1)
    with pencils.debug.ghosts(), Interpolation(u.pencil, (0.5, 0.5)) as plan:
        plan.deposit(u, 1)
    assert everywhere(comm, np.isnan(u.padded).any() or not u.local.size)


@pytest.mark.parametrize("size", [300, 10**15])  # numbered by a table, and by sorting
@pytest.mark.parametrize("count", [0, 1, 90])
def test_corners_are_asked_for_once(comm, size, count):
    numbers = np.random.default_rng(comm.rank).integers(0, 300, (8, count))
    distinct, where = _distinct(numbers, size)
    assert everywhere(comm, (np.diff(distinct) > 0).all())
    assert everywhere(comm, same(distinct[where], numbers))
    assert everywhere(comm, set(distinct) == set(numbers.reshape(-1)))


def put(u, points, values):
    with Interpolation(u.pencil, points) as plan:
        plan.deposit(u, values)


ZERO = (0, 0, 0)
BAD = [
    (lambda u: interpolate(u, (0, [[0, 3.5]], 0)), IndexError, "point (0, 1) is at 3.5 along dim"),
    (lambda u: interpolate(u, (-0.5, 0, 0)), IndexError, "dimension 0, which is not in [0, 4]"),
    (lambda u: interpolate(u, ZERO, order=4), ArgumentError, "order=4 must be 1"),
    (lambda u: interpolate(u, (np.nan, 0, 0)), IndexError, "pass fill_value"),
    (lambda u: interpolate(u, (0, 0, np.inf)), IndexError, "not finite"),
    (lambda u: interpolate(u, (0, 0)), ArgumentError, "an entry for each of 3 dimensions"),
    (lambda u: interpolate(u, None), ArgumentError, "an entry for each of 3 dimensions"),
    (lambda u: interpolate(u, (0, 1j, 0)), TypeError, "must be real numbers, not complex128"),
    (lambda u: interpolate(u, (0, True, 0)), TypeError, "must be real numbers, not bool"),
    (lambda u: interpolate(u, "abc"), TypeError, "must be real numbers"),
    (lambda u: interpolate(u, ([0, 1], [0, 1, 2], 0)), ArgumentError, "do not broadcast"),
    (lambda u: interpolate(u, ZERO, out=np.empty(1)), ArgumentError, "shape (1,), but () is"),
    (lambda u: interpolate(u, ZERO, out=np.empty((), int)), TypeError, "out has type int64"),
]
BAD_DEPOSITS = [
    (lambda u: put(u, ZERO, [1, 2]), ArgumentError, "do not broadcast to ()"),
    (lambda u: put(u, ZERO, 1j), TypeError, "cannot be written to a field"),
    (lambda u: put(u, ZERO, "x"), TypeError, "cannot be written to a field"),
]


@pytest.mark.parametrize(
    "case",
    [(*case, lambda u: interpolate(u, ZERO)) for case in BAD]
    + [(*case, lambda u: put(u, ZERO, 0)) for case in BAD_DEPOSITS],
    ids=range(len(BAD) + len(BAD_DEPOSITS)),
)
def test_mistakes_of_one_rank_raise_everywhere(comm, case):
    call, kind, text, good = case
    u = spread(Pencil(SHAPE, comm, periodic=(False, False, True)), numbered(SHAPE))
    one_is_wrong(comm, kind, text, call=lambda f: f(u), bad=call, good=good, after=partial(good, u))
    assert everywhere(comm, holds(u, numbered(SHAPE)))


def test_a_wrong_fill_value_of_one_rank(comm):
    u = pencils.ones(Pencil(SHAPE, comm))
    fill = lambda value: interpolate(u, ZERO, fill_value=value)  # noqa: E731
    text = "fill_value='x' must be a number"
    one_is_wrong(comm, TypeError, text, call=fill, bad="x", good=0.0)


@pytest.mark.parametrize("call", [interpolate, PencilArray.take_points])
def test_one_rank_without_memory_for_a_call(comm, call, monkeypatch):
    def lacking(*_):
        raise MemoryError("no room")

    for rank in ranks_at_fault(comm):
        u = pencils.ones(Pencil(SHAPE, comm))
        with monkeypatch.context() as patch:
            if comm.rank == rank:
                patch.setattr(one_shot, "Form", lacking)
            all_raise(comm, MemoryError, "no room", call, u, ZERO)
        assert everywhere(comm, call(u, ZERO) == 1)


def test_fields_that_do_not_fit_the_plan(comm):
    pen = Pencil(SHAPE, comm)
    u = pencils.ones(pen)
    read_only = pencils.ones(pen)
    read_only.local.flags.writeable = False
    empty = pencils.ones(pen, components=0)
    thin = pencils.ones(pen, dims=(0, 1))
    with Interpolation(pen, ZERO, fill_value=1j) as plan:
        cases = [
            (lambda: plan(pencils.ones(other_blocks(pen))), PencilMismatchError, "u lies on"),
            (lambda: plan(thin), ArgumentError, "singleton dimensions [2]"),
            (lambda: plan(np.ones(SHAPE)), TypeError, "u must be a PencilArray"),
            (lambda: plan(pencils.ones(pen, dtype="S3")), TypeError, "cannot be interpolated"),
            (lambda: plan(u), TypeError, "fill_value=1j does not fit"),
            (lambda: plan.deposit(empty, np.ones(0)), ArgumentError, "no values"),
            (lambda: plan.deposit(read_only, 1), ArgumentError, "read-only"),
            (lambda: plan.deposit(pencils.ones(pen, dtype=int), 1), TypeError, "hold shares"),
        ]
        for call, kind, text in cases:
            all_raise(comm, kind, text, call)
        if comm.size > 1:
            other = pencils.ones(pen, dtype="c8") if comm.rank else pencils.ones(pen, dtype="c16")
            all_raise(comm, TypeDisagreementError, "types", plan, other)
    all_raise(comm, ArgumentError, "freed", plan.deposit, u, 1)
