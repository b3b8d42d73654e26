"""Layouts with whole lines: which ranks have them, and which exchange data."""

from itertools import permutations

import numpy as np
import pytest

from pencils.layout.build import build_layout, change_layout
from pencils.layout.whole import is_whole, whole_layout

CASES = [
    (shape, ranks, {"decomp": decomp})
    for shape in [(8,), (3,), (0,), (6, 5), (2, 9), (5, 4, 7), (1, 6, 3), (4, 0, 3), (3, 2, 4, 5)]
    for ranks in (1, 2, 3, 4, 6, 8)
    for size in range(1, len(shape) + 1)
    for decomp in list(permutations(range(len(shape)), size))[:5]
] + [
    ((6, 5, 4), 4, {"decomp": 0, "splits": [(0, 1, 1, 5, 6), "first", "last"]}),
    ((6, 5, 4), 6, {"order": (2, 0, 1), "periodic": (True, False, True), "splits": "floor"}),
    ((6, 5, 4), 6, {"decomp": (2, 0), "grid": (1, 6), "splits": "ceil"}),
]
every_case = pytest.mark.parametrize(("shape", "ranks", "options"), CASES, ids=str)


def owners(layout):
    """Rank of each point, found by marking the blocks of all ranks."""
    found = np.full(layout.shape, -1)
    for rank in range(layout.size):
        block = found[layout.box(rank).slices()]
        assert (block == -1).all()
        block[...] = rank
    assert (found >= 0).all()
    return found


@every_case
def test_lines_are_whole(shape, ranks, options):
    layout = build_layout(shape, ranks, **options)
    for dim, n in enumerate(shape):
        whole = whole_layout(layout, dim)
        line = np.moveaxis(owners(whole), dim, -1)
        assert (line == line[..., :1]).all()
        boxes = [whole.box(rank) for rank in range(ranks)]
        assert all(box.shape[dim] == n or 0 in box.shape for box in boxes)
        kept = (whole.shape, whole.order, whole.periodic, whole.origins, whole.size)
        assert kept == (shape, layout.order, layout.periodic, (), ranks)
        assert is_whole(whole, dim)
        assert whole_layout(whole, dim) is whole
        assert (whole is layout) == is_whole(layout, dim)


@every_case
def test_the_same_lines_are_whole_on_any_number_of_ranks(shape, ranks, options):
    if "splits" in options and not isinstance(options["splits"], str):
        options = options | {"splits": None}
    layout = build_layout(shape, ranks, **options)
    alone = build_layout(shape, 1, **options | {"grid": None})
    for dim in range(len(shape)):
        for other in range(len(shape)):
            whole = is_whole(whole_layout(layout, dim), other)
            single = is_whole(whole_layout(alone, dim), other)
            # Without anything to choose from, the same dimensions are decomposed.
            if len(layout.decomp) >= len(shape) - 1 or other == dim:
                assert whole == single


@every_case
def test_only_ranks_along_the_axis_exchange(shape, ranks, options):
    layout = build_layout(shape, ranks, **options)
    if len(layout.decomp) == len(shape):
        return
    before = owners(layout).reshape(-1)
    for axis, dim in enumerate(layout.decomp):
        after = owners(whole_layout(layout, dim)).reshape(-1)
        for source, target in zip(before, after, strict=True):
            one, other = map(list, (layout.grid.coords(source), layout.grid.coords(target)))
            del one[axis], other[axis]
            assert one == other


@every_case
def test_no_other_layout_leaves_fewer_ranks_without_points(shape, ranks, options):
    layout = build_layout(shape, ranks, **options)
    ndim, depth = len(shape), len(layout.decomp)
    for axis, dim in enumerate(layout.decomp):
        others = [other for other in range(ndim) if other not in layout.decomp]
        if others:
            rules = [
                layout.split_specs[d] if d in layout.decomp and d != dim else layout.split_rules[d]
                for d in range(ndim)
            ]
            ways = [
                change_layout(layout, decomp=decomp, grid=layout.grid.shape, splits=rules)
                for decomp in decompositions(layout, axis, others)
            ]
            found = whole_layout(layout, dim)
            assert filled(found) == max(map(filled, ways))
            assert str(found) in map(str, ways)
        elif depth > 1:
            rest = [(d, p) for d, p in zip(layout.decomp, layout.grid.shape, strict=True)]
            count = rest.pop(axis)[1]
            grids = [
                [p * (count if number == more else 1) for number, (_, p) in enumerate(rest)]
                for more in range(len(rest))
            ]
            ways = [build_layout(shape, ranks, decomp=[d for d, _ in rest], grid=g) for g in grids]
            assert filled(whole_layout(layout, dim)) == max(map(filled, ways))


def decompositions(layout, axis, others):
    """List those without the dimension of an axis of the grid; idle axes may be moved."""
    for other in others:
        decomp = list(layout.decomp)
        decomp[axis] = other
        yield decomp
        for idle in range(len(decomp)):
            if idle != axis and layout.grid.shape[idle] == 1:
                swapped = list(decomp)
                swapped[axis], swapped[idle] = swapped[idle], swapped[axis]
                yield swapped


def filled(layout):
    return sum(0 not in layout.box(rank).shape for rank in range(layout.size))


def test_which_dimension_is_cut_instead():
    for order in permutations(range(3)):  # long runs in memory stay
        for dim in order[:2]:
            layout = build_layout((16, 16, 16), 4, decomp=dim, order=order)
            (cut,) = whole_layout(layout, dim).decomp
            assert {cut, dim} == set(order[:2])
    whole = whole_layout(build_layout((16, 16, 16), 2), 0)  # one with one process may be
    assert (whole.decomp, whole.grid.shape) == ((1, 2), (2, 1))
    # Blocks of equal size matter more: the largest of 5 points in 4 parts has 2.
    assert whole_layout(build_layout((16, 5, 16), 4, decomp=0), 0).decomp == (2,)
    # Along the axis before blocks are divided.
    layout = build_layout((8, 8, 8), 8, decomp=(0, 1, 2))
    whole = whole_layout(layout, 2)
    assert (whole.decomp, whole.grid.shape) == ((0, 1), (2, 4))
    for rank in range(8):
        row = layout.grid.coords(rank)[:2]
        points = np.argwhere(owners(whole) == rank)
        assert {layout.grid.coords(layout.owner(each))[:2] for each in points.tolist()} == {row}
    # One dimension goes to the first rank.
    for ranks in (1, 2, 5):
        whole = whole_layout(build_layout((7,), ranks, periodic=True), 0)
        assert [whole.box(rank).shape[0] for rank in range(ranks)] == [7, *[0] * (ranks - 1)]
        assert whole.periodic == (True,)


@pytest.mark.parametrize("staggered", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
def test_explicit_bounds_for_one_rank_are_whole(ranks, staggered):
    layout = build_layout((6, 4), ranks, decomp=0, splits=[(0, *(6,) * ranks), None])
    if staggered:
        layout = layout.staggered([0])
    assert is_whole(layout, 0)
    assert is_whole(layout.section([range(1, 5, 2), range(4)]), 0)
    assert is_whole(whole_layout(build_layout((6,), ranks, decomp=0), 0).staggered([0]), 0)


@pytest.mark.parametrize("ranks", [1, 4])
def test_sections_are_cut_anew(ranks):
    layout = build_layout((9, 8, 7), ranks, decomp=0, periodic=True)
    section = layout.section([range(9), range(2, 8, 2), range(7)])
    whole = whole_layout(section, 0)
    assert whole.origins == section.origins == ((0, 1), (2, 2), (0, 1))
    assert whole.periodic == (True, False, True)
    assert filled(whole) == ranks
