"""One file that all ranks write to or read from, each its own runs of bytes, without others."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from ctypes import CDLL, c_int64
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.recording import timed

Array = NDArray[Any]
T = TypeVar("T")

# One call moves at most this many bytes: the system allows less than 2**31.
PIECE_BYTES = 2**29
# So much is written before the disk is asked to start; less would keep it busy with small parts.
HINT_BYTES = 2**23
# Linux only. A hint: `sync` reports the errors of the disk.
_sync_file_range = getattr(CDLL(None), "sync_file_range", None)
_START = 2  # SYNC_FILE_RANGE_WRITE


@cache
def _boot() -> str:
    """Identify this run of the operating system."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class SharedFile:
    """An existing file, opened by all ranks; without a path, only errors. Everything is local.

    The first error of opening it, and of every other method, is kept until `raise_error`.
    """

    def __init__(self, path: str, *, write: bool = False) -> None:
        self._path = path
        self._fault: Exception | None = None
        self._file = -1
        self._since, self._waiting = range(0), 0  # where was written after a hint, how many bytes
        if path:
            found = self._try("open", lambda: os.open(path, os.O_RDWR if write else os.O_RDONLY))
            self._file = -1 if found is None else found

    def attempt(self, work: Callable[[], T], verb: str = "") -> T | None:
        """Do something, unless something has failed; its error is kept, too. Local.

        Errors of the system get a text that names the file and the `verb`, if there is one.
        """
        return self._try(verb, work) if self._fault is None else None

    def write(self, offset: int, data: Array) -> None:
        """Write the bytes of a C-contiguous array at position `offset` of the file. Local."""
        self._move("write", os.pwritev, offset, data)
        if _sync_file_range is None or self._fault is not None:
            return
        stop = offset + data.nbytes
        if not self._waiting:
            self._since = range(offset, stop)
        self._since = range(min(self._since.start, offset), max(self._since.stop, stop))
        self._waiting += data.nbytes
        if self._waiting >= HINT_BYTES:
            extent = c_int64(self._since.start), c_int64(len(self._since))
            _sync_file_range(self._file, *extent, _START)
            self._waiting = 0

    def read(self, offset: int, data: Array) -> None:
        """Fill a C-contiguous array with the bytes at position `offset` of the file. Local."""
        self._move("read", os.preadv, offset, data)

    def raise_error(self) -> None:
        """Raise the first error of this rank, if there was any. Local."""
        if self._fault is not None:
            raise self._fault

    def place(self) -> tuple[str, int, int] | None:
        """Identify the file in the memory of this system; None if that is not possible. Local.

        Ranks that do not have the same identity each call `sync` for what they have written.
        """
        try:
            found, boot = os.fstat(self._file), _boot()
        except OSError:
            return None
        return (boot, found.st_dev, found.st_ino) if boot else None

    def sync(self) -> None:
        """Wait until written data are on disk; errors are kept. Local."""
        self.attempt(lambda: timed("I/O", os.fsync, self._file), "sync")

    def close(self) -> None:
        """Close, once; errors are kept. Local."""
        if self._file < 0:
            return
        file, self._file = self._file, -1
        self._try("close", lambda: os.close(file))

    def _move(
        self, verb: str, call: Callable[[int, list[Any], int], int], offset: int, data: Array
    ) -> None:
        def move() -> None:
            flat: Any = data if data.dtype == np.uint8 else data.reshape(-1).view(np.uint8)
            flat, done = flat.reshape(-1), 0
            while done < len(flat):
                moved = call(self._file, [flat[done : done + PIECE_BYTES]], offset + done)
                if moved == 0:
                    raise OSError(errno.EIO, "end of file")
                done += moved

        self.attempt(lambda: timed("I/O", move, nbytes=data.nbytes), verb)

    def _try(self, verb: str, work: Callable[[], T]) -> T | None:
        """Do something; keep its error if it is the first: this rank still meets all ranks."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - see `raise_error`
            if self._fault is None:
                self._fault = error
                if verb and isinstance(error, OSError):
                    text = f"cannot {verb}: {error.strerror}"
                    self._fault = OSError(error.errno, text, self._path)
        return None
