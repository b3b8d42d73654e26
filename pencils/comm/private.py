"""Private communicators: their class, and how all ranks make one, or none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pencils.comm.agree import agreed
from pencils.comm.failure import Guarded
from pencils.comm.mpi import MPI, PerProcess

# Bytes that MPI libraries allocate to make a communicator, and for each of its ranks: MPICH 2 MiB
# for the first one of a node.
_ROOM, _ROOM_OF_RANK = 2**22, 64

private_class = PerProcess(lambda: MPI.Intracomm)


def as_private(comm: MPI.Comm) -> MPI.Intracomm:
    """Return a communicator that MPI has made as a private one; local."""
    assert isinstance(comm, MPI.Intracomm)
    return comm if isinstance(comm, Guarded) else private_class()(comm)


def split(comm: MPI.Intracomm, color: int, place: int | None = None) -> MPI.Intracomm:
    """Communicator of the ranks that pass the same color, by place; default: as in `comm`.

    *Collective*.
    """
    return made_together(comm, lambda: comm.Split(color, comm.rank if place is None else place))


def made_together(comm: MPI.Intracomm, make: Callable[[], MPI.Comm]) -> MPI.Intracomm:
    """Make a private communicator on all ranks of `comm`, or raise on all. *Collective*.

    MPI is called when each rank has the memory for it. A rank on which MPI fails all the same may
    have left the other ranks in its call: MPI can end that no more than an agreement can.
    """
    with agreed(comm, "communicator"):
        np.empty(_ROOM + _ROOM_OF_RANK * comm.size, np.uint8)  # is free again
    with agreed(comm, "communicator"):
        return as_private(make())
