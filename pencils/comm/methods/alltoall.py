"""One nonblocking collective over all ranks: of packed blocks, or of MPI datatypes.

For exchanges with one message spec whose received blocks are copied, not added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pencils.comm import memory
from pencils.comm.failure import wait_all
from pencils.comm.memory import LINE, Bytes, address, mpi_buffer
from pencils.comm.methods.method import Array, ChunkPlan, Method, PreparedMethod, Started
from pencils.comm.mpi import MPI, PerProcess, at_exit, is_simulated
from pencils.comm.pack import PackPlan, copy
from pencils.comm.shared_memory import Buffers

Strides = tuple[int, ...]

# Sets of datatypes that a method keeps, one for each set of strides.
MOST_SETS = 8


class _PreparedAlltoallv(PreparedMethod):
    def __init__(
        self,
        method: Alltoallv,
        sources: Sequence[Array],
        targets: Sequence[Array],
        *,
        aliased: bool,  # noqa: ARG002 - packing makes aliasing harmless
    ) -> None:
        self._method = method
        self._sends = [method.sends.views(source) for source in sources]
        self._recvs = [method.recvs.views(target) for target in targets]

    def start(self) -> Started:
        """Pack everything and start one collective for each array."""
        finish = [self._start(*views) for views in zip(self._sends, self._recvs, strict=True)]

        def complete() -> None:
            for each in finish:
                each.complete()

        return Started(complete, [request for each in finish for request in each.requests])

    def reserve(self) -> None:
        """Allocate all buffers."""
        sizes = [self._method.unit * starts[-1] for starts in self._method.offsets]
        _have_room(self._method.plan.buffers, sizes * len(self._sends))

    def _start(self, sends: list[Array], recvs: list[Array]) -> Started:
        method, plan, unit = self._method, self._method.plan, self._method.unit
        send_starts, recv_starts = method.offsets
        packed = plan.buffers.take(unit * send_starts[-1])
        received = plan.buffers.take(unit * recv_starts[-1])
        for number, view in enumerate(sends):
            copy(method.sends.window(packed, number, unit * send_starts[number]), view)
        request = plan.topology.comm.Ialltoallv(
            [packed, *method.send_counts, method.type],
            [received, *method.recv_counts, method.type],
        )

        def complete() -> None:
            wait_all([request])
            for number, view in enumerate(recvs):
                copy(view, method.recvs.window(received, number, unit * recv_starts[number]))
            plan.buffers.give(received)
            plan.buffers.give(packed)

        return Started(complete, [request])


class Alltoallv(Method):
    """Blocks are packed in the order of the ranks."""

    name = "alltoallv"
    prepared = _PreparedAlltoallv
    versatile = False

    def __init__(self, plan: ChunkPlan) -> None:
        super().__init__(plan)
        (self.sends,), (self.recvs,) = plan.sends, plan.recvs
        sends, recvs, size = self.sends, self.recvs, plan.topology.comm.size
        largest = max(sum(sends.nbytes), sum(recvs.nbytes))
        most = plan.topology.comm.allreduce(largest, op=MPI.MAX)
        self.unit = LINE
        while most // self.unit + size > memory.MOST_UNITS:
            self.unit *= 2
        self.type = _bytes_type(self.unit)
        self.offsets = sends.offsets(self.unit), recvs.offsets(self.unit)
        self.send_counts = _by_rank(sends, self.offsets[0], size)
        self.recv_counts = _by_rank(recvs, self.offsets[1], size)


def _by_rank(
    pack_plan: PackPlan, offsets: list[int], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    counts = np.zeros(size, dtype=np.int64)
    starts = np.zeros(size, dtype=np.int64)
    for peer, start, stop in zip(pack_plan.peers, offsets[:-1], offsets[1:], strict=True):
        if counts[peer] == 0:  # blocks for one peer follow each other
            starts[peer] = start
        counts[peer] += stop - start
    return counts, starts


def _no_types() -> dict[int, MPI.Datatype]:
    types: dict[int, MPI.Datatype] = {}
    if is_simulated():  # a simulation reports what was not freed
        at_exit(lambda: _free_all(types.values()))
    return types


_types = PerProcess(_no_types)


def _bytes_type(nbytes: int) -> MPI.Datatype:
    """Datatype of `nbytes` bytes; never freed, because all plans use the same few powers of two."""
    types = _types()
    if nbytes not in types:
        types[nbytes] = MPI.BYTE.Create_contiguous(nbytes).Commit()
    return types[nbytes]


class _PreparedAlltoallw(PreparedMethod):
    def __init__(
        self,
        method: Alltoallw,
        sources: Sequence[Array],
        targets: Sequence[Array],
        *,
        aliased: bool,
    ) -> None:
        self._method = method
        self._sources = sources
        self._targets = targets
        # Open MPI takes one address on both sides for a call in place, empty arrays or not.
        pairs = zip(sources, targets, strict=True)
        self._copy = aliased or any(address(u) == address(out) for u, out in pairs)

    def start(self) -> Started:
        """Start one collective for each pair of arrays; sources that share memory are copied."""
        buffers = self._method.plan.buffers
        copies: list[Bytes] = []
        sources = list(self._sources)
        if self._copy:
            copies = [buffers.take(source.nbytes) for source in sources]
            sources = [_copy_into(*pair) for pair in zip(copies, sources, strict=True)]
        requests = [self._start(*pair) for pair in zip(sources, self._targets, strict=True)]

        def complete() -> None:
            wait_all(requests)
            for buffer in copies:
                buffers.give(buffer)

        return Started(complete, requests)

    def reserve(self) -> None:
        """Allocate room for copies."""
        sizes = [source.nbytes for source in self._sources] if self._copy else []
        _have_room(self._method.plan.buffers, sizes)

    def _start(self, source: Array, target: Array) -> MPI.Request:
        plan = self._method.plan
        send_types = self._method.types(self._method.sends, source.strides)
        recv_types = self._method.types(self._method.recvs, target.strides)
        return plan.topology.comm.Ialltoallw(
            [mpi_buffer(source), *_ones(send_types), send_types],
            [mpi_buffer(target), *_ones(recv_types), recv_types],
        )


class Alltoallw(Method):
    """Nothing is packed: MPI reads and writes blocks by their strides."""

    name = "alltoallw"
    prepared = _PreparedAlltoallw
    versatile = False

    def __init__(self, plan: ChunkPlan) -> None:
        super().__init__(plan)
        (self.sends,), (self.recvs,) = plan.sends, plan.recvs
        self._made: dict[tuple[int, Strides], list[MPI.Datatype]] = {}

    def types(self, pack_plan: PackPlan, strides: Strides) -> list[MPI.Datatype]:
        """Datatype of the blocks of an array for each rank."""
        key = id(pack_plan), strides
        if key not in self._made:
            if len(self._made) >= MOST_SETS:
                self._free(next(iter(self._made)))
            self._made[key] = _types_by_rank(pack_plan, strides, self.plan.topology.comm.size)
        self._made[key] = self._made.pop(key)  # the most recently used is freed last
        return self._made[key]

    def free(self) -> None:
        """Free the datatypes; communication that uses them still completes."""
        for key in list(self._made):
            self._free(key)

    def _free(self, key: tuple[int, Strides]) -> None:
        _free_all(self._made.pop(key))


def _free_all(types: Iterable[MPI.Datatype]) -> None:
    for kind in types:
        if kind != MPI.BYTE:
            kind.Free()


def _have_room(buffers: Buffers, sizes: Sequence[int]) -> None:
    """Have idle buffers of these sizes."""
    for buffer in [buffers.take(nbytes) for nbytes in sizes]:
        buffers.give(buffer)


def _copy_into(buffer: Bytes, source: Array) -> Array:
    whole = buffer[: source.nbytes].view(source.dtype).reshape(source.shape)
    copy(whole, source)
    return whole


def _ones(types: list[MPI.Datatype]) -> tuple[list[int], list[int]]:
    return [int(kind != MPI.BYTE) for kind in types], [0] * len(types)


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
        return _vector(kind, count, stride)
    block = _vector(kind, most, stride)
    blocks, rest = divmod(count, most)
    parts = [(0, _repeated(block, blocks, most * stride))]
    block.Free()
    if rest:
        parts.append((blocks * most * stride, _vector(kind, rest, stride)))
    return _joined(parts)


def _vector(kind: MPI.Datatype, count: int, stride: int) -> MPI.Datatype:
    if kind.Get_extent() == (0, stride):  # MPI libraries do not detect this
        return kind.Create_contiguous(count)
    return kind.Create_hvector(count, 1, stride)
