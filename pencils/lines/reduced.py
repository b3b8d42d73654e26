"""Lines that are cut, solved by blocks: see `pencils.lines.reduction`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange, Handle, PreparedExchange
from pencils.comm.pack import MessageBlock, MessageSpec, no_op
from pencils.comm.reduce import multiply
from pencils.comm.shared_memory import Buffers
from pencils.lines.methods import REDUCED, Bound, Lines, Run
from pencils.lines.reduction import Reduction

T = TypeVar("T")


class Reduced:
    """Blocks exchange their tips, and solve for their points when they know those beside them.

    Making it is *Collective*. `wraps` tells whether the last part is beside the first one.
    """

    name = REDUCED

    def __init__(self, lines: Lines, reduction: Reduction, *, wraps: bool) -> None:
        self._lines, part, wide = lines, lines.part, 2 * reduction.width
        points = [block.points for block in reduction.blocks]
        self._halo: list[Neighbors] = []  # one, if equations reach beyond blocks
        tips: Neighbors | AllTips
        with agreed(lines.pencil.topology.comm, "LineSolver"):  # one rank may have no memory
            self._prepare_tips = reduction.prepare_tips(part)
            self._prepare_solution = reduction.prepare_solution(part)
            self._tips = np.zeros(lines.shape(wide), lines.spec.dtype)
            if reduction.reach:
                self._halo = [Neighbors(lines, reduction.reach, points, wraps=wraps)]
            if reduction.near:
                tips = Neighbors(lines, reduction.width, [wide] * len(points), wraps=wraps)
                self._beside = [self._tips, *tips.ends]
            else:
                tips = AllTips(lines, reduction, self._tips)
                self._beside = [tips.beside]
        self._exchanges = [*self._halo, tips]
        buffers = Buffers()
        for exchange in self._exchanges:
            exchange.connect(buffers)
        self._between = tips.prepare(self._tips) if isinstance(tips, Neighbors) else tips

    def bind(self, b: PencilArray, out: PencilArray) -> Bound:
        """Prepare to compute tips, and to solve for the points of the own block; local."""
        lines, between, topology = self._lines, self._between, self._lines.pencil.topology
        block = lines.block(b)
        given = [block, *(end for halo in self._halo for end in halo.ends)]
        ghosts = [halo.prepare(block) for halo in self._halo]
        find_tips = self._prepare_tips(given, self._tips, lines.axis)
        solve = self._prepare_solution([*given, *self._beside], lines.block(out), lines.axis)

        def begin() -> None:
            topology.complete()  # an older solve may use the tips
            for each in ghosts:
                each.run()
            find_tips()

        def run() -> None:
            begin()
            between.run()
            solve()

        def reserve() -> None:
            for each in (*ghosts, between):
                each.reserve()

        def start(result: T, _source: object) -> Handle[T]:  # which the solve keeps
            begin()
            return between.start(result, solve)

        return Bound(run, reserve, start)

    def free(self) -> None:
        """Free the exchanges."""
        for exchange in self._exchanges:
            exchange.free()


class Neighbors:
    """The points beside both ends of a block, from the ranks that have them.

    Parameters
    ----------
    lines : Lines
        The lines.
    width : int
        Number of points on each side.
    points : sequence of int
        Points along the lines in the arrays of each part.
    wraps : bool
        Whether the last part is beside the first one.

    Attributes
    ----------
    ends : list of ndarray
        Points before and after the block, axes in memory order; zeros where lines end.
    """

    def __init__(self, lines: Lines, width: int, points: Sequence[int], *, wraps: bool) -> None:
        self._lines, self._width, self._points, self._wraps = lines, width, points, wraps
        self.ends = [np.zeros(lines.shape(width), lines.spec.dtype) for _ in range(2)]
        self._exchange: Exchange

    def connect(self, buffers: Buffers) -> None:
        """Make the exchange, which uses buffers of the plan. *Collective*."""
        specs = [self._spec(1), self._spec(-1)]
        axes = self.ends[0].ndim
        self._exchange = Exchange(self._lines.pencil.topology, specs, axes=axes, buffers=buffers)

    def prepare(self, block: Array) -> PreparedExchange:
        """Prepare to send the ends of a block, and to fill `ends`; local."""
        return self._exchange.prepare([block, block], self.ends, disjoint=True)

    def free(self) -> None:
        """Free the exchange."""
        self._exchange.free()

    def _spec(self, step: int) -> MessageSpec:
        """Messages to the part that is one step further, and from the one before."""
        lines, width, parts = self._lines, self._width, len(self._points)
        shape = self.ends[0].shape
        blocks: list[list[MessageBlock]] = []
        for part, sends in ((lines.part + step, True), (lines.part - step, False)):
            blocks.append([])
            if not self._wraps and not 0 <= part < parts:
                continue
            owner = lines.part if sends else part % parts  # of the array that is sent
            start = self._points[owner] - width if step > 0 else 0
            key = _key(shape, {lines.axis: (start, width)} if sends else {})
            at = _start(shape, {} if sends else {lines.axis: start})
            blocks[-1].append(MessageBlock(lines.peer(part % parts), key, at))
        sent, received = map(_filled, blocks)
        return MessageSpec(sent, received, (), lines.spec.dtype)


class AllTips:
    """The points beside a block, computed from the tips of all blocks.

    Each rank gets the tips of all blocks for some of the lines, and sends the results back: no rank
    holds more than twice the tips of one block. `beside` are the points before and after the own
    block, axes in memory order. The other methods are those of a `PreparedExchange`.
    """

    def __init__(self, lines: Lines, reduction: Reduction, tips: Array) -> None:
        wide, parts, dtype = 2 * reduction.width, len(reduction.blocks), lines.spec.dtype
        self.beside = np.zeros_like(tips)
        self._matrix = reduction.weights.reshape(wide * parts, wide * parts).astype(dtype)
        # With one more axis there is always one by which lines can be divided.
        axis, shape = lines.axis + 1, (1, *tips.shape)
        others = (each for each in range(len(shape)) if each != axis)
        share = max(others, key=lambda each: shape[each])
        cuts = [part * shape[share] // parts for part in range(parts + 1)]
        first, stop = cuts[lines.part : lines.part + 2]
        mine = [*shape[:axis], *shape[axis + 1 :]]
        mine[share - (share > axis)] = stop - first
        self._all, self._found = (np.zeros((wide * parts, *mine), dtype) for _ in range(2))
        gather, spread = [], []
        for part in range(parts):
            peer = lines.peer(part)
            lo, count = cuts[part], cuts[part + 1] - cuts[part]
            here = _key(shape, {share: (lo, count)})
            there = _start(shape, {axis: lines.part * wide})
            block = _key(shape, {axis: (part * wide, wide), share: (0, stop - first)})
            start = _start(shape, {share: first})
            gather.append((MessageBlock(peer, here, there), MessageBlock(peer, block, start)))
            spread.append((MessageBlock(peer, block, start), MessageBlock(peer, here, there)))
        views = [np.moveaxis(array, 0, axis) for array in (self._all, self._found)]
        self._topology = lines.pencil.topology
        self._moves = [
            (gather, tips[np.newaxis], views[0]),
            (spread, views[1], self.beside[np.newaxis]),
        ]
        self._exchanges: list[Exchange] = []
        self._prepared: list[PreparedExchange] = []

    def connect(self, buffers: Buffers) -> None:
        """Make the exchanges, which use buffers of the plan. *Collective*."""
        for blocks, source, target in self._moves:
            sends, recvs = zip(*blocks, strict=True)
            spec = MessageSpec(_filled(sends), _filled(recvs), (), source.dtype)
            exchange = Exchange(self._topology, [spec], axes=source.ndim, buffers=buffers)
            self._exchanges.append(exchange)
            self._prepared.append(exchange.prepare([source], [target]))

    def reserve(self) -> None:
        """Allocate what the exchanges need; local."""
        for prepared in self._prepared:
            prepared.reserve()

    def run(self) -> None:
        """Exchange and compute. *Collective*."""
        self._prepared[0].run()
        self._finish()

    def start(self, result: T, after: Run = no_op) -> Handle[T]:
        """Start; waiting computes, sends the results back, and calls `after`. *Collective*."""

        def finish() -> None:
            self._finish()
            after()

        return self._prepared[0].start(result, finish)

    def free(self) -> None:
        """Free the exchanges."""
        for exchange in self._exchanges:
            exchange.free()

    def _finish(self) -> None:
        rows = len(self._matrix)
        with np.errstate(all="ignore"):  # a warning that is an error would be one of this rank only
            multiply(self._matrix, self._all.reshape(rows, -1), self._found.reshape(rows, -1))
        self._prepared[1].move()


def _key(shape: Sequence[int], parts: Mapping[int, tuple[int, int]]) -> tuple[slice, ...]:
    """Index of a box: along some axes from a start on so many points, whole along the others."""
    bounds = (parts.get(axis, (0, n)) for axis, n in enumerate(shape))
    return tuple(slice(start, start + count) for start, count in bounds)


def _start(shape: Sequence[int], starts: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(starts.get(axis, 0) for axis in range(len(shape)))


def _filled(blocks: Sequence[MessageBlock]) -> list[MessageBlock]:
    """Leave out blocks without points."""
    return [block for block in blocks if all(part.start < part.stop for part in block.key)]
