"""Halo schedules, with all ranks played in one process and compared with numpy.pad."""

from collections import Counter
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from pencils.layout import build_layout
from pencils.layout.halo import direct, exchange, star, sweeps

UNSET = -1


def world(shape):
    """Return a global array whose points are numbered."""
    return np.arange(prod(shape)).reshape(shape)


def padded_world(layout, widths):
    """Pad the global array: wrapped around where it is periodic, else with UNSET."""
    field = world(layout.shape)
    if field.size == 0:
        return np.full([n + lo + hi for n, (lo, hi) in zip(layout.shape, widths, strict=True)], -1)
    for dim, width in enumerate(widths):
        pad = [(0, 0)] * field.ndim
        pad[dim] = width
        if layout.periodic[dim]:
            field = np.pad(field, pad, mode="wrap")
        else:
            field = np.pad(field, pad, constant_values=UNSET)
    return field


def padded_box(layout, widths, rank):
    return layout.box(rank).grow(widths)


def expected_block(layout, widths, rank):
    """Cut a padded block out of the padded world; ranks without points have nothing but UNSET."""
    box = padded_box(layout, widths, rank)
    if layout.box(rank).volume == 0:
        return np.full(box.shape, UNSET)
    return padded_world(layout, widths)[box.slices([-lo for lo, _ in widths])]


def unfilled_blocks(layout, widths):
    blocks = []
    for rank in range(layout.size):
        own, box = layout.box(rank), padded_box(layout, widths, rank)
        block = np.full(box.shape, UNSET)
        block[own.slices(box.start)] = world(layout.shape)[own.slices()]
        blocks.append(block)
    return blocks


def play(layout, widths, rounds):
    """Carry out all rounds on all ranks; return their padded blocks and the peers of each."""
    blocks = unfilled_blocks(layout, widths)
    origins = [padded_box(layout, widths, rank).start for rank in range(layout.size)]
    peers = [set() for _ in range(layout.size)]
    for faces in rounds:
        plans = [exchange(layout, widths, rank, faces) for rank in range(layout.size)]
        sent = [message for sends, _ in plans for message in sends]
        assert Counter(sent) == Counter(message for _, recvs in plans for message in recvs)
        for rank, (sends, recvs) in enumerate(plans):
            for peer in {ghosts.dest for ghosts in sends}:
                there = [ghosts for ghosts in plans[peer][1] if ghosts.source == rank]
                assert [ghosts for ghosts in sends if ghosts.dest == peer] == there
            peers[rank] |= {ghosts.source for ghosts in recvs} - {rank}
        before = [block.copy() for block in blocks]
        for source, dest, box, wrap in sent:
            target = blocks[dest][box.slices(origins[dest])]
            assert (target == UNSET).all()  # nothing arrives twice, or on own points
            values = before[source][box.shift(wrap).slices(origins[source])]
            assert values.shape == target.shape == box.shape
            assert values.size > 0
            target[...] = values
    return blocks, peers


@pytest.fixture(scope="session")
def any_halo(any_layout):
    """Draw a layout, some dimensions of which are singletons, and halo widths."""

    def build(draw):
        ndim = draw(st.integers(1, 3))
        layout = any_layout(
            draw,
            [draw(st.integers(0, (40, 9, 6)[ndim - 1])) for _ in range(ndim)],
            draw(st.integers(1, 24)),
        )
        singletons = draw(st.sets(st.integers(0, ndim - 1)))
        width = st.integers(0, (9, 4, 3)[ndim - 1])
        widths = [
            (0, 0) if dim in singletons else (draw(width), draw(width)) for dim in range(ndim)
        ]
        return layout.with_singletons(singletons), widths

    return build


def routes(layout, dims):
    """Ways to fill all ghosts: at once, in sweeps in any order, local dimensions first."""
    local = [dim for dim in dims if layout.process_shape[dim] == 1]
    far = [dim for dim in dims if dim not in local]
    return [
        direct(dims),
        sweeps(dims),
        sweeps(dims[::-1]),
        sweeps(local) + direct(far, local),
        sweeps(far) + direct(local, far),
    ]


@examples(150)
@given(st.data())
def test_every_route_fills_the_ghosts_of_all_ranks(any_halo, data):
    layout, widths = any_halo(data.draw)
    for rounds in routes(layout, list(range(layout.ndim))):
        blocks, _ = play(layout, widths, rounds)
        for rank, block in enumerate(blocks):
            np.testing.assert_array_equal(block, expected_block(layout, widths, rank))


@examples(100)
@given(st.data())
def test_a_star_fills_faces_and_no_corners(any_halo, data):
    layout, widths = any_halo(data.draw)
    blocks, _ = play(layout, widths, star(range(layout.ndim)))
    for rank, block in enumerate(blocks):
        own, box = layout.box(rank), padded_box(layout, widths, rank)
        outside = np.zeros(box.shape, int)
        for dim in range(layout.ndim):
            beyond = np.arange(box.start[dim], box.stop[dim])
            beyond = (beyond < own.start[dim]) | (beyond >= own.stop[dim])
            outside += np.expand_dims(beyond, [d for d in range(layout.ndim) if d != dim])
        whole = expected_block(layout, widths, rank)
        np.testing.assert_array_equal(block, np.where(outside <= 1, whole, UNSET))


def test_a_rank_has_as_many_peers_as_neighbours():
    layout = build_layout((64, 64, 64), 1000, decomp=(0, 1, 2), grid=(10, 10, 10), periodic=True)
    widths = [(1, 1)] * 3
    sends, recvs = exchange(layout, widths, 555, *direct([0, 1, 2]))
    assert len({ghosts.source for ghosts in recvs}) == len(recvs) == len(sends) == 26
    assert [len(exchange(layout, widths, 555, faces)[1]) for faces in sweeps([0, 1, 2])] == [2] * 3
    assert len(exchange(layout, widths, 555, *star([0, 1, 2]))[1]) == 6
    # Empty blocks are jumped over: nobody sends to them, and nobody looks at them.
    layout = build_layout((10, 10), 10**6, decomp=(0, 1), grid=(1000, 1000), periodic=True)
    sends, recvs = exchange(layout, [(2, 2)] * 2, 0, *direct([0, 1]))
    assert len(sends) == len(recvs) == 24
    assert exchange(layout, [(2, 2)] * 2, 10**6 - 1, *direct([0, 1])) == ([], [])
