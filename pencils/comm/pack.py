"""Blocks of arrays, their offsets in buffers, and copies between them.

Copies are compiled, or made by NumPy if pencils was installed without a compiler. The compiled
copies write large targets past the cache, in whole lines, and change the memory order in tiles.
Their vector instructions are chosen at import; the environment variable ``PENCILS_KERNELS`` names
another implementation, one of `available`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm import pack_numpy
from pencils.comm.memory import LINE, Bytes, fence, round_up
from pencils.errors import ArgumentError

Array = NDArray[Any]
# A target and a source, of the same shape and item size.
Pairs = Sequence[tuple[Array, Array]]
# Prepares to write received blocks, the second of each pair, to the first.
Unpacker = Callable[[Pairs], Callable[[], None]]

VARIABLE = "PENCILS_KERNELS"

_kernels: Any
try:
    _kernels = import_module("pencils.comm._kernels")
except ImportError:  # there was no compiler when pencils was installed
    _kernels = None

_chosen = SimpleNamespace()  # name, copy and prepare_copies of the implementation in use
_blocks: dict[object, str] = {}  # blocks of `using` that have not ended, and the whole process


class MessageBlock(NamedTuple):
    """The block ``array[..., *key]`` of a local array, sent to or received from rank `peer`."""

    peer: int  # the other rank, or this one
    key: tuple[slice, ...]  # the block in the array of this rank
    start: tuple[int, ...]  # where the block begins in the array of `peer`
    chunk: int = 0  # number of the chunk of the exchange in which the block is moved
    # Whether the block is contiguous in private memory on both ranks, as both of them know: then a
    # message needs no packing, and shared memory saves nothing.
    contiguous: bool = False


class MessageSpec(NamedTuple):
    """Blocks that are sent and received of arrays with one shape of leading axes and one dtype.

    Blocks for this rank itself are in `sends` and in `recvs`, in equal order. The leading axes, of
    shape `lead`, are not sliced. `dtype` has a fixed size and no Python objects.
    """

    sends: Sequence[MessageBlock]
    recvs: Sequence[MessageBlock]
    lead: tuple[int, ...]
    dtype: np.dtype[Any]


class PackPlan:
    """Blocks of one direction in the order in which they are packed, and offsets in a buffer."""

    def __init__(
        self, blocks: Sequence[MessageBlock], lead: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.blocks = blocks
        self.peers = [block.peer for block in blocks]
        self.lead = lead
        self.dtype = dtype
        self.shapes = [(*lead, *(s.stop - s.start for s in block.key)) for block in blocks]
        self.nbytes = [prod(shape) * dtype.itemsize for shape in self.shapes]
        # In one buffer, each beginning at a cache line.
        *self.starts, self.packed = (LINE * offset for offset in self.offsets())
        self.room = [round_up(nbytes) for nbytes in self.nbytes]

    def views(self, array: Array) -> list[Array]:
        """Every block of an array."""
        keys: list[Any] = [(..., *block.key) for block in self.blocks]
        return [array[key] for key in keys]

    def offsets(self, unit: int = LINE) -> list[int]:
        """Start of every block and the end of the last, as multiples of `unit` bytes."""
        return list(accumulate((-(-nbytes // unit) for nbytes in self.nbytes), initial=0))

    def window(self, buffer: Bytes, number: int, start: int) -> Array:
        """Bytes of block `number`, which begins at byte `start`, as an array of its shape."""
        part = buffer[start : start + self.nbytes[number]]
        return part.view(self.dtype).reshape(self.shapes[number])


def copy(target: Array, source: Array, whole: int = 0) -> None:
    """Copy `source` into `target`: arrays of one shape and item size, of any strides.

    They must neither overlap nor hold Python objects, which is not checked. Raises ValueError if
    shapes or item sizes differ, or `target` is read-only. `whole`: bytes of which those of `target`
    are a part that is copied now; many of them do not stay in the cache until they are used.
    """
    _chosen.copy(target, source, whole)


def prepare_copies(pairs: Pairs) -> Callable[[], None]:
    """Return a function that copies every source, as it is then, to its target; see `copy`."""
    prepared: Callable[[], None] = _chosen.prepare_copies(pairs)
    return prepared


def prepare_ordered_copies(pairs: Pairs, *, read_elsewhere: bool = False) -> Callable[[], None]:
    """Prepare copies between which and what is before and after them memory is ordered.

    What other processes stored before a barrier is read after it, and the other way round: see
    `pencils.comm.memory.fence`. Compiled copies do this always. With `read_elsewhere`, targets are
    written again and again, and each time read by other processes: to take back a line that lies in
    the cache of a distant processor takes ten times as long as to write past all caches.
    """
    if _chosen.name != "numpy":
        compiled_copies: Callable[[], None] = _chosen.prepare_copies(pairs, read_elsewhere)
        return compiled_copies
    copies = prepare_copies(pairs)

    def ordered() -> None:
        fence()
        copies()
        fence()

    return ordered


def prepare_additions(pairs: Pairs) -> Callable[[], None]:
    """Return a function that adds every source, as it is then, to its target, one by one."""

    def add() -> None:
        for target, source in pairs:
            np.add(target, source, out=target)

    return add


def no_op() -> None:
    """Do nothing."""


def kernels() -> str:
    """Name the implementation in use: ``avx512``, ``avx2``, ``portable`` or ``numpy``."""
    name: str = _chosen.name
    return name


def available() -> tuple[str, ...]:
    """Name the implementations that work here, best first."""
    return (*(_kernels.available() if _kernels else ()), "numpy")


def compiled() -> Any:
    """Return the module of the compiled kernels, or None if NumPy is in use."""
    return None if _chosen.name == "numpy" else _kernels


@contextmanager
def using(name: str) -> Iterator[None]:
    """Copy by another implementation, one of `available`; prepared copies keep their own.

    It is chosen for the whole process, by the block that was entered last of those that have not
    ended: blocks of several threads, like simulated ranks, end in any order.
    """
    _choose(name)
    block = object()
    _blocks[block] = name
    try:
        yield
    finally:
        del _blocks[block]
        _choose(next(reversed(_blocks.values())))


def _choose(name: str) -> None:
    if name not in available():
        raise ArgumentError(
            f"copies by {name!r} are not available; here are {', '.join(available())}"
        )
    _chosen.name = name
    _chosen.copy, _chosen.prepare_copies = pack_numpy.copy, pack_numpy.prepare_copies
    if name != "numpy":
        _kernels.use(name)
        _chosen.copy, _chosen.prepare_copies = _kernels.copy, _kernels.Copies


def _cache_share(cache: Path = Path("/sys/devices/system/cpu/cpu0/cache/index3")) -> int:
    """Bytes of the last cache for each process if all processors are in use."""
    try:
        size = int((cache / "size").read_text().strip().removesuffix("K")) * 1024
        ranges = (cache / "shared_cpu_list").read_text().strip().split(",")
        bounds = [(part.split("-")[0], part.split("-")[-1]) for part in ranges]
        return size // sum(int(last) - int(first) + 1 for first, last in bounds)
    except (OSError, ValueError):  # not Linux, or a virtual machine without these numbers
        return 4 << 20


if _kernels:
    _kernels.stream_from(_cache_share() * 3 // 8)  # measured; the source needs cache, too
_choose(os.environ.get(VARIABLE) or available()[0])
_blocks[None] = kernels()
