"""Planes of the own block and of neighbours along an axis, and weighted sums of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
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
from pencils.functions.arguments import Line
from pencils.functions.moves import Window

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


class Planes:
    """Planes by their global index; arrays have the axis first.

    Parameters
    ----------
    u : PencilArray
        The field.
    axis : int
        The axis.
    window : Window
        Which planes of neighbours there are.
    around : ndarray
        These planes, those before the own block first.

    Attributes
    ----------
    start, stop, points : int
        First own index and the one after the last, and the number of all.
    parts : list of (int, ndarray)
        The first index of planes before the own block, of own ones and of those behind, and them.
    """

    def __init__(self, u: Field, axis: int, window: Window, around: Array) -> None:
        line = Line.of(u, axis)
        self.start, self.stop = line.bounds
        self.points = line.split.points
        before, _ = window.sides(line.split, line.part)
        own = np.moveaxis(u.local, axis, 0)
        planes = np.moveaxis(around, axis, 0)
        self.parts = [
            (self.start - before, planes[:before]),
            (self.start, own),
            (self.stop, planes[before:]),
        ]
        others = [each for each in range(u.ndim) if each != axis]
        ordered = memory_axes(u.pencil.order, len(u.components))
        self._order = [0, *(1 + others.index(each) for each in ordered if each != axis)]

    def between(self, first: int, last: int) -> Array:
        """Return the planes ``first`` to ``last - 1``: a view if all of them are own planes."""
        if self.start <= first <= last <= self.stop:
            return self.parts[1][1][first - self.start : last - self.start]
        cut: list[Any] = [
            part[max(0, first - start) : max(0, last - start)] for start, part in self.parts
        ]
        return np.concatenate(cut)

    def prepare(self, out: Array, formulas: Sequence[Formula]) -> Sequence[Run]:
        """Prepare to compute planes by formulas, one for each plane of `out` from `start` on."""
        if not out.size:
            return []
        given = [(first, self.in_memory_order(part)) for first, part in self.parts]
        return prepare_formulas(given, self.in_memory_order(out), self.start, formulas)

    def in_memory_order(self, planes: Array) -> Array:
        """View planes with their other axes in the order of memory."""
        return planes.transpose(self._order)
