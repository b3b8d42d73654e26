"""Lines that are cut, solved by blocks: see `pencils.lines.reduction`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange, Handle, PreparedExchange
from pencils.comm.line_program import LineProgram, Rows, Step, Term, prepare_lines
from pencils.comm.pack import MessageBlock, MessageSpec, no_op
from pencils.comm.reduce import multiply
from pencils.comm.shared_memory import Buffers
from pencils.lines.elimination import Coefficients, RightSide, interchanged, solution
from pencils.lines.methods import Bound, LineMethod, Lines, Solve
from pencils.lines.reduction import Reduction

T = TypeVar("T")


class Reduced(LineMethod):
    """Blocks exchange their tips, and solve for their points when they know those beside them."""

    name = "reduced"

    def __init__(self, lines: Lines, reduction: Reduction, *, wraps: bool) -> None:
        self.topology = lines.pencil.topology
        self._lines = lines
        self._halo: Neighbors | None = None
        points = [block.points for block in reduction.blocks]
        wide = 2 * reduction.width
        with agreed(self.topology.comm, "LineSolver"):  # all ranks have the memory, or none goes on
            self._programs = BlockPrograms(reduction, lines.part)
            self._tips = np.zeros(lines.shape(wide), lines.spec.dtype)
            if reduction.reach:
                self._halo = Neighbors(lines, reduction.reach, points, wraps=wraps)
            tips: Neighbors | AllTips
            if reduction.near:
                tips = Neighbors(lines, reduction.width, [wide] * len(points), wraps=wraps)
                self._beside = [self._tips, *tips.ends]
            else:
                tips = AllTips(lines, reduction, self._tips)
                self._beside = [tips.beside]
        self._exchanges = [tips] if self._halo is None else [self._halo, tips]
        buffers = Buffers()
        for exchange in self._exchanges:
            exchange.connect(buffers)
        self.between: Between = tips.prepare(self._tips) if isinstance(tips, Neighbors) else tips

    def bind(self, b: PencilArray, out: PencilArray) -> Bound:
        """Prepare to compute tips, and to solve for the points of the own block."""
        block, target, axis = self._lines.block(b), self._lines.block(out), self._lines.axis
        given, halo = [block], None
        if self._halo is not None:
            given, halo = [block, *self._halo.ends], self._halo.prepare(block)
        tips = self._programs.tips(given, self._tips, axis)
        solve = self._programs.solution(given, self._beside, target, axis)
        return BoundReduced(self, halo, tips, solve)

    def free(self) -> None:
        """Free the exchanges."""
        for exchange in self._exchanges:
            exchange.free()


class BoundReduced:
    """A solve of given blocks: tips, an exchange of tips, and the solution."""

    def __init__(
        self, method: Reduced, halo: PreparedExchange | None, tips: Solve, solve: Solve
    ) -> None:
        self._topology = method.topology
        self._between = method.between
        self._halo = halo
        self._tips = tips
        self._solve = solve

    def reserve(self) -> None:
        """Allocate what the exchanges need."""
        if self._halo is not None:
            self._halo.reserve()
        self._between.reserve()

    def run(self) -> None:
        """Solve. *Collective*."""
        self._begin()
        self._between.run()
        self._solve()

    def start(self, result: T, source: object) -> Handle[T]:  # noqa: ARG002 - kept by the solve
        """Send the tips; the block is solved when those of the others have come. *Collective*."""
        self._begin()
        return self._between.start(result, self._solve)

    def _begin(self) -> None:
        self._topology.complete()  # an older solve may use the tips
        if self._halo is not None:
            self._halo.run()
        self._tips()


class Between(Protocol):
    """An exchange of tips, with methods of `PreparedExchange`."""

    def reserve(self) -> None:
        """Allocate what the next call needs; local."""

    def run(self) -> None:
        """Exchange. *Collective*."""

    def start(self, result: T, after: Solve = ...) -> Handle[T]:
        """Start to exchange; waiting calls `after` last. *Collective*."""


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
        lines, width, shape = self._lines, self._width, self.ends[0].shape
        starts = [n - width if step > 0 else 0 for n in self._points]
        sends, recvs = [], []
        target, source = self._part(lines.part + step), self._part(lines.part - step)
        if target is not None:
            key = _key(shape, {lines.axis: (starts[lines.part], width)})
            sends.append(MessageBlock(lines.peer(target), key, (0,) * len(shape)))
        if source is not None:
            start = _start(shape, {lines.axis: starts[source]})
            recvs.append(MessageBlock(lines.peer(source), _key(shape, {}), start))
        return MessageSpec(_filled(sends), _filled(recvs), (), lines.spec.dtype)

    def _part(self, part: int) -> int | None:
        parts = len(self._points)
        if self._wraps:
            return part % parts
        return part if 0 <= part < parts else None


class AllTips:
    """The points beside a block, computed from the tips of all blocks.

    Each rank gets the tips of all blocks for some of the lines, and sends the results back: no rank
    holds more than twice the tips of one block.

    Attributes
    ----------
    beside : ndarray
        Points before and after the own block, axes in memory order.
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

    def start(self, result: T, after: Solve = no_op) -> Handle[T]:
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


class BlockPrograms:
    """What one rank executes for its block.

    Arrays have the axis of the lines at the same place. `given` is the own block and, if equations
    reach beyond it, the given points before and after the block.

    Parameters
    ----------
    reduction : Reduction
        The system.
    part : int
        Number of the block.
    """

    def __init__(self, reduction: Reduction, part: int) -> None:
        self._reduction = reduction
        self._block = reduction.blocks[part]
        self._part = part
        self._wide = 2 * reduction.width
        self._apart = interchanged(self._block.pivots) or reduction.reach > 0
        weights = self._given_weights()
        self._used = self._used_points(weights)
        self._tips = self._tips_program(weights)
        self._solution = self._solution_program()

    def tips(self, given: Sequence[Array], tips: Array, axis: int) -> Callable[[], None]:
        """Prepare to compute the tips of the block: `width` first points and as many last ones.

        Points whose weights vanish are not read.
        """
        sources, first = [], 0
        for array, ranges in zip(given, self._used, strict=True):
            for start, stop in ranges:
                part = array[(*(slice(None),) * axis, slice(start, stop))]
                sources.append(Rows(first, part))
                first += stop - start
        return prepare_lines(self._tips, sources, [Rows(first, tips)], axis)

    def solution(
        self, given: Sequence[Array], beside: Sequence[Array], out: Array, axis: int
    ) -> Callable[[], None]:
        """Prepare to solve for all points of the block.

        Parameters
        ----------
        given : sequence of ndarray
            As for `tips`.
        beside : sequence of ndarray
            The unknowns before and after the block. Or the tips of this block, and those of the
            neighbours beside the cuts, if the reduction is near.
        out : ndarray
            Where the solution is written; may be the first one of `given`.
        axis : int
            Axis of the lines.
        """
        sources, first = [], 0
        for array in (*given, *beside):
            sources.append(Rows(first, array))
            first += array.shape[axis]
        base = self._solution.rows - self._block.points if self._apart else 0
        return prepare_lines(self._solution, sources, [Rows(base, out)], axis)

    def _used_points(self, weights: Array) -> list[list[tuple[int, int]]]:
        """List ranges of points on which the tips depend, for each of the arrays given."""
        block, reach = self._block, self._reduction.reach
        ends = [block.points, block.points + reach, block.points + 2 * reach]
        used = np.any(weights, axis=0)
        arrays = np.split(used, ends[:-1]) if reach else [used]
        return [_ranges(np.flatnonzero(each)) for each in arrays]

    def _tips_program(self, weights: Array) -> LineProgram:
        """Return the program whose buffer has the points in use, and then the tips."""
        weights = weights[:, np.any(weights, axis=0)]
        first = weights.shape[1]
        steps = [
            Step(first + tip, [Term(point, weight) for point, weight in enumerate(row) if weight])
            for tip, row in enumerate(weights.tolist())
        ]
        return LineProgram(first + self._wide, steps)

    def _solution_program(self) -> LineProgram:
        """Return the program whose buffer has what is given, unknowns beside, and own ones.

        Own unknowns take the place of given points, unless these are needed later.
        """
        block, reduction = self._block, self._reduction
        known, steps = block.points + 2 * reduction.reach, []
        if reduction.near:
            tips, known = known, known + 2 * self._wide
            steps = list(self._beside(tips, known))
        right: list[RightSide] = [
            [*side, *((known + unknown, -entry) for unknown, entry in outside.items())]
            for side, outside in zip(block.right, block.outside, strict=True)
        ]
        rows = known + self._wide
        steps += solution(block.pivots, right, rows if self._apart else 0, Coefficients())
        return LineProgram(rows + block.points if self._apart else rows, steps)

    def _beside(self, tips: int, target: int) -> Iterator[Step]:
        """Yield steps that compute the unknowns outside from own tips and those of neighbours."""
        weights = self._reduction.near_weights(self._part)
        for unknown, row in enumerate(weights.tolist()):
            yield Step(target + unknown, [Term(tips + n, weight) for n, weight in enumerate(row)])

    def _given_weights(self) -> Array:
        """Weights of given points in the tips; 0 in tips that no unknown beside a cut depends on.

        At the ends of lines that are no rings, half of the tips are of no use.
        """
        block, reach = self._block, self._reduction.reach
        weights = np.zeros((self._wide, block.points + 2 * reach), block.tips.dtype)
        for equation, side in enumerate(block.right):
            for point, weight in side:
                weights[:, point] += weight * block.tips[:, equation]
        weights[~self._reduction.useful_tips(self._part)] = 0
        return weights


def _ranges(numbers: Array) -> list[tuple[int, int]]:
    """Return the ranges of consecutive numbers."""
    if not numbers.size:
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(numbers, breaks)]
