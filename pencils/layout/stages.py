"""Which axes are transformed on which layout, so that the fewest transposes are needed.

`plan_stages` is integer arithmetic: a plan for any number of processes can be computed on one.
`staged` makes the layouts of its stages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations, count, permutations
from math import prod
from typing import NamedTuple

from pencils.layout.build import change_layout
from pencils.layout.layout import Layout


class Stage(NamedTuple):
    """What happens between two transposes."""

    decomp: tuple[int, ...]  # decomposed dimensions
    grid: tuple[int, ...]  # processes along each of them
    axes: tuple[int, ...]  # transformed in this order


# Transposes, axes of the grid that move, cuts with empty blocks, order of the axes done, points in
# the largest blocks: what comes first counts most.
_Cost = tuple[int, int, int, tuple[int, ...], int]


def plan_stages(
    shape: Sequence[int],
    decomp: Sequence[int],
    grid: Sequence[int],
    axes: Sequence[int],
    *,
    first: int | None = None,
    free: Sequence[int] = (),
    last: int | None = None,
) -> list[Stage]:
    """Plan transforms along axes, each of which must lie whole on every process at its time.

    Of the ways with the fewest transposes, the one is taken that moves the fewest axes of the
    process grid, then the one that leaves the fewest processes without points, then the one
    nearest to the order of `axes`, then the one with the smallest blocks.

    The first stage decomposes the dimensions `decomp` over `grid`, and may have nothing to do. The
    axis `first` must come before all others but those in `free`, and `last` after all others.

    Examples
    --------
    >>> for stage in plan_stages((8, 8, 8), (0, 1), (2, 3), (2, 1, 0)):
    ...     print(stage)
    Stage(decomp=(0, 1), grid=(2, 3), axes=(2,))
    Stage(decomp=(0, 2), grid=(2, 3), axes=(1,))
    Stage(decomp=(1, 2), grid=(2, 3), axes=(0,))
    """
    rank = {axis: number for number, axis in enumerate(axes)}
    start = Stage(tuple(decomp), tuple(grid), tuple(axes))
    ties = count()  # of equal costs the first one found wins
    nothing: _Cost = (0, 0, 0, (), 0)
    path: tuple[Stage, ...] = ()
    heap = [(nothing, next(ties), start, path)]  # axes of these stages are still to be done
    seen: set[Stage] = set()
    while heap:
        cost, _, state, path = heappop(heap)
        if state in seen:
            continue
        seen.add(state)
        done = _possible(state, first, free, last)
        path = (*path, Stage(state.decomp, state.grid, done))
        remaining = tuple(axis for axis in state.axes if axis not in done)
        if not remaining:
            return list(path)
        order = (*cost[3], *(rank[axis] for axis in done))
        for new_decomp, new_grid in _moves(state._replace(axes=remaining), len(shape)):
            parts = dict(zip(new_decomp, new_grid, strict=True))
            moved = sum(_whole(state, dim) for dim, p in parts.items() if p > 1)
            empty = sum(p > shape[dim] for dim, p in parts.items())
            largest = prod(-(-n // parts.get(dim, 1)) for dim, n in enumerate(shape))
            price = cost[0] + 1, cost[1] + moved, cost[2] + empty, order, cost[4] + largest
            after = Stage(new_decomp, new_grid, remaining)
            if after not in seen and _possible(after, first, free, last):
                heappush(heap, (price, next(ties), after, path))
    # A 1-D grid: all points are collected on one process.
    done = _possible(start._replace(grid=(1,)), first, free, last)
    return [start._replace(axes=()), start._replace(axes=done)]


def _whole(state: Stage, dim: int) -> bool:
    return all(d != dim or p == 1 for d, p in zip(state.decomp, state.grid, strict=True))


def _possible(
    state: Stage, first: int | None, free: Sequence[int], last: int | None
) -> tuple[int, ...]:
    """Axes that can be transformed now, `first` before those that have to wait for it."""
    here = [axis for axis in state.axes if _whole(state, axis)]
    if last in here:
        here.remove(last)
        if len(here) == len(state.axes) - 1:
            here.append(last)
    if first in state.axes:
        if first not in here:
            return tuple(axis for axis in here if axis in free)
        here.sort(key=lambda axis: (axis != first, axis == last, state.axes.index(axis)))
    return tuple(here)


def _moves(state: Stage, ndim: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """List the decompositions that one transpose leads to and that may make progress."""
    whole = [dim for dim in range(ndim) if _whole(state, dim)]
    if not whole and ndim > 1:  # all dimensions are decomposed: fewer have to be
        *kept, one, other = state.grid
        for decomp in permutations(range(ndim), ndim - 1):
            yield decomp, (*kept, one * other)
        return
    # To move what cuts a dimension that does not wait for it lets none come sooner.
    waiting = [
        axis
        for axis, (dim, parts) in enumerate(zip(state.decomp, state.grid, strict=True))
        if parts > 1 and dim in state.axes
    ]
    for size in range(1, min(len(waiting), len(whole)) + 1):
        for moving in combinations(waiting, size):
            for dims in permutations(whole, size):
                yield _moved(state.decomp, dict(zip(moving, dims, strict=True))), state.grid


def _moved(decomp: tuple[int, ...], moves: dict[int, int]) -> tuple[int, ...]:
    """Move axes of the grid to other dimensions, and idle ones out of their way."""
    new = [moves.get(axis, dim) for axis, dim in enumerate(decomp)]
    vacated = [decomp[axis] for axis in moves if decomp[axis] not in moves.values()]
    for axis, dim in enumerate(decomp):
        if axis not in moves and dim in moves.values():
            new[axis] = vacated.pop()
    return tuple(new)


def staged(here: Layout, stage: Stage) -> Layout:
    """Return the layout of a stage: the axes to transform are last in memory."""
    rest = [dim for dim in here.order if dim not in stage.axes]
    parts = dict(zip(stage.decomp, stage.grid, strict=True))
    process_shape = [parts.get(dim, 1) for dim in range(here.ndim)]
    return change_layout(
        here,
        decomp=stage.decomp,
        grid=stage.grid,
        order=(*rest, *reversed(stage.axes)),
        splits=_splits(here, here.shape, process_shape, stage.axes),
    )


def changed_shape(here: Layout, shape: Sequence[int], whole: Collection[int] = ()) -> Layout:
    """Return a layout of another shape; the dimensions `whole` are not cut.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> changed_shape(build_layout((8, 8), 2, splits="last"), (8, 5), {1}).splits[0].rule
    'last'
    """
    splits = _splits(here, shape, here.process_shape, whole)
    return change_layout(here, shape=shape, splits=splits)


def _splits(
    layout: Layout, shape: Sequence[int], process_shape: Sequence[int], whole: Collection[int]
) -> list[str | tuple[int, ...]]:
    """Keep cuts where the points and processes stay the same, and rules elsewhere.

    Axes that should be `whole` though there are processes along them lie on the first of these.
    """
    splits: list[str | tuple[int, ...]] = []
    for dim, (n, parts) in enumerate(zip(shape, process_shape, strict=True)):
        if dim in whole and parts > 1:
            splits.append((0, *(n,) * parts))
        elif (n, parts) == (layout.shape[dim], layout.process_shape[dim]):
            splits.append(layout.split_specs[dim])
        else:
            splits.append(layout.split_rules[dim])
    return splits
