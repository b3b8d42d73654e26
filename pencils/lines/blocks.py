"""Line programs of one block of a reduced system: its tips, and its solution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.line_program import LineProgram, Rows, Step, Term, prepare_lines
from pencils.lines.elimination import Coefficients, RightSide, interchanged, solution
from pencils.lines.reduction import Reduction

Array = NDArray[Any]


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
