"""The pencils through which a transform passes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import memory_axes
from pencils.fft.arguments import Wanted
from pencils.fft.lines import Line
from pencils.fft.passes import Job
from pencils.fft.program import Place
from pencils.fft.stages import Stage, plan_stages
from pencils.pencil import Pencil

# Bytes: transforms along several axes are done at once if a core has cache for what they need.
TOGETHER = 2**20


class Leg(NamedTuple):
    """Serial transforms at once along `lines`, from fields of one pencil to those of another."""

    before: Pencil
    after: Pencil
    dtype: np.dtype[Any]
    dtype_after: np.dtype[Any]
    lines: tuple[Line, ...]

    @property
    def start(self) -> Place:
        """Where values are before."""
        return Place(self.before, self.dtype)

    @property
    def end(self) -> Place:
        """Where waves are after."""
        return Place(self.after, self.dtype_after)


def plan_route(wanted: Wanted) -> list[Leg]:
    """Lay out what happens between transposes, in the order of the way forward. *Collective*."""
    here = wanted.pencil
    if wanted.points != here.shape:
        splits = _splits(here, wanted.points, here.process_shape, whole=())
        here = here.with_(shape=wanted.points, splits=splits)
    lines = {line.axis: line for line in wanted.lines}
    stages = plan_stages(
        wanted.waves,
        here.decomp,
        here.grid,
        tuple(lines),
        first=wanted.first,
        free=[axis for axis, line in lines.items() if line.keeps_type],
    )
    legs: list[Leg] = []
    dtype = wanted.dtype
    for number, stage in enumerate(stages):
        here = _laid(here, stage) if number else here
        for together in _groups([lines[axis] for axis in stage.axes], dtype):
            leg = _leg(here, dtype, together)
            legs.append(leg)
            here, dtype = leg.after, leg.dtype_after
    return legs


def _groups(lines: Sequence[Line], dtype: np.dtype[Any]) -> list[list[Line]]:
    """Divide the lines of a stage into those that are transformed at once."""
    groups: list[list[Line]] = [[]]
    for line in lines:
        nbytes = dtype.itemsize * prod(each.points for each in (*groups[-1], line))
        if groups[-1] and nbytes > TOGETHER:
            groups.append([])
        groups[-1].append(line)
    return groups


def job_of(leg: Leg, wanted: Wanted, *, forward: bool, factor: np.longdouble | int) -> Job:
    """Describe the work on the block of this rank."""
    lead = len(wanted.components)
    axes = memory_axes(leg.before.order, lead)
    start, end = (leg.start, leg.end) if forward else (leg.end, leg.start)
    shapes = [(*wanted.components, *place.pencil.local_shape) for place in (start, end)]
    before, after = (tuple(shape[axis] for axis in axes) for shape in shapes)
    lines = tuple((axes.index(lead + line.axis), line) for line in leg.lines)
    orthogonal = wanted.normalize == "ortho"
    scale = wanted.real.type(factor)
    return Job(before, after, start.dtype, end.dtype, lines, forward, orthogonal, scale)


def _leg(before: Pencil, dtype: np.dtype[Any], lines: Sequence[Line]) -> Leg:
    waves = {line.axis: line.waves for line in lines}
    shape = tuple(waves.get(dim, n) for dim, n in enumerate(before.shape))
    after = before
    if shape != before.shape:
        after = before.with_(
            shape=shape, splits=_splits(before, shape, before.process_shape, waves)
        )
    halved = any(line.transform == "r2c" for line in lines)
    return Leg(before, after, dtype, np.result_type(dtype, "F") if halved else dtype, tuple(lines))


def _laid(here: Pencil, stage: Stage) -> Pencil:
    """Lay the points of a pencil out for a stage: the axes to transform are last in memory."""
    rest = [dim for dim in here.order if dim not in stage.axes]
    parts = dict(zip(stage.decomp, stage.grid, strict=True))
    process_shape = [parts.get(dim, 1) for dim in range(here.ndim)]
    return here.with_(
        decomp=stage.decomp,
        grid=stage.grid,
        order=(*rest, *reversed(stage.axes)),
        splits=_splits(here, here.shape, process_shape, stage.axes),
    )


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
