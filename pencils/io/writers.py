"""How the points of fields get into a file whose layout is known.

Each field takes three steps:

1. `Writer.take` moves the values to the ranks that write them. It communicates.
2. `Part.work` computes and writes. It never waits for another rank, so it may run in a thread.
3. `Part.finish` communicates again and returns the checksum of this rank's points.

`write_each`, of `save`, runs all steps for one field before it takes the next field: only one field
at a time exists twice. `pencils.io.saving` takes all fields first, works on them in a thread, and
finishes them in `Saving.wait`.

A file format is a `TempFile` that lays out its file, and a `Writer`. Today there is one:
`pencils.io.hdf5_writer`. For reading see `pencils.io.readers.Format`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.io.checksum import checksum
from pencils.io.file_access import OnProgress, ignore
from pencils.io.file_info import DatasetInfo
from pencils.io.slabs import FileBlocks, Run, pieces

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Part(Protocol):
    """The points of one field that this rank writes."""

    def work(self) -> None:
        """Compute, and write what already has its place in the file. Local.

        Raises
        ------
        OSError
            On this rank only; the caller informs the others.
        """

    def finish(self) -> int:
        """Write the rest; return this rank's part of the checksum, modulo ``2**64``. *Collective*.

        Raises
        ------
        OSError
            On every rank, if writing in this step has failed on any.
        """


class Writer(Protocol):
    """Writes fields to one file."""

    def take(self, field: PencilArray, entry: DatasetInfo) -> Part:
        """Move a field, which has points, to the ranks that write it. *Collective*."""


def write_each(
    comm: MPI.Intracomm,
    writer: Writer,
    fields: Mapping[str, PencilArray],
    entries: Iterable[DatasetInfo],
) -> dict[str, int]:
    """Write one field after the other. *Collective*.

    Returns
    -------
    dict of str to int
        This rank's parts of the checksums, by name.

    Raises
    ------
    OSError
        On every rank, if writing has failed on any.
    """
    sums = {}
    for entry in entries:
        if entry.nbytes:
            part = writer.take(fields[entry.name], entry)
            with agreed(comm, "save"):
                part.work()
            sums[entry.name] = part.finish()
    return sums


def write_run(
    file: SharedFile,
    place: FileBlocks,
    run: Run,
    *,
    first: int = 0,
    summed: bool = True,
    moved: OnProgress = ignore,
) -> int:
    """Write a run of a field that has its place in the file, piece by piece. Local.

    Returns
    -------
    int
        Checksum of the run, as a part of an array in which the field begins at element `first`;
        zero with ``summed=False``.
    """
    total = 0
    start, block = run
    for offset, piece in pieces((start, np.ascontiguousarray(block)), place.nbytes):
        file.write(place.find(offset), piece)
        if summed:
            total += checksum(piece, first + offset // piece.dtype.itemsize)
        moved(piece.nbytes)
    return total % 2**64
