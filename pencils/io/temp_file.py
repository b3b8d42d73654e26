"""A new file under a temporary name: rank 0 lays it out, seals it, and gives it its name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from pencils.comm.agree import agreed
from pencils.comm.reduce import allreduce
from pencils.io.commit import allocate, clean, commit, discard, make_temporary
from pencils.io.contents import Contents
from pencils.io.file_access import system
from pencils.io.file_info import DatasetInfo
from pencils.io.manifest import Extent
from pencils.io.seal import seal_new

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Header(NamedTuple):
    """What `save` was given besides the contents.

    Parameters
    ----------
    attrs : mapping of str to object
        Attributes of the user.
    facts : mapping of str to object
        Step and time of the run.
    align : int
        Datasets of that many bytes and more begin at multiples of it.
    summed : bool
        Whether to store checksums.
    """

    attrs: Mapping[str, Any]
    facts: Mapping[str, Any]
    align: int
    summed: bool


class TempFile:
    """A file under a temporary name; a ``with`` block removes it after an error.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator. *Collective*.
    path : str
        The name to be; that on rank 0 counts.
    contents : Contents
        Fields, values and coordinates.
    header : Header
        Attributes and options.

    Raises
    ------
    TypeError
        On every rank, if HDF5 has no such element type or attribute.
    OSError
        On every rank, if the file cannot be written.
    """

    def __init__(self, comm: MPI.Intracomm, path: str, contents: Contents, header: Header) -> None:
        self._comm = comm
        self._rank = comm.rank
        self.summed = header.summed
        self.align = header.align
        self.compression = contents.chunking.compression
        self._values: list[DatasetInfo] = []  # this and the next on rank 0 only
        self._chunks: list[Extent] = []
        made: tuple[Path, Path, list[DatasetInfo]] | None = None
        with agreed(comm, "save"), system("save", path):
            if comm.rank == 0:
                target = Path(os.path.realpath(path))
                temporary, fields, self._values = _begin(target, contents, header)
                made = target, temporary, fields
        self._target, self._temporary, self.entries = comm.bcast(made)

    @property
    def path(self) -> str:
        """The temporary name."""
        return str(self._temporary)

    @property
    def target(self) -> str:
        """The name to be."""
        return str(self._target)

    def note_chunks(self, extents: Iterable[Extent]) -> None:
        """Remember where chunks are, on rank 0. Local."""
        self._chunks.extend(extents)

    def finish(self, sums: Mapping[str, int]) -> None:
        """Seal the file, which is whole, and give it its name. *Collective*.

        Parameters
        ----------
        sums : mapping of str to int
            This rank's parts of the checksums of fields.

        Raises
        ------
        OSError
            On every rank, if that fails.
        """
        totals = allreduce(self._comm, np.array(list(sums.values()), np.uint64), np.add)
        named = dict(zip(sums, map(int, totals), strict=True))
        with agreed(self._comm, "save"), system("save", self._target):
            if self._comm.rank == 0:
                entries = self._values + [
                    replace(entry, checksum=named.get(entry.name, 0)) if self.summed else entry
                    for entry in self.entries
                ]
                _finish(self._temporary, self._target, entries, self._chunks)

    def discard(self) -> None:
        """Remove the file, if it has not got its name. Local, even if the communicator is gone."""
        if self._rank == 0:
            discard(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.discard()


def _begin(
    target: Path, contents: Contents, header: Header
) -> tuple[Path, list[DatasetInfo], list[DatasetInfo]]:
    """Lay out the file under a temporary name, and describe its fields and values."""
    from pencils.io import create  # of all ranks, only this one needs h5py

    clean(target)
    temporary = make_temporary(target)
    try:
        plan = create.FilePlan(
            contents.entries,
            contents.values,
            contents.scales,
            header.attrs,
            {"version": _version(), **header.facts},
            contents.chunking.compression,
        )
        found = create.lay_out(str(temporary), plan, align=header.align, summed=header.summed)
        allocate(temporary)
    except BaseException:
        discard(temporary)
        raise
    return temporary, *found


def _version() -> str:
    try:
        return metadata.version("pencils")
    except metadata.PackageNotFoundError:
        return "not installed"


def _finish(
    temporary: Path, target: Path, entries: Sequence[DatasetInfo], chunks: Sequence[Extent]
) -> None:
    from pencils.io import create

    path = str(temporary)
    fields = {entry.name: entry.checksum for entry in entries if not entry.kind}
    create.seal(path, {name: total for name, total in fields.items() if total is not None})
    summed = [entry for entry in entries if not entry.kind or entry.checksum is not None]
    whole = [(entry.offset, entry.nbytes) for entry in summed if entry.offset is not None]
    seal_new(path, entries, [*whole, *chunks])
    commit(temporary, target)
