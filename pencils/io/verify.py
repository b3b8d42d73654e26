"""Compare what a file holds with the checksums in it, by all ranks together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.reduce import allreduce
from pencils.io.arguments import read_path
from pencils.io.checksum import checksum
from pencils.io.entry import Entry, damaged
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from mpi4py import MPI

Sums = NDArray[np.uint64]

# Bytes that a rank holds in memory at once.
_PIECE_BYTES = 2**24


def verify(path: str | os.PathLike[str], comm: MPI.Intracomm | None = None) -> list[str]:
    """Check that a file is whole and its data are what `save` has written. *Collective*.

    No fields are made: every rank reads its share of the bytes, piece by piece.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that share the work. Default: all.

    Returns
    -------
    list of str
        Names of the fields, values and coordinates that were found right; none in files that
        have no checksums.

    Raises
    ------
    CheckpointError
        On every rank, if the file is not whole, or data do not have their checksum; it names them.
    OSError
        On every rank, if the file cannot be read.
    ArgumentError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import tempfile, pencils
    >>> u = pencils.ones(pencils.Pencil((4, 6)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": u, "dt": 0.1})
    ...     pencils.verify(f"{folder}/run.h5")
    ['dt', 'u']
    """
    private = Pencil(1, comm).topology.comm
    with agreed(private, "verify") as same:
        given = read_path(path)
        same(path=given)
    found: tuple[str, list[Entry]] | None = None
    with agreed(private, "verify"):
        if private.rank == 0:
            found = _inspect(os.path.realpath(given))
    real, entries = private.bcast(found)
    sums = _sum_shares(private, real, entries)
    totals = allreduce(private, sums, np.add)
    pairs = zip(entries, totals, strict=True)
    bad = [entry.name for entry, total in pairs if entry.checksum != total]
    if bad:
        raise damaged(real, bad)
    return [entry.name for entry in entries]


def _inspect(path: str) -> tuple[str, list[Entry]]:
    from pencils.io import hdf5  # of all ranks, only this one needs h5py

    return path, hdf5.describe_all(path)


def _sum_shares(comm: MPI.Intracomm, path: str, entries: Sequence[Entry]) -> Sums:
    """Sum up what falls to this rank of every dataset."""
    sums = np.zeros(len(entries), np.uint64)
    with SharedFile(comm, path) as file:
        for number, entry in enumerate(entries):
            if entry.offset is not None:
                sums[number] = _sum_bytes(file, entry, comm.rank, comm.size)
            file.check()
    with agreed(comm, "verify"):
        for number, entry in enumerate(entries):
            if entry.offset is None and entry.nbytes and comm.rank == number % comm.size:
                sums[number] = _sum_rows(path, entry)
    return sums


def _sum_bytes(file: SharedFile, entry: Entry, rank: int, size: int) -> int:
    """Sum over the share of one rank, of data that lie in one piece."""
    itemsize = entry.dtype.itemsize
    first, last = (prod(entry.shape) * part // size for part in (rank, rank + 1))
    most = max(1, _PIECE_BYTES // itemsize)
    total = 0
    for at in range(first, last, most):
        piece = np.empty(min(most, last - at), entry.dtype)
        file.read((entry.offset or 0) + at * itemsize, piece)
        total += checksum(piece, at)
    return total % 2**64


def _sum_rows(path: str, entry: Entry) -> int:
    """Sum over data that another tool has repacked, so that only HDF5 can read them."""
    from pencils.io import hdf5

    row = prod(entry.shape[1:])
    most = max(1, _PIECE_BYTES // (row * entry.dtype.itemsize))
    total = 0
    with hdf5.open_file(path) as file:
        for at in range(0, entry.shape[0], most):
            total += checksum(hdf5.read_box(file, entry.name, np.s_[at : at + most]), at * row)
    return total % 2**64
