"""Messages between any ranks at any time, without anybody waiting for them."""

from __future__ import annotations

import os
from functools import partial
from time import sleep
from typing import Any

import numpy as np
from mpi4py import MPI

from pencils.comm.methods.method import Array, byte_chunks
from pencils.comm.topology import topology_of

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
        self.requests: list[MPI.Request] = []  # all that is under way, in either direction
        self._letters: list[Letter | None] = []  # which each request belongs to; None: a send
        self._arrived: list[Letter] = []
        self._statuses: list[MPI.Status] = []
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
        """Let MPI go on, and hand over what has arrived since the last time."""
        return self._hand_over(MPI.Request.Testsome(self.requests, self._room()))

    def wait(self) -> list[Letter]:
        """Wait until something arrives, and hand it over."""
        # Waitsome would keep the processor from ranks that share it, and that are waited for.
        while not (letters := self.poll()) and self.requests:
            _yield()
        return letters

    def close(self) -> None:
        """Wait for all that is under way, and forget what arrives."""
        MPI.Request.Waitall(self.requests)
        self.requests.clear()
        self._letters.clear()
        self._arrived.clear()
        self.expected = 0

    def _put(self, request: MPI.Request, letter: Letter | None) -> None:
        self.requests.append(request)
        self._letters.append(letter)

    def _room(self) -> list[MPI.Status]:
        while len(self._statuses) < len(self.requests):
            self._statuses.append(MPI.Status())
        return self._statuses

    def _hand_over(self, completed: list[int] | None) -> list[Letter]:
        arrived, self._arrived = self._arrived, []
        for index, status in zip(completed or (), self._statuses, strict=False):
            letter = self._letters[index]
            if letter is not None:
                letter.left -= 1
                letter.refused = letter.refused or status.Get_count(MPI.BYTE) == 0
                if not letter.left:
                    arrived.append(letter)
        for index in sorted(completed or (), reverse=True):
            del self.requests[index], self._letters[index]
        self.expected -= len(arrived)
        return arrived


def largest_tag() -> int:
    """Return the largest tag of a message that MPI permits."""
    # Which not every library tells of other communicators; 32767 is what MPI promises.
    return int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)
