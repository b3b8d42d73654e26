"""Positions between points: which points are around them, and their weights. No communication."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from pencils.array.allocation import Array, plain_array
from pencils.comm.rows import Ints
from pencils.errors import ArgumentError
from pencils.indexer.arguments import broadcast
from pencils.layout import Layout

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
