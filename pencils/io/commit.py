"""How a file takes its name: made under another one, renamed when it is whole; locks of writers.

A lock is `flock` on a hidden file beside the one that is written. It is not on that file itself,
because other files take its name, and because HDF5 locks each file that it opens by `flock`, so
that readers would be locked out. POSIX locks would not keep two writers of one process apart, and
end when the process closes any descriptor of the file. The system releases a lock when the process
ends, in whatever way; the hidden file that remains then is used again.

A writer has the lock alone, and writes into the hidden file which process it is. Whoever only
gives a new file the name has the lock together with others, for the moment of the rename.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import logging
import os
import platform
import re
import secrets
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from errno import EACCES, EAGAIN, EBADF, ENOLCK, ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM, EROFS, ESTALE
from functools import cache, partial
from hashlib import blake2b
from itertools import chain, count
from pathlib import Path
from typing import Any

from pencils.comm.mpi import MPI
from pencils.comm.topology import Topology
from pencils.errors import CheckpointError
from pencils.io.file_access import from_root, open_to_read, open_to_write
from pencils.io.file_info import FileInfo
from pencils.io.formats import is_url, is_zarr, real_path

LOG = logging.getLogger("pencils")

# Characters of the name that hidden files keep; file systems take 255 bytes.
_KEPT = 40
# Seconds to wait for a lock whose file names no writer: it is taken, or released, at this moment.
_PATIENCE, _PAUSE = 1.0, 0.001
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
# Another one has the lock; or, on NFS, its holder has removed the hidden file meanwhile.
_HELD = {EAGAIN, ESTALE}
# The file system has no locks, or the hidden file cannot be made in the folder.
_IMPOSSIBLE = {EACCES, EBADF, ENOLCK, ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM, EROFS}
# Name of the target, where and by which process it is written, and random digits.
_TEMPORARY = re.compile(r"\.(?P<kept>.*)\.(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{12}\.tmp")
# A file that was not written to for this time, in seconds, belongs to no running save.
_FORGOTTEN = 24 * 3600.0
# Temporaries of this process, and its simulated ranks, that it could not remove.
_DISCARDED: set[Path] = set()
# To free a file of this many bytes takes longer than to start a thread, which may wait milliseconds
# for the interpreter.
_LARGE = 2**22
# Threads that free the disk space of files that were replaced; of all simulated ranks.
_FREEING: list[threading.Thread] = []
_C_LIBRARY = ctypes.CDLL(None, use_errno=True)
# Errors of renameat2 that mean that the system cannot exchange names.
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}
# Errors of fallocate that mean a full disk; with others, the file system cannot allocate.
_NO_ROOM = {errno.EDQUOT, errno.EFBIG, errno.ENOSPC}


class WriterLock:
    """The lock of a file or folder, on the rank that calls `take`. Everything is local.

    It is released by `release`, and when the object or the process is gone.
    """

    def __init__(self) -> None:
        self._end: weakref.finalize[Any, Any] | None = None

    def take(self, target: Path, *, shared: bool = False) -> None:
        """Lock a file, which need not exist; alone, or as ``shared`` with others for a moment.

        Where locks are impossible, a warning is logged. Raises BlockingIOError if another writer
        has the lock, in this process or another one.
        """
        if self._end is not None and self._end.alive:
            return
        path = _lock_path(target)
        try:
            handle = _lock(path, target, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in _IMPOSSIBLE:
                _warn_once(target.parent, error.strerror)
            elif not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise
            return
        self._end = weakref.finalize(self, _unlock, path, handle, os.getpid())
        if not shared:
            with contextlib.suppress(OSError):  # a full disk does not matter to the lock
                # Not by `handle`: NFS shows other hosts what was written when a file is closed.
                path.write_text(f"{_me()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")

    def release(self) -> None:
        """Let others write."""
        if self._end is not None:
            self._end()


def check_unlocked(target: Path) -> None:
    """Raise BlockingIOError if a file is open for writing."""
    if _lock_path(target).exists():
        lock = WriterLock()
        lock.take(target, shared=True)
        lock.release()


def _lock_path(target: Path) -> Path:
    return _hidden(target, "lock")


def _hidden(target: Path, suffix: str) -> Path:
    name = target.name
    if len(name) > _KEPT:
        name = f"{name[:_KEPT]}-{blake2b(os.fsencode(name), digest_size=4).hexdigest()}"
    return target.with_name(f".{name}.{suffix}")


def _lock(path: Path, target: Path, operation: int) -> int:
    end, collected = time.monotonic() + _PATIENCE, False
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666)
        except PermissionError:
            if not path.exists():
                raise
            handle = os.open(path, os.O_RDONLY | _FLAGS)  # a file of another user
        try:
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
            if _is_at(path, handle):  # else the holder before has removed it
                with contextlib.suppress(OSError):  # of another user
                    os.ftruncate(handle, 0)  # the text of a writer that was killed
                return handle
            _close(handle)
        except BaseException as error:
            _close(handle)
            if not isinstance(error, OSError):
                raise
            if error.errno not in _HELD:
                raise OSError(error.errno, f"cannot lock: {error.strerror}", str(path)) from None
        holder = ""
        with contextlib.suppress(OSError):  # removed by now
            holder = path.read_text(errors="replace")
        is_mine = holder.startswith(_me())
        if is_mine and not collected:  # perhaps one that nothing refers to
            gc.collect()
            collected = True
        elif holder or time.monotonic() > end:
            mine = " (this one)" if is_mine else ""
            msg = (
                f"{target} is open for writing by {holder or 'another program'}{mine}: close it "
                "there first, or choose another name; it can be read meanwhile"
            )
            raise BlockingIOError(EAGAIN, msg)
        else:
            time.sleep(_PAUSE)


def _unlock(path: Path, handle: int, process: int) -> None:
    try:
        with contextlib.suppress(OSError):
            if os.getpid() == process:  # not a copy of it, which has the descriptor, too
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if others share the lock
                if _is_at(path, handle):
                    path.unlink()
    finally:
        _close(handle)


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _me() -> str:
    return f"process {os.getpid()} on {platform.node()}"


@cache
def _warn_once(folder: Path, reason: str) -> None:
    LOG.warning(
        "cannot lock files in %s (%s): only one program at a time may write to a file",
        folder,
        reason,
    )


def _close(handle: int) -> None:
    with contextlib.suppress(OSError):  # it is closed all the same, and nothing depends on it
        os.close(handle)


def make_temporary(target: Path) -> Path:
    """Create an empty hidden file or folder beside the one to be written, or raise OSError."""
    if not target.parent.is_dir():
        msg = f"cannot save {target}: {target.parent} is not a directory; create it first"
        raise NotADirectoryError(msg) if target.parent.exists() else FileNotFoundError(msg)
    folder = is_zarr(target)
    # Another folder may hold what nobody wants to lose.
    if target.exists() and not (_is_store(target) if folder else target.is_file()):
        kind = "Zarr folder" if folder else "file"
        msg = f"cannot save {target}: it is not a {kind}; choose another name"
        raise IsADirectoryError(msg) if target.is_dir() else OSError(msg)
    temporary = _temporary(target)
    try:
        (temporary.mkdir if folder else temporary.touch)(exist_ok=False)
    except OSError as error:
        discard(temporary)  # it may have been made and not been closed
        msg = f"cannot save {target}: {error.strerror} in {target.parent}"
        raise OSError(error.errno, msg) from None  # of the same type
    return temporary


def _temporary(target: Path) -> Path:
    marks = f"{_machine()}-{os.getpid()}-{secrets.token_hex(6)}"
    return target.with_name(f".{target.name[:_KEPT]}.{marks}.tmp")


def hide(folder: Path) -> Path:
    """Make a folder a temporary, so that no part of it is seen while it is removed."""
    return folder.rename(_temporary(folder))


def clean(target: Path) -> None:
    """Remove temporaries of `target` that processes have left which are gone from this machine.

    Of other machines, whose processes cannot be seen: those not written to for a day.
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
    try:
        if name["place"] != _machine():
            return time.time() - file.stat().st_mtime > _FORGOTTEN
        os.kill(int(name["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # a process of another user, or the file is gone meanwhile
        return False
    return False


def _machine() -> str:
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

    `to_disk` brings the file to the disk; a caller that is `alone` has the lock of `target`. Raises
    OSError if the disk refuses or `target` is open for writing; it is then as it was.
    """
    if target.exists():
        with contextlib.suppress(OSError):
            shutil.copymode(target, temporary)
    (to_disk or sync)(temporary)
    lock, is_new = WriterLock(), False
    if not _lock_path(target).exists():
        with contextlib.suppress(OSError):  # there is one, or the file system has no hard links
            os.link(temporary, target)  # without a lock: nothing can be lost
            is_new = True
            discard(temporary)
    if not is_new:
        if not alone:
            lock.take(target, shared=True)
        try:
            _replace(temporary, target)
        finally:
            lock.release()
    # The file is whole and in place; not every file system lets a directory be synchronised.
    with contextlib.suppress(OSError):
        sync(target.parent)


def _replace(temporary: Path, target: Path) -> None:
    """Rename a file; a thread frees the one that it replaces: that takes long if it is large."""
    if temporary.is_dir():
        _replace_folder(temporary, target)
        return
    old, size = None, 0
    with contextlib.suppress(OSError):  # there is none, or it may not be read
        old = os.open(target, os.O_RDONLY)
        size = os.fstat(old).st_size
    try:
        temporary.replace(target)
    finally:
        if old is not None:
            _free(size, _close, old)


def _free(size: int, work: Callable[[Any], object], what: object) -> None:
    """Free what was replaced by `work`, which raises nothing; in a thread if that takes long."""
    thread = threading.Thread(target=work, args=(what,), name="pencils.free")
    with contextlib.suppress(RuntimeError):  # no more threads
        if size >= _LARGE:
            thread.start()
            _FREEING.append(thread)
            return
    work(what)


def _replace_folder(temporary: Path, target: Path) -> None:
    """Exchange two folders at once, and remove the old one; where that is impossible, rename it."""
    aside = _aside(target)
    if not target.exists():
        temporary.replace(target)
    elif _exchange(temporary, target):
        aside = temporary
    else:
        wait_for_space()
        discard(aside)  # of a process that was killed before it was removed
        target.replace(aside)
        try:
            temporary.replace(target)
        except BaseException:
            aside.replace(target)
            raise
    size = _LARGE  # if the disk fails, after the new folder has the name
    with contextlib.suppress(OSError):
        size = sum(path.lstat().st_size for path in aside.rglob("*"))
    _free(size, discard, aside)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders; return whether the system does so."""
    rename = getattr(_C_LIBRARY, "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    names = os.fsencode(one), os.fsencode(other)
    if rename is None or rename(here, names[0], here, names[1], exchange):
        if rename is not None and ctypes.get_errno() not in _NO_EXCHANGE:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))
        return False
    return True


def _is_store(folder: Path) -> bool:
    """Whether a folder holds Zarr, or nothing."""
    if not folder.is_dir():
        return False
    found = [path.name for path in folder.iterdir()]
    return not found or any(name in found for name in ("zarr.json", ".zgroup", ".zarray"))


def _aside(target: Path) -> Path:
    return _hidden(target, "old.zarr")


def recovered(path: str) -> str:
    """Return a path, or that of the old folder if a process was killed between two renames."""
    aside = _aside(Path(path)) if is_zarr(path) and not is_url(path) else None
    return str(aside) if aside and not Path(path).exists() and aside.exists() else path


def wait_for_space(left: int = 0) -> None:
    """Wait until the space of replaced files is free, but for `left` files."""
    while len(_FREEING) > left:
        _FREEING.pop(0).join()


def allocate(file: Path) -> None:
    """Allocate the disk space of a file with holes; raise OSError if the disk is full.

    A full disk is then found before data move, and ranks that write at once do not wait for each
    other's blocks: small files, too, are written up to three times faster. `os.posix_fallocate`
    would write to every block where the file system cannot allocate.
    """
    fallocate = getattr(_C_LIBRARY, "fallocate", None)
    if fallocate is None:  # as on macOS
        return
    with open_to_write(file, os.O_WRONLY) as handle:
        size, number = ctypes.c_int64(os.fstat(handle).st_size), 0
        for _ in range(2):
            failed = fallocate(handle, 0, ctypes.c_int64(0), size)
            number = ctypes.get_errno() if failed else 0
            if number not in _NO_ROOM:
                return
            wait_for_space()  # what replaced files have may be all that lacks
        raise OSError(number, os.strerror(number))


def discard(temporary: Path) -> None:
    """Remove a temporary, if it still exists, now or in the next `clean`; raise nothing."""
    try:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)
    except OSError:
        _DISCARDED.add(temporary)


def set_aside(path: Path, *, logs: bool = True) -> Path:
    """Rename a file that stays, but no longer counts; log the new name, and return it."""
    first = path.with_name(f"{path.name}.abandoned")
    numbered = (path.with_name(f"{first.name}-{number}") for number in count(2))
    aside = path.rename(next(one for one in chain([first], numbered) if not one.exists()))
    if logs:
        LOG.warning("%s is set aside as %s", path, aside.name)
    return aside


def sync(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    with open_to_write(path, os.O_RDONLY) as handle:
        os.fsync(handle)


# Hosts that are named in an error.
_MOST_HOSTS = 4
_SHARE = "give a path on a file system that all hosts share"
# What a rank finds at a path.
_SEEN, _ABSENT, _OTHER = range(3)


def check_seen(topology: Topology, path: str | Path, size: int | None = None) -> None:
    """Raise an error unless this rank sees a file of rank 0, for `naming_hosts`; local."""
    found = _SEEN if topology.known_nodes == 1 else _look(path, size)
    if found == _ABSENT:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if found == _OTHER:
        raise CheckpointError(f"{path} has another size than on rank 0")


@contextlib.contextmanager
def naming_hosts(check: Callable[[], object]) -> Iterator[None]:
    """Run a block with `check_seen`, whose errors all ranks raise; `check` then names the hosts.

    *Collective* if there is an error. So what all ranks see costs no collective.
    """
    try:
        yield
    except (FileNotFoundError, CheckpointError):
        check()
        raise


def check_visible_on_all_hosts(topology: Topology, verb: str, path: Path, new: Path) -> None:
    """Raise FileNotFoundError unless all ranks see a new file of rank 0. *Collective*."""
    hosts = _find_hosts(topology, new)
    if hosts and hosts[_ABSENT] and hosts[_SEEN]:
        seen = f"a new file in {new.parent} exists on {hosts[_SEEN]}, but not on {hosts[_ABSENT]}"
        raise FileNotFoundError(errno.ENOENT, f"cannot {verb} {path}: {seen}; {_SHARE}")


def check_folder(topology: Topology, given: str) -> None:
    """Check that all ranks see what rank 0 creates in a folder, or beside a file. *Collective*.

    If rank 0 cannot create anything, nothing is checked.
    """
    if topology.nodes == 1:
        return

    def make_probe() -> tuple[Path, Path | None]:
        path = Path(os.path.realpath(given))
        with contextlib.suppress(OSError):  # whatever uses the folder raises a better error
            return path, make_temporary(path / "probe" if path.is_dir() else path)
        return path, None

    path, probe = from_root(topology.comm, make_probe)
    if probe is None:
        return
    try:
        check_visible_on_all_hosts(topology, "write", path, probe)
    finally:
        if topology.rank == 0:
            discard(probe)


def seen_alike(topology: Topology, file: FileInfo) -> contextlib.AbstractContextManager[None]:
    """Return the block with `check_seen` of a file: errors name the hosts that see another one."""
    return naming_hosts(partial(_check_same, topology, file.path, file.identity.size))


def describe_seen(topology: Topology, given: str, describe: Callable[[str], FileInfo]) -> FileInfo:
    """Describe a file by its real path on rank 0, for all ranks. *Collective*.

    Raises what `describe` raises, on every rank, and FileNotFoundError if other hosts have the
    file. Whether these have the same one is left to `check_seen`.
    """
    try:
        return from_root(topology.comm, lambda: describe(recovered(real_path(given))))
    except FileNotFoundError:
        _check_same(topology, from_root(topology.comm, lambda: real_path(given)))
        raise


def _check_same(topology: Topology, path: str, size: int | None = None) -> None:
    """Raise an error that names hosts without a file, or with one of another size. *Collective*."""
    hosts = _find_hosts(topology, path, size)
    if hosts is None or not hosts[_SEEN]:
        return
    seen, absent, other = hosts
    if absent:
        msg = f"cannot load {path}: it exists on {seen}, but not on {absent}; {_SHARE}"
        raise FileNotFoundError(errno.ENOENT, msg)
    if other:
        msg = f"cannot load {path}: it has another size on {other} than on {seen}; {_SHARE}"
        raise CheckpointError(msg)


def _find_hosts(topology: Topology, path: str | Path, size: int | None = None) -> list[str] | None:
    """Name the hosts that see a file, do not, or see another size; None if all see it."""
    if topology.nodes == 1:
        return None
    found = _look(path, size)
    if not topology.any_of([found != _SEEN])[0]:
        return None
    hosts: list[dict[str, str]] = [{}, {}, {}]  # with one rank of each
    mine = MPI.Get_processor_name(), topology.rank, found
    for name, rank, seen in topology.comm.allgather(mine):
        hosts[seen].setdefault(name, f"{name} (rank {rank})")
    texts = (", ".join([*names.values()][:_MOST_HOSTS]) for names in hosts)
    more = (len(names) - _MOST_HOSTS for names in hosts)
    return [text + f" and {n} more" * (n > 0) for text, n in zip(texts, more, strict=True)]


def _look(path: str | Path, size: int | None) -> int:
    """Look for a file; local. File systems of networks ask the server only if a file is opened."""
    if is_url(path):
        return _SEEN
    try:
        with open_to_read(str(path)) as handle:
            return _SEEN if size in (None, os.fstat(handle).st_size) else _OTHER
    except FileNotFoundError:
        return _ABSENT
    except Exception:  # noqa: BLE001 - whatever reads it raises a better error, on all ranks
        return _SEEN
