"""The own block of a field, by the numbers of its points."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.pencil_array import PencilArray
from pencils.comm.memory import restrided
from pencils.comm.rows import Ints
from pencils.indexer.route import row_type


class Geometry(NamedTuple):
    """Where points lie in memory: shape and strides in memory order."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def unit(self) -> int:
        """Largest number of bytes of which all distances between points are multiples."""
        return gcd(*self.strides) or 1

    @property
    def lowest(self) -> int:
        """Where the first byte is relative to point 0: only below it if strides are negative."""
        return sum(min(0, (n - 1) * step) for n, step in zip(*self, strict=True))

    @property
    def span(self) -> int:
        """Number of units that all points cover."""
        if 0 in self.shape:
            return 0
        extent = sum((n - 1) * abs(step) for n, step in zip(*self, strict=True))
        return extent // self.unit + 1

    def positions(self, numbers: Ints) -> Ints:
        """Units from the first byte to points, given by their numbers."""
        unit, natural = self.unit, 1
        steps = [step // unit for step in self.strides]
        for n, step in zip(reversed(self.shape), reversed(steps), strict=True):
            if step != natural and n != 1:
                break
            natural *= n
        else:
            return numbers
        along = np.unravel_index(numbers, self.shape)
        found = np.full(len(numbers), -self.lowest // unit)
        for index, step in zip(along, steps, strict=True):
            found += index * step
        return found


class Block:
    """The own block of a field: for each component, a column of memory that holds all points.

    Parameters
    ----------
    u : PencilArray
        The field.
    order : tuple of int
        Memory order by which points are numbered; fast if it is that of the field.

    Attributes
    ----------
    columns : list of numpy.ndarray
        For each component, its memory.
    geometry : Geometry
        Where the points are in each of them.
    width : int
        Number of components.
    row : numpy.dtype
        Type of a row of all components.
    """

    def __init__(self, u: PencilArray, order: tuple[int, ...]) -> None:
        lead = len(u.components)
        memory = u.local.transpose(memory_axes(order, lead))
        self.geometry = Geometry(memory.shape[lead:], memory.strides[lead:])
        self.columns = [
            _column(memory[component], self.geometry) for component in np.ndindex(u.components)
        ]
        self.width = len(self.columns)
        self.row = row_type(u.dtype, self.width)
        self._dtype = u.dtype

    def rows(self, rows: Array) -> list[Array]:
        """View rows of values as a column for each component."""
        return list(rows.view(self._dtype).reshape(len(rows), self.width).T)

    def flat(self, array: Array) -> list[Array]:
        """View a contiguous array, components first, as a column for each of them."""
        return list(array.reshape(self.width, array.size // self.width))


def _column(points: Array, geometry: Geometry) -> Array:
    """See all memory between the first and the last point, in units."""
    if not geometry.span:
        return np.empty(0, points.dtype)
    first: Any = tuple(slice(None, None, -1 if step < 0 else 1) for step in geometry.strides)
    return restrided(points[first], (geometry.span,), (geometry.unit,))
