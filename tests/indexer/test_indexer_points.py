"""Points of fields on all ranks, against NumPy's indexing of the global array."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexer_worlds import put_with
from mpi4py import MPI
from mpi_helpers import (
    DTYPES,
    NODES,
    all_raise,
    everywhere,
    holds,
    numbered,
    on_nodes,
    one_is_wrong,
    other_blocks,
    random_field,
    random_pencil,
    ranks_at_fault,
    same,
    spread,
)
from tiers import examples

import pencils
from pencils import Pencil
from pencils.errors import ArgumentError, PencilMismatchError, TypeDisagreementError
from pencils.indexer import ReduceOp

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

COMM = MPI.COMM_WORLD
SHAPE = (5, 4, 6)


few = examples(40)


def points_of(rng, comm, shape):
    """Draw points of a grid for every rank, out of a stream that all share."""
    counts = rng.integers(0, 4, (comm.size, 2))
    return [[rng.integers(0, n, count) for n in shape] for count in counts]


def assign(data, every, values):
    """Write the values of every rank, one after the other."""
    for points, written in zip(every, values, strict=True):
        for at in np.ndindex(points[0].shape):
            data[(..., *(index[at] for index in points))] = written[(..., *at)]


@few
@given(st.integers(0, 2**32))
def test_points_of_any_field_are_taken_and_put(seed):
    rng = np.random.default_rng(seed)
    field, data = random_field(rng, COMM)
    every = points_of(rng, COMM, field.shape[len(field.components) :])
    mine = every[COMM.rank]
    expected = data[(..., *mine)]
    found, out = field.take_points(mine), np.empty(expected.shape, data.dtype)
    assert everywhere(COMM, field.take_points(mine, out) is out)
    assert everywhere(COMM, same(found, expected) and same(out, expected))
    assert everywhere(COMM, holds(field, data))
    values = [numbered((*field.components, *points[0].shape), data.dtype) for points in every]
    assign(data, every, values)
    field.put_points(mine, values[COMM.rank])
    assert everywhere(COMM, holds(field, data))


@few
@given(st.integers(0, 2**32))
def test_particles_are_deposited(seed):
    rng = np.random.default_rng(seed)
    pencil = random_pencil(rng, COMM, SHAPE)
    field = spread(pencil, numbered((2, *SHAPE)), halo=1)
    every = points_of(rng, COMM, SHAPE)
    flat = numbered((2, *SHAPE)).reshape(2, -1)
    for points in every:
        at = np.ravel_multi_index([index.reshape(-1) for index in points], SHAPE)
        flat = np.array([put_with(np.add, row, at, np.arange(at.size) + 1.0) for row in flat])
    mine = every[COMM.rank]
    weights = np.arange(mine[0].size).reshape(mine[0].shape) + 1
    field.put_points(mine, weights, reduce=ReduceOp.SUM)
    assert everywhere(COMM, holds(field, flat.reshape(2, *SHAPE)))


@pytest.fixture(scope="module")
def field(comm):
    return spread(Pencil(SHAPE, comm), numbered(SHAPE))


def test_probes_lines_and_planes(comm, field):
    data = numbered(SHAPE)
    assert everywhere(comm, field.take_points((1, 2, 3)) == data[1, 2, 3])
    assert everywhere(comm, field.take_points((1, 2, 3)).shape == ())
    assert everywhere(comm, same(field.take_points((1, range(4), 3)), data[1, :, 3]))
    plane = np.ix_(range(5), [2], range(6))
    assert everywhere(comm, same(field.take_points(plane), data[:, 2:3]))
    stacked = np.array([[0, 4], [3, 0], [5, 1]])
    assert everywhere(comm, same(field.take_points(stacked), data[tuple(stacked)]))


def test_one_rank_asks_and_the_others_do_not(comm, field):
    nothing = [[]] * 3
    wants = (range(5), 0, 0)
    for rank in ranks_at_fault(comm):
        found = field.take_points(wants if comm.rank == rank else nothing)
        expected = numbered(SHAPE)[:, 0, 0] if comm.rank == rank else np.empty(0)
        assert everywhere(comm, same(found, expected))


def test_one_plan_serves_any_field_of_the_pencil(comm, field):
    points = [[0, 4], [comm.rank % 4, 0], [5, 1]]
    pen = field.pencil
    turned = pen.with_(order=(2, 0, 1))
    with (
        pencils.indexer.PointIndexer(pen, points) as plan,
        pencils.indexer.PointIndexer(pen, points, check=False) as quick,
    ):
        assert plan.shape == (2,)
        for dtype in DTYPES:
            data = numbered((2, *SHAPE), dtype)
            for where in (pen, turned):
                u = spread(where, data, halo=1)
                for indexer in (plan, quick):
                    handle = indexer.take_start(u)
                    other = indexer.take_start(field)
                    assert everywhere(comm, same(other.wait(), numbered(SHAPE)[tuple(points)]))
                    assert everywhere(comm, same(handle.wait(), data[(..., *points)]))
        v = pencils.zeros(pen)
        assert plan.put_start(v, 1.0, reduce=ReduceOp.SUM).wait() is None
        plan.put(v, [1.0, 2.0], reduce=ReduceOp.SUM)
        assert v.sum() == comm.size * 5


def test_values_broadcast_and_are_converted(comm, field):
    u = pencils.zeros(field.pencil, components=2)
    u.put_points((0, range(4), 0), [[1], [2]])
    expected = np.zeros((2, *SHAPE))
    expected[:, 0, :, 0] = [[1], [2]]
    assert everywhere(comm, holds(u, expected))


def test_ghosts_go_stale_where_that_is_watched(comm):
    u = pencils.zeros(Pencil((6, 4), comm, periodic=True), halo=1)
    with pencils.debug.ghosts():
        u.put_points(([0], [0]), 1.0)
    assert everywhere(comm, np.isnan(u.padded).any() or not u.local.size)


def test_a_slice_of_a_larger_array_is_a_field_too(comm):
    pen = Pencil(SHAPE, comm)
    wide = np.zeros((*pen.local_shape[:-1], 2 * pen.local_shape[-1]))
    u = pencils.PencilArray(pen, wide[..., ::2])
    u.put_points((range(5), 0, 0), 7)
    assert everywhere(comm, u.take_points(([4], [0], [0])) == 7)
    assert u.sum() == 35


BAD = [
    (lambda u: u.take_points((5, 0, 0)), IndexError, "dimension 0: index 5 is not in [0, 5)"),
    (lambda u: u.take_points((0, -1, 0)), IndexError, "dimension 1: index -1 is not in [0, 4)"),
    (lambda u: u.take_points((0, 0)), ArgumentError, "an entry for each of 3 dimensions"),
    (lambda u: u.take_points(None), ArgumentError, "an entry for each of 3 dimensions"),
    (lambda u: u.take_points((0, 0.5, 0)), TypeError, "must hold integers"),
    (lambda u: u.take_points((True, 0, 0)), TypeError, "must hold integers"),
    (lambda u: u.take_points(([0, 1], [0, 1, 2], 0)), ArgumentError, "do not broadcast to each"),
    (lambda u: u.take_points((0, 0, 0), np.empty(2)), ArgumentError, "has 2 values, but 1 are"),
    (lambda u: u.take_points((0, 0, 0), np.empty(1)), ArgumentError, "shape (1,), but () is"),
    (lambda u: u.take_points((0, 0, 0), np.empty((), int)), TypeError, "out has type int64"),
]
BAD_PUTS = [
    (lambda u: u.put_points((0, 0, 0), [1, 2]), ArgumentError, "do not broadcast to ()"),
    (lambda u: u.put_points((0, 0, 0), 1j), TypeError, "cannot be written to a field"),
    (lambda u: u.put_points((0, 0, 0), 1, reduce="sum"), TypeError, "must be a ReduceOp"),
]


@pytest.mark.parametrize(
    "case",
    [(*case, lambda u: u.take_points((0, 0, 0))) for case in BAD]
    + [(*case, lambda u: u.put_points((0, 0, 0), numbered(SHAPE)[0, 0, 0])) for case in BAD_PUTS],
    ids=range(len(BAD) + len(BAD_PUTS)),
)
@pytest.mark.parametrize("shared", [False, True])
def test_mistakes_of_one_rank_raise_everywhere(comm, case, shared):
    call, kind, text, good = case
    field = pencils.empty(Pencil(SHAPE, comm), shared=shared)
    field.local[...] = numbered(SHAPE)[field.local_slices]

    def works():
        good(field)
        assert everywhere(comm, field.take_points((4, 3, 5)) == numbered(SHAPE)[-1, -1, -1])

    one_is_wrong(comm, kind, text, call=lambda f: f(field), bad=call, good=good, after=works)
    assert everywhere(comm, holds(field, numbered(SHAPE)))


def test_fields_that_do_not_fit_the_plan(comm, field):
    pen = field.pencil
    other = pencils.ones(other_blocks(pen))
    thin = pencils.ones(pen, dims=(0, 1))
    read_only = pencils.ones(pen)
    read_only.local.flags.writeable = False
    empty = pencils.ones(pen, components=0)
    with pencils.indexer.PointIndexer(pen, (0, 0, 0)) as plan:
        cases = [
            (lambda: plan.take(other), PencilMismatchError, "u lies on"),
            (lambda: plan.take(thin), ArgumentError, "singleton dimensions [2]"),
            (lambda: plan.take(empty), ArgumentError, "no values"),
            (lambda: plan.take(np.ones(SHAPE)), TypeError, "u must be a PencilArray"),
            (lambda: plan.put(read_only, 1), ArgumentError, "read-only"),
            (lambda: plan.put(field, 1.0, reduce=ReduceOp.BOR), ArgumentError, "BOR does not"),
        ]
        for call, kind, text in cases:
            all_raise(comm, kind, text, call)
        if comm.size > 1:
            u = pencils.ones(pen, dtype="f4") if comm.rank else field
            all_raise(comm, TypeDisagreementError, "types", plan.take, u)
    all_raise(comm, ArgumentError, "freed", plan.take, field)
    all_raise(comm, TypeError, "pencil must be a Pencil", pencils.indexer.PointIndexer, 3, [[0]])


@pytest.mark.parametrize("nodes", list(NODES))
def test_coordinates_of_any_strides_once(comm, nodes):
    pencil = Pencil(SHAPE, on_nodes(nodes))
    data = numbered(SHAPE)
    u = spread(pencil, data)
    rows = np.random.default_rng(3).integers(0, SHAPE, (50, 3))
    assert everywhere(comm, np.array_equal(u.take_points(rows.T), data[tuple(rows.T)]))
    u.put_points(rows.T, data[tuple(rows.T)])
    assert holds(u, data)
