"""What a file says about one field."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pencils.array import PencilArray

# Attributes of files and datasets whose names begin like this are not the user's.
RESERVED = "pencils_"


@dataclass(frozen=True, slots=True)
class Entry:
    """One dataset of a file, as rank 0 describes it to all ranks.

    Parameters
    ----------
    name : str
        Path in the file, like ``"u"`` or ``"fluid/u"``.
    shape : tuple of int
        Global shape, components first.
    dtype : numpy.dtype
        Element type, byte order included.
    offset : int or None
        Where the raw bytes start, in C order and as `dtype` says; None if only HDF5 can tell.
    components : int or None
        Number of component axes; None if the file does not say.
    singletons : tuple of bool
        Whether the field is a singleton along each dimension; empty if the file does not say.
    periodic : tuple of bool
        Whether each dimension wraps around; empty if the file does not say.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None = None
    components: int | None = None
    singletons: tuple[bool, ...] = ()
    periodic: tuple[bool, ...] = ()

    @classmethod
    def of(cls, name: str, field: PencilArray) -> Entry:
        """Describe a field that is to be stored."""
        return cls(
            name,
            field.shape,
            field.dtype,
            components=len(field.components),
            singletons=tuple(dim in field.singletons for dim in range(field.pencil.ndim)),
            periodic=field.pencil.periodic,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return prod(self.shape) * self.dtype.itemsize
