"""What a series contains: its datasets, and on rank 0 everything but the points of fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.errors import ArgumentError
from pencils.io.file_info import RESERVED

# The dataset of times, and the dimension along which everything grows.
TIME = "time"
# Checksums of the snapshots of fields, by name in this group.
SUMS = RESERVED + "checksum/"
# Attribute: shape that a snapshot has in a file of its own.
SOURCE = RESERVED + "snapshot_shape"

# Attribute: which points of a field are stored.
SELECTED = RESERVED + "selection"


@dataclass(frozen=True, slots=True)
class Column:
    """What a series holds under one name.

    Parameters
    ----------
    name : str
        Name of the dataset.
    shape : tuple of int
        Shape of one snapshot.
    dtype : numpy.dtype
        Element type.
    labels : tuple of str
        Names of the axes of a snapshot.
    attrs : mapping of str to object
        Attributes of the dataset.
    is_field : bool
        Whether it is a field, and no value that all ranks have alike.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    labels: tuple[str, ...]
    attrs: Mapping[str, Any]
    is_field: bool

    @property
    def size(self) -> int:
        """Elements of one snapshot."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one snapshot."""
        return self.size * self.dtype.itemsize

    def differs(self, other: Column) -> str | None:
        """Describe a difference from another one; None if there is none."""
        for what in ("shape", "dtype", "is_field"):
            mine, its = getattr(self, what), getattr(other, what)
            if mine != its:
                return f"{self.name!r} has {what} {mine} in the series, not {its}"
        mine, its = self.attrs.get(SELECTED), other.attrs.get(SELECTED)
        if mine != its:
            return f"{self.name!r} is the selection {mine} in the series, not {its}"
        return None


def time_column() -> Column:
    """Describe the dataset of times."""
    return Column(TIME, (), np.dtype(float), (), {RESERVED + "value": "numpy"}, is_field=False)


def sum_column(name: str) -> Column:
    """Describe the dataset of the checksums of a field."""
    return Column(SUMS + name, (), np.dtype(np.uint64), (), {}, is_field=False)


@dataclass
class SeriesState:
    """Datasets, coordinates and attributes of a series, and its values at all times.

    Parameters
    ----------
    attrs : mapping of str to object
        Attributes of the file.
    columns : mapping of str to Column
        Datasets.
    coordinates : mapping of str to numpy.ndarray
        Coordinates along their axes.
    values : mapping of str to list
        For all datasets but fields, what they hold: one entry for each time.
    whole : bool
        Whether all this is also in the file.
    """

    attrs: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Column] = field(default_factory=dict)
    coordinates: dict[str, Array] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    whole: bool = True

    @property
    def times(self) -> list[float]:
        """Times of all snapshots."""
        return self.values.get(TIME, [])

    @property
    def fields(self) -> list[Column]:
        """Datasets of fields."""
        return [column for column in self.columns.values() if column.is_field]

    def start(
        self, columns: Iterable[Column], coordinates: Mapping[str, Array], *, summed: bool
    ) -> None:
        """Fix what a series holds, before its first snapshot; with checksums if `summed`.

        Raises
        ------
        ArgumentError
            If a dimension has the name of a field.
        """
        given = {column.name: column for column in columns}
        labels = {label for column in given.values() for label in column.labels}
        taken = (labels | coordinates.keys()) & (given.keys() | {TIME})
        if taken:
            msg = f"{min(taken)!r} names a dimension of the grid, so it cannot be a field; rename"
            raise ArgumentError(msg)
        sums = [sum_column(column.name) for column in given.values() if column.is_field and summed]
        everything = [time_column(), *given.values(), *sums]
        self.columns = {column.name: column for column in everything}
        self.coordinates = dict(coordinates)
        self.values = {column.name: [] for column in everything if not column.is_field}

    def check(self, columns: Iterable[Column], coordinates: Mapping[str, Array]) -> None:
        """Compare with what is to be appended.

        Raises
        ------
        ArgumentError
            If names, shapes, types or coordinates differ.
        """
        given = {column.name: column for column in columns}
        own = {name for name in self.columns if name != TIME and not name.startswith(SUMS)}
        for names, what in ((own - given.keys(), "misses"), (given.keys() - own, "has besides")):
            if names:
                msg = f"the series holds {sorted(own)}; what is appended {what} {sorted(names)}"
                raise ArgumentError(msg)
        for name, column in given.items():
            difference = self.columns[name].differs(column)
            if difference:
                msg = f"what is appended differs: {difference}"
                raise ArgumentError(msg)
        for name, points in coordinates.items():
            if not np.array_equal(self.coordinates.get(name, points[:0]), points):
                msg = f"the coordinate {name!r} of the grid differs from that in the series"
                raise ArgumentError(msg)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change state and file together; after a failure neither can be trusted."""
        self.whole = False
        yield
        self.whole = True

    def record(self, values: Mapping[str, Any]) -> None:
        """Add a snapshot: time, values and checksums."""
        for name, value in values.items():
            self.values[name].append(copy(value))  # callers use their arrays again

    def cut(self, count: int) -> None:
        """Forget all but the first snapshots."""
        for history in self.values.values():
            del history[count:]

    def checksum(self, name: str) -> int:
        """Checksum of all snapshots of a field."""
        return sum(map(int, self.values[SUMS + name])) % 2**64
