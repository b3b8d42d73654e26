"""Compare what a file holds with the checksums in it, by all ranks together."""

from __future__ import annotations

import os
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.reduce import allreduce
from pencils.io.checksum import checksum, checksum_box
from pencils.io.chunks import chunk_box, count_chunks, enlarge
from pencils.io.dataset_info import DatasetInfo, damaged
from pencils.io.file_info import FileInfo, inspect_on_root
from pencils.io.options import read_path
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

Sums = NDArray[np.uint64]

# Bytes that a rank holds in memory at once.
_PIECE_BYTES = 2**24


def verify(
    path: str | os.PathLike[str],
    comm: MPI.Intracomm | None = None,
    *,
    edited: bool = False,
    external: bool = False,
) -> list[str]:
    """Check that a file is whole and its data are what `save` has written. *Collective*.

    No fields are made: every rank reads its share of the bytes, piece by piece.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that share the work. Default: all.
    edited, external : bool, optional
        As in `load`.

    Returns
    -------
    list of str
        Names of the fields, values and coordinates that were found right; none in files that
        have no checksums.

    Raises
    ------
    CheckpointError
        On every rank, if the file is not whole, holds other things than its list of contents says,
        or data do not have their checksum, which it names; or if `load` would refuse it.
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
        same(path=given, edited=bool(edited), external=bool(external))
    look = partial(_look, access=(bool(edited), bool(external)))
    file = inspect_on_root(private, "verify", given, look)
    sums = _sum_shares(private, file)
    totals = allreduce(private, sums, np.add)
    pairs = zip(file.found, totals, strict=True)
    bad = [entry.name for entry, total in pairs if entry.checksum != total]
    with agreed(private, "verify"):
        if bad and private.rank == 0:
            file.identity.check_unchanged(file.path)
    if bad:
        raise damaged(file.path, bad)
    return [entry.name for entry in file.found]


def _look(path: str, access: tuple[bool, bool]) -> list[DatasetInfo]:
    from pencils.io import hdf5  # of all ranks, only this one needs h5py

    return hdf5.describe_all(path, hdf5.Access(*access))


def _sum_shares(comm: MPI.Intracomm, file: FileInfo[list[DatasetInfo]]) -> Sums:
    """Sum up what falls to this rank of every dataset."""
    path, entries = file.path, file.found
    sums = np.zeros(len(entries), np.uint64)
    with SharedFile(comm, path) as shared:
        file.check_in_place(comm, "verify")
        with agreed(comm, "verify"):  # one rank may have no memory for it
            for number, entry in enumerate(entries):
                if entry.offset is not None:
                    sums[number] = _sum_bytes(shared, entry, comm.rank, comm.size)
            shared.complain()
    with agreed(comm, "verify"):
        try:
            for number, entry in enumerate(entries):
                if entry.offset is None and entry.nbytes:
                    turn = (comm.rank + number) % comm.size
                    sums[number] = _sum_boxes(path, entry, turn, comm.size)
        finally:  # also the reason, if that failed
            if comm.rank == 0:
                file.identity.check_in_place(path)
    return sums


def _sum_bytes(file: SharedFile, entry: DatasetInfo, rank: int, size: int) -> int:
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


def _sum_boxes(path: str, entry: DatasetInfo, turn: int, size: int) -> int:
    """Sum over the share of one rank, of data that only HDF5 can read: whole chunks, if any."""
    from pencils.io import hdf5

    most = max(1, _PIECE_BYTES // entry.dtype.itemsize)
    extents = enlarge(entry.chunks or (1,) * len(entry.shape), entry.shape, most)
    counts = count_chunks(entry.shape, extents)
    first, last = (prod(counts) * part // size for part in (turn, turn + 1))
    total = 0
    with hdf5.opened(path) as file:
        for number in range(first, last):
            index = map(int, np.unravel_index(number, counts))
            box = chunk_box(tuple(index), extents, entry.shape)
            data = hdf5.read_box(file, entry.name, (*box.slices(), ...))
            total += checksum_box(data, box.start, entry.shape)
    return total % 2**64
