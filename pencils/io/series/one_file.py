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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pencils.errors import CheckpointError
from pencils.io.commit import clean, commit, discard, make_temporary
from pencils.io.overlay import Change, Overlay
from pencils.io.series.chunk_index import ChunkIndex, chunk_shape
from pencils.io.series.column import Column
from pencils.io.series.ledger import Ledger
from pencils.io.series.superblock import (
    Superblock,
    end_of,
    forget_cached_root,
    read_superblock,
    set_address,
    set_end,
    set_root,
    start_blank,
    write,
)

# Readers before HDF5 2.0 take chunks below 4 GiB.
CHUNK_BYTES = 2**30
# Values of that many bytes, of several times, share a chunk.
_BATCH_BYTES = 1024
_ALIGNMENT = 8
# Bytes that a root group and its headers are likely to take, before there has been one.
_ROOM = 2**19


class OneFile:
    """The file of a series, as rank 0 has it.

    Parameters
    ----------
    path : str
        The file; it is made, if there is none, or continued.
    attrs : mapping of str to object
        Attributes of a new file.

    Raises
    ------
    CheckpointError
        If there is a file that is no series.
    OSError
        If the file can be neither opened nor made.
    """

    def __init__(self, path: str, attrs: Mapping[str, Any]) -> None:
        self.path = path
        if not Path(path).exists():
            _create(Path(path), Ledger(dict(attrs)))
        self.indices: dict[str, ChunkIndex] = {}
        self.points: dict[str, int] = {}  # where coordinates lie
        self.ledger, self._block = self._read()
        self._end = self._block.end  # of what is written; the superblock is going to be ahead
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
            places[column.name] = end = _aligned(end)
            end += index.per_row * index.nbytes
        self._make_room(end)
        return places

    def close(self) -> None:
        """Give back the room behind the last snapshot, if it was made here."""
        if self._step and read_superblock(self.path) == self._block:
            with _opened(self.path) as handle:
                set_end(handle, self._end)
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

    def _read(self) -> tuple[Ledger, Superblock]:
        from pencils.io import hdf5  # of all ranks, only this one needs h5py
        from pencils.io.series.tree import address_of, read_tree

        with hdf5.open_file(self.path) as file:
            ledger = read_tree(self.path, file)
            for column in ledger.columns.values():
                index = self._index(column)
                self._read_addresses(file[column.name], index, len(ledger.times))
            for name in ledger.coordinates:
                address = file[name].id.get_offset()
                if address is not None:
                    self.points[name] = address
            # someone may have switched to another root since
            return ledger, read_superblock(self.path)._replace(root=address_of(file["/"]))

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
        with Overlay(self.path) as overlay:
            tail = _Tail(overlay, end)
            for name, points in self.ledger.coordinates.items():
                if points.size and name not in self.points:
                    self.points[name] = tail.place(points.tobytes())
            roots = {
                name: self._write_index(column, tail)
                for name, column in self.ledger.columns.items()
            }
            new = _add_root(tail, self.ledger, self.indices, roots | self.points)
            changes = overlay.changes()
        self._besides = max(_ROOM, new.end - end)
        self._make_room(end)
        ahead = max(self._block.end, new.end + self._step)
        _apply(self.path, changes, end, new._replace(end=ahead))
        self._end, self._block = new.end, new._replace(end=ahead)

    def _write_index(self, column: Column, tail: _Tail) -> int | None:
        """Write the values of a column, if it has any here, and the index of its chunks."""
        index, more = self._index(column), []
        if not column.is_field and column.nbytes:
            batch, history = index.chunk[0], self.ledger.values[column.name]
            for first in range(len(index) * batch, len(history), batch):
                data = np.array(history[first : first + batch], column.dtype).tobytes()
                address = tail.place(data.ljust(index.nbytes, b"\0"))
                if first + batch <= len(history):
                    index.add(address)
                else:
                    more.append(address)
        return index.write(tail.place, more)


class _Tail:
    """The end of a file that grows."""

    def __init__(self, overlay: Overlay, end: int) -> None:
        self.overlay = overlay
        self.end = end

    def place(self, data: bytes) -> int:
        """Write bytes at the end, and say where that was."""
        start = _aligned(self.end)
        self.overlay.seek(start)
        self.overlay.write(data)
        self.end = start + len(data)
        return start


def _aligned(address: int) -> int:
    return -(-address // _ALIGNMENT) * _ALIGNMENT


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
) -> Superblock:
    """Let HDF5 add a root group at the end, and say where; `addresses` are of data or indices."""
    from pencils.io.series import tree

    start_blank(tail.overlay, _aligned(tail.end))
    root, headers = tree.add_root(tail.overlay, ledger, indices)
    for name, address in addresses.items():
        if address is not None:
            set_address(tail.overlay, headers[name], address)
    return Superblock(end_of(tail.overlay), root)


def _apply(path: str, changes: Iterable[Change], end: int, new: Superblock) -> None:
    """Write what lies beyond `end`, and when that is on disk, switch to the new root."""
    with _opened(path) as handle:
        _lengthen(handle, new.end)
        set_end(handle, new.end)
        for offset, data in changes:  # what is before is about the blank root
            write(handle, data[max(0, end - offset) :], max(offset, end))
        os.fsync(handle)
        set_root(handle, new.root)
        os.fsync(handle)


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


def _create(target: Path, ledger: Ledger) -> None:
    from pencils.io.series import tree

    clean(target)
    temporary = make_temporary(target)
    path = str(temporary)
    try:
        tree.create_blank(path)
        forget_cached_root(path)
        with Overlay(path) as overlay:
            end = overlay.size
            new = _add_root(_Tail(overlay, end), ledger, {}, {})
            changes = overlay.changes()
        _apply(path, changes, end, new)
        commit(temporary, target)
    except BaseException:
        discard(temporary)
        raise
