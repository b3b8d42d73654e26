"""One file that all ranks write to or read from together, as raw bytes.

Every rank moves its own runs of bytes by the system's calls. They need no view of the file, no
collective buffering and no other rank, so that a rank that fails leaves nobody waiting.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from ctypes import CDLL, c_int64
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.mpi import MPI

Array = NDArray[Any]

# One call moves at most this many bytes: the system takes less than 2**31.
PIECE_BYTES = 2**29
# Smaller writes share pages, which the system would write to the disk several times.
HINT_BYTES = 2**20
# Of Linux. A hint: `sync` reports the errors of the disk.
_sync_file_range = getattr(CDLL(None), "sync_file_range", None)
_START = 2  # SYNC_FILE_RANGE_WRITE


class SharedFile:
    r"""An existing file, opened by all ranks. Opening and `check` are *Collective*.

    What goes wrong in `write`, `read` and `sync` is kept until `check` raises it on every rank, or
    `complain` where the caller tells the others. What was written is on the disk, and checked, at
    the end of a ``with`` block.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator.
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
        self._file = -1
        try:
            with agreed(comm, "open"):
                self._file = self._open()
        except BaseException:
            self.close()
            raise

    def write(self, offset: int, data: Array) -> None:
        """Write the bytes of a C-contiguous array at position `offset` of the file. Local.

        The system starts to write large pieces to the disk at once, so that `sync` has less to
        wait for.
        """
        self._move(os.pwritev, "write", offset, data)
        if data.nbytes >= HINT_BYTES and _sync_file_range is not None:
            _sync_file_range(self._file, c_int64(offset), c_int64(data.nbytes), _START)

    def read(self, offset: int, data: Array) -> None:
        """Fill a C-contiguous array with the bytes at position `offset` of the file. Local."""
        self._move(os.preadv, "read", offset, data)

    def complain(self) -> None:
        """Raise what went wrong on this rank. Local.

        Raises
        ------
        OSError
            The first error since the file was opened.
        """
        if self._fault is not None:
            raise self._fault

    def check(self) -> None:
        """Raise on every rank what went wrong on any.

        Raises
        ------
        OSError
            The first error since the file was opened.
        """
        with agreed(self._comm, "check"):
            self.complain()

    def sync(self) -> None:
        """Bring what was written to the disk; errors are kept for `check`. Local."""
        try:
            os.fsync(self._file)
        except OSError as error:
            self._keep(self._told("sync", error))

    def close(self) -> None:
        """Close, once; errors are kept for `check`. Local."""
        if self._file < 0:
            return
        file, self._file = self._file, -1
        try:
            os.close(file)
        except OSError as error:
            self._keep(self._told("close", error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        done = error is None and self._writes
        if done:
            self.sync()
        self.close()
        if done:
            self.check()

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR if self._writes else os.O_RDONLY)
        except OSError as error:
            fault = self._told("open", error)
            raise fault from None

    def _move(
        self,
        call: Callable[[int, list[Any], int], int],
        verb: str,
        offset: int,
        data: Array,
    ) -> None:
        flat: Any = data.reshape(-1).view(np.uint8)
        done = 0
        try:
            while done < len(flat):
                moved = call(self._file, [flat[done : done + PIECE_BYTES]], offset + done)
                if moved == 0:
                    raise OSError(errno.EIO, "the file ends here")  # noqa: TRY301
                done += moved
        except OSError as error:
            self._keep(self._told(verb, error))

    def _keep(self, fault: OSError) -> None:
        self._fault = self._fault or fault

    def _told(self, verb: str, error: OSError) -> OSError:
        return OSError(error.errno, f"cannot {verb}: {error.strerror}", self._path)
