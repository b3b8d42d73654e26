"""Messages between any ranks at any time, without anybody waiting for them."""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from time import sleep
from typing import Any

import numpy as np

from pencils.comm.memory import Array, byte_chunks
from pencils.comm.mpi import MPI
from pencils.comm.topology import topology_of

MOST_AT_ONCE = 64  # messages that are looked at by one call of MPI

_yield = getattr(os, "sched_yield", partial(sleep, 0))


class Letter:
    """An array that is to be filled by a message.

    Parameters
    ----------
    key : object
        By which the receiver knows it.
    array : numpy.ndarray
        Contiguous.
    source : int
        Rank that sends.
    tag : int
        Of the message.

    Attributes
    ----------
    refused : bool
        Whether the sender had nothing to send; the array is not filled then.
    """

    __slots__ = ("array", "key", "left", "refused", "source", "tag")

    def __init__(self, key: Any, array: Array, source: int, tag: int) -> None:
        self.key = key
        self.array = array
        self.source = source
        self.tag = tag
        self.left = 0  # pieces that have not arrived
        self.refused = False


class Mailbox:
    """Messages of one computation on a communicator of its own.

    Of messages with the same sender, receiver and tag, the first one sent is the first one to
    arrive. Messages of no bytes arrive without being sent.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The user's communicator. *Collective* the first time.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        topology = topology_of(comm)
        self._comm = topology.in_order("mailbox", topology.rank)
        self.rank = topology.rank
        # All that is under way, in either direction, and to which letter it belongs; None: a send.
        self.requests: deque[tuple[MPI.Request, Letter | None]] = deque()
        self._arrived: list[Letter] = []
        self._statuses = [MPI.Status() for _ in range(MOST_AT_ONCE)]
        self.expected = 0  # letters that were not handed over yet

    def send(self, array: Array, dest: int, tag: int) -> None:
        """Send an array, which must not change until `close`."""
        for chunk in byte_chunks(np.ascontiguousarray(array)):
            self._put(self._comm.Isend([chunk, MPI.BYTE], dest, tag), None)

    def refuse(self, nbytes: int, dest: int, tag: int) -> None:
        """Tell who waits for so many bytes that they do not come."""
        for _ in byte_chunks(np.broadcast_to(np.uint8(0), nbytes)):
            self._put(self._comm.Isend([np.empty(0, np.uint8), MPI.BYTE], dest, tag), None)

    def expect(self, letter: Letter) -> None:
        """Receive what `send` sends."""
        self.expected += 1
        for chunk in byte_chunks(letter.array):
            letter.left += 1
            self._put(self._comm.Irecv([chunk, MPI.BYTE], letter.source, letter.tag), letter)
        if not letter.left:
            self._arrived.append(letter)

    def poll(self) -> list[Letter]:
        """Let MPI go on, and hand over what has arrived.

        Where much is under way, one call looks at some of it, the next one at others: MPI moves
        little in each call, and whoever looks at everything each time pays for the square of it.
        """
        arrived, self._arrived = self._arrived, []
        looked_at = [self.requests.popleft() for _ in range(min(MOST_AT_ONCE, len(self.requests)))]
        completed = MPI.Request.Testsome([request for request, _ in looked_at], self._statuses)
        for index, status in zip(completed or (), self._statuses, strict=False):
            letter = looked_at[index][1]
            if letter is not None and self._complete(letter, status):
                arrived.append(letter)
        self.requests.extend(each for each in looked_at if each[0])
        self.expected -= len(arrived)
        return arrived

    def wait(self) -> list[Letter]:
        """Wait until something arrives, and hand it over."""
        # Waitsome would keep the processor from ranks that share it, and that are waited for.
        while not (letters := self.poll()) and self.requests:
            _yield()
        return letters

    def close(self) -> None:
        """Wait for all that is under way, and forget what arrives."""
        MPI.Request.Waitall([request for request, _ in self.requests])
        self.requests.clear()
        self._arrived.clear()
        self.expected = 0

    def _put(self, request: MPI.Request, letter: Letter | None) -> None:
        self.requests.append((request, letter))

    @staticmethod
    def _complete(letter: Letter, status: MPI.Status) -> bool:
        """Note that a piece of a letter has arrived; tell whether it was the last one."""
        letter.left -= 1
        letter.refused = letter.refused or status.Get_count(MPI.BYTE) == 0
        return not letter.left


def largest_tag() -> int:
    """Return the largest tag of a message that MPI permits."""
    # Which not every library tells of other communicators; 32767 is what MPI promises.
    return int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)
