"""Describe HDF5 files, and read data that are no plain bytes, by serial h5py. No communication.

CheckpointError: a file is damaged or of another format; OSError: the system cannot read it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from pencils.array.allocation import Array, as_dtype
from pencils.distribute.partition import ArrayLike
from pencils.errors import CheckpointError
from pencils.io.direct import checksum
from pencils.io.file_access import number_of, open_to_read, reading, system
from pencils.io.file_info import (
    CONVENTIONS,
    COORDINATE,
    GIVEN_CONVENTIONS,
    MOST_GROUPS,
    RESERVED,
    VIEW,
    Access,
    DatasetInfo,
    FileInfo,
    Identity,
    Stored,
    check_head,
    damaged,
)
from pencils.io.manifest import Listed, Record, broken, check_manifest, committed, lost
from pencils.io.objects import Objects, load_filters, open_unlocked, read_part

# Names of datasets in an error text.
_MOST_NAMES = 20
# The first bytes of HDF5, at the start of a file or behind a user block of 512, 1024, ... bytes.
_SIGNATURE, _USER_BLOCK = b"\x89HDF\r\n\x1a\n", 512
_ORDINARY = Access()


class HDF5File(NamedTuple):
    """An open file that is as it was written, as far as its manifest shows."""

    path: str
    file: Any  # h5py.File
    record: Record | None  # its manifest, if it has one and it was compared
    external: bool  # whether data may be in other files
    found: dict[str, Any]  # datasets that were looked at, by name

    @property
    def listed(self) -> Mapping[str, Listed] | None:
        """The datasets in its manifest, by name; None if it has none."""
        return None if self.record is None else self.record.manifest.datasets

    def names(self) -> list[str]:
        """Return the names of all datasets."""
        found, others = _walk(self.file)
        if self.listed is not None:
            return found
        if others and not self.external:
            raise Objects(self.path, self.file, external=False).outside(others[0], "a link to")
        for name in others:
            thing = self.file.get(name)
            found += [name] if isinstance(thing, h5py.Dataset) else []
            inner = list_datasets(thing) if isinstance(thing, h5py.Group) else ()
            found += [f"{name}/{one}" for one in inner]
        return found

    def everything(self, among: Collection[str] | None) -> list[str]:
        """Return the names of all values, and of the fields in `among`; None means all fields."""
        if self.listed is not None:
            self.compare()
            found = {name: listed.kind for name, listed in self.listed.items()}
        elif RESERVED + "format" in self.file.attrs:
            found = {name: _kind_of(self.file[name]) for name in self.names()}
        else:
            return self.names() if among is None else list(among)
        fields = [name for name, kind in found.items() if not kind]
        values = [name for name, kind in found.items() if kind not in ("", COORDINATE)]
        return [*dict.fromkeys([*(fields if among is None else among), *values])]

    def compare(self) -> list[str]:
        """Return the names of all datasets; raise CheckpointError if the manifest has others."""
        found = self.names()
        if self.listed is None:
            return found
        missing = self.listed.keys() - set(found)
        if missing:
            raise broken(
                self.path,
                f"{', '.join(map(repr, sorted(missing)))} of its list of contents is missing",
            )
        for name in found:
            if name not in self.listed and _kind_of(self.file[name]) != COORDINATE:
                raise broken(self.path, f"{name!r} is not in its list of contents")
        return found

    def dataset(self, name: str) -> Any:
        """Return a dataset; CheckpointError if there is none, or it may not be read."""
        found = self.found.get(name) or Objects(self.path, self.file, self.external).find(name)
        if isinstance(found, h5py.Dataset):
            self.found[name] = found
            return found
        names = stored_datasets(self.file)
        listed = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        what = "no dataset" if found is None else "a group, not a dataset,"
        raise CheckpointError(
            f"{self.path} has {what} named {name!r}; it holds {listed or 'no dataset at all'}"
        )

    def describe(self, name: str) -> DatasetInfo:
        """Describe a dataset; CheckpointError if no field can hold it, or the manifest differs."""
        path, dataset = self.path, self.dataset(name)
        if dataset.shape is None:
            raise CheckpointError(f"{name!r} in {path} is empty: it has neither shape nor points")
        try:
            dtype = as_dtype(dataset.dtype)
        except TypeError as error:
            raise CheckpointError(
                f"{name!r} in {path} has elements that no field can hold: {error}"
            ) from None
        plain_type = dtype if dtype.names else np.dtype(dtype.str)  # without metadata of h5py
        info = DatasetInfo.stored(name, dataset.shape, plain_type, dataset.attrs)
        info = replace(info, chunks=dataset.chunks or ())
        layout = dataset.id.get_create_plist()
        plain = layout.get_layout() == h5py.h5d.CONTIGUOUS and layout.get_external_count() == 0
        here = Path(path).samefile(dataset.file.filename)  # false behind an external link
        native = h5py.h5t.py_create(dataset.dtype, logical=True)
        offset = dataset.id.get_offset()
        if plain and here and native.equal(dataset.id.get_type()) and offset is not None:
            if offset + info.nbytes > Path(path).stat().st_size:
                raise CheckpointError(f"{path} is damaged: it ends before {name!r} does")
            if not (info.kind and self.file.driver == "fileobj"):  # patches may change its bytes
                info = replace(info, offset=offset)
        listed = (self.listed or {}).get(name)
        if listed is None:
            return info
        if (listed.dtype, listed.shape) != Listed.of(info)[1:3]:
            raise broken(path, f"type or shape of {name!r} differs from its list of contents")
        return info if listed.checksum is None else replace(info, checksum=listed.checksum)

    def info(self, identity: Identity, datasets: Iterable[DatasetInfo]) -> FileInfo:
        """Read the values among some datasets, and the attributes."""
        values = {}
        fields = []
        for info in datasets:
            if not info.kind:
                fields.append(info)
                continue
            data, stored = np.empty(info.shape, info.dtype), self.file[info.name].id
            if info.chunks and info.checksum is None:
                data = read_part(self.file[info.name], ...)
            elif data.size:  # the bytes as they are, gaps included, as `store_value` writes them
                stored.read(h5py.h5s.ALL, h5py.h5s.ALL, data, stored.get_type())
            if info.checksum not in (None, checksum(data)):
                raise damaged(self.path, [info.name])
            values[info.name] = Stored(info.kind, data)
        step, time = (self.file.attrs.get(RESERVED + name) for name in ("step", "time"))
        numbers = None if step is None else int(step), None if time is None else float(time)
        return FileInfo(self.path, identity, fields, values, _user_attrs(self.file.attrs), *numbers)


def list_datasets(file: Any) -> list[str]:
    """Return the names of all datasets of a file or group, but not of those in the view for VTK."""
    return _walk(file)[0]


def stored_datasets(file: Any) -> list[str]:
    """Return the names of all datasets but those of this library and those that only name axes."""
    names = [name for name in list_datasets(file) if not name.startswith(RESERVED)]
    return [name for name in names if not only_names_an_axis(file[name])]


def only_names_an_axis(item: Any) -> bool:
    """Whether a dataset is only the name of a dimension without coordinates, as in netCDF."""
    return "not a netCDF variable" in str(item.attrs.get("NAME", ""))


def _walk(top: Any) -> tuple[list[str], list[str]]:
    """Return the names of all datasets, the first of each, and of all links to other files."""
    datasets: list[str] = []
    others: list[str] = []
    hidden = VIEW if RESERVED + "format" in top.attrs else None
    seen: set[int] = set()
    left: list[tuple[str, Any, bytes, int]] = [("", top.id, b".", h5py.h5l.TYPE_HARD)]
    while left:
        path, parent, name, kind = left.pop()
        if kind == h5py.h5l.TYPE_SOFT or path == hidden:
            continue
        if kind != h5py.h5l.TYPE_HARD:
            others.append(path)
            continue
        found = h5py.h5o.open(parent, name)
        address = h5py.h5o.get_info(found).addr
        if address in seen:
            continue
        seen.add(address)
        if isinstance(found, h5py.h5d.DatasetID):
            datasets.append(path)
        elif isinstance(found, h5py.h5g.GroupID):
            if path.count("/") >= MOST_GROUPS:
                raise CheckpointError(
                    f"{os.path.realpath(top.file.filename)} has groups nested more than "
                    f"{MOST_GROUPS} deep, from {path[:20]!r} on; name the datasets to read"
                )
            links: list[tuple[bytes, int]] = []
            found.links.iterate(partial(_note_link, links), info=True)
            for inner, type_ in reversed(links):
                text = inner.decode("utf8", "surrogateescape")
                left.append((f"{path}/{text}" if path else text, found, inner, type_))
    return datasets, others


def _note_link(links: list[tuple[bytes, int]], name: bytes, info: Any) -> None:
    links.append((name, info.type))  # h5py uses `info` again


def _kind_of(dataset: Any) -> str:
    """Return `DatasetInfo.kind` of a dataset of a file of pencils, or `COORDINATE`."""
    if RESERVED + "components" in dataset.attrs:
        return ""
    kind: str = dataset.attrs.get(RESERVED + "value", COORDINATE)
    return kind


def _user_attrs(attrs: Any) -> dict[str, Any]:
    """Return the attributes of the user, without types that other ranks cannot receive."""
    found: dict[str, Any] = {}
    for name in attrs:
        with contextlib.suppress(TypeError, OSError):  # of a type that h5py does not know
            if not name.startswith(RESERVED):
                value = attrs[name]
                pickle.dumps(value)  # fails for references, at any depth
                found[name] = value
    if has_own_conventions(attrs):
        del found["Conventions"]
    return found


def has_own_conventions(attrs: Any) -> bool:
    """Whether a file of pencils names conventions that its user has not given."""
    if RESERVED + "format" not in attrs or GIVEN_CONVENTIONS in attrs:
        return False
    written = attrs.get("Conventions")
    return isinstance(written, str) and written == CONVENTIONS


def describe(
    file: HDF5File,
    identity: Identity,
    names: list[str] | None,
    among: list[str] | None,
    *,
    verify: bool,
) -> FileInfo:
    """Describe named datasets, as `pencils.io.describe.describe`; no checksums unless `verify`."""
    wanted = file.everything(among) if names is None else [*dict.fromkeys(names)]
    datasets = [file.describe(name) for name in wanted]
    for info in datasets:
        if info.kind and info.name in (among or ()):
            raise CheckpointError(
                f"{info.name!r} in {file.path} is no field but a value of kind {info.kind!r}"
            )
    if not verify:
        datasets = [replace(info, checksum=None) for info in datasets]
    return file.info(identity, datasets)


def describe_fields(file: HDF5File, identity: Identity) -> FileInfo:
    """Describe all fields and values that pencils can read."""
    arrays = []
    for name in file.everything(None):
        dataset = file.dataset(name)
        with contextlib.suppress(TypeError):  # of elements that no field can have
            as_dtype(dataset.dtype)
            arrays += [] if dataset.shape is None else [name]
    return file.info(identity, [file.describe(name) for name in arrays])


def describe_summed(file: HDF5File, identity: Identity) -> FileInfo:
    """Describe all datasets that have a checksum; read no values."""
    listed = file.listed or {}
    summed = []
    for name in file.compare():
        in_manifest = name in listed and listed[name].checksum is not None
        if in_manifest or RESERVED + "checksum" in file.file[name].attrs:
            summed.append(file.describe(name))
    # The sum in the manifest may cover all data, those of other files left out.
    others = (one.kind or file.file[name].is_virtual for name, one in listed.items())
    is_covered = bool(summed) or (file.listed is not None and all(others))
    return FileInfo(file.path, identity, summed, {}, {}, None, None, is_covered)


def read_box(file: Any, name: str, key: tuple[Any, ...], *, summed: bool) -> Array:
    """Read a box; unless the caller sums it up, chunks that unpack to a wrong size are found."""
    try:
        if not summed:
            return read_part(file[name], key)
        load_filters(file[name])
        return np.asarray(file[name][key])
    except (KeyError, OSError, RuntimeError) as error:
        if number_of(error) is not None:
            raise  # to `opened`
        raise damaged(os.path.realpath(file.filename), [name]) from error


def open_dataset(path: str, name: str) -> ArrayLike:
    """Open a dataset, to be read piece by piece; the name is optional if there is only one."""
    with open_whole(path) as file:
        names = file.names()
        if name not in names and len(names) == 1:
            name = names[0]
        file.describe(name)  # raises if no field can hold it
    dataset: ArrayLike = _open_file(path)[name]
    load_filters(dataset)
    return dataset


@contextlib.contextmanager
def opened(path: str) -> Iterator[Any]:
    """Open a file in a ``with`` block, for `read_box`."""
    with _open_file(path) as file, system("read", path):
        yield file


@contextlib.contextmanager
def open_whole(path: str, access: Access = _ORDINARY) -> Iterator[HDF5File]:
    """Open a file in a ``with`` block, after plain reads have compared it with its manifest.

    Raises CheckpointError if it is damaged, of a format that is too new, or another tool has
    written to a file of pencils; OSError if the system cannot read it.
    """
    record = check_manifest(path, edited=access.edited) if access.verify else None
    with open_checked(path, access, record) as file:
        yield file


@contextlib.contextmanager
def open_checked(path: str, access: Access, record: Record | None) -> Iterator[HDF5File]:
    """Do what `open_whole` does, after `check_manifest` has found a record."""
    with reading(path), opened(path) as file:
        attrs = file.attrs
        check_head(path, attrs)
        if access.verify and record is None and not access.edited and RESERVED + "format" in attrs:
            raise lost(path)
        yield HDF5File(path, file, record, access.external, {})


def _open_file(path: str) -> Any:
    """Open for reading; raise CheckpointError or OSError with the reason if that fails."""
    with open_to_read(path) as handle:
        size, at = os.fstat(handle).st_size, 0
        while at < size and os.pread(handle, len(_SIGNATURE), at) != _SIGNATURE:
            at = max(_USER_BLOCK, 2 * at)
    if at >= size:
        raise CheckpointError(
            f"{path} is not an HDF5 file; load() reads HDF5 files of save() and of other programs"
        )
    source = committed(path)
    try:
        return open_unlocked(source)
    except OSError as error:
        number = number_of(error)
        if number is not None:
            msg = f"cannot load {path}: {os.strerror(number)}"
            raise OSError(number, msg) from error
        raise CheckpointError(
            f"{path} is a damaged HDF5 file, cut short or not written to its end: {error}"
        ) from None
