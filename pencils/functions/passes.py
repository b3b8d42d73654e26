"""Weighted sums along an axis of local arrays, in one pass, by line programs.

Lines are treated in pieces, so that those of many lines stay in the cache. Axes of the arrays are
in the order of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.line_program import (
    Column,
    LineProgram,
    Rows,
    Step,
    Term,
    pieces,
    planes,
    prepare_lines,
    prepare_weighted_rows,
)

Run = Callable[[], object]

_FEW = 8  # points at the ends of blocks, with formulas of their own


def suits(*dtypes: np.dtype[Any]) -> bool:
    """Whether line programs take elements of these types, which must be the same one."""
    first = dtypes[0]
    return first.char in "fdFD" and all(each == first and each.isnative for each in dtypes)


def add_weighted(values: Array, weights: Sequence[float], axis: int, total: Array) -> None:
    """Add the planes of an array along an axis, each times its weight, to the plane `total`."""
    for start, stop in pieces(values.shape[axis]):
        given = planes(values, axis, start, stop)
        terms = [Term(row, weight) for row, weight in enumerate(weights[start:stop], 1)]
        program = LineProgram(1 + stop - start, [Step(0, [Term(0), *terms])])
        sums = Rows(0, total)
        prepare_lines(program, [sums, Rows(1, given)], [sums], axis)()


class Formula(NamedTuple):
    """A sum of weighted planes, by their index, times a factor.

    Two factors instead of one round a difference of equal numbers to 0. With `as_complex` the sums
    of complex planes are multiplied as such: see `Step`.
    """

    terms: tuple[tuple[int, float], ...]
    factor: float = 1.0
    as_complex: bool = False


def prepare_formulas(
    given: Sequence[tuple[int, Array]],
    out: Array,
    start: int,
    formulas: Sequence[Formula],
) -> Sequence[Run]:
    """Prepare to compute planes, one by each formula; call the results in any order.

    Parameters
    ----------
    given : sequence of (int, ndarray)
        Consecutive planes in several arrays, axis first, and the index of the first one of each.
    out : ndarray
        Where the planes are written, axis first; it shares no memory with those given.
    start : int
        Index of the first one.
    formulas : sequence of Formula
        One for each plane of `out`.
    """
    contiguous = _prepare_rows(given, out, start, formulas)
    if contiguous is not None:
        return [contiguous]
    runs = []
    for first, last in pieces(len(formulas)):
        piece = formulas[first:last]
        used = [point for formula in piece for point, _ in formula.terms]
        low, stop = min(used), max(used) + 1
        sources = []
        for begin, array in given:
            lo, hi = max(low, begin), min(stop, begin + len(array))
            if lo < hi:
                sources.append(Rows(lo - low, array[lo - begin : hi - begin]))
        target = Rows(stop - low, out[first:last])
        # The same for all pieces but those at the ends, if the formulas are.
        offset = start + first
        moved = tuple(
            each._replace(terms=tuple((point - offset, weight) for point, weight in each.terms))
            for each in piece
        )
        program = _of_formulas(moved, offset - low, stop - low)
        runs.append(prepare_lines(program, sources, [target], 0))
    return runs


@lru_cache(maxsize=64)
def _of_formulas(formulas: Sequence[Formula], own: int, given: int) -> LineProgram:
    """Make a program; the first own point is in row `own`, and the first result in row `given`."""
    steps = []
    for row, (terms, factor, as_complex) in enumerate(formulas, given):
        steps.append(Step(row, [Term(own + point, weight) for point, weight in terms]))
        if factor != 1 or as_complex:
            steps.append(Step(row, [Term(row, factor)], as_complex))
    return LineProgram(given + len(formulas), steps)


def _prepare_rows(
    given: Sequence[tuple[int, Array]], out: Array, start: int, formulas: Sequence[Formula]
) -> Run | None:
    """Prepare the same where points along the axis are contiguous, and most formulas are alike."""
    points = len(formulas)
    own = next((each for first, each in given if first == start and len(each) == points), None)
    if own is None:
        return None
    target, source = (np.moveaxis(each, 0, -1) for each in (out, own))
    middle = points // 2
    (terms, factor, as_complex), here = formulas[middle], start + middle
    if not target.flags.c_contiguous or not np.isfinite(factor) or factor == 0:
        return None
    offsets = [(point - here, weight) for point, weight in terms]
    columns: list[Column] = []
    for number, each in enumerate(formulas):
        moved = tuple((start + number + by, weight) for by, weight in offsets)
        inside = all(0 <= number + by < points for by, _ in offsets)
        if not inside or each != (moved, factor, as_complex):
            scale = each.factor / factor
            if not np.isfinite(scale) or len(columns) > _FEW:
                return None
            found = [(_plane(given, point), weight * scale) for point, weight in each.terms]
            columns.append(Column(number, found))
    total = complex(factor) if as_complex else factor
    return prepare_weighted_rows(target, source, offsets, columns, total)


def _plane(given: Sequence[tuple[int, Array]], point: int) -> Array:
    """View one of several consecutive planes."""
    return next(
        part[point - first, ...] for first, part in given if first <= point < first + len(part)
    )
