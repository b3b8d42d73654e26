"""Memory that the ranks of a node share, cut from a few large windows.

A window is a file in memory that all ranks have mapped, and that has no name any more: nothing is
left of it when the last process is gone, whatever ends it. Making one takes long, and mappings are
scarce, so blocks come from a pool: allocating one is collective over the node, giving it back is
local and happens when the last NumPy view of it is gone. A window that the pool has let go lives as
long as a block of it. Windows of MPI would do neither: freeing one is collective, and those of a
job that is killed stay in memory.
"""

from __future__ import annotations

import os
import tempfile
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.memory import LINE, Bytes, address, byte_range, round_up
from pencils.comm.mpi import MPI

# The first window holds this many bytes per rank; every further one holds at least twice as many.
FIRST_WINDOW = 2**20
PAGE = 4096
SHARED_FOLDER = "/dev/shm"  # noqa: S108 - where Linux keeps files in memory

T = TypeVar("T")


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
        key = address(own)
        self._peers[key] = peers

        def release(start: int) -> None:
            del self._peers[key]
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
        peers = self._peers.get(address(array))
        return None if peers is None else tuple(np.frombuffer(p, np.uint8) for p in peers)

    def place(self, array: NDArray[Any]) -> Place | None:
        """Find the first element of an array that lies in shared memory of this rank.

        Returns
        -------
        Place or None
            The same window has the same number on all ranks; None if other ranks cannot read all
            of the array.
        """
        low, high = byte_range(array)
        for number, window in enumerate(self._windows):
            if window.start <= low and high <= window.end:
                return Place(number, address(array) - window.start)
        return None

    def memory(self, rank: int, window: int) -> memoryview:
        """Memory of a rank of the node in window number `window`."""
        return self._windows[window].segments[rank]

    @property
    def windows(self) -> int:
        """Number of windows."""
        return len(self._windows)

    def free(self) -> None:
        """Let go of the windows; memory in which arrays lie goes with the last of them."""
        self._windows.clear()

    def _add_window(self, size: int) -> int | None:
        largest = self._node.allreduce(size, op=MPI.MAX)
        capacity = max(largest, FIRST_WINDOW << len(self._windows))
        wanted = capacity * self._node.size * self._pools
        room = _attempt(lambda: _has_room(wanted)) if self._node.rank == 0 else None
        room = self._node.bcast(room)
        memory = _map_together(self._node, capacity) if room else None
        if memory is None:
            if self._node.rank == 0:
                msg = f"no room for {wanted} bytes in {_folder()}; using private memory instead"
                warnings.warn(msg, RuntimeWarning, stacklevel=4)
            return None
        self._windows.append(_Window(memory, self._node, capacity))
        return len(self._windows) - 1


class _Window:
    """Memory of a node, of which every rank manages its own segment."""

    def __init__(self, memory: mmap, node: MPI.Intracomm, capacity: int) -> None:
        step = _segment(capacity)
        whole = memoryview(memory)
        self.segments = [whole[rank * step : (rank + 1) * step] for rank in range(node.size)]
        self.start = address(np.frombuffer(self.segments[node.rank], np.uint8))
        self.end = self.start + capacity
        self._whole = [(0, capacity)]
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


def _segment(capacity: int) -> int:
    """Bytes between the segments of two ranks, each of which begins a page."""
    return -(-capacity // PAGE) * PAGE


def _folder() -> str:
    """Where files in memory are; systems without such files keep those of the disk in memory."""
    return SHARED_FOLDER if Path(SHARED_FOLDER).is_dir() else tempfile.gettempdir()


def _has_room(nbytes: int) -> bool:
    """Whether there is room at all; trying would take it from others until it is short."""
    room = os.statvfs(_folder())
    return nbytes <= room.f_bavail * room.f_frsize


def _map_together(node: MPI.Intracomm, capacity: int) -> mmap | None:
    """Map a segment of so many bytes for each rank. *Collective*; None on every rank if one cannot.

    The file has lost its name before it takes any memory: a job that is killed leaves none.
    """
    step = _segment(capacity)
    path = node.bcast(_attempt(lambda: _make_file(step * node.size)) if node.rank == 0 else None)
    file = None if path is None else _attempt(lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))
    try:
        opened = node.allreduce(file is not None, op=MPI.LAND)
    finally:
        if path is not None and node.rank == 0:
            Path(path).unlink()
    memory = None
    if file is not None:
        if opened:
            memory = _attempt(lambda: _map(file, step * node.rank, capacity))
        os.close(file)
    return memory if node.allreduce(memory is not None, op=MPI.LAND) else None


def _attempt(call: Callable[[], T]) -> T | None:
    """Return what a call returns; None where there is no room, no permission or too little left."""
    try:
        return call()
    except (OSError, OverflowError, ValueError, MemoryError):
        return None


def _make_file(nbytes: int) -> str:
    """Make a file of this size that takes no room yet."""
    file, path = tempfile.mkstemp(prefix="pencils-", dir=_folder())
    try:
        os.truncate(file, nbytes)
    except BaseException:
        Path(path).unlink()
        raise
    finally:
        os.close(file)
    return path


def _map(file: int, start: int, nbytes: int) -> mmap:
    """Map a file; room for the bytes of this rank is taken now, near its processor."""
    if hasattr(os, "posix_fallocate"):  # else a bus error comes of what there is no room for
        os.posix_fallocate(file, start, nbytes)
    return mmap(file, 0)
