"""Messages between any ranks at any time: sends and receives that are polled, not waited for."""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from time import sleep
from typing import Any

import numpy as np

from pencils.comm.failure import raise_lost, wait_all
from pencils.comm.memory import Array, byte_chunks
from pencils.comm.mpi import MPI
from pencils.comm.topology import topology_of

MOST_AT_ONCE = 64  # requests that one call of MPI tests

_yield = getattr(os, "sched_yield", partial(sleep, 0))


class Receive:
    """A receive that is posted, or has completed; its message fills the contiguous `array`.

    The caller identifies it by `key`. If the sender called `Mailbox.send_failure`, `failed` is
    true, and the array is not filled.
    """

    __slots__ = ("array", "failed", "key", "left", "source", "tag")

    def __init__(self, key: Any, array: Array, source: int, tag: int) -> None:
        self.key = key
        self.array = array
        self.source = source
        self.tag = tag
        self.left = 0  # chunks that have not arrived
        self.failed = False


class Mailbox:
    """Messages of one computation among the ranks of a communicator of the user.

    Messages with the same sender, receiver and tag arrive in the order in which they were sent.
    Receives of no bytes complete without a message. *Collective* the first time.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        topology = topology_of(comm)
        self._comm = topology.in_order("mailbox", topology.rank)
        self.rank = topology.rank
        # Pending requests, and the receive that each belongs to; None: a send.
        self.requests: deque[tuple[MPI.Request, Receive | None]] = deque()
        self._arrived: list[Receive] = []
        self._statuses = [MPI.Status() for _ in range(MOST_AT_ONCE)]
        self.expected = 0  # receives that `poll` has not returned yet

    def send(self, array: Array, dest: int, tag: int) -> None:
        """Send an array, which must not change until `close`."""
        for chunk in byte_chunks(np.ascontiguousarray(array)):
            self.requests.append((self._comm.Isend([chunk, MPI.BYTE], dest, tag), None))

    def send_failure(self, nbytes: int, dest: int, tag: int) -> None:
        """Send empty chunks in place of an array of `nbytes` bytes."""
        for _ in byte_chunks(np.broadcast_to(np.uint8(0), nbytes)):
            request = self._comm.Isend([np.empty(0, np.uint8), MPI.BYTE], dest, tag)
            self.requests.append((request, None))

    def expect(self, receive: Receive) -> None:
        """Post a receive."""
        self.expected += 1
        for chunk in byte_chunks(receive.array):
            receive.left += 1
            request = self._comm.Irecv([chunk, MPI.BYTE], receive.source, receive.tag)
            self.requests.append((request, receive))
        if not receive.left:
            self._arrived.append(receive)

    def poll(self) -> list[Receive]:
        """Let MPI progress, and return the receives that have completed.

        Each call tests some of many requests, and the next call tests others: MPI moves little in
        each call, and the cost of testing all of them each time would grow quadratically.
        """
        arrived, self._arrived = self._arrived, []
        tested = [self.requests.popleft() for _ in range(min(MOST_AT_ONCE, len(self.requests)))]
        try:
            completed = MPI.Request.Testsome([each for each, _ in tested], self._statuses)
        except MPI.Exception as error:
            raise_lost(error)
        for index, status in zip(completed or (), self._statuses, strict=False):
            receive = tested[index][1]
            if receive is not None and self._complete(receive, status):
                arrived.append(receive)
        self.requests.extend(each for each in tested if each[0])
        self.expected -= len(arrived)
        return arrived

    def wait(self) -> list[Receive]:
        """Wait until a receive completes; return all that have completed."""
        # Waitsome would keep the processor busy, which the sending rank may share.
        while not (receives := self.poll()) and self.requests:
            _yield()
        return receives

    def close(self) -> None:
        """Wait for all requests, and drop the arrays that arrive."""
        wait_all([request for request, _ in self.requests])
        self.requests.clear()
        self._arrived.clear()
        self.expected = 0

    @staticmethod
    def _complete(receive: Receive, status: MPI.Status) -> bool:
        """Count a chunk of a receive as arrived; return whether it was the last one."""
        receive.left -= 1
        receive.failed = receive.failed or status.Get_count(MPI.BYTE) == 0
        return not receive.left


def largest_tag() -> int:
    """Return the largest tag of a message that MPI permits."""
    # Some libraries set the attribute on the world only; MPI guarantees 32767.
    return int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)
