"""Write the datasets and attributes of a series by h5py, and read them. No communication."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import h5py
import numpy as np

from pencils.errors import CheckpointError
from pencils.io import hdf5
from pencils.io.captured_file import changing
from pencils.io.chunks import chunk_in_order
from pencils.io.create import describe_all, file_type, label, reserve, store_attribute, store_value
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
from pencils.io.hdf5_file import list_datasets
from pencils.io.manifest import Extent, Record
from pencils.io.seal import seal_new
from pencils.io.series.state import SOURCE, SUMS, Column, SeriesState
from pencils.io.vtkhdf import update_view, write_view

# Attribute of files that are series, with the version of what only those have.
SERIES = RESERVED + "series"
_VERSION = 1
# Attribute of an index: the number in the names of its snapshots.
RUN = RESERVED + "run"
_DIMS = RESERVED + "dims"
_SUM = RESERVED + "checksum"

# Readers before HDF5 2.0 take chunks below 4 GiB.
CHUNK_BYTES = 2**30
# Values of that many bytes, of several times, share a chunk.
_BATCH_BYTES = 1024

Make = Callable[[Any, Column], Any]


def _write_facts(file: Any, state: SeriesState) -> None:
    """Write the attributes of a series."""
    facts: dict[str, object] = {"format": FORMAT, "complete": 1, "series": _VERSION}
    facts |= {"h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version}
    for name, value in facts.items():
        file.attrs[RESERVED + name] = value
    for name, value in state.attrs.items():
        store_attribute(file, name, value)


def _write_tree(file: Any, state: SeriesState, make: Make) -> None:
    """Make the datasets of a series in a file that has none; ``make(file, column)`` makes one."""
    made = {name: make(file, column) for name, column in state.columns.items()}
    for name, points in state.coordinates.items():
        store_value(file, name, Stored(COORDINATE, points), summed=True)
    if made:
        made[TIME].make_scale(TIME)
    for name, column in state.columns.items():
        _describe(file, made[name], column, state)
    describe_all(file, state.notes, has_grid=bool(state.coordinates))
    write_view(file, [column.name for column in state.fields], len(state.times))


def create_index(path: str, state: SeriesState, files: Sequence[str], run: int) -> None:
    """Overwrite `path` with a series whose fields are in other files, one for each snapshot.

    The names of these files have the number `run`.
    """

    def make(group: Any, column: Column) -> Any:
        if column.is_field:
            return make_virtual(group, column, files)
        history = np.array(state.values[column.name], column.dtype)
        return group.create_dataset(column.name, data=history.reshape(len(files), *column.shape))

    with changing(path, "w") as file:
        _write_facts(file, state)
        file.attrs[RUN] = run
        _write_tree(file, state, make)
    seal_new(path, state.entries(), ())


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


def make_virtual(group: Any, column: Column, files: Sequence[str]) -> Any:
    """Make a dataset whose rows are datasets of other files."""
    kind = file_type(DatasetInfo(column.name, column.shape, column.dtype)).dtype
    shape = len(files), *column.shape
    if not column.nbytes:
        return group.create_dataset(column.name, shape, kind)
    source = tuple(map(int, column.attrs[SOURCE]))
    layout = h5py.VirtualLayout(shape, kind)
    for number, file in enumerate(files):
        layout[number] = h5py.VirtualSource(file, column.name, source, kind)
    return group.create_virtual_dataset(column.name, layout)


def read(path: str, access: Access) -> tuple[SeriesState, Record | None, list[Extent]]:
    """Read what the file of a series holds, its record, and without one where its fields are.

    Raises CheckpointError if another program has stored it in a way that cannot be continued.
    """
    with hdf5.open_whole(path, access) as source:
        state = read_tree(path, source.file)
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
                state.values[name] = list(dataset[...])
        elif dataset.attrs.get(RESERVED + "value") == COORDINATE:
            state.coordinates[name] = dataset[...]
            state.notes[name] = _read_notes(dataset)
    return state


def no_series(path: str) -> CheckpointError:
    """Make the error for a file that is something else."""
    return CheckpointError(f"{path} is not a TimeSeries; choose another name, or remove it first")


def sources(file: Any) -> list[str]:
    """Name the files whose datasets a series shows, each once."""
    found = [file[name] for name in list_datasets(file)]
    parts = (part for one in found if one.is_virtual for part in one.virtual_sources())
    return list(dict.fromkeys(part.file_name for part in parts))


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
    _write_tree(file, state, _make_chunked)


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
