"""Lines that are cut, solved by blocks: see `pencils.lines.reduction`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange, Handle, PreparedExchange
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.reduce import multiply
from pencils.comm.shared_memory import Buffers
from pencils.layout.build import change_layout
from pencils.lines.methods import REDUCED, Bound, Lines, Run, transposed
from pencils.lines.reduction import ReducedSystem

T = TypeVar("T")


class Reduced:
    """Blocks exchange their tips, and solve for their points when they know those beside them.

    Making it is *Collective*. `wraps` tells whether the last part is beside the first one.
    """

    name = REDUCED

    def __init__(self, lines: Lines, reduction: ReducedSystem, *, wraps: bool) -> None:
        self._lines, part, wide = lines, lines.part, 2 * reduction.width
        points = [block.points for block in reduction.blocks]
        topology, buffers = lines.pencil.topology, Buffers()
        neighbors: list[Neighbors] = []  # beside blocks, if equations reach there; beside tips
        with agreed(topology.comm, "LineSolver"):  # one rank may have no memory
            self._prepare_tips = reduction.prepare_tips(part)
            self._prepare_solution = reduction.prepare_solution(part)
            if reduction.reach:
                neighbors.append(Neighbors(lines, reduction.reach, points, wraps=wraps))
            if reduction.near:
                self._tips = np.zeros(lines.shape(wide), lines.spec.dtype)
                near = Neighbors(lines, reduction.width, [wide] * len(points), wraps=wraps)
                self._beside = [self._tips, *near.ends]
                neighbors.append(near)
            else:
                of_tips = _lines_of_tips(lines, wide, len(points))
                fields = [PencilArray.allocated(of_tips.pencil, *lines.spec) for _ in range(2)]
                self._tips, beside = map(of_tips.block, fields)
                self._beside = [beside]
                matrix, whole = np.concatenate(reduction.weights), of_tips.whole
                matrix = matrix.astype(lines.spec.dtype, copy=False)
        for each in neighbors:
            each.connect(buffers)
        self._halo = neighbors[: reduction.reach > 0]
        self._free: list[Run] = [each.free for each in neighbors]
        self._between: Bound | PreparedExchange
        if reduction.near:
            self._between = near.prepare(self._tips)
        else:
            method = transposed(of_tips, whole, partial(_prepare_product, matrix))
            self._free.append(method.free)
            self._between = method.bind(*fields)

    def bind(self, b: PencilArray, out: PencilArray) -> Bound:
        """Prepare to compute tips, and to solve for the points of the own block; local."""
        lines, between, topology = self._lines, self._between, self._lines.pencil.topology
        block = lines.block(b)
        given = [block, *(end for halo in self._halo for end in halo.ends)]
        ghosts = [halo.prepare(block) for halo in self._halo]
        find_tips = self._prepare_tips(given, self._tips, lines.axis)
        solve = self._prepare_solution([*given, *self._beside], lines.block(out), lines.axis)

        def find() -> None:
            topology.complete()  # an older solve may use the tips
            for each in ghosts:
                each.run()
            find_tips()

        def run() -> None:
            find()
            between.run()
            solve()

        def reserve() -> None:
            for each in (*ghosts, between):
                each.reserve()

        def begin(result: T, source: object, _after: Run) -> Handle[T]:
            find()
            if isinstance(between, Bound):
                return between.start(result, source, solve)
            return between.start(result, solve)

        return Bound(run, reserve, begin)

    def free(self) -> None:
        """Free the exchanges."""
        for free in self._free:
            free()


def _lines_of_tips(lines: Lines, wide: int, parts: int) -> Lines:
    """Lines that have the tips of each block instead of its points."""
    layout = lines.pencil.layout
    shape, splits = list(layout.shape), list(layout.split_specs)
    shape[lines.dim] = wide * parts
    splits[lines.dim] = tuple(range(0, wide * parts + 1, wide))
    pencil = lines.pencil.sibling(change_layout(layout, shape=shape, splits=splits))
    return lines._replace(pencil=pencil)


def _prepare_product(
    matrix: Array, sources: Sequence[Array], targets: Sequence[Array], axis: int
) -> Run:
    """Prepare to multiply whole lines by a matrix: a `Solver`."""
    source, target = (np.moveaxis(each, axis, 0) for (each,) in (sources, targets))
    given, found = (np.empty(source.shape, source.dtype) for _ in range(2))

    def run() -> None:
        np.copyto(given, source)
        with np.errstate(all="ignore"):  # a warning that is an error would be one of this rank only
            multiply(matrix, given.reshape(len(given), -1), found.reshape(len(given), -1))
        np.copyto(target, found)

    return run


class Neighbors:
    """The points beside both ends of a block, `width` on each side, from ranks that have them.

    `points` are the points along the lines in the arrays of each part; if it `wraps`, the last part
    is beside the first one. In `ends` are the points before and after the block, axes in memory
    order; zeros where lines end.
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
        lines, shape, parts = self._lines, self.ends[0].shape, len(self._points)

        def at(start: int) -> tuple[int, ...]:
            return tuple(start if axis == lines.axis else 0 for axis in range(len(shape)))

        blocks: tuple[list[MessageBlock], list[MessageBlock]] = [], []
        for found, part in zip(blocks, (lines.part + step, lines.part - step), strict=True):
            if 0 in shape or not (self._wraps or 0 <= part < parts):
                continue
            sender = lines.part if found is blocks[0] else part % parts
            end, first = at(self._points[sender] - self._width if step > 0 else 0), at(0)
            here, there = (end, first) if found is blocks[0] else (first, end)
            key = tuple(slice(i, i + n) for i, n in zip(here, shape, strict=True))
            found.append(MessageBlock(lines.peer(part % parts), key, there))
        return MessageSpec(*blocks, (), lines.spec.dtype)
