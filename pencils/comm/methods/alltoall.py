"""One nonblocking collective over all ranks, of MPI datatypes: nothing is packed.

For exchanges with one message spec whose received blocks are copied, not added.
"""

from __future__ import annotations

from typing import TypeAlias

from pencils.comm import memory
from pencils.comm.failure import wait_all
from pencils.comm.memory import Bytes, address, mpi_buffer
from pencils.comm.methods.method import Array, Arrays, ChunkPlan, Method, PreparedMethod, Started
from pencils.comm.mpi import MPI
from pencils.comm.pack import PackPlan, copy

Strides = tuple[int, ...]
_Blocks: TypeAlias = "tuple[list[int], list[int], list[MPI.Datatype]]"

# Sets of datatypes that a method keeps, one for each set of strides.
MOST_SETS = 8


class _PreparedAlltoallw(PreparedMethod):
    def __init__(
        self, method: Alltoallw, sources: Arrays, targets: Arrays, *, aliased: bool
    ) -> None:
        self._method = method
        self._sources = sources
        self._targets = targets
        # Open MPI takes one address on both sides for a call in place, empty arrays or not.
        pairs = zip(sources, targets, strict=True)
        copied = aliased or any(address(u) == address(out) for u, out in pairs)
        self._copied = [source.nbytes for source in sources] if copied else []

    def _take_copies(self) -> list[Bytes]:
        return [self._method.plan.buffers.take(nbytes) for nbytes in self._copied]

    def reserve(self) -> None:
        """Allocate room for copies."""
        for buffer in self._take_copies():
            self._method.plan.buffers.give(buffer)

    def start(self) -> Started:
        """Start one collective for each pair of arrays; sources that share memory are copied."""
        copies = self._take_copies()
        sources = list(self._sources)
        for number, buffer in enumerate(copies):
            source = sources[number]
            sources[number] = buffer[: source.nbytes].view(source.dtype).reshape(source.shape)
            copy(sources[number], source)
        requests = [self._start(*pair) for pair in zip(sources, self._targets, strict=True)]

        def complete() -> None:
            wait_all(requests)
            for buffer in copies:
                self._method.plan.buffers.give(buffer)

        return Started(complete, requests)

    def _start(self, source: Array, target: Array) -> MPI.Request:
        method = self._method
        return method.plan.topology.comm.Ialltoallw(
            [mpi_buffer(source), *method.blocks(method.sends, source.strides)],
            [mpi_buffer(target), *method.blocks(method.recvs, target.strides)],
        )


class Alltoallw(Method):
    """MPI reads and writes blocks by their strides."""

    name = "alltoallw"
    prepared = _PreparedAlltoallw
    versatile = False

    def __init__(self, plan: ChunkPlan) -> None:
        super().__init__(plan)
        (self.sends,), (self.recvs,) = plan.sends, plan.recvs
        self._made: dict[tuple[int, Strides], _Blocks] = {}

    def blocks(self, pack_plan: PackPlan, strides: Strides) -> _Blocks:
        """Return counts, starts and datatypes of the blocks of an array, by rank."""
        key = id(pack_plan), strides
        if key not in self._made:
            if len(self._made) >= MOST_SETS:
                self._free(next(iter(self._made)))
            types = _types_by_rank(pack_plan, strides, self.plan.topology.comm.size)
            self._made[key] = [int(kind != MPI.BYTE) for kind in types], [0] * len(types), types
        self._made[key] = self._made.pop(key)  # the most recently used is freed last
        return self._made[key]

    def free(self) -> None:
        """Free the datatypes; communication that uses them still completes."""
        for key in list(self._made):
            self._free(key)

    def _free(self, key: tuple[int, Strides]) -> None:
        for kind in self._made.pop(key)[2]:
            if kind != MPI.BYTE:
                kind.Free()


def _types_by_rank(pack_plan: PackPlan, strides: Strides, size: int) -> list[MPI.Datatype]:
    parts: dict[int, list[tuple[int, MPI.Datatype]]] = {}
    skip = len(pack_plan.lead)
    every = zip(pack_plan.blocks, pack_plan.shapes, pack_plan.nbytes, strict=True)
    for block, shape, nbytes in every:
        if nbytes == 0:
            continue
        start = sum(s.start * stride for s, stride in zip(block.key, strides[skip:], strict=True))
        kind = _strided(shape, strides, pack_plan.dtype.itemsize)
        parts.setdefault(block.peer, []).append((start, kind))
    return [_joined(parts[rank]) if rank in parts else MPI.BYTE for rank in range(size)]


def _joined(parts: list[tuple[int, MPI.Datatype]]) -> MPI.Datatype:
    starts, kinds = zip(*parts, strict=True)
    whole = MPI.Datatype.Create_struct([1] * len(parts), list(starts), list(kinds)).Commit()
    for kind in kinds:
        kind.Free()
    return whole


def _strided(shape: tuple[int, ...], strides: Strides, itemsize: int) -> MPI.Datatype:
    """Datatype of the elements of an array from its first one on; contiguous axes are merged."""
    run = itemsize
    axes = list(zip(shape, strides, strict=True))
    while axes and (axes[-1][1] == run or axes[-1][0] == 1):
        run *= axes.pop()[0]
    kind = _repeated(MPI.BYTE, run, 1)
    for extent, stride in reversed(axes):
        inner, kind = kind, _repeated(kind, extent, stride)
        inner.Free()
    return kind


def _repeated(kind: MPI.Datatype, count: int, stride: int) -> MPI.Datatype:
    """Datatype of `count` times `kind`, `stride` bytes apart, with counts that MPI allows."""
    most = memory.MOST_UNITS
    if count <= most:
        if kind.Get_extent() == (0, stride):  # MPI libraries do not detect this
            return kind.Create_contiguous(count)
        return kind.Create_hvector(count, 1, stride)
    block = _repeated(kind, most, stride)
    blocks, rest = divmod(count, most)
    parts = [(0, _repeated(block, blocks, most * stride))]
    block.Free()
    if rest:
        parts.append((blocks * most * stride, _repeated(kind, rest, stride)))
    return _joined(parts)
