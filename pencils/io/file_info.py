"""What a file holds, as rank 0 describes it to all ranks. Independent of the file format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pencils.array.allocation import Widths
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.errors import CheckpointError
from pencils.io.values import Stored

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# Attributes whose names begin with this belong to pencils, not to the user.
RESERVED = "pencils_"
# Format of files; increased when older versions cannot read it.
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
        Where the elements start in the file, in C order; None if they are no plain bytes there:
        chunked, compressed, virtual.
    components : int or None
        Number of component axes; None if unknown.
    singletons : tuple of bool
        Whether the field is a singleton along each dimension; empty if unknown.
    periodic : tuple of bool
        Whether each dimension is periodic; empty if unknown.
    boundary : tuple of (int, int)
        Numbers of boundary points before and after each dimension; empty for none.
    kind : str
        Empty for a field; else the kind of a value, as of `pencils.io.values.Stored`.
    checksum : int or None
        Checksum of its elements; None if unknown.
    chunks : tuple of int
        Extents of a chunk; empty without chunks.
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
        """Describe a field to store."""
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


class Access(NamedTuple):
    """What the user allows when a file is read: the arguments of `load` of the same names."""

    verify: bool = True
    edited: bool = False
    external: bool = False


class Identity(NamedTuple):
    """Numbers that differ between files, and before and after a change; valid on one rank."""

    device: int
    inode: int
    modified: int
    size: int

    @classmethod
    def of(cls, path: str) -> Identity:
        """Identify the file that has a name now; zeros if there is none."""
        try:
            found = Path(path).stat()
        except OSError:  # opening it raises a better error
            return cls(0, 0, 0, 0)
        return cls(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)

    def check_unchanged(self, path: str) -> None:
        """Raise CheckpointError if another file has the name, or this one was written to."""
        if Identity.of(path) != self:
            raise _replaced(path)

    def check_in_place(self, path: str) -> None:
        """Raise CheckpointError if another file has the name; this one may have changed."""
        now = Identity.of(path)
        if (now.device, now.inode) != (self.device, self.inode):
            raise _replaced(path)


class FileInfo(NamedTuple):
    """Contents of a file: its datasets, and what is small enough to be read at once.

    Parameters
    ----------
    path : str
        The file.
    identity : Identity
        Of the file, before anything was read, on rank 0.
    datasets : list of DatasetInfo
        Descriptions of the fields; for `verify`, of all datasets that have a checksum.
    values : dict of str to Stored
        Values, which all ranks get.
    attrs : dict of str to object
        Attributes of the user.
    step : int or None
        Number of the time step.
    time : float or None
        Time of the run.
    """

    path: str
    identity: Identity
    datasets: list[DatasetInfo]
    values: dict[str, Stored]
    attrs: dict[str, Any]
    step: int | None
    time: float | None

    def check_in_place(self, comm: MPI.Intracomm, call: str) -> None:
        """Raise CheckpointError if another file has the name. *Collective*."""
        with agreed(comm, call):
            if comm.rank == 0:
                self.identity.check_in_place(self.path)


def damaged(path: str, names: Iterable[str]) -> CheckpointError:
    """Make the error for datasets whose checksum does not match."""
    msg = (
        f"{path} is damaged: {', '.join(map(repr, names))} no longer as written, by the checksum; "
        "go back to an older checkpoint, or look at what is left with load(..., verify=False)"
    )
    return CheckpointError(msg)


def _replaced(path: str) -> CheckpointError:
    return CheckpointError(f"{path} was replaced or changed while it was in use; read it again")
