"""Find out what an HDF5 file holds, and read from it. No communication.

h5py is all that is used of HDF5, in its serial form; most bytes are read past it, by all ranks.
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
from pencils.io.dataset_info import FORMAT, RESERVED, DatasetInfo, damaged
from pencils.io.describe import address_of, describe, is_array, kind_of
from pencils.io.hdf5_errors import number_of, reading, system
from pencils.io.links import external_links, find_inside, look_up, outside
from pencils.io.manifest import TRIES, Listed, Record, broken, check_manifest, lost
from pencils.io.plain import open_regular
from pencils.io.values import COORDINATE, Stored

_MOST_NAMES = 20
# What HDF5 begins with, at the start of a file or behind so many bytes, doubled at will.
_SIGNATURE, _USER_BLOCK = b"\x89HDF\r\n\x1a\n", 512


class Found(NamedTuple):
    """What a file holds: fields, values that all ranks get, attributes of the user, its time."""

    fields: list[DatasetInfo]
    values: dict[str, Stored]
    attrs: dict[str, Any]
    step: int | None
    time: float | None


class Access(NamedTuple):
    """What the user has allowed: to read what other tools have changed, and other files."""

    edited: bool = False
    external: bool = False


_ORDINARY = Access()


def inspect(
    path: str,
    names: Iterable[str] | None,
    among: Collection[str] | None = None,
    *,
    verify: bool,
    access: Access = _ORDINARY,
) -> Found:
    """Find out what a file holds.

    Parameters
    ----------
    path : str
        The file.
    names : iterable of str or None
        What to look at. None for all values and fields; in a file of another tool that is every
        dataset.
    among : iterable of str, optional
        Fields for which there is a place; with ``names=None``, they are those to look at.
    verify : bool
        Whether to check the list of contents and the sums of values, and to pass on those of
        fields.
    access : Access, optional
        What may be read. Default: whole files of pencils and other tools, and no other files.

    Returns
    -------
    Found
        What was asked for.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file, of a format that is too new, or a name is missing in it.
    OSError
        If the file cannot be opened.
    """
    with open_whole(path, access, verify=verify) as source:
        file = source.file
        wanted = source.everything(among) if names is None else dict.fromkeys(names)
        entries = [source.describe(name) for name in wanted]
        _check_fields(path, entries, among or ())
        step, time = (file.attrs.get(RESERVED + name) for name in ("step", "time"))
        if not verify:
            entries = [replace(entry, checksum=None) for entry in entries]
        return Found(
            [entry for entry in entries if not entry.kind],
            {entry.name: _read_value(path, file, entry) for entry in entries if entry.kind},
            _attrs(file),
            None if step is None else int(step),
            None if time is None else float(time),
        )


def list_all(path: str, access: Access = _ORDINARY) -> list[str]:
    """List the values and fields, without what neither can be, like text in other tools' files.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file, or of a format that is too new.
    OSError
        If the file cannot be opened.
    """
    with open_whole(path, access) as source:
        return [name for name in source.everything(None) if is_array(source.dataset(name))]


def describe_all(path: str, access: Access = _ORDINARY) -> list[DatasetInfo]:
    """Describe every dataset of numbers whose sum is known.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file, or of a format that is too new.
    OSError
        If the file cannot be opened.
    """
    with open_whole(path, access) as source:
        return [source.describe(name) for name in source.compare() if source.is_summed(name)]


def read_box(file: Any, name: str, key: tuple[Any, ...]) -> Array:
    """Read a box of a dataset, whatever its storage.

    Raises
    ------
    CheckpointError
        If HDF5 cannot make sense of what lies there.
    OSError
        If the system cannot read the file.
    """
    try:
        return np.asarray(file[name][key])
    except (KeyError, OSError, RuntimeError) as error:
        if number_of(error) is not None:
            raise  # to who has opened the file
        raise damaged(file.filename, [name]) from error


def open_dataset(path: str, name: str, access: Access = _ORDINARY) -> ArrayLike:
    """Open a dataset for reading piece by piece; a file with only one may call it what it likes.

    The file is open as long as the dataset is in use.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file, or holds no such dataset of numbers.
    OSError
        If the file cannot be opened.
    """
    with open_whole(path, access) as source:
        names = source.names()
        if name not in names and len(names) == 1:
            name = names[0]
        source.describe(name)  # complains of what no field can hold
    dataset: ArrayLike = open_file(path)[name]
    return dataset


def open_file(path: str) -> Any:
    """Open for reading, with errors that say what is wrong.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file, or not a regular file.
    OSError
        If the file cannot be opened.
    """
    if not _is_hdf5(path):
        msg = f"{path} is not an HDF5 file; load() reads those that save() or other tools wrote"
        raise CheckpointError(msg)
    try:
        return _open(path)
    except OSError as error:
        number = number_of(error)
        if number is not None:
            msg = f"cannot load {path}: {os.strerror(number)}"
            raise OSError(number, msg) from error
        msg = f"{path} is a damaged HDF5 file, cut short or not written to its end: {error}"
        raise CheckpointError(msg) from None


def _is_hdf5(path: str) -> bool:
    """Whether a file begins as one, or does so behind a user block."""
    handle = open_regular(path)
    try:
        size, at = os.fstat(handle).st_size, 0
        while at < size:
            if os.pread(handle, len(_SIGNATURE), at) == _SIGNATURE:
                return True
            at = max(_USER_BLOCK, 2 * at)
        return False
    finally:
        os.close(handle)


def _open(path: str) -> Any:
    try:
        return h5py.File(path, "r", locking=False)
    except OSError:  # as of a file that this process has open already, with locks
        return h5py.File(path, "r")


@contextlib.contextmanager
def opened(path: str) -> Iterator[Any]:
    """Open for reading in a ``with`` block, for `read_box`, with errors that say what is wrong.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file.
    OSError
        If the file cannot be read.
    """
    with system("read", path), open_file(path) as file:
        yield file


class Source(NamedTuple):
    """A file that was found whole, open.

    Parameters
    ----------
    path : str
        The file.
    file : h5py.File
        It, open.
    record : Record or None
        What says what it holds, if there is one, and it was compared.
    external : bool
        Whether data may lie in other files.
    """

    path: str
    file: Any
    record: Record | None
    external: bool

    @property
    def listed(self) -> Mapping[str, Listed] | None:
        """What it must hold; None if it does not say."""
        return None if self.record is None else self.record.manifest.datasets

    def names(self) -> list[str]:
        """List all datasets."""
        found = _datasets(self.file)
        others = () if self.listed is not None else external_links(self.file)
        if others and not self.external:
            raise outside(self.path, others[0], "a link to")
        for name in others:
            thing = self.file.get(name)
            found += [name] if isinstance(thing, h5py.Dataset) else []
            inner = _datasets(thing) if isinstance(thing, h5py.Group) else ()
            found += [f"{name}/{one}" for one in inner]
        return found

    def everything(self, among: Collection[str] | None) -> list[str]:
        """List the fields and values; what stands beside them in a file of pencils is neither."""
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
        """List all datasets, and raise if HDF5 finds others than the file must hold."""
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
        listed = None if self.listed is None else self.listed.get(name)
        if listed is not None and listed.checksum is not None:
            return True
        return RESERVED + "checksum" in self.file[name].attrs

    def dataset(self, name: str) -> Any:
        """Find a dataset.

        Raises
        ------
        CheckpointError
            If there is none, or it lies in another file and may not.
        """
        file, path = self.file, self.path
        found = look_up(file, name) if self.external else find_inside(path, file, name)
        if isinstance(found, h5py.Dataset):
            return found
        names = _datasets(file)
        listed = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        what = "no dataset" if found is None else "a group, not a dataset,"
        msg = f"{path} has {what} named {name!r}; it holds {listed or 'no dataset at all'}"
        raise CheckpointError(msg)

    def describe(self, name: str) -> DatasetInfo:
        """Describe a dataset.

        Raises
        ------
        CheckpointError
            If there is none, or none for fields, or it is not what it was.
        """
        entry = describe(self.path, name, self.dataset(name))
        listed = None if self.listed is None else self.listed.get(name)
        if listed is None:
            return entry
        if (listed.dtype, listed.shape) != Listed.of(entry)[1:3]:
            raise broken(self.path, f"type or shape of {name!r} is")
        return entry if listed.checksum is None else replace(entry, checksum=listed.checksum)


@contextlib.contextmanager
def open_whole(path: str, access: Access = _ORDINARY, *, verify: bool = True) -> Iterator[Source]:
    """Open a file that was finished, and tell of damage in it.

    Parameters
    ----------
    path : str
        The file.
    access : Access, optional
        What may be read. Default: whole files of pencils and other tools, and no other files.
    verify : bool, optional
        Whether to compare the file with its list of contents, before HDF5 looks into it.

    Raises
    ------
    CheckpointError
        If it is damaged, or of a format that is too new, or another tool has written to a file of
        pencils.
    OSError
        If the file cannot be opened.
    """
    for _ in range(TRIES):
        record = check_manifest(path, edited=access.edited) if verify else None
        with reading(path), opened(path) as file:
            if record is not None and record.root != address_of(file["/"]):
                continue  # a series has gone on to its next state in between
            _check_state(path, file)
            marked = RESERVED + "format" in file.attrs
            if verify and record is None and not access.edited and marked:
                raise lost(path)
            yield Source(path, file, record, access.external)
            return
    raise broken(path, "where its contents begin is")


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


def _datasets(file: Any) -> list[str]:
    found: list[str] = []

    def visit(name: str, thing: object) -> None:
        if isinstance(thing, h5py.Dataset):
            found.append(name)

    file.visititems(visit)
    return found


def _check_fields(path: str, entries: Iterable[DatasetInfo], wanted: Collection[str]) -> None:
    for entry in entries:
        if entry.kind and entry.name in wanted:
            msg = f"{entry.name!r} in {path} is no field but a value of kind {entry.kind!r}"
            raise CheckpointError(msg)


def _read_value(path: str, file: Any, entry: DatasetInfo) -> Stored:
    data = np.asarray(file[entry.name][()], entry.dtype)
    if entry.checksum not in (None, checksum(data)):
        raise damaged(path, [entry.name])
    return Stored(entry.kind, data)


def _attrs(file: Any) -> dict[str, Any]:
    """Attributes of the user, but for those that only mean something in the open file."""
    found: dict[str, Any] = {}
    for name in file.attrs:
        if name.startswith(RESERVED):
            continue
        with contextlib.suppress(TypeError, OSError):  # of a type that h5py does not know
            value = file.attrs[name]
            pickle.dumps(value)  # references cannot travel to other ranks, wherever they stand
            found[name] = value
    return found
