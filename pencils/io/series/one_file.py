"""A series in one HDF5 file, to which is only ever added.

A step goes to the end of the file, where nobody looks: first the points of all fields, written by
all ranks, then a new root group with new headers for all datasets, which list the old chunks and
the new ones. When all that is on disk, one number at the beginning of the file is changed: where
its root group is. Until then, and for whoever has the file open, everything is as it was.

Who opens the file asks for its length, reads where it ends, and then where its root is. What comes
later must not be beyond what was said before: so the file is made longer a step before its end
moves, and its end moves a step before there is a root. A process that dies leaves the room for that
step unused, as a hole in the file.

Besides the points a step takes some 10 kB, and 8 kB for each field; coordinates are written once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from pencils.errors import CheckpointError
from pencils.io.file_info import Access
from pencils.io.manifest import HEAD, Listed, Record, clear_cached_root
from pencils.io.overlay import Change, Overlay
from pencils.io.plain import open_regular, read, write
from pencils.io.seal import aligned
from pencils.io.series.chunk_index import ChunkIndex, chunk_shape
from pencils.io.series.column import Column
from pencils.io.series.kept import Kept
from pencils.io.series.ledger import Ledger
from pencils.io.series.superblock import (
    Superblock,
    end_of,
    read_superblock,
    set_address,
    set_end,
    set_root,
    start_blank,
)

# Readers before HDF5 2.0 take chunks below 4 GiB.
CHUNK_BYTES = 2**30
# Values of that many bytes, of several times, share a chunk.
_BATCH_BYTES = 1024
# Bytes that a root group and its headers are likely to take, before there has been one.
_ROOM = 2**19


class OneFile:
    """The file of a series, as rank 0 has it.

    Parameters
    ----------
    path : str
        The file, which `create` has made.
    edited : bool, optional
        Whether to continue what another program has changed.

    Raises
    ------
    CheckpointError
        If there is a file that is no series, damaged, or changed by another program.
    OSError
        If the file cannot be opened.
    """

    def __init__(self, path: str, *, edited: bool = False) -> None:
        self.path = path
        self.indices: dict[str, ChunkIndex] = {}
        self.points: dict[str, int] = {}  # where coordinates lie
        self.ledger, self._block, record = self._read(edited=edited)
        self._kept = self._collect(record)
        self._sealed = record is not None
        # Of what is written, and of it without the record; the superblock is going to be ahead.
        self._end = max(self._block.end, 0 if record is None else record.stop)
        self._inner = self._block.end
        self._besides = _ROOM  # bytes of the last step that were no fields
        self._step = 0  # bytes that the next step is likely to take; none before there is room

    def place(self) -> dict[str, int]:
        """Say where a new snapshot of every field goes: beyond the end of the file.

        Raises
        ------
        CheckpointError
            If someone else has written to the file.
        """
        self._check_alone()
        if not self.ledger.times:
            self.indices.clear()
            self.points.clear()
        end, places = self._end, {}
        for column in self.ledger.fields:
            index = self._index(column)
            places[column.name] = end = aligned(end)
            end += index.per_row * index.nbytes
        self._make_room(end)
        return places

    def close(self) -> None:
        """Give back the room behind the last snapshot, if it was made here."""
        if self._step and read_superblock(self.path) == self._block:
            with _opened(self.path) as handle:
                set_end(handle, self._inner)
                os.fsync(handle)
                os.ftruncate(handle, self._end)

    def _check_alone(self) -> None:
        if read_superblock(self.path) != self._block:
            msg = f"{self.path} was changed by someone else; make a new TimeSeries to continue it"
            raise CheckpointError(msg)

    def _make_room(self, end: int) -> None:
        """Let the file be longer than the superblock is going to say after the next snapshot."""
        self._step = end - self._end + 2 * self._besides
        with _opened(self.path) as handle:
            _lengthen(handle, self._end + 3 * self._step)

    def commit(self, places: Mapping[str, int]) -> None:
        """Let everybody see the ledger as it is now, with new snapshots at these places."""
        ends = [self._end]
        for name, start in places.items():
            index = self._index(self.ledger.columns[name])
            for number in range(index.per_row):
                index.add(start + number * index.nbytes)
            ends.append(start + index.per_row * index.nbytes)
        self._write(max(ends))

    def cut(self, count: int) -> None:
        """Let everybody see the first snapshots only."""
        self.ledger.cut(count)
        for column in self.ledger.columns.values():
            index = self._index(column)
            index.cut(count // index.chunk[0] * index.per_row)
        self._write(self._end)

    def _read(self, *, edited: bool) -> tuple[Ledger, Superblock, Record | None]:
        from pencils.io import hdf5  # of all ranks, only this one needs h5py
        from pencils.io.hdf5_datasets import address_of
        from pencils.io.series.tree import read_tree

        with hdf5.open_whole(self.path, Access(edited=edited)) as source:
            file = source.file
            ledger = read_tree(self.path, file)
            for column in ledger.columns.values():
                index = self._index(column)
                self._read_addresses(file[column.name], index, len(ledger.times))
            for name in ledger.coordinates:
                address = file[name].id.get_offset()
                if address is not None:
                    self.points[name] = address
            # someone may have switched to another root since
            block = read_superblock(self.path)._replace(root=address_of(file["/"]))
            return ledger, block, source.record

    def _collect(self, record: Record | None) -> Kept:
        """Sum up what is in the file and stays: values of all times, and coordinates."""
        kept = Kept(record)
        values = [column.name for column in self.ledger.columns.values() if not column.is_field]
        extents = [(at, self.indices[name].nbytes) for name in values for at in self.indices[name]]
        points = self.ledger.coordinates
        extents += [(at, points[name].nbytes) for name, at in self.points.items()]
        handle = open_regular(self.path)
        try:
            for at, count in extents:
                kept.add(at, read(handle, count, at))
        finally:
            os.close(handle)
        return kept

    def _read_addresses(self, dataset: Any, index: ChunkIndex, count: int) -> None:
        if dataset.chunks != index.chunk or dataset.id.get_create_plist().get_nfilters():
            msg = f"{self.path} was rewritten by another tool; it can be read, but not be continued"
            raise CheckpointError(msg)
        for number in range(count // index.chunk[0] * index.per_row):
            found = dataset.id.get_chunk_info_by_coord(index.offsets(number)[:-1])
            index.add(found.byte_offset)

    def _index(self, column: Column) -> ChunkIndex:
        if column.name not in self.indices:
            chunk = _chunk(column)
            self.indices[column.name] = ChunkIndex(column.shape, chunk, column.dtype.itemsize)
        return self.indices[column.name]

    def _write(self, end: int) -> None:
        self._check_alone()
        if not self._sealed:  # by HDF5, which has filled in what is left out here
            _forget_cached_root(self.path)
        with Overlay(self.path) as overlay:
            tail = _Tail(overlay, end, self._kept)
            for name, points in self.ledger.coordinates.items():
                if points.size and name not in self.points:
                    self.points[name] = tail.place(points.tobytes(), stays=True)
            roots = {
                name: self._write_index(column, tail)
                for name, column in self.ledger.columns.items()
            }
            step = _add_root(tail, self.ledger, self.indices, roots | self.points)
        self._besides = max(_ROOM, step.stop - end)
        self._make_room(end)
        block = Superblock(max(self._block.end, step.stop + self._step), step.root)
        _apply(self.path, step, end, block)
        self._kept.turn()
        self._sealed = True
        self._end, self._inner, self._block = step.stop, step.end, block

    def _write_index(self, column: Column, tail: _Tail) -> int | None:
        """Write the values of a column, if it has any here, and the index of its chunks."""
        index, more = self._index(column), []
        if not column.is_field and column.nbytes:
            batch, history = index.chunk[0], self.ledger.values[column.name]
            for first in range(len(index) * batch, len(history), batch):
                data = np.array(history[first : first + batch], column.dtype).tobytes()
                stays = first + batch <= len(history)
                address = tail.place(data.ljust(index.nbytes, b"\0"), stays=stays)
                if stays:
                    index.add(address)
                else:
                    more.append(address)
        return index.write(tail.place, more)


class _Tail:
    """The end of a file that grows."""

    def __init__(self, overlay: Overlay, end: int, kept: Kept) -> None:
        self.overlay = overlay
        self.start = self.end = aligned(end)
        self.kept = kept

    def place(self, data: bytes, stays: bool = False) -> int:  # noqa: FBT001, FBT002
        """Write bytes at the end, and say where that was; later steps have them too if it stays."""
        start = aligned(self.end)
        self.overlay.seek(start)
        self.overlay.write(data)
        self.end = start + len(data)
        if stays:
            self.kept.add(start, data)
        return start


class _Step(NamedTuple):
    """What a step writes: where it ends without and with its record, and how that is named."""

    root: int
    end: int
    stop: int
    naming: tuple[bytes, int]
    changes: list[Change]


def _chunk(column: Column) -> tuple[int, ...]:
    if column.is_field:
        return 1, *chunk_shape(column.shape, column.dtype.itemsize, CHUNK_BYTES)
    batch = max(1, _BATCH_BYTES // max(1, column.nbytes))
    return batch, *(max(1, n) for n in column.shape)


def _add_root(
    tail: _Tail,
    ledger: Ledger,
    indices: Mapping[str, ChunkIndex],
    addresses: Mapping[str, int | None],
) -> _Step:
    """Let HDF5 add a root group at the end, and a record; `addresses` are of data or indices."""
    from pencils.io.series import tree

    overlay = tail.overlay
    head = overlay.peek(range(HEAD))
    tail.kept.write_pages(tail.place)
    start_blank(overlay, aligned(tail.end))
    root, headers = tree.add_root(overlay, ledger, indices)
    for name, address in addresses.items():
        if address is not None:
            set_address(overlay, headers[name], address)
    end = end_of(overlay)
    datasets = {entry.name: Listed.of(entry) for entry in tree.list_entries(ledger)}
    written = tail.start, overlay.peek(range(tail.start, end))
    start, record, naming = tail.kept.compose(datasets, head, written, root)
    changes = [*overlay.changes(), Change(start, record)]
    return _Step(root, end, start + len(record), naming, changes)


def _apply(path: str, step: _Step, end: int, new: Superblock) -> None:
    """Write what lies beyond `end`, and when that is on disk, switch to the new root."""
    with _opened(path) as handle:
        _lengthen(handle, new.end)
        set_end(handle, new.end)
        for offset, data in step.changes:  # what is before is about the blank root
            write(handle, data[max(0, end - offset) :], max(offset, end))
        write(handle, *step.naming)
        os.fsync(handle)
        set_root(handle, new.root)
        os.fsync(handle)


def _forget_cached_root(path: str) -> None:
    with _opened(path) as handle:
        clear_cached_root(handle)


def _lengthen(handle: int, size: int) -> None:
    """Let a file have this length at least, also after a loss of power."""
    if os.fstat(handle).st_size < size:
        os.ftruncate(handle, size)
        os.fsync(handle)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR)
    try:
        yield handle
    finally:
        os.close(handle)


def create(path: str, ledger: Ledger) -> None:
    """Overwrite `path` with a series that has no snapshots."""
    from pencils.io.series import tree

    tree.create_blank(path)
    _forget_cached_root(path)
    with Overlay(path) as overlay:
        end = overlay.size
        step = _add_root(_Tail(overlay, end, Kept()), ledger, {}, {})
    _apply(path, step, end, Superblock(step.end, step.root))
