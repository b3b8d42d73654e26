"""A file that is being made: laid out under a temporary name, to be filled, sealed and renamed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from pencils.comm.agree import agreed
from pencils.comm.reduce import allreduce
from pencils.io.commit import clean, commit, discard, make_temporary
from pencils.io.contents import Contents
from pencils.io.entry import Entry
from pencils.io.reserve import reserve

if TYPE_CHECKING:
    from mpi4py import MPI


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
        Whether there shall be checksums.
    """

    attrs: Mapping[str, Any]
    facts: Mapping[str, Any]
    align: int
    summed: bool


class Draft:
    """A file under a temporary name; a ``with`` block removes it if something goes wrong.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator. *Collective*.
    path : str
        The name to be; that on rank 0 counts.
    contents : Contents
        What shall be in it.
    header : Header
        What else shall be in it.

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
        made: tuple[Path, Path, list[Entry]] | None = None
        with agreed(comm, "save"):
            if comm.rank == 0:
                target = Path(os.path.realpath(path))
                made = target, *_begin(target, contents, header)
        self._target, self._temporary, self.entries = comm.bcast(made)

    @property
    def path(self) -> str:
        """The temporary name."""
        return str(self._temporary)

    @property
    def target(self) -> str:
        """The name to be."""
        return str(self._target)

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
        named = dict(zip(sums, map(int, totals), strict=True)) if self.summed else {}
        with agreed(self._comm, "save"):
            if self._comm.rank == 0:
                _finish(self._temporary, self._target, named)

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


def _begin(target: Path, contents: Contents, header: Header) -> tuple[Path, list[Entry]]:
    """Lay out the file under a temporary name."""
    from pencils.io import create  # of all ranks, only this one needs h5py

    clean(target)
    temporary = make_temporary(target)
    try:
        plan = create.Plan(
            contents.entries,
            contents.values,
            contents.scales,
            header.attrs,
            {"version": _version(), **header.facts},
            contents.chunking.compression,
        )
        entries = create.lay_out(str(temporary), plan, align=header.align, summed=header.summed)
        reserve(str(temporary))
    except BaseException as error:
        discard(temporary)
        if isinstance(error, OSError | RuntimeError):  # h5py tells of a failed flush by the latter
            number = getattr(error, "errno", None)
            why = str(error) if number is None else os.strerror(number)
            msg = f"cannot save {target}: {why}"
            raise (OSError(msg) if number is None else OSError(number, msg)) from error
        raise
    return temporary, entries


def _version() -> str:
    try:
        return metadata.version("pencils")
    except metadata.PackageNotFoundError:
        return "not installed"


def _finish(temporary: Path, target: Path, sums: Mapping[str, int]) -> None:
    from pencils.io import create

    create.seal(str(temporary), sums)
    commit(temporary, target)
