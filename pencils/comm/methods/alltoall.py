"""One nonblocking collective over all ranks: packed, or described by MPI datatypes.

For exchanges that treat all arrays alike, and copy what arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pencils.comm import limits
from pencils.comm.buffers import Buffers
from pencils.comm.memory import LINE, Bytes, address, mpi_buffer
from pencils.comm.methods.method import Array, Call, Flow, Method, Packing, Plan
from pencils.comm.mpi import MPI
from pencils.comm.pack import copy

Strides = tuple[int, ...]

# Sets of datatypes that a plan keeps, one for each pair of strides it meets.
MOST_SETS = 8


class Alltoallv(Method):
    """Pieces are packed in the order of the ranks."""

    name = "alltoallv"
    versatile = False

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        (self.away,), (self.home,) = plan.away, plan.home
        away, home, size = self.away, self.home, plan.topology.comm.size
        largest = max(sum(away.nbytes), sum(home.nbytes))
        most = plan.topology.comm.allreduce(largest, op=MPI.MAX)
        self.unit = LINE
        while most // self.unit + size > limits.MOST_UNITS:
            self.unit *= 2
        self.type = _bytes_type(self.unit)
        self.offsets = away.offsets(self.unit), home.offsets(self.unit)
        self.counts_away = _by_rank(away, self.offsets[0], size)
        self.counts_home = _by_rank(home, self.offsets[1], size)

    def bind(self, call: Call) -> Flow:
        """Slice the arrays."""
        return _AlltoallvFlow(self, call)


class _AlltoallvFlow(Flow):
    def __init__(self, method: Alltoallv, call: Call) -> None:
        self._method = method
        self._away = [method.away.views(source) for source in call.sources]
        self._home = [method.home.views(target) for target in call.targets]

    def start(self) -> Callable[[], None]:
        """Pack everything and start one collective for each array."""
        finish = [self._start(*views) for views in zip(self._away, self._home, strict=True)]

        def complete() -> None:
            for each in finish:
                each()

        return complete

    def reserve(self) -> None:
        """Allocate all buffers."""
        sizes = [self._method.unit * starts[-1] for starts in self._method.offsets]
        _have_room(self._method.plan.buffers, sizes * len(self._away))

    def _start(self, away: list[Array], home: list[Array]) -> Callable[[], None]:
        method, plan, unit = self._method, self._method.plan, self._method.unit
        starts_away, starts_home = method.offsets
        outbox = plan.buffers.take(unit * starts_away[-1])
        inbox = plan.buffers.take(unit * starts_home[-1])
        for number, view in enumerate(away):
            copy(method.away.window(outbox, number, unit * starts_away[number]), view)
        request = plan.topology.comm.Ialltoallv(
            [outbox, *method.counts_away, method.type], [inbox, *method.counts_home, method.type]
        )

        def complete() -> None:
            request.Wait()
            for number, view in enumerate(home):
                copy(view, method.home.window(inbox, number, unit * starts_home[number]))
            plan.buffers.give(inbox)
            plan.buffers.give(outbox)

        return complete


def _by_rank(
    packing: Packing, offsets: list[int], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    counts = np.zeros(size, dtype=np.int64)
    starts = np.zeros(size, dtype=np.int64)
    for peer, start, stop in zip(packing.peers, offsets[:-1], offsets[1:], strict=True):
        if counts[peer] == 0:  # pieces for one peer lie one behind the other
            starts[peer] = start
        counts[peer] += stop - start
    return counts, starts


@cache
def _bytes_type(nbytes: int) -> MPI.Datatype:
    """Datatype of so many bytes: a few powers of two, kept, because plans come and go."""
    return MPI.BYTE.Create_contiguous(nbytes).Commit()


class Alltoallw(Method):
    """Nothing is packed: MPI walks the strides of source and target itself."""

    name = "alltoallw"
    versatile = False

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        (self.away,), (self.home,) = plan.away, plan.home
        self._made: dict[tuple[int, Strides], list[MPI.Datatype]] = {}

    def bind(self, call: Call) -> Flow:
        """Hold on to the arrays; datatypes depend on strides alone and are kept by the plan."""
        return _AlltoallwFlow(self, call)

    def types(self, packing: Packing, strides: Strides) -> list[MPI.Datatype]:
        """Datatype of what each rank gets of an array, or sends for it."""
        key = id(packing), strides
        if key not in self._made:
            if len(self._made) >= MOST_SETS:
                self._free(next(iter(self._made)))
            self._made[key] = _types_by_rank(packing, strides, self.plan.topology.comm.size)
        self._made[key] = self._made.pop(key)  # the latest is the last to go
        return self._made[key]

    def free(self) -> None:
        """Free the datatypes; what is under way still completes."""
        for key in list(self._made):
            self._free(key)

    def _free(self, key: tuple[int, Strides]) -> None:
        for kind in self._made.pop(key):
            if kind != MPI.BYTE:
                kind.Free()


class _AlltoallwFlow(Flow):
    def __init__(self, method: Alltoallw, call: Call) -> None:
        self._method = method
        self._call = call
        # Open MPI takes one address on both sides for a call in place, empty arrays or not.
        pairs = zip(call.sources, call.targets, strict=True)
        self._copy = call.aliased or any(address(u) == address(out) for u, out in pairs)

    def start(self) -> Callable[[], None]:
        """Start one collective for each pair of arrays; sources that share memory are copied."""
        buffers = self._method.plan.buffers
        copies: list[Bytes] = []
        sources = list(self._call.sources)
        if self._copy:
            copies = [buffers.take(source.nbytes) for source in sources]
            sources = [_copy_into(*pair) for pair in zip(copies, sources, strict=True)]
        requests = [self._start(*pair) for pair in zip(sources, self._call.targets, strict=True)]

        def complete() -> None:
            MPI.Request.Waitall(requests)
            for buffer in copies:
                buffers.give(buffer)

        return complete

    def reserve(self) -> None:
        """Allocate room for copies."""
        sizes = [source.nbytes for source in self._call.sources] if self._copy else []
        _have_room(self._method.plan.buffers, sizes)

    def _start(self, source: Array, target: Array) -> MPI.Request:
        plan = self._method.plan
        types_away = self._method.types(self._method.away, source.strides)
        types_home = self._method.types(self._method.home, target.strides)
        return plan.topology.comm.Ialltoallw(
            [mpi_buffer(source), *_ones(types_away), types_away],
            [mpi_buffer(target), *_ones(types_home), types_home],
        )


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


def _types_by_rank(packing: Packing, strides: Strides, size: int) -> list[MPI.Datatype]:
    parts: dict[int, list[tuple[int, MPI.Datatype]]] = {}
    skip = len(packing.lead)
    for piece, shape, nbytes in zip(packing.pieces, packing.shapes, packing.nbytes, strict=True):
        if nbytes == 0:
            continue
        start = sum(s.start * stride for s, stride in zip(piece.key, strides[skip:], strict=True))
        kind = _strided(shape, strides, packing.dtype.itemsize)
        parts.setdefault(piece.peer, []).append((start, kind))
    return [_joined(parts[rank]) if rank in parts else MPI.BYTE for rank in range(size)]


def _joined(parts: list[tuple[int, MPI.Datatype]]) -> MPI.Datatype:
    starts, kinds = zip(*parts, strict=True)
    whole = MPI.Datatype.Create_struct([1] * len(parts), list(starts), list(kinds)).Commit()
    for kind in kinds:
        kind.Free()
    return whole


def _strided(shape: tuple[int, ...], strides: Strides, itemsize: int) -> MPI.Datatype:
    """Datatype of the elements of an array, from its first one on; contiguous axes become one."""
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
    """Datatype of `count` times `kind`, `stride` bytes apart, in counts that MPI takes."""
    most = limits.MOST_UNITS
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
    if kind.Get_extent() == (0, stride):  # which MPI libraries do not notice by themselves
        return kind.Create_contiguous(count)
    return kind.Create_hvector(count, 1, stride)
