"""The one file of a series, which rank 0 opens, extends and describes. No communication.

A *column* is a dataset with an unlimited time axis: of a field or a selection of one, of a value,
of times, of checksums. A chunk holds one snapshot of a field or a part of it. To append, h5py
extends the datasets in memory, as `pencils.io.manifest` describes. HDF5 allocates the
new chunks at once and returns their addresses, where all ranks write the points. Then h5py writes
the values, the time among them, and the file is brought to its next state.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError, CheckpointError
from pencils.io import hdf5
from pencils.io.captured_file import changing
from pencils.io.commit import WriterLock, clean, commit, discard, make_temporary, set_aside
from pencils.io.contents import label_axes
from pencils.io.create import (
    LIBRARIES,
    describe_all,
    label,
    reserve,
    store_attribute,
    store_value,
    write_head,
)
from pencils.io.direct import FileBlocks, checksum
from pencils.io.file_access import system
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
from pencils.io.manifest import (
    UNKNOWN_LAYOUT,
    ByteRange,
    Listed,
    Record,
    check_manifest,
    repair,
    seal_new,
)
from pencils.io.objects import read_checked
from pencils.io.options import already_there, check_known
from pencils.io.slabs import chunk_in_order, count_chunks
from pencils.io.vtkhdf import update_view
from pencils.layout import Selection

# Attribute of files that are series, with the version of their own format.
SERIES, VERSION = RESERVED + "series", 1
# Checksums of the snapshots of fields, by name in this group.
SERIES_SUMS = RESERVED + "checksum/"
# Attributes of datasets: names of the axes, the sum of all checksums, which points of a field are
# stored, that it holds values.
DIMS, _SUM, _SELECTED, _VALUE = (
    RESERVED + name for name in ("dims", "checksum", "selection", "value")
)
# Readers before HDF5 2.0 take chunks below 4 GiB.
CHUNK_BYTES = 2**30
# Values of that many bytes, of several times, share a chunk.
_BATCH_BYTES = 1024


@dataclass(frozen=True, slots=True)
class SeriesColumn:
    """A dataset that grows with time."""

    name: str
    shape: tuple[int, ...]  # of one snapshot
    dtype: np.dtype[Any]
    labels: tuple[str, ...] = ()  # names of the axes of a snapshot
    attrs: Mapping[str, Any] = field(default_factory=dict)  # of the dataset
    is_field: bool = False  # or a value that all ranks have alike

    @property
    def nbytes(self) -> int:
        """Bytes of one snapshot."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def chunk(self) -> tuple[int, ...]:
        """Extents of a chunk of the dataset."""
        if self.is_field:
            return 1, *chunk_in_order(self.shape, self.dtype.itemsize, CHUNK_BYTES)
        batch = max(1, _BATCH_BYTES // max(1, self.nbytes))
        return batch, *(max(1, n) for n in self.shape)


class SeriesFile:
    """The file of a series, which is locked, and made if there is none. On rank 0 only.

    If a process was killed while it changed the file, the change is completed. `attrs` are those of
    a new file, `dataset_attrs` those of datasets that the first snapshot will make, `storage` their
    filters and chunks. With mode "w", what is there stays until the first snapshot or `close`.
    """

    def __init__(
        self,
        target: Path,
        mode: str,
        attrs: Mapping[str, Any],
        dataset_attrs: Mapping[str, Any],
        *,
        edited: bool = False,
        storage: Mapping[str, Any],
    ) -> None:
        self._target, self._given, self._storage = target, (attrs, dataset_attrs), storage
        # Removes a new file that never takes the place of the old one.
        self._remove: weakref.finalize[Any, Any] | None = None
        self._lock = WriterLock()
        self._lock.take(target)
        with self._changing():
            self._open(mode, edited=edited)

    @staticmethod
    def storage(compression: object, chunks: object) -> Mapping[str, Any]:
        """Return how fields are stored; ArgumentError if a format has no such options."""
        raise ArgumentError(
            f"compression={compression!r:.80} and chunks={chunks!r:.80} are for series in Zarr "
            "folders like 'run.zarr'; leave them out, or choose such a name"
        )

    def _open(self, mode: str, *, edited: bool = False) -> None:
        """Open the file, or make one that has no snapshots."""
        self.times: list[float] = []
        self._columns: dict[str, SeriesColumn] = {}
        self._coordinates: dict[str, Array] = {}  # along axes of columns
        self._sums: dict[str, int] = {}  # checksums of all snapshots together, by field
        self._dataset_attrs: dict[str, Any] = {}  # of coordinates; of a new series, of all datasets
        target, path = self._target, str(self._target)
        is_new = not target.exists()
        if mode == "x" and not is_new:
            raise already_there(path)
        if (target / "index.h5").exists() and mode == "a":
            raise CheckpointError(
                f"{path} is a folder of snapshots, which older versions of pencils wrote with "
                "storage='files'. Choose another name for the series, and read each snapshot by "
                f"pencils.load({str(target / 'snapshot-000000.h5')!r})"
            )
        if is_new or mode == "w":
            clean(target)
            temporary = make_temporary(target)
            self._remove = weakref.finalize(self, discard, temporary)
            path = str(temporary)
            with system("write", target):
                self._create(path, self._given[0])
        self._load(path, Access(edited=edited))
        self.path = path  # to write to: a temporary one while there is another with the name
        if is_new:
            self._take_place()

    def _create(self, path: str, attrs: Mapping[str, Any]) -> None:
        """Overwrite `path` with a series that has no snapshots."""
        with changing(path, "w") as file:
            head = {"format": FORMAT, "complete": 1, "series": VERSION}
            write_head(file, head | LIBRARIES, attrs)
        seal_new(path, (), ())

    def _load(self, path: str, access: Access) -> None:
        """Read all but the points of fields."""
        repair(path)
        record, raw = self._read(path, access)
        if record is None:  # another program has changed the file
            seal_new(path, self._entries(), raw, in_use=True)
            record = check_manifest(path)
            assert record is not None
        self._record: Record = record

    @property
    def names(self) -> list[str]:
        """Names of the fields and numbers of a snapshot."""
        return sorted(
            name for name in self._columns if name != TIME and not name.startswith(SERIES_SUMS)
        )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change this object and the file together; after a failure neither can be trusted."""
        self.whole = False
        try:
            yield
        except BaseException:
            self.abandon()
            raise
        self.whole = True

    def _take_place(self) -> None:
        """Give a new file its name, in place of the old file."""
        if self._remove is not None and self._remove.alive:
            commit(Path(self.path), self._target, alone=True)
            self.path = str(self._target)
            if hasattr(self, "_record"):
                self._record.path = self.path
            self._remove.detach()

    def close(self) -> None:
        """Give a new file the name, unless it was abandoned, and let others write."""
        with self._changing():
            self._take_place()
        self.abandon()

    def abandon(self) -> None:
        """Forget changes, remove a new file that has not got the name, and let others write."""
        try:
            if hasattr(self, "_record"):  # else the file could not be opened
                self._record.close()
            if self._remove is not None:
                self._remove()
        finally:
            self._lock.release()

    def set_aside(self) -> None:
        """Give the file another name, and make a new one."""
        with self._changing():
            set_aside(self._target)
            self._open("a")

    def compare(
        self,
        selected: Mapping[str, tuple[PencilArray, Selection]],
        taken: Mapping[str, PencilArray],
        values: Mapping[str, Stored],
        grid: LocalGrid | None,
    ) -> None:
        """Fix the columns of the series, or raise ArgumentError if those to append differ."""
        given = {}
        for name, value in values.items():
            labels = tuple(f"dim{axis}_{n}" for axis, n in enumerate(value.data.shape))
            attrs = {_VALUE: "numpy"}
            given[name] = SeriesColumn(name, value.data.shape, value.data.dtype, labels, attrs)
        coordinates = {} if grid is None else dict(zip(grid.names, grid.axes, strict=True))
        for name, (u, selection) in selected.items():
            given[name], own = _describe_field(name, u, selection, taken[name], grid)
            twice = own.keys() & coordinates.keys()
            if twice:
                raise ArgumentError(
                    f"two fields need different coordinates named {min(twice)!r}; rename one of "
                    "the fields"
                )
            coordinates |= own
        given = dict(sorted(given.items()))
        (self._check if self.times else self._start)(given, coordinates)

    def _start(self, given: Mapping[str, SeriesColumn], coordinates: Mapping[str, Array]) -> None:
        labels = {label for column in given.values() for label in column.labels}
        taken = (labels | coordinates.keys()) & (given.keys() | {TIME})
        if taken:
            raise ArgumentError(
                f"{min(taken)!r} names a dimension of the grid, so it cannot be a field; rename"
            )
        known, of_user = {*given, TIME, *coordinates}, self._given[1]
        check_known("attrs", of_user, known)
        kept = {name: own for name, own in self._dataset_attrs.items() if name in coordinates}
        self._dataset_attrs = kept | dict(of_user)
        names = [column.name for column in given.values() if column.is_field]
        times = SeriesColumn(TIME, (), np.dtype(float), attrs={_VALUE: "numpy"})
        sums = {
            SERIES_SUMS + name: SeriesColumn(SERIES_SUMS + name, (), np.dtype(np.uint64))
            for name in names
        }
        self._columns = {TIME: times, **given, **sums}
        self._coordinates = dict(coordinates)
        self._sums = dict.fromkeys(names, 0)

    def _check(self, given: Mapping[str, SeriesColumn], coordinates: Mapping[str, Array]) -> None:
        own = set(self.names)
        for names, what in ((own - given.keys(), "lacks"), (given.keys() - own, "also has")):
            if names:
                raise ArgumentError(
                    f"the series holds {sorted(own)}; the snapshot {what} {sorted(names)}"
                )
        for name, new in given.items():
            old = self._columns[name]
            for what, before, now in (
                ("shape", old.shape, new.shape),
                ("dtype", old.dtype, new.dtype),
                ("is_field", old.is_field, new.is_field),
                ("selection", old.attrs.get(_SELECTED), new.attrs.get(_SELECTED)),
            ):
                if before != now:
                    raise ArgumentError(
                        f"{name!r} has {what} {before} in the series, but {now} in the snapshot"
                    )
        for name, points in coordinates.items():
            if not np.array_equal(self._coordinates.get(name, points[:0]), points):
                raise ArgumentError(
                    f"the coordinate {name!r} of the grid differs from the one in the series"
                )

    def extend(self) -> dict[str, FileBlocks]:
        """Extend all datasets in memory; return the places of the new snapshot of every field."""
        count = len(self.times)
        if count == 0:
            with self._changing():
                with changing(self._record.begin()) as file:
                    self._make_datasets(file)
                self._end()
        with changing(self._record.begin()) as file:
            for name in self._columns:
                file[name].resize(count + 1, axis=0)
            return {name: self._find(file, self._columns[name]) for name in self._sums}

    def commit(
        self,
        time: float,
        values: Mapping[str, Stored],
        sums: Mapping[str, int],
        places: Mapping[str, FileBlocks],
    ) -> None:
        """Add a snapshot whose fields are written at `places`: its time, values and checksums."""
        assert self._record.captured is not None
        with self._changing():
            row = self._add_row(time, values, sums)
            with changing(self._record.captured) as file:
                for name, value in row.items():
                    if np.size(value):
                        file[name][-1] = np.asarray(value, self._columns[name].dtype)
                self._write_totals(file)
            self._end((start, place.nbytes) for place in places.values() for start in place.starts)
            self._take_place()

    def _add_row(
        self, time: float, values: Mapping[str, Stored], sums: Mapping[str, int]
    ) -> dict[str, Any]:
        """Count a snapshot; return its numbers by name of the column."""
        self.times.append(time)
        self._sums = {name: (sums[name] + own) % 2**64 for name, own in self._sums.items()}
        row = {TIME: time} | {name: one.data for name, one in values.items()}
        return row | {SERIES_SUMS + name: total for name, total in sums.items()}

    def cut(self, count: int) -> None:
        """Keep the first snapshots only."""
        with self._changing():
            del self.times[count:]
            with changing(self._record.begin()) as file:
                for name in self._columns:
                    file[name].resize(count, axis=0)
                self._sums = {name: total_of(file[SERIES_SUMS + name][...]) for name in self._sums}
                self._write_totals(file)
            self._end()

    def _end(self, raw: Iterable[ByteRange] = ()) -> None:
        self._record.end({entry.name: Listed.of(entry) for entry in self._entries()}, raw)

    def _entries(self) -> list[DatasetInfo]:
        """Describe all datasets."""
        entries = []
        for name, column in self._columns.items():
            kind = "" if column.is_field else column.attrs.get(_VALUE, COORDINATE)
            shape, total = (len(self.times), *column.shape), self._sums.get(name)
            entries.append(DatasetInfo(name, shape, column.dtype, kind=kind, checksum=total))
        for name, points in self._coordinates.items():
            entries.append(DatasetInfo(name, points.shape, points.dtype, kind=COORDINATE))
        return entries

    def _write_totals(self, file: Any) -> None:
        """Write the totals over all snapshots: checksums of fields, and the number for VTK."""
        for name, total in self._sums.items():
            file[name].attrs.modify(_SUM, np.uint64(total))
        update_view(file, [*self._sums], len(self.times))

    def _make_datasets(self, file: Any) -> None:
        """Make all datasets without snapshots, instead of those that there are."""
        for name in list(file):
            del file[name]
        made = {}
        for name, column in self._columns.items():  # fields get places when they grow
            entry = DatasetInfo(name, (0, *column.shape), column.dtype)
            made[name] = reserve(file, entry, column.chunk, early=column.is_field)
        for name, points in self._coordinates.items():
            store_value(file, name, Stored(COORDINATE, points), checksum(points))
        made[TIME].make_scale(TIME)
        for name, column in self._columns.items():
            for key, value in column.attrs.items():
                store_attribute(made[name], key, value)
            made[name].attrs[DIMS] = json.dumps(column.labels)
            if name in self._sums:
                made[name].attrs[_SUM] = np.uint64(0)
            if name != TIME and column.nbytes:
                label(file, made[name], (TIME, *column.labels))
        describe_all(file, self._dataset_attrs, has_grid=bool(self._coordinates))

    def _find(self, file: Any, column: SeriesColumn) -> FileBlocks:
        """Find the chunks of the last snapshot of a field."""
        if not column.nbytes:
            return FileBlocks((), 1)
        dataset, chunk = file[column.name].id, column.chunk
        starts = []
        for index in np.ndindex(*count_chunks(column.shape, chunk[1:])):
            at = (i * extent for i, extent in zip(index, chunk[1:], strict=True))
            found = dataset.get_chunk_info_by_coord((dataset.shape[0] - 1, *at))
            starts.append(found.byte_offset)
        if min(starts) < self._record.stop:
            raise RuntimeError(UNKNOWN_LAYOUT)
        return FileBlocks(tuple(starts), prod(chunk) * column.dtype.itemsize)

    def _read(self, path: str, access: Access) -> tuple[Any, list[ByteRange]]:
        """Read columns and coordinates; return the record, or without one the places of fields."""
        with hdf5.open_whole(path, access) as source:
            file = source.file
            check_series(path, file.attrs)
            names = hdf5.list_datasets(file)
            for name in sorted(names, key=series_order):
                self._read_dataset(path, name, file[name])
            if self._sums.keys() != {name for name, one in self._columns.items() if one.is_field}:
                raise _rewritten(path)
            extents: list[ByteRange] = []
            for name, column in self._columns.items():
                _check_layout(path, file[name], column, len(self.times))
                stored = file[name].id
                count = stored.get_num_chunks() if column.is_field and not source.record else 0
                infos = map(stored.get_chunk_info, range(count if column.nbytes else 0))
                extents += [(int(info.byte_offset), int(info.size)) for info in infos]
            return source.record, extents

    def _read_dataset(self, path: str, name: str, dataset: Any) -> None:
        attrs = {key: dataset.attrs[key] for key in dataset.attrs if key not in OF_SCALES}
        if DIMS in attrs and dataset.is_virtual:
            raise CheckpointError(
                f"{path} is the index of a folder of snapshots, which older versions of "
                "pencils wrote with storage='files'; read the snapshots beside it by "
                "pencils.load"
            )
        dtype = dataset.dtype if dataset.dtype.names else np.dtype(dataset.dtype.str)
        self._learn(name, attrs, (dtype, dataset.shape), partial(read_checked, dataset))

    def _learn(
        self,
        name: str,
        attrs: dict[str, Any],
        kind: tuple[np.dtype[Any], tuple[int, ...]],
        read: Callable[[], Array],
    ) -> None:
        """Note a column or a coordinate, of a type and a shape, that is in the file."""
        dtype, shape = kind
        if DIMS in attrs:
            labels, is_field = tuple(json.loads(attrs.pop(DIMS))), RESERVED + "components" in attrs
            attrs.pop(_SUM, None)
            column = SeriesColumn(name, shape[1:], dtype, labels, attrs, is_field=is_field)
            self._columns[name] = column
            if name == TIME:
                self.times = list(read())
            elif name.startswith(SERIES_SUMS):
                self._sums[name.removeprefix(SERIES_SUMS)] = total_of(read())
        elif attrs.get(_VALUE) == COORDINATE:
            self._coordinates[name] = read()
            own = {key: value for key, value in attrs.items() if not key.startswith(RESERVED)}
            self._dataset_attrs[name] = own


def series_order(name: str) -> tuple[bool, bool, str]:
    """Return the place of a dataset in a series: times come first, checksums last."""
    return name != TIME, name.startswith(SERIES_SUMS), name


def check_series(path: str, attrs: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless the attributes are of a series that this version knows."""
    version = attrs.get(SERIES)
    if version is None:
        raise CheckpointError(
            f"{path} is not a TimeSeries; choose another name, or remove it first"
        )
    if version > VERSION:
        raise CheckpointError(
            f"{path} is a series of version {version}, written by a newer pencils. "
            "Install a newer pencils"
        )


def total_of(sums: Array) -> int:
    """Add checksums, modulo ``2**64``."""
    return int(sums.astype(np.uint64).sum())


def _check_layout(path: str, dataset: Any, column: SeriesColumn, count: int) -> None:
    """Raise CheckpointError if a dataset cannot be continued as another program has stored it."""
    layout = dataset.id.get_create_plist()
    early = layout.get_alloc_time() == h5py.h5d.ALLOC_TIME_EARLY
    sound = dataset.chunks == column.chunk and not layout.get_nfilters()
    if not sound or early < column.is_field or dataset.shape[0] != count:
        raise _rewritten(path)


def _rewritten(path: str) -> CheckpointError:
    return CheckpointError(
        f"{path} was rewritten by another tool; it can be read, but not continued"
    )


def _describe_field(
    name: str, u: PencilArray, selection: Selection, taken: PencilArray, grid: LocalGrid | None
) -> tuple[SeriesColumn, dict[str, Array]]:
    """Describe the dataset of a field, and the coordinates of its own that it needs.

    Where an integer selects one point of an axis, its coordinate becomes an attribute.
    """
    lead, dropped = len(u.components), selection.dropped
    left = [dim for dim in range(u.pencil.ndim) if not dropped[lead + dim]]
    entry = DatasetInfo(
        name,
        selection.shape,
        taken.dtype,
        components=1 + dropped[:lead].count(False),  # with time, for load
        singletons=tuple(dim in taken.singletons for dim in left),
        periodic=tuple(taken.pencil.periodic[dim] for dim in left),
    )
    parts = (
        str(one.start) if drop else f"{one.start}:{one.stop}:{one.step}"
        for one, drop in zip(selection.ranges, dropped, strict=True)
    )
    labels, own, single = label_axes(name, u, selection, grid)
    attrs = entry.attrs | {_SELECTED: f"[{', '.join(parts)}]"} | single
    column = SeriesColumn(name, entry.shape, entry.dtype, labels, attrs, is_field=True)
    return column, own
