"""The own block of a field, by the numbers of its points."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from pencils.array import PencilArray
from pencils.indexer.grouping import Ints
from pencils.indexer.route import row_type
from pencils.storage import Array, memory_axes


class Block:
    """The own block of a field as one column of values for each component.

    Parameters
    ----------
    u : PencilArray
        The field.
    order : tuple of int
        Memory order by which points are numbered; fast if it is that of the field.
    """

    def __init__(self, u: PencilArray, order: tuple[int, ...]) -> None:
        lead = len(u.components)
        self._memory = u.local.transpose(memory_axes(order, lead))
        self._points = self._memory.shape[lead:]
        self.width = prod(u.components)
        self.row = row_type(u.dtype, self.width)

    def read(self, points: Ints) -> Array:
        """Values of some points, of shape ``(width, number)``."""
        if self._memory.flags.c_contiguous:
            flat = self._memory.reshape(self.width, prod(self._points))
            return np.take(flat, points, 1)
        values: Array = self._memory[self._key(points)]
        return values.reshape(self.width, len(points))

    def write(self, points: Ints, values: Array) -> None:
        """Set the values of some points, each of which comes once."""
        target = self._memory[self._key(points)]
        self._memory[self._key(points)] = values.reshape(target.shape)

    def columns(self, rows: Array) -> Array:
        """View rows of values as columns."""
        return rows.view(self._memory.dtype).reshape(len(rows), self.width).T

    def flat(self, array: Array) -> Array:
        """View a contiguous array, components first, as columns."""
        return array.reshape(self.width, array.size // self.width)

    def _key(self, points: Ints) -> Any:
        return (..., *np.unravel_index(points, self._points))
