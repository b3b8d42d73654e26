"""Compact schemes, and their weights from Taylor series; pure arithmetic.

The derivatives at a point and its neighbours, or the values in the middle between points, each
times a weight, are a weighted sum of values around them. Weights are found by demanding that the
sums are exact for polynomials, on any grid.

The central schemes are those of S. K. Lele, J. Comput. Phys. 103 (1992) 16-42; the interpolation
with a wind of fifth order is that of X. Deng and H. Zhang, J. Comput. Phys. 165 (2000) 22-44.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import perm
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array
from pencils.lines.system import RightSide, Row, System

Weights: TypeAlias = "tuple[Sequence[float], Sequence[float]]"


class Stencil(NamedTuple):
    """Offsets of the unknowns, and of the values, that one equation connects.

    With `staggered`, unknowns are in the middle between points; offsets of values are relative to
    the point before the middle.
    """

    unknowns: tuple[int, ...]
    values: tuple[int, ...]
    staggered: bool = False

    @property
    def mirrored(self) -> Stencil:
        """The same at the other end of a line."""
        values = tuple(int(self.staggered) - o for o in self.values)
        return Stencil(tuple(-o for o in self.unknowns), values, self.staggered)


class Scheme(NamedTuple):
    """A compact difference: the stencils at inner points, and at the first ones beside a wall."""

    inner: Stencil
    walls: tuple[Stencil, ...]

    @property
    def reach(self) -> int:
        """How far values may be away from blocks of at least twice as many points."""
        return max(*self.inner.values, -(-len(self.walls[0].values) // 3))

    def fewest(self, *, periodic: bool) -> int:
        """Return the least number of points of a line."""
        return len(self.inner.values) if periodic else max(4, len(self.walls[0].values))

    def at(self, point: int, points: int, *, periodic: bool) -> Stencil:
        """Return the stencil at a point of a line."""
        after = points - 1 - point
        if periodic or min(point, after) >= len(self.walls):
            return self.inner
        return self.walls[point] if point <= after else self.walls[after].mirrored


_PADE = Stencil((-1, 0, 1), (-1, 0, 1))  # of fourth order
_WIDER = Stencil((-1, 0, 1), (-2, -1, 0, 1, 2))  # of sixth order
_SLOPE = Stencil((0, 1), (0, 1, 2))  # of third order; with the fourth, advection is not stable
_CURVE = Stencil((0,), (0, 1, 2, 3, 4, 5))  # of fourth order

# By the number of the derivative and the order. Where fields are integrated in time, walls may be
# of one order less than inner points. M. H. Carpenter, D. Gottlieb and S. Abarbanel, J. Comput.
# Phys. 108 (1993) 272-295, call the first derivatives 3-4-3 and 3-4-6-4-3. The second derivatives
# are explicit at walls: the implicit closures of Lele become singular on some stretched grids.
SCHEMES = {
    (1, 4): Scheme(_PADE, (_SLOPE,)),
    (1, 6): Scheme(_WIDER, (_SLOPE, _PADE)),
    (2, 4): Scheme(_PADE, (_CURVE,)),
    (2, 6): Scheme(_WIDER, (_CURVE, _PADE)),
}

# To midpoints, by the direction of the wind and the order.
MIDPOINTS = {
    (0, 4): Stencil((-1, 0, 1), (0, 1), staggered=True),
    (0, 6): Stencil((-1, 0, 1), (-1, 0, 1, 2), staggered=True),
    (1, 3): Stencil((-1, 0), (0, 1), staggered=True),
    (1, 5): Stencil((-1, 0, 1), (-1, 0, 1), staggered=True),
}
MIDPOINTS |= {(-1, order): MIDPOINTS[1, order].mirrored for order in (3, 5)}


def equations(
    derivative: int,
    points: int,
    grid: float | Array,
    stencil_at: Callable[[int], Stencil],
    *,
    unknowns: int | None = None,
) -> System:
    """Return the equations for derivatives, the zeroth ones included, along a line.

    The line is a ring for stencils that reach beyond its ends. `grid` is the distance of
    neighbours, or the coordinates of all points. If there are fewer unknowns than points, the last
    ones are the values themselves.
    """
    matrix: list[Row] = []
    right: list[RightSide] = []
    middles = None if np.ndim(grid) == 0 else (np.asarray(grid)[:-1] + np.asarray(grid)[1:]) / 2
    for number in range(points if unknowns is None else unknowns):
        stencil = stencil_at(number)
        of_unknowns, of_values = _weights(stencil, derivative, grid, middles, number)
        near, around = (
            [(number + o) % points for o in each] for each in (stencil.unknowns, stencil.values)
        )
        matrix.append(dict(zip(near, of_unknowns, strict=True)))
        right.append(list(zip(around, of_values, strict=True)))
    for number in range(len(matrix), points):
        matrix.append({number: 1.0})
        right.append([(number, 1.0)])
    return System(matrix, right)


def _weights(
    stencil: Stencil, derivative: int, grid: Any, middles: Array | None, number: int
) -> Weights:
    """Find the weights of one equation: of unknowns, and of values."""
    if middles is None:
        of_unknowns, of_values = _exact_weights(stencil, derivative)
        return of_unknowns, [weight / grid**derivative for weight in of_values]
    positions = middles if stencil.staggered else grid
    middle = positions[number]
    near = (positions[np.add(stencil.unknowns, number)] - middle).tolist()
    around = (grid[np.add(stencil.values, number)] - middle).tolist()
    scale = max(map(abs, around))  # powers of small distances would not be accurate
    near, around = ([position / scale for position in each] for each in (near, around))
    of_unknowns, of_values = taylor_weights(near, around, derivative)
    return of_unknowns, [weight / scale**derivative for weight in of_values]


@cache
def _exact_weights(stencil: Stencil, derivative: int) -> Weights:
    """Weights at points of distance 1, rounded once."""
    near = [Fraction(offset) for offset in stencil.unknowns]
    around = [offset - Fraction(int(stencil.staggered), 2) for offset in stencil.values]
    of_unknowns, of_values = taylor_weights(near, around, derivative)
    return [float(weight) for weight in of_unknowns], [float(weight) for weight in of_values]


def taylor_weights(
    derivatives: Sequence[Any], values: Sequence[Any], derivative: int
) -> tuple[list[Any], list[Any]]:
    """Find weights of derivatives and values so that their sums are equal for all polynomials.

    These are the polynomials of all degrees below the number of unknown weights. The weight of the
    derivative at 0 is 1. The arithmetic is that of the positions, fractions or floats.

    Examples
    --------
    >>> taylor_weights([0.0], [-1.0, 1.0, 0.0], 2)
    ([1], [1.0, 1.0, -2.0])
    """
    others = [position for position in derivatives if position != 0]
    degrees = range(len(values) + len(others))
    table = [
        [
            *(position**degree for position in values),
            *(-_derived(position, degree, derivative) for position in others),
            _derived(0 * values[0], degree, derivative),
        ]
        for degree in degrees
    ]
    solved = _solved(table)
    found = iter(solved[len(values) :])
    return [1 if position == 0 else next(found) for position in derivatives], solved[: len(values)]


def _derived(position: Any, degree: int, derivative: int) -> Any:
    """Differentiate a power."""
    if degree < derivative:
        return 0 * position
    return perm(degree, derivative) * position ** (degree - derivative)


def _solved(table: list[list[Any]]) -> list[Any]:
    """Solve equations, each with its right side last, in the arithmetic of their entries."""
    unknowns = len(table)
    for unknown in range(unknowns):
        best = max(range(unknown, unknowns), key=lambda row: abs(table[row][unknown]))
        table[unknown], table[best] = table[best], table[unknown]
        pivot = table[unknown]
        pivot[:] = [entry / pivot[unknown] for entry in pivot]
        for row in table:
            factor = row[unknown]
            if row is not pivot and factor != 0:
                row[:] = [one - factor * other for one, other in zip(row, pivot, strict=True)]
    return [row[-1] for row in table]
