"""Take and Put of buffers on all ranks, against an oracle that plays all of them."""

import array
import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexer_worlds import put, worlds
from mpi4py import MPI
from mpi_helpers import DTYPES, everywhere, numbered, same
from tiers import examples

from pencils import GlobalIndexer, GlobalMultiIndexer
from pencils.comm import mailbox, memory
from pencils.indexer import ReduceOp

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

COMM = MPI.COMM_WORLD
few = examples(25)


@few
@given(worlds(), st.sampled_from(DTYPES), st.integers(1, 3), st.booleans())
def test_take_reads_what_is_there(world, dtype, count, check):
    lists, rows, _ = world.here(COMM)
    data = numbered((world.size, count), dtype)
    with GlobalMultiIndexer(world.cuts, lists, COMM, check=check) as indexer:
        found = indexer.Take(data[rows], count=count)
        outs = [np.empty((len(index), count), dtype) for index in lists]
        assert everywhere(COMM, indexer.Take(data[rows], outs, count) is outs)
        handle = indexer.Take_start(data[rows], count=count)
        later = indexer.Take_start(data[rows][::-1].copy(), count=count)
        again, _ = handle.wait(), later.wait()
    assert everywhere(COMM, len(found) == len(lists))
    for number, index in enumerate(lists):
        expected = data[index.astype(int)]
        for values in (found[number], again[number]):
            assert values.shape == (count * len(index),)
            assert same(values.reshape(-1, count), expected)
        assert same(outs[number], expected)


@few
@given(worlds(), st.sampled_from(DTYPES), st.integers(1, 3), st.booleans())
def test_the_last_put_stays(world, dtype, count, check):
    lists, rows, mine = world.here(COMM)
    values = numbered((len(world.written), count), dtype)
    before = numbered((world.size + 1, count), dtype)[1:]
    after = put(before, world.written, values)
    parts = world.split(COMM, values[mine])
    out, late = before[rows].copy(), before[rows].copy()
    with GlobalMultiIndexer(world.cuts, lists, COMM, check=check) as indexer:
        assert everywhere(COMM, indexer.Put(parts, out, count) is out)
        assert everywhere(COMM, indexer.Put_start(parts, late, count=count).wait() is late)
        if check:
            fresh = indexer.Put(parts, count=count)
            written = indexer.access_counts > 0
            new = fresh.reshape(-1, count)[written] if fresh.dtype == dtype else after[rows][:0]
            verdict = not world.written or same(new, after[rows][written])
            assert everywhere(COMM, verdict)
    assert everywhere(COMM, same(out, after[rows]) and same(late, after[rows]))


def spread_evenly(comm, rows=3):
    return [rows * rank for rank in range(comm.size + 1)]


def test_a_put_renumbers_in_place(comm):
    cuts = spread_evenly(comm)
    total = cuts[-1]
    order = np.random.default_rng(1).permutation(total)
    rows = slice(cuts[comm.rank], cuts[comm.rank + 1])
    mine = np.arange(total)[rows].copy()
    expected = np.empty(total, int)
    expected[order] = np.arange(total)
    with GlobalIndexer(cuts, order[rows], comm) as indexer:
        assert everywhere(comm, indexer.Put(mine, mine) is mine)
        assert everywhere(comm, (mine == expected[rows]).all())
        back = indexer.Take(mine, mine)
        assert everywhere(comm, (back == np.arange(total)[rows]).all())


def test_counts_of_access_give_means(comm):
    cuts = spread_evenly(comm)
    with GlobalIndexer(cuts, [0, 0, cuts[-1] - 1], comm) as indexer:
        total = indexer.Put(np.array([1.0, 2.0, comm.rank]), reduce=ReduceOp.SUM)
        counts = indexer.access_counts
        assert everywhere(comm, counts.dtype == np.int64 and len(counts) == 3)
        if comm.rank == 0:
            assert counts[0] == 2 * comm.size
            assert total[0] / counts[0] == 1.5


def test_one_plan_serves_many_types_at_once(comm):
    cuts = spread_evenly(comm)
    index = np.arange(cuts[-1])[::-1]
    kinds = [dtype for dtype in DTYPES for _ in range(2)]
    with GlobalIndexer(cuts, index, comm) as indexer:
        data = [numbered(cuts[-1], dtype) for dtype in kinds]
        sections = [d[cuts[comm.rank] : cuts[comm.rank + 1]].copy() for d in data]
        for _ in range(2):
            handles = [indexer.Take_start(section) for section in sections]
            order = reversed(handles) if comm.rank % 2 else handles
            found = {id(handle): handle.wait() for handle in order}
            fits = [same(found[id(h)], d[index]) for h, d in zip(handles, data, strict=True)]
            assert everywhere(comm, all(fits))


def test_anything_with_a_buffer_will_do(comm):
    cuts = spread_evenly(comm)
    out = bytearray(4)
    with GlobalIndexer(cuts, [0, 1, 2, cuts[-1] - 1], comm) as indexer:
        assert everywhere(comm, indexer.Take(b"abc", out) is out)
        assert everywhere(comm, out == b"abcc")
        doubles = array.array("d", [1, 2, 3])
        assert everywhere(comm, indexer.Take(doubles).tolist() == [1, 2, 3, 3])
        structures = (Particle * 3)((1, 1.5), (2, 2.5), (3, 3.5))
        taken = indexer.Take(structures)
        assert everywhere(comm, taken.dtype == np.dtype(Particle))
        assert everywhere(comm, taken.tolist() == [(1, 1.5), (2, 2.5), (3, 3.5), (3, 3.5)])


class Particle(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("mass", ctypes.c_double))


def test_ranks_without_values_learn_the_type(comm):
    """Empty buffers are of floats, as a rule; what comes out is of the type of the others."""
    last = comm.size - 1
    cuts = [0] * comm.size + [2]
    index = [[1, 0]] if comm.rank == last else []
    with GlobalMultiIndexer(cuts, index, comm) as indexer:
        section = np.array([1, 2], "i2") if comm.rank == last else np.array([])
        found = indexer.Take(section)
        assert everywhere(comm, all(part.dtype == np.int16 for part in found))
        values = [np.array([True, False])] if comm.rank == last else []
        back = indexer.Put(values, reduce=ReduceOp.SUM)
        assert everywhere(comm, back.dtype == np.int64)
        out = np.zeros(2 if comm.rank == last else 0, bool)
        assert everywhere(comm, indexer.Put(values, out) is out)


def test_where_nobody_has_values_outputs_stay_as_they_are(comm):
    cuts = spread_evenly(comm)
    with GlobalMultiIndexer(cuts, [], comm) as indexer:
        out = np.arange(3)
        for operation in (None, *ReduceOp):
            assert everywhere(comm, indexer.Put([], out, reduce=operation) is out)
            assert everywhere(comm, out.tolist() == [0, 1, 2])
        assert everywhere(comm, indexer.Take(np.ones(3)) == [])
        assert everywhere(comm, indexer.Put([]).dtype == float)
        bits = indexer.Put([], reduce=ReduceOp.BAND)
        assert everywhere(comm, bits.tolist() == [-1, -1, -1])
    with GlobalIndexer([0] * (comm.size + 1), np.array([]), comm) as indexer:
        assert everywhere(comm, indexer.Take(np.array([], "i4")).dtype == np.int32)
        assert everywhere(comm, indexer.put([]) == [])


def test_large_messages_travel_in_chunks(comm, monkeypatch):
    monkeypatch.setattr(memory, "MOST_BYTES", 40)
    cuts = spread_evenly(comm, 20)
    index = np.random.default_rng(comm.rank).integers(0, cuts[-1], 70)
    data = numbered((cuts[-1], 2), "f4")
    with GlobalIndexer(cuts, index, comm) as indexer:
        found = indexer.Take(data[cuts[comm.rank] : cuts[comm.rank + 1]], count=2)
        assert everywhere(comm, same(found.reshape(-1, 2), data[index]))


def test_integers_of_any_size_are_indices(comm):
    cuts = spread_evenly(comm)
    for kind in ("i1", "u2", "i4", "u8", ">i8"):
        with GlobalIndexer(np.array(cuts, kind), np.array([2, 0], kind), comm) as indexer:
            found = indexer.Take(np.arange(3) + cuts[comm.rank])
            assert everywhere(comm, found.tolist() == [2, 0])


def test_only_ranks_that_hold_something_are_asked(comm, monkeypatch):
    monkeypatch.setattr(mailbox, "MOST_DENSE", 0)
    cuts = spread_evenly(comm)
    ahead, behind = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with GlobalIndexer(cuts, [cuts[ahead] + 1] * 2, comm) as indexer:
        found = indexer.Take(np.arange(cuts[-1])[cuts[comm.rank] : cuts[comm.rank + 1]])
        assert everywhere(comm, found.tolist() == [cuts[ahead] + 1] * 2)
        route = indexer._rows.to_requesters
        assert everywhere(comm, route.arriving.peers.tolist() == [ahead])
        assert everywhere(comm, route.leaving.peers.tolist() == [behind])
