"""Systems of equations along lines, eliminated once, and solved by line programs; pure arithmetic.

Rows of a matrix are dictionaries of entries by column, so that bands of any width, corners of
periodic systems and interchanges of rows need no code of their own. An entry is a number, the same
for all lines, or an array of one value for each line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pencils.comm.line_program import LineProgram, Rows, Step, Term, prepare_lines

Array = NDArray[Any]
Entry: TypeAlias = "complex | Array"
Row: TypeAlias = "dict[int, Entry]"
# The right side of an equation: given points, or rows of the buffer, and their weights.
RightSide: TypeAlias = "Sequence[tuple[int, complex]]"

# A row of the diagonal is kept as pivot if no entry below is larger by more than this factor, each
# compared with the largest one of its row.
_PREFERENCE = 2.0
# Entries that fill in are dropped below this, relative to the largest one of the row.
_NEGLIGIBLE = 1e-20
_EPS = float(np.finfo(float).eps)


class SingularError(ArithmeticError):
    """A pivot vanishes: `row` of the matrix, in line number `line` if lines differ."""

    def __init__(self, row: int, line: int | None) -> None:
        super().__init__(row, line)
        self.row = row
        self.line = line


# ---- entries of rows ----


def _differs(entry: object) -> bool:
    """Whether there is a value for each line; much faster than to ask NumPy."""
    return isinstance(entry, np.ndarray)


def scales_of(rows: Sequence[Mapping[int, Entry]]) -> list[Any]:
    """Return the largest entry of each row, of each line if they differ; 1 for zeros."""
    scales: list[Any] = []
    for row in rows:
        sizes: list[Any] = [abs(entry) for entry in row.values()]
        if any(map(_differs, sizes)):
            scale: Any = reduce(np.maximum, sizes)
            scales.append(scale + (scale == 0))
        else:
            scales.append(max(sizes, default=0.0) or 1.0)
    return scales


def multiplied(rows: Sequence[Mapping[int, Entry]], x: Array) -> Array:
    """Multiply rows of a matrix with points of lines, an array of shape ``(points, lines)``."""
    product = np.zeros((len(rows), *x.shape[1:]), np.result_type(x, float))
    for number, row in enumerate(rows):
        for column, entry in row.items():
            product[number] += entry * x[column]
    return product


# ---- elimination ----


class Pivot(NamedTuple):
    """The equation number `row`, from which an unknown is found.

    It has the `inverse` of the pivot, and factors of unknowns that come before, and after.
    """

    row: int
    inverse: Entry
    lower: Row
    upper: Row


def eliminate(matrix: Sequence[Mapping[int, Entry]], *, pin: bool = False) -> list[Pivot]:
    """Eliminate the unknowns of a matrix one after the other.

    Rows are interchanged where all entries are numbers, and small pivots would grow errors. With
    `pin` the last unknown becomes 0 where the last pivot vanishes, so that all other equations are
    fulfilled; any other pivot that vanishes raises a `SingularError`.
    """
    rows: list[Row] = [dict(row) for row in matrix]
    points = len(rows)
    differ = any(_differs(entry) for row in rows for entry in row.values())
    scales = scales_of(rows)
    above: list[Row] = [{} for _ in rows]  # factors of unknowns that were eliminated, by row
    columns: list[set[int]] = [set() for _ in rows]
    for number, row in enumerate(rows):
        for column in row:
            columns[column].add(number)
    pivots = []
    for unknown in range(points):
        number = unknown if differ else _choose(rows, scales, columns[unknown], unknown)
        row = rows[number]
        last = unknown == points - 1
        least = _EPS * scales[number] * (4 * points if last else 1)
        inverse = _inverse(row.pop(unknown, 0.0), least, number, pin=pin and last)
        pivots.append(Pivot(number, inverse, above[number], row))
        for column in (unknown, *row):
            columns[column].discard(number)
        for other in columns[unknown]:
            factor = rows[other].pop(unknown)
            above[other][unknown] = factor
            _subtract(rows[other], factor * inverse, row, _NEGLIGIBLE * scales[other])
            for column in row:
                (columns[column].add if column in rows[other] else columns[column].discard)(other)
    return pivots


def _subtract(target: Row, factor: Entry, row: Row, least: Any) -> None:
    """Subtract a multiple of a row from another one; entries that vanish are left out."""
    for column, entry in row.items():
        value = target.get(column, 0.0) - factor * entry
        if _differs(value) or _differs(least) or abs(value) > least:
            target[column] = value
        else:
            target.pop(column, None)


def _choose(rows: Sequence[Row], scales: Sequence[Any], candidates: set[int], unknown: int) -> int:
    """Return the row from which an unknown is found, where all entries are numbers."""
    sizes = {number: abs(rows[number][unknown]) / scales[number] for number in candidates}
    if not sizes:
        return unknown
    largest = max(sorted(sizes), key=sizes.__getitem__)
    if unknown in sizes and sizes[unknown] * _PREFERENCE >= sizes[largest]:
        return unknown
    return largest


def _inverse(pivot: Entry, least: Any, number: int, *, pin: bool) -> Entry:
    """Return the inverse of a pivot; 0 where it vanishes, if the unknown is to be pinned."""
    gone = np.abs(pivot) <= least if _differs(pivot) or _differs(least) else abs(pivot) <= least
    if not np.any(gone):
        return 1.0 / pivot
    if not pin:
        raise SingularError(number, int(np.argmax(gone)) if _differs(gone) else None)
    return np.where(gone, 0.0, 1.0 / np.where(gone, 1.0, pivot)) if _differs(gone) else 0.0


def interchanged(pivots: Sequence[Pivot]) -> bool:
    """Whether equations were interchanged, so that unknowns need rows of their own."""
    return any(pivot.row != unknown for unknown, pivot in enumerate(pivots))


def solution(
    pivots: Sequence[Pivot],
    right_sides: Sequence[RightSide],
    base: int,
    arrays: list[Array] | None = None,
) -> Iterator[Step]:
    """Yield the steps that solve a system; unknown ``s`` is then in row ``base + s``.

    Equations that come later must not read the rows of unknowns that come before them. Terms name
    arrays of one value for each line by their number in the list `arrays`, to which they are added.
    """
    arrays = [] if arrays is None else arrays
    numbers: dict[int, int] = {}  # by identity, which stays that of the array in the list

    def term(row: int, *factors: Entry) -> Term:
        """Return a row times all factors: numbers, and at most two arrays."""
        weight: Any = 1.0
        own: list[Any] = []
        for factor in factors:
            if isinstance(factor, np.ndarray):
                own.append(factor)
            else:
                weight = weight * factor
        if not own:
            return Term(row, weight)
        array = own[0] if len(own) == 1 else np.multiply(*own)
        if id(array) not in numbers:
            numbers[id(array)] = len(arrays)
            arrays.append(array)
        return Term(row, weight, numbers[id(array)])

    for unknown, pivot in enumerate(pivots):
        terms = [term(row, weight, pivot.inverse) for row, weight in right_sides[pivot.row]]
        terms += [
            term(base + before, -1.0, factor, pivot.inverse)
            for before, factor in sorted(pivot.lower.items())
        ]
        if terms != [Term(base + unknown)]:
            yield Step(base + unknown, terms)
    for unknown, pivot in reversed(list(enumerate(pivots))):
        if pivot.upper:
            after = sorted(pivot.upper.items())
            terms = [term(base + later, -1.0, factor, pivot.inverse) for later, factor in after]
            yield Step(base + unknown, [Term(base + unknown), *terms])


# ---- systems ----


class System(NamedTuple):
    """Equations for the points of a line: the rows of a matrix, and their right sides."""

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
        bound = self._scales() * np.abs(x).max(0, initial=1e-300)
        residuals: Array = np.abs(multiplied(self.matrix, x) - sides) / (bound + np.abs(sides))
        return residuals

    def random(self, lines: int, dtype: np.dtype[Any]) -> Array:
        """Draw given points, the same on all ranks, of the sizes that the equations have."""
        drawn = np.random.default_rng(1).standard_normal((self.points, lines))
        drawn *= self._scales()
        return drawn.astype(dtype)

    def infinite(self) -> tuple[int, int | None] | None:
        """Return an equation with entries that are not finite, and its line if lines differ."""
        every: list[Any] = [entry for row in self.matrix for entry in row.values()]
        if not any(map(_differs, every)) and np.isfinite(every).all():
            return None
        for number, row in enumerate(self.matrix):
            for entry in row.values():
                bad = ~np.isfinite(entry)
                if bad.any():
                    return number, int(bad.argmax()) if bad.ndim else None
        return None

    def _scales(self) -> Array:
        """Return the largest entry of each equation, of each line if they differ."""
        scales = scales_of(self.matrix)
        if not any(map(_differs, scales)):
            return np.reshape(scales, (-1, 1))
        lines = np.broadcast_shapes((1,), *map(np.shape, scales))
        every = [np.broadcast_to(each, lines) for each in scales]
        return np.array(every).reshape(len(scales), *lines)

    def pinned(self) -> System:
        """Return the system whose last unknown is 0, instead of the last equation."""
        last = self.points - 1
        return System([*self.matrix[:last], {last: 1.0}], [*self.right[:last], []])


def plain_right(points: int) -> list[RightSide]:
    """Right sides that are the given points."""
    return [[(number, 1.0)] for number in range(points)]


class WholeLines:
    """A program that solves a system where lines are whole, perhaps in several segments.

    A `SingularError` is raised if a pivot vanishes; `pin` is that of `eliminate`.
    """

    def __init__(self, system: System, dtype: np.dtype[Any], *, pin: bool = False) -> None:
        self.pivots = eliminate(system.matrix, pin=pin)
        points = system.points
        apart = interchanged(self.pivots) or not system.is_plain
        self._base = points if apart else 0
        self._dtype = dtype
        arrays: list[Array] = []
        steps = solution(self.pivots, system.right, self._base, arrays)
        self._program = LineProgram(self._base + points, steps)
        self._coefficients = np.array(arrays, dtype) if arrays else None

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
        rows = consecutive(sources, axis), consecutive(targets, axis, self._base)
        return prepare_lines(self._program, *rows, axis, self._coefficients)


def consecutive(arrays: Sequence[Array], axis: int, first: int = 0) -> list[Rows]:
    """Give the points of several arrays the numbers from `first` on."""
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
