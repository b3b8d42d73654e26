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
# A program, and which points of each array it uses.
_Tips = tuple[LineProgram, list[list[tuple[int, int]]]]


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
        # The programs, when they are known: all arrays of one plan have the same points.
        self._tips: _Tips | None = None
        self._solution: tuple[LineProgram, int] | None = None

    def tips(self, given: Sequence[Array], tips: Array, axis: int) -> Callable[[], None]:
        """Prepare to compute the tips of the block: `width` first points and as many last ones.

        Points whose weights vanish are not read.
        """
        if self._tips is None:
            self._tips = self._tips_program([array.shape[axis] for array in given])
        program, used = self._tips
        sources, first = [], 0
        for array, ranges in zip(given, used, strict=True):
            for start, stop in ranges:
                part = array[(*(slice(None),) * axis, slice(start, stop))]
                sources.append(Rows(first, part))
                first += stop - start
        return prepare_lines(program, sources, [Rows(first, tips)], axis)

    def _tips_program(self, points: Sequence[int]) -> _Tips:
        """Make the program that computes tips, and find which points of the arrays it uses."""
        used = np.flatnonzero(np.any(self._weights, axis=0))
        ranges, at = [], 0
        for count in points:
            ranges.append(_ranges(used[(used >= at) & (used < at + count)] - at))
            at += count
        first = len(used)
        steps = [
            Step(first + tip, [Term(row, weight) for row, weight in enumerate(weights)])
            for tip, weights in enumerate(self._weights[:, used].tolist())
        ]
        return LineProgram(first + self._wide, steps), ranges

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
        sources, rows = [], 0
        for array in (*given, *beside):
            sources.append(Rows(rows, array))
            rows += array.shape[axis]
        if self._solution is None:
            self._solution = self._solution_program(
                rows, near=len(beside) > 1, several=len(given) > 1
            )
        program, base = self._solution
        return prepare_lines(program, sources, [Rows(base, out)], axis)

    def _solution_program(self, rows: int, *, near: bool, several: bool) -> tuple[LineProgram, int]:
        """Make the program that solves for all points; they are in rows after the returned one."""
        block, wide = self._block, self._wide
        known = rows if near else rows - wide
        steps = list(self._beside(rows - 2 * wide, known)) if near else []
        right: list[RightSide] = [
            [*side, *((known + unknown, -entry) for unknown, entry in outside.items())]
            for side, outside in zip(block.right, block.outside, strict=True)
        ]
        base = known + wide if interchanged(block.pivots) or several else 0
        steps += solution(block.pivots, right, base, Coefficients())
        return LineProgram(max(known + wide, base + block.points), steps), base

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
