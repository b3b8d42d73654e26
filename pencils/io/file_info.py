"""A file as rank 0 found it, told from one that takes its name later."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pencils.comm.agree import agreed
from pencils.errors import CheckpointError

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")


class Identity(NamedTuple):
    """What tells files apart, and a file from itself after a change; as one rank sees it."""

    device: int
    inode: int
    modified: int
    size: int

    @classmethod
    def of(cls, path: str) -> Identity:
        """Identify the file that has a name now; zeros if there is none."""
        try:
            found = Path(path).stat()
        except OSError:  # who opens it says that better
            return cls(0, 0, 0, 0)
        return cls(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)

    def check_unchanged(self, path: str) -> None:
        """Raise if another file has the name, or this one was written to.

        Raises
        ------
        CheckpointError
            If that is so.
        """
        if Identity.of(path) != self:
            raise _replaced(path)

    def check_in_place(self, path: str) -> None:
        """Raise if another file has the name; this one may have been written to, or have grown.

        Raises
        ------
        CheckpointError
            If that is so.
        """
        now = Identity.of(path)
        if (now.device, now.inode) != (self.device, self.inode):
            raise _replaced(path)


def _replaced(path: str) -> CheckpointError:
    return CheckpointError(f"{path} was replaced or changed while it was in use; read it again")


class FileInfo(NamedTuple, Generic[T]):
    """What rank 0 found in a file."""

    path: str
    identity: Identity
    found: T

    def check_in_place(self, comm: MPI.Intracomm, call: str) -> None:
        """Raise if another file has taken its name. *Collective*.

        Raises
        ------
        CheckpointError
            On every rank, if that is so.
        """
        with agreed(comm, call):
            if comm.rank == 0:
                self.identity.check_in_place(self.path)


def inspect_on_root(
    comm: MPI.Intracomm, call: str, path: str, inspect: Callable[[str], T]
) -> FileInfo[T]:
    """Let rank 0 look into a file, for all. *Collective*.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator.
    call : str
        What is being called.
    path : str
        The file, as rank 0 finds it.
    inspect : callable
        Looks into the file whose real path it is given.

    Returns
    -------
    FileInfo
        The same on every rank.

    Raises
    ------
    CheckpointError, OSError
        On every rank, what `inspect` raises.
    """
    seen: FileInfo[T] | None = None
    with agreed(comm, call):
        if comm.rank == 0:
            real = os.path.realpath(path)
            # Before anything is read: what takes its name meanwhile is another file.
            identity = Identity.of(real)
            seen = FileInfo(real, identity, inspect(real))
    everywhere: FileInfo[T] = comm.bcast(seen)
    return everywhere
