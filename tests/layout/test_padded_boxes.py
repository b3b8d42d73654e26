"""Interior, shells and ghosts against a mark on every point of the block."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pencils.layout import Box, ghost_box, halo_room, interior

widths = st.tuples(st.integers(0, 3), st.integers(0, 3))


@st.composite
def blocks(draw):
    """Draw a global shape, an own block in it, periodicity and halo widths."""
    ndim = draw(st.integers(1, 3))
    shape = draw(st.tuples(*[st.integers(0, 7)] * ndim))
    start = tuple(draw(st.integers(0, n)) for n in shape)
    stop = tuple(draw(st.integers(lo, n)) for lo, n in zip(start, shape, strict=True))
    periodic = draw(st.tuples(*[st.booleans()] * ndim))
    return Box(start, stop), shape, periodic, draw(st.tuples(*[widths] * ndim))


def counted(shape, boxes, origin=None):
    """Count in how many of the boxes each point lies."""
    counts = np.zeros(shape, int)
    for box in boxes:
        counts[box.slices(origin)] += 1
    return counts


@given(blocks())
def test_the_interior_is_where_a_full_stencil_fits(case):
    """Whole neighbourhoods stay in the block around the points of the interior, and only there."""
    own, _, _, halo = case
    block = Box.of_shape(own.shape)
    found = counted(block.shape, [interior(block.shape, halo)])
    for index in np.ndindex(block.shape):
        around = product(
            *(range(i - lo, i + hi + 1) for i, (lo, hi) in zip(index, halo, strict=True))
        )
        assert found[index] == all(point in block for point in around)


@given(blocks())
def test_interior_and_shells_cover_the_block_once(case):
    """No point is computed twice or forgotten, also in blocks thinner than the stencil."""
    own, _, _, halo = case
    inner = interior(own.shape, halo)
    shells = list(Box.of_shape(own.shape).without(inner))
    assert (counted(own.shape, [inner, *shells]) == 1).all()
    assert all(shell.volume for shell in shells)
    assert len(shells) <= 2 * own.ndim
    if not any(map(any, halo)):
        assert inner == Box.of_shape(own.shape)


@given(blocks())
def test_the_reach_adds_the_points_of_the_halo_that_some_rank_owns(case):
    """A point beyond an edge is a ghost if that wraps; with any other edge it is a boundary."""
    own, shape, periodic, halo = case
    padded = own.grow(halo)
    found = list(ghost_box(own, shape, periodic, halo).without(own))
    assert all(box.volume for box in found)
    counts = counted(padded.shape, found, padded.start)
    for index in product(*map(range, padded.start, padded.stop)):
        exists = all(
            n > 0 and (wraps or 0 <= i < n)
            for i, n, wraps in zip(index, shape, periodic, strict=True)
        )
        at = tuple(i - o for i, o in zip(index, padded.start, strict=True))
        assert counts[at] == (exists and index not in own)


@given(blocks(), st.data())
def test_margins_are_the_halo_within_the_domain_where_that_is_trimmed(case, data):
    own, shape, _, halo = case
    trimmed = {dim for dim in range(own.ndim) if data.draw(st.booleans())}
    padded, found = own.grow(halo), own.grow(halo_room(own, shape, halo, trimmed))
    for dim, n in enumerate(shape):
        whole = range(padded.start[dim], padded.stop[dim])
        kept = [i for i in whole if 0 <= i < n] if dim in trimmed else list(whole)
        assert list(range(found.start[dim], found.stop[dim])) == kept


@given(blocks(), st.data())
def test_without_leaves_what_another_box_does_not_hold(case, data):
    """Boxes that meet in part, in all or not at all: every point is left once or taken."""
    box, shape, *_ = case
    start = [data.draw(st.integers(0, n)) for n in shape]
    stop = [data.draw(st.integers(lo, n)) for lo, n in zip(start, shape, strict=True)]
    other = Box(tuple(start), tuple(stop))
    left = list(box.without(other))
    both = box & other
    assert all(piece.volume for piece in left)
    assert (counted(shape, [*left, both]) == counted(shape, [box])).all()
