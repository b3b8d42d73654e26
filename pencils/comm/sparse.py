"""Sparse data exchange: learn which ranks request data from this one, and how much."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pencils.comm.mpi import MPI

Ints = NDArray[np.int64]

# Up to this number of ranks, a table with an entry for each rank takes less time than messages.
MOST_DENSE = 1024
TAG = 3


def sparse_exchange(comm: MPI.Intracomm, peers: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Learn which ranks request data from this one, and how much. *Collective*.

    `peers` are the ranks from which this one requests data, each once; it may be among them.
    `counts`, positive, are the amounts. Returns the ranks that request data from this one, in
    rising order, and the amounts.

    Examples
    --------
    >>> sparse_exchange(MPI.COMM_SELF, np.array([0]), np.array([3]))
    (array([0]), array([3]))
    """
    find = _by_table if comm.size <= MOST_DENSE else _by_consensus
    return find(comm, peers, counts)


def _by_table(comm: MPI.Intracomm, peers: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Exchange a count with every rank, mostly 0."""
    mine = np.zeros(comm.size, np.int64)
    mine[peers] = counts
    theirs = np.empty_like(mine)
    comm.Alltoall(mine, theirs)
    found = np.flatnonzero(theirs)
    return found, theirs[found]


def _by_consensus(comm: MPI.Intracomm, peers: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Send to the peers only, and receive until all messages of all ranks have been received.

    A synchronous send is complete when it was received. A rank whose sends are complete enters a
    barrier, and receives until all ranks have entered it (Hoefler, Siebert and Lumsdaine, 2010).
    """
    own = np.array(counts, np.int64)
    sends = [
        comm.Issend(own[number : number + 1], peer, TAG)
        for number, peer in enumerate(peers.tolist())
    ]
    status, count = MPI.Status(), np.empty(1, np.int64)
    found: dict[int, int] = {}
    barrier: MPI.Request | None = None
    while barrier is None or not barrier.Test():
        if comm.Iprobe(MPI.ANY_SOURCE, TAG, status):
            comm.Recv(count, status.Get_source(), TAG)
            found[status.Get_source()] = int(count[0])
        elif barrier is None and MPI.Request.Testall(sends):
            barrier = comm.Ibarrier()
    # No rank may send again while a slow one still receives messages of this call.
    comm.Barrier()
    ranks = sorted(found)
    return np.array(ranks, np.int64), np.array([found[rank] for rank in ranks], np.int64)
