"""Memory that the ranks of a node share, cut from a few large windows.

MPI libraries run out of windows long before a program runs out of arrays, so blocks come from a
pool: allocating one is collective over the node, giving it back is local and happens when the last
NumPy view of it is gone. Windows are freed with the communicator.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# The first window holds this many bytes per rank; every further one holds at least twice as many.
FIRST_WINDOW = 2**20
# Blocks start at multiples of a cache line: whole lines can be written without reading them first.
LINE = 64
PAGE = 4096
SHARED_FOLDER = "/dev/shm"  # noqa: S108 - where MPI libraries put shared memory on Linux


def round_up(nbytes: int) -> int:
    """Return the next multiple of a cache line."""
    return -(-nbytes // LINE) * LINE


class Place(NamedTuple):
    """Where a rank's memory lies: `offset` bytes into its segment of a window."""

    window: int
    offset: int


class SharedPool:
    """Shared memory of one node.

    Parameters
    ----------
    node : mpi4py.MPI.Intracomm
        Private communicator of the ranks that share memory.
    pools : int, optional
        Pools of other ranks of the node, this one included, that may ask for memory at once.
    """

    def __init__(self, node: MPI.Intracomm, pools: int = 1) -> None:
        self._node = node
        self._pools = pools
        self._windows: list[_Window] = []
        self._peers: dict[int, tuple[memoryview, ...]] = {}

    def allocate(self, nbytes: int) -> Bytes | None:
        """Allocate `nbytes`, which may differ between ranks. *Collective* over the node.

        Returns
        -------
        numpy.ndarray or None
            The bytes of this rank; None on every rank, with a warning, if there is no room.
        """
        size = max(LINE, round_up(nbytes))
        fits = np.array([window.room_for(size) for window in self._windows], dtype=bool)
        self._node.Allreduce(MPI.IN_PLACE, fits, op=MPI.LAND)
        number = int(fits.argmax()) if fits.any() else self._add_window(size)
        if number is None:
            return None
        window = self._windows[number]
        here = np.array([window.take(size), nbytes], dtype=np.int64)
        places = np.empty((self._node.size, 2), dtype=np.int64)
        self._node.Allgather(here, places)
        peers = tuple(
            window.segments[rank][start : start + length]
            for rank, (start, length) in enumerate(places.tolist())
        )
        # NumPy views of views keep this array alive, so its end is the end of the block.
        own = np.frombuffer(peers[self._node.rank], np.uint8)
        address = _address(own)
        self._peers[address] = peers

        def release(start: int) -> None:
            del self._peers[address]
            window.returned.append((start, size))

        weakref.finalize(own, release, int(here[0])).atexit = False
        return own

    def peers(self, array: NDArray[Any]) -> tuple[Bytes, ...] | None:
        """Return the blocks that were allocated with the one that `array` begins.

        Returns
        -------
        tuple of numpy.ndarray or None
            Bytes of every rank of the node; None if the array does not begin a shared block.
        """
        peers = self._peers.get(_address(array))
        return None if peers is None else tuple(np.frombuffer(p, np.uint8) for p in peers)

    def place(self, array: NDArray[Any]) -> Place | None:
        """Find the first element of an array that lies in shared memory of this rank.

        Returns
        -------
        Place or None
            The same window has the same number on all ranks; None if other ranks cannot read all
            of the array.
        """
        low, high = byte_bounds(array)
        for number, window in enumerate(self._windows):
            start = window.addresses[self._node.rank]
            if start <= low and high <= window.end:
                return Place(number, _address(array) - start)
        return None

    def memory(self, rank: int, window: int) -> memoryview:
        """Memory of a rank of the node in window number `window`."""
        return self._windows[window].segments[rank]

    @property
    def syncs(self) -> list[Callable[[], None]]:
        """For each window, what orders the loads and stores before and after a barrier."""
        return [window.sync for window in self._windows]

    @property
    def windows(self) -> int:
        """Number of windows."""
        return len(self._windows)

    def free(self) -> None:
        """Free the windows. *Collective*; one that still holds an array anywhere stays."""
        idle = np.array([window.idle for window in self._windows], dtype=bool)
        self._node.Allreduce(MPI.IN_PLACE, idle, op=MPI.LAND)
        for window, unused in zip(self._windows, idle, strict=True):
            if unused:
                window.free()
        self._windows.clear()

    def _add_window(self, size: int) -> int | None:
        largest = self._node.allreduce(size, op=MPI.MAX)
        capacity = max(largest, FIRST_WINDOW << len(self._windows))
        wanted = capacity * self._node.size * self._pools
        if not self._node.bcast(_has_room(wanted) if self._node.rank == 0 else None):
            if self._node.rank == 0:
                msg = f"no room for {wanted} bytes in {SHARED_FOLDER}; using private memory instead"
                warnings.warn(msg, RuntimeWarning, stacklevel=4)
            return None
        self._windows.append(_Window(self._node, capacity))
        return len(self._windows) - 1


class _Window:
    """One MPI window, of which every rank manages its own segment."""

    def __init__(self, node: MPI.Intracomm, capacity: int) -> None:
        self._win = MPI.Win.Allocate_shared(capacity + LINE, 1, comm=node)
        self._win.Lock_all(MPI.MODE_NOCHECK)  # direct loads and stores need an access epoch
        self.segments = [_segment(self._win, rank) for rank in range(node.size)]
        # Memory that nobody has touched does not count as taken; the next check must see it.
        np.frombuffer(self.segments[node.rank], np.uint8)[::PAGE] = 0
        self.addresses = [_address(np.frombuffer(segment, np.uint8)) for segment in self.segments]
        self.sync = self._win.Sync
        first = -self.addresses[node.rank] % LINE
        self.end = self.addresses[node.rank] + first + capacity
        self._whole = [(first, capacity)]
        self._free = list(self._whole)
        # A block may come back in the midst of anything: whenever Python collects garbage.
        self.returned: deque[tuple[int, int]] = deque()

    @property
    def idle(self) -> bool:
        self._merge_returned()
        return self._free == self._whole

    def room_for(self, size: int) -> bool:
        self._merge_returned()
        return any(length >= size for _, length in self._free)

    def take(self, size: int) -> int:
        """Cut `size` bytes from the first gap that holds them; returns where they start."""
        number = next(i for i, (_, length) in enumerate(self._free) if length >= size)
        start, length = self._free.pop(number)
        if length > size:
            self._free.insert(number, (start + size, length - size))
        return start

    def _merge_returned(self) -> None:
        """Make gaps of the blocks that came back, and one gap of neighbouring ones."""
        while self.returned:
            self._free.append(self.returned.popleft())
        gaps = sorted(self._free)
        merged = gaps[:1]
        for begin, length in gaps[1:]:
            last_begin, last_length = merged[-1]
            if last_begin + last_length == begin:
                merged[-1] = (last_begin, last_length + length)
            else:
                merged.append((begin, length))
        self._free = merged

    def free(self) -> None:
        self.segments.clear()
        self._win.Unlock_all()
        self._win.Free()


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _segment(win: MPI.Win, rank: int) -> memoryview:
    memory: Any = win.Shared_query(rank)[0]
    return memoryview(memory).cast("B")


def _has_room(nbytes: int) -> bool:
    """Whether shared memory of this size can be touched without a bus error."""
    try:
        room = os.statvfs(SHARED_FOLDER)
    except OSError:  # not Linux: MPI keeps shared memory elsewhere, and says so if it cannot
        return True
    return nbytes <= room.f_bavail * room.f_frsize
