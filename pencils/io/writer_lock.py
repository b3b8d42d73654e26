"""Locks of what is open for writing: one writer at a time, and readers whenever they like.

A lock is `flock` on a hidden file beside the one that is written. It is not on that file itself,
because other files take its name, and because HDF5 locks each file that it opens by `flock`, so
that readers would be locked out. POSIX locks would not keep two writers of one process apart, and
end when the process closes any descriptor of the file. The system releases a lock when the process
ends, in whatever way; the hidden file that remains then is used again.

A writer has the lock alone, and writes into the hidden file which process it is. Whoever only
gives a new file the name has the lock together with others, for the moment of the rename.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import platform
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from errno import EACCES, EAGAIN, EBADF, ENOLCK, ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM, EROFS, ESTALE
from functools import cache
from hashlib import blake2b
from pathlib import Path
from time import monotonic, sleep
from typing import Any

LOG = logging.getLogger("pencils")

# Most characters of the name that the name of the hidden file has; file systems take 255 bytes.
_KEPT = 40
# Seconds to wait for a lock whose file names no writer: it is taken, or released, at this moment.
_PATIENCE, _PAUSE = 1.0, 0.001
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
# Another one has the lock; or, on NFS, its holder has removed the hidden file meanwhile.
_HELD = {EAGAIN, ESTALE}
# The file system has no locks, or the hidden file cannot be made in the folder.
_IMPOSSIBLE = {EACCES, EBADF, ENOLCK, ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM, EROFS}


class WriterLock:
    """The lock of a file or folder, on the rank that calls `take`. Everything is local.

    It is released by `release`, and when the object or the process is gone.
    """

    def __init__(self) -> None:
        self._end: weakref.finalize[Any, Any] | None = None

    def take(self, target: Path, *, shared: bool = False) -> None:
        """Lock a file, which need not exist; alone, or as ``shared`` with others for a moment.

        Without a folder there is nothing to lock; where locks are impossible, a warning is logged.
        Raises BlockingIOError if another writer has the lock, in this process or another one.
        """
        if self._end is not None and self._end.alive:
            return
        path = lock_path(target)
        try:
            handle = _lock(path, target, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if error.errno not in _IMPOSSIBLE:
                raise
            _warn(target.parent, error.strerror)
            return
        self._end = weakref.finalize(self, _release, path, handle, os.getpid())
        if not shared:
            with suppress(OSError):  # a full disk does not matter to the lock
                # Not by `handle`: NFS shows other hosts what was written when a file is closed.
                path.write_text(f"{_me()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")

    def release(self) -> None:
        """Let others write."""
        if self._end is not None:
            self._end()


def lock_path(target: Path) -> Path:
    """Return the hidden file that is locked."""
    name = target.name
    if len(name) > _KEPT:
        name = f"{name[:_KEPT]}-{blake2b(os.fsencode(name), digest_size=4).hexdigest()}"
    return target.with_name(f".{name}.lock")


def check_unlocked(target: Path) -> None:
    """Raise BlockingIOError if a file is open for writing."""
    if lock_path(target).exists():
        lock = WriterLock()
        lock.take(target, shared=True)
        lock.release()


def _lock(path: Path, target: Path, operation: int) -> int:
    """Return a descriptor of the hidden file, which has the lock."""
    end, collected = monotonic() + _PATIENCE, False
    while True:
        handle, kept = _open(path), False
        try:
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
            if _is_at(path, handle):  # else the holder before has removed it
                with suppress(OSError):  # of another user
                    os.ftruncate(handle, 0)  # the text of a writer that was killed
                kept = True
                return handle
        except OSError as error:
            if error.errno not in _HELD:
                raise OSError(error.errno, f"cannot lock: {error.strerror}", str(path)) from None
        finally:
            if not kept:
                _close(handle)
        holder = _read(path)
        if holder.startswith(_me()) and not collected:  # perhaps one that nothing refers to
            gc.collect()
            collected = True
        elif holder or monotonic() > end:
            raise _in_use(target, holder)
        else:
            sleep(_PAUSE)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666)
    except PermissionError:
        with suppress(FileNotFoundError):  # a file of another user can be locked, too
            return os.open(path, os.O_RDONLY | _FLAGS)
        raise


def _release(path: Path, handle: int, process: int) -> None:
    try:
        with suppress(OSError):
            if os.getpid() == process:  # not a copy of it, which has the descriptor, too
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if others share the lock
                if _is_at(path, handle):
                    path.unlink()
    finally:
        _close(handle)


def _close(handle: int) -> None:
    with suppress(OSError):  # it is closed all the same, and nothing depends on its contents
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # removed by now
        return ""


def _me() -> str:
    return f"process {os.getpid()} on {platform.node()}"


def _in_use(target: Path, holder: str) -> BlockingIOError:
    mine = " (this one)" if holder.startswith(_me()) else ""
    who = f"{holder}{mine}" or "another program"
    msg = (
        f"{target} is open for writing by {who}: close it there first, or choose another name; it "
        "can be read meanwhile"
    )
    return BlockingIOError(EAGAIN, msg)


@cache
def _warn(folder: Path, reason: str) -> None:
    """Warn once for each folder."""
    LOG.warning(
        "cannot lock files in %s (%s): let one program at a time write to each", folder, reason
    )
