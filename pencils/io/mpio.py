"""Collective writes by HDF5 itself, through an h5py that was built with MPI.

All ranks agree before and after each collective call, so that what fails beforehand, or fails in
HDF5 on any rank, raises everywhere. Two things cannot be promised, because HDF5 and MPI do not
promise them either. A collective call that fails on one rank may leave others waiting. And a disk
that fills up meanwhile may go unnoticed: Open MPI 4 calls such writes a success. Where the file
system can claim space beforehand this cannot happen, elsewhere only the checksums tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from errno import EIO
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.reduce import allreduce
from pencils.io.checksum import checksum
from pencils.io.dataset_info import DatasetInfo
from pencils.io.progress import Told
from pencils.io.slabs import Slabs, runs
from pencils.io.writers import Part, Writer

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# What a rank writes in one call; MPI counts bytes in 32-bit integers below HDF5.
PIECE_BYTES = 2**30

Box = tuple[range, ...]


@contextmanager
def open_mpio(comm: MPI.Intracomm, path: str, *, summed: bool, moved: Told) -> Iterator[Writer]:
    """Open a file that is laid out for collective writing by HDF5. *Collective*.

    In the end what was written is on the disk.

    Raises
    ------
    OSError
        On every rank, if that fails on any.
    """
    import h5py

    with agreed(comm, "open"), _as_os_error("open", path):
        file = h5py.File(path, "r+", driver="mpio", comm=comm)
    try:
        with closing(Mpio(comm, file, summed=summed, moved=moved)) as writer:
            yield writer
        with agreed(comm, "sync"), _as_os_error("sync", path):
            file.flush()
    except BaseException:
        with suppress(OSError), agreed(comm, "close"), _as_os_error("close", path):
            file.close()
        raise
    with agreed(comm, "close"), _as_os_error("close", path):
        file.close()


class Mpio:
    """Writes fields as slabs by collective calls of HDF5.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator.
    file : h5py.File
        The file, open on all ranks.
    summed : bool
        Whether to compute checksums.
    moved : callable
        Told how many bytes were written, now and then.
    """

    def __init__(self, comm: MPI.Intracomm, file: Any, *, summed: bool, moved: Told) -> None:
        self._comm = comm
        self._file = file
        self._summed = summed
        self._moved = moved
        self._slabs = Slabs()

    def take(self, field: PencilArray, entry: DatasetInfo) -> Part:
        """Bring a field to slabs. *Collective*."""
        slab = self._slabs.of(field)
        with agreed(self._comm, "save"):
            dataset = self._file[entry.name]
        return _MpioPart(self._comm, dataset, slab, summed=self._summed, moved=self._moved)

    def close(self) -> None:
        """Give back the slabs."""
        self._slabs.close()


class _MpioPart:
    """A slab on its way to a dataset."""

    def __init__(
        self, comm: MPI.Intracomm, dataset: Any, slab: PencilArray, *, summed: bool, moved: Told
    ) -> None:
        self._comm = comm
        self._dataset = dataset
        self._slab = slab
        self._summed = summed
        self._moved = moved
        self._mine = slab.extent.layout.is_first_replica(slab.pencil.rank)
        self._sum = 0

    def work(self) -> None:
        if self._summed and self._mine:
            itemsize = self._slab.dtype.itemsize
            self._sum = sum(checksum(run.block, run.offset // itemsize) for run in runs(self._slab))

    def finish(self) -> int:
        block = self._slab.local
        most = max(1, PIECE_BYTES // block.dtype.itemsize)
        boxes = list(_cut(tuple(map(range, block.shape)), most)) if self._mine else []
        rounds = int(allreduce(self._comm, np.array([len(boxes)]), np.maximum)[0])
        for number in range(rounds):
            box = boxes[number] if number < len(boxes) else None
            with agreed(self._comm, "write"):  # one rank may have no memory for a copy
                piece = _piece(block, box)
            with agreed(self._comm, "write"), _as_os_error("write", self._dataset.file.filename):
                self._write(piece, box)
            self._moved(piece.nbytes)
        return self._sum % 2**64

    def _write(self, piece: Array, box: Box | None) -> None:
        """Write one piece, or nothing. *Collective*."""
        from h5py import h5fd, h5p, h5s

        here, there = h5s.create_simple(piece.shape), self._dataset.id.get_space()
        if box is None:
            here.select_none()
            there.select_none()
        else:
            origin = (own.start for own in self._slab.local_slices)
            start = tuple(lo + kept.start for lo, kept in zip(origin, box, strict=True))
            there.select_hyperslab(start, piece.shape)
        together = h5p.create(h5p.DATASET_XFER)
        together.set_dxpl_mpio(h5fd.MPIO_COLLECTIVE)
        kind = self._dataset.id.get_type()  # the bytes as they are, whatever HDF5 calls them
        self._dataset.id.write(here, there, piece, kind, dxpl=together)


def _piece(block: Array, box: Box | None) -> Array:
    if box is None:
        return np.empty(0, block.dtype)
    return np.ascontiguousarray(block[tuple(slice(kept.start, kept.stop) for kept in box)])


def _cut(box: Box, most: int) -> Iterator[Box]:
    """Halve a box until no part has more than `most` points."""
    if prod(map(len, box)) == 0:
        return
    if prod(map(len, box)) <= most:
        yield box
        return
    axis = next(axis for axis, kept in enumerate(box) if len(kept) > 1)
    half = len(box[axis]) // 2
    for part in (box[axis][:half], box[axis][half:]):
        yield from _cut((*box[:axis], part, *box[axis + 1 :]), most)


@contextmanager
def _as_os_error(verb: str, path: str) -> Iterator[None]:
    """Turn what h5py complains of into what other engines raise."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        number = getattr(error, "errno", None) or EIO
        raise OSError(number, f"cannot {verb}: {error}", path) from error
