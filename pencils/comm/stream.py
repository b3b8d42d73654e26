"""Many blocks between one rank and the others, in order, with few of them in memory at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.memory import byte_chunks
from pencils.comm.mpi import MPI

Array = NDArray[Any]

# Bytes of one block, and the number of blocks that may be on their way.
BLOCK_BYTES = 16 * 2**20
WINDOW = 4
TAG = 2


class Room:
    """Memory for at most `blocks` blocks of `nbytes` on their way, allocated before the first."""

    def __init__(self, nbytes: int, blocks: int) -> None:
        # One more than are on their way: the next one is packed before the oldest has arrived.
        self._places = [np.empty(nbytes, np.uint8) for _ in range(min(blocks, WINDOW + 1))]
        self._next = 0

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array in the memory that was taken first."""
        place = self._places[self._next]
        self._next = (self._next + 1) % len(self._places)
        return place[: dtype.itemsize * prod(shape)].view(dtype).reshape(shape)


def send_stream(
    comm: MPI.Intracomm, blocks: Iterable[tuple[int, Array]], room: Room | None = None
) -> None:
    """Send ``(dest, block)`` one after the other.

    Blocks that are not contiguous are copied to `room`, or to new memory.
    """
    pending: deque[list[MPI.Request]] = deque()
    for dest, block in blocks:
        packed = _contiguous(block, room)
        if packed is not block:
            packed[...] = block
        # Requests hold the memory that they send.
        pending.append([comm.Isend(part, dest, TAG) for part in byte_chunks(packed)])
        if len(pending) > WINDOW:
            MPI.Request.Waitall(pending.popleft())
    for requests in pending:
        MPI.Request.Waitall(requests)


def recv_stream(
    comm: MPI.Intracomm, blocks: Iterable[tuple[int, Array]], room: Room | None = None
) -> None:
    """Fill ``(source, block)`` one after the other, in the order in which the source sends.

    Blocks that are not contiguous are received in `room`, or in new memory.
    """
    pending: deque[tuple[list[MPI.Request], Array, Array]] = deque()

    def complete() -> None:
        requests, block, received = pending.popleft()
        MPI.Request.Waitall(requests)
        if received is not block:
            np.copyto(block, received)

    for source, block in blocks:
        received = _contiguous(block, room)
        requests = [comm.Irecv(part, source, TAG) for part in byte_chunks(received)]
        pending.append((requests, block, received))
        if len(pending) > WINDOW:
            complete()
    while pending:
        complete()


def _contiguous(block: Array, room: Room | None) -> Array:
    """Return the block itself if it is contiguous, else memory of its shape."""
    if block.flags.c_contiguous:
        return block
    if room is None:
        return np.empty(block.shape, block.dtype)
    return room.take(block.shape, block.dtype)


def bcast_array(comm: MPI.Intracomm, array: Array, root: int) -> None:
    """Broadcast a C-contiguous array in parts that one MPI call can move."""
    for part in byte_chunks(array):
        comm.Bcast(part, root)
