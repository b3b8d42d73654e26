"""Selections cut into runs, against NumPy, in one process."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pencils.io.direct import longest_runs
from pencils.io.open_file import own_ranges
from pencils.layout import Selection


@st.composite
def boxes(draw):
    shape = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4).map(tuple))
    key = tuple(draw(st.slices(extent)) for extent in shape)
    return shape, [range(extent)[part] for extent, part in zip(shape, key, strict=True)]


@given(boxes())
def test_runs_cover_the_box_in_order(case):
    shape, ranges = case
    numbers = np.arange(prod(shape)).reshape(shape)
    box = numbers[np.ix_(*map(list, ranges))] if shape else numbers
    found = np.full((*box.shape, 1), -1)
    runs = list(longest_runs(ranges, shape))
    for first, index in runs:
        length = found[index].size
        found[index] = np.arange(first, first + length).reshape(found[index].shape)
    assert np.array_equal(found[..., 0], box)


@pytest.mark.parametrize(
    ("key", "count"),
    [(np.s_[...], 1), (np.s_[2], 1), (np.s_[1:3], 1), (np.s_[:, 1:], 4), (np.s_[..., ::2], 60)],
)
def test_runs_are_as_long_as_can_be(key, count):
    selection = Selection.from_key(key, (4, 5, 6))
    whole = [slice(0, extent) for extent in selection.shape]
    assert len(list(longest_runs(own_ranges(selection, whole), (4, 5, 6)))) == count


@given(st.data())
def test_a_part_of_a_selection(data):
    shape = (4, 5, 6)
    key = tuple(data.draw(st.one_of(st.integers(0, n - 1), st.slices(n))) for n in shape)
    numbers = np.arange(120).reshape(shape)
    selection = Selection.from_key(key, shape)
    part = [slice(*sorted((data.draw(st.integers(0, n)), n))) for n in selection.shape]
    ranges = own_ranges(selection, part)
    found = numbers[np.ix_(*map(list, ranges))]
    wanted = np.asarray(numbers[key])[tuple(part)]
    assert np.array_equal(found.reshape(wanted.shape), wanted)
