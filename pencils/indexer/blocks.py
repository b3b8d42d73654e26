"""The own block of a field as flat memory, addressed by the numbers of its points."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.pencil_array import PencilArray
from pencils.comm.memory import restrided
from pencils.comm.rows import Ints
from pencils.indexer.ragged import row_type


class Block:
    """The own block of a field: for each component, a one-dimensional view of its memory.

    Points are numbered in C order of their coordinates, permuted to the memory order `order`.

    Parameters
    ----------
    u : PencilArray
        The field.
    order : tuple of int
        Memory order in which points are numbered; fast if it is that of the field.

    Attributes
    ----------
    columns : list of numpy.ndarray
        For each component, a view of all memory between its first and last point. Its items are
        `unit` bytes apart.
    layout : tuple
        Shape and strides in memory order: blocks with equal ones have equal `positions`.
    width : int
        Number of components.
    row : numpy.dtype
        Type of a row of all components.
    """

    def __init__(self, u: PencilArray, order: tuple[int, ...]) -> None:
        lead = len(u.components)
        memory = u.local.transpose(memory_axes(order, lead))
        shape, strides = memory.shape[lead:], memory.strides[lead:]
        self.layout = shape, strides
        # The largest number of bytes of which all distances between points are multiples.
        self._unit = gcd(*strides) or 1
        self.columns = [self._column(memory[component]) for component in np.ndindex(u.components)]
        self.width = len(self.columns)
        self.row = row_type(u.dtype, self.width)
        self._dtype = u.dtype

    def positions(self, numbers: Ints) -> Ints:
        """Return the positions in a column of points, given by their numbers."""
        shape, strides = self.layout
        steps, natural = [stride // self._unit for stride in strides], 1
        for n, step in zip(reversed(shape), reversed(steps), strict=True):
            if step != natural and n != 1:
                break
            natural *= n
        else:
            return numbers
        # A column begins with the lowest address: not with point 0 where strides are negative.
        lowest = sum(min(0, (n - 1) * step) for n, step in zip(shape, steps, strict=True))
        found = np.full(len(numbers), -lowest)
        for index, step in zip(np.unravel_index(numbers, shape), steps, strict=True):
            found += index * step
        return found

    def rows(self, rows: Array) -> list[Array]:
        """View rows of values as a column for each component."""
        return list(rows.view(self._dtype).reshape(len(rows), self.width).T)

    def flat(self, array: Array) -> list[Array]:
        """View a contiguous array, components first, as a column for each of them."""
        return list(array.reshape(self.width, array.size // self.width))

    def _column(self, points: Array) -> Array:
        """View all memory between the first and the last point of a component."""
        shape, strides = self.layout
        if 0 in shape:
            return np.empty(0, points.dtype)
        extent = sum((n - 1) * abs(step) for n, step in zip(shape, strides, strict=True))
        first: Any = tuple(slice(None, None, -1 if step < 0 else 1) for step in strides)
        return restrided(points[first], (extent // self._unit + 1,), (self._unit,))
