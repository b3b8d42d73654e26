"""The Zarr folder of a series: each snapshot is in chunks of its own, along the first axis.

The root has the metadata of all arrays, and so the number of snapshots: to replace it, which is
last, is what adds one. Chunks that are not yet in it may be written at any time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.errors.missing import needs
from pencils.io.commit import sync
from pencils.io.contents import MOST_FILES, as_chunks, extents_of, sharded
from pencils.io.file_access import system
from pencils.io.file_info import (
    CONVENTIONS,
    COORDINATE,
    RESERVED,
    TIME,
    Access,
    DatasetInfo,
    Stored,
)
from pencils.io.options import check_known
from pencils.io.series_file import (
    DIMS,
    SERIES_SUMS,
    VERSION,
    SeriesColumn,
    SeriesFile,
    check_series,
    series_order,
    total_of,
)
from pencils.io.slabs import FileMoves, find_plan
from pencils.io.zarr_read import (
    ROOT,
    SUMS,
    metadata_in,
    opened,
    put_json,
    read_json,
    seal,
    store_at,
)
from pencils.io.zarr_write import (
    CHECKED,
    WrittenObjects,
    as_codecs,
    check_type_of,
    make_array,
    make_root,
    make_value,
    plain,
    storable,
    writable,
    write_chunks,
)

with needs("Zarr"):
    import zarr
    from zarr.core.sync import sync as await_
    from zarr.storage import MemoryStore

Extents = tuple[int, ...]
_PATIENCE = 1.0  # seconds


class ZarrSeries(SeriesFile):
    """The folder of a series, which is locked, and made if there is none. On rank 0 only."""

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with super()._changing(), system("write", self._target):
            yield

    def abandon(self) -> None:
        """Do it when zarr no longer writes: after an error it ends what else it has begun."""
        try:
            await_(_wait_for_others())
        finally:
            super().abandon()

    def _create(self, path: str, attrs: Mapping[str, Any]) -> None:
        store = store_at(path, write=True)
        make_root(store, attrs, {"complete": 1, "series": VERSION}, has_grid=False)
        seal(store, {SUMS: {}})

    def _load(self, path: str, access: Access) -> None:
        with opened(path, access._replace(verify=True)) as folder:
            check_series(path, folder.attrs)
            self._repair(store_at(path, write=True), folder.root)
            for name in sorted(folder.arrays, key=series_order):
                array = folder.arrays[name]
                kind = array.dtype, array.shape
                self._learn(name, array.attrs.asdict(), kind, partial(_read_all, array))
            self._units: dict[str, Extents] = {
                name: tuple((folder.arrays[name].shards or folder.arrays[name].chunks)[1:])
                for name in self._sums
            }

    @staticmethod
    def _repair(store: Any, root: Mapping[str, Any]) -> None:
        """Write metadata of arrays that a loss of power has left empty, as the root has them."""
        for name, own in metadata_in(root).items():
            with suppress(ValueError):
                if read_json(store, f"{name}/{ROOT}") is not None:
                    continue
            put_json(store, f"{name}/{ROOT}", own)

    @staticmethod
    def storage(compression: object, chunks: object) -> Mapping[str, Any]:
        """Return how fields are stored."""
        return {**as_codecs(compression), "chunks": as_chunks(chunks)}

    def _start(self, given: Mapping[str, SeriesColumn], coordinates: Mapping[str, Array]) -> None:
        super()._start(given, coordinates)
        check_known("chunks", self._storage.get("chunks"), self._sums)
        store = MemoryStore()
        for column in self._columns.values():
            self._make(store, column)

    def _make(self, store: Any, column: SeriesColumn) -> None:
        """Make an array without snapshots; ArgumentError or TypeError if that is not possible."""
        check_type_of(entry := self._describe(column))
        labels = column.labels or [f"dim{axis}_{n}" for axis, n in enumerate(column.shape)]
        attrs = {**column.attrs, DIMS: json.dumps(column.labels)}
        attrs = plain(attrs | self._dataset_attrs.get(column.name, {}))
        codecs = self._storage.get("codecs", ()) if column.is_field else ()
        with storable(entry, codecs):
            make_array(store, entry, (TIME, *labels), attrs, [*codecs, CHECKED])

    def _describe(self, column: SeriesColumn) -> DatasetInfo:
        """Describe an array without snapshots by its chunks, and shards."""
        name, shape = column.name, (0, *column.shape)
        if not column.is_field:
            return DatasetInfo(name, shape, column.dtype, chunks=column.chunk)
        lead = int(column.attrs[RESERVED + "components"]) - 1
        part = DatasetInfo(name, column.shape, column.dtype, components=lead)
        given = extents_of(self._storage.get("chunks", ()), name)
        part = sharded(part, given, (), MOST_FILES // max(1, len(self._sums)))
        inner = (1, *part.inner) if part.inner else ()
        return DatasetInfo(name, shape, column.dtype, chunks=(1, *part.chunks), inner=inner)

    def extend(self) -> dict[str, Any]:
        """Make the arrays of a new series; return the extents that one rank writes, by field."""
        if not self.times:
            with self._changing():
                self._make_arrays()
        return self._units

    def commit(
        self,
        time: float,
        values: Mapping[str, Stored],
        sums: Mapping[str, int],
        places: Mapping[str, Any],  # noqa: ARG002 - of files
    ) -> None:
        """Add a snapshot whose fields are written: its time, values and checksums."""
        with self._changing():
            count, written = len(self.times), WrittenObjects(self.path)
            group = _open(self.path)
            for name, value in self._add_row(time, values, sums).items():
                column = self._columns[name]
                array = writable(group[name], (count + 1, *column.shape))
                array[count] = np.asarray(value, column.dtype)
                chunk = (count // column.chunk[0], *(0 for _ in column.shape))
                written.note(f"{name}/{array.metadata.encode_chunk_key(chunk)}")
            written.sync()
            written.raise_error()
            self._reshape(group, count + 1)
            self._take_place()

    def cut(self, count: int) -> None:
        """Keep the first snapshots only."""
        with self._changing():
            del self.times[count:]
            group = _open(self.path)
            sums = {name: group[SERIES_SUMS + name][:count] for name in self._sums}
            self._sums = {name: total_of(one) for name, one in sums.items()}
            self._reshape(group, count)

    def _reshape(self, group: Any, count: int) -> None:
        """Let all arrays, times last, have so many snapshots, and then the root."""
        for name in sorted(self._columns, reverse=True, key=series_order):
            array = group[name]
            same = zarr.AsyncArray(metadata=array.metadata, store_path=array.store_path)
            shape = (count, *self._columns[name].shape)
            await_(same.resize(shape, delete_outside_chunks=False))
        seal(store_at(self.path, write=True), {SUMS: self._sums})
        sync(Path(self.path))

    def _make_arrays(self) -> None:
        """Make all arrays without snapshots, instead of those that there are."""
        store = store_at(self.path, write=True)
        group = zarr.open_group(store, mode="r+", use_consolidated=False)
        for name in [*group.keys()]:
            del group[name]
        for name, points in self._coordinates.items():
            own = self._dataset_attrs.get(name, {})
            make_value(store, name, Stored(COORDINATE, points), (name,), own)
        for name, column in self._columns.items():
            self._make(store, column)
            if column.is_field:
                self._units[name] = self._describe(column).chunks[1:]
        if self._coordinates:
            group.attrs.setdefault("Conventions", CONVENTIONS)


async def _wait_for_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_PATIENCE)


def _open(path: str) -> Any:
    """Open a folder to write to it, with the metadata of each array."""
    return zarr.open_group(store_at(path, write=True), mode="r+", use_consolidated=False)


def _read_all(array: Any) -> Any:
    return np.asarray(array[...])


def bring(
    u: PencilArray,
    place: tuple[str, Extents, tuple[bool, ...], int],
    file: WrittenObjects,
    moves: FileMoves,
    path: str,
) -> Callable[[], int]:
    """Move a snapshot of a field to the ranks that write its chunks; return this rank's work.

    `place` has the name of the field, the extents of what one rank writes, the dimensions that are
    not stored, and the number of the snapshot. *Collective*.
    """
    name, unit, dropped, step = place
    lead = len(u.components)
    given = iter(unit[lead:])
    extents = tuple(1 if drop else next(given) for drop in dropped)
    block = moves.of(u, extents, file.raise_error)
    tiles = find_plan(u, extents).tiles

    def work() -> int:
        if not tiles.box().volume:
            return 0
        tiling = tiles, (1,) * lead + extents
        gone = {lead + dim for dim, drop in enumerate(dropped) if drop}
        with system("write", path):
            array = _open(path)[name]
            array = writable(array, (step + 1, *array.shape[1:]))
            return write_chunks(array, block, tiling, file, step=(step,), dropped=gone) % 2**64

    return work
