"""What rank 0 found in a file, for all ranks. Independent of the file format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pencils.comm.agree import agreed
from pencils.errors import CheckpointError
from pencils.io.dataset_info import DatasetInfo
from pencils.io.values import Stored

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Access(NamedTuple):
    """What the user allows when a file is read: the arguments of `load` of the same names."""

    verify: bool = True
    edited: bool = False
    external: bool = False


class Identity(NamedTuple):
    """Numbers that differ between files, and before and after a change; valid on one rank."""

    device: int
    inode: int
    modified: int
    size: int

    @classmethod
    def of(cls, path: str) -> Identity:
        """Identify the file that has a name now; zeros if there is none."""
        try:
            found = Path(path).stat()
        except OSError:  # opening it raises a better error
            return cls(0, 0, 0, 0)
        return cls(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)

    def check_unchanged(self, path: str) -> None:
        """Raise CheckpointError if another file has the name, or this one was written to."""
        if Identity.of(path) != self:
            raise _replaced(path)

    def check_in_place(self, path: str) -> None:
        """Raise CheckpointError if another file has the name; this one may have changed."""
        now = Identity.of(path)
        if (now.device, now.inode) != (self.device, self.inode):
            raise _replaced(path)


class FileInfo(NamedTuple):
    """Contents of a file: its datasets, and what is small enough to be read at once.

    Parameters
    ----------
    path : str
        The file.
    identity : Identity
        Of the file, before anything was read, on rank 0.
    datasets : list of DatasetInfo
        Descriptions of the fields; for `verify`, of all datasets that have a checksum.
    values : dict of str to Stored
        Values, which all ranks get.
    attrs : dict of str to object
        Attributes of the user.
    step : int or None
        Number of the time step.
    time : float or None
        Time of the run.
    """

    path: str
    identity: Identity
    datasets: list[DatasetInfo]
    values: dict[str, Stored]
    attrs: dict[str, Any]
    step: int | None
    time: float | None

    def check_in_place(self, comm: MPI.Intracomm, call: str) -> None:
        """Raise CheckpointError if another file has the name. *Collective*."""
        with agreed(comm, call):
            if comm.rank == 0:
                self.identity.check_in_place(self.path)


def _replaced(path: str) -> CheckpointError:
    return CheckpointError(f"{path} was replaced or changed while it was in use; read it again")
