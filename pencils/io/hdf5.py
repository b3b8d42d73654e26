"""The HDF5 side: lay out a file for raw writing, find out what a file holds. No communication.

h5py is all that is used of HDF5, in its serial form. Space for every dataset is reserved in one
piece and never filled; the bytes come afterwards, from all ranks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pencils.errors import CheckpointError
from pencils.io.entry import RESERVED, Entry
from pencils.partition import ArrayLike
from pencils.storage import Array, read_dtype

FORMAT = 1

# What HDF5 since 1.10 reads; newer forms would be unreadable for installed tools.
_LIBVER = ("earliest", "v110")
_MOST_NAMES = 20


# Writing.


def lay_out(
    path: str, entries: Sequence[Entry], attrs: Mapping[str, Any], version: str
) -> list[Entry]:
    """Overwrite `path` with an HDF5 file that has room for all fields.

    Parameters
    ----------
    path : str
        The file.
    entries : sequence of Entry
        The fields.
    attrs : mapping of str to object
        Attributes of the file.
    version : str
        Version of pencils.

    Returns
    -------
    list of Entry
        The entries with their offsets; None for those without points.

    Raises
    ------
    TypeError
        If HDF5 has no such element type or attribute.
    OSError
        If the file cannot be written.
    """
    with h5py.File(path, "w", libver=_LIBVER, locking=False) as file:
        file.attrs[RESERVED + "format"] = FORMAT
        file.attrs[RESERVED + "version"] = version
        for name, value in attrs.items():
            _store_attribute(file, name, value)
        return [replace(entry, offset=_reserve(file, entry)) for entry in entries]


def _reserve(file: Any, entry: Entry) -> int | None:
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.CONTIGUOUS)
    layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    layout.set_obj_track_times(False)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5py.h5t.CSET_UTF8)
    space = h5py.h5s.create_simple(entry.shape)
    made = h5py.h5d.create(
        file.id, entry.name.encode(), _file_type(entry), space, dcpl=layout, lcpl=links
    )
    attrs = h5py.Dataset(made).attrs
    attrs[RESERVED + "components"] = entry.components
    attrs[RESERVED + "singleton"] = np.array(entry.singletons, np.int8)
    attrs[RESERVED + "periodic"] = np.array(entry.periodic, np.int8)
    offset: int | None = made.get_offset()
    return offset


def _file_type(entry: Entry) -> Any:
    """HDF5 type whose elements are, byte for byte, those of the field."""
    reason = "it would change its bytes"
    try:
        kind = h5py.h5t.py_create(entry.dtype, logical=True)
        if kind.get_size() == entry.dtype.itemsize and kind.dtype == entry.dtype:
            return kind
    except TypeError as error:
        reason = str(error)
    msg = (
        f"fields[{entry.name!r}] has dtype {entry.dtype}, which HDF5 cannot store ({reason}); "
        "convert the field with astype"
    )
    raise TypeError(msg) from None


def _store_attribute(file: Any, name: str, value: Any) -> None:
    storable = value
    if isinstance(value, np.str_ | np.ndarray) and value.dtype.kind == "U":
        storable = value.astype(object) if value.ndim else str(value)
    try:
        file.attrs[name] = storable
    except (TypeError, ValueError, OSError) as error:
        msg = (
            f"attrs[{name!r}] = {value!r:.80} cannot be stored ({error}); attributes are numbers, "
            "strings and arrays of them below 64 kB"
        )
        raise TypeError(msg) from None


# Reading.


def inspect(path: str, names: Iterable[str] | None) -> tuple[list[Entry], dict[str, Any]]:
    """Find out what a file holds.

    Parameters
    ----------
    path : str
        The file.
    names : iterable of str or None
        Datasets to describe; None for all, of a file of pencils all its fields.

    Returns
    -------
    list of Entry, dict
        The datasets and the attributes of the file.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file, of a format that is too new, or a name is missing in it.
    OSError
        If the file cannot be opened.
    """
    with open_file(path) as file:
        newest = file.attrs.get(RESERVED + "format", FORMAT)
        if newest > FORMAT:
            msg = (
                f"{path} has checkpoint format {newest}, written by pencils "
                f"{file.attrs.get(RESERVED + 'version')}; this version reads up to format "
                f"{FORMAT}: install a newer pencils"
            )
            raise CheckpointError(msg)
        wanted = _fields(file) if names is None else list(dict.fromkeys(names))
        return [_describe(path, name, _dataset(file, path, name)) for name in wanted], _attrs(file)


def read_box(file: Any, name: str, key: tuple[slice, ...]) -> Array:
    """Read a box of a dataset, whatever its storage."""
    return np.asarray(file[name][key])


def open_dataset(path: str, name: str) -> ArrayLike:
    """Open a dataset for reading piece by piece; a file with only one may call it what it likes.

    The file is open as long as the dataset is in use.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file, or holds no such dataset of numbers.
    OSError
        If the file cannot be opened.
    """
    file = open_file(path)
    names = _datasets(file)
    if name not in file and len(names) == 1:
        name = names[0]
    dataset: ArrayLike = _dataset(file, path, name)
    _describe(path, name, dataset)  # complains of what no field can hold
    return dataset


def open_file(path: str) -> Any:
    """Open for reading, with errors that say what is wrong.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file.
    OSError
        If the file cannot be opened.
    """
    try:
        with Path(path).open("rb"):  # only to have the error of the system
            pass
    except OSError as error:
        where = f"; check the path, the working directory is {Path.cwd()}"
        hint = where if isinstance(error, FileNotFoundError) else ""
        msg = f"cannot load {path}: {error.strerror}{hint}"
        raise type(error)(msg) from None
    if not h5py.is_hdf5(path):
        msg = f"{path} is not an HDF5 file; load() reads those that save() or other tools wrote"
        raise CheckpointError(msg)
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        msg = f"{path} is a damaged HDF5 file, cut short or not written to its end: {error}"
        raise CheckpointError(msg) from None


def _datasets(file: Any) -> list[str]:
    found: list[str] = []

    def visit(name: str, thing: object) -> None:
        if isinstance(thing, h5py.Dataset):
            found.append(name)

    file.visititems(visit)
    return found


def _fields(file: Any) -> list[str]:
    """Names of the fields; the datasets that stand beside them in a file of pencils are none."""
    names = _datasets(file)
    if RESERVED + "format" not in file.attrs:
        return names
    return [name for name in names if RESERVED + "components" in file[name].attrs]


def _dataset(file: Any, path: str, name: str) -> Any:
    try:
        found = file[name]
    except (KeyError, ValueError):
        found = None
    if isinstance(found, h5py.Dataset):
        return found
    names = _datasets(file)
    listed = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    what = "no dataset" if found is None else "a group, not a dataset,"
    msg = f"{path} has {what} named {name!r}; it holds {listed or 'no dataset at all'}"
    raise CheckpointError(msg)


def _describe(path: str, name: str, dataset: Any) -> Entry:
    if dataset.shape is None:
        msg = f"{name!r} in {path} is empty: it has neither shape nor points"
        raise CheckpointError(msg)
    dtype = _field_type(path, name, dataset)
    components = dataset.attrs.get(RESERVED + "components")
    entry = Entry(
        name,
        dataset.shape,
        dtype,
        components=None if components is None else int(components),
        singletons=_flags(dataset, "singleton"),
        periodic=_flags(dataset, "periodic"),
    )
    offset = _raw_offset(path, dataset)
    if offset is not None and offset + entry.nbytes > Path(path).stat().st_size:
        msg = f"{path} is damaged: it ends before {name!r} does"
        raise CheckpointError(msg)
    return replace(entry, offset=offset)


def _field_type(path: str, name: str, dataset: Any) -> np.dtype[Any]:
    try:
        dtype = read_dtype(dataset.dtype)
    except TypeError as error:
        msg = f"{name!r} in {path} has elements that no field can hold: {error}"
        raise CheckpointError(msg) from None
    return dtype if dtype.names else np.dtype(dtype.str)  # without notes by h5py


def _flags(dataset: Any, name: str) -> tuple[bool, ...]:
    return tuple(bool(flag) for flag in dataset.attrs.get(RESERVED + name, ()))


def _raw_offset(path: str, dataset: Any) -> int | None:
    """Where the elements lie as plain bytes, or None if they do not."""
    layout = dataset.id.get_create_plist()
    plain = layout.get_layout() == h5py.h5d.CONTIGUOUS and layout.get_external_count() == 0
    here = Path(path).samefile(dataset.file.filename)  # an external link leads elsewhere
    native = h5py.h5t.py_create(dataset.dtype, logical=True)
    if not (plain and here and native.equal(dataset.id.get_type())):
        return None
    offset: int | None = dataset.id.get_offset()
    return offset


def _attrs(file: Any) -> dict[str, Any]:
    """Attributes of the user, but for those that only mean something in the open file."""
    found: dict[str, Any] = {}
    for name in file.attrs:
        if name.startswith(RESERVED):
            continue
        with contextlib.suppress(TypeError, OSError):  # of a type that h5py does not know
            found[name] = file.attrs[name]
    references = (h5py.Reference, h5py.RegionReference)
    return {name: value for name, value in found.items() if not isinstance(value, references)}
