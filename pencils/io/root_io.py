"""The place for other file formats: `load`, `open` and `verify` read files by `Format` only."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pencils.array.allocation import Array
from pencils.distribute.partition import ArrayLike
from pencils.errors import CheckpointError
from pencils.io.commit import discard, make_temporary
from pencils.io.file_access import on_root, open_regular
from pencils.io.file_info import Access, FileInfo
from pencils.pencil import Pencil


class Format(Protocol):
    """Functions of a module that reads files of one format. None communicates.

    Paths are real paths. All functions raise CheckpointError if the file is damaged or of another
    format, OSError if the system cannot read it.
    """

    def describe(
        self, path: str, names: list[str] | None, among: list[str] | None, access: Access
    ) -> FileInfo:
        """Describe named datasets; None means all values, and the fields in `among` (None: all)."""

    def describe_fields(self, path: str, access: Access) -> FileInfo:
        """Describe all fields and values that pencils can read."""

    def describe_summed(self, path: str, access: Access) -> FileInfo:
        """Describe all datasets that have a checksum; read no values."""

    def opened(self, path: str) -> AbstractContextManager[Any]:
        """Open a file in a ``with`` block, for `read_box`."""

    def read_box(self, file: Any, name: str, key: tuple[Any, ...]) -> Array:
        """Read a box of a dataset that has no plain bytes: chunked, compressed, virtual."""

    def open_dataset(self, path: str, name: str) -> ArrayLike:
        """Open a dataset, to be read piece by piece."""


def format_of(_path: str) -> Format:
    """Return the module that reads a file."""
    from pencils.io import hdf5  # most ranks never need h5py

    return hdf5


def open_on_root(
    path: str, name: str
) -> tuple[ArrayLike | None, tuple[int, ...], np.dtype[np.generic]]:
    """Open an array on rank 0, for `partition`; return it, its shape and dtype. *Collective*.

    The file is an .npy file, or an HDF5 file with one dataset or the dataset `name`. The array is
    None on other ranks. CheckpointError or OSError are raised on every rank.
    """
    data: Any = None

    def work() -> tuple[tuple[int, ...], np.dtype[np.generic]]:
        nonlocal data
        data = (
            _open_npy(path) if path.endswith(".npy") else format_of(path).open_dataset(path, name)
        )
        return data.shape, data.dtype

    found = on_root(Pencil(1).comm, "open_on_root", work)
    return data, *found


def check_target(path: str) -> None:
    """Raise OSError on every rank if `save` cannot create a file. *Collective*."""

    def work() -> None:
        discard(make_temporary(Path(os.path.realpath(path))))

    on_root(Pencil(1).comm, "check_target", work)


def _open_npy(path: str) -> ArrayLike:
    os.close(open_regular(path))
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        msg = f"cannot read {path}: {error}"
        raise CheckpointError(msg) from None
