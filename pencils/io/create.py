"""Make HDF5 files with room for fields, on rank 0; filter chunks, on all ranks."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple
from uuid import uuid4

import h5py
import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.errors import ArgumentError
from pencils.errors.missing import needs
from pencils.io.captured_file import CapturedFile, Change, changing
from pencils.io.contents import Contents
from pencils.io.direct import checksum
from pencils.io.file_access import open_to_write, write
from pencils.io.file_info import (
    CONVENTIONS,
    COORDINATE,
    FORMAT,
    GIVEN_CONVENTIONS,
    RESERVED,
    DatasetInfo,
    Stored,
    encode_attribute,
)
from pencils.io.slabs import chunk_box
from pencils.io.tolerance import largest_error, rounded, suits_zfp
from pencils.io.vtkhdf import write_view
from pencils.pencil import Bounded
from pencils.plans import Freeable

Ints = NDArray[np.int64]

# Written into each file, in this order, among the attributes of pencils.
LIBRARIES = {"h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version}
# Bytes of HDF5 in a file that are kept for the next one.
_KEPT_BYTES = 2**16
# Filters of fields with a bound on the error, behind ZFP, which has the lowest bit of masks.
_LOSSLESS = {"shuffle": True, "compression": "gzip", "compression_opts": 1}
_ONLY_ZFP = 0b110
# Coordinates with these names are the axes of Cartesian grids.
_AXES = ("x", "y", "z")
# The name by which netCDF distinguishes a dimension from a variable.
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:9d}"


class LaidOut(NamedTuple):
    """A file with room for fields: what HDF5 has written to it, and the places of numbers."""

    changes: list[Change]
    size: int
    fields: list[DatasetInfo]
    values: list[DatasetInfo]
    # Of step, time and checksums, by "/step", "/time" and the name of the dataset; that with the
    # empty name is whether the file is complete. None if they are not known.
    offsets: Mapping[str, list[int]] | None


def lay_out(path: str, contents: Contents, kept: Bounded) -> LaidOut:
    """Overwrite `path` with a file that has room for fields, and return its description.

    Chunks get room later, by `place_chunks`, and checksums of fields by `note_complete`. The bytes
    of HDF5 may be among those `kept`, of a file that differs only in values, step and time.
    """
    values = {name: np.ascontiguousarray(value.data) for name, value in contents.values.items()}
    sums = {name: checksum(data) for name, data in values.items()} if contents.summed else {}
    numbers = {f"/{name}": np.asarray(number) for name, number in contents.step_and_time.items()}
    numbers |= {name: np.asarray(total, np.uint64) for name, total in sums.items()}
    key = _key_of(contents, numbers)
    made: LaidOut | None = kept.get(key)
    if made is None:
        # HDF5 checks attributes that it tracks by sums, which other numbers would not match.
        made = _make(path, contents, numbers, marked=not h5py.get_config().track_order)
        if key and made.offsets and sum(len(data) for _, data in made.changes) <= _KEPT_BYTES:
            kept.add(key, made)
    own = [(one.offset or 0, values[one.name].tobytes()) for one in made.values]
    for name, offsets in (made.offsets or {}).items():
        own += [(at, numbers[name].tobytes()) for at in offsets if name in numbers]
    with open_to_write(path) as handle:
        for offset, data in [*made.changes, *own]:
            write(handle, data, offset)
        os.ftruncate(handle, made.size)
    summed = [replace(one, checksum=sums.get(one.name)) for one in made.values]
    return made._replace(values=summed)


def _key_of(contents: Contents, numbers: Mapping[str, Array]) -> tuple[object, ...] | None:
    """Return all that the bytes of HDF5 depend on; None if it cannot be compared."""
    parts = [contents.attrs, *contents.dataset_attrs.values()]
    attrs = [[(name, encode_attribute(value)) for name, value in own.items()] for own in parts]
    if any(known is None for own in attrs for _, known in own):
        return None
    values = [
        (name, kind, data.dtype, data.shape, data.tobytes() if kind == COORDINATE else b"")
        for name, (kind, data) in contents.values.items()
    ]
    config = h5py.get_config()  # which the user may change
    return (
        *(tuple(contents.entries), tuple(values), tuple(contents.scales.items())),
        *((name, number.dtype) for name, number in numbers.items()),
        *(tuple(contents.dataset_attrs), tuple(map(tuple, attrs)), repr(contents.compression)),
        *(contents.summed, contents.align, contents.grid is None, config.track_order),
        *(repr(config.bool_names), repr(config.complex_names)),
    )


def _make(
    path: str, contents: Contents, known: Mapping[str, Array], *, marked: bool = True
) -> LaidOut:
    """Let HDF5 lay out a file in memory.

    If it is `marked`, random numbers are written, by which their places are found: h5py does not
    tell these, and to open the file again by it at the end makes a small save take a seventh
    longer.
    """
    later = ["", *(contents.fields if contents.summed else ())]  # zero until all is written
    numbers: dict[str, Array] = dict.fromkeys(later, np.zeros((), np.uint64)) | dict(known)
    # Their ends make finite numbers of both byte orders.
    marks = {name: b"@" + secrets.token_bytes(6) + b"@" for name in numbers if marked}
    written = {
        name: np.frombuffer(marks.get(name, number.tobytes()), number.dtype)[0]
        for name, number in numbers.items()
    }
    with CapturedFile(path) as captured:
        with changing(captured, "w", **_aligned(contents.align)) as file:
            fields, values = _write_all(file, contents, written)
        offsets = _find_marks(captured.changes(), marks)
        if not all(offsets.values()):
            return _make(path, contents, known, marked=False)
        for at in (at for name in later for at in offsets.get(name, ())):
            captured.poke(at, bytes(8))
        changes = captured.changes()
        return LaidOut(changes, captured.size, fields, values, offsets if marked else None)


def _write_all(
    file: Any, contents: Contents, numbers: Mapping[str, Any]
) -> tuple[list[DatasetInfo], list[DatasetInfo]]:
    """Make all datasets of a new file, and write values and attributes; the numbers are given."""
    head = {"format": FORMAT, "version": version(), "complete": np.int64(numbers[""])} | LIBRARIES
    run = {name: numbers.get(f"/{name}", one) for name, one in contents.step_and_time.items()}
    write_head(file, head | run, contents.attrs)
    pairs = contents.values.items()
    values = [store_value(file, name, value, numbers.get(name)) for name, value in pairs]
    fields = []
    for entry in contents.entries:
        filters = contents.compression
        made = make_chunked(file, entry, filters) if entry.chunks else reserve(file, entry)
        for key, value in entry.attrs.items():
            made.attrs[key] = value
        if entry.name in numbers:
            made.attrs[RESERVED + "checksum"] = numbers[entry.name]
        fields.append(replace(entry, offset=None if entry.chunks else made.id.get_offset()))
    for name, scales in contents.scales.items():
        label(file, file[name], scales)
    describe_all(file, contents.dataset_attrs, has_grid=contents.grid is not None)
    write_view(file, [*contents.fields])
    return fields, values


def _find_marks(changes: Sequence[Change], marks: Mapping[str, bytes]) -> dict[str, list[int]]:
    """Find where marks were written."""
    return {
        name: [at + place for at, data in changes for place in _places_of(mark, data)]
        for name, mark in marks.items()
    }


def _places_of(mark: bytes, data: bytes | bytearray) -> Iterator[int]:
    """Yield where bytes are among others."""
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + 1)


def write_head(file: Any, head: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
    """Write the attributes of a file: those of pencils without their prefix, and of the user."""
    for name, value in head.items():
        file.attrs[RESERVED + name] = value
    for name, value in attrs.items():
        store_attribute(file, name, value)


@cache
def version() -> str:
    """Return the version of pencils."""
    try:
        return metadata.version("pencils")
    except metadata.PackageNotFoundError:
        return "not installed"


def note_complete(
    path: str | CapturedFile,
    sums: Mapping[str, int],
    offsets: Mapping[str, list[int]] | None = None,
    errors: Mapping[str, float] | None = None,
) -> None:
    """Note that a file is complete, checksums, and errors; `offsets` are of `lay_out`."""
    if offsets is not None and not isinstance(path, CapturedFile):
        with open_to_write(path) as handle:
            for name, value in {**sums, "": 1}.items():
                for at in offsets[name]:
                    write(handle, np.uint64(value).tobytes(), at)
        return
    with changing(path) as file:
        for name, value in sums.items():
            file[name].attrs.modify(RESERVED + "checksum", np.uint64(value))
        for name, error in (errors or {}).items():
            file[name].attrs.modify(RESERVED + "largest_error", np.float64(error))
        file.attrs.modify(RESERVED + "complete", np.int64(1))


def place_chunks(path: str, entry: DatasetInfo, table: Ints, *, align: int) -> Ints:
    """Note in a file where its chunks will be, by numbers of bytes and masks of skipped filters."""
    sizes, masks = table
    dummy = np.zeros(sizes.max(), np.uint8)
    with CapturedFile(path, dummy) as captured:
        with changing(captured, **_aligned(align)) as file:
            dataset = file[entry.name].id
            for index in np.ndindex(*sizes.shape):
                start = chunk_box(index, entry.chunks, entry.shape).start
                dataset.write_direct_chunk(start, dummy[: sizes[index]], int(masks[index]))
        captured.apply()
        return np.array(captured.placed, np.int64).reshape(sizes.shape)


def make_chunked(file: Any, entry: DatasetInfo, compression: Mapping[str, Any]) -> Any:
    """Make a dataset whose chunks are to come."""
    file_type(entry)  # complains if there is none
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if entry.tolerance is not None:
        zfp, compression = _zfp_of(entry), _LOSSLESS
        if zfp:
            layout.set_filter(zfp["compression"], h5py.h5z.FLAG_OPTIONAL, zfp["compression_opts"])
    options = {"chunks": entry.chunks, "track_times": False, "dcpl": layout, **compression}
    return file.create_dataset(entry.name, entry.shape, entry.dtype, **options)


def _zfp_of(entry: DatasetInfo) -> dict[str, Any]:
    """Return ZFP for a field with a bound on the error; empty if it does not suit the field."""
    if not entry.tolerance or not suits_zfp(entry.dtype, entry.chunks):
        return {}
    with needs("hdf5plugin"):
        import hdf5plugin
    return dict(hdf5plugin.Zfp(accuracy=entry.tolerance))


class Packer(Freeable):
    """Sends the chunks of one dataset through its filters, one after the other.

    With a bound on the error, ZFP compresses a chunk. If readers would get an error above the
    bound, or the chunk does not shrink, it skips ZFP: it is rounded and goes through the others.
    """

    def __init__(self, entry: DatasetInfo, compression: Mapping[str, Any]) -> None:
        self.largest_error = 0.0  # of all chunks, measured
        self._tolerance = entry.tolerance
        self._all = h5py.h5s.ALL
        self._chunk = np.zeros(entry.chunks, entry.dtype)
        # Without its cache HDF5 runs the filters in every call.
        self._file = h5py.File(uuid4().hex, "w", driver="core", backing_store=False, rdcc_nbytes=0)
        try:
            one = replace(entry, shape=entry.chunks, tolerance=None)
            last, zfp = compression, None
            if self._tolerance is not None:
                last, zfp = _LOSSLESS, _zfp_of(entry)
            self._dataset = self._last = make_chunked(self._file, one, last).id
            one = replace(one, name=uuid4().hex)
            self._zfp = make_chunked(self._file, one, zfp).id if zfp else None
        except BaseException:
            self._file.close()
            raise
        self._kind = self._dataset.get_type()  # the bytes as they are, whatever HDF5 calls them

    def pack(self, values: Array) -> tuple[bytes, int]:
        """Filter a chunk, filled up by zeros; return its bytes, and the mask of skipped filters."""
        if values.shape != self._chunk.shape:
            self._chunk = np.zeros_like(self._chunk)
        if self._tolerance is None:
            return self._filter(self._dataset, values)
        if self._zfp is not None and np.isfinite(values).all():
            data, mask = self._filter(self._zfp, values)
            error = self._measure(values)
            if not mask and error <= self._tolerance and len(data) < self._chunk.nbytes:
                self.largest_error = max(self.largest_error, error)
                return data, _ONLY_ZFP
        data, mask = self._filter(self._dataset, rounded(values, self._tolerance))
        self.largest_error = max(self.largest_error, self._measure(values))
        return data, mask if self._zfp is None else mask << 1 | 1

    def _filter(self, dataset: Any, values: Array) -> tuple[bytes, int]:
        self._last = dataset
        self._chunk[tuple(map(slice, values.shape))] = values
        dataset.write(self._all, self._all, self._chunk, self._kind)
        mask, data = dataset.read_direct_chunk((0,) * self._chunk.ndim)
        return data, mask

    def _measure(self, values: Array) -> float:
        return largest_error(values, self.unpack()[tuple(map(slice, values.shape))])

    def unpack(self) -> Array:
        """Return the chunk that was packed last as readers get it; the next call overwrites it."""
        self._last.read(self._all, self._all, self._chunk, self._kind)
        return self._chunk

    def free(self) -> None:
        """Release the memory."""
        self._file.close()


def check_filters(entries: Iterable[DatasetInfo], compression: Mapping[str, Any]) -> None:
    """Raise ArgumentError or TypeError if HDF5 cannot filter the chunks of chunked datasets."""
    for entry in entries:
        if not entry.chunks:
            continue
        try:
            with Packer(entry, compression):
                pass
        except (TypeError, ValueError, KeyError, OSError, RuntimeError) as error:
            msg = f"fields[{entry.name!r}] cannot be stored with {dict(compression)}: {error}"
            kind = TypeError if isinstance(error, TypeError) else ArgumentError
            raise kind(msg) from error


def _aligned(align: int) -> dict[str, Any]:
    return {"alignment_threshold": align, "alignment_interval": align}


def store_value(file: Any, name: str, value: Stored, total: int | None) -> DatasetInfo:
    """Write a value or a coordinate, and its checksum, to a file or a group, and describe it."""
    entry = DatasetInfo(name, value.data.shape, value.data.dtype, kind=value.kind)
    made = reserve(file, entry)
    if value.data.size:
        kind = made.id.get_type()  # the bytes as they are, whatever HDF5 calls them
        made.id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(value.data), kind)
    made.attrs[RESERVED + "value"] = value.kind
    if value.kind == COORDINATE:
        made.make_scale(name)
        if name in _AXES:
            made.attrs["axis"] = name.upper()
    if total is not None:
        made.attrs[RESERVED + "checksum"] = np.uint64(total)
    return replace(entry, offset=made.id.get_offset())


def describe_all(file: Any, attrs: Mapping[str, Mapping[str, Any]], *, has_grid: bool) -> None:
    """Write the attributes of datasets, and the conventions to which they are."""
    for name, own in attrs.items():
        for key, value in own.items():
            store_attribute(file[name], key, value)
    given = file.attrs.get("Conventions")
    if given is None and has_grid:
        file.attrs["Conventions"] = CONVENTIONS
    elif isinstance(given, str) and given == CONVENTIONS:
        file.attrs[GIVEN_CONVENTIONS] = 1


def label(file: Any, dataset: Any, scales: Sequence[str]) -> None:
    """Attach a dimension scale to each axis: a coordinate if there is one, or a mere dimension."""
    for axis, name in enumerate(scales):
        if name not in file:
            scale = file.create_dataset(name, (dataset.shape[axis],), ">f4")
            scale.make_scale(_NO_VARIABLE.format(dataset.shape[axis]))
        dataset.dims[axis].attach_scale(file[name])


def reserve(file: Any, entry: DatasetInfo, chunk: Sequence[int] = (), *, early: bool = True) -> Any:
    """Make a dataset of one piece, or of chunks, which can grow; if `early`, with its bytes."""
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_obj_track_times(False)
    if chunk:
        layout.set_chunk(chunk)
    else:
        layout.set_layout(h5py.h5d.CONTIGUOUS)
    if early:
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5py.h5t.CSET_UTF8)
    most = (h5py.h5s.UNLIMITED, *entry.shape[1:]) if chunk else None
    scalar = h5py.h5s.create(h5py.h5s.SCALAR)
    space = h5py.h5s.create_simple(entry.shape, most) if entry.shape else scalar
    kind = file_type(entry)
    made = h5py.h5d.create(file.id, entry.name.encode(), kind, space, dcpl=layout, lcpl=links)
    return h5py.Dataset(made)


def file_type(entry: DatasetInfo) -> Any:
    """HDF5 type whose elements are, byte for byte, those of the field."""
    reason = "it would change its bytes"
    try:
        kind = h5py.h5t.py_create(entry.dtype, logical=True)
        if kind.get_size() == entry.dtype.itemsize and kind.dtype == entry.dtype:
            if entry.kind and entry.dtype.kind == "S":
                kind = kind.copy()
                kind.set_cset(h5py.h5t.CSET_UTF8)
            return kind
    except TypeError as error:
        reason = str(error)
    raise TypeError(
        f"fields[{entry.name!r}] has dtype {entry.dtype}, which HDF5 cannot store ({reason}); "
        "convert the field with astype"
    ) from None


def store_attribute(file: Any, name: str, value: Any) -> None:
    """Write an attribute of a file, group or dataset; TypeError if HDF5 has no such."""
    storable = value
    if isinstance(value, np.str_ | np.ndarray) and value.dtype.kind == "U":
        storable = value.astype(object) if value.ndim else str(value)
    try:
        file.attrs[name] = storable
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise TypeError(
            f"attrs[{name!r}] = {value!r:.80} cannot be stored ({error}); attributes are numbers, "
            "strings and arrays of them below 64 kB"
        ) from None
