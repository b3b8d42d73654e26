"""What a file says about one dataset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pencils.array.allocation import Widths
from pencils.array.pencil_array import PencilArray
from pencils.errors import CheckpointError

# Attributes of files and datasets whose names begin like this are not the user's.
RESERVED = "pencils_"
# Of the whole file; raised when older versions could not read it.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class DatasetInfo:
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
    boundary : tuple of (int, int)
        How many boundary points lie before and after those of each dimension; empty for none.
    kind : str
        What it is if it is no field, as `pencils.io.values.Stored` says.
    checksum : int or None
        Sum over its bytes; None if the file does not say.
    chunks : tuple of int
        Extents of a chunk; empty if there are none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None = None
    components: int | None = None
    singletons: tuple[bool, ...] = ()
    periodic: tuple[bool, ...] = ()
    boundary: Widths = ()
    kind: str = ""
    checksum: int | None = None
    chunks: tuple[int, ...] = ()

    @classmethod
    def of(cls, name: str, field: PencilArray, boundary: Widths = ()) -> DatasetInfo:
        """Describe a field that is to be stored."""
        return cls(
            name,
            field.shape,
            field.dtype,
            components=len(field.components),
            singletons=tuple(dim in field.singletons for dim in range(field.pencil.ndim)),
            periodic=field.pencil.periodic,
            boundary=boundary if any(map(any, boundary)) else (),
        )

    @property
    def points(self) -> tuple[int, ...]:
        """Shape without boundary points."""
        lead = len(self.shape) - len(self.boundary)
        inner = zip(self.shape[lead:], self.boundary, strict=True)
        return self.shape[:lead] + tuple(n - lo - hi for n, (lo, hi) in inner)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return prod(self.shape) * self.dtype.itemsize


def damaged(path: str, names: Iterable[str]) -> CheckpointError:
    """Make the error for data that are not those which were written."""
    msg = (
        f"{path} is damaged: {', '.join(map(repr, names))} no longer as written, by the checksum; "
        "go back to an older checkpoint, or look at what is left with load(..., verify=False)"
    )
    return CheckpointError(msg)
