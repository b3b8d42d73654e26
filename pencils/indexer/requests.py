"""Requests for rows: the rank that owns each row, and requests grouped by it. Arithmetic only.

A *row* is an item of a collection or a point of a field. Each rank *requests* rows; each row has
an *owner*, the rank that holds it, and a number among the rows of its owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from pencils.comm.rows import Ints, Points, sort
from pencils.comm.rows import locate as locate_points
from pencils.layout import Layout
from pencils.layout.split import Split

# With at most so many possible targets for each written one, a table of all of them costs less
# than sorting.
_DENSE = 4


class Segments(NamedTuple):
    """Rows in a buffer, one contiguous segment for each rank that sends or receives some.

    Parameters
    ----------
    peers : numpy.ndarray
        Rising ranks.
    bounds : numpy.ndarray
        Rows ``bounds[i] .. bounds[i + 1] - 1`` belong to ``peers[i]``.
    """

    peers: Ints
    bounds: Ints

    @classmethod
    def of(cls, peers: Ints, counts: Ints) -> Segments:
        """Make segments with these numbers of rows, one after the other."""
        return cls(peers, bounds_of(counts))

    def of_rank(self, rank: int) -> slice:
        """Rows that belong to a rank, perhaps none.

        Examples
        --------
        >>> rows = Segments(np.array([0, 3]), np.array([0, 2, 3]))
        >>> rows.of_rank(3), rows.of_rank(1)
        (slice(2, 3, None), slice(2, 2, None))
        """
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
        """Return the segments of values, if row ``i`` has ``widths[i]`` of them.

        Examples
        --------
        >>> rows = Segments(np.array([0, 3]), np.array([0, 2, 3]))
        >>> rows.widened(np.array([1, 4, 2])).bounds
        array([0, 5, 7])
        """
        return Segments(self.peers, bounds_of(widths)[self.bounds])


def bounds_of(counts: Sequence[int] | Ints) -> Ints:
    """Return where each of consecutive groups begins, and where the last one ends."""
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds


def group(owners: Ints, size: int) -> tuple[Ints, Segments]:
    """Group requests by their owner, one of `size` ranks.

    Returns
    -------
    order : numpy.ndarray
        Numbers of the requests by rising owner; those to one owner stay in their order.
    segments : Segments
        The requests to every owner, in that order.

    Examples
    --------
    >>> order, segments = group(np.array([2, 0, 2]), 4)
    >>> order, segments.peers, segments.bounds
    (array([1, 0, 2]), array([0, 2]), array([0, 1, 3]))
    """
    order, ends = sort(owners, size)
    counts = np.diff(ends, prepend=0)
    peers = np.flatnonzero(counts)
    return order, Segments.of(peers, counts[peers])


def inverse(order: Ints) -> Ints:
    """Invert a permutation."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


def last_of_each(targets: Ints, size: int) -> tuple[Ints, Ints]:
    """Find the last write to each target, if write ``i`` goes to ``targets[i]`` out of `size`.

    Returns
    -------
    written, writers : numpy.ndarray
        Rising targets that are written at all, and the number of the last write to each.

    Examples
    --------
    >>> last_of_each(np.array([3, 0, 3]), 5)
    (array([0, 3]), array([1, 2]))
    """
    if size <= _DENSE * len(targets):
        last = np.full(size, -1)
        np.maximum.at(last, targets, np.arange(len(targets)))
        written = np.flatnonzero(last >= 0)
        return written, last[written]
    order = np.argsort(targets, kind="stable")
    rising = targets[order]
    ends = np.flatnonzero(np.diff(rising, append=size))
    return rising[ends], order[ends]


def locate(layout: Layout, coords: Sequence[Ints], parts: Sequence[int]) -> tuple[Ints, Ints]:
    """Find the owners of points by their global coordinates.

    Costs memory for the points, and for one number for each process along a dimension.

    Parameters
    ----------
    layout : Layout
        Layout of the field.
    coords : sequence of numpy.ndarray
        Coordinates along every dimension, within the global shape.
    parts : sequence of int
        Which of the processes along each dimension to choose where all have the same points.

    Returns
    -------
    owners, offsets : numpy.ndarray
        Rank that owns each point, and its number in the own block there, in memory order.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> layout = build_layout((4, 6), 4, decomp=(0, 1), grid=(2, 2))
    >>> locate(layout, [np.array([0, 3]), np.array([1, 5])], (0, 0))
    (array([0, 3]), array([1, 5]))
    """
    return locate_points(points_on(layout, coords, parts))


def points_on(layout: Layout, coords: Sequence[Ints], parts: Sequence[int]) -> Points:
    """Describe points, dimensions in memory order; see `locate`.

    A dimension along which all processes have the same points is described as if it were not
    decomposed.
    """
    steps = dict(zip(layout.decomp, layout.grid.strides, strict=True))
    whole = [split.replicated or split.parts == 1 for split in layout.splits]
    first = sum(parts[dim] * step for dim, step in steps.items() if whole[dim])
    return Points(
        tuple(coords[dim] for dim in layout.order),
        tuple(_cuts(layout.splits[dim]) for dim in layout.order),
        tuple(0 if whole[dim] else steps[dim] for dim in layout.order),
        first,
    )


def locate_replicas(layout: Layout, coords: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Find all replicas of points; see `locate`.

    The first replicas of all points precede the second ones.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> layout = build_layout((4, 6), 4, decomp=(0, 1), grid=(2, 2)).with_singletons([1])
    >>> locate_replicas(layout, [np.array([0, 3]), np.array([0, 0])])
    (array([0, 2, 1, 3]), array([0, 1, 0, 1]))
    """
    owners, offsets = locate(layout, coords, (0,) * layout.ndim)
    along = [
        range(extent if axis in layout.replicated_axes else 1)
        for axis, extent in enumerate(layout.grid.shape)
    ]
    steps = np.array([layout.grid.rank(step) for step in product(*along)])
    return (steps[:, None] + owners).reshape(-1), np.tile(offsets, len(steps))


def _cuts(split: Split) -> Ints:
    """Return where the blocks along a dimension begin, and where the last one ends."""
    if split.replicated:
        return np.array([0, split.points])
    return np.array([*(split.bounds(part)[0] for part in range(split.parts)), split.points])
