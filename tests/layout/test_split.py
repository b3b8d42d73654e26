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
def test_rules_are_what_they_are_in_words(n, p):
    # The first, or last, ``n % p`` blocks get one more; block q starts at the largest integer not
    # above ``q n / p``; all blocks are as large as the largest, until no points are left.
    first = [list(b) for b in np.array_split(np.arange(n), p)]
    assert blocks(Split(n, p)) == first
    assert [len(b) for b in blocks(Split(n, p, "last"))] == [len(b) for b in first][::-1]
    starts = [max(s for s in range(n + 1) if s * p <= q * n) for q in range(p + 1)]
    assert [Split(n, p, "floor").bounds(q) for q in range(p)] == list(pairwise(starts))
    size, left = min(s for s in range(n + 1) if s * p >= n), list(range(n))
    dealt = [[left.pop(0) for _ in range(min(size, len(left)))] for _ in range(p)]
    assert blocks(Split(n, p, "ceil")) == dealt


@given(splits(), st.data())
def test_blocks_hold_every_index_once_and_know_it(split, data):
    """`owner`, `overlaps`, `longest` and `filled` say what looking at each block says."""
    held = blocks(split)
    assert list(chain(*held)) == list(range(split.points))
    for index in range(split.points):
        assert [split.owner(index)] == [part for part, block in enumerate(held) if index in block]
    assert split.longest == max(map(len, held))
    assert split.filled == sum(map(bool, held))
    start, stop = (data.draw(st.integers(0, split.points)) for _ in range(2))
    found = [(part, sorted(set(block) & {*range(start, stop)})) for part, block in enumerate(held)]
    expected = [(part, shared) for part, shared in found if shared]
    assert [(p, list(range(lo, hi))) for p, lo, hi in split.overlaps(start, stop)] == expected
    only = data.draw(st.integers(0, split.parts - 1))
    assert [(p, list(range(lo, hi))) for p, lo, hi in split.overlaps(start, stop, only)] == [
        (part, shared) for part, shared in expected if part == only
    ]


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


def test_bounds_are_a_table():
    split = Split.from_bounds((0, 0, 3, 3, 5, 5))
    assert blocks(split) == [[], [0, 1, 2], [], [3, 4], []]
    text = r"must start at 0.*never decrease.*\(0, 3, 3, 8\)"
    for table in [(), (0,), (1, 3), (0, 3, 2), (0, -1)]:
        with pytest.raises(ArgumentError, match=text) as caught:
            Split.from_bounds(table)
        assert repr(table) in str(caught.value)


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
