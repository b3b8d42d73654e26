"""Requests grouped by the rank that owns what is asked for: arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


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


def part_of(cuts: Ints, index: Ints) -> Ints:
    """Return the block that holds each index: block ``p`` is ``cuts[p] .. cuts[p + 1] - 1``.

    Examples
    --------
    >>> part_of(np.array([0, 2, 2, 5]), np.array([4, 0, 2]))
    array([2, 0, 2])
    """
    return np.searchsorted(cuts, index, side="right") - 1


def group(owners: Ints, size: int) -> Grouped:
    """Group requests by their owner, one of `size` ranks.

    Examples
    --------
    >>> order, segments = group(np.array([2, 0, 2]), 4)
    >>> order, segments.peers, segments.bounds
    (array([1, 0, 2]), array([0, 2]), array([0, 1, 3]))
    """
    narrow = owners.astype(np.min_scalar_type(size - 1))  # short integers are sorted by radix
    order = np.argsort(narrow, kind="stable")
    ordered = narrow[order]
    firsts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    bounds = np.array([0, *firsts, len(order)] if len(order) else [0], np.int64)
    return Grouped(order, Segments(ordered[bounds[:-1]].astype(np.int64), bounds))


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
    last = np.full(size, -1)
    np.maximum.at(last, targets, np.arange(len(targets)))
    written = np.flatnonzero(last >= 0)
    return written, last[written]
