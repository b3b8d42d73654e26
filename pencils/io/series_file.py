"""The one file of a series, which rank 0 opens, extends and describes. No communication.

Every dataset has an unlimited time axis, and a chunk holds one snapshot of a field or a part of it.
To append, h5py extends the datasets of a `CapturedFile`. HDF5 allocates the new chunks at once and
returns their addresses, where all ranks write the points. Then h5py writes the values, the time
among them, and `pencils.io.seal.switch` brings the file to its next state. New bytes are written
behind the record of the old state; HDF5's own changes are the only ones in place.
"""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import h5py
import numpy as np

from pencils.errors import CheckpointError
from pencils.io import hdf5
from pencils.io.captured_file import CapturedFile, Change, changing
from pencils.io.create import describe_all, label, reserve, store_attribute, store_value
from pencils.io.direct import FileBlocks
from pencils.io.file_access import open_to_read, open_to_write
from pencils.io.file_info import (
    COORDINATE,
    FORMAT,
    OF_SCALES,
    RESERVED,
    TIME,
    Access,
    DatasetInfo,
    Stored,
)
from pencils.io.hdf5 import list_datasets
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
from pencils.io.objects import read_checked
from pencils.io.seal import END_FIELD, differences, repair, seal_again, seal_new, switch
from pencils.io.series_state import SUMS, Column, SeriesState
from pencils.io.slabs import chunk_in_order, count_chunks
from pencils.io.vtkhdf import update_view, write_view

# A record lists that many extents outside its sum, and refers to an earlier record for others.
_LISTED = 64
# Attribute of files that are series, with the version of what only those have.
SERIES = RESERVED + "series"
_VERSION = 1
_DIMS = RESERVED + "dims"
_SUM = RESERVED + "checksum"

# Readers before HDF5 2.0 take chunks below 4 GiB.
CHUNK_BYTES = 2**30
# Values of that many bytes, of several times, share a chunk.
_BATCH_BYTES = 1024


class SeriesFile:
    """The file of a series, which `create` has made. On rank 0 only.

    If a process was killed while it changed the file, the change is completed. Raises
    CheckpointError if there is a file that is no series, damaged, or changed by another program.
    """

    def __init__(self, path: str, *, edited: bool = False) -> None:
        self.path = path
        repair(path)
        self._head = self._read_head()  # first: an append of another process shows in it
        self.state, checked, raw = read(path, Access(edited=edited))
        if checked is None:  # another program has changed the file
            seal_again(path, self.state.entries(), raw)
            self._head = self._read_head()
            checked = check_manifest(path)
            assert checked is not None
        self._record = checked
        self._pages = dict(checked.pages)
        self._outside = list(checked.outside)  # all extents outside the sum
        self._listed = list(checked.manifest.outside)  # those that the record lists
        self._earlier = checked.manifest.earlier
        self._captured: CapturedFile | None = None  # between `place` and `commit`

    def place(self) -> dict[str, FileBlocks]:
        """Extend all datasets in memory; return the places of the new snapshot of every field.

        Raises CheckpointError if another process has written to the file.
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

        Raises CheckpointError if another process has written to the file.
        """
        assert self._captured is not None
        self.state.record(row)
        with changing(self._captured) as file:
            for name, value in row.items():
                if np.size(value):
                    file[name][-1] = np.asarray(value, self.state.columns[name].dtype)
            write_totals(file, self.state)
        self._end([(start, place.nbytes) for place in places.values() for start in place.starts])

    def cut(self, count: int) -> None:
        """Keep the first snapshots only."""
        self.state.cut(count)
        with changing(self._begin()) as file:
            for column in self.state.columns.values():
                file[column.name].resize(count, axis=0)
            write_totals(file, self.state)
        self._end(())

    def close(self) -> None:
        """Release what an append that has failed has left."""
        if self._captured is not None:
            self._captured.close()

    def _begin(self) -> CapturedFile:
        """Start to change the file in memory; new bytes get places behind the record."""
        self.close()
        self._check_alone()
        self._captured = CapturedFile(self.path)
        for patch in self._record.manifest.patches:  # another process may have changed the bytes
            self._captured.poke(*patch)
        self._captured.poke(END_AT, aligned(self._record.stop).to_bytes(8, "little"))
        return self._captured

    def _end(self, raw: Iterable[Extent]) -> None:
        """Write the changes; `raw` are extents of the points of fields that were added."""
        assert self._captured is not None
        captured = self._captured
        old, behind = self._record.manifest, aligned(self._record.stop)
        size = end_of(captured.peek(0, 96)) or 0
        changes = captured.changes()
        self._leave_out([(old.size, behind - old.size), *raw])
        self._take_in([change for change in changes if change[0] < behind])
        spans = [changed_pages(at, len(data)) for at, data in changes]
        for start, stop in [*spans, changed_pages(old.size, size - old.size)]:
            self._pages |= page_digests(captured, self._outside, start, min(stop, size))
        with open_to_write(self.path) as handle:
            self._check_alone()
            manifest = Manifest(
                {entry.name: Listed.of(entry) for entry in self.state.entries()},
                size,
                sum(self._pages.values()) % 2**64,
                self._listed,
                self._earlier,
                differences(handle, changes, behind),
            )
            start = aligned(size)
            new = [change for change in changes if change[0] >= behind]
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
        changed = [(at, len(data)) for at, data in changes]
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
        dataset, chunk = file[column.name].id, file[column.name].chunks
        starts = []
        for index in np.ndindex(*count_chunks(column.shape, chunk[1:])):
            at = (i * extent for i, extent in zip(index, chunk[1:], strict=True))
            found = dataset.get_chunk_info_by_coord((dataset.shape[0] - 1, *at))
            starts.append(found.byte_offset)
        if min(starts) < self._record.stop:
            raise RuntimeError(
                "this version of HDF5 allocates chunks in another way than pencils expects"
            )
        return FileBlocks(tuple(starts), prod(chunk) * column.dtype.itemsize)

    def _check_alone(self) -> None:
        if self._read_head() != self._head:
            raise CheckpointError(
                f"{self.path} was changed by another process; make a new TimeSeries to continue it"
            )

    def _read_head(self) -> bytes:
        with open_to_read(self.path) as handle:
            return read_head(handle)


def _write_facts(file: Any, state: SeriesState) -> None:
    """Write the attributes of a series."""
    facts: dict[str, object] = {"format": FORMAT, "complete": 1, "series": _VERSION}
    facts |= {"h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version}
    for name, value in facts.items():
        file.attrs[RESERVED + name] = value
    for name, value in state.attrs.items():
        store_attribute(file, name, value)


def _write_tree(file: Any, state: SeriesState) -> None:
    """Make the datasets of a series without snapshots in a file that has none."""
    made = {name: _make_chunked(file, column) for name, column in state.columns.items()}
    for name, points in state.coordinates.items():
        store_value(file, name, Stored(COORDINATE, points), summed=True)
    if made:
        made[TIME].make_scale(TIME)
    for name, column in state.columns.items():
        _describe(file, made[name], column, state)
    describe_all(file, state.notes, has_grid=bool(state.coordinates))
    write_view(file, [column.name for column in state.fields], len(state.times))


def _describe(group: Any, dataset: Any, column: Column, state: SeriesState) -> None:
    for key, value in column.attrs.items():
        store_attribute(dataset, key, value)
    dataset.attrs[_DIMS] = json.dumps(column.labels)
    if SUMS + column.name in state.values:
        dataset.attrs[_SUM] = np.uint64(state.checksum(column.name))
    if column.name != TIME and column.nbytes:
        label(group, dataset, (TIME, *column.labels))


def _make_chunked(file: Any, column: Column) -> Any:
    """Make an extensible dataset without snapshots; chunks of fields get places when it grows."""
    entry = DatasetInfo(column.name, (0, *column.shape), column.dtype)
    return reserve(file, entry, _chunk(column), early=column.is_field)


def read(path: str, access: Access) -> tuple[SeriesState, Record | None, list[Extent]]:
    """Read what the file of a series holds, its record, and without one where its fields are.

    Raises CheckpointError if another program has stored it in a way that cannot be continued.
    """
    with hdf5.open_whole(path, access) as source:
        state = read_tree(path, source.file)
        _check_no_index(path, source.file, state)
        for column in state.columns.values():
            dataset = source.file[column.name]
            _check_layout(path, dataset, column)
            if dataset.shape[0] != len(state.times):
                raise _rewritten(path)
        raw = () if source.record else _raw_extents(source.file, state)
        return state, source.record, [*raw]


def read_tree(path: str, file: Any) -> SeriesState:
    """Read what a series holds; raise CheckpointError if it is none, or of a newer version."""
    version = file.attrs.get(SERIES)
    if version is None:
        raise no_series(path)
    if version > _VERSION:
        raise CheckpointError(
            f"{path} is a series of version {version}, written by a newer pencils; install that"
        )
    attrs = {name: file.attrs[name] for name in file.attrs if not name.startswith(RESERVED)}
    state = SeriesState({name: value for name, value in attrs.items() if name not in OF_SCALES})
    for name in sorted(
        list_datasets(file), key=lambda name: (name != TIME, name.startswith(SUMS), name)
    ):
        dataset = file[name]
        if _DIMS in dataset.attrs:
            column = state.columns[name] = _read_column(name, dataset)
            if not column.is_field:
                state.values[name] = list(read_checked(dataset))
        elif dataset.attrs.get(RESERVED + "value") == COORDINATE:
            state.coordinates[name] = read_checked(dataset)
            state.notes[name] = _read_notes(dataset)
    return state


def no_series(path: str) -> CheckpointError:
    """Make the error for a file that is something else."""
    return CheckpointError(f"{path} is not a TimeSeries; choose another name, or remove it first")


def _read_notes(dataset: Any) -> dict[str, Any]:
    """Read the attributes that the user has given to a coordinate."""
    names = (key for key in dataset.attrs if key not in OF_SCALES and not key.startswith(RESERVED))
    return {key: dataset.attrs[key] for key in names}


def _read_column(name: str, dataset: Any) -> Column:
    attrs = {key: dataset.attrs[key] for key in dataset.attrs if key not in OF_SCALES}
    labels = tuple(json.loads(attrs.pop(_DIMS)))
    attrs.pop(_SUM, None)
    is_field = RESERVED + "components" in attrs
    dtype = dataset.dtype if dataset.dtype.names else np.dtype(dataset.dtype.str)
    return Column(name, dataset.shape[1:], dtype, labels, attrs, is_field=is_field)


def create(path: str, state: SeriesState) -> None:
    """Overwrite `path` with a series that has no snapshots."""
    with changing(path, "w") as file:
        _write_facts(file, state)
    seal_new(path, (), ())


def write_datasets(file: Any, state: SeriesState) -> None:
    """Make all datasets of a series without snapshots, instead of those that there are."""
    for name in list(file):
        del file[name]
    _write_tree(file, state)


def write_totals(file: Any, state: SeriesState) -> None:
    """Write what is about all snapshots: checksums of fields, and how many VTK shows."""
    for column in state.fields:
        file[column.name].attrs.modify(_SUM, np.uint64(state.checksum(column.name)))
    update_view(file, [column.name for column in state.fields], len(state.times))


def _chunk(column: Column) -> tuple[int, ...]:
    if column.is_field:
        return 1, *chunk_in_order(column.shape, column.dtype.itemsize, CHUNK_BYTES)
    batch = max(1, _BATCH_BYTES // max(1, column.nbytes))
    return batch, *(max(1, n) for n in column.shape)


def _check_no_index(path: str, file: Any, state: SeriesState) -> None:
    """Raise if a file is the index of a folder, as older versions made it."""
    if any(file[column.name].is_virtual for column in state.columns.values()):
        raise CheckpointError(
            f"{path} is the index of a folder of snapshots, which older versions of pencils wrote "
            "with storage='files'; read the snapshots beside it by pencils.load"
        )


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
