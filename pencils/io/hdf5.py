"""Find out what an HDF5 file holds, and read from it. No communication.

h5py is all that is used of HDF5, in its serial form; most bytes are read past it, by all ranks.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from pencils.errors import CheckpointError, PencilsError
from pencils.io.checksum import checksum
from pencils.io.entry import FORMAT, RESERVED, Entry, damaged
from pencils.io.values import COORDINATE, Stored
from pencils.partition import ArrayLike
from pencils.storage import Array, read_dtype

_MOST_NAMES = 20


class Found(NamedTuple):
    """What a file holds: fields, values that all ranks get, attributes of the user, its time."""

    fields: list[Entry]
    values: dict[str, Stored]
    attrs: dict[str, Any]
    step: int | None
    time: float | None


def inspect(
    path: str, names: Iterable[str] | None, among: Collection[str] | None = None, *, verify: bool
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
        Whether to check the sums of values, and to pass on those of fields.

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
    with _open_whole(path) as file:
        wanted = _everything(file, among) if names is None else dict.fromkeys(names)
        entries = [_describe(path, name, _dataset(file, path, name)) for name in wanted]
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


def list_all(path: str) -> list[str]:
    """List the values and fields, without what neither can be, like text in other tools' files.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file, or of a format that is too new.
    OSError
        If the file cannot be opened.
    """
    with _open_whole(path) as file:
        return [name for name in _everything(file, None) if _is_array(file[name])]


def describe_all(path: str) -> list[Entry]:
    """Describe every dataset of numbers whose sum is known.

    Raises
    ------
    CheckpointError
        If it is not a whole HDF5 file, or of a format that is too new.
    OSError
        If the file cannot be opened.
    """
    with _open_whole(path) as file:
        summed = [name for name in _datasets(file) if RESERVED + "checksum" in file[name].attrs]
        return [_describe(path, name, file[name]) for name in summed]


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
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise damaged(file.filename, [name]) from error


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
        raise OSError(error.errno, msg) from None  # of the same type
    if not h5py.is_hdf5(path):
        msg = f"{path} is not an HDF5 file; load() reads those that save() or other tools wrote"
        raise CheckpointError(msg)
    try:
        return _open(path)
    except OSError as error:
        msg = f"{path} is a damaged HDF5 file, cut short or not written to its end: {error}"
        raise CheckpointError(msg) from None


def _open(path: str) -> Any:
    try:
        return h5py.File(path, "r", locking=False)
    except OSError:  # as of a file that this process has open already, with locks
        return h5py.File(path, "r")


@contextlib.contextmanager
def _telling_of_damage(path: str) -> Iterator[None]:
    """Turn what h5py complains of, in a file that it could open, into one kind of error."""
    try:
        yield
    except PencilsError:
        raise
    except (KeyError, OSError, RuntimeError, TypeError, ValueError, OverflowError) as error:
        msg = f"{path} is a damaged HDF5 file: {error}"
        raise CheckpointError(msg) from error


@contextlib.contextmanager
def _open_whole(path: str) -> Iterator[Any]:
    """Open a file that `save` has finished, and tell of damage in it."""
    with open_file(path) as file, _telling_of_damage(path):
        _check_state(path, file)
        yield file


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


def _everything(file: Any, among: Collection[str] | None) -> list[str]:
    """Names of the fields and values; what stands beside them in a file of pencils is neither."""
    names = _datasets(file)
    if RESERVED + "format" not in file.attrs:
        return names if among is None else list(among)
    attrs = {name: file[name].attrs for name in names}
    fields = [name for name in names if RESERVED + "components" in attrs[name]]
    kinds = {name: attrs[name].get(RESERVED + "value", COORDINATE) for name in names}
    values = [name for name, kind in kinds.items() if kind != COORDINATE]
    return [*dict.fromkeys([*(fields if among is None else among), *values])]


def _check_fields(path: str, entries: Iterable[Entry], wanted: Collection[str]) -> None:
    for entry in entries:
        if entry.kind and entry.name in wanted:
            msg = f"{entry.name!r} in {path} is no field but a value of kind {entry.kind!r}"
            raise CheckpointError(msg)


def _read_value(path: str, file: Any, entry: Entry) -> Stored:
    data = np.asarray(file[entry.name][()], entry.dtype)
    if entry.checksum not in (None, checksum(data)):
        raise damaged(path, [entry.name])
    return Stored(entry.kind, data)


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
    summed = dataset.attrs.get(RESERVED + "checksum")
    entry = Entry(
        name,
        dataset.shape,
        dtype,
        components=None if components is None else int(components),
        singletons=_flags(dataset, "singleton"),
        periodic=_flags(dataset, "periodic"),
        boundary=_pairs(dataset.attrs.get(RESERVED + "boundary", ())),
        kind=dataset.attrs.get(RESERVED + "value", ""),
        checksum=None if summed is None else int(summed),
        chunks=dataset.chunks or (),
    )
    offset = _raw_offset(path, dataset)
    if offset is not None and offset + entry.nbytes > Path(path).stat().st_size:
        msg = f"{path} is damaged: it ends before {name!r} does"
        raise CheckpointError(msg)
    return replace(entry, offset=offset)


def _is_array(dataset: Any) -> bool:
    """Whether a dataset has points, of a type that a field may have."""
    try:
        read_dtype(dataset.dtype)
    except TypeError:
        return False
    return dataset.shape is not None


def _field_type(path: str, name: str, dataset: Any) -> np.dtype[Any]:
    try:
        dtype = read_dtype(dataset.dtype)
    except TypeError as error:
        msg = f"{name!r} in {path} has elements that no field can hold: {error}"
        raise CheckpointError(msg) from None
    return dtype if dtype.names else np.dtype(dtype.str)  # without notes by h5py


def _flags(dataset: Any, name: str) -> tuple[bool, ...]:
    return tuple(bool(flag) for flag in dataset.attrs.get(RESERVED + name, ()))


def _pairs(numbers: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    flat = map(int, numbers)
    return tuple(zip(flat, flat, strict=True))


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
            value = file.attrs[name]
            pickle.dumps(value)  # references cannot travel to other ranks, wherever they stand
            found[name] = value
    return found
