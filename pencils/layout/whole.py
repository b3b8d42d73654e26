"""Layouts with whole lines: every rank has all points of a dimension, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from pencils.layout.build import change_layout
from pencils.layout.layout import Layout, ProcessGrid
from pencils.layout.split import Split

# Cutting the dimension that is contiguous in memory leaves short runs of points to copy: transposes
# of 128^3 points on 4 processes take 1.1 times as long, in shared memory 1.6 times.
_SHORT_RUNS = 1.5

_Cut = tuple[tuple[int, ...], tuple[int, ...]]  # decomposed dimensions, processes along each


def is_whole(layout: Layout, dim: int) -> bool:
    """Whether lines along a dimension are whole: the same on any number of ranks.

    A dimension is whole if it is not decomposed, or has explicit bounds that give all points to one
    process.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> layout = build_layout((8, 6), 1, decomp=0)
    >>> is_whole(layout, 0), is_whole(layout, 1)
    (False, True)
    """
    if dim not in layout.decomp:
        return True
    split = layout.splits[dim].base or layout.splits[dim]
    return split.rule == "bounds" and split.filled <= 1


def whole_layout(layout: Layout, *dims: int) -> Layout:
    """Return a layout whose lines along dimensions are whole; the same one if they are.

    The axis of the process grid that cuts `dim` cuts another dimension instead, one that is not
    cut. Where all are decomposed, one of them is cut by more processes; if there is no
    other, the first process has all points. Of several ways the one is taken that leaves the fewest
    ranks without points, and then the cheapest: with small blocks, and long runs in memory. Where
    planes or more are to be whole, all other dimensions are cut.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> str(whole_layout(build_layout((8, 8, 8), 6), 0))
    '(8, 8, 8), decomp=(2, 1), grid=(3, 2)'
    >>> str(whole_layout(build_layout((8, 8, 8), 2), 0))
    '(8, 8, 8), decomp=(1, 2), grid=(2, 1)'
    """
    if all(is_whole(layout, dim) for dim in dims):
        return layout
    others = [dim for dim in range(layout.ndim) if dim not in dims]
    if not others:
        one = [Split.from_bounds((0, *(each.points,) * each.parts)) for each in layout.splits]
        return replace(layout, splits=tuple(one))
    if len(dims) > 1:
        return change_layout(layout, decomp=others, grid=(0,) * len(others))
    return min((_recut(layout, *cut) for cut in _ways(layout, *dims)), key=_cost)


def _ways(layout: Layout, dim: int) -> Iterator[_Cut]:
    """List the decompositions without `dim`; of equal ones the first is taken."""
    axis, grid = layout.decomp.index(dim), layout.grid.shape
    whole = [other for other in layout.order if other not in layout.decomp]
    for other in whole:
        yield _replaced(layout.decomp, {axis: other}), grid
        for idle, processes in enumerate(grid):  # its dimension is decomposed in name only
            if processes == 1 and idle != axis:
                yield _replaced(layout.decomp, {axis: layout.decomp[idle], idle: other}), grid
    if whole:
        return
    decomp = (*layout.decomp[:axis], *layout.decomp[axis + 1 :])
    fewer = (*grid[:axis], *grid[axis + 1 :])
    # Ranks of neighbouring axes of the grid are neighbours: along the axis before, blocks become
    # parts of what they were, and only the ranks along `dim` exchange data.
    for shared in sorted(range(len(fewer)), key=lambda other: (other != axis - 1, other)):
        merged = fewer[shared] * grid[axis]
        yield decomp, (*fewer[:shared], merged, *fewer[shared + 1 :])


def _replaced(decomp: tuple[int, ...], dims: dict[int, int]) -> tuple[int, ...]:
    return tuple(dims.get(axis, dim) for axis, dim in enumerate(decomp))


def _recut(layout: Layout, decomp: tuple[int, ...], grid: tuple[int, ...]) -> Layout:
    """Return the layout with other decomposed dimensions; others stay cut as they are."""
    parts = dict(zip(decomp, grid, strict=True))
    splits = tuple(
        split
        if split.parts == parts.get(dim, 1) and (dim in parts) == (dim in layout.decomp)
        else Split(split.points, parts.get(dim, 1), split.rule if split.is_formula else "first")
        for dim, split in enumerate(layout.splits)
    )
    return replace(layout, grid=ProcessGrid(grid), decomp=decomp, splits=splits)


def _cost(layout: Layout) -> tuple[int, float]:
    """Return what to keep small: ranks without points, and the time of a transpose."""
    largest = prod(split.longest for split in layout.splits)
    short = layout.splits[layout.order[-1]].parts > 1
    return -prod(split.filled for split in layout.splits), largest * (_SHORT_RUNS if short else 1)
