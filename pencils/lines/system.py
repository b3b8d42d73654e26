"""Systems of equations along lines: a matrix, and right sides that are sums of given rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm.line_program import LineProgram, Rows, prepare_lines
from pencils.lines.elimination import (
    Coefficients,
    Entry,
    RightSide,
    eliminate,
    interchanged,
    solution,
)

Array = NDArray[Any]


class System(NamedTuple):
    """Equations for the points of a line.

    Attributes
    ----------
    matrix : sequence of dict
        Entries of each equation, by column: numbers, or arrays of one value for each line.
    right : sequence of sequence of (int, float)
        The right side of each equation: given points, and their weights.
    """

    matrix: Sequence[Mapping[int, Entry]]
    right: Sequence[RightSide]

    @property
    def points(self) -> int:
        """Number of equations."""
        return len(self.matrix)

    @property
    def is_plain(self) -> bool:
        """Whether the right side of each equation is the given point of the same number."""
        return all(side == [(number, 1.0)] for number, side in enumerate(self.right))

    def right_sides(self, given: Array) -> Array:
        """Compute the right sides for given points, an array of shape ``(points, lines)``."""
        if self.is_plain:
            return given
        sides = np.zeros_like(given)
        for number, side in enumerate(self.right):
            for point, weight in side:
                sides[number] += weight * given[point]
        return sides

    def pinned(self) -> System:
        """Return the system whose last unknown is 0, instead of the last equation."""
        last = self.points - 1
        return System([*self.matrix[:last], {last: 1.0}], [*self.right[:last], []])


def plain_right(points: int) -> list[RightSide]:
    """Right sides that are the given points."""
    return [[(number, 1.0)] for number in range(points)]


class WholeLines:
    """A program that solves a system where lines are whole, perhaps in several segments.

    Parameters
    ----------
    system : System
        The equations.
    dtype : dtype
        Type of the data.
    pin : bool
        As for `pencils.lines.elimination.eliminate`.

    Raises
    ------
    SingularError
        If a pivot vanishes.
    """

    def __init__(self, system: System, dtype: np.dtype[Any], *, pin: bool = False) -> None:
        self.pivots = eliminate(system.matrix, pin=pin)
        points = system.points
        apart = interchanged(self.pivots) or not system.is_plain
        self._base = points if apart else 0
        self._dtype = dtype
        coefficients = Coefficients()
        steps = solution(self.pivots, system.right, self._base, coefficients)
        self._program = LineProgram(self._base + points, steps)
        self._coefficients = coefficients.table(dtype)

    @property
    def pins_last(self) -> bool:
        """Whether the last unknown is set to 0, in all lines."""
        last = self.pivots[-1].inverse if self.pivots else 1.0
        return not np.ndim(last) and last == 0

    def unstable_line(self, system: System, most: float) -> int | None:
        """Solve random lines, and return the number of one whose residual is large, if any.

        The residual is relative to the sizes of its terms. The last equation does not count in
        lines whose last unknown is set to 0.
        """
        lines = 1 if self._coefficients is None else self._coefficients.shape[1]
        kind = np.dtype(complex if self._dtype.kind == "c" else float)
        given = np.random.default_rng(1).standard_normal((system.points, lines)).astype(kind)
        solved = np.empty_like(given)
        self.prepare([given], [solved], 0)()
        product, size = multiplied(system.matrix, solved)
        sides = system.right_sides(given)
        residual = np.abs(product - sides) / (size.max(0, initial=1e-300) + np.abs(sides))
        if self.pivots:
            residual[-1] *= self.pivots[-1].inverse != 0
        bad = ~(residual.max(0, initial=0) <= most)
        return int(bad.argmax()) if bad.any() else None

    def prepare(
        self, sources: Sequence[Array], targets: Sequence[Array], axis: int
    ) -> Callable[[], None]:
        """Prepare to solve lines whose segments are given one after the other."""
        return prepare_lines(
            self._program,
            _consecutive(sources, axis, 0),
            _consecutive(targets, axis, self._base),
            axis,
            self._coefficients,
        )


def _consecutive(arrays: Sequence[Array], axis: int, first: int) -> list[Rows]:
    rows = []
    for array in arrays:
        rows.append(Rows(first, array))
        first += array.shape[axis]
    return rows


def solve_directly(system: System, given: Array, *, pin: bool = False) -> Array:
    """Solve a system for a few lines, given as an array of shape ``(points, lines)``."""
    solved = np.empty_like(given)
    WholeLines(system, given.dtype, pin=pin).prepare([given], [solved], 0)()
    return solved


def multiplied(rows: Sequence[Mapping[int, Entry]], x: Array) -> tuple[Array, Array]:
    """Multiply rows of a matrix with points of lines; and do the same with absolute values."""
    product = np.zeros((len(rows), *x.shape[1:]), np.result_type(x, float))
    bound = np.zeros((len(rows), *x.shape[1:]))
    for number, row in enumerate(rows):
        for column, entry in row.items():
            term = entry * x[column]
            product[number] += term
            bound[number] += np.abs(term)
    return product, bound
