"""The HDF5 file of a series in one file, on rank 0.

Every dataset has an unlimited time axis, and a chunk holds one snapshot of a field or a part of it.
To append, h5py extends the datasets of a `CapturedFile`. HDF5 allocates the new chunks at once and
returns their addresses, where all ranks write the points. Then h5py writes the values, the time
among them, and `pencils.io.seal.switch` brings the file to its next state. New bytes are written
behind the record of the old state; HDF5's own changes are the only ones in place.
"""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import h5py
import numpy as np

from pencils.errors import CheckpointError
from pencils.io import hdf5
from pencils.io.captured_file import CapturedFile, Change, changing
from pencils.io.chunks import chunk_in_order, count_chunks
from pencils.io.file_access import open_regular
from pencils.io.file_info import RESERVED, Access
from pencils.io.manifest import (
    END_AT,
    Extent,
    Listed,
    Manifest,
    Record,
    aligned,
    changed_pages,
    check_manifest,
    complement,
    end_of,
    page_digests,
    read_head,
)
from pencils.io.seal import (
    END_FIELD,
    differences,
    open_to_write,
    repair,
    seal_again,
    seal_new,
    switch,
)
from pencils.io.series.state import Column, SeriesState
from pencils.io.series.tree import list_entries, make_chunked, read_tree, write_facts, write_tree
from pencils.io.slabs import FileBlocks

# Readers before HDF5 2.0 take chunks below 4 GiB.
CHUNK_BYTES = 2**30
# Values of that many bytes, of several times, share a chunk.
_BATCH_BYTES = 1024
# A record lists that many extents outside its sum, and refers to an earlier record for others.
_LISTED = 64


class OneFile:
    """The file of a series.

    Parameters
    ----------
    path : str
        The file, which `create` has made. If a process was killed while it changed the file, the
        change is completed.
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
        repair(path)
        with hdf5.open_whole(path, Access(edited=edited)) as source:
            self.state = read_tree(path, source.file)
            checked = source.record
            for column in self.state.columns.values():
                dataset = source.file[column.name]
                _check_layout(path, dataset, column)
                if dataset.shape[0] != len(self.state.times):
                    raise _rewritten(path)
            raw = () if checked else _raw_extents(source.file, self.state)
        if checked is None:
            checked = self._seal_again(raw)
        self._head = self._read_head()
        self._record = checked
        self._pages = dict(checked.pages)
        self._outside = list(checked.outside)  # all extents outside the sum
        self._listed = list(checked.manifest.outside)  # those that the record lists
        self._earlier = checked.manifest.earlier
        self._captured: CapturedFile | None = None  # between `place` and `commit`

    def place(self) -> dict[str, FileBlocks]:
        """Extend all datasets in memory; return the places of the new snapshot of every field.

        Raises
        ------
        CheckpointError
            If another process has written to the file.
        OSError
            If the file cannot be read.
        """
        count = len(self.state.times)
        if count == 0:
            with self.state.changing():
                with changing(self._begin()) as file:
                    write_datasets(file, self.state)
                self._end(())
        with changing(self._begin()) as file:
            for column in self.state.columns.values():
                file[column.name].resize(count + 1, axis=0)
            return {column.name: self._find(file, column) for column in self.state.fields}

    def commit(self, row: Mapping[str, Any], places: Mapping[str, FileBlocks]) -> None:
        """Add a snapshot whose fields are written at `places`: its time, values and checksums.

        Raises
        ------
        CheckpointError
            If another process has written to the file.
        OSError
            If the file cannot be written.
        """
        self.state.record(row)
        with changing(self._changed) as file:
            for name, value in row.items():
                if np.size(value):
                    file[name][-1] = np.asarray(value, self.state.columns[name].dtype)
            self._write_sums(file)
        self._end([(start, place.nbytes) for place in places.values() for start in place.starts])

    def cut(self, count: int) -> None:
        """Keep the first snapshots only."""
        self.state.cut(count)
        with changing(self._begin()) as file:
            for column in self.state.columns.values():
                file[column.name].resize(count, axis=0)
            self._write_sums(file)
        self._end(())

    def close(self) -> None:
        """Release what an append that has failed has left."""
        if self._captured is not None:
            self._captured.close()

    @property
    def _changed(self) -> CapturedFile:
        if self._captured is None:
            msg = "no snapshot has a place"
            raise RuntimeError(msg)
        return self._captured

    def _begin(self) -> CapturedFile:
        """Start to change the file in memory; new bytes get places behind the record."""
        self.close()
        self._check_alone()
        self._captured = CapturedFile(self.path)
        self._captured.poke(END_AT, aligned(self._record.stop).to_bytes(8, "little"))
        return self._captured

    def _write_sums(self, file: Any) -> None:
        for column in self.state.fields:
            total = np.uint64(self.state.checksum(column.name))
            file[column.name].attrs.modify(RESERVED + "checksum", total)

    def _end(self, raw: Iterable[Extent]) -> None:
        """Write the changes; `raw` are extents of the points of fields that were added."""
        captured = self._changed
        old, behind = self._record.manifest, aligned(self._record.stop)
        size = end_of(captured.peek(0, 96)) or 0
        changes = captured.changes()
        self._leave_out([(old.size, behind - old.size), *raw])
        self._take_in([change for change in changes if change.offset < behind])
        spans = [changed_pages(change.offset, len(change.data)) for change in changes]
        for start, stop in [*spans, changed_pages(old.size, size - old.size)]:
            self._pages |= page_digests(captured, self._outside, start, min(stop, size))
        with open_to_write(self.path) as handle:
            self._check_alone()
            manifest = Manifest(
                {entry.name: Listed.of(entry) for entry in list_entries(self.state)},
                size,
                sum(self._pages.values()) % 2**64,
                self._listed,
                self._earlier,
                differences(handle, changes, behind),
            )
            start = aligned(size)
            new = [change for change in changes if change.offset >= behind]
            stop = switch(handle, manifest, start, new)
        self._record = Record(manifest, start, stop)
        self._head = self._read_head()
        self.close()

    def _leave_out(self, extents: Iterable[Extent]) -> None:
        """Take extents, which are behind all others, out of the sum."""
        if len(self._listed) >= _LISTED:
            self._earlier, self._listed = self._record.place, []
        joined: list[Extent] = []
        for offset, count in sorted(extents):
            start = joined.pop()[0] if joined and sum(joined[-1]) == offset else offset
            joined.append((start, offset + count - start))
        self._listed = [*self._listed, *joined]
        self._outside += joined

    def _take_in(self, changes: Iterable[Change]) -> None:
        """Sum up changes of extents that were out of the sum: HDF5 has used freed space again."""
        changed = [(change.offset, len(change.data)) for change in changes]
        if any(self._overlaps(*extent) for extent in changed):
            rest = [extent for extent in self._outside if extent != END_FIELD]
            found = [gap for at, count in rest for gap in complement(changed, at, at + count)]
            self._outside = [END_FIELD, *found]
            self._listed, self._earlier = self._outside, (0, 0, 0)

    def _overlaps(self, offset: int, count: int) -> bool:
        near = self._outside[: bisect(self._outside, (offset + count,))][-2:]
        return any(sum(extent) > offset and extent != END_FIELD for extent in near)

    def _find(self, file: Any, column: Column) -> FileBlocks:
        """Find the chunks of the last snapshot of a field."""
        if not column.nbytes:
            return FileBlocks((), 1)
        dataset, chunk = file[column.name].id, _chunk(column)
        starts = []
        for index in np.ndindex(*count_chunks(column.shape, chunk[1:])):
            at = (
                dataset.shape[0] - 1,
                *(i * extent for i, extent in zip(index, chunk[1:], strict=True)),
            )
            starts.append(dataset.get_chunk_info_by_coord(at).byte_offset)
        if min(starts) < self._record.stop:
            msg = "this version of HDF5 allocates chunks in another way than pencils expects"
            raise RuntimeError(msg)
        return FileBlocks(tuple(starts), prod(chunk) * column.dtype.itemsize)

    def _seal_again(self, raw: Iterable[Extent]) -> Record:
        """Give a file that another program has changed a record."""
        seal_again(self.path, list_entries(self.state), raw)
        checked = check_manifest(self.path)
        if checked is None:
            raise _rewritten(self.path)
        return checked

    def _check_alone(self) -> None:
        if self._read_head() != self._head:
            msg = (
                f"{self.path} was changed by another process; make a new TimeSeries to continue it"
            )
            raise CheckpointError(msg)

    def _read_head(self) -> bytes:
        handle = open_regular(self.path)
        try:
            return read_head(handle)
        finally:
            os.close(handle)


def create(path: str, state: SeriesState) -> None:
    """Overwrite `path` with a series that has no snapshots."""
    with changing(path, "w") as file:
        write_facts(file, state)
    seal_new(path, (), ())


def write_datasets(file: Any, state: SeriesState) -> None:
    """Make all datasets of a series without snapshots, instead of those that there are."""
    for name in list(file):
        del file[name]

    def make(group: Any, column: Column) -> Any:
        return make_chunked(group, column, _chunk(column))

    write_tree(file, state, make)


def _chunk(column: Column) -> tuple[int, ...]:
    if column.is_field:
        return 1, *chunk_in_order(column.shape, column.dtype.itemsize, CHUNK_BYTES)
    batch = max(1, _BATCH_BYTES // max(1, column.nbytes))
    return batch, *(max(1, n) for n in column.shape)


def _check_layout(path: str, dataset: Any, column: Column) -> None:
    """Raise if another program has stored a dataset in a way that cannot be continued."""
    layout = dataset.id.get_create_plist()
    early = layout.get_alloc_time() == h5py.h5d.ALLOC_TIME_EARLY
    if dataset.chunks != _chunk(column) or layout.get_nfilters() or early < column.is_field:
        raise _rewritten(path)


def _rewritten(path: str) -> CheckpointError:
    msg = f"{path} was rewritten by another tool; it can be read, but not be continued"
    return CheckpointError(msg)


def _raw_extents(file: Any, state: SeriesState) -> list[Extent]:
    """List the chunks of all fields."""
    found = []
    for column in state.fields:
        dataset = file[column.name].id
        chunks = range(dataset.get_num_chunks() if column.nbytes else 0)
        infos = (dataset.get_chunk_info(number) for number in chunks)
        found += [(int(info.byte_offset), int(info.size)) for info in infos]
    return found
