"""Elimination of banded systems, as steps of a line program; pure arithmetic.

Rows are dictionaries of entries by column, so that bands of any width, corners of periodic systems
and interchanges of rows need no code of their own. An entry is a number, the same for all lines, or
an array of one value for each line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pencils.comm.line_program import Step, Term

Values = NDArray[Any]
Entry: TypeAlias = "complex | Values"
Row: TypeAlias = "dict[int, Entry]"

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


class Pivot(NamedTuple):
    """The equation from which unknown number `s` is found.

    Attributes
    ----------
    row : int
        Number of the equation.
    inverse : Entry
        Inverse of the pivot.
    lower, upper : dict of Entry
        Factors of unknowns that come before, and after.
    """

    row: int
    inverse: Entry
    lower: Row
    upper: Row


def eliminate(matrix: Sequence[Mapping[int, Entry]], *, pin: bool = False) -> list[Pivot]:
    """Eliminate the unknowns of a matrix one after the other.

    Rows are interchanged where all entries are numbers, and small pivots would grow errors.

    Parameters
    ----------
    matrix : sequence of dict
        The entries of each row, by column.
    pin : bool
        Whether the last unknown becomes 0 where the last pivot vanishes, so that all other
        equations are fulfilled.

    Raises
    ------
    SingularError
        If a pivot vanishes.
    """
    rows: list[Row] = [dict(row) for row in matrix]
    points = len(rows)
    differ = numbers_of(rows) is None
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


class Numbers(NamedTuple):
    """The entries of rows one after the other: their rows, their columns, and themselves."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    entries: Values


def numbers_of(rows: Sequence[Mapping[int, Entry]]) -> Numbers | None:
    """List all entries; None if some have a value for each line."""
    entries = [entry for row in rows for entry in row.values()]
    if any(map(_differs, entries)):
        return None
    columns = np.array([column for row in rows for column in row], np.intp)
    return Numbers(np.repeat(np.arange(len(rows)), [*map(len, rows)]), columns, np.array(entries))


def scales_of(rows: Sequence[Mapping[int, Entry]]) -> list[Any]:
    """Return the largest entry of each row, of each line if they differ; 1 for zeros."""
    numbers = numbers_of(rows)
    if numbers is None:
        return [_scale_of(row) for row in rows]
    largest = np.zeros(len(rows))
    # By Python: sizes of complex numbers by NumPy may differ in the last bit.
    np.maximum.at(largest, numbers.rows, [*map(abs, numbers.entries.tolist())])
    largest[largest == 0] = 1
    return largest.tolist()


def _scale_of(row: Mapping[int, Entry]) -> Any:
    largest: Any = 0.0
    for entry in row.values():
        largest = np.maximum(largest, np.abs(entry))
    return largest + (largest == 0)


def _differs(entry: object) -> bool:
    """Whether there is a value for each line; much faster than to ask NumPy."""
    return isinstance(entry, np.ndarray)


def _inverse(pivot: Entry, least: Any, number: int, *, pin: bool) -> Entry:
    """Return the inverse of a pivot; 0 where it vanishes, if the unknown is to be pinned."""
    if not _differs(pivot) and not _differs(least):
        if abs(pivot) > least:
            return 1.0 / pivot
        if not pin:
            raise SingularError(number, None)
        return 0.0
    gone = np.abs(pivot) <= least
    if not np.any(gone):
        return 1.0 / pivot
    if not pin:
        raise SingularError(number, int(np.argmax(gone)))
    return np.where(gone, 0.0, 1.0 / np.where(gone, 1.0, pivot))


class Coefficients:
    """Arrays of one value for each line, numbered in the order in which they are first used."""

    def __init__(self) -> None:
        self.arrays: list[Values] = []
        self._numbers: dict[int, int] = {}

    def term(self, row: int, *factors: Entry) -> Term:
        """Return a row times all factors: numbers, and at most two arrays."""
        weight: Any = 1.0
        arrays: list[Any] = []
        for factor in factors:
            if isinstance(factor, np.ndarray):
                arrays.append(factor)
            else:
                weight = weight * factor
        if not arrays:
            return Term(row, weight)
        if len(arrays) == 1:
            return Term(row, weight, self._number(arrays[0]))
        self.arrays.append(np.multiply(*arrays))
        return Term(row, weight, len(self.arrays) - 1)

    def _number(self, array: Any) -> int:
        """Return the number of an array, which is kept so that its identity stays its own."""
        number = self._numbers.get(id(array))
        if number is None:
            number = self._numbers[id(array)] = len(self.arrays)
            self.arrays.append(array)
        return number

    def table(self, dtype: np.dtype[Any]) -> Values | None:
        """Return all arrays as rows of one; None if there are none."""
        return np.array(self.arrays, dtype) if self.arrays else None


# The right side of an equation: rows of the buffer, and their weights.
RightSide: TypeAlias = "Sequence[tuple[int, complex]]"


def solution(
    pivots: Sequence[Pivot],
    right_sides: Sequence[RightSide],
    base: int,
    coefficients: Coefficients,
) -> Iterator[Step]:
    """Yield the steps that solve a system; unknown ``s`` is then in row ``base + s``.

    Parameters
    ----------
    pivots : sequence of Pivot
        What `eliminate` returns.
    right_sides : sequence of sequence of (int, float)
        The right side of each equation.
    base : int
        Row of the first unknown. Equations that come later must not read the rows of unknowns that
        come before them.
    coefficients : Coefficients
        Takes the arrays that terms name by number.
    """
    term = coefficients.term
    for unknown, pivot in enumerate(pivots):
        given = [term(row, weight, pivot.inverse) for row, weight in right_sides[pivot.row]]
        found = [
            term(base + before, -1.0, factor, pivot.inverse)
            for before, factor in sorted(pivot.lower.items())
        ]
        terms = given + found
        if terms != [Term(base + unknown)]:
            yield Step(base + unknown, terms)
    for unknown, pivot in reversed(list(enumerate(pivots))):
        if pivot.upper:
            after = sorted(pivot.upper.items())
            terms = [term(base + later, -1.0, factor, pivot.inverse) for later, factor in after]
            yield Step(base + unknown, [Term(base + unknown), *terms])


def interchanged(pivots: Sequence[Pivot]) -> bool:
    """Whether equations were interchanged, so that unknowns need rows of their own."""
    return any(pivot.row != unknown for unknown, pivot in enumerate(pivots))
