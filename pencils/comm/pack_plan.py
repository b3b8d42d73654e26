"""What an exchange moves, as plain data: blocks, message specs, and where blocks are packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.buffers import Buffers
from pencils.comm.memory import LINE, Bytes
from pencils.comm.pack import Copies
from pencils.comm.topology import Topology

Array = NDArray[Any]
T = TypeVar("T")

# Prepares to write received blocks, the second of each pair, to the first.
Unpacker = Callable[[Sequence[tuple[Array, Array]]], Callable[[], None]]


class MessageBlock(NamedTuple):
    """The block ``array[..., *key]`` of a local array, sent to or received from rank `peer`.

    Parameters
    ----------
    peer : int
        The other rank, or this one.
    key : tuple of slice
        The block in the array of this rank.
    start : tuple of int
        Where the block begins in the array of `peer`.
    chunk : int, optional
        Number of the chunk of the exchange in which the block is moved.
    contiguous : bool, optional
        Whether the block is contiguous in private memory on both sides, as both sides know: then a
        message needs no packing, and shared memory saves nothing.
    """

    peer: int
    key: tuple[slice, ...]
    start: tuple[int, ...]
    chunk: int = 0
    contiguous: bool = False


class MessageSpec(NamedTuple):
    """Blocks that are sent and received of arrays with one shape of leading axes and one dtype.

    Parameters
    ----------
    sends, recvs : sequence of MessageBlock
        What this rank sends and receives. Blocks for this rank itself are in both, in equal order.
    lead : tuple of int
        Shape of the axes before the sliced ones; they are moved whole.
    dtype : numpy.dtype
        Element type; any of fixed size without Python objects.
    """

    sends: Sequence[MessageBlock]
    recvs: Sequence[MessageBlock]
    lead: tuple[int, ...]
    dtype: np.dtype[Any]


class PackPlan:
    """Blocks of one direction, their shapes, and their offsets in a buffer.

    Parameters
    ----------
    blocks : sequence of MessageBlock
        The blocks, in the order in which they are packed.
    lead : tuple of int
        Shape of the axes before the sliced ones.
    dtype : numpy.dtype
        Element type.
    """

    def __init__(
        self, blocks: Sequence[MessageBlock], lead: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.blocks = blocks
        self.peers = [block.peer for block in blocks]
        self.lead = lead
        self.dtype = dtype
        self.shapes = [(*lead, *(s.stop - s.start for s in block.key)) for block in blocks]
        self.nbytes = [int(np.prod(shape)) * dtype.itemsize for shape in self.shapes]
        # In one buffer, each beginning at a cache line.
        *starts, self.packed = (LINE * offset for offset in self.offsets())
        self.starts = starts

    def views(self, array: Array) -> list[Array]:
        """Every block of an array."""
        keys: list[Any] = [(..., *block.key) for block in self.blocks]
        return [array[key] for key in keys]

    def offsets(self, unit: int = LINE) -> list[int]:
        """Start of every block and the end of the last, as multiples of `unit` bytes."""
        ends = np.cumsum([0, *(-(-nbytes // unit) for nbytes in self.nbytes)])
        return [int(end) for end in ends]

    def window(self, buffer: Bytes, number: int, start: int) -> Array:
        """Bytes of block `number`, which begins at byte `start`, as an array of its shape."""
        part = buffer[start : start + self.nbytes[number]]
        return part.view(self.dtype).reshape(self.shapes[number])


class ChunkPlan(NamedTuple):
    """What a method moves in one chunk, without the blocks that stay on this rank.

    Parameters
    ----------
    topology : Topology
        The ranks.
    sends, recvs : sequence of PackPlan
        For each array of a call; a single one is for any number of arrays.
    axes : int
        Largest number of axes of an array, the same on all ranks.
    buffers : Buffers
        Where to take memory from.
    unpack : Unpacker
        How received blocks are written to the targets.
    """

    topology: Topology
    sends: Sequence[PackPlan]
    recvs: Sequence[PackPlan]
    axes: int
    buffers: Buffers
    unpack: Unpacker = Copies

    def sends_of(self, arrays: Sequence[Array]) -> list[tuple[PackPlan, Array]]:
        """Pair the sources of a call with their pack plans."""
        return list(zip(one_each(self.sends, arrays), arrays, strict=True))

    def recvs_of(self, arrays: Sequence[Array]) -> list[tuple[PackPlan, Array]]:
        """Pair the targets of a call with their pack plans."""
        return list(zip(one_each(self.recvs, arrays), arrays, strict=True))


def one_each(values: Sequence[T], arrays: Sequence[Array]) -> Sequence[T]:
    """Return a value for each array: there is one for each, or one for all."""
    return list(values) * len(arrays) if len(values) == 1 else values


def no_op() -> None:
    """Do nothing."""
