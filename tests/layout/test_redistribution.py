"""Schedules, with all ranks played in one process and compared with the global NumPy array."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from pencils.errors import ArgumentError
from pencils.layout import build_layout, gather, redistribution, scatter

NOWHERE = -1


def world(shape):
    """Return a global array whose points are numbered."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def blocks(layout, field):
    """Cut out what each rank holds."""
    return [field[layout.box(rank).slices()].copy() for rank in range(layout.size)]


def is_inside(box, other):
    """Whether every index of `box` lies in `other`."""
    return all(
        lo <= start < stop <= hi
        for lo, start, stop, hi in zip(other.start, box.start, box.stop, other.stop, strict=True)
    )


def deliver(messages, source, target, sent):
    """Carry out messages by slicing; return every rank's block and how often each point came."""
    start = [source.box(rank).start for rank in range(source.size)]
    goal = [target.box(rank) for rank in range(target.size)]
    received = [np.full(box.shape, NOWHERE) for box in goal]
    arrivals = [np.zeros(box.shape, int) for box in goal]
    for message in messages:
        assert message.box.volume > 0
        assert is_inside(message.box, source.box(message.source))
        assert is_inside(message.box, goal[message.dest])
        here = message.box.slices(goal[message.dest].start)
        there = message.box.slices(start[message.source])
        received[message.dest][here] = sent[message.source][there]
        arrivals[message.dest][here] += 1
    return received, arrivals


def assert_same(found, expected):
    """Check that two lists of blocks are equal."""
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.fixture(scope="session")
def any_pair(any_layout):
    """Draw two layouts of one shape; some dimensions are singletons of either."""

    def build(draw, *, singletons=True, equal_ranks=True):
        ndim = draw(st.integers(1, 4))
        most = (70, 12, 7, 5)[ndim - 1]
        ranks = draw(st.integers(1, 64))
        goal = ranks if equal_ranks else draw(st.integers(1, 64))
        some = st.sets(st.integers(0, ndim - 1)) if singletons else st.just(set())
        ours, theirs = draw(some), draw(some)
        shape = [1 if dim in ours | theirs else draw(st.integers(0, most)) for dim in range(ndim)]
        source = any_layout(draw, shape, ranks).with_singletons(ours)
        target = any_layout(draw, shape, goal).with_singletons(theirs)
        return source, target

    return build


@examples(60)
@given(st.data())
def test_redistribution_brings_every_point_to_its_target_once(any_pair, data):
    """After all messages every rank holds its target block of the field; each point came once."""
    source, target = any_pair(data.draw)
    field = world(source.shape)
    plans = [redistribution(source, target, rank, rank) for rank in range(source.size)]
    sends = [message for sent, _ in plans for message in sent]
    received, arrivals = deliver(sends, source, target, blocks(source, field))
    assert_same(received, blocks(target, field))
    assert all((count == 1).all() for count in arrivals)


@examples(60)
@given(st.data())
def test_what_is_sent_is_what_is_received(any_pair, data):
    """All sends are all receives; each rank lists its own, one message at most to any other."""
    source, target = any_pair(data.draw)
    plans = [redistribution(source, target, rank, rank) for rank in range(source.size)]
    sends = [message for sent, _ in plans for message in sent]
    recvs = [message for _, received in plans for message in received]
    assert set(sends) == set(recvs)
    assert len(sends) == len(set(sends)) == len(recvs)
    for rank, (sends, recvs) in enumerate(plans):
        assert all(message.source == rank for message in sends)
        assert all(message.dest == rank for message in recvs)
        assert len({message.dest for message in sends}) == len(sends)
        assert len({message.source for message in recvs}) == len(recvs)


@examples(60)
@given(st.data())
def test_layouts_of_different_numbers_of_ranks(any_pair, data):
    """A process may have a rank in either layout only; every point still comes once."""
    source, target = any_pair(data.draw, equal_ranks=False)
    field = world(source.shape)
    plans = [
        redistribution(
            source,
            target,
            process if process < source.size else None,
            process if process < target.size else None,
        )
        for process in range(max(source.size, target.size))
    ]
    sends = [message for sent, _ in plans for message in sent]
    recvs = [message for _, received in plans for message in received]
    assert set(sends) == set(recvs)
    assert len(sends) == len(set(sends)) == len(recvs)
    received, arrivals = deliver(sends, source, target, blocks(source, field))
    assert_same(received, blocks(target, field))
    assert all((count == 1).all() for count in arrivals)


@examples(30)
@given(st.data())
def test_messages_are_the_meetings_of_all_pairs_of_boxes(any_pair, data):
    """Without replicas, what is sent is what testing all P × P pairs of boxes finds."""
    source, target = any_pair(data.draw, singletons=False)
    pairs = set()
    for one, two in product(range(source.size), repeat=2):
        mine, yours = source.box(one), target.box(two)
        start = tuple(max(pair) for pair in zip(mine.start, yours.start, strict=True))
        stop = tuple(min(pair) for pair in zip(mine.stop, yours.stop, strict=True))
        if all(lo < hi for lo, hi in zip(start, stop, strict=True)):
            pairs.add((one, two, start, stop))
    plans = [redistribution(source, target, rank, rank) for rank in range(source.size)]
    sends = [message for sent, _ in plans for message in sent]
    assert {(m.source, m.dest, m.box.start, m.box.stop) for m in sends} == pairs


@examples(60)
@given(st.data())
def test_a_rank_that_has_a_point_already_gets_it_from_itself(any_pair, data):
    """No other replica is asked for points that the receiver holds in the source."""
    source, target = any_pair(data.draw)
    for rank in range(source.size):
        own = source.box(rank)
        for message in redistribution(source, target, rank, rank)[1]:
            has_some = (message.box & own).volume > 0
            assert has_some == (message.source == rank)


@examples(30)
@given(st.data())
def test_to_the_same_layout_every_rank_talks_to_itself_only(any_pair, data):
    """Replicated or not, nothing travels between equal layouts."""
    layout, _ = any_pair(data.draw)
    for rank in range(layout.size):
        sends, recvs = redistribution(layout, layout, rank, rank)
        boxes = [layout.box(rank)] if layout.box(rank).volume else []
        assert sends == recvs == [(rank, rank, box) for box in boxes]


@given(st.data())
def test_scatter_brings_every_rank_its_block_from_root(any_pair, data):
    """From root, which holds everything, each rank gets its block; ranks come in order."""
    layout, _ = any_pair(data.draw)
    root = data.draw(st.integers(0, layout.size - 1))
    field = world(layout.shape)
    messages = list(scatter(layout, root))
    assert {message.source for message in messages} <= {root}
    assert [message.dest for message in messages] == [
        rank for rank in range(layout.size) if layout.box(rank).volume
    ]
    everywhere = build_layout(layout.shape, 1)
    assert all(is_inside(message.box, everywhere.box(0)) for message in messages)
    received = [np.full(layout.box(rank).shape, NOWHERE) for rank in range(layout.size)]
    for message in messages:
        received[message.dest][message.box.slices(layout.box(message.dest).start)] = field[
            message.box.slices()
        ]
    assert_same(received, blocks(layout, field))


@given(st.data())
def test_gather_brings_every_point_to_root_once(any_pair, data):
    """Root gets the whole field; of replicas one sends, the others stay silent."""
    layout, _ = any_pair(data.draw)
    root = data.draw(st.integers(0, layout.size - 1))
    field = world(layout.shape)
    held = blocks(layout, field)
    found, arrivals = np.full(layout.shape, NOWHERE), np.zeros(layout.shape, int)
    for message in gather(layout, root):
        assert message.dest == root
        assert message.box.volume > 0
        own = layout.box(message.source)
        found[message.box.slices()] = held[message.source][message.box.slices(own.start)]
        arrivals[message.box.slices()] += 1
    np.testing.assert_array_equal(found, field)
    assert (arrivals == 1).all()


@examples(30)
@given(st.data())
def test_gather_inverts_scatter_where_nothing_is_replicated(any_pair, data):
    """The same boxes travel, the other way."""
    layout, _ = any_pair(data.draw, singletons=False)
    there = [(message.dest, message.source, message.box) for message in scatter(layout, 0)]
    assert there == list(gather(layout, 0))


def test_the_classic_transpose_of_a_matrix():
    """Rows to columns on three ranks: nine tiles, each rank keeps one."""
    rows, columns = build_layout((6, 6), 3, decomp=0), build_layout((6, 6), 3, decomp=1)
    sends, recvs = redistribution(rows, columns, 1, 1)
    assert [(m.dest, m.box.start, m.box.stop) for m in sends] == [
        (0, (2, 0), (4, 2)),
        (1, (2, 2), (4, 4)),
        (2, (2, 4), (4, 6)),
    ]
    assert [(m.source, m.box.start) for m in recvs] == [(0, (0, 2)), (1, (2, 2)), (2, (4, 2))]


@pytest.mark.parametrize("shape", [(4, 7), (4, 6, 1)])
def test_layouts_that_do_not_match_raise(shape):
    """The error shows both shapes."""
    one, two = build_layout((4, 6), 2), build_layout(shape, 2)
    with pytest.raises(ArgumentError) as error:
        redistribution(one, two, 0, 0)
    assert f"(4, 6) to shape {shape}" in str(error.value)
