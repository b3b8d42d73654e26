"""Values at positions in the cells of a grid, from those at the corners. No communication."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.reduce import native
from pencils.comm.rows import Ints
from pencils.indexer.arguments import as_results
from pencils.indexer.positions import are_inside, as_positions, corners, neighbours
from pencils.layout import Layout


class Cells(NamedTuple):
    """Positions, and the corners of the cells around them.

    Attributes
    ----------
    shape : tuple of int
        What the positions broadcast to.
    inside : array of int, or slice
        The positions at which fields can be interpolated.
    fill : scalar or None
        Value at the others.
    coords : list of array
        Coordinates of the distinct corners, along each dimension.
    where, weights : array
        For each corner of a cell and each position inside, the number of the corner and its weight.
    """

    shape: tuple[int, ...]
    inside: Ints | slice
    fill: Any
    coords: list[Ints]
    where: Ints
    weights: Array

    @classmethod
    def read(cls, points: Any, layout: Layout, singletons: frozenset[int], fill: Any) -> Cells:
        """Check positions; along singletons they are ignored."""
        shape, positions = as_positions(points, len(layout.shape), singletons)
        inside = are_inside(positions, layout, shape, strict=fill is None)
        dims = zip(positions, layout.shape, layout.periodic, strict=True)
        along = [neighbours(at[inside], extent, wraps=wraps) for at, extent, wraps in dims]
        return cls(shape, inside, fill, *corners(along))

    def values(self, dtype: np.dtype[Any], components: tuple[int, ...], out: object) -> Values:
        """Allocate what a call needs, for fields of this type; `out` is an argument."""
        if dtype.kind not in "biufc":
            raise TypeError(f"u of type {dtype} cannot be interpolated; convert it to floats")
        result = native(dtype) if dtype.kind in "fc" else np.dtype(float)
        if self.fill is not None and not np.can_cast(self.fill.dtype, result, "same_kind"):
            raise TypeError(f"fill_value={self.fill} does not fit values of type {result}")
        found = as_results(out, (*components, *self.shape), result)
        sums = np.zeros((prod(components), self.where.shape[1]), result)
        shares = np.empty_like(sums, np.result_type(self.weights, dtype))
        return Values(self, found, sums, np.empty_like(sums, dtype), shares)


class Values(NamedTuple):
    """Memory for the values at positions: the results, and what it takes to add them up."""

    cells: Cells
    found: Array
    sums: Array
    values: Array
    shares: Array

    def add_up(self, corners: Array) -> Array:
        """Return the results, from the values at the corners; each once."""
        cells, lead = self.cells, len(self.found.shape) - len(self.cells.shape)
        components = self.found.shape[:lead]
        rows = columns(corners, components)
        for weights, where in zip(cells.weights, cells.where, strict=True):
            np.take(rows, where, 1, out=self.values, mode="clip")
            np.add(self.sums, np.multiply(weights, self.values, out=self.shares), out=self.sums)
        results = columns(self.found, components)
        if cells.fill is not None:
            results[...] = cells.fill
        results[:, cells.inside] = self.sums
        return self.found


def as_fill_value(value: object) -> Any:
    """Return one number as a scalar of NumPy, or None."""
    if value is None:
        return None
    number = np.asarray(value)
    if number.ndim or number.dtype.kind not in "biufc":
        raise TypeError(f"fill_value={value!r} must be a number, or None")
    return number[()]


def fill_facts(fill: Any) -> object:
    """Return a fill value as all ranks can compare it."""
    return None if fill is None else complex(fill)


def columns(array: Array, components: tuple[int, ...]) -> Array:
    """View a contiguous array, components first, as one row for each of them."""
    width = prod(components)
    return array.reshape(width, prod(array.shape[len(components) :]))
