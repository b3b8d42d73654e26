"""Weights of restriction and prolongation along one dimension, and their execution for blocks.

Both are matrices, one along each dimension, of which all rows are alike but for shifts, and those
near the walls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from math import floor, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pencils.comm.memory import Array
from pencils.layout.levels import VERTEX

# Bytes that are treated at once: with all intermediate results they stay in the cache.
CHUNK = 2**18

Terms: TypeAlias = tuple[tuple[int, float], ...]  # points and their weights
Op: TypeAlias = Callable[[], object]
# Arrays for intermediate results, by their use and shape.
Room: TypeAlias = dict[tuple[Any, ...], Array]


class Matrix(NamedTuple):
    """The weights of source points in each target point, along one dimension."""

    points: int  # of the source
    up: int  # target points, and source points, after which weights repeat
    down: int
    stencils: tuple[Terms, ...]  # of each target point in `up` of them
    outside: str  # what stands for points beyond the ends
    places: tuple[float, ...] = ()  # of target points, in units of source points
    scale: float = 1.0  # of all weights

    @property
    def reach(self) -> int:
        """Source points that may lie between a target point and what it needs."""
        return 4 + max(abs(offset) for terms in self.stencils for offset, _ in terms)

    def terms(self, row: int) -> Terms:
        """Return the source points of a target point, and their weights."""
        base, number = self.down * (row // self.up), row % self.up
        raw = [(base + offset, weight) for offset, weight in self.stencils[number]]
        points = self.points
        if raw[0][0] >= 0 and raw[-1][0] < points:
            return tuple(raw)
        if self.outside == "extrapolate":
            count = min(len(raw), points)
            first = max(0, min(raw[0][0], points - count))
            return _interpolation(base + self.places[number], first, count)
        found: dict[int, float] = {}
        for point, weight in raw:
            into, sign = point % points, 1
            if self.outside == "mirror":  # at the first and the last point
                into = point % max(1, 2 * (points - 1))
                into = min(into, 2 * (points - 1) - into)
            elif self.outside != "wrap":  # half a point beyond them
                into = point % (2 * points)
                if into >= points:
                    into, sign = 2 * points - 1 - into, -1 if self.outside == "odd" else 1
            found[into] = found.get(into, 0.0) + sign * weight
        return tuple(found.items())

    def uses(self, row: int, own: range) -> bool:
        """Whether a target point needs only these source points."""
        return all(point in own for point, _ in self.terms(row))


def restriction(points: int, factor: int, centred: str, method: str, *, wraps: bool) -> Matrix:
    """Return the weights of fine points in coarse ones."""
    outside = "wrap" if wraps else "mirror" if centred == VERTEX else "edge"
    scale = 1.0
    if method == "average":
        terms: Terms = tuple((offset, 1.0) for offset in range(factor))
        scale = 1 / factor
    elif method == "injection":
        terms = ((0 if centred == VERTEX else (factor - 1) // 2, 1.0),)
    else:  # the transpose of linear interpolation
        middle = 0.0 if centred == VERTEX else (factor - 1) / 2
        near = ((offset, factor - abs(offset - middle)) for offset in range(-factor, 2 * factor))
        terms = tuple((offset, weight / factor**2) for offset, weight in near if weight > 0)
    return Matrix(points, 1, factor, (terms,), outside, scale=scale)


def prolongation(
    points: int, factor: int, centred: str, method: str, boundary: str, *, wraps: bool
) -> Matrix:
    """Return the weights of coarse points in fine ones; there are `points` coarse ones."""
    if method == "constant":
        return Matrix(points, factor, 1, (((0, 1.0),),) * factor, "edge")
    outside = "wrap" if wraps else "extrapolate" if centred == VERTEX else boundary
    count = 2 if method == "linear" else 4
    middle = 0.0 if centred == VERTEX else (factor - 1) / 2
    places = tuple((number - middle) / factor for number in range(factor))
    stencils = tuple(
        _interpolation(place, floor(place) - count // 2 + 1, count) for place in places
    )
    return Matrix(points, factor, 1, stencils, outside, places)


def _interpolation(place: float, first: int, count: int) -> Terms:
    """Return the weights by which a polynomial through some points has its value at a place."""
    nodes = range(first, first + count)
    weights = (
        prod((place - other) / (node - other) for other in nodes if other != node) for node in nodes
    )
    return tuple((node, weight) for node, weight in zip(nodes, weights, strict=True) if weight)


class Axis(NamedTuple):
    """A dimension of arrays: the target begins at row `first`, and `place` is that of a point."""

    matrix: Matrix
    first: int
    place: Callable[[int], int]

    def runs(self, lo: int, hi: int) -> Iterator[tuple[slice, list[tuple[range, float]]]]:
        """Yield the rows of the target array from `lo` on: rows, and their sums of points.

        Rows are counted from `lo`, points are places.
        """
        matrix, first = self.matrix, self.first
        for start in range(lo, min(hi, lo + matrix.up)):
            rows = range(start, hi, matrix.up)
            every = [[(self.place(at), w) for at, w in matrix.terms(first + row)] for row in rows]
            alike = (
                [(at - number * matrix.down, w) for at, w in terms]
                for number, terms in enumerate(every)
            )
            done = 0
            for terms, group in groupby(alike):
                count = len(list(group))
                begin, step = start - lo + done * matrix.up, matrix.down
                into = slice(begin, begin + (count - 1) * matrix.up + 1, matrix.up)
                low = done * step
                ends = low + (count - 1) * step + 1
                yield into, [(range(at + low, at + ends, step), w) for at, w in terms]
                done += count


def prepare_product(
    target: Array, source: Array, axes: Sequence[Axis | None], room: Room, *, add: bool
) -> Iterator[Op]:
    """Prepare to set, or to add to, the target the product of all matrices and the source.

    Axes without a matrix are equal. The operations are called one after the other.
    """
    if not target.size:
        return
    rows, plane = len(target), target[0].nbytes
    if axes[0] is None and plane > CHUNK and target.ndim > 1:
        for one, other in zip(target, source, strict=True):
            yield from prepare_product(one, other, axes[1:], room, add=add)
        return
    unit = 1 if axes[0] is None else axes[0].matrix.up
    count = max(1, CHUNK // max(plane, source.nbytes // rows) // unit) * unit
    for lo in range(0, rows, count):
        hi = min(rows, lo + count)
        yield from _prepare_chunk(target[lo:hi], source, axes, (lo, hi), room, add=add)


def _prepare_chunk(
    target: Array,
    source: Array,
    axes: Sequence[Axis | None],
    rows: tuple[int, int],
    room: Room,
    *,
    add: bool,
) -> Iterator[Op]:
    """Prepare the product for some rows of the first axis: axis by axis, the least work first."""
    every = {number: axis for number, axis in enumerate(axes) if axis is not None}
    runs = {n: list(axis.runs(0, target.shape[n])) for n, axis in every.items() if n}
    low = rows[0]
    if 0 in every:
        runs[0] = list(every[0].runs(*rows))
        used = [part for _, terms in runs[0] for part, _ in terms]
        low, high = min(part[0] for part in used), max(part[-1] for part in used) + 1
        source = source[low:high]
    else:
        source = source[slice(*rows)]
    order = sorted(every, reverse=any(axis.matrix.up > 1 for axis in every.values()))
    scale = prod(axis.matrix.scale for axis in every.values())
    for step, number in enumerate(order):
        shape = list(source.shape)
        shape[number] = target.shape[number]
        last = step == len(order) - 1 and not add
        result = target if last else _taken(room, step, tuple(shape), target)
        for into, terms in runs[number]:
            moved = low if number == 0 else 0
            parts = [(_planes(source, number, part, moved), weight) for part, weight in terms]
            yield from _prepare_sum(_key(result, number, into), parts, room)
        source = result
    if scale != 1:
        yield partial(np.multiply, source, scale, source)
    if add:
        yield partial(np.add, target, source, target)
    elif not order:
        yield partial(np.copyto, target, source)


def _taken(room: Room, use: object, shape: tuple[int, ...], like: Array) -> Array:
    key = use, shape, like.dtype
    if key not in room:
        room[key] = np.empty(shape, like.dtype)
    return room[key]


def _key(array: Array, axis: int, some: slice) -> Array:
    view: Array = array[(*(slice(None),) * axis, some)]
    return view


def _planes(array: Array, axis: int, part: range, moved: int) -> Array:
    return _key(array, axis, slice(part.start - moved, part[-1] + 1 - moved, part.step))


def _prepare_sum(target: Array, terms: Sequence[tuple[Array, float]], room: Room) -> Iterator[Op]:
    """Prepare to set the target to a sum of weighted arrays: first those of one weight."""
    groups: dict[float, list[Array]] = {}
    for part, weight in terms:
        groups.setdefault(weight, []).append(part)
    whole = target
    for number, (weight, (one, *others)) in enumerate(groups.items()):
        if number:
            target = _taken(room, "term", whole.shape, whole)
        for other in others:
            yield partial(np.add, one, other, target)
            one = target
        if weight != 1:
            yield partial(np.multiply, one, weight, target)
        elif not others and not number:
            yield partial(np.copyto, target, one)
        elif not others:
            target = one
        if number:
            yield partial(np.add, whole, target, whole)
