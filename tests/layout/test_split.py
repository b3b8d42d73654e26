"""Cutting one dimension: every rule against the definition that it has in words."""

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pencils.errors import ArgumentError
from pencils.layout import Split

points = st.integers(0, 40)
parts = st.integers(1, 50)


@st.composite
def splits(draw):
    kind = draw(st.sampled_from(["first", "last", "floor", "ceil", "bounds"]))
    if kind == "bounds":
        inner = draw(st.lists(st.integers(0, 20), max_size=12))
        whole = Split.from_bounds([0, *sorted(inner), 20])
    else:
        whole = Split(draw(points), draw(parts), kind)
    return whole.section(range(whole.points)[draw(points) : draw(points) : draw(st.integers(1, 9))])


def blocks(split):
    """List the indices of every block."""
    return [list(range(*split.bounds(part))) for part in range(split.parts)]


@given(points, parts)
def test_first_is_array_split(n, p):
    """The first ``n % p`` blocks get one more, as `numpy.array_split` deals them."""
    assert blocks(Split(n, p)) == [list(b) for b in np.array_split(np.arange(n), p)]


@given(points, parts)
def test_last_is_first_seen_from_the_end(n, p):
    """The last ``n % p`` blocks get one more."""
    sizes = [len(b) for b in np.array_split(np.arange(n), p)][::-1]
    assert [len(b) for b in blocks(Split(n, p, "last"))] == sizes


@given(points, parts)
def test_floor_gives_index_i_to_the_part_whose_share_holds_it(n, p):
    """Block q starts at the largest integer not above ``q n / p``."""
    starts = [max(s for s in range(n + 1) if s * p <= q * n) for q in range(p + 1)]
    assert [Split(n, p, "floor").bounds(q) for q in range(p)] == list(pairwise(starts))


@given(points, parts)
def test_ceil_fills_blocks_one_after_the_other(n, p):
    """Every block takes as many points as the largest needs, until none are left."""
    size = min(s for s in range(n + 1) if s * p >= n)
    left = list(range(n))
    dealt = [[left.pop(0) for _ in range(min(size, len(left)))] for _ in range(p)]
    assert blocks(Split(n, p, "ceil")) == dealt


@given(splits())
def test_blocks_are_consecutive_and_hold_every_index_once(split):
    """Joined in the order of parts, the blocks are all indices."""
    assert list(chain(*blocks(split))) == list(range(split.points))
    assert len(blocks(split)) == split.parts


@given(splits())
def test_owner_is_the_part_whose_block_holds_the_index(split):
    """Exactly one block holds an index, and `owner` says which."""
    for index in range(split.points):
        holders = [part for part, block in enumerate(blocks(split)) if index in block]
        assert [split.owner(index)] == holders


@given(splits(), st.data())
def test_meeting_finds_the_shared_part_of_every_block(split, data):
    """`overlaps` yields what looking at each block in turn yields, and no empty pieces."""
    start = data.draw(st.integers(0, split.points))
    stop = data.draw(st.integers(0, split.points))
    wanted = range(start, stop)
    found = [(part, sorted(set(block) & set(wanted))) for part, block in enumerate(blocks(split))]
    expected = [(part, shared) for part, shared in found if shared]
    assert [(p, list(range(lo, hi))) for p, lo, hi in split.overlaps(start, stop)] == expected
    only = data.draw(st.integers(0, split.parts - 1))
    assert [(p, list(range(lo, hi))) for p, lo, hi in split.overlaps(start, stop, only)] == [
        (part, shared) for part, shared in expected if part == only
    ]


@given(splits())
def test_longest_and_filled_count_blocks(split):
    """`longest` is the size of the largest block, `filled` the number that are not empty."""
    sizes = [len(block) for block in blocks(split)]
    assert split.longest == max(sizes)
    assert split.filled == sum(size > 0 for size in sizes)


@given(st.integers(0, 1), st.integers(1, 9))
def test_replicated_gives_all_points_to_every_part(n, p):
    """Every part holds, and meets, everything; the first one owns it."""
    split = Split(n, p, "replicated")
    assert split.replicated
    assert blocks(split) == [list(range(n))] * p
    assert list(split.overlaps(0, n)) == [(part, 0, n) for part in range(p)] * n
    assert list(split.overlaps(0, n, 0)) == [(0, 0, n)] * n
    assert [split.owner(index) for index in range(n)] == [0] * n
    assert (split.longest, split.filled) == (n, p * n)


def test_bounds_may_leave_blocks_empty_at_both_ends_and_in_the_middle():
    """A table says exactly which indices go where."""
    split = Split.from_bounds((0, 0, 3, 3, 5, 5))
    assert blocks(split) == [[], [0, 1, 2], [], [3, 4], []]
    assert [split.owner(i) for i in range(5)] == [1, 1, 1, 3, 3]


@pytest.mark.parametrize("table", [(), (0,), (1, 3), (0, 3, 2), (0, -1)])
def test_bad_bounds_raise_and_show_a_good_example(table):
    """The error repeats the bounds and says what they have to be."""
    with pytest.raises(
        ArgumentError, match=r"must start at 0.*never decrease.*\(0, 3, 3, 8\)"
    ) as e:
        Split.from_bounds(table)
    assert repr(table) in str(e.value)


@given(splits(), st.integers(0, 3))
def test_extended_adds_points_to_the_last_block_that_has_any(split, extra):
    """All other blocks hold what they held; with no points at all, the first block gets them."""
    longer = split.extended(extra)
    expected = blocks(split)
    filled = [part for part, block in enumerate(expected) if block] or [0]
    expected[filled[-1]] += range(split.points, split.points + extra)
    assert blocks(longer) == expected
    assert longer == split if extra == 0 else longer != split
    assert split.begins_like(longer) == longer.begins_like(split) == (extra <= 1)


@given(splits(), splits())
def test_splits_begin_alike_if_the_last_block_is_longer_by_one(one, other):
    """`begins_like` compares the blocks themselves, in either direction."""
    few, many = sorted((one, other), key=lambda split: split.points)
    expected = blocks(few) if few.parts == many.parts and many.points < few.points + 2 else []
    filled = [part for part, block in enumerate(expected) if block] or [0]
    if expected:
        expected[filled[-1]] += range(few.points, many.points)
    assert one.begins_like(other) == other.begins_like(one) == (expected == blocks(many))
