"""What rank 0 does with files on behalf of all; if it fails, all ranks raise its error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from pencils.comm.agree import agreed
from pencils.distribute.partition import ArrayLike
from pencils.errors import CheckpointError
from pencils.io.commit import discard, make_temporary
from pencils.io.plain import check_regular
from pencils.pencil import Pencil


def open_on_root(
    path: str, name: str
) -> tuple[ArrayLike | None, tuple[int, ...], np.dtype[np.generic]]:
    """Open an array on rank 0, for `partition`. *Collective* over all processes.

    Parameters
    ----------
    path : str
        An .npy or HDF5 file.
    name : str
        The dataset in an HDF5 file that has more than one.

    Returns
    -------
    array_like or None, tuple of int, numpy.dtype
        On rank 0 the array, to be read piece by piece; on all ranks its shape and type.

    Raises
    ------
    CheckpointError
        On every rank, if there is no such array in the file.
    OSError
        On every rank, if the file cannot be opened.
    """
    comm = Pencil(1).comm
    data: Any = None
    with agreed(comm, "open_on_root"):
        if comm.rank == 0:
            data = _open(path, name)
    return data, *comm.bcast(None if data is None else (data.shape, data.dtype))


def _open(path: str, name: str) -> ArrayLike:
    if path.endswith(".npy"):
        check_regular(path)
        try:
            return np.lib.format.open_memmap(path, mode="r")
        except ValueError as error:
            msg = f"cannot read {path}: {error}"
            raise CheckpointError(msg) from None
    from pencils.io import hdf5  # of all ranks, only this one needs h5py

    return hdf5.open_dataset(path, name)


def check_target(path: str) -> None:
    """Raise now what `save` would raise for want of a place. *Collective* over all processes.

    Raises
    ------
    OSError
        On every rank, if the directory is missing or closed to rank 0, or `path` is no file.
    """
    comm = Pencil(1).comm
    with agreed(comm, "check_target"):
        if comm.rank == 0:
            discard(make_temporary(Path(os.path.realpath(path))))
