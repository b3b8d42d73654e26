"""One field of an open file: global selections of it, read and written in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import product
from math import prod
from typing import Any

import numpy as np

from pencils.array.allocation import Array, HaloLike, as_halo
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.checksum import checksum
from pencils.io.file_info import DatasetInfo, FileInfo
from pencils.io.root_io import format_of
from pencils.io.slabs import Slabs
from pencils.io.targets import Target
from pencils.layout import Selection
from pencils.pencil import Pencil


class StoredField:
    """One field of an open file, in whole or in part; made by `pencils.open`.

    Parameters
    ----------
    dataset : DatasetInfo
        Its description in the file.
    file : FileInfo
        The file; its identity is that of this rank.
    ranks : Pencil
        Any pencil on the processes that opened the file.
    writer : callable
        Returns the file that is open for writing, or raises ArgumentError.
    """

    __slots__ = ("_file", "_ranks", "_writer", "_written", "change", "dataset")

    def __init__(
        self,
        dataset: DatasetInfo,
        file: FileInfo,
        ranks: Pencil,
        writer: Callable[[], SharedFile],
    ) -> None:
        self.dataset = dataset
        self._file = file
        self._ranks = ranks
        self._writer = writer
        self.change = 0  # of the checksum, by this rank's writes
        self._written = False  # by any rank

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape, components first; with boundary points, if they were stored."""
        return self.dataset.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.dataset.dtype

    def read(self, pencil: Pencil, key: Any = ..., *, halo: HaloLike = 0) -> PencilArray:
        """Read the field, or a global selection of it. *Collective* over the pencil.

        Every rank reads its own part, and nothing else. Checksums are not compared, because they
        are those of the whole field.

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
            another file has taken its name.
        ArgumentError, IndexError, OSError, RankDisagreementError, TypeError
            On every rank, if an argument is not allowed or differs between ranks, or the file
            cannot be read.
        """
        comm, path = topology_among(pencil).comm, self._file.path
        with agreed(comm, "read") as same:
            check_type("pencil", pencil, Pencil)
            selection = Selection.from_key(key, self.shape)
            target = Target(pencil, as_halo(halo, pencil.ndim))
            same(path=path, name=self.dataset.name, key=selection, pencil=target)
            part = DatasetInfo(self.dataset.name, selection.shape, self.dtype)
            field = target.make(part, None, path)
        with agreed(comm, "read"):
            try:
                if field.local.size:
                    field.local[...] = self._read_box(selection, field)
            finally:  # a replaced file can be the reason of an error, too
                self._file.identity.check_in_place(path)
        return field

    def write(self, field: PencilArray, key: Any = ...) -> None:
        """Write a field over the stored one, or over a global selection of it. *Collective*.

        This cannot be undone: a process that dies while it writes leaves old values next to new
        ones. The checksum is corrected when the file is closed; until then `verify` finds that it
        does not match.

        Parameters
        ----------
        field : PencilArray
            The values, on the processes that have opened the file.
        key : int, slice, Ellipsis or tuple of these, optional
            Global indices, as in NumPy; the selection has the shape of `field`. Rows that are
            selected in whole are written in one piece, elements that are not neighbours one by one.

        Raises
        ------
        ArgumentError, CheckpointError, IndexError, PencilMismatchError, RankDisagreementError
            On every rank, if an argument is not allowed or differs between ranks, or the stored
            field is chunked or compressed.
        OSError
            On every rank, if the file cannot be written.
        TypeError
            On every rank, if `field` is not a PencilArray, or has another element type.
        """
        comm = self._ranks.topology.comm
        with agreed(comm, "write") as same:
            selection = self._check(field, key)
            writer = self._writer()
            same(name=self.dataset.name, key=selection, pencil=field.pencil, dtype=field.dtype)
        with closing(Slabs()) as slabs:
            slab = slabs.of(field)
            self._written = True
            with agreed(comm, "write"):  # one rank may have no memory for it
                if slab.local.size and slab.extent.layout.is_first_replica(slab.pencil.rank):
                    self._write_box(writer, selection, slab)
        writer.sync()  # so that later reads and writes by any rank find it
        writer.check()

    @property
    def is_to_correct(self) -> bool:
        """Whether it has a checksum that may no longer match; the same on every rank."""
        return self._written and self.dataset.checksum is not None

    def sum_after(self, change: int) -> int:
        """Return the checksum of the field after a change by all ranks."""
        return ((self.dataset.checksum or 0) + change) % 2**64

    def _check(self, field: PencilArray, key: object) -> Selection:
        check_type("field", field, PencilArray)
        selection = Selection.from_key(key, self.shape)
        name, path = self.dataset.name, self._file.path
        if not field.pencil.same_ranks(self._ranks):
            msg = f"the field is on other processes than those that opened {path}; pass comm there"
            raise PencilMismatchError(msg)
        if field.shape != selection.shape:
            msg = f"a field of shape {field.shape} does not fill {selection.shape} of {name!r}"
            raise ArgumentError(msg)
        if field.dtype != self.dtype:
            msg = f"{name!r} in {path} has dtype {self.dtype}, the field {field.dtype}; use astype"
            raise TypeError(msg)
        if self.dataset.offset is None and self.dataset.nbytes:
            msg = f"{name!r} in {path} is chunked or compressed; such fields can only be read"
            raise CheckpointError(msg)
        return selection

    def _read_box(self, selection: Selection, field: PencilArray) -> Array:
        path = self._file.path
        reader = format_of(path)
        ranges = own_ranges(selection, field.local_slices)
        rising = [kept if kept.step > 0 else kept[::-1] for kept in ranges]
        box = tuple(slice(kept.start, kept.stop, kept.step) for kept in rising)
        with reader.opened(path) as file:
            found = reader.read_box(file, self.dataset.name, box)
        turned = tuple(slice(None, None, 1 if kept.step > 0 else -1) for kept in ranges)
        return found[turned].reshape(field.local_shape)

    def _write_box(self, writer: SharedFile, selection: Selection, slab: PencilArray) -> None:
        ranges = own_ranges(selection, slab.local_slices)
        box = slab.local.reshape([len(kept) for kept in ranges])
        offset = self.dataset.offset or 0
        for first, index in consecutive(ranges, self.shape):
            part: tuple[Any, ...] = (*index, ...)  # an array even of a single element
            new = np.ascontiguousarray(box[part])
            at = offset + first * self.dtype.itemsize
            if self.dataset.checksum is not None:
                old = np.empty_like(new)
                writer.read(at, old)
                self.change += checksum(new, first) - checksum(old, first)
                self.change %= 2**64
            writer.write(at, new)


def own_ranges(selection: Selection, part: Sequence[slice]) -> list[range]:
    """Return the indices along every axis of the array that a part of a selection takes.

    The part is one slice for each axis that the selection keeps.

    Examples
    --------
    >>> own_ranges(Selection.from_key((2, slice(None, None, 3)), (4, 10)), [slice(1, 3)])
    [range(2, 3), range(3, 9, 3)]
    """
    left = iter(part)
    pairs = zip(selection.ranges, selection.dropped, strict=True)
    return [kept if drop else kept[next(left)] for kept, drop in pairs]


def consecutive(
    ranges: Sequence[range], shape: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Cut a box of an array, which may have strides, into runs that are consecutive in C order.

    Yields the position of the first element of each run in the array, and its index in the box.

    Examples
    --------
    >>> list(consecutive([range(1, 3), range(0, 4)], (5, 4)))
    [(4, ())]
    >>> list(consecutive([range(1, 3), range(0, 2)], (5, 4)))
    [(4, (0,)), (8, (1,))]
    """
    if not all(map(len, ranges)):
        return
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    inner = len(ranges)
    while inner and (ranges[inner - 1].step == 1 or len(ranges[inner - 1]) == 1):
        inner -= 1
        if len(ranges[inner]) < shape[inner]:
            break
    start = sum(kept[0] * s for kept, s in zip(ranges[inner:], strides[inner:], strict=True))
    for index in product(*(range(len(kept)) for kept in ranges[:inner])):
        lead = zip(ranges, index, strides, strict=False)
        yield start + sum(kept[i] * stride for kept, i, stride in lead), index
