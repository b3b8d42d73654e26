"""Raw bytes to the places that HDF5 gave them: what needs nothing but h5py on rank 0."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from pencils.array.pencil_array import PencilArray
from pencils.comm.file import SharedFile
from pencils.io.checksum import checksum
from pencils.io.dataset_info import DatasetInfo
from pencils.io.progress import Told, ignore
from pencils.io.slabs import Run, Slabs, pieces, runs
from pencils.io.writers import Part, Writer

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


@contextmanager
def open_direct(comm: MPI.Intracomm, path: str, *, summed: bool, moved: Told) -> Iterator[Writer]:
    """Open a file that is laid out for writing by all ranks. *Collective*.

    In the end what was written is on the disk.

    Raises
    ------
    OSError
        On every rank, if that fails on any.
    """
    with (
        SharedFile(comm, path, write=True) as file,
        closing(Direct(file, Slabs(), summed=summed, moved=moved)) as writer,
    ):
        yield writer


class Direct:
    """Writes fields as slabs, every rank its own.

    Parameters
    ----------
    file : SharedFile
        Where to write.
    slabs : Slabs
        Brings fields to slabs.
    summed : bool
        Whether to compute checksums.
    moved : callable, optional
        Told how many bytes were written, now and then.
    """

    def __init__(
        self, file: SharedFile, slabs: Slabs, *, summed: bool, moved: Told = ignore
    ) -> None:
        self._file = file
        self._slabs = slabs
        self._summed = summed
        self._moved = moved

    def take(self, field: PencilArray, entry: DatasetInfo) -> Part:
        """Bring a field to slabs. *Collective*."""
        slab = self._slabs.of(field)
        return _DirectPart(self._file, slab, entry, summed=self._summed, moved=self._moved)

    def close(self) -> None:
        """Give back the slabs."""
        self._slabs.close()


class _DirectPart:
    """A slab on its way to the file; its memory is given back when it is there."""

    def __init__(
        self, file: SharedFile, slab: PencilArray, entry: DatasetInfo, *, summed: bool, moved: Told
    ) -> None:
        self._file = file
        self._offset = entry.offset or 0
        self._summed = summed
        self._moved = moved
        self._sum = 0
        mine = slab.extent.layout.is_first_replica(slab.pencil.rank)
        self._runs = deque(runs(slab) if mine else ())

    def work(self) -> None:
        while self._runs:
            run = self._runs.popleft()
            self._sum += write_run(
                self._file, self._offset, run, summed=self._summed, moved=self._moved
            )
        self._file.complain()

    def finish(self) -> int:
        return self._sum % 2**64


def write_run(
    file: SharedFile,
    start: int,
    run: Run,
    *,
    first: int = 0,
    summed: bool = True,
    moved: Told = ignore,
) -> int:
    """Write a run of a field whose bytes begin at `start`, piece by piece. Local.

    Returns
    -------
    int
        Sum over the run as a part of an array in which the field begins at element `first`; zero
        without ``summed``.
    """
    total = 0
    for offset, piece in pieces(Run(run.offset, np.ascontiguousarray(run.block))):
        file.write(start + offset, piece)
        if summed:
            total += checksum(piece, first + offset // piece.dtype.itemsize)
        moved(piece.nbytes)
    return total % 2**64
