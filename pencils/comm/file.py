"""One file that all ranks write to or read from together, as raw bytes through MPI-IO."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pencils.comm.agree import agreed

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

# One MPI call moves at most this many bytes of a rank: counts are 32-bit integers in MPI 3.
PIECE_BYTES = 2**29

_ERRNO = {
    MPI.ERR_ACCESS: errno.EACCES,
    MPI.ERR_FILE_IN_USE: errno.EBUSY,
    MPI.ERR_NO_SPACE: errno.ENOSPC,
    MPI.ERR_NO_SUCH_FILE: errno.ENOENT,
    MPI.ERR_QUOTA: errno.EDQUOT,
    MPI.ERR_READ_ONLY: errno.EROFS,
}


class SharedFile:
    r"""An existing file, opened by all ranks. Opening, `check`, `sync`, `close` are *Collective*.

    Ranks move their bytes independently of each other: a rank that fails in a collective write
    leaves the others waiting in some MPIs, and runs that do not interleave gain nothing from one.
    What goes wrong in `write` and `read` is kept until `check` raises it on every rank.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator; a plain one, because some MPIs mishandle files on Cartesian ones.
    path : str
        Path that is valid on every rank.
    write : bool, optional
        Whether to open for writing too.

    Raises
    ------
    OSError
        On every rank, if any cannot open the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as made:
    ...     with SharedFile(MPI.COMM_SELF, made.name, write=True) as file:
    ...         file.write(2, np.arange(3, dtype=np.uint8))
    ...     made.read()
    b'\x00\x00\x00\x01\x02'
    """

    def __init__(self, comm: MPI.Intracomm, path: str, *, write: bool = False) -> None:
        self._comm = comm
        self._path = path
        self._writes = write
        self._fault: OSError | None = None
        # If only some ranks could open it, their handles are left: to close them is collective.
        with agreed(comm, "open"):
            try:
                self._file = MPI.File.Open(comm, path, MPI.MODE_RDWR if write else MPI.MODE_RDONLY)
            except MPI.Exception as error:
                fault = self._told("open", error)
                raise fault from None
        self._file.Set_errhandler(MPI.ERRORS_RETURN)

    def write(self, offset: int, data: Array) -> None:
        """Write the bytes of a C-contiguous array at position `offset` of the file."""
        self._move(self._file.Write_at, "write", offset, data)

    def read(self, offset: int, data: Array) -> None:
        """Fill a C-contiguous array with the bytes at position `offset` of the file."""
        self._move(self._file.Read_at, "read", offset, data)

    def check(self) -> None:
        """Raise on every rank what went wrong on any.

        Raises
        ------
        OSError
            The first error since the file was opened.
        """
        with agreed(self._comm, "check"):
            if self._fault is not None:
                raise self._fault

    def sync(self) -> None:
        """Bring what was written to the disk, on every rank; errors are kept for `check`."""
        try:
            self._file.Sync()
        except MPI.Exception as error:
            self._keep(self._told("sync", error))

    def close(self) -> None:
        """Close; errors are kept for `check`."""
        try:
            self._file.Close()
        except MPI.Exception as error:
            self._keep(self._told("close", error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._writes:
            self.sync()
        self.close()
        if error is None:
            self.check()

    def _move(
        self, call: Callable[[int, Bytes], None], verb: str, offset: int, data: Array
    ) -> None:
        flat = data.reshape(-1).view(np.uint8)
        try:
            for at in range(0, flat.size, PIECE_BYTES):
                call(offset + at, flat[at : at + PIECE_BYTES])
        except MPI.Exception as error:
            self._keep(self._told(verb, error))

    def _keep(self, fault: OSError) -> None:
        self._fault = self._fault or fault

    def _told(self, verb: str, error: MPI.Exception) -> OSError:
        code = _ERRNO.get(error.Get_error_class(), errno.EIO)
        return OSError(code, f"cannot {verb}: {error.Get_error_string().strip()}", self._path)
