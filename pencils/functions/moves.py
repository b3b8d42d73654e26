"""Points that move between blocks along axes: `roll`, `flip`, and planes fetched from neighbours.

Each point is sent once, in one exchange, to each rank that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
from pencils.array.operands import FieldSpec, check_field, signature, topology_among
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange, PreparedExchange
from pencils.comm.line_program import (
    Column,
    LineProgram,
    Rows,
    Step,
    Term,
    pieces,
    prepare_lines,
    prepare_weighted_rows,
)
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.errors import ArgumentError
from pencils.functions.arguments import Line, one_axis
from pencils.layout.integers import as_dims, as_ints
from pencils.layout.split import Split
from pencils.plans import Agreement, KeptVerb, PlanKey, plan_buffers

Run = Callable[[], object]


class Mapping(NamedTuple):
    """Which points each part gets along an axis; without arguments, those of its own block."""

    shift: int = 0  # point ``i`` goes to point ``i + shift``, modulo the number of points
    reverse: bool = False  # to point ``n - 1 - i``; own blocks are given in reverse order
    # Only so many points before each block that has some, and after it, if there are so many.
    window: tuple[int, int] | None = None

    def wanted(self, split: Split, part: int) -> list[tuple[int, int]]:
        """Ranges of points that a part gets, in the order of its array."""
        points, (start, stop) = split.points, split.bounds(part)
        if start == stop:
            return []
        if self.window is not None:
            before, after = self.window
            return [(max(0, start - before), start), (stop, min(points, stop + after))]
        if self.reverse:
            return [(points - stop, points - start)]
        low = (start - self.shift) % points
        over = max(0, low + stop - start - points)
        return [(low, low + stop - start - over), (0, over)]

    def extent(self, line: Line) -> int:
        """Points of the array that a rank fills."""
        return sum(stop - start for start, stop in self.wanted(line.split, line.part))

    def pieces(self, split: Split, part: int) -> list[tuple[int, int, int, int]]:
        """Consecutive points that a part gets: owner, place here, place there, and their number."""
        found, place = [], 0
        for low, high in self.wanted(split, part):
            for owner, lo, hi in split.overlaps(low, high):
                start, stop = split.bounds(owner)
                there, here = (stop - hi, high - hi) if self.reverse else (lo - start, lo - low)
                found.append((owner, place + here, there, hi - lo))
            place += high - low
        return found

    def sends(self, line: Line) -> list[tuple[int, int, int, int]]:
        """Pieces of the own block: part that gets it, place here, place there, and points."""
        split, points, (start, stop) = line.split, line.split.points, line.bounds
        if start == stop:
            return []
        if self.window is not None:
            before, after = self.window
            reach = [(max(0, start - after), min(points, stop + before))]
        elif self.reverse:
            reach = [(points - stop, points - start)]
        else:
            reach = Mapping(-self.shift).wanted(split, line.part)
        parts = {part for low, high in reach for part, *_ in split.overlaps(low, high)}
        return [
            (part, here, there, count)
            for part in sorted(parts)
            for owner, there, here, count in self.pieces(split, part)
            if owner == line.part
        ]


# The mapping of each axis that has one; points stay where they are along all others.
Mappings = dict[int, Mapping]
# What a rank computes from fetched arrays, and whether that needs no more memory: on all ranks.
Computation = tuple[Sequence[Run], bool]


def fetch_boxes(
    call: str,
    u: Field,
    plan: Callable[[Agreement], Sequence[Mappings]],
    prepare: Callable[[Sequence[Array]], Computation] = lambda _: ((), True),
) -> list[Array]:
    """Agree on a call of a function, move parts of a field, and compute from them. *Collective*.

    `plan` checks the arguments but the field, records what all ranks must agree on, and returns the
    mappings of each array to be filled. `prepare` prepares the computation from these arrays before
    they are filled: so far all ranks raise if one of them has no memory. Both may be called several
    times. The arrays that are returned are contiguous in the memory order of the pencil.
    """
    fetch = _Fetch(call, u, plan, prepare)
    fetch.prepare().run()
    runs, reserved = fetch.computation
    with nullcontext() if reserved else agreed(fetch.topology.comm, call):
        for run in runs:
            run()
    return fetch.targets


class _Fetch(KeptVerb[Exchange, PreparedExchange]):
    """A call of `fetch_boxes`, whose exchange is kept."""

    moves: Sequence[Mappings]
    targets: list[Array]
    computation: Computation

    def __init__(self, call: str, u: Field, plan: Any, prepare: Any) -> None:
        super().__init__(call, topology_among(u))
        self._field, self._plan, self._prepare = u, plan, prepare

    def signature(self, agree: Agreement) -> PlanKey:
        """Check the arguments; the key has all mappings."""
        u = self._field
        check_field("a", u)
        agree(**signature(u))
        self.moves = self._plan(agree)
        along = tuple(tuple(sorted(each.items())) for each in self.moves)
        return PlanKey(("boxes", u.pencil, FieldSpec.of(u), along))

    def make(self) -> Exchange:
        """Make the exchange, with the axes in the memory order of the pencil."""
        u, specs = self._field, []
        order = memory_axes(u.pencil.order, len(u.components))
        lines = [Line.of(u, axis) for axis in order]
        for mappings in self.moves:
            along = [mappings.get(axis, Mapping()) for axis in order]
            pairs = list(zip(along, lines, strict=True))
            sends = _boxes(u.pencil.rank, lines, [each.sends(line) for each, line in pairs])
            gets = [each.pieces(line.split, line.part) for each, line in pairs]
            recvs = _boxes(u.pencil.rank, lines, gets)
            specs.append(MessageSpec(sends, recvs, (), u.dtype))
        return Exchange(self.topology, specs, axes=u.ndim, buffers=plan_buffers(self.topology))

    def bind(self, plan: Exchange) -> PreparedExchange:
        """Allocate the arrays, and prepare the exchange and the computation."""
        u = self._field
        order = memory_axes(u.pencil.order, len(u.components))
        sources, self.targets = [], []
        for mappings in self.moves:
            key: list[Any] = [slice(None)] * u.ndim
            shape = list(u.local_shape)
            for axis, mapping in mappings.items():
                shape[axis] = mapping.extent(Line.of(u, axis))
                if mapping.reverse:
                    key[axis] = slice(None, None, -1)
            sources.append(u.local[tuple(key)].transpose(order))
            self.targets.append(u.frame.make(tuple(shape), u.dtype))
        arrays = [target.transpose(order) for target in self.targets]
        prepared = plan.prepare(sources, arrays, disjoint=True)
        prepared.reserve()
        self.computation = self._prepare(self.targets)
        return prepared


def _boxes(
    rank: int, lines: Sequence[Line], along: Sequence[Sequence[tuple[int, int, int, int]]]
) -> list[MessageBlock]:
    """Combine the pieces of all axes: part, place here, place there, and points."""
    found = []
    for box in product(*along):
        steps = zip(box, lines, strict=True)
        peer = rank + sum((part - line.part) * line.stride for (part, *_), line in steps)
        key = tuple(slice(here, here + count) for _, here, _, count in box)
        found.append(MessageBlock(peer, key, tuple(there for _, _, there, _ in box)))
    return found


def roll(a: Field, shift: Any, axis: int | Sequence[int] | None = None) -> Field:
    """Move points along axes, those at the end to the beginning, as `numpy.roll`. *Collective*.

    One message to each rank that has new places of own points; where the axis is not cut, points
    are copied on their rank. `u.shift` is faster for short ways in loops.

    Parameters
    ----------
    a : PencilArray
        The field. Whether the pencil is periodic does not matter.
    shift : int or sequence of int
        Points by which each axis is moved.
    axis : int or sequence of int, optional
        Axes of the global shape; may be left out if there is only one.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis, or there are more shifts than axes.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 10 * x + y)
    >>> np.roll(u, 1, axis=0).local[:, 0]
    array([30,  0, 10, 20])
    """

    def plan(agree: Agreement) -> list[Mappings]:
        axes = [one_axis("roll", a, None)] if axis is None else as_ints("axis", axis)
        numbers = [as_dims("axis", each, a.ndim)[0] for each in axes]
        pairs = np.broadcast(shift, numbers)
        if pairs.ndim > 1:
            raise ArgumentError(f"shift={shift} must be an integer, or a sequence of them")
        shifts: dict[int, int] = {}
        for step, number in pairs:
            shifts[number] = shifts.get(number, 0) + int(step)
        agree(shifts=shifts)
        return [
            {number: Mapping(step % max(1, a.shape[number])) for number, step in shifts.items()}
        ]

    (block,) = fetch_boxes("roll", a, plan)
    return a.in_frame(a.pencil, a.frame.bare, block)


def flip(m: Field, axis: int | Sequence[int] | None = None) -> Field:
    """Reverse the order of points along axes, as `numpy.flip`. *Collective*.

    One message to each rank that has new places of own points; where the axis is not cut, points
    are copied on their rank.

    Parameters
    ----------
    m : PencilArray
        The field.
    axis : int or sequence of int, optional
        Axes of the global shape; default: all, components included.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo; not a view as in NumPy.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 10 * x + y)
    >>> np.flip(u, axis=0).local[:, 0]
    array([30, 20, 10,  0])
    """

    def plan(agree: Agreement) -> list[Mappings]:
        axes = range(m.ndim) if axis is None else sorted(as_dims("axis", axis, m.ndim))
        agree(axis=axes)
        return [dict.fromkeys(axes, Mapping(reverse=True))]

    (block,) = fetch_boxes("flip", m, plan)
    return m.in_frame(m.pencil, m.frame.bare, block)


def fliplr(m: Field) -> Field:
    """Reverse the order of points along axis 1, as `numpy.fliplr`. *Collective*."""
    return flip(m, 1)


def flipud(m: Field) -> Field:
    """Reverse the order of points along axis 0, as `numpy.flipud`. *Collective*."""
    return flip(m, 0)


# Weighted sums of planes.


_FEW = 8  # points at the ends of blocks, with formulas of their own


class Formula(NamedTuple):
    """A sum of weighted planes, by their index, times a factor.

    Two factors instead of one round a difference of equal numbers to 0. With `as_complex` the sums
    of complex planes are multiplied as such: see `Step`.
    """

    terms: tuple[tuple[int, float], ...]
    factor: float = 1.0
    as_complex: bool = False

    def moved(self, by: int) -> Formula:
        """Return the formula of planes that are counted from elsewhere."""
        terms = tuple((point + by, weight) for point, weight in self.terms)
        return Formula(terms, self.factor, self.as_complex)


def suits(*dtypes: np.dtype[Any]) -> bool:
    """Whether line programs take elements of these types, which must be the same one."""
    first = dtypes[0]
    return first.char in "fdFD" and all(each == first and each.isnative for each in dtypes)


class Planes:
    """Planes of the own block and of neighbours, by global index; arrays have the axis first."""

    def __init__(self, u: Field, axis: int, window: Mapping, around: Array) -> None:
        line = Line.of(u, axis)
        self.start, self.stop = line.bounds
        self.points = line.split.points
        ranges = window.wanted(line.split, line.part)
        before = ranges[0][1] - ranges[0][0] if ranges else 0
        planes = np.moveaxis(around, axis, 0)
        # Planes before the own block, own ones and those behind, with the index of the first.
        self.parts = [
            (self.start - before, planes[:before]),
            (self.start, np.moveaxis(u.local, axis, 0)),
            (self.stop, planes[before:]),
        ]
        others = [each for each in memory_axes(u.pencil.order, len(u.components)) if each != axis]
        self._order = [0, *(each + (each < axis) for each in others)]

    def between(self, first: int, last: int) -> Array:
        """Return the planes ``first`` to ``last - 1``: a view if all of them are own planes."""
        if self.start <= first <= last <= self.stop:
            return self.parts[1][1][first - self.start : last - self.start]
        cut = [part[max(0, first - start) : max(0, last - start)] for start, part in self.parts]
        return np.concatenate(cut)

    def cuts(self, first: int, last: int, before: int, after: int) -> list[tuple[int, int]]:
        """Divide points with neighbours in ranges, the longest of which needs own planes only."""
        inner = min(last, max(first, self.start + before))
        ends = first, inner, max(inner, min(last, self.stop - after)), last
        return [(low, high) for low, high in pairwise(ends) if low < high]

    def prepare(self, out: Array, formulas: Sequence[Formula]) -> Sequence[Run]:
        """Prepare to compute planes by formulas, one for each plane of `out` from `start` on.

        The results may be called in any order; `out` shares no memory with the planes.
        """
        if not out.size:
            return []
        given = [(first, part.transpose(self._order)) for first, part in self.parts]
        out = out.transpose(self._order)
        contiguous = _prepare_rows(given, out, self.start, formulas)
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
            # The same for all pieces but those at the ends, if the formulas are.
            own = self.start + first
            moved = tuple(formula.moved(-own) for formula in piece)
            program = _program(moved, own - low, stop - low)
            runs.append(prepare_lines(program, sources, [Rows(stop - low, out[first:last])], 0))
        return runs


@lru_cache(maxsize=64)
def _program(formulas: Sequence[Formula], own: int, given: int) -> LineProgram:
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
    target, source = np.moveaxis(out, 0, -1), np.moveaxis(given[1][1], 0, -1)
    middle = points // 2
    terms, factor, as_complex = formulas[middle].moved(-start - middle)
    alike = source.shape[-1] == points and target.flags.c_contiguous
    if not alike or not np.isfinite(factor) or factor == 0:
        return None
    columns: list[Column] = []
    for number, each in enumerate(formulas):
        moved = tuple((start + number + by, weight) for by, weight in terms)
        inside = all(0 <= number + by < points for by, _ in terms)
        if not inside or each != (moved, factor, as_complex):
            scale = each.factor / factor
            if not np.isfinite(scale) or len(columns) > _FEW:
                return None
            found = [
                (
                    next(p[point - low] for low, p in given if low <= point < low + len(p)),
                    weight * scale,
                )
                for point, weight in each.terms
            ]
            columns.append(Column(number, found))
    total = complex(factor) if as_complex else factor
    return prepare_weighted_rows(target, source, terms, columns, total)
