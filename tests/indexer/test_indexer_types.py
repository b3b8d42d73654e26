"""Every operation on every element type, wherever values are combined, against NumPy."""

from functools import partial

import numpy as np
import pytest
from mpi_helpers import all_raise, everywhere, holds, one_is_wrong, same

from pencils import GlobalIndexer, GlobalMultiIndexer, Pencil, dap, zeros
from pencils.errors import ArgumentError
from pencils.indexer import Interpolation, ReduceOp

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

UFUNCS = {
    ReduceOp.SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.LAND: np.logical_and,
    ReduceOp.LOR: np.logical_or,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
}
NEUTRAL = {"SUM": 0, "PROD": 1, "LAND": True, "LOR": False, "BAND": -1, "BOR": 0}
KINDS = {ReduceOp.SUM: "biufcm", ReduceOp.MIN: "biufmM", ReduceOp.MAX: "biufmM"}
KINDS |= dict.fromkeys((ReduceOp.PROD, ReduceOp.LAND, ReduceOp.LOR), "biufc")
KINDS |= dict.fromkeys((ReduceOp.BAND, ReduceOp.BOR), "biu")
TYPES = ["?", "i1", "u1", ">i2", "i4", "u8", "f2", "f4", ">f8", "g", "c8", "c16"]
TYPES += ["m8[s]", "M8[s]", ">M8[ms]"]
OTHERS = ["S3", "U2", "V4", [("x", "f8"), ("y", "?")]]
ROWS = 3
operations = pytest.mark.parametrize("operation", ReduceOp, ids=[op.name for op in ReduceOp])


def legal(operation):
    return [np.dtype(t) for t in TYPES if np.dtype(t).kind in KINDS[operation]]


def illegal(operation):
    every = [np.dtype(t) for t in (*TYPES, *OTHERS)]
    return [dtype for dtype in every if dtype.kind not in KINDS[operation]]


def new_type(operation, dtype):
    """Element type of an output that is made for values of another one."""
    if operation in (ReduceOp.LAND, ReduceOp.LOR):
        return np.dtype(bool)
    counts = operation in (ReduceOp.SUM, ReduceOp.PROD) and dtype.kind == "b"
    return np.dtype(np.int64) if counts else dtype


def values_of(dtype, count, seed):
    """Draw zeros and other values, none of them large."""
    return np.random.default_rng(seed).integers(0, 4, count).astype("i8").astype(dtype)


def combined(operation, before, written, values):
    """Combine one after the other, in the type of what is written to."""
    after = before.copy()
    for index, value in zip(written, values.astype(before.dtype), strict=True):
        UFUNCS[operation](after[index], value, out=after[index : index + 1], casting="unsafe")
    return after


def alike(found, expected):
    if expected.dtype.kind != "c":
        return same(found, expected)
    return found.dtype == expected.dtype and np.allclose(found, expected)


class World:
    """Own rows of every rank, the indices it asks for, and all in write order."""

    def __init__(self, comm):
        self.cuts = [ROWS * rank for rank in range(comm.size + 1)]
        self.total = self.cuts[-1]
        here = [np.random.default_rng(rank).integers(0, self.total, 5) for rank in range(comm.size)]
        self.index, self.written = here[comm.rank], np.concatenate(here)
        self.rows = slice(self.cuts[comm.rank], self.cuts[comm.rank + 1])
        self.mine = slice(5 * comm.rank, 5 * comm.rank + 5)


@pytest.fixture
def world(comm):
    return World(comm)


@pytest.mark.parametrize("count", [1, 2])
@operations
def test_put_combines_in_the_type_of_the_output(comm, world, operation, count):
    with GlobalIndexer(world.cuts, world.index, comm) as indexer:
        for dtype in legal(operation):
            values = values_of(dtype, (5 * comm.size, count), 1)
            new = new_type(operation, dtype)
            for kind in {dtype, new}:
                before = values_of(kind, (world.total, count), 2)
                out = before[world.rows].copy()
                found = indexer.Put(values[world.mine], out, count, reduce=operation)
                after = combined(operation, before, world.written, values)
                assert everywhere(comm, found is out and alike(out, after[world.rows])), kind
            fresh = indexer.Put(values[world.mine], count=count, reduce=operation)
            blank = operation.blank(count * world.total, dtype).reshape(-1, count)
            after = combined(operation, blank, world.written, values)
            assert everywhere(comm, alike(fresh, after[world.rows].reshape(-1))), dtype
            assert everywhere(comm, fresh.dtype == new), dtype


@operations
def test_neutral_elements_change_nothing(operation):
    for dtype in (dtype for dtype in legal(operation) if operation.name in NEUTRAL):
        blank = operation.blank(2, dtype)
        assert blank.dtype == operation.result(dtype) == new_type(operation, dtype)
        expected = np.array([NEUTRAL[operation.name]] * 2)
        assert (blank == expected.astype(blank.dtype)).all(), dtype


@pytest.mark.parametrize(
    ("operation", "dtype", "value"),
    [
        (ReduceOp.MIN, "f4", np.inf),
        (ReduceOp.MAX, "g", -np.inf),
        (ReduceOp.MIN, "i2", 2**15 - 1),
        (ReduceOp.MAX, ">i2", -(2**15)),
        (ReduceOp.MAX, "u1", 0),
        (ReduceOp.MIN, "?", True),
        (ReduceOp.MAX, "?", False),
        (ReduceOp.BAND, "u1", 255),
        (ReduceOp.BAND, "?", True),
    ],
)
def test_extreme_neutral_elements(operation, dtype, value):
    blank = operation.blank(1, np.dtype(dtype))
    assert (blank.tolist(), blank.dtype) == ([value], np.dtype(dtype))


@operations
def test_take_combines_in_the_type_of_the_output(comm, world, operation):
    with GlobalMultiIndexer(world.cuts, [world.index[:2], world.index[2:]], comm) as indexer:
        for dtype in legal(operation):
            data = values_of(dtype, world.total, 3)
            new = new_type(operation, dtype)
            before = [values_of(kind, n, 4) for kind, n in ((dtype, 2), (new, 3))]
            outs = [part.copy() for part in before]
            found = indexer.Take(data[world.rows], outs, reduce=operation)
            taken = data[world.index[:2]], data[world.index[2:]]
            good = [
                alike(out, combined(operation, was, range(len(was)), values))
                for out, was, values in zip(outs, before, taken, strict=True)
            ]
            assert everywhere(comm, found is outs and all(good)), dtype
            fresh = indexer.Take(data[world.rows], reduce=operation)
            good = [alike(one, part.astype(new)) for one, part in zip(fresh, taken, strict=True)]
            assert everywhere(comm, all(good)), dtype


@operations
def test_a_field_keeps_its_type(comm, operation):
    pencil = Pencil((5, 4), comm)
    every = [np.random.default_rng(rank).integers(0, 4, (2, 6)) for rank in range(comm.size)]
    for dtype in legal(operation):
        before = values_of(dtype, 20, 5)
        values = values_of(dtype, 6 * comm.size, 6)
        u = zeros(pencil, dtype=dtype)
        u[...] = before.reshape(5, 4)
        mine = values[6 * comm.rank :][:6]
        u.put_points(tuple(every[comm.rank]), mine, reduce=operation)
        written = np.concatenate([4 * i + j for i, j in every])
        after = combined(operation, before, written, values).reshape(5, 4)
        good = holds(u, after) if dtype.kind != "c" else np.allclose(u.local, after[u.local_slices])
        assert everywhere(comm, good), dtype


@operations
def test_several_owners_in_an_import(comm, operation):
    """Every process owns all points, in another order."""
    orders = [np.random.default_rng(rank).permutation(4) for rank in range(comm.size)]
    parts = [
        dap.UnstructuredMap(
            size=4 * comm.size, nprocs=comm.size, rank=rank, indices=order, one_to_one=False
        )
        for rank, order in enumerate(orders)
    ]
    dist = dap.GlobalDist((dap.GlobalDimMap(parts),))
    for dtype in legal(operation):
        values = values_of(dtype, 4 * comm.size, 7).reshape(comm.size, 4)
        expected = np.empty(4, dtype)
        expected[orders[0]] = values[0]
        for order, row in zip(orders[1:], values[1:], strict=True):
            expected = combined(operation, expected, order, row)
        view = dap.DistributedView(comm, dist, (parts[comm.rank],), values[comm.rank].copy())
        field = view.to_pencil(Pencil(4, comm), reduce=operation.value)
        assert everywhere(comm, alike(field.local, expected[field.local_slices])), dtype
        assert everywhere(comm, field.dtype == dtype)


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f8", "c8", "c16"])
def test_deposits_have_the_type_of_the_field(comm, dtype):
    pencil = Pencil(7, comm)
    at = [np.arange(comm.rank, comm.rank + 2) % 6 + 0.5]
    u = zeros(pencil, dtype=dtype)
    u[...] = 1
    with Interpolation(pencil, at) as cloud:
        cloud.deposit(u, [2.0, 4.0])
    expected = np.ones(7, dtype)
    for rank in range(comm.size):
        for where, value in zip(np.arange(rank, rank + 2) % 6, (1.0, 2.0), strict=True):
            expected[[where, where + 1]] += np.array(value, dtype)
    assert everywhere(comm, holds(u, expected))


@operations
def test_what_cannot_be_combined_raises_everywhere(comm, world, operation):
    pencil = Pencil((5, 4), comm)
    whole = dap.UnstructuredMap(size=4, nprocs=1, rank=0, indices=range(4), one_to_one=False)
    alone = Pencil(4).comm if comm.size == 1 else None
    with GlobalIndexer(world.cuts, world.index, comm) as indexer:
        for dtype in illegal(operation):
            u = zeros(pencil, dtype=dtype)
            section, mine = np.zeros(ROWS, dtype), np.zeros(5, dtype)
            calls = [
                lambda mine=mine: indexer.Put(mine, reduce=operation),
                lambda mine=mine, section=section: indexer.Put(mine, section, reduce=operation),
                lambda section=section: indexer.Take(section, reduce=operation),
                lambda u=u: u.put_points(([0], [1]), np.zeros(1, u.dtype), reduce=operation),
            ]
            if alone is not None:
                dist = dap.GlobalDist((dap.GlobalDimMap([whole]),))
                view = dap.DistributedView(alone, dist, (whole,), np.zeros(4, dtype))
                calls.append(lambda v=view: v.to_pencil(Pencil(4), reduce=operation))
            text = f"ReduceOp.{operation.name} does not combine values of type {dtype}, but "
            for call in calls:
                all_raise(comm, ArgumentError, text, call)


@operations
def test_an_output_of_a_third_type_is_refused(comm, world, operation):
    values, new = np.zeros(5, "i4"), new_type(operation, np.dtype("i4"))
    wanted = "int32" if new == "i4" else f"int32 or {new}"
    text = f"dist_data has type int64, but values of type int32 need {wanted}"
    with GlobalIndexer(world.cuts, world.index, comm) as indexer:
        put = partial(indexer.Put, reduce=operation)
        bad, good = np.zeros(ROWS, "i8"), np.zeros(ROWS, "i4")
        one_is_wrong(comm, TypeError, text, call=lambda out: put(values, out), bad=bad, good=good)


def test_unchecked_ranks_without_values_go_by_those_of_the_input(comm):
    """What comes out may have another type than what goes in."""
    last = comm.size - 1
    cuts = [0] * comm.size + [2]
    with GlobalIndexer(cuts, [1, 0] if comm.rank == last else [], comm, check=False) as indexer:
        out = np.ones(2 if comm.rank == last else 0, bool)
        values = np.array([0.0, 2.0]) if comm.rank == last else np.empty(0)
        for _ in range(2):
            indexer.Put(values, out, reduce=ReduceOp.LAND)
        assert everywhere(comm, out.tolist() == [True, False][: len(out)])
