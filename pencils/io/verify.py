"""Compare the data of a file with the checksums in it; all ranks share the work."""

from __future__ import annotations

import os
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.reduce import allreduce
from pencils.io.checksum import checksum, checksum_box
from pencils.io.chunks import chunk_box, count_chunks, enlarge
from pencils.io.file_access import on_root
from pencils.io.file_info import Access, DatasetInfo, FileInfo, damaged
from pencils.io.options import read_path
from pencils.io.root_io import format_of
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# Bytes that a rank reads at once.
_PIECE_BYTES = 2**24


def verify(
    path: str | os.PathLike[str],
    comm: MPI.Intracomm | None = None,
    *,
    edited: bool = False,
    external: bool = False,
) -> list[str]:
    """Check that a file is whole and its data are what `save` has written. *Collective*.

    Every rank reads its share of the bytes, piece by piece, and allocates no fields.

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
        Names of the fields, values and coordinates whose checksums match; empty for files
        without checksums.

    Raises
    ------
    CheckpointError
        On every rank, if the file is not complete, differs from its list of contents, or data do
        not match their checksum; the text names them. Also if `load` would refuse the file.
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
        access = Access(edited=bool(edited), external=bool(external))
        same(path=given, edited=access.edited, external=access.external)
    file = on_root(
        private,
        "verify",
        lambda: format_of(given).describe_summed(os.path.realpath(given), access),
    )
    totals = allreduce(private, _sum_shares(private, file), np.add)
    pairs = zip(file.datasets, totals, strict=True)
    bad = [dataset.name for dataset, total in pairs if dataset.checksum != total]
    with agreed(private, "verify"):
        if bad and private.rank == 0:
            file.identity.check_unchanged(file.path)
    if bad:
        raise damaged(file.path, bad)
    return [dataset.name for dataset in file.datasets]


def _sum_shares(comm: MPI.Intracomm, file: FileInfo) -> NDArray[np.uint64]:
    """Compute this rank's part of every checksum. *Collective*."""
    path, datasets = file.path, file.datasets
    sums = np.zeros(len(datasets), np.uint64)
    with SharedFile(comm, path) as shared:
        file.check_in_place(comm, "verify")
        with agreed(comm, "verify"):  # one rank may have no memory for it
            for number, dataset in enumerate(datasets):
                if dataset.offset is not None:
                    sums[number] = _sum_bytes(shared, dataset, comm.rank, comm.size)
            shared.complain()
    with agreed(comm, "verify"):
        try:
            for number, dataset in enumerate(datasets):
                if dataset.offset is None and dataset.nbytes:
                    turn = (comm.rank + number) % comm.size
                    sums[number] = _sum_boxes(path, dataset, turn, comm.size)
        finally:  # a replaced file can be the reason of an error, too
            if comm.rank == 0:
                file.identity.check_in_place(path)
    return sums


def _sum_bytes(file: SharedFile, dataset: DatasetInfo, rank: int, size: int) -> int:
    """Compute the checksum of one rank's share of a dataset of plain bytes."""
    itemsize = dataset.dtype.itemsize
    first, last = (prod(dataset.shape) * part // size for part in (rank, rank + 1))
    most = max(1, _PIECE_BYTES // itemsize)
    total = 0
    for at in range(first, last, most):
        piece = np.empty(min(most, last - at), dataset.dtype)
        file.read((dataset.offset or 0) + at * itemsize, piece)
        total += checksum(piece, at)
    return total % 2**64


def _sum_boxes(path: str, dataset: DatasetInfo, turn: int, size: int) -> int:
    """Compute the checksum of share number `turn` of a dataset that is no plain bytes."""
    reader = format_of(path)
    most = max(1, _PIECE_BYTES // dataset.dtype.itemsize)
    extents = enlarge(dataset.chunks or (1,) * len(dataset.shape), dataset.shape, most)
    counts = count_chunks(dataset.shape, extents)
    first, last = (prod(counts) * part // size for part in (turn, turn + 1))
    total = 0
    with reader.opened(path) as file:
        for number in range(first, last):
            index = map(int, np.unravel_index(number, counts))
            box = chunk_box(tuple(index), extents, dataset.shape)
            data = reader.read_box(file, dataset.name, (*box.slices(), ...))
            total += checksum_box(data, box.start, dataset.shape)
    return total % 2**64
