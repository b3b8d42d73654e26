"""Boxes against sets of indices."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pencils.layout import Box


@st.composite
def boxes(draw, ndim=None, most=5):
    ndim = draw(st.integers(1, 4)) if ndim is None else ndim
    start = draw(st.tuples(*[st.integers(0, 4)] * ndim))
    extent = draw(st.tuples(*[st.integers(0, most)] * ndim))
    return Box(start, tuple(a + n for a, n in zip(start, extent, strict=True)))


def indices(box):
    """List all indices inside, in C order."""
    return list(product(*map(range, box.start, box.stop)))


@given(boxes(), st.data())
def test_boxes_are_sets_of_indices(box, data):
    """Counted, met by another one, moved, grown, and cut out of an array or a block of it."""
    inside, ndim = set(indices(box)), box.ndim
    assert box.volume == len(inside) == np.empty(box.shape).size
    around = product(*[range(-1, 11)] * ndim if ndim < 3 else [range(3, 6)] * ndim)
    assert all((index in box) == (index in inside) for index in around)
    other = data.draw(boxes(ndim))
    both = box & other
    assert set(indices(both)) == inside & set(indices(other)) == set(indices(other & box))
    assert all(extent >= 0 for extent in both.shape)
    offset = data.draw(st.tuples(*[st.integers(-3, 3)] * ndim))
    moved = [tuple(np.add(index, offset).tolist()) for index in indices(box)]
    assert indices(box.shift(offset)) == moved
    widths = data.draw(st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * ndim))
    grown = box.grow(widths)
    assert grown.shape == tuple(n + lo + hi for n, (lo, hi) in zip(box.shape, widths, strict=True))
    assert grown.grow([(-lo, -hi) for lo, hi in widths]) == box
    world = np.arange(10**ndim).reshape((10,) * ndim)
    expected = [int(world[index]) for index in indices(box)]
    assert world[box.slices()].ravel().tolist() == expected
    origin = data.draw(st.tuples(*[st.integers(0, low) for low in box.start]))
    block = world[tuple(slice(o, None) for o in origin)]
    assert block[box.slices(origin)].ravel().tolist() == expected


@given(boxes(most=20), st.integers(1, 30))
def test_pieces_are_small_and_few_and_run_through_the_box_in_c_order(box, most):
    pieces = list(box.pieces(most))
    assert all(1 <= piece.volume <= most for piece in pieces)
    assert [index for piece in pieces for index in indices(piece)] == indices(box)
    inner = int(np.prod(box.shape[1:], dtype=int))
    if 0 < inner <= most:
        assert len(pieces) == -(-box.shape[0] // (most // inner))
