"""Messages that are polled, not waited for, and how ranks learn which others request data."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm import memory, progress
from pencils.comm.failure import raise_lost, wait_all
from pencils.comm.memory import Array, Bytes, byte_chunks
from pencils.comm.mpi import MPI
from pencils.comm.recording import timed
from pencils.comm.topology import topology_of

Ints = NDArray[np.int64]

MOST_AT_ONCE = 64  # messages that one call of MPI tests

_yield = getattr(os, "sched_yield", partial(sleep, 0))


@dataclass(slots=True, eq=False)
class Receive:
    """A receive that is posted, or has completed; its message fills the contiguous `array`.

    The caller identifies it by `key`. If the sender called `Mailbox.send_failure`, `failed` is
    true, and the array is not filled.
    """

    key: Any
    array: Array
    source: int
    tag: int
    failed: bool = False


class Mailbox:
    """Messages of one computation among the ranks of a communicator of the user.

    Messages with the same sender, receiver and tag arrive in the order in which they were sent.
    Receives of no bytes complete without a message. *Collective* the first time.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        topology = topology_of(comm)
        self._comm = topology.in_order("mailbox", topology.rank)
        self._on_node = topology.on_node
        self.rank = topology.rank
        # Pending requests of each message, and the receive that they belong to; None: a send.
        self.requests: deque[tuple[list[MPI.Request], Receive | None]] = deque()
        self._arrived: list[Receive] = []
        self._statuses = [MPI.Status() for _ in range(MOST_AT_ONCE)]
        self.expected = 0  # receives that `poll` has not returned yet
        progress.begin(self._comm)

    def send(self, array: Array, dest: int, tag: int) -> None:
        """Send an array, which must not change until `close`."""
        self._send(self._pieces(np.ascontiguousarray(array), dest), dest, tag)

    def send_failure(self, nbytes: int, dest: int, tag: int) -> None:
        """Send empty pieces in place of an array of `nbytes` bytes."""
        pieces = self._pieces(np.broadcast_to(np.uint8(0), nbytes), dest)
        self._send([piece[:0] for piece in pieces], dest, tag)

    def _send(self, pieces: Sequence[Bytes], dest: int, tag: int) -> None:
        requests = [self._comm.Isend([piece, MPI.BYTE], dest, tag) for piece in pieces]
        if requests:
            self.requests.append((requests, None))

    def expect(self, receive: Receive) -> None:
        """Post a receive."""
        self.expected += 1
        requests = [
            self._comm.Irecv([piece, MPI.BYTE], receive.source, receive.tag)
            for piece in self._pieces(receive.array, receive.source)
        ]
        if requests:
            self.requests.append((requests, receive))
        else:
            self._arrived.append(receive)

    def poll(self) -> list[Receive]:
        """Let MPI progress, and return the receives that have completed.

        Each call tests others of many messages: to test all of them each time would cost their
        square. Of the pieces of a message, which arrive in order, the last one is tested first.
        """
        arrived, self._arrived = self._arrived, []
        tested = [self.requests.popleft() for _ in range(min(MOST_AT_ONCE, len(self.requests)))]
        try:
            completed = MPI.Request.Testsome([each[-1] for each, _ in tested], self._statuses)
            for index, status in zip(completed or (), self._statuses, strict=False):
                requests, receive = tested[index]
                while True:  # drop the last request, and those before it that are complete, too
                    requests.pop()
                    if receive is not None and status.Get_count(MPI.BYTE) == 0:
                        receive.failed = True
                    if not requests or not requests[-1].Test(status):
                        break
                if receive is not None and not requests:
                    arrived.append(receive)
        except MPI.Exception as error:
            raise_lost(error)
        self.requests.extend(each for each in tested if each[0])
        self.expected -= len(arrived)
        return arrived

    def wait(self) -> list[Receive]:
        """Wait until a receive completes; return all that have completed."""
        call = object()  # noqa: F841 - `pencils.tools.run` sees whether it is still the same call
        # Waitsome would keep the processor busy, which the sending rank may share.
        while not (receives := self.poll()) and self.requests:
            _yield()
        return receives

    def close(self) -> None:
        """Wait for all requests, and drop the arrays that arrive."""
        progress.end(self._comm)
        wait_all([request for requests, _ in self.requests for request in requests])
        self.requests.clear()
        self._arrived.clear()
        self.expected = 0

    def _pieces(self, array: Array, peer: int) -> list[Bytes]:
        """Divide an array as its sender and its receiver both do."""
        return byte_chunks(array, None if peer in self._on_node else memory.EAGER)


def largest_tag() -> int:
    """Return the largest tag of a message that MPI permits."""
    # Some libraries set the attribute on the world only; MPI guarantees 32767.
    return int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)


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
    if comm.size > MOST_DENSE:
        return _by_consensus(comm, peers, counts)
    mine = np.zeros(comm.size, np.int64)
    mine[peers] = counts
    theirs = np.empty_like(mine)
    timed("wait", comm.Alltoall, mine, theirs)
    found = np.flatnonzero(theirs)
    return found, theirs[found]


def _by_consensus(comm: MPI.Intracomm, peers: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Send to the peers only, and receive until all messages of all ranks have been received.

    A synchronous send is complete when it was received. A rank whose sends are complete enters a
    barrier, and receives until all ranks have entered it (Hoefler, Siebert and Lumsdaine, 2010).
    """
    own = np.array(counts, np.int64).reshape(-1, 1)
    sends = [comm.Issend(one, peer, TAG) for one, peer in zip(own, peers.tolist(), strict=True)]
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
    ranks, amounts = zip(*sorted(found.items()), strict=True) if found else ((), ())
    return np.array(ranks, np.int64), np.array(amounts, np.int64)
