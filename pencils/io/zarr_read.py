"""Describe Zarr folders, and read their arrays, by zarr-python. No communication.

The metadata of the root, written last, hold those of all arrays, their checksums, and a digest of
all this. So a folder is whole, or refused.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from errno import ENOENT
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, as_dtype
from pencils.errors import ArgumentError, CheckpointError, MissingLibraryError
from pencils.errors.missing import needs
from pencils.io.commit import discard, sync
from pencils.io.direct import checksum
from pencils.io.file_access import number_of, reading
from pencils.io.file_info import (
    CONVENTIONS,
    COORDINATE,
    GIVEN_CONVENTIONS,
    GO_BACK,
    RESERVED,
    Access,
    DatasetInfo,
    FileInfo,
    Identity,
    Stored,
    check_head,
    damaged,
    decode_attribute,
)
from pencils.io.formats import is_url
from pencils.io.slabs import chunk_box, count_chunks
from pencils.layout import Box

with needs("Zarr"):
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync as await_
    from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore

_COMPARED = Access(verify=False)  # on rank 0
ROOT = "zarr.json"
# Attributes of the root: the digest of its metadata, checksums, and attributes of the user with
# the types that JSON does not keep.
_DIGEST, SUMS, EXACT = (RESERVED + name for name in ("digest", "checksums", "attrs"))
_MOST_NAMES = 20
_DAMAGE = "is no Zarr folder, or a damaged one: {!r}"


class _Whole(WrapperStore[Any]):
    """A store in which no object may be missing: zarr would read zeros instead."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        found = await self._store.get(key, prototype, byte_range)
        if found is None and "/c" in key and not key.endswith(ROOT):
            raise KeyError(key)
        return found


class Replacing(WrapperStore[Any]):
    """The store of a folder that replaces an object when the new one is on the disk."""

    async def set(self, key: str, value: Any) -> None:
        """Replace an object, or leave it as it was."""
        new = Path(self._store.root, f"{key}.new")
        try:
            await self._store.set(f"{key}.new", value)
            _replace(new, self._store.root / key)
        except BaseException:
            discard(new)
            raise


def _replace(new: Path, old: Path) -> None:
    sync(new)
    new.replace(old)


class ZarrFolder(NamedTuple):
    """An open folder whose metadata are as they were written."""

    path: str
    root: Mapping[str, Any]  # the metadata of the root, with those of all arrays
    arrays: Mapping[str, Any]  # zarr.Array by name
    is_ours: bool

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes of the root."""
        found: Mapping[str, Any] = self.root["attributes"]
        return found

    def kind(self, name: str) -> str:
        """Return `DatasetInfo.kind` of an array, or `COORDINATE`."""
        attrs = self.arrays[name].attrs
        if not self.is_ours or RESERVED + "components" in attrs:
            return ""
        return str(attrs.get(RESERVED + "value", COORDINATE))

    def describe(self, name: str, *, verify: bool = True) -> DatasetInfo:
        """Describe an array; CheckpointError if there is none or no field can hold it."""
        if name not in self.arrays:
            names = [*self.arrays]
            listed = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
            raise CheckpointError(
                f"{self.path} has no array named {name!r}; it holds {listed or 'no array at all'}"
            )
        array, kind = self.arrays[name], self.kind(name)
        try:
            dtype = as_dtype(_as_stored(array[...]).dtype if _is_text(array) else array.dtype)
        except TypeError as error:
            msg = f"{name!r} in {self.path} has elements that no field can hold: {error}"
            raise CheckpointError(msg) from None
        info = DatasetInfo.stored(name, array.shape, dtype, array.attrs.asdict())
        total = self.attrs.get(SUMS, {}).get(name) if verify else None
        unit = array.shards or array.chunks
        return replace(info, kind=kind, chunks=tuple(unit), checksum=total)

    def info(self, identity: Identity, names: Collection[str], *, verify: bool = True) -> FileInfo:
        """Describe some arrays, and read the values among them, and the attributes."""
        fields, values = [], {}
        for one in (self.describe(name, verify=verify) for name in names):
            if not one.kind:
                fields.append(one)
                continue
            data = read_box(self, one.name, (...,))
            if one.checksum not in (None, checksum(data)):
                raise damaged(self.path, [one.name])
            values[one.name] = Stored(one.kind, data)
        attrs = {key: value for key, value in self.attrs.items() if not key.startswith(RESERVED)}
        attrs |= {name: decode_attribute(*one) for name, one in self.attrs.get(EXACT, {}).items()}
        own = self.is_ours and GIVEN_CONVENTIONS not in self.attrs
        if own and attrs.get("Conventions") == CONVENTIONS:
            del attrs["Conventions"]
        step, time = (self.attrs.get(RESERVED + name) for name in ("step", "time"))
        return FileInfo(self.path, identity, fields, values, attrs, step, time)


def store_at(path: str, *, write: bool = False) -> Any:
    """Return the store of a folder or of an address; ArgumentError if nothing knows it."""
    if not is_url(path):
        return LocalStore(path, read_only=not write)
    options = {"auto_mkdir": True} if path.startswith(("file:", "local:")) else {}
    try:
        return FsspecStore.from_url(path, options, read_only=not write)
    except ImportError as error:  # fsspec names what it has tried to import
        missing = getattr(error.__cause__ or error, "name", None) or "fsspec"
        raise MissingLibraryError(
            f"{path} needs {missing}, which is not installed: pip install {missing} ({error})"
        ) from error
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            f"path={path!r} names no store: {error}; use an address that fsspec knows, or a path"
        ) from error


def is_empty(store: Any) -> bool:
    """Whether a store has nothing at its address."""
    try:
        return bool(await_(store.is_empty("")))
    except FileNotFoundError:
        return True


def read_json(store: Any, key: str = ROOT) -> dict[str, Any] | None:
    """Read one object of metadata; None if there is none."""
    found = await_(store.get(key, default_buffer_prototype()))
    return None if found is None else dict(json.loads(found.to_bytes()))


def digest_of(root: Mapping[str, Any]) -> str:
    """Return the digest of the metadata of a root, but for the digest in them."""
    attrs = {key: value for key, value in root["attributes"].items() if key != _DIGEST}
    text = json.dumps({**root, "attributes": attrs}, sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def consolidated(store: Any) -> dict[str, Any]:
    """Return the metadata of the root with those of all arrays, for `seal`."""
    group, like = (
        zarr.open_group(store, mode="r", use_consolidated=False),
        default_buffer_prototype(),
    )
    copy = MemoryStore()  # the root of the store changes once

    async def copy_all(names: Collection[str]) -> None:
        for key in (f"{name}/{ROOT}".lstrip("/") for name in names):
            await copy.set(key, await store.get(key, like))

    await_(copy_all(["", *dict(group.members(max_depth=None))]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Consolidated metadata")  # xarray looks for them, too
        zarr.consolidate_metadata(copy)
    return read_json(copy) or {}


def seal(store: Any, attrs: Mapping[str, Any], root: dict[str, Any] | None = None) -> None:
    """Write the metadata of all arrays and more attributes to the root, which is then whole."""
    root = root or consolidated(store)
    root["attributes"] |= attrs
    put_root(store, root)


def put_root(store: Any, root: dict[str, Any]) -> None:
    """Write the metadata of the root with a new digest."""
    root["attributes"][_DIGEST] = digest_of(root)
    put_json(store, ROOT, root)


def put_json(store: Any, key: str, value: Mapping[str, Any]) -> None:
    """Write one object of metadata."""
    store = Replacing(store) if isinstance(store, LocalStore) else store
    like = default_buffer_prototype().buffer
    await_(store.set(key, like.from_bytes(json.dumps(value, indent=2).encode())))


def metadata_in(root: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the metadata of all arrays and groups, by name, that the root has."""
    known = root.get("consolidated_metadata", {}).get("metadata", {})
    return {
        name: {key: one for key, one in kept.items() if key != "consolidated_metadata"}
        for name, kept in known.items()
    }


@contextmanager
def opened(path: str, access: Access = _COMPARED) -> Iterator[ZarrFolder]:
    """Open a folder in a ``with`` block; CheckpointError if it is damaged or not complete."""
    store = store_at(path)
    if not is_url(path) and not Path(path).is_dir():
        missing = os.strerror(ENOENT)
        hint = f"{missing}; check the path, the working directory is {Path.cwd()}"
        if Path(path).exists():
            raise CheckpointError(f"{path} is a file, and no Zarr folder; rename it to read it")
        raise FileNotFoundError(ENOENT, f"cannot load {path}: {hint}")
    with reading(path, _DAMAGE):
        root = read_json(store)
        if root is None and is_url(path) and is_empty(store):
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), path)
        attrs = (root or {}).get("attributes", {})
        is_ours = RESERVED + "format" in attrs
        if root and is_ours:
            _check(path, root, access)
            store = _Whole(store)
        group = zarr.open(store, mode="r", use_consolidated=is_ours or None)
        if not isinstance(group, zarr.Group):
            raise CheckpointError(f"{path} is one array; load() reads groups of arrays")
        members = dict(group.members(max_depth=None))
        arrays = {key: one for key, one in sorted(members.items()) if isinstance(one, zarr.Array)}
        whole = root or {"attributes": group.attrs.asdict()}
        yield ZarrFolder(path, whole, arrays, is_ours)


def _check(path: str, root: Mapping[str, Any], access: Access) -> None:
    attrs = root["attributes"]
    check_head(path, {RESERVED + "complete": 0, **attrs})
    if access.verify and not access.edited and attrs.get(_DIGEST) != digest_of(root):
        raise CheckpointError(
            f"{path} is damaged, or another program changed it: its metadata do not match their "
            f"checksum; edited=True reads the folder as it is, or {GO_BACK}"
        )


def read_box(folder: ZarrFolder, name: str, key: tuple[Any, ...], **_: Any) -> Array:
    """Read a box; CheckpointError names the first chunk in it that is damaged or missing."""
    array = folder.arrays[name]
    try:
        return _as_stored(array[key])
    except Exception as error:
        if number_of(error) is not None or isinstance(error, MemoryError):
            raise  # to `opened`
        at = _find_damage(array, key)
        raise CheckpointError(
            f"{folder.path} is damaged: {name!r} cannot be read at {at or key} ({error}); {GO_BACK}"
        ) from error


def _find_damage(array: Any, key: tuple[Any, ...]) -> str:
    """Return the object of the first chunk that cannot be read; empty if there is none."""
    unit = array.shards or array.chunks
    whole = Box.of_shape(array.shape)
    parts = [part for part in key if isinstance(part, slice)]
    if parts and len(parts) == len(unit) and all(part.step in (None, 1) for part in parts):
        whole = Box(*zip(*((part.start, part.stop) for part in parts), strict=True))
    for index in np.ndindex(*count_chunks(array.shape, unit)):
        box = chunk_box(index, unit, array.shape)
        if (box & whole).volume:
            try:
                array[box.slices()]
            except Exception:  # noqa: BLE001 - the one that is looked for
                return str(array.metadata.encode_chunk_key(index))
    return ""


def _is_text(array: Any) -> bool:
    return array.dtype.kind in "TUO" and not array.shape


def _as_stored(found: Any) -> Array:
    """Return what zarr has read as `encode` makes it: text is UTF-8."""
    data = np.asarray(found)
    return np.asarray(str(data[()]).encode() or b"\0") if data.dtype.kind in "TUO" else data


def describe(
    path: str, names: list[str] | None, among: list[str] | None, access: Access
) -> FileInfo:
    """Describe named arrays, as `pencils.io.describe.describe`."""
    identity = Identity.of(path)
    with opened(path, access) as folder:
        if names is None:
            fields = [name for name in folder.arrays if not folder.kind(name)]
            values = [one for one in folder.arrays if folder.kind(one) not in ("", COORDINATE)]
            names = [*(fields if among is None else among), *values]
        for name in names:
            if name in (among or ()) and name in folder.arrays and folder.kind(name):
                raise CheckpointError(
                    f"{name!r} in {path} is no field but a value of kind {folder.kind(name)!r}"
                )
        return folder.info(identity, [*dict.fromkeys(names)], verify=access.verify)


def describe_fields(path: str, access: Access) -> FileInfo:
    """Describe all fields and values that pencils can read."""
    identity = Identity.of(path)
    with opened(path, access) as folder:
        names = []
        for name, array in folder.arrays.items():
            with suppress(TypeError):  # of elements that no field can have
                if not _is_text(array):
                    as_dtype(array.dtype)
                names += [name] if folder.kind(name) != COORDINATE else []
        return folder.info(identity, names)


def describe_summed(path: str, access: Access) -> FileInfo:
    """Describe all arrays that have a checksum; CheckpointError if metadata differ."""
    identity = Identity.of(path)
    with opened(path, access) as folder:
        # Of a series, whose writer died, they may have a snapshot more.
        alike = folder.is_ours and not access.edited and RESERVED + "series" not in folder.attrs
        for name, own in metadata_in(folder.root).items() if alike else ():
            if read_json(store_at(path), f"{name}/{ROOT}") != own:
                msg = f"{path} is damaged: the metadata of {name!r} do not match those of the root"
                raise CheckpointError(f"{msg}; {GO_BACK}")
        found = sorted(folder.attrs.get(SUMS, {}), key=lambda name: name.encode().split(b"/"))
        summed = [folder.describe(name) for name in found]
        is_covered = bool(summed) or (folder.is_ours and all(map(folder.kind, folder.arrays)))
        return FileInfo(path, identity, summed, {}, {}, None, None, is_covered)
