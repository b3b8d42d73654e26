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

# Bytes of one block, and how many may be on their way.
BLOCK_BYTES = 16 * 2**20
WINDOW = 4
TAG = 2


class Room:
    """Memory for blocks on their way, allocated before the first one leaves.

    Parameters
    ----------
    nbytes : int
        Size of the largest block.
    blocks : int
        How many there are, or may be.
    """

    def __init__(self, nbytes: int, blocks: int) -> None:
        # One more than are on their way: the next one is packed before the oldest has arrived.
        self._places = [np.empty(nbytes, np.uint8) for _ in range(min(blocks, WINDOW + 1))]
        self._next = 0

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array in the place that has been in use for longest."""
        place = self._places[self._next]
        self._next = (self._next + 1) % len(self._places)
        return place[: dtype.itemsize * prod(shape)].view(dtype).reshape(shape)


def send_stream(
    comm: MPI.Intracomm, blocks: Iterable[tuple[int, Array]], room: Room | None = None
) -> None:
    """Send ``(dest, block)`` one after the other; blocks that are not contiguous are copied.

    Where to, if not into new memory, says `room`.
    """
    pending: deque[tuple[list[MPI.Request], Array]] = deque()
    for dest, block in blocks:
        packed = block
        if not block.flags.c_contiguous:
            packed = _take(room, block)
            packed[...] = block
        pending.append(([comm.Isend(part, dest, TAG) for part in byte_chunks(packed)], packed))
        if len(pending) > WINDOW:
            MPI.Request.Waitall(pending.popleft()[0])
    for requests, _ in pending:
        MPI.Request.Waitall(requests)


def recv_stream(
    comm: MPI.Intracomm, blocks: Iterable[tuple[int, Array]], room: Room | None = None
) -> None:
    """Fill ``(source, block)`` one after the other, in the order in which the source sends.

    Blocks that are not contiguous are received in `room`, or in new memory.
    """
    pending: deque[tuple[list[MPI.Request], Array, Array]] = deque()

    def land() -> None:
        requests, block, landing = pending.popleft()
        MPI.Request.Waitall(requests)
        if landing is not block:
            np.copyto(block, landing)

    for source, block in blocks:
        landing = block if block.flags.c_contiguous else _take(room, block)
        requests = [comm.Irecv(part, source, TAG) for part in byte_chunks(landing)]
        pending.append((requests, block, landing))
        if len(pending) > WINDOW:
            land()
    while pending:
        land()


def _take(room: Room | None, block: Array) -> Array:
    if room is None:
        return np.empty(block.shape, block.dtype)
    return room.take(block.shape, block.dtype)


def bcast_array(comm: MPI.Intracomm, array: Array, root: int) -> None:
    """Broadcast a C-contiguous array in pieces that one MPI call can move."""
    for part in byte_chunks(array):
        comm.Bcast(part, root)
