"""System calls and their errors, and work on rank 0, for all that reads or writes files."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from pencils.comm.agree import agreed
from pencils.comm.failure import Fault
from pencils.errors import CheckpointError, PencilsError

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")

_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
# In the error texts of HDF5; h5py raises them as errors of many types.
_NUMBER = re.compile(r"errno = (\d+)")


def on_root(comm: MPI.Intracomm, call: str, work: Callable[[], T]) -> T:
    """Return on all ranks what `work` returns on rank 0, or raise its error. *Collective*.

    `call` is the public function that needs the result, for error texts.
    """
    with agreed(comm, call):
        pass
    return from_root(comm, work)


def from_root(comm: MPI.Intracomm, work: Callable[[], T]) -> T:
    """Do what `on_root` does, where all ranks have just agreed on the call. *Collective*."""
    found: T | Fault | None = None
    cause: Exception | None = None
    if comm.rank == 0:
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - raised on all ranks
            found, cause = Fault.of(error), error
    if comm.size > 1:
        found = comm.bcast(found)
    if isinstance(found, Fault):
        raise cause if cause and comm.size == 1 else found.error(0) from cause
    return cast("T", found)


def open_regular(path: str) -> int:
    """Open a regular file for reading, and return its descriptor. Never waits.

    Raises CheckpointError for a FIFO, a socket or a device, OSError if the file cannot be opened.
    """

    def check_kind(mode: int) -> None:
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            kind = _KINDS.get(stat.S_IFMT(mode), "special file")
            raise CheckpointError(
                f"{path} is a {kind}, not a regular file; give the name of an HDF5 file"
            )

    try:
        check_kind(Path(path).stat().st_mode)  # before: opening a device can change it
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        where = f"; check the path, the working directory is {Path.cwd()}"
        hint = where if isinstance(error, FileNotFoundError) else ""
        msg = f"cannot load {path}: {error.strerror}{hint}"
        raise OSError(error.errno, msg) from None  # of the same type
    try:
        check_kind(os.fstat(handle).st_mode)  # after: another file may have the name now
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextmanager
def open_to_read(path: str) -> Iterator[int]:
    """Open a file as `open_regular` does, for a ``with`` block, whose errors name the file."""
    handle = open_regular(path)
    with system("read", path):
        try:
            yield handle
        finally:
            os.close(handle)


@contextmanager
def open_to_write(path: str | Path, flags: int = os.O_RDWR) -> Iterator[int]:
    """Open a file for system calls in a ``with`` block, whose errors name the file."""
    with system("write", path):
        handle = os.open(path, flags)
        try:
            yield handle
        finally:
            os.close(handle)


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


def number_of(error: BaseException | None) -> int | None:
    """Return the errno of the system error that caused another error; None if there was none.

    Examples
    --------
    >>> number_of(KeyError("Unable to open object (file read failed: errno = 5)"))
    5
    """
    seen: list[BaseException] = []  # an error may be among the causes of its own causes
    while error is not None and error not in seen:
        seen.append(error)
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        found = _NUMBER.search(str(error))
        if found and int(found[1]):
            return int(found[1])
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def system(verb: str, path: object) -> Iterator[None]:
    """Use h5py in a ``with`` block; raise errors of the system as "cannot `verb` `path`: why"."""
    try:
        yield
    except (PencilsError, BlockingIOError):  # the latter names the writer that has the lock
        raise
    except Exception as error:
        number = number_of(error)
        if number is None:
            raise
        msg = f"cannot {verb} {path}: {os.strerror(number)}"
        raise OSError(number, msg) from error


@contextmanager
def reading(path: str, damage: str = "is a damaged HDF5 file: {}") -> Iterator[None]:
    """Read by a library in a ``with`` block; other errors than those of the system mean damage.

    Raises OSError with its errno, or CheckpointError with `damage`, in which the error is put.
    """
    try:
        with system("read", path):
            yield
    except (PencilsError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CheckpointError(f"{path} {damage.format(error)}") from error
