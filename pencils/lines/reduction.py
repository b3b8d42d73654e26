"""Systems along lines that are cut in blocks, reduced to the points beside the cuts.

The method is SPIKE: E. Polizzi and A. Sameh, Parallel Computing 32 (2006) 177-194. Each block finds
the *tips* of its own solution, its first and last points, as weighted sums of what is given there.
The tips of all blocks determine the points beside the cuts, by a small matrix that is the same for
all lines; then each block solves for all of its points. Nothing is written in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from pencils.comm.line_program import LineProgram, Rows, Step, Term, prepare_lines
from pencils.lines.system import (
    Pivot,
    RightSide,
    Row,
    SingularError,
    System,
    consecutive,
    eliminate,
    interchanged,
    multiplied,
    plain_right,
    scales_of,
    solution,
    solve_directly,
)

Array = NDArray[Any]

# Weights that are left out, relative to the largest ones.
_NEGLIGIBLE = 1e-17
# Residual of a random line, relative to the sizes of its terms, up to which blocks are trusted.
_TRUSTED = 1e-13
# Unknowns beside cuts for which the inverse is computed on each rank.
_MOST_UNKNOWNS = 1024

# The own part of a matrix, which other blocks may have, too; its pivots, and weights in the tips.
Known: TypeAlias = "tuple[list[Row], Sequence[Pivot], Array]"


class BlockEquations(NamedTuple):
    """The equations of one block.

    Given points are numbered ``0 .. points - 1`` in the block; `reach` points before it follow, and
    `reach` points after it. Unknowns outside are the `width` ones before the block, and the `width`
    ones after it.
    """

    pivots: Sequence[Pivot]  # of the own part of the matrix
    outside: Sequence[dict[int, complex]]  # entries of the unknowns outside, in each equation
    right: Sequence[RightSide]
    tips: Array  # weights of right sides in the first `width` points and the last ones

    @property
    def points(self) -> int:
        """Number of equations."""
        return len(self.pivots)


class ReducedSystem:
    """A system along lines that are cut, reduced to the tips of its blocks.

    `cuts` are the first point of each block, and the end of the last one. Unknowns and given points
    of an equation are at most `width` and `reach` away from its own point. `weights`, of shape
    ``(blocks, 2 * width, blocks * 2 * width)``, are those of all tips in the unknowns outside each
    block. It is `near` if only tips of a block and its neighbours matter, beside the common cut.
    """

    def __init__(self, system: System, cuts: Sequence[int], width: int, reach: int) -> None:
        self.width, self.reach = width, reach
        self.cuts = cuts
        known: list[Known] = []
        self.blocks = [_block(system, *ends, width, reach, known) for ends in pairwise(cuts)]
        self.weights = self._weights()
        wide, self.near = 2 * width, True
        for number, weights in enumerate(self.weights):
            far = np.abs(weights)
            far[:, self._outside(number)] = 0
            far[:, number * wide : (number + 1) * wide] = 0
            largest = max(1.0, np.abs(weights).max(initial=0))
            self.near &= bool(far.max(initial=0) <= _NEGLIGIBLE * largest)

    @classmethod
    @np.errstate(all="ignore")
    def of(
        cls, system: System, cuts: Sequence[int], width: int, reach: int
    ) -> ReducedSystem | None:
        """Return the reduction if it is possible and accurate, else None."""
        blocks = [stop - start for start, stop in pairwise(cuts)]
        # Else a given point beside one end of a block could be taken for one beside the other end.
        if min(blocks) <= max(2 * width, 2 * reach - 1) or 2 * width * len(blocks) > _MOST_UNKNOWNS:
            return None
        try:
            found = cls(system, cuts, width, reach)
        except (SingularError, np.linalg.LinAlgError):
            return None
        return found if found._residual(system) <= _TRUSTED else None

    def _weights(self) -> Array:
        """Invert the matrix of all tips, and take the rows of unknowns outside each block."""
        wide, blocks = 2 * self.width, len(self.blocks)
        dtype = np.result_type(*(block.tips for block in self.blocks))
        matrix = np.eye(wide * blocks, dtype=dtype)
        used: list[Array] = []
        for number, block in enumerate(self.blocks):
            coupling = np.zeros((block.points, wide), matrix.dtype)
            for equation, row in enumerate(block.outside):
                for unknown, entry in row.items():
                    coupling[equation, unknown] = entry
            effect = block.tips @ coupling
            rows = slice(wide * number, wide * (number + 1))
            for unknown, column in enumerate(self._outside(number)):
                matrix[rows, column] += effect[:, unknown]
            used.append((coupling != 0).any(0))
        inverse = np.linalg.inv(matrix)
        return np.array(
            [inverse[self._outside(n)] * each[:, np.newaxis] for n, each in enumerate(used)]
        )

    def _outside(self, number: int) -> list[int]:
        """Numbers, among all tips, of the unknowns outside a block."""
        width, blocks = self.width, len(self.blocks)
        before = (number - 1) % blocks * 2 * width + width
        after = (number + 1) % blocks * 2 * width
        return [*range(before, before + width), *range(after, after + width)]

    def _residual(self, system: System) -> float:
        """Solve a random line by blocks, and return its largest residual."""
        wide = 2 * self.width
        sides = system.right_sides(system.random(1, self.weights.dtype))
        tips = [
            block.tips @ sides[start:stop]
            for block, (start, stop) in zip(self.blocks, pairwise(self.cuts), strict=True)
        ]
        outside = np.concatenate(self.weights) @ np.concatenate(tips)
        solved = []
        for number, block in enumerate(self.blocks):
            start, stop = self.cuts[number : number + 2]
            beside = outside[number * wide : (number + 1) * wide]
            own = sides[start:stop] - multiplied(block.outside, beside)
            steps = solution(block.pivots, plain_right(stop - start), stop - start)
            program = LineProgram(2 * (stop - start), steps)
            x = np.empty_like(own)
            prepare_lines(program, [Rows(0, own)], [Rows(stop - start, x)], 0)()
            solved.append(x)
        return float(system.residuals(np.concatenate(solved), sides).max(initial=0))

    def prepare_tips(
        self, part: int
    ) -> Callable[[Sequence[Array], Array, int], Callable[[], None]]:
        """Return a function that prepares to compute the tips of a block.

        It takes the own block and, if equations reach beyond it, the given points before and after
        it; the tips, `width` first points and as many last ones; and the axis of the lines. Points
        whose weights vanish are not read. Neither are tips computed that no unknown depends on: at
        the ends of lines that are no rings, half of them.
        """
        block, reach, wide = self.blocks[part], self.reach, 2 * self.width
        weights = np.zeros((wide, block.points + 2 * reach), block.tips.dtype)
        for equation, side in enumerate(block.right):
            for point, weight in side:
                weights[:, point] += weight * block.tips[:, equation]
        others = np.abs(self.weights[:, :, part * wide : (part + 1) * wide])
        weights[~(others.max((0, 1)) > _NEGLIGIBLE * np.abs(self.weights).max())] = 0
        used = np.any(weights, axis=0)
        starts = [0, block.points, block.points + reach]
        ranges = [
            _ranges(np.flatnonzero(each)) for each in np.split(used, starts[1:] if reach else [])
        ]
        weights = weights[:, used]
        first = weights.shape[1]
        steps = [
            Step(first + tip, [Term(point, weight) for point, weight in enumerate(row) if weight])
            for tip, row in enumerate(weights.tolist())
        ]
        program = LineProgram(first + wide, steps)

        def prepare(given: Sequence[Array], tips: Array, axis: int) -> Callable[[], None]:
            sources = [
                array[(*(slice(None),) * axis, slice(start, stop))]
                for array, each in zip(given, ranges, strict=True)
                for start, stop in each
            ]
            return prepare_lines(program, consecutive(sources, axis), [Rows(first, tips)], axis)

        return prepare

    def prepare_solution(
        self, part: int
    ) -> Callable[[Sequence[Array], Array, int], Callable[[], None]]:
        """Return a function that prepares to solve for all points of a block.

        It takes what is given, as for `prepare_tips`, and after it the unknowns before and after
        the block; or, if the reduction is near, the tips of this block, and those of the neighbours
        beside the cuts. Then the solution, which may be the first array given, and the axis. Own
        unknowns take the place of given points, unless these are needed later.
        """
        block, wide = self.blocks[part], 2 * self.width
        known, steps = block.points + 2 * self.reach, []
        if self.near:  # two neighbours are one and the same if there are two blocks
            columns = [*range(part * wide, (part + 1) * wide), *self._outside(part)]
            tips, known = known, known + 2 * wide
            for unknown, row in enumerate(self.weights[part][:, columns].tolist()):
                terms = [Term(tips + n, weight) for n, weight in enumerate(row)]
                steps.append(Step(known + unknown, terms))
        right: list[RightSide] = [
            [*side, *((known + unknown, -entry) for unknown, entry in outside.items())]
            for side, outside in zip(block.right, block.outside, strict=True)
        ]
        apart = interchanged(block.pivots) or self.reach > 0
        rows = known + wide
        base = rows if apart else 0
        steps += solution(block.pivots, right, base)
        program = LineProgram(rows + block.points if apart else rows, steps)

        def prepare(given: Sequence[Array], out: Array, axis: int) -> Callable[[], None]:
            return prepare_lines(program, consecutive(given, axis), [Rows(base, out)], axis)

        return prepare


def _block(  # noqa: PLR0917
    system: System, start: int, stop: int, width: int, reach: int, known: list[Known]
) -> BlockEquations:
    """Return the equations of the points ``start .. stop - 1``, and add what is not known yet."""
    points = stop - start
    matrix: list[Row] = [{} for _ in range(points)]
    outside: list[dict[int, complex]] = [{} for _ in range(points)]
    right: list[RightSide] = []
    for equation in range(points):
        for column, entry in system.matrix[start + equation].items():
            number = _local_number(column, start, stop, width, system.points)
            if number < points:
                matrix[equation][number] = entry
            else:
                outside[equation][number - points] = cast("complex", entry)
        side = system.right[start + equation]
        right.append(
            [
                (_local_number(point, start, stop, reach, system.points), weight)
                for point, weight in side
            ]
        )
    found = next((each for each in known if each[0] == matrix), None)
    if found is None:
        found = matrix, eliminate(matrix), _tips(matrix, width)
        known.append(found)
    # Equations may be of very different size: what counts is what they contribute.
    sizes = np.abs(found[2]) * scales_of(system.matrix[start:stop])
    tips = np.where(sizes < _NEGLIGIBLE * sizes.max(1, keepdims=True), 0, found[2])
    return BlockEquations(found[1], outside, right, tips)


def _tips(matrix: Sequence[Row], width: int) -> Array:
    """Weights of right sides in the tips: rows of the inverse, found by the transposed matrix."""
    points = len(matrix)
    transposed: list[Row] = [{} for _ in range(points)]
    for equation, row in enumerate(matrix):
        for column, entry in row.items():
            transposed[column][equation] = entry
    numbers = [entry for row in matrix for entry in row.values()]
    ends = np.zeros((points, 2 * width), np.result_type(float, np.array(numbers).dtype))
    for tip in range(width):
        ends[tip, tip] = ends[points - width + tip, width + tip] = 1
    return solve_directly(System(transposed, plain_right(points)), ends).T


def _local_number(column: int, start: int, stop: int, around: int, points: int) -> int:
    """Return the number of a point of the line in a block and its surroundings."""
    if start <= column < stop:
        return column - start
    before = (start - column) % points
    if before <= around:
        return stop - start + around - before
    return stop - start + around + (column - stop) % points


def _ranges(numbers: Array) -> list[tuple[int, int]]:
    """Return the ranges of consecutive numbers."""
    if not numbers.size:
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(numbers, breaks)]
