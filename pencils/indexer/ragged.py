"""Rows of values, of equal or of different lengths, and Python objects as such rows."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.pack_numpy import MOVES
from pencils.comm.rows import Ints
from pencils.errors import ArgumentError
from pencils.indexer.requests import bounds_of, last_of_each


def row_type(dtype: np.dtype[Any], count: int) -> np.dtype[Any]:
    """Return a type of the size of `count` values.

    Raises
    ------
    ArgumentError
        If they exceed the largest size that a type of NumPy can have.
    """
    size = dtype.itemsize * count
    if size > np.iinfo(np.int32).max:
        msg = f"{count} values of {dtype} exceed 2 GiB per index or point; move fewer at once"
        raise ArgumentError(msg)
    return np.dtype(MOVES.get(size, f"V{size}"))


def as_rows(array: Array, row: np.dtype[Any]) -> Array:
    """View a contiguous array as rows; one without values may be of any type."""
    return array.reshape(-1).view(row) if array.size else np.empty(0, row)


class Ragged(NamedTuple):
    """Rows of different lengths; row ``i`` has ``counts[i]`` values, perhaps none.

    Parameters
    ----------
    counts : numpy.ndarray
        Length of every row.
    values : numpy.ndarray
        Their values, one row after the other.
    """

    counts: Ints
    values: Array

    @classmethod
    def empty(cls, rows: int, dtype: np.dtype[Any]) -> Ragged:
        """Make rows without values."""
        return cls(np.zeros(rows, np.int64), np.empty(0, dtype))

    @classmethod
    def joined(cls, parts: Sequence[Ragged], dtype: np.dtype[Any]) -> Ragged:
        """Return the rows of all parts, one after the other; perhaps there are none."""
        every = [cls.empty(0, dtype), *(part.as_type(dtype) for part in parts)]
        counts, values = zip(*every, strict=True)
        return cls(np.concatenate(counts), np.concatenate(values))

    def as_type(self, dtype: np.dtype[Any]) -> Ragged:
        """Return the same rows; if there are no values, these may have been of any type."""
        return self if self.values.size else Ragged(self.counts, np.empty(0, dtype))

    def pick(self, rows: Ints) -> Ragged:
        """Return some rows, in any order, also several times.

        Examples
        --------
        >>> Ragged(np.array([1, 0, 2]), np.array([5, 6, 7])).pick(np.array([2, 1, 0, 2]))
        Ragged(counts=array([2, 0, 1, 2]), values=array([6, 7, 5, 6, 7]))
        """
        counts = self.counts[rows]
        ahead = bounds_of(counts)
        jumps = bounds_of(self.counts)[rows] - ahead[:-1]
        return Ragged(counts, self.values[np.arange(ahead[-1]) + np.repeat(jumps, counts)])

    def split(self, sizes: list[int]) -> list[Ragged]:
        """Split into parts of `sizes` rows; the parts are views."""
        rows = bounds_of(np.array(sizes, np.int64))
        values = bounds_of(self.counts)[rows]
        return [
            Ragged(self.counts[rows[i] : rows[i + 1]], self.values[values[i] : values[i + 1]])
            for i in range(len(sizes))
        ]


def replaced(given: Ragged, written: Ragged, targets: Ints) -> Ragged:
    """Replace row ``targets[i]`` of `given` by row ``i`` of `written`; the last one stays.

    Examples
    --------
    >>> given = Ragged(np.array([2, 1]), np.array([1, 2, 3]))
    >>> written = Ragged(np.array([0, 1]), np.array([9]))
    >>> replaced(given, written, np.array([0, 0]))
    Ragged(counts=array([1, 1]), values=array([9, 3]))
    """
    size = len(given.counts)
    rows, writers = last_of_each(targets, size)
    origin = np.arange(size)
    origin[rows] = size + writers
    return Ragged.joined([given, written], given.values.dtype).pick(origin)


def extended(given: Ragged, written: Ragged, targets: Ints) -> Ragged:
    """Append row ``i`` of `written` to row ``targets[i]`` of `given`, in this order.

    Examples
    --------
    >>> given = Ragged(np.array([2, 1]), np.array([1, 2, 3]))
    >>> written = Ragged(np.array([1, 1]), np.array([8, 9]))
    >>> extended(given, written, np.array([0, 0]))
    Ragged(counts=array([4, 1]), values=array([1, 2, 8, 9, 3]))
    """
    both = Ragged.joined([given, written], given.values.dtype)
    owners = np.concatenate([np.arange(len(given.counts)), targets])
    counts = given.counts.copy()
    np.add.at(counts, targets, written.counts)
    return Ragged(counts, both.pick(np.argsort(owners, kind="stable")).values)


def pickled(items: Sequence[Any]) -> Ragged:
    """Pickle items.

    Raises
    ------
    TypeError
        If one cannot be pickled.
    """
    rows = [_pickle(item) for item in items]
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    return Ragged(counts, np.frombuffer(b"".join(rows), np.uint8))


def unpickled(rows: Ragged) -> list[Any]:
    """Make a new object of every row."""
    bounds, data = bounds_of(rows.counts).tolist(), rows.values.tobytes()
    return [
        pickle.loads(data[lo:hi])  # noqa: S301 - from this very program
        for lo, hi in pairwise(bounds)
    ]


def _pickle(item: object) -> bytes:
    try:
        return pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # whatever the item raises
        msg = f"an object of type {type(item).__name__} cannot be pickled: {error}"
        raise TypeError(msg) from error
