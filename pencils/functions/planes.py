"""The planes of the own block along an axis, together with those of neighbours next to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
from pencils.functions.axes import Line
from pencils.functions.mappings import Window
from pencils.functions.passes import Formula, Run, prepare_formulas


class Planes:
    """Planes by their global index; arrays have the axis first.

    Parameters
    ----------
    u : PencilArray
        The field.
    axis : int
        The axis.
    window : Window
        Which planes of neighbours there are.
    around : ndarray
        These planes, those before the own block first.

    Attributes
    ----------
    start, stop, points : int
        First own index and the one after the last, and the number of all.
    parts : list of (int, ndarray)
        The first index of planes before the own block, of own ones and of those behind, and them.
    """

    def __init__(self, u: Field, axis: int, window: Window, around: Array) -> None:
        line = Line.of(u, axis)
        self.start, self.stop = line.bounds
        self.points = line.split.points
        before, _ = window.sides(line.split, line.part)
        own = np.moveaxis(u.local, axis, 0)
        planes = np.moveaxis(around, axis, 0)
        self.parts = [
            (self.start - before, planes[:before]),
            (self.start, own),
            (self.stop, planes[before:]),
        ]
        others = [each for each in range(u.ndim) if each != axis]
        ordered = memory_axes(u.pencil.order, len(u.components))
        self._order = [0, *(1 + others.index(each) for each in ordered if each != axis)]

    def between(self, first: int, last: int) -> Array:
        """Return the planes ``first`` to ``last - 1``: a view if all of them are own planes."""
        if self.start <= first <= last <= self.stop:
            return self.parts[1][1][first - self.start : last - self.start]
        cut: list[Any] = [
            part[max(0, first - start) : max(0, last - start)] for start, part in self.parts
        ]
        return np.concatenate(cut)

    def prepare(self, out: Array, formulas: Sequence[Formula]) -> Sequence[Run]:
        """Prepare to compute planes by formulas, one for each plane of `out` from `start` on."""
        if not out.size:
            return []
        given = [(first, self.in_memory_order(part)) for first, part in self.parts]
        return prepare_formulas(given, self.in_memory_order(out), self.start, formulas)

    def in_memory_order(self, planes: Array) -> Array:
        """View planes with their other axes in the order of memory."""
        return planes.transpose(self._order)
