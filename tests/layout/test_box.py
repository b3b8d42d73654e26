"""Boxes against sets of indices."""

from itertools import product

import numpy as np
import pytest
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


@given(boxes())
def test_shape_volume_and_membership_count_indices(box):
    """`shape`, `volume` and ``in`` agree with the indices themselves."""
    inside = set(indices(box))
    assert box.volume == len(inside)
    assert box.ndim == len(box.shape)
    assert np.empty(box.shape).size == box.volume
    around = product(*[range(-1, 11)] * box.ndim if box.ndim < 3 else [range(3, 6)] * box.ndim)
    assert all((index in box) == (index in inside) for index in around)


@given(st.data(), st.integers(1, 3))
def test_and_is_the_intersection_of_the_sets(data, ndim):
    """A box meets another in the indices that both hold, from either side; else it is empty."""
    one, two = data.draw(boxes(ndim)), data.draw(boxes(ndim))
    both = one & two
    assert set(indices(both)) == set(indices(one)) & set(indices(two)) == set(indices(two & one))
    assert all(extent >= 0 for extent in both.shape)
    assert one & one == one


@given(boxes(), st.data())
def test_slices_cut_the_box_out_of_an_array(box, data):
    """`slices` indexes the global array, and any block that begins at `origin`."""
    world = np.arange(10**box.ndim).reshape((10,) * box.ndim)
    expected = [int(world[index]) for index in indices(box)]
    assert world[box.slices()].ravel().tolist() == expected
    origin = data.draw(st.tuples(*[st.integers(0, low) for low in box.start]))
    block = world[tuple(slice(o, None) for o in origin)]
    assert block[box.slices(origin)].ravel().tolist() == expected


@given(boxes(), st.data())
def test_shift_moves_every_index(box, data):
    """Shifting there and back changes nothing; on the way, every index is moved by the offset."""
    offset = data.draw(st.tuples(*[st.integers(-3, 3)] * box.ndim))
    moved = box.shift(offset)
    assert indices(moved) == [
        tuple(i + o for i, o in zip(index, offset, strict=True)) for index in indices(box)
    ]
    assert moved.shift([-o for o in offset]) == box


@given(boxes(), st.data())
def test_grow_adds_indices_on_both_sides(box, data):
    """The grown box holds what lies at most the width outside the box."""
    width = st.tuples(st.integers(0, 2), st.integers(0, 2))
    widths = data.draw(st.tuples(*[width] * box.ndim))
    grown = box.grow(widths)
    assert grown.shape == tuple(n + lo + hi for n, (lo, hi) in zip(box.shape, widths, strict=True))
    assert grown.grow([(-lo, -hi) for lo, hi in widths]) == box


@given(boxes(), st.integers(1, 30))
def test_pieces_are_small_and_run_through_the_box_in_c_order(box, most):
    """Joined, the pieces are the box in C order; none is empty or larger than allowed."""
    pieces = list(box.pieces(most))
    assert all(1 <= piece.volume <= most for piece in pieces)
    assert [index for piece in pieces for index in indices(piece)] == indices(box)


@given(boxes(most=20), st.integers(1, 30))
def test_pieces_are_not_needlessly_many(box, most):
    """Two pieces that follow each other could hardly be one: at most about twice the minimum."""
    inner = int(np.prod(box.shape[1:], dtype=int))
    if 0 < inner <= most:
        rows = most // inner
        assert len(list(box.pieces(most))) == -(-box.shape[0] // rows)


def test_of_shape_begins_at_zero():
    """The box of a shape holds every index of an array of that shape."""
    assert Box.of_shape([2, 0, 3]) == Box((0, 0, 0), (2, 0, 3))


def test_boxes_of_different_dimensions_do_not_mix():
    """An index of the wrong length is a mistake of ours, and raises."""
    with pytest.raises(ValueError, match="zip"):
        (1, 2) in Box((0,), (3,))  # noqa: B015
