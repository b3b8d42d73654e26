"""Open files, to read and write parts of their fields."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pencils.comm.agree import agreed
from pencils.comm.fault import CollectiveBlock
from pencils.comm.file import SharedFile
from pencils.comm.reduce import allreduce
from pencils.errors import ArgumentError
from pencils.io.file_access import on_root
from pencils.io.file_info import Access, FileInfo, Identity
from pencils.io.options import read_path
from pencils.io.root_io import format_of
from pencils.io.seal import reseal
from pencils.io.stored_field import StoredField
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


def open(  # noqa: A001 - as in h5py, netCDF4, zarr, and used as ``pencils.open``
    path: str | os.PathLike[str],
    mode: Literal["r", "r+"] = "r",
    comm: MPI.Intracomm | None = None,
    *,
    edited: bool = False,
    external: bool = False,
) -> OpenFile:
    """Open a file to read or write parts of its fields. *Collective*.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    mode : {"r", "r+"}, optional
        "r" to read, "r+" also to write into existing fields.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that use it. Default: all.
    edited, external : bool, optional
        As in `load`.

    Returns
    -------
    OpenFile
        Its fields by name; use it in a ``with`` block.

    Raises
    ------
    CheckpointError
        On every rank, if the file is not complete, or `load` would refuse it.
    OSError
        On every rank, if the file cannot be opened.
    ArgumentError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import tempfile, pencils
    >>> pen = pencils.Pencil((4, 6))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pen, components=3)})
    ...     with pencils.open(f"{folder}/run.h5", "r+") as file:
    ...         file["u"].write(pencils.zeros(pen), key=2)
    ...         every_second = ..., slice(None, None, 2), slice(None, None, 2)
    ...         coarse = file["u"].read(pencils.Pencil((2, 3)), every_second)
    >>> coarse.shape, coarse.sum()
    ((3, 2, 3), np.float64(12.0))
    """
    ranks = Pencil(1, comm)
    private = ranks.topology.comm
    with agreed(private, "open") as same:
        given = read_path(path)
        if mode not in ("r", "r+"):
            msg = f"mode={mode!r} must be 'r' to read, or 'r+' to write into fields, too"
            raise ArgumentError(msg)
        access = Access(edited=bool(edited), external=bool(external))
        same(path=given, mode=mode, edited=access.edited, external=access.external)
    file = on_root(
        private,
        "open",
        lambda: format_of(given).describe_fields(os.path.realpath(given), access),
    )
    return OpenFile(file, ranks, writable=mode == "r+")


class OpenFile(CollectiveBlock, Mapping[str, StoredField]):
    """The fields of a file, by name; made by `pencils.open`.

    Leaving a ``with`` block of a file that is open for writing is *Collective*. If the block fails
    on any rank, all ranks raise, and the checksums are not corrected: `verify` then names the
    fields that were written to, until all ranks call `close`.
    """

    __slots__ = (
        "__weakref__",
        "_fields",
        "_file",
        "_is_collective",
        "_ranks",
        "_shared",
        "_writable",
    )

    def __init__(self, file: FileInfo, ranks: Pencil, *, writable: bool) -> None:
        comm = ranks.topology.comm
        self._ranks = ranks
        self._writable = self._is_collective = writable
        # Of this rank, because every machine numbers files in its own way.
        self._file = file._replace(identity=Identity.of(file.path))
        # To read, too: while it is open here, no other file gets the number of this one.
        self._shared = SharedFile(comm, file.path, write=writable)
        weakref.finalize(self, self._shared.close)
        file.check_in_place(comm, "open")
        self._fields = {
            dataset.name: StoredField(dataset, self._file, ranks, self._writer)
            for dataset in file.datasets
        }

    @property
    def path(self) -> str:
        """The file."""
        return self._file.path

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the file."""
        return self._file.attrs

    @property
    def step(self) -> int | None:
        """Number of the time step; None if the file has none."""
        return self._file.step

    @property
    def time(self) -> float | None:
        """Time of the run; None if the file has none."""
        return self._file.time

    def close(self) -> None:
        """Correct the checksums of what was written, and close. *Collective*.

        After an error the file is still open, and `close` can be called again.

        Raises
        ------
        CheckpointError
            On every rank, if another file has taken the name of this one, which is left alone.
        OSError
            On every rank, if that fails on any.
        """
        if self._writable:
            self._shared.check()
            self._correct()
            self._writable = False
        self._shared.close()  # this loses nothing: what was written is on the disk

    def _writer(self) -> SharedFile:
        """Return the file, open for writing; raise ArgumentError if it is not."""
        if not self._writable:
            msg = f"{self.path} is not open for writing; use pencils.open(path, 'r+')"
            raise ArgumentError(msg)
        return self._shared

    def _correct(self) -> None:
        """Correct the checksums of what was written. *Collective*."""
        comm = self._ranks.topology.comm
        fields = [field for field in self._fields.values() if field.is_to_correct]
        changes = allreduce(comm, np.array([field.change for field in fields], np.uint64), np.add)
        with agreed(comm, "close"):
            if fields and comm.rank == 0:
                self._file.identity.check_in_place(self.path)
                pairs = zip(fields, changes, strict=True)
                sums = {field.dataset.name: field.sum_after(int(change)) for field, change in pairs}
                reseal(self.path, sums)

    def _block_comm(self) -> MPI.Intracomm | None:
        return self._ranks.topology.comm if self._is_collective else None

    def _end_block(self) -> None:
        self.close()

    def _give_up(self, _error: BaseException, /) -> None:
        """Leave the file open, so that `close` can be called."""

    def __getitem__(self, name: str) -> StoredField:
        if name not in self._fields:
            msg = f"{self.path} has no field {name!r}; it has {', '.join(self._fields) or 'none'}"
            raise KeyError(msg)
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        lines = [f"  {name}: {field.shape} {field.dtype}" for name, field in self.items()]
        return "\n".join([f"<OpenFile {self.path}", *lines]) + ">"
