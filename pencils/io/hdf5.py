"""Read HDF5 files: the functions of `pencils.io.readers.Format`. No communication.

Serial h5py is all that is used of HDF5. Most bytes are read without it, by all ranks.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import h5py
import numpy as np

from pencils.array.allocation import Array
from pencils.distribute.partition import ArrayLike
from pencils.errors import CheckpointError
from pencils.io.checksum import checksum
from pencils.io.file_access import number_of, open_to_read, reading, system
from pencils.io.file_info import (
    COORDINATE,
    FORMAT,
    RESERVED,
    Access,
    DatasetInfo,
    FileInfo,
    Identity,
    Stored,
    damaged,
)
from pencils.io.hdf5_datasets import (
    describe_dataset,
    external_links,
    find_anywhere,
    find_inside,
    is_array,
    kind_of,
    list_datasets,
    outside,
)
from pencils.io.manifest import Listed, Record, broken, check_manifest, lost
from pencils.io.seal import committed

_MOST_NAMES = 20
# The first bytes of HDF5, at the start of a file or behind a user block of 512, 1024, ... bytes.
_SIGNATURE, _USER_BLOCK = b"\x89HDF\r\n\x1a\n", 512

_ORDINARY = Access()


def describe(
    path: str, names: list[str] | None, among: list[str] | None, access: Access
) -> FileInfo:
    """Describe named datasets; None means all values, and the fields in `among` (None: all).

    In a file of another tool every dataset is a field.
    """
    identity = Identity.of(path)
    with open_whole(path, access) as file:
        wanted = file.everything(among) if names is None else [*dict.fromkeys(names)]
        datasets = [file.describe(name) for name in wanted]
        for info in datasets:
            if info.kind and info.name in (among or ()):
                msg = f"{info.name!r} in {path} is no field but a value of kind {info.kind!r}"
                raise CheckpointError(msg)
        if not access.verify:
            datasets = [replace(info, checksum=None) for info in datasets]
        return file.info(identity, datasets)


def describe_fields(path: str, access: Access) -> FileInfo:
    """Describe all fields and values that pencils can read."""
    identity = Identity.of(path)
    with open_whole(path, access) as file:
        names = [name for name in file.everything(None) if is_array(file.dataset(name))]
        return file.info(identity, [file.describe(name) for name in names])


def describe_summed(path: str, access: Access) -> FileInfo:
    """Describe all datasets that have a checksum; read no values."""
    identity = Identity.of(path)
    with open_whole(path, access) as file:
        summed = [file.describe(name) for name in file.compare() if file.is_summed(name)]
    return FileInfo(path, identity, summed, {}, {}, None, None)


def read_box(file: Any, name: str, key: tuple[Any, ...]) -> Array:
    """Read a box of a dataset; raise CheckpointError if HDF5 cannot decode the data."""
    try:
        return np.asarray(file[name][key])
    except (KeyError, OSError, RuntimeError) as error:
        if number_of(error) is not None:
            raise  # to `opened`
        raise damaged(os.path.realpath(file.filename), [name]) from error


def open_dataset(path: str, name: str) -> ArrayLike:
    """Open a dataset, to be read piece by piece; the name is optional if there is only one.

    The file is open as long as the dataset is in use.
    """
    with open_whole(path) as file:
        names = file.names()
        if name not in names and len(names) == 1:
            name = names[0]
        file.describe(name)  # raises if no field can hold it
    dataset: ArrayLike = _open_file(path)[name]
    return dataset


@contextlib.contextmanager
def opened(path: str) -> Iterator[Any]:
    """Open a file in a ``with`` block, for `read_box`."""
    with system("read", path), _open_file(path) as file:
        yield file


@contextlib.contextmanager
def open_whole(path: str, access: Access = _ORDINARY) -> Iterator[HDF5File]:
    """Open a file in a ``with`` block, after plain reads have compared it with its manifest.

    Raises CheckpointError if it is damaged, of a format that is too new, or another tool has
    written to a file of pencils; OSError if the system cannot read it.
    """
    record = check_manifest(path, edited=access.edited) if access.verify else None
    with reading(path), opened(path) as file:
        _check_state(path, file)
        marked = RESERVED + "format" in file.attrs
        if access.verify and record is None and not access.edited and marked:
            raise lost(path)
        yield HDF5File(path, file, record, access.external)


class HDF5File(NamedTuple):
    """An open file that is as it was written, as far as its manifest shows."""

    path: str
    file: Any  # h5py.File
    record: Record | None  # its manifest, if it has one and it was compared
    external: bool  # whether data may be in other files

    @property
    def listed(self) -> Mapping[str, Listed] | None:
        """The datasets in its manifest, by name; None if it has none."""
        return None if self.record is None else self.record.manifest.datasets

    def names(self) -> list[str]:
        """Return the names of all datasets."""
        found = list_datasets(self.file)
        others = () if self.listed is not None else external_links(self.file)
        if others and not self.external:
            raise outside(self.path, others[0], "a link to")
        for name in others:
            thing = self.file.get(name)
            found += [name] if isinstance(thing, h5py.Dataset) else []
            inner = list_datasets(thing) if isinstance(thing, h5py.Group) else ()
            found += [f"{name}/{one}" for one in inner]
        return found

    def everything(self, among: Collection[str] | None) -> list[str]:
        """Return the names of all values, and of the fields in `among`; None means all fields.

        Coordinates, and what other tools have added to a file of pencils, are neither.
        """
        if self.listed is not None:
            self.compare()
            kinds = {name: listed.kind for name, listed in self.listed.items()}
        elif RESERVED + "format" in self.file.attrs:
            kinds = {name: kind_of(self.file[name]) for name in self.names()}
        else:
            return self.names() if among is None else list(among)
        fields = [name for name, kind in kinds.items() if not kind]
        values = [name for name, kind in kinds.items() if kind not in ("", COORDINATE)]
        return [*dict.fromkeys([*(fields if among is None else among), *values])]

    def compare(self) -> list[str]:
        """Return the names of all datasets; raise CheckpointError if the manifest has others."""
        found = self.names()
        if self.listed is None:
            return found
        missing = self.listed.keys() - set(found)
        if missing:
            raise broken(self.path, f"{', '.join(map(repr, sorted(missing)))}, which it holds, is")
        for name in found:
            if name not in self.listed and kind_of(self.file[name]) != COORDINATE:
                raise broken(self.path, f"{name!r}, which is not in its list of contents, is")
        return found

    def is_summed(self, name: str) -> bool:
        """Whether a dataset has a checksum."""
        listed = (self.listed or {}).get(name)
        in_manifest = listed is not None and listed.checksum is not None
        return in_manifest or RESERVED + "checksum" in self.file[name].attrs

    def dataset(self, name: str) -> Any:
        """Return a dataset; CheckpointError if there is none, or it may not be read."""
        file, path = self.file, self.path
        found = find_anywhere(file, name) if self.external else find_inside(path, file, name)
        if isinstance(found, h5py.Dataset):
            return found
        names = list_datasets(file)
        listed = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        what = "no dataset" if found is None else "a group, not a dataset,"
        msg = f"{path} has {what} named {name!r}; it holds {listed or 'no dataset at all'}"
        raise CheckpointError(msg)

    def describe(self, name: str) -> DatasetInfo:
        """Describe a dataset; CheckpointError if that is impossible, or the manifest differs."""
        info = describe_dataset(self.path, name, self.dataset(name))
        if info.kind and self.file.driver == "fileobj":  # patches may change its bytes
            info = replace(info, offset=None)
        listed = (self.listed or {}).get(name)
        if listed is None:
            return info
        if (listed.dtype, listed.shape) != Listed.of(info)[1:3]:
            raise broken(self.path, f"type or shape of {name!r} is")
        return info if listed.checksum is None else replace(info, checksum=listed.checksum)

    def info(self, identity: Identity, datasets: Iterable[DatasetInfo]) -> FileInfo:
        """Read the values among some datasets, and the attributes."""
        path, file = self.path, self.file
        infos = list(datasets)
        values = {one.name: _read_value(path, file, one) for one in infos if one.kind}
        fields = [one for one in infos if not one.kind]
        step, time = (file.attrs.get(RESERVED + name) for name in ("step", "time"))
        numbers = None if step is None else int(step), None if time is None else float(time)
        return FileInfo(path, identity, fields, values, _read_attrs(file), *numbers)


def _open_file(path: str) -> Any:
    """Open for reading; raise CheckpointError or OSError with the reason if that fails."""
    if not _is_hdf5(path):
        msg = f"{path} is not an HDF5 file; load() reads those that save() or other tools wrote"
        raise CheckpointError(msg)
    source = committed(path)
    try:
        with contextlib.suppress(OSError):  # for example, this process has it open with locks
            return h5py.File(source, "r", locking=False)
        # a captured file again, because patches are missing in the file itself
        return h5py.File(source, "r")
    except OSError as error:
        number = number_of(error)
        if number is not None:
            msg = f"cannot load {path}: {os.strerror(number)}"
            raise OSError(number, msg) from error
        msg = f"{path} is a damaged HDF5 file, cut short or not written to its end: {error}"
        raise CheckpointError(msg) from None


def _is_hdf5(path: str) -> bool:
    """Whether a file begins with the signature of HDF5, or has it behind a user block."""
    with open_to_read(path) as handle:
        size, at = os.fstat(handle).st_size, 0
        while at < size:
            if os.pread(handle, len(_SIGNATURE), at) == _SIGNATURE:
                return True
            at = max(_USER_BLOCK, 2 * at)
    return False


def _check_state(path: str, file: Any) -> None:
    newest = file.attrs.get(RESERVED + "format", FORMAT)
    if newest > FORMAT:
        msg = (
            f"{path} has checkpoint format {newest}, written by pencils "
            f"{file.attrs.get(RESERVED + 'version')}; this version reads up to format "
            f"{FORMAT}: install a newer pencils"
        )
        raise CheckpointError(msg)
    if not file.attrs.get(RESERVED + "complete", 1):
        msg = f"{path} is being written, or its writer died; load a file that save() has finished"
        raise CheckpointError(msg)


def _read_value(path: str, file: Any, info: DatasetInfo) -> Stored:
    data = np.asarray(file[info.name][()], info.dtype)
    if info.checksum not in (None, checksum(data)):
        raise damaged(path, [info.name])
    return Stored(info.kind, data)


def _read_attrs(file: Any) -> dict[str, Any]:
    """Return the attributes of the user, without types that other ranks cannot receive."""
    found: dict[str, Any] = {}
    for name in file.attrs:
        if name.startswith(RESERVED):
            continue
        with contextlib.suppress(TypeError, OSError):  # of a type that h5py does not know
            value = file.attrs[name]
            pickle.dumps(value)  # fails for references, at any depth
            found[name] = value
    return found
