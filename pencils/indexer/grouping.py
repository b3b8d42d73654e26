"""Requests grouped by the rank that owns what is asked for: arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pencils.comm.rows import Ints, sort

# Of so many targets for each that is written, a table of all costs less than sorting.
_DENSE = 4


class Segments(NamedTuple):
    """Rows in a buffer, one contiguous segment for each rank concerned.

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
        """Lay segments of so many rows one after the other."""
        return cls(peers, starts(counts))

    def of_rank(self, rank: int) -> slice:
        """Rows that belong to a rank, perhaps none.

        Examples
        --------
        >>> rows = Segments(np.array([0, 3]), np.array([0, 2, 3]))
        >>> rows.of_rank(3), rows.of_rank(1)
        (slice(2, 3, None), slice(2, 2, None))
        """
        at = int(np.searchsorted(self.peers, rank))
        there = at < len(self.peers) and self.peers[at] == rank
        return slice(int(self.bounds[at]), int(self.bounds[at + there]))

    def of_others(self, rank: int) -> list[slice]:
        """Rows that belong to other ranks."""
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
        ends = pairwise(self.bounds.tolist())
        return [(peer, slice(*rows)) for peer, rows in zip(self.peers.tolist(), ends, strict=True)]

    def widened(self, widths: Ints) -> Segments:
        """Return the segments of values, if row ``i`` has ``widths[i]`` of them.

        Examples
        --------
        >>> rows = Segments(np.array([0, 3]), np.array([0, 2, 3]))
        >>> rows.widened(np.array([1, 4, 2])).bounds
        array([0, 5, 7])
        """
        return Segments(self.peers, starts(widths)[self.bounds])


class Grouped(NamedTuple):
    """Requests in the order of their owners; those to one owner stay in their order.

    Parameters
    ----------
    order : numpy.ndarray
        Numbers of the requests in the new order.
    segments : Segments
        The requests to every owner, in the new order.
    """

    order: Ints
    segments: Segments


def starts(counts: Sequence[int] | Ints) -> Ints:
    """Where each of consecutive groups begins, and where the last one ends."""
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds


def group(owners: Ints, size: int) -> Grouped:
    """Group requests by their owner, one of `size` ranks.

    Examples
    --------
    >>> order, segments = group(np.array([2, 0, 2]), 4)
    >>> order, segments.peers, segments.bounds
    (array([1, 0, 2]), array([0, 2]), array([0, 1, 3]))
    """
    order, ends = sort(owners, size)
    counts = np.diff(ends, prepend=0)
    peers = np.flatnonzero(counts)
    return Grouped(order, Segments.of(peers, counts[peers]))


def inverse(order: Ints) -> Ints:
    """Invert a permutation: where each number stands in it."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


def last_of_each(targets: Ints, size: int) -> tuple[Ints, Ints]:
    """Find who writes last, if ``targets[i]`` out of `size` is written by ``i``, in this order.

    Returns
    -------
    written, writers : numpy.ndarray
        Rising targets that are written at all, and the last who writes each of them.

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
