"""Memory that the ranks of a node share, cut from a few large windows; and buffers of plans.

A window is a file in memory without a name, so that nothing is left of it after the last process,
even if a job is killed: windows of MPI remain then, and to free one is collective.
"""

from __future__ import annotations

import os
import tempfile
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from mmap import mmap
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from pencils.comm.memory import LINE, Bytes, address, aligned_empty, fence, round_up
from pencils.comm.mpi import MPI
from pencils.comm.recording import timed

# The first window holds this many bytes per rank, but no more than this for all ranks of the node
# unless they need more; every further one holds at least twice as many.
FIRST_WINDOW = 2**20 + 2**18
MOST_AT_FIRST = 2**28
PAGE = 4096
# Blocks that are allocated at once by `SharedPool.slot`.
SLOTS = 16
SHARED_FOLDER = "/dev/shm"  # noqa: S108 - where Linux keeps files in memory

T = TypeVar("T")


class SharedPool:
    """Shared memory of the ranks of one node, whose private communicator is `node`.

    To allocate a block is collective; it is released locally, with the last NumPy view of it.
    `pools` pools of ranks of the node, this one included, may ask for memory at once.
    """

    def __init__(self, node: MPI.Intracomm, pools: int = 1) -> None:
        self._node = node
        self._pools = pools
        self._windows: list[_SharedWindow] = []
        # By kind of slot: a block, the common memory, and how many slots of it are taken.
        self._slots: dict[object, tuple[Bytes, Bytes, int]] = {}

    def allocate(self, nbytes: int) -> Bytes | None:
        """Allocate `nbytes`, which may differ between ranks. *Collective* over the node.

        None on every rank, with a warning, if there is no room.
        """
        size = max(LINE, round_up(nbytes))
        fits = np.array([window.has_gap(size) for window in self._windows], dtype=bool)
        if self._windows:
            timed("wait", self._node.Allreduce, MPI.IN_PLACE, fits, MPI.LAND)
        number = int(fits.argmax()) if fits.any() else self._add_window(size)
        if number is None:
            return None
        window = self._windows[number]
        start = window.take(size)
        # NumPy views of views keep this array alive: it is finalized after the last of them.
        own = np.frombuffer(window.segment(self._node.rank)[start : start + nbytes], np.uint8)
        weakref.finalize(own, window.released.append, (start, size)).atexit = False
        return own

    def allocate_each(self, nbytes: int) -> NodeBlocks | None:
        """Allocate `nbytes` of this rank, and find those of all, in order. *Collective*.

        Each rank keeps its block as long as others use it. None on every rank without room.
        """
        own = self.allocate(nbytes)
        if own is None:
            return None
        places = np.empty((self._node.size, 3), np.int64)
        mine = np.array([*(self.find(own) or ()), nbytes], np.int64)
        timed("wait", self._node.Allgather, mine, places)
        return NodeBlocks(self, places.tolist(), {self._node.rank: own})

    def allocate_common(self, nbytes: int) -> tuple[Bytes, Bytes] | None:
        """Allocate `nbytes` that all ranks view, in the memory of the first one. *Collective*.

        Returns a block of this rank, which all ranks have to keep as long as they use the common
        memory, and that. None on every rank if there is no room.
        """
        blocks = self.allocate_each(nbytes if self._node.rank == 0 else 0)
        return None if blocks is None else (blocks[self._node.rank], blocks[0])

    def slot(self, kind: object, nbytes: int) -> tuple[tuple[Bytes, Bytes] | None, bool]:
        """Return what `allocate_common` does, and whether it was called. *Collective*.

        It is called every `SLOTS` times that ranks ask for this kind, of one size; else all is
        known here. Pools whose ranks ask alike call it alike, even if sizes differ.
        """
        step = round_up(nbytes)
        page = self._slots.pop(kind, None)
        made = page is None
        if page is None:
            new = self.allocate_common(step * SLOTS)
            if new is None:
                return None, made
            page = *new, 0
        block, common, taken = page
        if taken + 1 < SLOTS:
            self._slots[kind] = block, common, taken + 1
        return (block, common[taken * step :][:nbytes]), made

    def forget_slots(self, kind: object) -> None:
        """Keep no slots of a kind for the next calls; local."""
        self._slots.pop(kind, None)

    def find(self, array: NDArray[Any]) -> tuple[int, int] | None:
        """Find the window of an array, and the byte of this rank's segment where it begins.

        A window has the same number on all ranks. None if other ranks cannot read the whole array.
        """
        first = address(array)
        for number, window in enumerate(self._windows):
            if window.start <= first < window.end:
                low, high = byte_bounds(array)
                whole = window.start <= low and high <= window.end
                return (number, first - window.start) if whole else None
        return None

    def memory(self, rank: int, window: int) -> memoryview:
        """Memory of a rank of the node in window number `window`."""
        return self._windows[window].segment(rank)

    @property
    def windows(self) -> int:
        """Number of windows."""
        return len(self._windows)

    def free(self) -> None:
        """Release the windows; the memory of arrays is released with the last of them."""
        self._slots.clear()
        self._windows.clear()

    def _add_window(self, size: int) -> int | None:
        node = self._node
        sharers = node.size * self._pools
        usual = min(FIRST_WINDOW, MOST_AT_FIRST // sharers) << len(self._windows)
        capacity = round_up(max(node.allreduce(size, op=MPI.MAX), usual))
        wanted = capacity * sharers
        memory = _map_together(node, capacity, wanted)
        if memory is None:
            if node.rank == 0:
                msg = f"no room for {wanted} bytes in {_folder()}; using private memory instead"
                with suppress(RuntimeWarning):  # as an error on one rank, others would wait for it
                    warnings.warn(msg, RuntimeWarning, stacklevel=4)
            return None
        self._windows.append(_SharedWindow(memory, node, capacity))
        return len(self._windows) - 1


class NodeBlocks(Sequence[Bytes]):
    """A block of memory of each rank of a node, viewed when it is needed; `views` has known ones.

    The view of the block of this rank holds the memory.
    """

    def __init__(self, pool: SharedPool, places: list[list[int]], views: dict[int, Bytes]) -> None:
        self._pool, self._places, self._views = pool, places, views

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, rank: Any) -> Any:
        found = self._views.get(rank)
        if found is None:
            window, start, size = self._places[rank]
            memory = self._pool.memory(rank, window)[start : start + size]
            found = self._views[rank] = np.frombuffer(memory, np.uint8)
        return found


class _SharedWindow:
    """Memory of a node, of which every rank manages its own segment."""

    def __init__(self, memory: mmap, node: MPI.Intracomm, capacity: int) -> None:
        self._memory = memoryview(memory)
        self._step = _whole_pages(capacity)
        self.start = address(np.frombuffer(self.segment(node.rank), np.uint8))
        self.end = self.start + capacity
        self._whole = [(0, capacity)]
        self._gaps = list(self._whole)
        # A block may be released at any time, because Python then collects garbage.
        self.released: deque[tuple[int, int]] = deque()

    def segment(self, rank: int) -> memoryview:
        return self._memory[rank * self._step : (rank + 1) * self._step]

    @property
    def idle(self) -> bool:
        self._merge_released()
        return self._gaps == self._whole

    def has_gap(self, size: int) -> bool:
        self._merge_released()
        return any(length >= size for _, length in self._gaps)

    def take(self, size: int) -> int:
        """Cut `size` bytes from the first gap that holds them; return where they start."""
        number = next(i for i, (_, length) in enumerate(self._gaps) if length >= size)
        start, length = self._gaps.pop(number)
        if length > size:
            self._gaps.insert(number, (start + size, length - size))
        return start

    def _merge_released(self) -> None:
        """Make gaps of the released blocks, and one gap of adjacent ones."""
        while self.released:
            self._gaps.append(self.released.popleft())
        merged: list[tuple[int, int]] = []
        for start, length in sorted(self._gaps):
            if merged and sum(merged[-1]) == start:
                start, length = merged[-1][0], merged.pop()[1] + length  # noqa: PLW2901
            merged.append((start, length))
        self._gaps = merged


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _folder() -> str:
    """Folder of files in memory; systems without one cache files of the disk in memory."""
    return SHARED_FOLDER if Path(SHARED_FOLDER).is_dir() else tempfile.gettempdir()


def _has_room(nbytes: int) -> bool:
    """Whether there is room at all: an attempt would take memory from other jobs until it fails."""
    room = os.statvfs(_folder())
    return nbytes <= room.f_bavail * room.f_frsize


def _map_together(node: MPI.Intracomm, capacity: int, wanted: int) -> mmap | None:
    """Map a segment of `capacity` bytes for each rank. *Collective*.

    None on every rank if one of them cannot, or if there is no room for the `wanted` bytes. The
    file has no name when it begins to use memory: a job that is killed leaves none.
    """
    step = _whole_pages(capacity)
    path = None
    if node.rank == 0:
        path = _attempt(lambda: _make_file(step * node.size) if _has_room(wanted) else None)
    path = node.bcast(path)
    if path is None:
        return None
    file = _attempt(lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))
    try:
        opened = node.allreduce(file is not None, op=MPI.LAND)
    finally:
        if node.rank == 0:
            with suppress(OSError):  # the other ranks go on
                Path(path).unlink()
    memory = None
    if file is not None:
        if opened:
            memory = _attempt(lambda: _map(file, step * node.rank, capacity))
        _attempt(lambda: os.close(file))
    return memory if node.allreduce(memory is not None, op=MPI.LAND) else None


def _attempt(call: Callable[[], T]) -> T | None:
    """Return the result of a call; None if it fails, so that this rank meets the others."""
    try:
        return call()
    except Exception:  # noqa: BLE001 - room, permission or a resource is missing
        return None


def _make_file(nbytes: int) -> str:
    """Make a file of this size that uses no memory yet."""
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
    """Map a file; memory for the bytes of this rank is allocated now, near its processor."""
    if hasattr(os, "posix_fallocate"):  # else writing causes a bus error if memory is short
        os.posix_fallocate(file, start, nbytes)
    return mmap(file, 0)


def synchronize(comm: MPI.Intracomm) -> None:
    """Barrier: stores of any rank before it are visible to all ranks after it. *Collective*."""
    fence()
    timed("wait", comm.Barrier)
    fence()


class Buffers:
    """Idle buffers of plans that are used one after the other, as a plan and its inverse.

    There are as many as were ever in use at once.
    """

    def __init__(self) -> None:
        self._private: list[Bytes] = []
        self._shared: dict[SharedPool, list[Bytes]] = {}

    def take(self, nbytes: int, wanted: Bytes | None = None) -> Bytes:
        """Return a private buffer of at least `nbytes`, if possible `wanted`; `give` it back."""
        for number, buffer in enumerate(self._private):
            if buffer is wanted:
                return self._private.pop(number)
        found = _fitting(self._private, nbytes)
        return aligned_empty(nbytes) if found is None else found

    def give(self, buffer: Bytes) -> None:
        """Take back a private buffer."""
        self._private.append(buffer)

    def take_shared(self, pool: SharedPool, nbytes: int) -> Bytes | None:
        """Return a buffer of at least `nbytes`, equal on all ranks of the pool. *Collective*.

        None on every rank if there is no room.
        """
        found = _fitting(self._shared.get(pool, []), nbytes)
        return pool.allocate(nbytes) if found is None else found

    def give_shared(self, pool: SharedPool, buffer: Bytes) -> None:
        """Take back a buffer in shared memory."""
        self._shared.setdefault(pool, []).append(buffer)

    def has(self, buffer: Bytes) -> bool:
        """Whether a private buffer is idle."""
        return any(idle is buffer for idle in self._private)

    @property
    def nbytes(self) -> int:
        """Bytes that are held and idle."""
        return sum(buffer.nbytes for buffer in (*self._private, *chain(*self._shared.values())))

    def clear(self) -> None:
        """Release what is idle."""
        self._private.clear()
        self._shared.clear()


def _fitting(idle: list[Bytes], nbytes: int) -> Bytes | None:
    """Take the smallest buffer that is large enough, so that larger ones stay idle."""
    sizes = [(buffer.nbytes, number) for number, buffer in enumerate(idle)]
    large = [size for size in sizes if size[0] >= nbytes]
    if large:
        return idle.pop(min(large)[1])
    if idle:
        idle.pop(min(sizes)[1])  # too small for this exchange; a larger one replaces it
    return None
