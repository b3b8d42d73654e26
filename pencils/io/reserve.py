"""Claim the disk space of a file before anything is written to it."""

from __future__ import annotations

import ctypes
import os
from errno import EDQUOT, EFBIG, ENOSPC

# What says that there will be no room; other errors only say that one cannot ask.
_NO_ROOM = {EDQUOT, EFBIG, ENOSPC}


def reserve(path: str) -> None:
    """Give a file with holes all the disk space it needs, where the file system can do that.

    A full disk is then found before data are moved, and by one process alone. Not by
    `os.posix_fallocate`, which writes to every block where the file system cannot.

    Raises
    ------
    OSError
        If there is no room for it.
    """
    allocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if allocate is None:  # as on macOS
        return
    handle = os.open(path, os.O_WRONLY)
    try:
        size = os.fstat(handle).st_size
        failed = allocate(handle, 0, ctypes.c_int64(0), ctypes.c_int64(size))
        number = ctypes.get_errno() if failed else 0
    finally:
        os.close(handle)
    if number in _NO_ROOM:
        raise OSError(number, os.strerror(number), path)
