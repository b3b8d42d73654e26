"""Slabs and chunks: where they begin and end, and how ranks share them, in one process."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pencils.io.contents import MOST_BYTES
from pencils.io.slabs import (
    GOOD_BYTES,
    choose_chunk,
    chunk_box,
    count_chunks,
    cut_points,
    enlarge,
    is_slab,
    run_bytes,
    slab_dimension,
)
from pencils.layout import Split, build_layout

SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


@st.composite
def grids(draw):
    shape = draw(SHAPES)
    return shape, tuple(draw(st.integers(1, n)) for n in shape)


@given(grids())
def test_chunks_cover_every_point_once(case):
    shape, chunk = case
    hits = np.zeros(shape, int)
    for index in np.ndindex(*count_chunks(shape, chunk)):
        box = chunk_box(index, chunk, shape)
        assert box.volume > 0
        hits[box.slices()] += 1
    assert (hits == 1).all()


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4, 8, 16, 100, 2**21]),
)
def test_the_choice_is_about_as_large_as_is_good(shape, itemsize):
    chunk = choose_chunk(shape, itemsize)
    assert all(1 <= extent <= n for extent, n in zip(chunk, shape, strict=True))
    size = prod(chunk) * itemsize
    assert size <= max(GOOD_BYTES, itemsize)
    assert size <= MOST_BYTES
    if prod(shape) * itemsize > GOOD_BYTES and prod(chunk) > 100:
        assert size > GOOD_BYTES / 2.1
    counts = count_chunks(shape, chunk)
    for n, extent, count in zip(shape, chunk, counts, strict=True):
        assert count * extent - n < extent  # no chunk lies outside


@pytest.mark.parametrize(
    ("shape", "itemsize", "chunk"),
    [
        ((1024, 1024, 1024), 8, (32, 64, 64)),
        ((100, 100, 100), 4, (50, 50, 100)),
        ((7, 5, 3), 8, (7, 5, 3)),
        ((10**9,), 8, (122071,)),
        ((3, 1), 2**30, (1, 1)),
    ],
)
def test_the_choice_for_some_shapes(shape, itemsize, chunk):
    assert choose_chunk(shape, itemsize) == chunk


@given(grids(), st.integers(0, 10_000))
def test_blocks_are_whole_chunks(case, most):
    shape, chunk = case
    block = enlarge(chunk, shape, most)
    assert prod(block) <= max(most, prod(chunk))
    for n, extent, joined in zip(shape, chunk, block, strict=True):
        assert joined % extent == 0 or joined == n
        assert joined >= extent


@given(
    st.integers(1, 40), st.integers(1, 12), st.integers(1, 7), st.sampled_from(["first", "ceil"])
)
def test_ranks_with_whole_chunks(points, chunk, parts, rule):
    tiles = Split(-(-points // chunk), parts, rule)
    table = cut_points(tiles, chunk, points)
    split = Split.from_bounds(table)
    assert (split.points, split.parts) == (points, parts)
    for part in range(parts):
        lo, hi = tiles.bounds(part)
        owned = {point // chunk for point in range(*split.bounds(part))}
        assert owned == set(range(lo, hi))
    assert Split.from_bounds(split.chunk_cuts(chunk)) == tiles


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_each_chunk_is_where_most_of_its_points_are(points, chunk, data):
    inner = data.draw(st.lists(st.integers(0, points), max_size=6))
    split = Split.from_bounds([0, *sorted(inner), points])
    shares = np.zeros((split.parts, -(-points // chunk)), int)
    for point in range(points):
        shares[split.owner(point), point // chunk] += 1
    owned = Split.from_bounds(split.chunk_cuts(chunk))
    for number, share in enumerate(shares.T):
        assert share[owned.owner(number)] == share.max()


def test_chunks_of_a_million_ranks_and_of_singletons():
    split = Split(12_345, 1_000)  # along each of two dimensions
    owned = Split.from_bounds(split.chunk_cuts(64))
    assert (owned.points, owned.parts, owned.longest) == (193, 1_000, 1)
    long = Split(3 * 10**6 + 1, 10**6)  # along one, where each chunk has points of two or three
    assert long.chunk_cuts(1) == long.cuts
    assert long.chunk_cuts(7)[:8] == (0, 1, 1, 2, 2, 2, 3, 3)
    assert Split(1, 3, "replicated").chunk_cuts(1) == (0, 0, 0, 1)


@pytest.mark.parametrize("shape", [(5, 3), (1, 4, 3), (3, 1, 2), (1, 1), (2, 0, 3), (0,), (6,)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_slab_is_what_is_contiguous_on_every_rank(shape, ranks):
    cells = np.arange(prod(shape)).reshape(shape)
    for decomp in product(range(len(shape)), repeat=min(2, len(shape))):
        if len(set(decomp)) < len(decomp):
            continue
        layout = build_layout(shape, ranks, decomp=decomp)
        blocks = [cells[layout.box(rank).slices()].ravel() for rank in range(ranks)]
        contiguous = all(np.all(np.diff(block) == 1) for block in blocks)
        # a slab is contiguous; a few small blocks are so by chance
        assert contiguous or not is_slab(layout)
        if is_slab(layout):
            assert sum(map(len, blocks)) == cells.size


def test_the_slab_dimension_has_points():
    assert [slab_dimension(s) for s in [(4, 3), (1, 3), (1, 1, 2), (1, 1), (0, 2)]] == [
        0,
        1,
        2,
        0,
        1,
    ]


def test_how_long_runs_are():
    lengths = [run_bytes(build_layout((8, 6, 4), 2, decomp=dim), 10) for dim in range(3)]
    assert lengths == [960, 120, 20]
    assert run_bytes(build_layout((8, 6, 4), 4, decomp=(2, 1)).with_singletons({2}), 10) == 30
