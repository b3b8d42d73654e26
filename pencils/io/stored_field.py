"""One stored field: selections of it, read and written where they lie."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.normalize import HaloLike, as_halo
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.checksum import checksum
from pencils.io.dataset_info import DatasetInfo
from pencils.io.pieces import consecutive, own_ranges
from pencils.io.slabs import Slabs
from pencils.io.targets import ReadTarget, Targets
from pencils.layout import Selection
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.io.open_file import OpenFile


class StoredField:
    """One field of an open file, in whole or in part; made by `pencils.open`.

    Parameters
    ----------
    file : OpenFile
        The file.
    entry : DatasetInfo
        What it says about the field.
    """

    __slots__ = ("_file", "_written", "change", "entry")

    def __init__(self, file: OpenFile, entry: DatasetInfo) -> None:
        self._file = file
        self.entry = entry
        self.change = 0  # of the checksum, by what this rank has written
        self._written = False  # by any rank

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape, components first; with boundary points, if they were stored."""
        return self.entry.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.entry.dtype

    def read(self, pencil: Pencil, key: Any = ..., *, halo: HaloLike = 0) -> PencilArray:
        """Read the field, or a global selection of it. *Collective* over the pencil.

        Every rank reads its own part, and nothing else. Checksums are not compared: they are those
        of the whole.

        Parameters
        ----------
        pencil : Pencil
            Where the selected points go: it has the shape of the selection. Leading axes beyond
            its dimensions become components.
        key : int, slice, Ellipsis or tuple of these, optional
            Global indices, as in NumPy: ``(..., slice(None, None, 4))`` for every fourth point.
        halo : int, sequence of int, or sequence of (int, int), optional
            Halo widths of the field; halo points are zero.

        Returns
        -------
        PencilArray
            The selected points.

        Raises
        ------
        CheckpointError
            On every rank, if the selection does not fit the pencil, the file is damaged there, or
            another one has taken its name.
        ArgumentError, IndexError, OSError, RankDisagreementError, TypeError
            On every rank, if an argument is not allowed or differs between ranks, or the file
            cannot be read.
        """
        comm = topology_among(pencil).comm
        with agreed(comm, "read") as same:
            check_type("pencil", pencil, Pencil)
            selection = Selection.from_key(key, self.shape)
            place = ReadTarget(pencil, as_halo(halo, pencil.ndim))
            same(path=self._file.path, name=self.entry.name, key=selection, pencil=place)
            part = DatasetInfo(self.entry.name, selection.shape, self.dtype)
            field = Targets({}, place).make(part, None, self._file.path)
        with agreed(comm, "read"):
            try:
                if field.local.size:
                    field.local[...] = self._read_box(selection, field)
            finally:  # also the reason, if that failed
                self._file.check_in_place()
        return field

    def write(self, field: PencilArray, key: Any = ...) -> None:
        """Write a field over the stored one, or over a global selection of it. *Collective*.

        There is no way back: a process that dies while writing leaves old values beside new ones.
        The checksum is corrected when the file is closed; until then it does not fit, and `verify`
        tells.

        Parameters
        ----------
        field : PencilArray
            The values, over the processes that have opened the file.
        key : int, slice, Ellipsis or tuple of these, optional
            Global indices, as in NumPy; the selection has the shape of `field`. Rows that are
            selected in whole are written in one piece, elements apart from each other one by one.

        Raises
        ------
        ArgumentError, CheckpointError, IndexError, PencilMismatchError, RankDisagreementError
            On every rank, if an argument is not allowed or differs between ranks, or the stored
            field is chunked or compressed.
        OSError
            On every rank, if the file cannot be written.
        TypeError
            On every rank, if `field` is no field, or one of another element type.
        """
        ranks = self._file.ranks
        comm = ranks.topology.comm
        with agreed(comm, "write") as same:
            selection = self._check(field, key, ranks)
            writer = self._file.writer
            same(name=self.entry.name, key=selection, pencil=field.pencil, dtype=field.dtype)
        with closing(Slabs()) as slabs:
            slab = slabs.of(field)
            self._written = True
            with agreed(comm, "write"):  # one rank may have no memory for it
                if slab.local.size and slab.extent.layout.is_first_replica(slab.pencil.rank):
                    self._write_box(writer, selection, slab)
        writer.sync()  # so that whoever reads now, or writes here next, comes after
        writer.check()

    @property
    def is_to_correct(self) -> bool:
        """Whether it has a checksum that may not fit any more; the same on every rank."""
        return self._written and self.entry.checksum is not None

    def sum_after(self, change: int) -> int:
        """Checksum of the field after a change by all ranks."""
        return ((self.entry.checksum or 0) + change) % 2**64

    def _check(self, field: PencilArray, key: object, ranks: Pencil) -> Selection:
        check_type("field", field, PencilArray)
        selection = Selection.from_key(key, self.shape)
        name, path = self.entry.name, self._file.path
        if not field.pencil.same_ranks(ranks):
            msg = f"the field lies over other processes than those that opened {path}"
            raise PencilMismatchError(msg)
        if field.shape != selection.shape:
            msg = f"a field of shape {field.shape} does not fill {selection.shape} of {name!r}"
            raise ArgumentError(msg)
        if field.dtype != self.dtype:
            msg = f"{name!r} in {path} has dtype {self.dtype}, the field {field.dtype}; use astype"
            raise TypeError(msg)
        if self.entry.offset is None and self.entry.nbytes:
            msg = f"{name!r} in {path} is chunked or compressed; such fields can only be read"
            raise CheckpointError(msg)
        return selection

    def _read_box(self, selection: Selection, field: PencilArray) -> Array:
        from pencils.io import hdf5

        ranges = own_ranges(selection, field.local_slices)
        rising = [kept if kept.step > 0 else kept[::-1] for kept in ranges]
        box = tuple(slice(kept.start, kept.stop, kept.step) for kept in rising)
        with hdf5.opened(self._file.path) as file:
            found = hdf5.read_box(file, self.entry.name, box)
        turned = tuple(slice(None, None, 1 if kept.step > 0 else -1) for kept in ranges)
        return found[turned].reshape(field.local_shape)

    def _write_box(self, writer: SharedFile, selection: Selection, slab: PencilArray) -> None:
        ranges = own_ranges(selection, slab.local_slices)
        box = slab.local.reshape([len(kept) for kept in ranges])
        offset = self.entry.offset or 0
        for first, index in consecutive(ranges, self.shape):
            part: tuple[Any, ...] = (*index, ...)  # an array even of a single element
            new = np.ascontiguousarray(box[part])
            at = offset + first * self.dtype.itemsize
            if self.entry.checksum is not None:
                old = np.empty_like(new)
                writer.read(at, old)
                self.change += checksum(new, first) - checksum(old, first)
                self.change %= 2**64
            writer.write(at, new)
