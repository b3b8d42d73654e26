"""Grouping requests by owner, and rows of different lengths: one process plays all ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexer_worlds import flat, put, put_rows, worlds

from pencils.comm.rows import part_of
from pencils.indexer.arguments import Ragged
from pencils.indexer.requests import Segments, bounds_of, group, inverse, last_of_each

many = st.integers(1, 5).flatmap(worlds)
lengths = st.lists(st.integers(0, 3), max_size=12)


def requests_of(lists):
    return np.array([i for index in lists for i in index], np.int64)


def plan(world):
    """Group the requests of every rank."""
    cuts = np.array(world.cuts)
    found = []
    for lists in world.lists:
        index = requests_of(lists)
        owners = part_of(cuts, index)
        found.append((index - cuts[owners], *group(owners, len(world.lists))))
    return found


def send(sources, segments, to):
    """Give what arrives at rank `to`, from each rank in turn."""
    parts = [
        source[segment.bounds[i] : segment.bounds[i + 1]]
        for source, segment in zip(sources, segments, strict=True)
        for i in np.flatnonzero(segment.peers == to)
    ]
    return np.concatenate(parts) if parts else sources[0][:0]


@given(many)
def test_owners_hold_what_is_asked_of_them(world):
    cuts = np.array(world.cuts)
    owners = part_of(cuts, np.arange(world.size))
    assert (cuts[owners] <= np.arange(world.size)).all()
    assert (np.arange(world.size) < cuts[owners + 1]).all()


@given(st.lists(st.integers(0, 299)), st.sampled_from([300, 65_536, 70_000]))
def test_groups_are_stable(owners, size):
    order, segments = group(np.array(owners, np.int64), size)
    assert order.tolist() == sorted(range(len(owners)), key=owners.__getitem__)
    assert segments.peers.tolist() == sorted(set(owners))
    assert segments.counts.tolist() == [owners.count(peer) for peer in sorted(set(owners))]
    assert (order[inverse(order)] == np.arange(len(owners))).all()


@given(many)
def test_playing_all_ranks_of_a_take(world):
    data = 10 * np.arange(world.size)
    plans = plan(world)
    asked = [offsets[order] for offsets, order, _ in plans]
    segments = [segments for *_, segments in plans]
    ranks = range(len(world.lists))
    wanted = [send(asked, segments, rank) for rank in ranks]
    served = [data[world.cuts[rank] :][wanted[rank]] for rank in ranks]
    back = [
        Segments(
            np.array([r for r in ranks if rank in segments[r].peers], np.int64), bounds_of(counts)
        )
        for rank in ranks
        for counts in [np.array([n for s in segments for n in s.counts[s.peers == rank]], int)]
    ]
    for rank, (_, order, _) in enumerate(plans):
        arrived = send(served, back, rank)
        assert (arrived[inverse(order)] == data[requests_of(world.lists[rank])]).all()


@given(many)
def test_playing_all_ranks_of_a_put(world):
    plans = plan(world)
    values = np.arange(len(world.written)) + 1
    ends = np.cumsum([0, *(len(order) for _, order, _ in plans)])
    leaving = [values[ends[rank] :][order] for rank, (_, order, _) in enumerate(plans)]
    asked = [offsets[order] for offsets, order, _ in plans]
    segments = [segments for *_, segments in plans]
    after = np.zeros(world.size, int)
    for rank in range(len(plans)):
        section = after[world.cuts[rank] : world.cuts[rank + 1]]
        rows, writers = last_of_each(send(asked, segments, rank), len(section))
        section[rows] = send(leaving, segments, rank)[writers]
    assert (after == put(np.zeros(world.size, int), world.written, values)).all()


@given(st.lists(st.lists(st.integers(0, 99), max_size=3), min_size=1), st.data())
def test_ragged_rows_are_picked_and_split(rows, data):
    ragged = Ragged(*flat(rows))
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1)))
    counts, values = ragged.pick(np.array(picks, np.int64))
    assert [counts.tolist(), values.tolist()] == [
        part.tolist() for part in flat([rows[i] for i in picks])
    ]
    cut = data.draw(st.integers(0, len(rows)))
    parts = ragged.split([cut, len(rows) - cut])
    for part, expected in zip(parts, (rows[:cut], rows[cut:]), strict=True):
        assert [a.tolist() for a in part] == [a.tolist() for a in flat(expected)]
    joined = Ragged.joined(parts, np.dtype(float))
    assert [a.tolist() for a in joined] == [a.tolist() for a in ragged]


@pytest.mark.parametrize(("merge", "extend"), [(Ragged.replaced, False), (Ragged.extended, True)])
@given(st.data())
def test_rows_are_written_in_order(merge, extend, data):
    rows = st.lists(st.integers(0, 99), max_size=3)
    before = data.draw(st.lists(rows, max_size=4))
    targets = st.integers(0, max(0, len(before) - 1))
    writes = data.draw(st.lists(st.tuples(targets, rows), max_size=8 if before else 0))
    targets = [i for i, _ in writes]
    written = [row for _, row in writes]
    found = merge(Ragged(*flat(before)), np.array(targets, np.int64), Ragged(*flat(written)))
    expected = flat(put_rows(before, targets, written, extend=extend))
    assert [a.tolist() for a in found] == [a.tolist() for a in expected]
    assert found.counts.dtype == np.int64
