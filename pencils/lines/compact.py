"""Compact differences: schemes, and their weights from Taylor series; pure arithmetic.

The schemes are those of S. K. Lele, J. Comput. Phys. 103 (1992) 16-42: the derivatives at a point
and its neighbours, each times a weight, are a weighted sum of values around it. Weights are found
by demanding that polynomials are differentiated exactly, on any grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import perm
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array
from pencils.lines.elimination import RightSide, Row
from pencils.lines.system import System


class Stencil(NamedTuple):
    """Offsets of the points whose derivatives, and whose values, one equation connects."""

    derivatives: tuple[int, ...]
    values: tuple[int, ...]

    @property
    def mirrored(self) -> Stencil:
        """The same at the other end of a line."""
        return Stencil(tuple(-o for o in self.derivatives), tuple(-o for o in self.values))


class Scheme(NamedTuple):
    """A compact difference.

    Attributes
    ----------
    inner : Stencil
        At points that are not beside a wall.
    walls : tuple of Stencil
        At the first point beside a wall, and at the next ones.
    """

    inner: Stencil
    walls: tuple[Stencil, ...]

    @property
    def reach(self) -> int:
        """How far values may be away from blocks of at least twice as many points."""
        return max(*self.inner.values, -(-len(self.walls[0].values) // 3))

    def fewest(self, *, periodic: bool) -> int:
        """Return the least number of points of a line."""
        if periodic:
            return len(self.inner.values)
        return max(4, len(self.walls[0].values))


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


def equations(
    scheme: Scheme, derivative: int, points: int, spacing: float | Array, *, periodic: bool
) -> System:
    """Return the equations for the derivatives along a line.

    Parameters
    ----------
    scheme : Scheme
        The scheme, one of those of the same derivative.
    derivative : int
        1 or 2.
    points : int
        Points of the line.
    spacing : float or ndarray
        Distance of neighbours, or the coordinates of all points.
    periodic : bool
        Whether the line closes to a ring; for equidistant points.
    """
    weights = _uniform_weights(spacing) if np.ndim(spacing) == 0 else _weights_at(spacing)
    matrix: list[Row] = []
    right: list[RightSide] = []
    for point in range(points):
        stencil = scheme.inner if periodic else _stencil_at(scheme, point, points)
        of_derivatives, of_values = weights(stencil, derivative, point)
        matrix.append(
            {
                (point + offset) % points: weight
                for offset, weight in zip(stencil.derivatives, of_derivatives, strict=True)
            }
        )
        right.append(
            [
                ((point + offset) % points, weight)
                for offset, weight in zip(stencil.values, of_values, strict=True)
            ]
        )
    return System(matrix, right)


def _stencil_at(scheme: Scheme, point: int, points: int) -> Stencil:
    """Return the stencil at a point of a line between walls."""
    walls, after = scheme.walls, points - 1 - point
    if min(point, after) >= len(walls):
        return scheme.inner
    return walls[point] if point <= after else walls[after].mirrored


Weights: TypeAlias = "tuple[Sequence[float], Sequence[float]]"


def _uniform_weights(spacing: Any) -> Callable[[Stencil, int, int], Weights]:
    """Return a function that finds the weights where points are equidistant."""

    def weights(stencil: Stencil, derivative: int, _: int) -> Weights:
        of_derivatives, of_values = _exact_weights(stencil, derivative)
        return of_derivatives, [weight / spacing**derivative for weight in of_values]

    return weights


def _weights_at(coordinates: Any) -> Callable[[Stencil, int, int], Weights]:
    """Return a function that finds the weights at a point of given coordinates."""

    def weights(stencil: Stencil, derivative: int, point: int) -> Weights:
        places = [
            (coordinates[np.add(offsets, point)] - coordinates[point]).tolist()
            for offsets in stencil
        ]
        scale = max(map(abs, places[1]))  # powers of small distances would not be accurate
        near, around = ([place / scale for place in each] for each in places)
        of_derivatives, of_values = taylor_weights(near, around, derivative)
        return of_derivatives, [weight / scale**derivative for weight in of_values]

    return weights


@cache
def _exact_weights(stencil: Stencil, derivative: int) -> Weights:
    """Weights at points of distance 1, rounded once."""
    near, around = ([Fraction(offset) for offset in offsets] for offsets in stencil)
    of_derivatives, of_values = taylor_weights(near, around, derivative)
    return [float(weight) for weight in of_derivatives], [float(weight) for weight in of_values]


def taylor_weights(
    derivatives: Sequence[Any], values: Sequence[Any], derivative: int
) -> tuple[list[Any], list[Any]]:
    """Find weights of derivatives and values so that their sums are equal for all polynomials.

    These are the polynomials of all degrees below the number of unknown weights.

    Parameters
    ----------
    derivatives, values : sequence of Fraction or of float
        Where derivatives and values are taken. The weight of the derivative at 0 is 1.
    derivative : int
        Which derivative.

    Returns
    -------
    list, list
        Weights of derivatives, and of values.

    Examples
    --------
    >>> taylor_weights([0.0], [-1.0, 1.0, 0.0], 2)
    ([1], [1.0, 1.0, -2.0])
    """
    others = [place for place in derivatives if place != 0]
    degrees = range(len(values) + len(others))
    table = [
        [
            *(place**degree for place in values),
            *(-_derived(place, degree, derivative) for place in others),
            _derived(0 * values[0], degree, derivative),
        ]
        for degree in degrees
    ]
    solved = _solved(table)
    found = iter(solved[len(values) :])
    return [1 if place == 0 else next(found) for place in derivatives], solved[: len(values)]


def _derived(place: Any, degree: int, derivative: int) -> Any:
    """Differentiate a power."""
    if degree < derivative:
        return 0 * place
    return perm(degree, derivative) * place ** (degree - derivative)


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
