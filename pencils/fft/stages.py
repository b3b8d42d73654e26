"""The serial transforms of a plan, each with the pencils before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import memory_axes
from pencils.array.operands import FieldSpec
from pencils.fft.kernels import Job
from pencils.fft.options import AxisTransform, Wanted
from pencils.layout.stages import changed_shape, plan_stages, staged
from pencils.pencil import Pencil

# Bytes: transforms along several axes are done at once if a core has cache for what they need.
TOGETHER = 2**20


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
        pencil = pencil.sibling(changed_shape(pencil.layout, wanted.points))
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
        if number:  # without communication: all ranks make the same pencil
            here = here._replace(pencil=here.pencil.sibling(staged(here.pencil.layout, stage)))
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
        after = before.sibling(changed_shape(before.layout, shape, waves))
    halved = any(line.transform == "r2c" for line in lines)
    dtype = np.result_type(start.dtype, "F") if halved else start.dtype
    return SerialTransform(start, Space(after, dtype, start.components), tuple(lines))
