"""Weights of restriction and prolongation along one dimension.

Both are matrices, of which all rows are alike but for shifts, and those near walls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import floor, prod
from typing import NamedTuple, TypeAlias

from pencils.comm.products import Matrix
from pencils.layout.levels import CELL, PLACES, VERTEX

Terms: TypeAlias = tuple[tuple[int, float], ...]  # points and their weights


class Weights(NamedTuple):
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
        if self.outside == "zero":
            return tuple(each for each in raw if 0 <= each[0] < points)
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

    def alike(self, rows: range) -> range:
        """Return those of successive rows, whole periods, whose terms differ by shifts only."""
        offsets = [offset for terms in self.stencils for offset, _ in terms]
        first = -(min(offsets) // self.down) * self.up
        last = ((self.points - 1 - max(offsets)) // self.down + 1) * self.up
        some = rows[-(-max(0, first - rows.start) // self.up) * self.up :]
        return some[: max(0, min(rows.stop, last) - some.start) // self.up * self.up]

    def needed(self, rows: range) -> list[range]:
        """Return source points that successive rows need, and those in gaps of less than `down`."""
        alike = self.alike(rows)
        others = [*range(rows.start, alike.start), *range(alike.stop, rows.stop)]
        spans = [(at, at) for row in others for at, _ in self.terms(row)]
        if alike:
            ends = *alike[: self.up], *alike[-self.up :]
            points = [at for row in ends for at, _ in self.terms(row)]
            spans.append((min(points), max(points)))
        found: list[range] = []
        for low, high in sorted(spans):
            if found and low - found[-1][-1] <= self.down:
                found[-1] = range(found[-1].start, max(high + 1, found[-1].stop))
            else:
                found.append(range(low, high + 1))
        return found

    def among(self, points: Sequence[range], rows: range) -> Matrix:
        """Return the matrix of successive rows, for an array that has these source points."""
        starts = [0, *accumulate(map(len, points))]
        alike = self.alike(rows)
        listed = [*range(rows.start, alike.start), *alike[: self.up], *range(alike.stop, rows.stop)]

        def place(point: int) -> int:
            number = next(n for n, each in enumerate(points) if point in each)
            return starts[number] + point - points[number].start

        terms = [[(place(at), weight) for at, weight in self.terms(row)] for row in listed]
        first, times = alike.start - rows.start, len(alike) // self.up
        return Matrix(terms, self.up, self.down, first, times)

    def uses(self, row: int, own: range) -> bool:
        """Whether a target point needs only these source points."""
        return all(point in own for point, _ in self.terms(row))


def restriction(points: int, factor: int, centred: str, method: str, *, wraps: bool) -> Weights:
    """Return the weights of fine points in coarse ones."""
    ends = {CELL: "edge", VERTEX: "mirror"}
    outside = "wrap" if wraps else ends.get(centred, "zero")
    scale, middle = 1.0, _middle(factor, centred)
    if method == "average":
        terms: Terms = tuple((offset, 1.0) for offset in range(factor))
        scale = 1 / factor
    elif method == "injection":
        terms = ((int(middle), 1.0),)
    else:  # the transpose of linear interpolation
        near = ((offset, factor - abs(offset - middle)) for offset in range(-factor, 2 * factor))
        terms = tuple((offset, weight / factor**2) for offset, weight in near if weight > 0)
    return Weights(points, 1, factor, (terms,), outside, scale=scale)


def prolongation(
    points: int, factor: int, centred: str, method: str, boundary: str, *, wraps: bool
) -> Weights:
    """Return the weights of coarse points in fine ones; there are `points` coarse ones."""
    if method == "constant":
        return Weights(points, factor, 1, (((0, 1.0),),) * factor, "edge")
    ends = {CELL: boundary, VERTEX: "extrapolate"}
    outside = "wrap" if wraps else ends.get(centred, "zero")
    count = 2 if method == "linear" else 4
    middle = _middle(factor, centred)
    places = tuple((number - middle) / factor for number in range(factor))
    stencils = tuple(
        _interpolation(place, floor(place) - count // 2 + 1, count) for place in places
    )
    return Weights(points, factor, 1, stencils, outside, places)


def _middle(factor: int, centred: str) -> float:
    """Return the place of a coarse point among its fine ones."""
    return (factor - 1) / 2 if centred == CELL else float(PLACES[centred][1] * (factor - 1))


def _interpolation(place: float, first: int, count: int) -> Terms:
    """Return the weights by which a polynomial through some points has its value at a place."""
    nodes = range(first, first + count)
    weights = (
        prod((place - other) / (node - other) for other in nodes if other != node) for node in nodes
    )
    return tuple((node, weight) for node, weight in zip(nodes, weights, strict=True) if weight)
