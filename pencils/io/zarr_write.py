"""Write fields to a Zarr folder: rank 0 makes all arrays, each rank writes whole chunks or shards.

What rank 0 writes to the root last makes the folder whole; a folder of a file system has another
name until then. On other stores nothing can be renamed: what is there is never replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from errno import EEXIST, ENOENT
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.bars import OnProgress, ignore
from pencils.comm.file import SharedFile
from pencils.comm.pack import copy, no_op
from pencils.comm.recording import timed
from pencils.errors import ArgumentError
from pencils.errors.missing import needs
from pencils.io.commit import (
    check_seen,
    check_unlocked,
    check_visible_on_all_hosts,
    clean,
    commit,
    discard,
    make_temporary,
    sync,
)
from pencils.io.contents import Contents
from pencils.io.create import version
from pencils.io.direct import checksum, checksum_box
from pencils.io.file_access import from_root, system
from pencils.io.file_info import (
    CONVENTIONS,
    COORDINATE,
    FORMAT,
    GIVEN_CONVENTIONS,
    RESERVED,
    DatasetInfo,
    Stored,
    encode_attribute,
    is_kept,
)
from pencils.io.formats import is_url, real_path
from pencils.io.slabs import FileMoves, own_chunks
from pencils.io.tolerance import largest_error, rounded
from pencils.io.writers import Part, Writer
from pencils.io.zarr_read import (
    EXACT,
    ROOT,
    SUMS,
    consolidated,
    is_empty,
    read_json,
    seal,
    store_at,
)
from pencils.layout import Box

with needs("Zarr"):
    import zarr
    from google_crc32c import extend
    from numcodecs.zstd import Zstd
    from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
    from zarr.codecs.bytes import default_system_endian
    from zarr.storage import LocalStore

if TYPE_CHECKING:
    from pencils.comm.topology import Topology
    from pencils.pencil import Pencil

# Names of compression that HDF5 and Zarr share, and those of Zarr; filters of hdf5plugin by number.
_CODECS = ("gzip", "zstd", "blosc")
_BY_NUMBER = {32001: "blosc", 32015: "zstd"}
_AXES = ("x", "y", "z")
# What is copied, summed up and written at once: it stays in the cache of the processor.
_PIECE_BYTES = 2**19
_SYNCED = 8  # objects that are brought to the disk at once
# Codecs of objects that `_write_plain` writes.
_PLAIN = (
    (BytesCodec,),
    (BytesCodec, Crc32cCodec),
    (BytesCodec, ZstdCodec),
    (BytesCodec, ZstdCodec, Crc32cCodec),
)
# The codec that finds damage.
CHECKED: dict[str, Any] = {"name": "crc32c"}
# Of fields with a bound on the error, whose numbers are rounded.
_FOR_ROUNDED: dict[str, Any] = {
    "name": "blosc",
    "configuration": {"cname": "zstd", "shuffle": "bitshuffle"},
}


def as_codecs(compression: object) -> dict[str, Any]:
    """Return codecs, as zarr writes them into metadata; they are checked by `check_codecs`."""
    given: Any = compression
    if hasattr(given, "to_dict"):  # a codec of zarr
        given = given.to_dict()
    if given is None:
        return {"codecs": []}
    if isinstance(given, Mapping) and "name" in given:
        return {"codecs": [dict(given)]}
    options = dict(given) if isinstance(given, Mapping) else {"compression": given}
    name: object
    if isinstance(kind := options.pop("compression", None), int) and not isinstance(kind, bool):
        name = _BY_NUMBER.get(kind, "gzip")
        level = kind if name == "gzip" else None
    else:
        name, level = kind, None
    given_level = options.pop("compression_opts", None)
    if isinstance(given_level, int):
        level = given_level
    if not isinstance(name, str) or name not in _CODECS or options:
        raise ArgumentError(
            f"compression={compression!r} is not for Zarr: pass {', '.join(map(repr, _CODECS))}, a "
            "level of gzip, a mapping with these as compression and compression_opts, or a codec "
            "of zarr.codecs"
        )
    key = "clevel" if name == "blosc" else "level"
    return {"codecs": [{"name": name, "configuration": {} if level is None else {key: level}}]}


def check_codecs(contents: Contents) -> None:
    """Raise ArgumentError or TypeError if zarr cannot store such names, or with such codecs."""
    for name in contents.values:
        check_name(name)
    for entry in contents.entries:
        check_type_of(entry)
        plain(contents.dataset_attrs.get(entry.name, {}))
        with storable(entry, contents.compression["codecs"]):
            _make_field(zarr.storage.MemoryStore(), entry, contents)


@contextmanager
def storable(entry: DatasetInfo, codecs: object) -> Iterator[None]:
    """Try to make an array in a ``with`` block; ArgumentError for what zarr does not take."""
    try:
        yield
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        msg = f"fields[{entry.name!r}] cannot be stored with {codecs}: {error}"
        raise ArgumentError(msg) from error


def check_name(name: str) -> None:
    """Raise ArgumentError if zarr would store an array under another name, or none."""
    if "\\" in name or ROOT in name.split("/"):
        raise ArgumentError(
            f"{name!r} cannot be a name in a Zarr folder: {ROOT!r} is that of metadata there, and "
            "a backslash is taken as '/'; choose another name, or save to an HDF5 file"
        )


def check_type_of(entry: DatasetInfo) -> None:
    """Raise TypeError if Zarr has no such elements, ArgumentError for `check_name`."""
    check_name(entry.name)
    if not is_kept(entry.dtype) or not entry.dtype.isnative:
        raise TypeError(
            f"fields[{entry.name!r}] has dtype {entry.dtype}, which Zarr cannot store; convert the "
            "field with astype, or save it to an HDF5 file"
        )


def _make_field(store: Any, entry: DatasetInfo, contents: Contents) -> None:
    given = contents.compression["codecs"] if entry.tolerance is None else [_FOR_ROUNDED]
    codecs = [*given, *[CHECKED] * contents.summed]
    attrs = {**entry.attrs, **contents.dataset_attrs.get(entry.name, {})}
    make_array(store, entry, contents.scales[entry.name], attrs, codecs)


def make_array(
    store: Any,
    entry: DatasetInfo,
    labels: Sequence[str],
    attrs: Mapping[str, Any],
    codecs: Sequence[dict[str, Any]] = (CHECKED,),
) -> Any:
    """Make an array, whose chunks are to come."""
    return zarr.create_array(
        store,
        name=entry.name,
        shape=entry.shape,
        dtype=str if entry.dtype.kind == "S" else entry.dtype,
        chunks=tuple(max(1, n) for n in entry.inner or entry.chunks or entry.shape),
        shards=entry.chunks if entry.inner else None,
        compressors=[*codecs],
        dimension_names=labels,
        attributes=plain(attrs),
    )


def make_value(
    store: Any, name: str, value: Stored, labels: Sequence[str], attrs: Mapping[str, Any]
) -> None:
    """Make the array of a value or a coordinate, and write it."""
    data, entry = value.data, DatasetInfo(name, value.data.shape, value.data.dtype)
    text = data.item().decode() if data.dtype.kind == "S" and not data.shape else None
    if text is None:
        check_type_of(entry)
    own: dict[str, Any] = {RESERVED + "value": value.kind}
    if value.kind == COORDINATE and name in _AXES:
        own["axis"] = name.upper()
    array = writable(make_array(store, entry, labels, {**own, **attrs}))
    array[...] = data if text is None else text


def plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON has them; TypeError for others."""
    found = {}
    for name, value in attrs.items():
        try:
            found[name] = json.loads(json.dumps(value, default=_listed))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"attrs[{name!r}] = {value!r:.80} cannot be stored ({error}); attributes are "
                "numbers, strings and arrays of them"
            ) from None
    return found


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, complex):
        return str(value)
    raise TypeError(f"it has a {type(value).__name__}")


class WrittenObjects(SharedFile):
    """The objects that this rank has written to a store: threads bring them to the disk."""

    def __init__(self, path: str) -> None:
        super().__init__("")
        self._root = None if is_url(path) else Path(path)
        self._folders: set[Path] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._syncing: list[Future[None]] = []

    def note(self, key: str) -> None:
        """Let a thread bring an object to the disk, which is written; `sync` waits for it."""
        if self._root:
            self._threads = self._threads or ThreadPoolExecutor(_SYNCED, "pencils-sync")
            self._syncing.append(self._threads.submit(sync, self._root / key))
            self._folders.update(Path(key).parents)

    def sync(self) -> None:
        """Wait until all are on disk, and their names; errors are kept. Local."""
        self.attempt(lambda: timed("I/O", self._sync), "sync")

    def _sync(self) -> None:
        threads, syncing, folders = self._threads, self._syncing, self._folders
        self._threads, self._syncing, self._folders = None, [], set()
        if threads and self._root:
            with threads:
                list(threads.map(sync, (self._root / key for key in folders)))
            for one in syncing:
                one.result()


class ZarrWriter(Writer):
    """A new Zarr folder, made by rank 0, in which all ranks write chunks. *Collective*."""

    def __init__(self, topology: Topology, path: str, contents: Contents) -> None:
        super().__init__(topology, contents)
        # On rank 0: checksums of values, and the metadata of the root.
        self._sums: dict[str, int] = {}
        self._root: dict[str, Any] = {}
        self.path, self.place = from_root(self.comm, lambda: self._begin(path, contents))
        self.target, self.temporary = Path(self.path), Path(self.place)
        self.entries = contents.entries
        self.file = self.written = WrittenObjects(self.place)
        self._find_hosts = no_op
        if is_url(self.path):
            self.file.attempt(partial(_check_shared, self.path))
        else:
            if self._rank == 0:
                self.file.attempt(self._note_made)
            self.file.attempt(partial(check_seen, topology, self.temporary))
            self._find_hosts = partial(
                check_visible_on_all_hosts, topology, "save", self.target, self.temporary
            )

    def _note_made(self) -> None:
        for key in self.temporary.rglob("*"):
            self.written.note(str(key.relative_to(self.temporary)))

    def _begin(self, path: str, contents: Contents) -> tuple[str, str]:
        """Make all arrays under a temporary name, on rank 0; return both names."""
        target = place = real_path(path)
        if is_url(target):
            _check_free(target)
        with system("save", path):
            if not is_url(target):
                check_unlocked(Path(target))
                clean(Path(target))
                place = str(make_temporary(Path(target)))
            try:
                self._sums = make_folder(store_at(place, write=True), contents)
            except BaseException:
                if not is_url(place):
                    discard(Path(place))
                raise
        return target, place

    def part(
        self, u: PencilArray, entry: DatasetInfo, moves: FileMoves, progress: OnProgress = ignore
    ) -> Part:
        """Bring a field to where it is written. *Collective*."""
        return ZarrPart(self, u, entry, moves, progress)

    def _end_rank(self) -> None:
        if self._rank == 0:  # while the disk works
            with system("save", self.path):
                store = store_at(self.place, write=True)
                for name, error in self.errors.items():
                    array = zarr.open_array(store, path=name, mode="r+")
                    array.update_attributes({RESERVED + "largest_error": error})
                self._root = consolidated(store)
        super()._end_rank()

    def _commit(self, sums: Mapping[str, int]) -> None:
        attrs = {RESERVED + "complete": 1, SUMS: {**self._sums, **sums}}
        seal(store_at(self.place, write=True), attrs, self._root)
        if not is_url(self.place):
            for metadata in self.temporary.rglob(ROOT):
                sync(metadata)
            commit(self.temporary, self.target)

    def discard(self) -> None:
        """Remove the folder, if it has not got its name; elsewhere it stays, and is refused."""
        if not is_url(self.place):
            super().discard()


def _check_shared(path: str) -> None:
    """Raise FileNotFoundError unless this rank sees what rank 0 has begun to write; local."""
    if read_json(store_at(path)) is None:
        raise FileNotFoundError(
            ENOENT,
            f"cannot save {path}: what rank 0 writes there is not seen here; a store in memory has "
            "one process only: give one that all ranks share",
        )


def _check_free(path: str) -> None:
    """Raise FileExistsError if a store has something whole; on rank 0."""
    store = store_at(path, write=True)
    root = read_json(store)
    if root is None and is_empty(store):
        return
    if root is not None and root["attributes"].get(RESERVED + "complete") != 0:
        raise FileExistsError(
            EEXIST,
            f"cannot save {path}: there is something already, which such a store cannot replace at "
            "once; choose another name, or delete it first",
        )


def make_folder(store: Any, contents: Contents) -> dict[str, int]:
    """Make the root, which is not complete, and all arrays; return the checksums of values."""
    head = {"complete": 0, **contents.step_and_time}
    make_root(store, contents.attrs, head, has_grid=contents.grid is not None)
    sums = {}
    for name, value in contents.values.items():
        labels = (name,) if value.kind == COORDINATE else contents.scales.get(name, ())
        make_value(store, name, value, labels, contents.dataset_attrs.get(name, {}))
        if contents.summed:
            sums[name] = checksum(value.data)
    for entry in contents.entries:
        _make_field(store, entry, contents)
    return sums


def make_root(
    store: Any, given: Mapping[str, Any], head: Mapping[str, Any], *, has_grid: bool
) -> None:
    """Make the root, with the attributes of the user and of pencils."""
    attrs = plain(given)
    if attrs.get("Conventions") == CONVENTIONS:
        attrs[GIVEN_CONVENTIONS] = 1
    elif has_grid:
        attrs.setdefault("Conventions", CONVENTIONS)
    head = {"format": FORMAT, "version": version(), "zarr": zarr.__version__, **head}
    attrs |= {RESERVED + name: value for name, value in head.items()}
    known = {name: encode_attribute(value) for name, value in given.items()}
    attrs[EXACT] = plain({name: one for name, one in known.items() if one})
    died = not isinstance(store, LocalStore)  # perhaps a writer; local folders are new
    zarr.create_group(store, attributes=attrs, overwrite=died)


class ZarrPart(Part):
    """The points of a field that this rank writes to a Zarr folder, in whole chunks or shards."""

    _writer: ZarrWriter

    def work(self) -> None:
        """Write all chunks, or shards, and add up their checksums. Local."""
        block, self._block = self._block, None
        if block is not None and self._tiles.box().volume:
            with system("save", self._writer.path):
                store = store_at(self._writer.place, write=True)
                array = writable(zarr.open_array(store, path=self._entry.name, mode="r+"))
                self._sum = write_chunks(
                    array,
                    block,
                    (self._tiles, self._entry.chunks),
                    self._writer.written,
                    prepare=np.asarray if self._entry.tolerance is None else self._round,
                    summed=self._writer.summed,
                    progress=self._progress,
                )

    def _round(self, values: Array) -> Array:
        """Round numbers within the bound, and measure the error."""
        found = rounded(values, self._entry.tolerance or 0)
        self._error = max(self._error, largest_error(values, found))
        return found


def writable(array: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return an array in which all chunks are stored, also zeros; perhaps of another shape."""
    metadata = array.metadata if shape is None else array.metadata.update_shape(shape)
    made = zarr.AsyncArray(
        metadata=metadata,
        store_path=array.store_path,
        config={"order": "C", "write_empty_chunks": True},
    )
    return zarr.Array(made)


def write_chunks(
    array: Any,
    block: PencilArray,
    tiling: tuple[Pencil, tuple[int, ...]],
    written: WrittenObjects,
    *,
    step: tuple[int, ...] = (),
    dropped: Collection[int] = (),
    prepare: Callable[[Array], Array] = np.asarray,
    summed: bool = True,
    progress: OnProgress = ignore,
) -> int:
    """Write this rank's chunks, or shards, of a field; return their checksum. Local.

    `tiling` is the pencil whose points they are, and their extents; in a series the field is
    `step` of those along the first axis, and axes of one point may be `dropped`.
    """
    (tiles, unit), shape, total = tiling, block.shape, 0
    kept, ones = [axis not in dropped for axis in range(block.ndim)], (1,) * len(step)
    folder = _folder_of_plain(array, block.dtype)
    for chunk, box, values in own_chunks(block, tiles, unit):
        key = array.metadata.encode_chunk_key((*step, *compress(chunk, kept)))
        place = (*step, *box.start), ones + shape
        if folder is None:
            data = prepare(np.ascontiguousarray(values))
            where = (*(slice(one, one + 1) for one in step), *compress(box.slices(), kept))
            array[where] = data.reshape([part.stop - part.start for part in where])
            if summed:
                total += checksum_box(data[(np.newaxis,) * len(step)], *place)
        else:
            data = values[(np.newaxis,) * len(step)]
            total += _write_plain(array, folder / key, data, ones + unit, place, summed=summed)
        written.note(f"{array.path}/{key}")
        progress(values.nbytes)
    return total


def _folder_of_plain(array: Any, dtype: np.dtype[Any]) -> Path | None:
    """Return the folder of objects that are bytes of elements, perhaps with zstd and a CRC."""
    store, codecs = array.store, array.metadata.codecs
    is_plain = (
        isinstance(store, LocalStore)
        and tuple(map(type, codecs)) in _PLAIN
        and codecs[0].endian in (None, default_system_endian)
        and array.dtype == dtype
        and dtype.kind in "biufc"
    )
    return store.root / array.path if is_plain else None


def _write_plain(
    array: Any,
    path: Path,
    values: Array,
    unit: Sequence[int],
    place: tuple[Sequence[int], Sequence[int]],
    *,
    summed: bool,
) -> int:
    """Write an object as zarr would, by pieces that stay in the cache; return its checksum."""
    (start, shape), whole, crc, at, total = place, values, 0, 0, 0
    if values.shape != unit:  # at an edge
        whole = np.full(unit, array.fill_value, values.dtype)
        whole[tuple(map(slice, values.shape))] = values
    for one in array.metadata.codecs:
        if isinstance(one, ZstdCodec):
            packed = Zstd(one.level, one.checksum).encode(np.ascontiguousarray(whole))
            whole = np.frombuffer(packed, np.uint8)
    if summed and whole is not values:
        total = checksum_box(values, start, shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    most = max(1, _PIECE_BYTES // whole.itemsize)
    buffer = np.empty(min(most, whole.size) * whole.itemsize, np.uint8)
    with closing(SharedFile(str(path), write=True)) as file:
        for piece in Box.of_shape(whole.shape).pieces(most):
            part = np.ndarray(piece.shape, whole.dtype, buffer)
            copy(part, whole[piece.slices()])
            data = part.reshape(-1).view(np.uint8)
            file.write(at, data)
            crc, at = extend(crc, data), at + data.nbytes
            if summed and whole is values:
                first = tuple(map(sum, zip(start, piece.start, strict=True)))
                total += checksum_box(part, first, shape)
        if isinstance(array.metadata.codecs[-1], Crc32cCodec):
            file.write(at, np.array([crc], "<u4"))
    file.raise_error()
    return total
