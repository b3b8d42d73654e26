"""The planes of the own block along an axis, together with those of neighbours next to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.functions.axes import Line
from pencils.functions.mappings import Window


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
    """

    def __init__(self, u: Field, axis: int, window: Window, around: Array) -> None:
        line = Line.of(u, axis)
        self.start, self.stop = line.bounds
        self.points = line.split.points
        before, _ = window.sides(line.split, line.part)
        own = np.moveaxis(u.local, axis, 0)
        planes = np.moveaxis(around, axis, 0)
        self._parts = [
            (self.start - before, planes[:before]),
            (self.start, own),
            (self.stop, planes[before:]),
        ]

    def between(self, first: int, last: int) -> Array:
        """Return the planes ``first`` to ``last - 1``: a view if all of them are own planes."""
        if self.start <= first <= last <= self.stop:
            return self._parts[1][1][first - self.start : last - self.start]
        cut: list[Any] = [
            part[max(0, first - start) : max(0, last - start)] for start, part in self._parts
        ]
        return np.concatenate(cut)
