"""Systems along lines that are cut in blocks, reduced to the points beside the cuts.

The method is SPIKE: E. Polizzi and A. Sameh, Parallel Computing 32 (2006) 177-194. Each block finds
the *tips* of its own solution, its first and last points, as weighted sums of what is given there.
The tips of all blocks determine the points beside the cuts, by a small matrix that is the same for
all lines; then each block solves for all of its points. Nothing is written in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pencils.comm.line_program import LineProgram, Rows, prepare_lines
from pencils.lines.elimination import (
    Coefficients,
    Pivot,
    RightSide,
    Row,
    SingularError,
    eliminate,
    scales_of,
    solution,
)
from pencils.lines.system import System, multiplied, plain_right, solve_directly

Array = NDArray[Any]

# Weights that are left out, relative to the largest ones.
_NEGLIGIBLE = 1e-17
# Residual of a random line, relative to the sizes of its terms, up to which blocks are trusted.
_TRUSTED = 1e-13
# Unknowns beside cuts for which the inverse is computed on each rank.
_MOST_UNKNOWNS = 1024


class Block(NamedTuple):
    """The equations of one block.

    Given points are numbered ``0 .. points - 1`` in the block; `reach` points before it follow, and
    `reach` points after it. Unknowns outside are the `width` ones before the block, and the `width`
    ones after it.

    Attributes
    ----------
    pivots : list of Pivot
        Factors of the own part of the matrix.
    outside : list of dict
        Entries of the unknowns outside, ``0 .. 2 * width - 1``, in each equation.
    right : list of list of (int, float)
        Right side of each equation.
    tips : ndarray, shape (2 * width, points)
        Weights of right sides in the tips: the first `width` points and the last ones.
    """

    pivots: Sequence[Pivot]
    outside: Sequence[dict[int, complex]]
    right: Sequence[RightSide]
    tips: Array

    @property
    def points(self) -> int:
        """Number of equations."""
        return len(self.pivots)


class Reduction:
    """A system along lines that are cut, reduced to the tips of its blocks.

    Parameters
    ----------
    system : System
        Equations whose entries are numbers.
    cuts : sequence of int
        First point of each block, and the end of the last one.
    width, reach : int
        How far unknowns and given points of an equation may be away from its own point.

    Raises
    ------
    SingularError
        If a pivot of a block vanishes, or the matrix of all tips is singular.

    Attributes
    ----------
    blocks : list of Block
        The blocks.
    weights : ndarray, shape (blocks, 2 * width, blocks * 2 * width)
        Weights of all tips in the unknowns outside each block.
    near : bool
        Whether only tips of a block and its neighbours matter, and these beside the common cut.
    """

    def __init__(self, system: System, cuts: Sequence[int], width: int, reach: int) -> None:
        self.width, self.reach = width, reach
        self.cuts = cuts
        known: list[_Known] = []
        self.blocks = [_block(system, *ends, width, reach, known) for ends in pairwise(cuts)]
        self.weights = self._weights()
        self.near = self._is_near()

    @classmethod
    @np.errstate(all="ignore")
    def of(cls, system: System, cuts: Sequence[int], width: int, reach: int) -> Reduction | None:
        """Return the reduction if it is possible and accurate, else None."""
        blocks = [stop - start for start, stop in pairwise(cuts)]
        # Else a given point beside one end of a block could be taken for one beside the other end.
        if min(blocks) <= max(2 * width, 2 * reach - 1) or 2 * width * len(blocks) > _MOST_UNKNOWNS:
            return None
        try:
            found = cls(system, cuts, width, reach)
        except (SingularError, np.linalg.LinAlgError):
            return None
        return found if found.residual(system) <= _TRUSTED else None

    def _weights(self) -> Array:
        """Invert the matrix of all tips, and take the rows of unknowns outside each block."""
        wide, blocks = 2 * self.width, len(self.blocks)
        dtype = np.result_type(*(block.tips for block in self.blocks))
        matrix = np.eye(wide * blocks, dtype=dtype)
        outside = [self._outside(number) for number in range(blocks)]
        known: list[Array] = []
        for number, block in enumerate(self.blocks):
            coupling = np.zeros((block.points, wide), matrix.dtype)
            for equation, row in enumerate(block.outside):
                for unknown, entry in row.items():
                    coupling[equation, unknown] = entry
            effect = block.tips @ coupling
            rows = slice(wide * number, wide * (number + 1))
            for unknown, place in enumerate(outside[number]):
                matrix[rows, place] += effect[:, unknown]
            known.append((coupling != 0).any(0))
        inverse = np.linalg.inv(matrix)
        pairs = zip(outside, known, strict=True)
        return np.array([inverse[places] * used[:, np.newaxis] for places, used in pairs])

    def _outside(self, number: int) -> list[int]:
        """Numbers, among all tips, of the unknowns outside a block."""
        width, blocks = self.width, len(self.blocks)
        before = (number - 1) % blocks * 2 * width + width
        after = (number + 1) % blocks * 2 * width
        return [*range(before, before + width), *range(after, after + width)]

    def _is_near(self) -> bool:
        wide = 2 * self.width
        for number, weights in enumerate(self.weights):
            far = np.abs(weights)
            far[:, self._outside(number)] = 0
            far[:, number * wide : (number + 1) * wide] = 0
            if far.max(initial=0) > _NEGLIGIBLE * max(1.0, np.abs(weights).max(initial=0)):
                return False
        return True

    def useful_tips(self, number: int) -> Array:
        """Whether some unknown outside a block depends on each of the tips of block `number`."""
        wide = 2 * self.width
        weights = np.abs(self.weights[:, :, number * wide : (number + 1) * wide])
        useful: Array = weights.max((0, 1)) > _NEGLIGIBLE * np.abs(self.weights).max()
        return useful

    def near_weights(self, number: int) -> Array:
        """Weights, in the unknowns outside a block, of its own tips and of those beside its cuts.

        Two neighbours are one and the same if there are two blocks, of which each has both tips.
        """
        wide, outside = 2 * self.width, self._outside(number)
        columns = [*range(number * wide, (number + 1) * wide), *outside]
        weights: Array = self.weights[number][:, columns]
        return weights

    def residual(self, system: System) -> float:
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
            right = plain_right(stop - start)
            steps = solution(block.pivots, right, stop - start, Coefficients())
            program = LineProgram(2 * (stop - start), steps)
            x = np.empty_like(own)
            prepare_lines(program, [Rows(0, own)], [Rows(stop - start, x)], 0)()
            solved.append(x)
        return float(system.residuals(np.concatenate(solved), sides).max(initial=0))


class _Known(NamedTuple):
    """What was found for the own part of a matrix, which may be that of other blocks, too."""

    matrix: Sequence[Row]
    pivots: Sequence[Pivot]
    tips: Array

    @classmethod
    def of(cls, matrix: Sequence[Row], width: int) -> _Known:
        points = len(matrix)
        transposed: list[Row] = [{} for _ in range(points)]
        for equation, row in enumerate(matrix):
            for column, entry in row.items():
                transposed[column][equation] = entry
        ends = np.zeros((points, 2 * width), _type_of(matrix))
        for tip in range(width):
            ends[tip, tip] = ends[points - width + tip, width + tip] = 1
        tips = solve_directly(System(transposed, plain_right(points)), ends).T
        return cls(matrix, eliminate(matrix), tips)


def _block(  # noqa: PLR0917
    system: System, start: int, stop: int, width: int, reach: int, known: list[_Known]
) -> Block:
    """Return the equations of the points ``start .. stop - 1``, and add what is not known yet."""
    points = stop - start
    matrix: list[Row] = [{} for _ in range(points)]
    outside: list[dict[int, complex]] = [{} for _ in range(points)]
    right: list[RightSide] = []
    for equation in range(points):
        for column, entry in system.matrix[start + equation].items():
            place = _place(column, start, stop, width, system.points)
            if place < points:
                matrix[equation][place] = entry
            else:
                outside[equation][place - points] = cast("complex", entry)
        side = system.right[start + equation]
        right.append(
            [(_place(point, start, stop, reach, system.points), weight) for point, weight in side]
        )
    found = next((each for each in known if each.matrix == matrix), None)
    if found is None:
        found = _Known.of(matrix, width)
        known.append(found)
    # Equations may be of very different size: what counts is what they contribute.
    sizes = np.abs(found.tips) * scales_of(system.matrix[start:stop])
    tips = np.where(sizes < _NEGLIGIBLE * sizes.max(1, keepdims=True), 0, found.tips)
    return Block(found.pivots, outside, right, tips)


def _type_of(matrix: Sequence[Row]) -> np.dtype[Any]:
    numbers = [entry for row in matrix for entry in row.values()]
    return np.result_type(float, np.array(numbers).dtype)


def _place(column: int, start: int, stop: int, around: int, points: int) -> int:
    """Place of a point, relative to a block and its surroundings."""
    if start <= column < stop:
        return column - start
    before = (start - column) % points
    if before <= around:
        return stop - start + around - before
    return stop - start + around + (column - stop) % points
