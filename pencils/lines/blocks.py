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
        self._weights = self._given_weights()

    def tips(self, given: Sequence[Array], tips: Array, axis: int) -> Callable[[], None]:
        """Prepare to compute the tips of the block: `width` first points and as many last ones.

        Points whose weights vanish are not read.
        """
        used = np.flatnonzero(np.any(self._weights, axis=0))
        sources: list[Rows] = []
        columns: list[int] = []
        first = at = 0
        for array in given:
            points = array.shape[axis]
            for start, stop in _ranges(used[(used >= at) & (used < at + points)] - at):
                part = array[(*(slice(None),) * axis, slice(start, stop))]
                sources.append(Rows(first, part))
                columns += range(at + start, at + stop)
                first += stop - start
            at += points
        steps = [
            Step(first + tip, [Term(row, weights[column]) for row, column in enumerate(columns)])
            for tip, weights in enumerate(self._weights.tolist())
        ]
        program = LineProgram(first + self._wide, steps)
        return prepare_lines(program, sources, [Rows(first, tips)], axis)

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
        block, wide, near = self._block, self._wide, len(beside) > 1
        sources, first = [], 0
        for array in (*given, *beside):
            sources.append(Rows(first, array))
            first += array.shape[axis]
        known = first if near else first - wide
        steps = list(self._beside(first - 2 * wide, known)) if near else []
        rows = known + wide
        right: list[RightSide] = [
            [*side, *((known + unknown, -entry) for unknown, entry in outside.items())]
            for side, outside in zip(block.right, block.outside, strict=True)
        ]
        apart = interchanged(block.pivots) or len(given) > 1
        base = rows if apart else 0
        steps += solution(block.pivots, right, base, Coefficients())
        program = LineProgram(max(rows, base + block.points), steps)
        return prepare_lines(program, sources, [Rows(base, out)], axis)

    def _beside(self, tips: int, target: int) -> Iterator[Step]:
        """Yield steps that compute the unknowns outside from own tips and those of neighbours."""
        weights = self._reduction.near_weights(self._part)
        for unknown, row in enumerate(weights.tolist()):
            yield Step(target + unknown, [Term(tips + n, weight) for n, weight in enumerate(row)])

    def _given_weights(self) -> Array:
        """Weights of given points in the tips."""
        block, reach = self._block, self._reduction.reach
        weights = np.zeros((self._wide, block.points + 2 * reach), block.tips.dtype)
        for equation, side in enumerate(block.right):
            for point, weight in side:
                weights[:, point] += weight * block.tips[:, equation]
        return weights


def _ranges(numbers: Array) -> list[tuple[int, int]]:
    """Return the ranges of consecutive numbers."""
    if not numbers.size:
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(numbers, breaks)]
