"""Basic indices against NumPy: the shape, and the parts that lie in each block."""

import re
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

from pencils.layout import Box, Selection
from pencils.layout.box import positions

shapes = st.lists(st.integers(0, 7), min_size=1, max_size=4).map(tuple)


@st.composite
def arrays_and_keys(draw):
    shape = draw(shapes)
    key = draw(basic_indices(shape, allow_newaxis=False, allow_ellipsis=True))
    return np.arange(np.prod(shape, dtype=int)).reshape(shape), key


def any_blocks(draw, shape):
    """Cut an array anywhere, also into empty blocks; list the boxes."""
    along = []
    for n in shape:
        cuts = [0, *sorted(draw(st.lists(st.integers(0, n), max_size=3))), n]
        along.append(list(pairwise(cuts)))
    return [Box(*map(tuple, zip(*pieces, strict=True))) for pieces in product(*along)]


@given(arrays_and_keys())
def test_shape_is_that_of_the_indexed_array(case):
    array, key = case
    selection = Selection.from_key(key, array.shape)
    assert selection.shape == array[key].shape
    kept = np.ix_(*map(list, selection.ranges)) if all(selection.ranges) else None
    if kept is not None:
        assert array[kept].ravel().tolist() == np.ravel(array[key]).tolist()
    rising = selection.rising()  # the same points in order
    assert [list(kept) for kept in rising.ranges] == [sorted(kept) for kept in selection.ranges]
    assert all(kept.step > 0 for kept in rising.ranges)
    assert rising.dropped == selection.dropped


@given(arrays_and_keys(), st.data())
def test_parts_of_all_blocks_reassemble_the_indexed_array(case, data):
    """Each block gives its `local` part to its `part` of the result; every element comes once.

    Assigning to the `local` parts of all blocks does what assigning to ``array[key]`` does.
    """
    array, key = case
    selection = Selection.from_key(key, array.shape)
    result, count = np.full(array[key].shape, -1), np.zeros(array[key].shape, int)
    expected, mine = array.copy(), array.copy()
    values = -1 - np.arange(array[key].size).reshape(array[key].shape)
    expected[key] = values
    for box in any_blocks(data.draw, array.shape):
        local = selection.local(box)
        if local is not None:
            found = array[box.slices()][local]
            assert np.shape(found) == result[selection.part(box)].shape
            result[selection.part(box)] = found
            count[selection.part(box)] += 1
            mine[box.slices()][local] = values[selection.part(box)]
    np.testing.assert_array_equal(result, array[key])
    assert (count == 1).all()
    np.testing.assert_array_equal(mine, expected)


@given(st.data(), st.integers(0, 12))
def test_positions_are_those_of_the_members_inside(data, n):
    """`positions` is an interval of exactly the members within the bounds, in either direction."""
    kept = range(n)[data.draw(st.slices(n))]
    lo = data.draw(st.integers(0, n))
    hi = data.draw(st.integers(lo, n))
    first, last = positions(kept, lo, hi)
    assert 0 <= first <= last <= len(kept)
    assert list(range(first, last)) == [i for i, at in enumerate(kept) if lo <= at < hi]


def test_numpy_integers_and_idle_ellipses_are_read():
    """NumPy's integers count as integers; an Ellipsis may stand for no axes at all."""
    array, integers = np.arange(60).reshape(3, 4, 5), slice(np.int8(0), np.int8(3))
    keys = np.int64(-1), np.array(2), (integers, 0), (), (...,), (0, ..., 0, 0), (0, 0, 0, ...)
    for key in keys:
        assert Selection.from_key(key, (3, 4, 5)).shape == array[key].shape
    # `local` is None where an integer selects a plane of another block.
    selection = Selection.from_key((2, slice(None, None, -2)), (4, 5))
    assert selection.local(Box((0, 0), (2, 5))) is None
    assert selection.local(Box((2, 0), (4, 3))) == (0, slice(2, None, -2))
    assert selection.part(Box((2, 0), (4, 3))) == (slice(1, 3),)


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        (3, "index 3 is out of bounds for axis 0 with global size 3; use -3..2"),
        (-4, "index -4 is out of bounds for axis 0 with global size 3; use -3..2"),
        ((0, 4), "index 4 is out of bounds for axis 1 with global size 4; use -4..3"),
        ((..., 0), "index 0 is out of bounds for axis 2, which has no points"),
        ((0, 0, 0, 0), "4 indices for an array of 3 dimensions"),
        ((..., 0, ...), "an index can only have one Ellipsis"),
    ],
)
def test_indices_outside_raise_as_in_numpy(key, allowed):
    """What NumPy refuses with IndexError raises IndexError; the text gives index, axis and size."""
    with pytest.raises(IndexError):
        np.empty((3, 4, 0))[key]
    with pytest.raises(IndexError, match=re.escape(allowed)):
        Selection.from_key(key, (3, 4, 0))


@pytest.mark.parametrize(
    "key",
    [
        *(None, True, 1.0, "x", [0, 1], np.array([0]), np.array([True, False, True]), np.True_),
        *(np.array(True), (0, None), (0, 0, 0, None), (slice(None), [0])),  # noqa: FBT003
    ],
    ids=repr,
)
def test_other_keys_raise_and_name_what_is_allowed(key):
    """Masks, lists, new axes and floats are refused; the text says what global indices are."""
    with pytest.raises(TypeError, match=r"integers, slices and one Ellipsis, not \w+; \w+"):
        Selection.from_key(key, (3, 4, 5))
    with pytest.raises(ValueError, match="zero"):  # as in Python
        Selection.from_key(slice(None, None, 0), (3,))
    with pytest.raises(TypeError, match="integers"):
        Selection.from_key(slice(0.0, 2), (3,))
