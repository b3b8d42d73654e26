"""Many blocks between one rank and the others, in order, with few of them in memory at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pencils.comm.methods.method import byte_chunks

Array = NDArray[Any]

# Bytes of one block, and how many may be on their way.
BLOCK_BYTES = 16 * 2**20
WINDOW = 4
TAG = 2


def send_stream(comm: MPI.Intracomm, blocks: Iterable[tuple[int, Array]]) -> None:
    """Send ``(dest, block)`` one after the other; blocks that are not contiguous are copied."""
    pending: deque[list[MPI.Request]] = deque()
    for dest, block in blocks:
        packed = np.ascontiguousarray(block)
        pending.append([comm.Isend(part, dest, TAG) for part in byte_chunks(packed)])
        if len(pending) > WINDOW:
            MPI.Request.Waitall(pending.popleft())
    for requests in pending:
        MPI.Request.Waitall(requests)


def recv_stream(comm: MPI.Intracomm, blocks: Iterable[tuple[int, Array]]) -> None:
    """Fill ``(source, block)`` one after the other, in the order in which the source sends."""
    pending: deque[tuple[list[MPI.Request], Array, Array]] = deque()

    def land() -> None:
        requests, block, landing = pending.popleft()
        MPI.Request.Waitall(requests)
        if landing is not block:
            np.copyto(block, landing)

    for source, block in blocks:
        landing = block if block.flags.c_contiguous else np.empty(block.shape, block.dtype)
        requests = [comm.Irecv(part, source, TAG) for part in byte_chunks(landing)]
        pending.append((requests, block, landing))
        if len(pending) > WINDOW:
            land()
    while pending:
        land()


def bcast_array(comm: MPI.Intracomm, array: Array, root: int) -> None:
    """Broadcast a C-contiguous array in pieces that one MPI call can move."""
    for part in byte_chunks(array):
        comm.Bcast(part, root)
