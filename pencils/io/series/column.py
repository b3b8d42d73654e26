"""One dataset of a series: what stands in it for every snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

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
        """Say in what another one differs, if it does."""
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
