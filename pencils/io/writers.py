"""Ways to get the bytes of fields into a file that has been laid out.

A `Writer` takes one field after the other. What it then has to do for a field is a `Part`, in
three stages: `Writer.take` communicates, and brings the values to the ranks that write them;
`Part.work` computes, and may run in a thread; `Part.finish` communicates again. To save at once is
to go through all stages with one field before the next is taken, so that only one field at a time
exists twice. To save in the background is to take all fields, to work on them in a thread while
the program goes on, and to finish them at the end: then `take` has to copy (see
`pencils.io.saving`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.io.dataset_info import DatasetInfo
from pencils.io.progress import Told

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Part(Protocol):
    """What is to be done for one field that a writer has taken."""

    def work(self) -> None:
        """Do what needs no other rank: compute, write what is known to have its place.

        Never waits for another rank, so that it may fail on one alone: it raises what went wrong
        here, and the caller tells the others.
        """

    def finish(self) -> int:
        """Do the rest; return this rank's part of the checksum, modulo ``2**64``. *Collective*.

        Raises
        ------
        OSError
            On every rank, if writing in this stage has failed on any.
        """


class Writer(Protocol):
    """One way to write fields."""

    def take(self, field: PencilArray, entry: DatasetInfo) -> Part:
        """Bring the values to the ranks that write them; the field may have no empty extent."""


class OpenWriter(Protocol):
    """Opens a file that is laid out for one way of writing."""

    def __call__(
        self, comm: MPI.Intracomm, path: str, *, summed: bool, moved: Told
    ) -> AbstractContextManager[Writer]:
        """Give a writer to a ``with`` block, after which the bytes are on the disk. *Collective*.

        Parameters
        ----------
        comm : mpi4py.MPI.Intracomm
            Private communicator.
        path : str
            The file.
        summed : bool
            Whether to compute checksums.
        moved : callable
            Told how many bytes this rank has written, now and then.

        Raises
        ------
        OSError
            On every rank, if writing has failed on any.
        """


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
    """
    sums = {}
    for entry in entries:
        if entry.nbytes:
            part = writer.take(fields[entry.name], entry)
            with agreed(comm, "save"):
                part.work()
            sums[entry.name] = part.finish()
    return sums
