"""Which axes are transformed on which pencil, so that the fewest transposes are needed.

`plan_stages` is integer arithmetic: a plan for any number of processes can be computed on one.
`plan_route` makes the pencils of its stages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations, count, permutations
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import memory_axes
from pencils.array.operands import FieldSpec
from pencils.fft.kernels import Job
from pencils.fft.options import AxisTransform, Wanted
from pencils.layout.build import change_layout
from pencils.pencil import Pencil

# Bytes: transforms along several axes are done at once if a core has cache for what they need.
TOGETHER = 2**20


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
) -> list[Stage]:
    """Plan transforms along axes, each of which must lie whole on every process at its time.

    Of the ways with the fewest transposes, the one is taken that moves the fewest axes of the
    process grid, then the one that leaves the fewest processes without points, then the one
    nearest to the order of `axes`, then the one with the smallest blocks.

    The first stage decomposes the dimensions `decomp` over `grid`, and may have nothing to do. The
    axis `first` must come before all others but those in `free`.

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
        done = _possible(state, first, free)
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
            if after not in seen and _possible(after, first, free):
                heappush(heap, (price, next(ties), after, path))
    # A 1-D grid: all points are collected on one process.
    done = _possible(start._replace(grid=(1,)), first, free)
    return [start._replace(axes=()), start._replace(axes=done)]


def _whole(state: Stage, dim: int) -> bool:
    return all(d != dim or p == 1 for d, p in zip(state.decomp, state.grid, strict=True))


def _possible(state: Stage, first: int | None, free: Sequence[int]) -> tuple[int, ...]:
    """Axes that can be transformed now, `first` before those that have to wait for it."""
    here = [axis for axis in state.axes if _whole(state, axis)]
    if first in state.axes:
        if first not in here:
            return tuple(axis for axis in here if axis in free)
        here.sort(key=lambda axis: (axis != first, state.axes.index(axis)))
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


class Space(NamedTuple):
    """The pencil, element type and components of fields between two steps."""

    pencil: Pencil
    dtype: np.dtype[Any]
    components: tuple[int, ...]

    @property
    def spec(self) -> FieldSpec:
        """The spec of its fields."""
        return FieldSpec(self.dtype, self.components, frozenset())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the own block."""
        return (*self.components, *self.pencil.local_shape)


class SerialTransform(NamedTuple):
    """One serial transform, along `lines` at once, from one space to another."""

    start: Space
    end: Space
    lines: tuple[AxisTransform, ...]


def plan_route(wanted: Wanted) -> list[SerialTransform]:
    """List the serial transforms between transposes, in forward order; local."""
    pencil = wanted.pencil
    if wanted.points != pencil.shape:
        splits = _splits(pencil, wanted.points, pencil.process_shape, whole=())
        pencil = _changed(pencil, shape=wanted.points, splits=splits)
    lines = {line.axis: line for line in wanted.lines}
    stages = plan_stages(
        wanted.waves,
        pencil.decomp,
        pencil.grid,
        tuple(lines),
        first=wanted.first,
        free=[axis for axis, line in lines.items() if line.keeps_type],
    )
    serials: list[SerialTransform] = []
    here = Space(pencil, wanted.dtype, wanted.components)
    for number, stage in enumerate(stages):
        here = here._replace(pencil=_laid(here.pencil, stage)) if number else here
        for together in _groups([lines[axis] for axis in stage.axes], here.dtype):
            serials.append(_serial_transform(here, together))
            here = serials[-1].end
    return serials


def _groups(lines: Sequence[AxisTransform], dtype: np.dtype[Any]) -> list[list[AxisTransform]]:
    """Divide the lines of a stage into those that are transformed at once."""
    groups: list[list[AxisTransform]] = [[]]
    for line in lines:
        nbytes = dtype.itemsize * prod(each.points for each in (*groups[-1], line))
        if groups[-1] and nbytes > TOGETHER:
            groups.append([])
        groups[-1].append(line)
    return groups


def job_of(
    serial: SerialTransform, wanted: Wanted, *, forward: bool, factor: np.longdouble | int
) -> Job:
    """Describe the work on the block of this rank."""
    start, end = (serial.start, serial.end) if forward else (serial.end, serial.start)
    lead = len(wanted.components)
    axes = memory_axes(start.pencil.order, lead)
    before, after = (tuple(space.shape[axis] for axis in axes) for space in (start, end))
    lines = tuple((axes.index(lead + line.axis), line) for line in serial.lines)
    orthogonal = wanted.normalize == "ortho"
    scale = wanted.real.type(factor)
    return Job(before, after, start.dtype, end.dtype, lines, forward, orthogonal, scale)


def _serial_transform(start: Space, lines: Sequence[AxisTransform]) -> SerialTransform:
    before = after = start.pencil
    waves = {line.axis: line.waves for line in lines}
    shape = tuple(waves.get(dim, n) for dim, n in enumerate(before.shape))
    if shape != before.shape:
        splits = _splits(before, shape, before.process_shape, waves)
        after = _changed(before, shape=shape, splits=splits)
    halved = any(line.transform == "r2c" for line in lines)
    dtype = np.result_type(start.dtype, "F") if halved else start.dtype
    return SerialTransform(start, Space(after, dtype, start.components), tuple(lines))


def _laid(here: Pencil, stage: Stage) -> Pencil:
    """Return the pencil of a stage: the axes to transform are last in memory."""
    rest = [dim for dim in here.order if dim not in stage.axes]
    parts = dict(zip(stage.decomp, stage.grid, strict=True))
    process_shape = [parts.get(dim, 1) for dim in range(here.ndim)]
    return _changed(
        here,
        decomp=stage.decomp,
        grid=stage.grid,
        order=(*rest, *reversed(stage.axes)),
        splits=_splits(here, here.shape, process_shape, stage.axes),
    )


def _changed(pencil: Pencil, **changes: Any) -> Pencil:
    """As ``pencil.with_``, without communication: all ranks change the same pencil alike."""
    return pencil.sibling(change_layout(pencil.layout, **changes))


def _splits(
    here: Pencil,
    shape: Sequence[int],
    process_shape: Sequence[int],
    whole: Collection[int],
) -> list[str | tuple[int, ...]]:
    """Keep cuts where the points and processes stay the same, and rules elsewhere.

    Axes that should be `whole` though there are processes along them lie on the first of these.
    """
    layout = here.layout
    splits: list[str | tuple[int, ...]] = []
    for dim, (n, parts) in enumerate(zip(shape, process_shape, strict=True)):
        if dim in whole and parts > 1:
            splits.append((0, *(n,) * parts))
        elif (n, parts) == (layout.shape[dim], layout.process_shape[dim]):
            splits.append(layout.split_specs[dim])
        else:
            splits.append(layout.split_rules[dim])
    return splits
