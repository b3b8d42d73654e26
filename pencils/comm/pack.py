"""Blocks of arrays, their offsets in buffers, and copies between them, compiled or by NumPy.

``PENCILS_KERNELS`` names another implementation, one of `available`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate, product
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.memory import Bytes, fence, restrided, round_up, same_view
from pencils.comm.mpi import MPI
from pencils.comm.recording import timed
from pencils.errors import ArgumentError
from pencils.layout.integers import MOST

T = TypeVar("T")
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
        self.room = [round_up(nbytes) for nbytes in self.nbytes]
        *self.starts, self.packed = accumulate(self.room, initial=0)

    def with_blocks(self, blocks: Iterable[MessageBlock]) -> PackPlan:
        """Plan of other blocks of the same arrays."""
        return PackPlan(list(blocks), self.lead, self.dtype)

    def views(self, array: Array) -> list[Array]:
        """Every block of an array."""
        keys: list[Any] = [(..., *block.key) for block in self.blocks]
        return [array[key] for key in keys]

    def window(self, buffer: Bytes, number: int, start: int) -> Array:
        """Bytes of block `number`, which begins at byte `start`, as an array of its shape."""
        part = buffer[start : start + self.nbytes[number]]
        return part.view(self.dtype).reshape(self.shapes[number])


def own_blocks(rank: int, spec: MessageSpec) -> list[tuple[Any, Any]]:
    """List where blocks that stay on this rank are read, and where they are written."""
    sends = [(..., *block.key) for block in spec.sends if block.peer == rank]
    recvs = [(..., *block.key) for block in spec.recvs if block.peer == rank]
    return list(zip(sends, recvs, strict=True))


def pack_plans(
    spec: MessageSpec, rank: int, size: int, chunks: int = 1
) -> tuple[list[PackPlan], list[PackPlan]]:
    """Make the pack plans of each chunk, to send and to receive, without `own_blocks`.

    Blocks are sorted by the distance of their peer, so that each rank begins with another one.
    """

    def divide(blocks: Sequence[MessageBlock], distance: Callable[[int], int]) -> list[PackPlan]:
        by_chunk: list[list[MessageBlock]] = [[] for _ in range(chunks)]
        for block in sorted(blocks, key=lambda block: distance(block.peer)):
            if distance(block.peer):
                by_chunk[block.chunk].append(block)
        return [PackPlan(each, spec.lead, spec.dtype) for each in by_chunk]

    return (
        divide(spec.sends, lambda peer: (peer - rank) % size),
        divide(spec.recvs, lambda peer: (rank - peer) % size),
    )


def find_starts(
    comm: MPI.Intracomm,
    sends: Sequence[PackPlan],
    recvs: Sequence[PackPlan],
    bases: Sequence[int],
    ranks: Mapping[int, int] | Sequence[int],
) -> tuple[list[list[int]], list[int]]:
    """Find where blocks begin in the staging blocks of their senders, and where those end.

    Those of each of `sends` begin at its base in the staging block of this rank, which ends at the
    last of `bases`; `ranks` has the rank of a peer in `comm`. *Collective*.
    """
    mine = np.zeros((comm.size, len(bases)), np.int64)
    mine[:, -1] = min(bases[-1], MOST)  # no staging block is as large
    for number, plan in enumerate(sends):
        for peer, start in reversed(list(zip(plan.peers, plan.starts, strict=True))):
            # Those for one peer are consecutive.
            mine[ranks[peer], number] = min(bases[number] + start, MOST)
    theirs = np.empty_like(mine)
    timed("wait", comm.Alltoall, mine, theirs)
    found = []
    for number, plan in enumerate(recvs):
        at, starts = theirs[:, number].tolist(), []
        for peer, nbytes in zip(plan.peers, plan.room, strict=True):
            starts.append(at[ranks[peer]])
            at[ranks[peer]] += nbytes
        found.append(starts)
    return found, theirs[:, -1].tolist()


def one_each(values: Sequence[T], arrays: Sequence[Array]) -> Sequence[T]:
    """Return a value for each array: there is one for each, or one for all."""
    return list(values) * len(arrays) if len(values) == 1 else values


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


def in_order(pairs: Pairs) -> Pairs | None:
    """Return the pairs to copy, without those that are equal; None if some must be saved first.

    Compiled copies move a part within an array so that nothing is overwritten before it is read.
    """
    pairs = [pair for pair in pairs if pair[0].size and not same_view(*pair)]
    targets, sources = ([pair[side] for pair in pairs] for side in (0, 1))
    overlap = any(np.may_share_memory(*pair) for pair in product(targets, sources))
    moves = len(pairs) == 1 and _chosen.name != "numpy" and _kernels.moves_within(*pairs[0])
    return None if overlap and not moves else pairs


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
    _chosen.copy, _chosen.prepare_copies = _copy_by_numpy, _prepare_by_numpy
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


# ---- Copies by NumPy. ----

Step = tuple[Array, Array]  # target and source of one call of `numpy.copyto`

SMALL = 4096  # bytes; to prepare a copy takes longer than to copy these
LONGEST_ITEM = 4096  # bytes; longer runs gain nothing
ITEM = 128  # bytes of an item of a copy by lines
SCRATCH = 1 << 20  # bytes of the block in the cache
WORTH_LINES = 1 << 18  # bytes; the source of a smaller copy stays in the cache
FAR, CROWDED = 4096, 1024  # strides from which, or at multiples of which, it does not

# NumPy copies items of these sizes by one move if they are integers, or complex numbers.
MOVES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def _copy_by_numpy(target: Array, source: Array, whole: int = 0) -> None:  # noqa: ARG001
    check(target, source)
    if target.nbytes <= SMALL:
        np.copyto(target, source)
    else:
        _prepare_by_numpy([(target, source)])()


def _prepare_by_numpy(pairs: Sequence[Step]) -> Callable[[], None]:
    prepared: list[Step] = []
    for pair in pairs:
        check(*pair)
        for target, source in steps(*pair):
            if target.ndim > 1 and np.may_share_memory(target, source):
                # NumPy would allocate a buffer for each copy, and could fail then.
                buffer = np.empty(source.shape, source.dtype)
                prepared += [(buffer, source), (target, buffer)]
            else:
                prepared.append((target, source))

    def run() -> None:
        for target, source in prepared:
            np.copyto(target, source)

    return run


def check(target: Array, source: Array) -> None:
    """Raise unless shapes and item sizes are equal and `target` can be written."""
    if target.shape != source.shape or target.itemsize != source.itemsize:
        raise ValueError(
            f"a source of shape {source.shape} does not fit a target of shape {target.shape}: "
            "shapes and item sizes have to be equal"
        )
    if not target.flags.writeable:
        raise ValueError("the target is read-only")


def steps(target: Array, source: Array) -> Iterator[Step]:
    """Yield the calls of `numpy.copyto` that make up one copy."""
    if target.nbytes == 0:
        return
    target, source = _runs(target, source)
    axis = _axis_of_items(target, source)
    if axis is None:
        yield target, source
        return
    # The axis of the items comes before the last one, in ascending order of the source.
    target, source = np.moveaxis(target, axis, -2), np.moveaxis(source, axis, -2)
    if source.strides[-2] < 0:
        target, source = target[..., ::-1, :], source[..., ::-1, :]
    # To a block in the cache by items of `points` elements, and from it; the last may be shorter.
    scratch = np.empty(SCRATCH, np.uint8)
    *outer, rows, columns = target.shape
    size, points = target.itemsize, ITEM // target.itemsize
    whole = rows // points * points
    for start, stop, length in ((0, whole, points), (whole, rows, rows - whole)):
        if start == stop:
            continue
        into = target[..., start:stop, :].reshape(*outer, -1, length, columns)
        lines = source[..., start:stop, :].swapaxes(-1, -2)
        items = _as_items(lines, length * size).swapaxes(-1, -2)
        for part in _parts(items.shape, SCRATCH // (length * size)):
            taken = items[part]
            block = scratch[: taken.size * length * size].view(target.dtype)
            block = block.reshape(*taken.shape, length)
            yield _as_items(block, length * size)[..., 0], taken
            yield into[*part[:-1], :, part[-1]], block.swapaxes(-1, -2)


def _runs(target: Array, source: Array) -> Step:
    """Order axes by ascending addresses of the target, and merge those that follow each other.

    Contiguous runs are viewed as items.
    """
    point: Any = (*(0 if n == 1 else slice(None) for n in target.shape), ...)
    target, source = target[point], source[point]
    turn: Any = (*(slice(None, None, -1 if step < 0 else 1) for step in target.strides), ...)
    target, source = target[turn], source[turn]
    every = zip(target.strides, map(abs, source.strides), range(target.ndim), strict=True)
    shape: list[int] = []
    strides: list[tuple[int, int]] = []
    for *_, axis in sorted(every, key=lambda each: each[:2], reverse=True):
        points, pair = target.shape[axis], (target.strides[axis], source.strides[axis])
        if strides and strides[-1] == (points * pair[0], points * pair[1]):
            strides.pop()
            points *= shape.pop()
        shape.append(points)
        strides.append(pair)
    target = restrided(target, shape, [stride for stride, _ in strides])
    source = restrided(source, shape, [stride for _, stride in strides])
    size = target.itemsize
    if shape and strides[-1] == (size, size) and shape[-1] * size <= LONGEST_ITEM:
        size *= shape[-1]
        return _as_items(target, size)[..., 0], _as_items(source, size)[..., 0]
    if target.ndim == 0:
        return target, source
    return _as_items(target, size), _as_items(source, size)


def _as_items(array: Array, size: int) -> Array:
    """View elements that follow each other along the last axis as items of `size` bytes."""
    return array.view(MOVES.get(size, f"V{size}"))


def _axis_of_items(target: Array, source: Array) -> int | None:
    """Return the axis along which the source is contiguous if a copy by lines is faster."""
    size, points = target.itemsize, ITEM // target.itemsize
    fast = [axis for axis, stride in enumerate(source.strides[:-1]) if abs(stride) == size]
    if not fast or points < 2 or target.shape[fast[0]] < points:  # noqa: PLR2004
        return None
    stride = abs(source.strides[-1])
    crowded = stride >= FAR or stride % CROWDED == 0
    if target.nbytes < WORTH_LINES or target.strides[-1] != size or stride == size or not crowded:
        return None
    return fast[0]


def _parts(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Divide a block into parts of at most `most` points, whole along as many last axes as fit."""
    cuts = []
    for points in reversed(shape):
        step = max(1, min(points, most))
        cuts.append([slice(start, start + step) for start in range(0, points, step)])
        most //= step
    yield from product(*reversed(cuts))


if _kernels:
    _kernels.stream_from(_cache_share() * 3 // 8)  # measured; the source needs cache, too
_choose(os.environ.get(VARIABLE) or available()[0])
_blocks[None] = kernels()
