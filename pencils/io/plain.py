"""Files by plain reads and writes, without HDF5. No communication."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from pencils.errors import CheckpointError

_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def open_regular(path: str) -> int:
    """Open a regular file for reading, and return its descriptor. Never waits.

    Raises CheckpointError for a FIFO, a socket or a device, OSError if the file cannot be opened.
    """
    try:
        _check_kind(path, Path(path).stat().st_mode)  # before: opening a device can change it
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        where = f"; check the path, the working directory is {Path.cwd()}"
        hint = where if isinstance(error, FileNotFoundError) else ""
        msg = f"cannot load {path}: {error.strerror}{hint}"
        raise OSError(error.errno, msg) from None  # of the same type
    try:
        _check_kind(path, os.fstat(handle).st_mode)  # after: another file may have the name now
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_regular(path: str) -> None:
    """Raise CheckpointError or OSError unless this is a regular file that can be read."""
    os.close(open_regular(path))


def _check_kind(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "special file")
        msg = f"{path} is a {kind}, not a regular file; give the name of an HDF5 file"
        raise CheckpointError(msg)


def read(handle: int, count: int, offset: int) -> bytes:
    """Read `count` bytes at a position of an open file; fewer only at its end."""
    data = os.pread(handle, count, offset)
    while 0 < len(data) < count:
        more = os.pread(handle, count - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def write(handle: int, data: bytes, offset: int) -> None:
    """Write all bytes to a position of an open file, in several calls if the system needs them."""
    done = 0
    while done < len(data):
        done += os.pwrite(handle, data[done:], offset + done)
