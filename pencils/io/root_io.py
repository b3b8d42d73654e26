"""Work with files that rank 0 does for all; if it fails there, all ranks raise its error.

`Format` is the place for other file formats: `load`, `open` and `verify` read files by its
functions only. Today `pencils.io.hdf5` is the one module that has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.distribute.partition import ArrayLike
from pencils.errors import CheckpointError
from pencils.io.commit import discard, make_temporary
from pencils.io.file_info import Access, FileInfo
from pencils.io.plain import check_regular
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")


class Format(Protocol):
    """Functions of a module that reads files of one format. None communicates.

    Paths are real paths. All functions raise CheckpointError if the file is damaged or of another
    format, OSError if the system cannot read it.
    """

    def describe(
        self, path: str, names: list[str] | None, among: list[str] | None, access: Access
    ) -> FileInfo:
        """Describe named datasets; None means all values, and the fields in `among` (None: all)."""

    def describe_fields(self, path: str, access: Access) -> FileInfo:
        """Describe all fields and values that pencils can read."""

    def describe_summed(self, path: str, access: Access) -> FileInfo:
        """Describe all datasets that have a checksum; read no values."""

    def opened(self, path: str) -> AbstractContextManager[Any]:
        """Open a file in a ``with`` block, for `read_box`."""

    def read_box(self, file: Any, name: str, key: tuple[Any, ...]) -> Array:
        """Read a box of a dataset that has no plain bytes: chunked, compressed, virtual."""

    def open_dataset(self, path: str, name: str) -> ArrayLike:
        """Open a dataset, to be read piece by piece."""


def format_of(_path: str) -> Format:
    """Return the module that reads a file."""
    from pencils.io import hdf5  # most ranks never need h5py

    return hdf5


def on_root(comm: MPI.Intracomm, call: str, work: Callable[[], T]) -> T:
    """Call a function on rank 0, and return its result on all ranks. *Collective*.

    Parameters
    ----------
    comm : MPI.Intracomm
        Private communicator.
    call : str
        The public function that needs the result, for error texts.
    work : callable
        Called on rank 0 only.

    Returns
    -------
    object
        What `work` returned.

    Raises
    ------
    Exception
        On every rank, what `work` raises.
    """
    made: T | None = None
    with agreed(comm, call):
        if comm.rank == 0:
            made = work()
    result: T = comm.bcast(made)
    return result


def open_on_root(
    path: str, name: str
) -> tuple[ArrayLike | None, tuple[int, ...], np.dtype[np.generic]]:
    """Open an array on rank 0, for `partition`. *Collective* over all processes.

    Parameters
    ----------
    path : str
        An .npy or HDF5 file.
    name : str
        The dataset in an HDF5 file that has more than one.

    Returns
    -------
    array_like or None, tuple of int, numpy.dtype
        On rank 0 the array, to be read piece by piece; on all ranks its shape and type.

    Raises
    ------
    CheckpointError
        On every rank, if there is no such array in the file.
    OSError
        On every rank, if the file cannot be opened.
    """
    comm = Pencil(1).comm
    data: Any = None
    with agreed(comm, "open_on_root"):
        if comm.rank == 0:
            data = _open_npy(path) if path.endswith(".npy") else _open_dataset(path, name)
    return data, *comm.bcast(None if data is None else (data.shape, data.dtype))


def check_target(path: str) -> None:
    """Check that `save` can create a file. *Collective* over all processes.

    Raises
    ------
    OSError
        On every rank, if rank 0 cannot write to the directory, or `path` is not a file.
    """
    comm = Pencil(1).comm
    with agreed(comm, "check_target"):
        if comm.rank == 0:
            discard(make_temporary(Path(os.path.realpath(path))))


def _open_npy(path: str) -> ArrayLike:
    check_regular(path)
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        msg = f"cannot read {path}: {error}"
        raise CheckpointError(msg) from None


def _open_dataset(path: str, name: str) -> ArrayLike:
    return format_of(path).open_dataset(path, name)
