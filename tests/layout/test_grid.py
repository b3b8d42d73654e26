"""Process grids: ranks in C order, and the choice of a grid."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pencils.errors import ArgumentError
from pencils.layout import Split, choose_grid

RULES = ["first", "last", "floor", "ceil"]


def all_grids(ranks, ndim):
    """List every grid of `ranks` processes, by trying all."""
    sides = [n for n in range(1, ranks + 1) if ranks % n == 0]
    return [grid for grid in product(sides, repeat=ndim) if prod(grid) == ranks]


def judge(points, grid, rules):
    """Count ranks with points, and neighbouring points that a cut parts, by looking at all."""
    owners = np.zeros(points, int)
    for axis, (n, p, rule) in enumerate(zip(points, grid, rules, strict=True)):
        split = Split(n, p, rule)
        along = np.concatenate([np.full(np.diff(split.bounds(part)), part) for part in range(p)])
        owners = owners * p + along.reshape(
            [-1 if dim == axis else 1 for dim in range(len(points))]
        )
    parted = sum(np.count_nonzero(np.diff(owners, axis=axis)) for axis in range(len(points)))
    return len(np.unique(owners)), parted


@given(st.lists(st.integers(0, 12), min_size=1, max_size=3), st.integers(1, 24), st.data())
def test_choice_leaves_the_fewest_ranks_empty_then_has_the_least_surface(points, ranks, data):
    """No grid of all has fewer ranks without points, or as few and less surface; by any rule."""
    rules = data.draw(st.tuples(*[st.sampled_from(RULES)] * len(points)))
    grid, every = choose_grid(points, ranks, rules=rules), all_grids(ranks, len(points))
    assert prod(grid) == ranks
    filled, surface = judge(points, grid, rules)
    others = [judge(points, other, rules) for other in every]
    assert filled == max(count for count, _ in others)
    assert surface == min(area for count, area in others if count == filled)
    # Entries that are not 0 are honoured, also when all are given.
    fixed = [p if data.draw(st.booleans()) else 0 for p in data.draw(st.sampled_from(every))]
    grid = choose_grid([n + 1 for n in points], ranks, fixed)
    assert prod(grid) == ranks
    assert all(wanted in (0, given) for wanted, given in zip(fixed, grid, strict=True))


def test_grid_looks_at_the_shape():
    """A long dimension gets the processes; a cube gets them on all sides."""
    for points, ranks, grid in (
        ((8, 8, 8), 8, (2, 2, 2)),
        ((64, 64), 4, (2, 2)),
        ((48, 40), 4, (2, 2)),
        ((1000, 4), 6, (6, 1)),
        ((2, 64), 16, (1, 16)),
        ((3, 3), 7, (7, 1)),  # a prime number: empty ranks cannot be avoided
    ):
        assert choose_grid(points, ranks) == grid
    # Five points in ceil blocks fill three parts of four, so four processes go two by two.
    assert choose_grid((5, 5), 4, rules=("ceil", "ceil")) == (2, 2)


@pytest.mark.parametrize("fixed", [(4, 0), (0, 5), (2, 2), (6, 6), (-2, -3)])
def test_impossible_demands_raise(fixed):
    """The error names the demand, the number of processes and what 0 means."""
    with pytest.raises(ArgumentError) as error:
        choose_grid((8, 8), 6, fixed)
    assert f"grid {fixed} cannot hold 6 processes" in str(error.value)
    assert "product of its entries must be 6 (0 leaves an entry open" in str(error.value)
