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
    numbers_of,
    scales_of,
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

    def residuals(self, x: Array, sides: Array) -> Array:
        """How much each equation is violated by `x`, an array of shape ``(points, lines)``.

        This is relative to the largest entry of the equation times the largest unknown of the line,
        so that it does not matter by what equations are multiplied.
        """
        product = multiplied(self.matrix, x)
        largest = np.abs(x).max(0, initial=1e-300)
        bound = self._scales() * largest
        residuals: Array = np.abs(product - sides) / (bound + np.abs(sides))
        return residuals

    def random(self, lines: int, dtype: np.dtype[Any]) -> Array:
        """Draw given points, the same on all ranks, of the sizes that the equations have."""
        drawn = np.random.default_rng(1).standard_normal((self.points, lines))
        drawn *= self._scales()
        return drawn.astype(dtype)

    def infinite(self) -> tuple[int, int | None] | None:
        """Return an equation with entries that are not finite, and its line if lines differ."""
        numbers = numbers_of(self.matrix)
        if numbers is not None:
            bad = ~np.isfinite(numbers.entries)
            return (int(numbers.rows[bad.argmax()]), None) if bad.any() else None
        for number, row in enumerate(self.matrix):
            for entry in row.values():
                bad = ~np.isfinite(entry)
                if bad.any():
                    return number, int(bad.argmax()) if bad.ndim else None
        return None

    def _scales(self) -> Array:
        """Return the largest entry of each equation, of each line if they differ."""
        scales = scales_of(self.matrix)
        if {*map(type, scales)} <= {float}:
            return np.reshape(scales, (-1, 1))
        lines = next(len(each) for each in scales if np.ndim(each))
        return np.array([np.broadcast_to(each, lines) for each in scales])

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
    def lines_differ(self) -> bool:
        """Whether lines have matrices of their own."""
        return self._coefficients is not None

    @property
    def left_out(self) -> int | None:
        """The equation that is left out, if the last unknown is set to 0 in all lines.

        It is the last equation, unless rows were interchanged.
        """
        last = self.pivots[-1] if self.pivots else None
        gone = last is not None and not np.ndim(last.inverse) and last.inverse == 0
        return last.row if last is not None and gone else None

    def unstable_line(self, system: System) -> int | None:
        """Solve random lines, and return the number of one whose residual is large, if any.

        An equation that is left out, since the last unknown is set to 0, does not count.
        """
        lines = 1
        kind: np.dtype[Any] = np.dtype(complex if self._dtype.kind == "c" else float)
        if self._coefficients is not None:
            lines, kind = self._coefficients.shape[1], self._coefficients.dtype
        given = system.random(lines, kind)
        solved = np.empty_like(given)
        self.prepare([given], [solved], 0)()
        residuals = system.residuals(solved, system.right_sides(given))
        if self.pivots:
            last = self.pivots[-1]
            residuals[last.row] *= last.inverse != 0
        # With half of the digits lost, something is wrong, however ill conditioned systems are.
        bad = ~(residuals.max(0, initial=0) <= np.sqrt(np.finfo(kind).eps))
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


def solve_directly(system: System, given: Array) -> Array:
    """Solve a system for a few lines, given as an array of shape ``(points, lines)``."""
    solved = np.empty_like(given)
    WholeLines(system, given.dtype).prepare([given], [solved], 0)()
    return solved


def multiplied(rows: Sequence[Mapping[int, Entry]], x: Array) -> Array:
    """Multiply rows of a matrix with points of lines, an array of shape ``(points, lines)``."""
    product = np.zeros((len(rows), *x.shape[1:]), np.result_type(x, float))
    numbers = numbers_of(rows)
    if numbers is not None:
        np.add.at(product, numbers.rows, numbers.entries[:, np.newaxis] * x[numbers.columns])
        return product
    for number, row in enumerate(rows):
        for column, entry in row.items():
            product[number] += entry * x[column]
    return product
