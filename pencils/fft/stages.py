"""Which axes are transformed on which pencil, so that the fewest transposes are needed.

Integers in, integers out: a plan for any number of processes can be looked at without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations, count, permutations
from math import prod
from typing import NamedTuple


class Stage(NamedTuple):
    """What happens between two transposes.

    `decomp` are the decomposed dimensions by axis of the process grid `grid`; `axes` are
    transformed there, in this order.
    """

    decomp: tuple[int, ...]
    grid: tuple[int, ...]
    axes: tuple[int, ...]


# Transposes, axes of the grid that move, cuts with empty blocks, order of the axes done, points in
# the largest blocks: what comes first counts most.
_Cost = tuple[int, int, int, tuple[int, ...], int]


class _State(NamedTuple):
    decomp: tuple[int, ...]
    grid: tuple[int, ...]
    remaining: tuple[int, ...]  # in the order in which they are wanted


def plan_stages(
    shape: Sequence[int],
    decomp: Sequence[int],
    grid: Sequence[int],
    axes: Sequence[int],
    *,
    first: int | None = None,
    free: Sequence[int] = (),
) -> list[Stage]:
    """Plan transforms along axes, each of which must lie whole on every process at its time.

    Of the ways with the fewest transposes, the one is taken that moves the fewest axes of the
    process grid, then the one that leaves the fewest processes without points, then the one
    nearest to the order of `axes`, then the one with the smallest blocks.

    Parameters
    ----------
    shape : sequence of int
        Points along each dimension.
    decomp, grid : sequence of int
        Decomposed dimensions of the pencil where it starts, and processes along each.
    axes : sequence of int
        Dimensions to transform, those that should come first first.
    first : int, optional
        One of `axes` that must come before all others but `free` ones.
    free : sequence of int, optional
        Those of `axes` that may come before `first`.

    Returns
    -------
    list of Stage
        The first is on the pencil where it starts, and may have nothing to do.

    Examples
    --------
    >>> for stage in plan_stages((8, 8, 8), (0, 1), (2, 3), (2, 1, 0)):
    ...     print(stage)
    Stage(decomp=(0, 1), grid=(2, 3), axes=(2,))
    Stage(decomp=(0, 2), grid=(2, 3), axes=(1,))
    Stage(decomp=(1, 2), grid=(2, 3), axes=(0,))
    """
    rank = {axis: place for place, axis in enumerate(axes)}
    start = _State(tuple(decomp), tuple(grid), tuple(axes))
    ties = count()  # of equal costs the first one found wins
    nothing: _Cost = (0, 0, 0, (), 0)
    path: tuple[Stage, ...] = ()
    heap = [(nothing, next(ties), start, path)]
    seen: set[_State] = set()
    while heap:
        cost, _, state, path = heappop(heap)
        if state in seen:
            continue
        seen.add(state)
        done = _possible(state, first, free)
        path = (*path, Stage(state.decomp, state.grid, done))
        remaining = tuple(axis for axis in state.remaining if axis not in done)
        if not remaining:
            return list(path)
        order = (*cost[3], *(rank[axis] for axis in done))
        for new_decomp, new_grid in _moves(state._replace(remaining=remaining), len(shape)):
            parts = dict(zip(new_decomp, new_grid, strict=True))
            moved = sum(_whole(state, dim) for dim, p in parts.items() if p > 1)
            empty = sum(p > shape[dim] for dim, p in parts.items())
            largest = prod(-(-n // parts.get(dim, 1)) for dim, n in enumerate(shape))
            price = cost[0] + 1, cost[1] + moved, cost[2] + empty, order, cost[4] + largest
            after = _State(new_decomp, new_grid, remaining)
            if after not in seen and _possible(after, first, free):
                heappush(heap, (price, next(ties), after, path))
    return [Stage(start.decomp, start.grid, ()), _collected(start, first, free)]


def _collected(start: _State, first: int | None, free: Sequence[int]) -> Stage:
    """Put a line that nothing else can be cut along on one process."""
    whole = _State(start.decomp, (1,), start.remaining)
    return Stage(start.decomp, start.grid, _possible(whole, first, free))


def _whole(state: _State, dim: int) -> bool:
    return all(d != dim or p == 1 for d, p in zip(state.decomp, state.grid, strict=True))


def _possible(state: _State, first: int | None, free: Sequence[int]) -> tuple[int, ...]:
    """Axes that can be transformed now, `first` before those that have to wait for it."""
    here = [axis for axis in state.remaining if _whole(state, axis)]
    if first in state.remaining:
        if first not in here:
            return tuple(axis for axis in here if axis in free)
        here.sort(key=lambda axis: (axis != first, state.remaining.index(axis)))
    return tuple(here)


def _moves(state: _State, ndim: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
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
        if parts > 1 and dim in state.remaining
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
