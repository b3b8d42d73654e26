"""Levels: blocks that follow those of a finer grid, for any number of ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_scale import LAYOUTS, count_calls, million

from pencils.errors import ArgumentError
from pencils.layout import build_layout
from pencils.layout.build import change_layout
from pencils.layout.levels import coarse_layout, read_levels
from pencils.layout.split import Split

RULES = ["first", "last", "floor", "ceil"]


def coarse(layout, *, factor=2, centred="cell", least=0):
    return coarse_layout(layout, *read_levels(layout.ndim, factor, centred), least)


@given(
    st.integers(0, 40),
    st.integers(1, 12),
    st.sampled_from(RULES),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2, 4]),
)
def test_points_stay_on_the_part_of_the_fine_point(points, parts, rule, factor, every):
    split = Split(points * factor, parts, rule)
    for _ in range(2):
        level = split.coarsened(factor, every)
        assert level.points == -(-split.points // factor)
        owners = [level.owner(point) for point in range(level.points)]
        fine = [split.owner(factor * point) // every * every for point in range(level.points)]
        assert owners == fine
        blocks = [range(*level.bounds(part)) for part in range(parts)]
        assert [point for block in blocks for point in block] == list(range(level.points))
        assert all(level.owner(point) == part for part, b in enumerate(blocks) for point in b)
        inner = level.section(range(1, level.points))
        assert [inner.owner(point) for point in range(inner.points)] == owners[1:]
        split = level


def test_ranks_are_left_without_points_while_blocks_are_small():
    layout = build_layout((64, 32, 32), 8, decomp=(0, 1), grid=(4, 2))
    filled = {
        least: [rank for rank in range(8) if coarse(layout, least=least).box(rank).volume]
        for least in (0, 1024, 1025, 2049, 4097, 10**9)
    }
    assert filled == {
        0: [*range(8)],
        1024: [*range(8)],
        1025: [0, 1, 4, 5],  # along the dimension that is cut most
        2049: [0, 1],
        4097: [0],
        10**9: [0],
    }
    assert coarse(coarse(layout, least=1025)).box(4).shape == (8, 4, 8)  # they remain without


def test_shapes_of_cells_vertices_and_rings():
    layout = build_layout((9, 8, 8), 2, periodic=(False, True, False))
    level = coarse(layout, centred=("vertex", "vertex", "cell"))
    assert level.shape == (5, 4, 4)
    assert level.coarsened == ((2, "vertex"), (2, "vertex"), (2, "cell"))
    assert coarse(layout, factor=(1, 4, 8)).shape == (9, 2, 1)
    faces = build_layout((8, 8), 3).staggered([0])
    assert coarse(faces, centred=("vertex", "cell")).shape == (5, 4)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "dimension 0 has 9 points; with factor 2 and centred='cell' it must have a multiple"),
        ({"factor": 4}, "8 or 12"),
        ({"centred": "vertex"}, "dimension 1 has 6 points.* such as 5 or 7; a factor of 1"),
        ({"centred": "face"}, "must be 'cell' or 'vertex'"),
        ({"factor": (2, 2, 2)}, "one for each of 2 dimensions"),
        ({"factor": 0}, "factor=0 must be at least 1"),
    ],
)
def test_mistakes_name_the_dimension_and_what_is_allowed(arguments, text):
    with pytest.raises(ArgumentError, match=text):
        coarse(build_layout((9, 6), 2), **arguments)


@pytest.mark.parametrize("name", LAYOUTS)
def test_levels_of_a_million_ranks_take_few_steps(name):
    layout = million(LAYOUTS[name])
    factors = [2 if n % 2 == 0 else 1 for n in layout.shape]
    for least in (0, 64, 10**18):
        level, calls = count_calls(coarse_layout, layout, factors, ["cell"] * layout.ndim, least)
        assert calls < 700
        assert all(split.table == () for split in level.splits)
        middle = [n // 2 for n in level.shape]
        box, calls = count_calls(level.box, level.owner(middle))
        assert middle in box
        assert calls < 300
    assert level.owner([n - 1 for n in level.shape]) == 0


def test_levels_know_the_finer_grid_while_their_points_are_the_same():
    level, plain = coarse(build_layout((8, 12), 2)), build_layout((4, 6), 2)
    relation = ((2, "cell"), (2, "cell"))
    assert level.coarsened == change_layout(level, decomp=1, order=(1, 0)).coarsened == relation
    assert level.same_blocks(plain)
    assert level != plain
    assert "coarsened=" in str(level)
    assert "by 2 (cell), by 2 (cell)" in level.describe(0)
    for other in (
        level.section([range(1, 4), range(6)]),
        level.staggered([0]),
        change_layout(level, shape=(4, 5)),
        change_layout(level, periodic=True),
    ):
        assert other.coarsened == ()
