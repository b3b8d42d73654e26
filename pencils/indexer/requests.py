"""Requests for rows: the rank that owns each row, and its place there. Arithmetic only.

A *row* is an item of a collection or a point of a field. Each rank *requests* rows; each row has
an *owner*, the rank that holds it, and a number among the rows of its owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, product
from math import gcd
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.pencil_array import PencilArray
from pencils.comm.memory import restrided
from pencils.comm.pack import MOVES
from pencils.comm.rows import Ints, Points, locate, sort
from pencils.errors import ArgumentError
from pencils.layout import Layout
from pencils.layout.split import Split

# Rows for each request up to which a table of all rows is faster than sorting.
_DENSE = 4


class Segments(NamedTuple):
    """Rows in a buffer: ``bounds[i] .. bounds[i + 1] - 1`` belong to rank ``peers[i]``."""

    peers: Ints  # rising
    bounds: Ints

    def of_rank(self, rank: int) -> slice:
        """Rows that belong to a rank, perhaps none."""
        at = int(np.searchsorted(self.peers, rank))
        found = at < len(self.peers) and self.peers[at] == rank
        return slice(int(self.bounds[at]), int(self.bounds[at + found]))

    def of_others(self, rank: int) -> list[slice]:
        """Rows that belong to the other ranks."""
        own = self.of_rank(rank)
        around = slice(0, own.start), slice(own.stop, self.total)
        return [part for part in around if part.start < part.stop]

    @property
    def counts(self) -> Ints:
        """Number of rows of every segment."""
        return np.diff(self.bounds)

    @property
    def total(self) -> int:
        """Number of rows of all segments."""
        return int(self.bounds[-1])

    @property
    def ranges(self) -> list[tuple[int, slice]]:
        """Rank and rows of every segment."""
        ranges = pairwise(self.bounds.tolist())
        return [
            (peer, slice(*rows)) for peer, rows in zip(self.peers.tolist(), ranges, strict=True)
        ]

    def widened(self, widths: Ints) -> Segments:
        """Return the segments of values, if row ``i`` has ``widths[i]`` of them."""
        return Segments(self.peers, bounds_of(widths)[self.bounds])


def bounds_of(counts: Sequence[int] | Ints) -> Ints:
    """Return where each of consecutive groups begins, and where the last one ends."""
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds


def group(owners: Ints, size: int) -> tuple[Ints, Segments]:
    """Sort requests by their owner, one of `size` ranks; return their numbers in that order."""
    order, ends = sort(owners, size)
    counts = np.diff(ends, prepend=0)
    peers = np.flatnonzero(counts)
    return order, Segments(peers, bounds_of(counts[peers]))


def inverse(order: Ints) -> Ints:
    """Invert a permutation."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


def last_of_each(targets: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the rising targets that are written, of `size`, and the last write to each."""
    if size <= _DENSE * len(targets):  # faster than to sort
        last = np.full(size, -1)
        np.maximum.at(last, targets, np.arange(len(targets)))
        written = np.flatnonzero(last >= 0)
        return written, last[written]
    written, back = np.unique(targets[::-1], return_index=True)
    return written, len(targets) - 1 - back


# ---- rows of values ----


def row_type(dtype: np.dtype[Any], count: int) -> np.dtype[Any]:
    """Return a type of the size of `count` values; raise if NumPy has none of that size."""
    size = dtype.itemsize * count
    if size > np.iinfo(np.int32).max:
        raise ArgumentError(
            f"{count} values of {dtype} exceed 2 GiB per index or point; move fewer at once"
        )
    return np.dtype(MOVES.get(size, f"V{size}"))


def as_rows(array: Array, row: np.dtype[Any]) -> Array:
    """View a contiguous array as rows; one without values may be of any type."""
    return array.reshape(-1).view(row) if array.size else np.empty(0, row)


# ---- points of fields ----


def points_on(layout: Layout, coords: Sequence[Ints], parts: Sequence[int]) -> Points:
    """Describe points by their global coordinates, dimensions in memory order.

    Where all processes along a dimension have the same points, that of number ``parts[dim]`` is
    taken for the owner, as if the dimension were not decomposed.
    """
    steps = dict(zip(layout.decomp, layout.grid.strides, strict=True))
    whole = [split.replicated or split.parts == 1 for split in layout.splits]
    first = sum(parts[dim] * step for dim, step in steps.items() if whole[dim])
    return Points(
        tuple(coords[dim] for dim in layout.order),
        tuple(np.array(_cuts(layout.splits[dim])) for dim in layout.order),
        tuple(0 if whole[dim] else steps[dim] for dim in layout.order),
        first,
    )


def locate_replicas(layout: Layout, coords: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Find the owners of all replicas of points, first those of the first ones, and the numbers."""
    owners, offsets = locate(points_on(layout, coords, (0,) * layout.ndim))
    along = [
        range(extent if axis in layout.replicated_axes else 1)
        for axis, extent in enumerate(layout.grid.shape)
    ]
    steps = np.array([layout.grid.rank(step) for step in product(*along)])
    return (steps[:, None] + owners).reshape(-1), np.tile(offsets, len(steps))


@lru_cache(maxsize=64)
def _cuts(split: Split) -> tuple[int, ...]:
    """Return where the blocks along a dimension begin, and where the last one ends."""
    if split.replicated:
        return 0, split.points
    return (*(split.bounds(part)[0] for part in range(split.parts)), split.points)


_axes = lru_cache(maxsize=64)(memory_axes)


# Positions of points in a column: ``first + number * last``, and a gap for each full row, from the
# end of so many points to the next one. The first one is not 0 where strides are negative: a column
# begins with the lowest address.
_Steps = tuple[int, int, list[tuple[int, int]]]


@lru_cache(maxsize=256)
def _steps_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, _Steps | None]:
    """Return the unit of a block, in bytes, and its steps in units; None if numbers are positions.

    The unit is the largest number of which all distances between points are multiples.
    """
    unit = gcd(*strides) or 1
    axes = [(n, stride // unit) for n, stride in zip(shape, strides, strict=True) if n > 1]
    # From the end of each row, plane and so on to the next one.
    gaps = [step - n * inner for (_, step), (n, inner) in pairwise(axes)]
    last = axes[-1][1] if axes else 1
    if last == 1 and not any(gaps):
        return unit, None
    inner = accumulate((n for n, _ in reversed(axes[1:])), mul)
    found = [(count, gap) for count, gap in zip(inner, reversed(gaps), strict=True) if gap]
    return unit, (-sum((n - 1) * step for n, step in axes if step < 0), last, found)


class PointColumns:
    """The own block of a field: for each component, a one-dimensional view of its memory.

    Points are numbered in C order of their coordinates, permuted to the memory order `order`: this
    is fast if it is that of the field. The items of a view are a *column*.
    Blocks of equal `layout`, shape and strides in memory order, have equal `positions`.
    """

    def __init__(self, u: PencilArray, order: tuple[int, ...]) -> None:
        lead = len(u.components)
        memory = u.local.transpose(_axes(order, lead))
        shape, strides = memory.shape[lead:], memory.strides[lead:]
        self.layout = shape, strides
        unit, self._steps = _steps_of(shape, strides)
        indices = np.ndindex(u.components) if lead else [()]
        self.columns = []
        for component in indices:
            points = memory[component]
            if 0 in shape or points.flags.c_contiguous:
                self.columns.append(points.reshape(-1))
                continue
            # All memory between the first and the last point.
            extent = sum((n - 1) * abs(step) for n, step in zip(shape, strides, strict=True))
            lowest: Any = tuple([slice(None, None, -1 if step < 0 else 1) for step in strides])
            self.columns.append(restrided(points[lowest], (extent // unit + 1,), (unit,)))
        self._dtype = u.dtype

    @property
    def row(self) -> np.dtype[Any]:
        """Type of the values of a point."""
        return row_type(self._dtype, len(self.columns))

    def positions(self, numbers: Ints, room: Ints | None = None) -> Ints:
        """Return the positions in a column of points, given by their numbers.

        `room` are two rows to compute in, which may be longer.
        """
        if self._steps is None:
            return numbers
        count, (first, last, gaps) = len(numbers), self._steps
        found, rest = np.empty((2, count), np.int64) if room is None else room[:2, :count]
        np.multiply(numbers, last, out=found)
        found += first
        for inner, gap in gaps:
            np.floor_divide(numbers, inner, out=rest)
            rest *= gap
            found += rest
        whole: Ints = found
        return whole

    def rows(self, rows: Array) -> list[Array]:
        """View rows of values as a column for each component."""
        return list(rows.view(self._dtype).reshape(len(rows), len(self.columns)).T)

    def flat(self, array: Array) -> list[Array]:
        """View a contiguous array, components first, as a column for each of them."""
        return list(array.reshape(len(self.columns), array.size // len(self.columns)))
