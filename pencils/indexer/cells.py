"""Positions in the cells of a grid: the corners around them, and values from those at the corners.

No communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, plain_array
from pencils.comm.reduce import native
from pencils.comm.rows import Ints
from pencils.errors import ArgumentError
from pencils.indexer.arguments import as_results, broadcast
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


# A table of all points in the bounding box of the requests is faster than sorting, if it has at
# most so many entries for each request.
_SPARSE = 8


def as_positions(
    points: object, ndim: int, ignored: frozenset[int]
) -> tuple[tuple[int, ...], list[Array]]:
    """Return the shape to which positions broadcast, and those along each dimension, flat.

    Along ignored dimensions they are 0.
    """
    along = [plain_array(entry) for entry in points] if isinstance(points, Iterable) else []
    if len(along) != ndim:
        raise ArgumentError(
            f"points must have an entry for each of {ndim} dimensions, like (x, y, z)"
        )
    for dim, position in enumerate(along):
        if dim in ignored:
            along[dim] = np.zeros(position.shape)
        elif position.size and position.dtype.kind not in "iuf":
            raise TypeError(
                f"positions along dimension {dim} must be real numbers, not {position.dtype}"
            )
    shape, positions = broadcast("points", along)
    return shape, [position.astype(float) for position in positions]


def are_inside(
    positions: Sequence[Array], layout: Layout, shape: tuple[int, ...], *, strict: bool
) -> Ints | slice:
    """Select the points where fields can be interpolated; raise if `strict` and some cannot."""
    good = np.ones(prod(shape), bool)
    for dim, (at, extent) in enumerate(zip(positions, layout.shape, strict=True)):
        wraps = layout.periodic[dim] and extent > 0
        here = np.isfinite(at) if wraps else (at >= 0) & (at <= extent - 1)
        if strict and not here.all():
            first = int(np.argmin(here))
            point = tuple(map(int, np.unravel_index(first, shape)))
            raise IndexError(
                f"point {point} is at {at[first]} along dimension {dim}, which is not "
                f"{'finite' if wraps else f'in [0, {extent - 1}]'}; pass fill_value to allow this"
            )
        good &= here
    return slice(None) if good.all() else np.flatnonzero(good)


def neighbours(at: Array, extent: int, *, wraps: bool) -> tuple[Ints, Array]:
    """Find the points on both sides of positions along a dimension, and their weights.

    Examples
    --------
    >>> neighbours(np.array([0.25, -0.5]), 4, wraps=True)
    (array([[0, 3],
           [1, 0]]), array([[0.75, 0.5 ],
           [0.25, 0.5 ]]))
    """
    if extent == 1:
        return np.zeros((1, len(at)), np.int64), np.ones((1, len(at)))
    here = np.mod(at, extent) if wraps else at
    below = np.floor(here)
    pair = np.stack([below, below + 1]).astype(np.int64)
    # The last point has no neighbour above, and a position just below 0 may be rounded to `extent`.
    pair = pair % extent if wraps else np.minimum(pair, extent - 1)
    return pair, np.stack([1 - (here - below), here - below])


def corners(along: Sequence[tuple[Ints, Array]]) -> tuple[list[Ints], Ints, Array]:
    """Find the distinct corners of the cells around positions, from the neighbours along each axis.

    Returns the coordinates of the corners and, for each corner of a cell and each position, the
    number of the corner and its weight.
    """
    count = along[0][0].shape[1]
    numbers, weights = np.zeros((1, count), np.int64), np.ones((1, count))
    lows = [int(pair.min(initial=np.iinfo(np.int64).max)) for pair, _ in along]
    box = []
    for (pair, shares), low in zip(along, lows, strict=True):
        box.append(int(pair.max(initial=low)) - low + 1)
        corners = len(weights) * len(pair)
        numbers = (numbers[:, None] * box[-1] + (pair - low)).reshape(corners, count)
        weights = (weights[:, None] * shares).reshape(corners, count)
    distinct, where = _distinct(numbers, prod(box))
    coords = np.unravel_index(distinct, box)
    return [index + low for index, low in zip(coords, lows, strict=True)], where, weights


def _distinct(numbers: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the distinct numbers, all of them below `size`, and the index of each number in them.

    Examples
    --------
    >>> _distinct(np.array([[4, 2, 4]]), 9)
    (array([2, 4]), array([[1, 0, 1]]))
    """
    if size > _SPARSE * numbers.size:
        distinct, where = np.unique(numbers, return_inverse=True)
        return distinct, where.reshape(numbers.shape)
    seen = np.zeros(size, bool)
    seen[numbers] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[numbers]
