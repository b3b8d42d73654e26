"""Schedules, with all ranks played in one process and compared with the global NumPy array."""

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


@examples(100)
@given(st.data(), st.booleans())
def test_redistribution_brings_every_point_to_its_target_once(any_pair, data, equal):
    """After all messages every rank holds its target block of the field; each point came once.

    All sends are all receives; each rank lists its own, one message at most to any other. A process
    may have a rank in either layout only.
    """
    source, target = any_pair(data.draw, equal_ranks=equal)
    field = world(source.shape)
    every, sends, recvs = range(max(source.size, target.size)), [], []
    for process in every:
        here, there = (process if process < each.size else None for each in (source, target))
        sent, received = redistribution(source, target, here, there)
        assert all(message.source == process for message in sent)
        assert all(message.dest == process for message in received)
        assert len({message.dest for message in sent}) == len(sent)
        assert len({message.source for message in received}) == len(received)
        sends += sent
        recvs += received
    assert set(sends) == set(recvs)
    assert len(sends) == len(set(sends)) == len(recvs)
    found, arrivals = deliver(sends, source, target, blocks(source, field))
    for one, two in zip(found, blocks(target, field), strict=True):
        np.testing.assert_array_equal(one, two)
    assert all((count == 1).all() for count in arrivals)


@examples(60)
@given(st.data())
def test_a_rank_that_has_a_point_already_gets_it_from_itself(any_pair, data):
    """No other replica is asked for it; between equal layouts nothing travels at all."""
    source, target = any_pair(data.draw)
    for rank in range(source.size):
        own = source.box(rank)
        for message in redistribution(source, target, rank, rank)[1]:
            has_some = (message.box & own).volume > 0
            assert has_some == (message.source == rank)
        sends, recvs = redistribution(source, source, rank, rank)
        assert sends == recvs == [(rank, rank, box) for box in ([own] if own.volume else [])]


@given(st.data())
def test_scatter_and_gather_move_every_block_once(any_pair, data):
    """From root each rank gets its block, in order; of replicas one sends."""
    layout, _ = any_pair(data.draw)
    root = data.draw(st.integers(0, layout.size - 1))
    boxes = [layout.box(rank) for rank in range(layout.size)]
    assert list(scatter(layout, root)) == [
        (root, rank, box) for rank, box in enumerate(boxes) if box.volume
    ]
    field = world(layout.shape)
    held = blocks(layout, field)
    found, arrivals = np.full(layout.shape, NOWHERE), np.zeros(layout.shape, int)
    for message in gather(layout, root):
        assert message.dest == root
        assert message.box.volume > 0
        own = boxes[message.source]
        found[message.box.slices()] = held[message.source][message.box.slices(own.start)]
        arrivals[message.box.slices()] += 1
    np.testing.assert_array_equal(found, field)
    assert (arrivals == 1).all()


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
