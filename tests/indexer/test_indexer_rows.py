"""Python objects and variable buffers on all ranks, against an oracle that plays all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexer_worlds import flat, put, put_rows, worlds
from mpi4py import MPI
from mpi_helpers import everywhere
from tiers import examples

from pencils import GlobalIndexer, GlobalMultiIndexer

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

COMM = MPI.COMM_WORLD
few = examples(25)


def thing(number):
    """Make some object or other, None among them."""
    return [None, number, [number, "x"], {"n": np.float64(number)}, b"", ""][number % 6]


@few
@given(worlds(), st.booleans())
def test_objects_are_taken(world, check):
    lists, rows, _ = world.here(COMM)
    data = [thing(i) for i in range(world.size)]
    with GlobalMultiIndexer(world.cuts, lists, COMM, check=check) as indexer:
        found = indexer.take(data[rows])
        slots = [[0] * len(index) for index in lists]
        inner = list(slots)
        assert everywhere(COMM, indexer.take(data[rows], slots) is slots)
    expected = [[data[i] for i in index.astype(int)] for index in lists]
    assert everywhere(COMM, found == expected)
    assert everywhere(COMM, slots == expected and all(map(lambda a, b: a is b, slots, inner)))


@few
@given(worlds(), st.booleans())
def test_objects_are_put(world, check):
    lists, rows, mine = world.here(COMM)
    items = [thing(k) for k in range(len(world.written))]
    parts = world.split(COMM, items[mine])
    before = [f"kept {i}" for i in range(world.size)]
    out = before[rows]
    with GlobalMultiIndexer(world.cuts, lists, COMM, check=check) as indexer:
        fresh = indexer.put(parts)
        assert everywhere(COMM, indexer.put(parts, out) is out)
    assert everywhere(COMM, fresh == put([None] * world.size, world.written, items)[rows])
    assert everywhere(COMM, out == put(before, world.written, items)[rows])


def test_what_arrives_is_a_copy(comm):
    mine = [["here"]]
    with GlobalIndexer(range(comm.size + 1), [comm.rank, comm.rank], comm) as indexer:
        one, two = indexer.take(mine)
        assert everywhere(comm, one == mine[0] and one is not mine[0] and one is not two)


def test_only_what_is_wanted_is_pickled(comm):
    with GlobalIndexer([2 * r for r in range(comm.size + 1)], [0], comm) as indexer:
        found = indexer.take([1, lambda: None])
        assert everywhere(comm, found == [1])


@st.composite
def ragged_worlds(draw):
    world = draw(worlds())
    row = st.lists(st.integers(0, 99), max_size=3)

    def rows(number):
        return draw(st.lists(row, min_size=number, max_size=number))

    return world, rows(world.size), rows(len(world.written))


@few
@given(ragged_worlds(), st.sampled_from(["f8", "i2", ">f4", "c16"]))
def test_rows_are_taken(case, dtype):
    world, data, _ = case
    lists, rows, _ = world.here(COMM)
    with GlobalMultiIndexer(world.cuts, lists, COMM) as indexer:
        found = indexer.Take_v(flat(data[rows], dtype))
        outs = [(counts, np.empty_like(values)) for counts, values in found]
        assert everywhere(COMM, indexer.Take_v(flat(data[rows], dtype), outs) is outs)
    expected = [flat([data[i] for i in index.astype(int)], dtype) for index in lists]
    some = any(data[i] for i in world.written) or any(data)
    assert everywhere(COMM, len(found) == len(lists))
    for pair, out, wanted in zip(found, outs, expected, strict=True):
        assert [a.tolist() for a in pair] == [a.tolist() for a in wanted]
        assert [a.tolist() for a in out] == [a.tolist() for a in wanted]
        assert not some or pair[1].dtype == dtype


@few
@given(ragged_worlds(), st.booleans())
def test_rows_are_put(case, extend):
    world, data, written = case
    lists, rows, mine = world.here(COMM)
    parts = [flat(part) for part in world.split(COMM, written[mine])]
    given_pair = flat(data[rows])
    kept = [a.copy() for a in given_pair]
    with GlobalMultiIndexer(world.cuts, lists, COMM) as indexer:
        onto = indexer.Put_v(parts, given_pair, extend=extend)
        fresh = indexer.Put_v(parts, extend=extend)
    for found, before in ((onto, data), (fresh, [[]] * world.size)):
        expected = flat(put_rows(before, world.written, written, extend=extend)[rows])
        assert everywhere(COMM, [a.tolist() for a in found] == [a.tolist() for a in expected])
        assert type(found) is tuple
    assert all((a == b).all() for a, b in zip(kept, given_pair, strict=True))


def test_the_pair_that_was_given_is_returned(comm):
    with GlobalIndexer(range(comm.size + 1), [0], comm) as indexer:
        pair = [1], np.zeros(1)
        assert everywhere(comm, indexer.Take_v(([1], np.array([7.0])), pair) is pair)
        assert everywhere(comm, pair[1].tolist() == [7])
        found = indexer.Put_v(([0], np.array([])), ([1], np.array([5], "i2")))
        assert everywhere(comm, len(found[1]) == (0 if comm.rank == 0 else 1))
        assert everywhere(comm, found[1].dtype == np.int16)


def test_counts_alone_may_be_taken_first(comm):
    cuts = list(range(comm.size + 1))
    section = [comm.rank + 1], np.full(comm.rank + 1, float(comm.rank))
    with GlobalIndexer(cuts, [comm.size - 1, 0], comm) as indexer:
        counts = indexer.Take(np.array(section[0]))
        found = indexer.Take_v(section, (counts, np.empty(counts.sum())))
        assert everywhere(comm, found[1].tolist() == [comm.size - 1.0] * comm.size + [0.0])
