"""Read HDF5 files: the functions of `pencils.io.readers.Format`. No communication.

Serial h5py is all that is used of HDF5. Most bytes are read without it, by all ranks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.distribute.placement import ArrayLike
from pencils.errors import CheckpointError
from pencils.io.file_access import number_of, open_to_read, reading, system
from pencils.io.file_info import FORMAT, RESERVED, Access, FileInfo, Identity, damaged
from pencils.io.hdf5_file import HDF5File
from pencils.io.manifest import check_manifest, lost
from pencils.io.objects import open_unlocked
from pencils.io.seal import committed
from pencils.io.unpack import read_part

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
                raise CheckpointError(
                    f"{info.name!r} in {path} is no field but a value of kind {info.kind!r}"
                )
        if not access.verify:
            datasets = [replace(info, checksum=None) for info in datasets]
        return file.info(identity, datasets)


def describe_fields(path: str, access: Access) -> FileInfo:
    """Describe all fields and values that pencils can read."""
    identity = Identity.of(path)
    with open_whole(path, access) as file:
        names = filter(file.is_array, file.everything(None))
        return file.info(identity, [file.describe(name) for name in names])


def describe_summed(path: str, access: Access) -> FileInfo:
    """Describe all datasets that have a checksum; read no values."""
    identity = Identity.of(path)
    with open_whole(path, access) as file:
        summed = [file.describe(name) for name in file.compare() if file.is_summed(name)]
        is_covered = bool(summed) or file.is_listed
    return FileInfo(path, identity, summed, {}, {}, None, None, is_covered)


def read_box(file: Any, name: str, key: tuple[Any, ...], *, summed: bool) -> Array:
    """Read a box of a dataset; raise CheckpointError if HDF5 cannot decode the data.

    Unless it is summed, chunks that unpack to a wrong size are found here.
    """
    try:
        return np.asarray(file[name][key]) if summed else read_part(file[name], key)
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
        yield HDF5File(path, file, record, access.external, {})


def _open_file(path: str) -> Any:
    """Open for reading; raise CheckpointError or OSError with the reason if that fails."""
    if not _is_hdf5(path):
        raise CheckpointError(
            f"{path} is not an HDF5 file; load() reads those that save() or other tools wrote"
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
        raise CheckpointError(
            f"{path} has checkpoint format {newest}, written by pencils "
            f"{file.attrs.get(RESERVED + 'version')}; this version reads up to format "
            f"{FORMAT}: install a newer pencils"
        )
    if not file.attrs.get(RESERVED + "complete", 1):
        raise CheckpointError(
            f"{path} is being written, or its writer died; load a file that save() has finished"
        )
