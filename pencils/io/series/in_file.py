"""Append to a series in one file, all ranks together."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.reduce import allreduce
from pencils.io.commit import clean, commit, discard, made, make_temporary
from pencils.io.file_info import Stored
from pencils.io.options import already_there
from pencils.io.series.state import SUMS, TIME, SeriesState
from pencils.io.slabs import FileBlocks, Slabs
from pencils.io.writers import write_slab

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI
    from pencils.io.series.one_file import OneFile


class InFile:
    """A series in one file. Everything is *Collective*.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator.
    path : str
        The file, as all ranks find it.
    attrs : mapping of str to object
        Attributes of a new file.
    mode : {"a", "w", "x"}
        Whether to continue what is there, to start anew in its place, or only where nothing is.
    edited : bool, optional
        Whether to continue what another program has changed.
    """

    summed = True

    def __init__(
        self,
        comm: MPI.Intracomm,
        path: str,
        attrs: Mapping[str, Any],
        *,
        mode: str,
        edited: bool = False,
    ) -> None:
        self._comm = comm
        self.path = path
        self._file: OneFile | None = None
        # Removes, on rank 0, a new series that never takes the place of the old one.
        self._remove: weakref.finalize[Any, Any] | None = None
        with agreed(comm, "TimeSeries"):
            if comm.rank == 0:
                self._file = self._open(attrs, mode, edited=edited)

    @property
    def state(self) -> SeriesState | None:
        """What the series holds, on rank 0."""
        return None if self._file is None else self._file.state

    def append(
        self,
        time: float,
        step: int,
        fields: Mapping[str, PencilArray],
        values: Mapping[str, Stored],
    ) -> None:
        """Add a snapshot."""
        found: tuple[str, dict[str, FileBlocks]] | None = None
        with agreed(self._comm, "append"):
            if self._file is not None:
                found = self._file.path, self._file.place()
        path, places = self._comm.bcast(found)
        sums = _write(self._comm, path, step, fields, places)
        with agreed(self._comm, "append"):
            if self._file is not None:
                row: dict[str, Any] = {name: value.data for name, value in values.items()}
                row |= {SUMS + name: sums[name] for name in fields}
                with self._file.state.changing(), self._taking_place(self._file):
                    self._file.commit({TIME: time, **row}, places)

    def truncate(self, count: int) -> None:
        """Keep the first snapshots only."""
        with agreed(self._comm, "truncate"):
            if self._file is not None:
                with self._file.state.changing():
                    self._file.cut(count)

    def close(self) -> None:
        """End appending."""
        with agreed(self._comm, "close"):
            if self._file is not None and (self._remove is None or self._remove.alive):
                with self._taking_place(self._file):
                    self._file.close()

    def abandon(self) -> None:
        """Leave what was there before, if there is nothing to replace it. Local."""
        if self._remove is not None:
            if self._file is not None:
                self._file.close()
            self._remove()

    def _open(self, attrs: Mapping[str, Any], mode: str, *, edited: bool) -> OneFile:
        from pencils.io.series.one_file import OneFile, create  # only rank 0 needs h5py

        target, state = Path(self.path), SeriesState(dict(attrs))
        if not target.exists():
            with made(target) as temporary:
                create(str(temporary), state)
        elif mode == "x":
            raise already_there(self.path)
        elif mode == "w":
            return self._start_beside(target, state)
        return OneFile(self.path, edited=edited)

    def _start_beside(self, target: Path, state: SeriesState) -> OneFile:
        """Start a series under a temporary name, which it keeps until its first snapshot."""
        from pencils.io.series.one_file import OneFile, create

        clean(target)
        temporary = make_temporary(target)
        self._remove = weakref.finalize(self, discard, temporary)
        try:
            create(str(temporary), state)
            return OneFile(str(temporary))
        except BaseException:
            self._remove()
            raise

    @contextmanager
    def _taking_place(self, file: OneFile) -> Iterator[None]:
        """Let a new series take the place of the old one when the block has written to it."""
        if self._remove is None:
            yield
            return
        try:
            yield
            commit(Path(file.path), Path(self.path))
        except BaseException:
            file.close()
            self._remove()
            raise
        file.path = self.path
        self._remove.detach()
        self._remove = None


def _write(
    comm: MPI.Intracomm,
    path: str,
    step: int,
    fields: Mapping[str, PencilArray],
    places: Mapping[str, FileBlocks],
) -> dict[str, int]:
    """Write fields at new places; return their checksums, as part of all snapshots."""
    sums = np.zeros(len(places), np.uint64)
    with closing(Slabs()) as slabs, SharedFile(comm, path, write=True) as file:
        for number, (name, place) in enumerate(places.items()):
            slab = slabs.of(fields[name])
            with agreed(comm, "append"):
                sums[number] = write_slab(file, slab, place, first=step * slab.size)
    totals = allreduce(comm, sums, np.add)
    return {name: int(total) for name, total in zip(places, totals, strict=True)}
