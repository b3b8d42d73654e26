"""All or nothing: a file is made under another name and takes its own only when it is whole."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import platform
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from errno import EDQUOT, EFBIG, ENOSPC, ENOSYS
from hashlib import blake2b
from itertools import chain, count
from pathlib import Path

from pencils.io.file_access import system
from pencils.io.writer_lock import WriterLock, lock_path

LOG = logging.getLogger("pencils")

# Characters of the name that its temporary keeps; file systems take 255 bytes.
_KEPT = 40
# Name of the target, where and by which process it is written, and random digits.
_TEMPORARY = re.compile(r"\.(?P<kept>.*)\.(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{12}\.tmp")
# A file that was not written to for this time, in seconds, belongs to no running save.
_FORGOTTEN = 24 * 3600.0
# Temporaries of this process, and its simulated ranks, that it could not remove.
_DISCARDED: set[Path] = set()
# To free a file of this many bytes takes longer than to start a thread.
_LARGE = 2**16
# Threads that free the disk space of files that were replaced; of all simulated ranks.
_FREEING: list[threading.Thread] = []
_C_LIBRARY = ctypes.CDLL(None, use_errno=True)
# Errors of fallocate that mean a full disk; with others, the file system cannot allocate.
_NO_ROOM = {EDQUOT, EFBIG, ENOSPC}


def make_temporary(target: Path) -> Path:
    """Create an empty hidden file beside the one that is to be written.

    Raises OSError if there is no such directory, it may not be written to, or `target` is no file.
    """
    if not target.parent.is_dir():
        msg = f"cannot save {target}: {target.parent} is not a directory; create it first"
        raise NotADirectoryError(msg) if target.parent.exists() else FileNotFoundError(msg)
    if target.exists() and not target.is_file():
        msg = f"cannot save {target}: it is not a file; choose another name"
        raise IsADirectoryError(msg) if target.is_dir() else OSError(msg)
    marks = f"{_place()}-{os.getpid()}-{secrets.token_hex(6)}"
    temporary = target.with_name(f".{target.name[:_KEPT]}.{marks}.tmp")
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        discard(temporary)  # it may have been made and not been closed
        msg = f"cannot save {target}: {error.strerror} in {target.parent}"
        raise OSError(error.errno, msg) from None  # of the same type
    return temporary


def clean(target: Path) -> None:
    """Remove what earlier saves of `target`, which died, have left beside it.

    Those are the temporaries of processes that are gone from this machine; of other machines,
    whose processes cannot be seen, those that were not written to for a day.
    """
    wait_for_space(1)  # the last one may go on while this save is written
    for _ in range(len(_DISCARDED)):
        discard(_DISCARDED.pop())
    with contextlib.suppress(OSError):
        for file in target.parent.iterdir():
            found = _TEMPORARY.fullmatch(file.name)
            if found and found["kept"] == target.name[:_KEPT] and _is_stale(file, found):
                discard(file)


def _is_stale(file: Path, name: re.Match[str]) -> bool:
    if name["place"] == _place():
        return not _is_running(int(name["pid"]))
    try:
        return time.time() - file.stat().st_mtime > _FORGOTTEN
    except OSError:  # gone meanwhile
        return False


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # of another user
        return True
    return True


def _place() -> str:
    """Where the number of a process means something: this machine, and this container on it."""
    container = ""
    with contextlib.suppress(OSError):
        container = str(Path("/proc/self/ns/pid").readlink())
    return blake2b(f"{platform.node()} {container}".encode(), digest_size=4).hexdigest()


def commit(
    temporary: Path,
    target: Path,
    to_disk: Callable[[Path], object] | None = None,
    *,
    alone: bool = False,
) -> None:
    """Give the whole file its name, replacing what has it, in an order that survives power loss.

    `to_disk` brings the file to the disk; the default opens it for that. The caller that is `alone`
    has the lock of `target`. Raises OSError if the disk refuses or a file of this name is open for
    writing; `target` is then as it was.
    """
    if target.exists():
        with contextlib.suppress(OSError):
            shutil.copymode(target, temporary)
    (to_disk or sync)(temporary)
    if not _is_new(temporary, target):
        lock = WriterLock()
        if not alone:
            lock.take(target, shared=True)
        try:
            with _freed_by_thread(target):
                temporary.replace(target)
        finally:
            lock.release()
    # The file is whole and in place; not every file system lets a directory be synchronised.
    with contextlib.suppress(OSError):
        sync(target.parent)


def _is_new(temporary: Path, target: Path) -> bool:
    """Give the file its name, if no other file has it: without a lock, nothing can be lost then."""
    if lock_path(target).exists():
        return False
    try:
        os.link(temporary, target)
    except OSError:  # there is one, or the file system has no hard links
        return False
    discard(temporary)
    return True


def wait_for_space(left: int = 0) -> None:
    """Wait until the space of replaced files is free, but for so many files."""
    while len(_FREEING) > left:
        _FREEING.pop(0).join()


@contextlib.contextmanager
def made(target: Path, *, alone: bool = False) -> Iterator[Path]:
    """Give a ``with`` block a temporary to write, which takes the name of `target` at the end.

    It does so by `commit`. If that or the block fails, the temporary is removed, and `target` is as
    it was.
    """
    clean(target)
    temporary = make_temporary(target)
    try:
        with system("write", target):
            yield temporary
            commit(temporary, target, alone=alone)
    except BaseException:
        discard(temporary)
        raise


def allocate(file: Path) -> None:
    """Allocate the disk space of a file with holes, if the file system can do that.

    A full disk is then found before data move, and writing is faster. Raises OSError if the disk is
    full.
    """
    handle = os.open(file, os.O_WRONLY)
    try:
        number = _allocate(handle)
        if number:
            wait_for_space()  # what replaced files have may be all that lacks
        if number in _NO_ROOM:
            number = _allocate(handle)
    finally:
        os.close(handle)
    if number in _NO_ROOM:
        raise OSError(number, os.strerror(number), str(file))


def _allocate(handle: int) -> int:
    """Allocate the disk space of an open file; return zero, or the errno.

    `os.posix_fallocate` would write to every block where the file system cannot allocate.
    """
    fallocate = getattr(_C_LIBRARY, "fallocate", None)
    if fallocate is None:  # as on macOS
        return ENOSYS
    size = os.fstat(handle).st_size
    failed = fallocate(handle, 0, ctypes.c_int64(0), ctypes.c_int64(size))
    return ctypes.get_errno() if failed else 0


@contextlib.contextmanager
def _freed_by_thread(target: Path) -> Iterator[None]:
    """Let a thread free a large file that the block replaces: the system takes long to do that."""
    old = None
    with contextlib.suppress(OSError):  # there is none, or it may not be read
        old = os.open(target, os.O_RDONLY)
    try:
        yield
    finally:
        if old is not None:
            _free(old)


def _free(handle: int) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # a file system that fails, no more threads
        if os.fstat(handle).st_size >= _LARGE:
            thread = threading.Thread(target=_close, args=(handle,), name="pencils.free")
            thread.start()
            _FREEING.append(thread)
            return
    _close(handle)


def _close(handle: int) -> None:
    with contextlib.suppress(OSError):  # nothing was written by it
        os.close(handle)


def discard(temporary: Path) -> None:
    """Remove a temporary, if it still exists; raises nothing, because the caller raises its error.

    One that cannot be removed now is removed by the next `clean`.
    """
    try:
        temporary.unlink(missing_ok=True)
    except OSError:
        _DISCARDED.add(temporary)


def abandoned(path: Path) -> Path:
    """Return an unused name for a file that stays, but no longer counts."""
    first = path.with_name(f"{path.name}.abandoned")
    numbered = (path.with_name(f"{first.name}-{number}") for number in count(2))
    return next(one for one in chain([first], numbered) if not one.exists())


def set_aside(path: Path, rename: Callable[[Path, Path], object] = Path.rename) -> None:
    """Rename a file that no longer counts, or what else is given, and log the new name."""
    aside = abandoned(path)
    rename(path, aside)
    LOG.warning("%s is set aside as %s", path, aside.name)


def remove_old(paths: Iterable[Path], what: str) -> None:
    """Remove files that no longer count; what cannot be removed is logged."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("cannot remove an old %s: %s", what, error)


def sync(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    with system("write", path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_directory(given: str | Path) -> Path:
    """Make a directory, unless it exists; raise OSError without its parent, or if it is a file."""
    path = Path(os.path.realpath(given))
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot create {path}: {path.parent} is not a directory; create it first"
        )
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"cannot create {path}: it is a file; choose another name")
    if not path.exists():
        path.mkdir()
        with contextlib.suppress(OSError):  # not every file system synchronizes directories
            sync(path.parent)
    return path
