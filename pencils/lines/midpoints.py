"""The verb `midpoints`: compact interpolation to the places in the middle between neighbours.

Interpolated values at neighbouring midpoints, each times a weight, are a weighted sum of values
around them. The central schemes are those of S. K. Lele, J. Comput. Phys. 103 (1992) 16-42, C.4;
the upwind one of fifth order is that of X. Deng and H. Zhang, J. Comput. Phys. 165 (2000) 22-44.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pencils.array.allocation import Array
from pencils.array.operands import FieldSpec, check_out, check_type
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError
from pencils.layout.integers import as_int
from pencils.lines.compact import Weights, taylor_weights
from pencils.lines.derivative import check_points, checked_coordinates, digest, is_periodic
from pencils.lines.elimination import RightSide, Row
from pencils.lines.methods import Lines
from pencils.lines.plan import LinePlan
from pencils.lines.solver import LineCall, as_lines, dim_of, verb_agreement
from pencils.lines.system import System


def midpoints(
    u: PencilArray,
    axis: int,
    *,
    order: Literal[3, 4, 5, 6] | None = None,
    wind: Literal[-1, 0, 1] = 0,
    coordinates: ArrayLike | None = None,
    periodic: bool | None = None,
    out: PencilArray | None = None,
) -> PencilArray:
    """Interpolate a field to the midpoints along an axis, compactly. *Collective*.

    Lines may be cut. The halo is neither read nor needed. Plans are kept, so that calls in a loop
    are cheap.

    Parameters
    ----------
    u : PencilArray
        The field, of float or complex numbers.
    axis : int
        An axis of space of ``u.shape``, components first, in ``[-u.ndim, u.ndim)``.
    order : {3, 4, 5, 6}, optional
        Order of accuracy: 4 or 6, or with a wind 3 or 5. Default: the higher one.
    wind : {-1, 0, 1}, optional
        Where the wind blows that carries the values: to lower indices, nowhere, or to higher ones.
        More of the points that are used are on the side from which it comes, which damps the
        shortest waves in advection.
    coordinates : array_like, optional
        The global coordinates of all points along the axis, which rise or fall, if points are not
        equidistant. The axis must not be periodic then.
    periodic : bool, optional
        Whether the first point is beside the last one. Default: as the pencil is.
    out : PencilArray, optional
        Field to fill, of the type of `u` and on the pencil of the result; default: a new one
        without halo. On a periodic axis it may be `u`.

    Returns
    -------
    PencilArray
        Value ``i`` belongs to the middle between points ``i`` and ``i + 1``, on the rank that owns
        point ``i``. On a periodic axis there are as many as points, on the pencil of `u`; between
        walls one less, on ``u[:-1].pencil`` for the first dimension, as with `numpy.diff`.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if an argument does not fit, or there are too few points.

    Notes
    -----
    Beside walls, where the points of a scheme do not exist, values are those of a polynomial
    through as many points as the order.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((6, 3)), lambda i, j: i * i + j)
    >>> middle = pencils.lines.midpoints(u.astype(float), 0)
    >>> np.round(middle.local[:, 0], 12)
    array([ 0.25,  2.25,  6.25, 12.25, 20.25])
    >>> middle.pencil == u[:-1].pencil
    True
    """
    with verb_agreement("midpoints", u, out) as agree:
        check_type("u", u, PencilArray)
        lines = as_lines(u.pencil, dim_of(u, axis), FieldSpec.of(u))
        equations = Midpoints(lines, order, wind, coordinates, periodic)
        scheme = str(equations)
        agree(axis=lines.dim, scheme=scheme)
        key = (*[slice(None)] * lines.dim, slice(None if equations.periodic else -1))
        check_out(out, u.pencil.section(key), lines.spec)
        filled = out if equations.periodic else None
        call = LineCall(agree, ("midpoints", *lines, scheme), u, filled)
    result = call.run(lambda: MidpointPlan.kept(lines, equations))
    if not equations.periodic:
        result = result[(*[slice(None)] * len(u.components), *key)]
        if out is not None:
            out[...] = result
            result = out
    return result


class MidpointPlan(LinePlan):
    """The plan of `midpoints`: between walls, the last value has no meaning."""

    source_name = "u"

    def __call__(self, u: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Interpolate a field. *Collective*."""
        return self.run(u, out)


class Stencil(NamedTuple):
    """Midpoints, and points, that one equation connects.

    Offsets of points are relative to the one before the midpoint.
    """

    midpoints: tuple[int, ...]
    points: tuple[int, ...]

    @property
    def mirrored(self) -> Stencil:
        """The same at the other end of a line."""
        return Stencil(tuple(-o for o in self.midpoints), tuple(1 - o for o in self.points))


# By the direction of the wind and the order.
STENCILS = {
    (0, 4): Stencil((-1, 0, 1), (0, 1)),
    (0, 6): Stencil((-1, 0, 1), (-1, 0, 1, 2)),
    (1, 3): Stencil((-1, 0), (0, 1)),
    (1, 5): Stencil((-1, 0, 1), (-1, 0, 1)),
}
STENCILS |= {(-1, order): STENCILS[1, order].mirrored for order in (3, 5)}


class Midpoints:
    """Checked arguments: the equations of compact interpolation."""

    width = 1
    reach = 2
    fields: Sequence[PencilArray] = ()

    def __init__(
        self, lines: Lines, order: Any, wind: Any, coordinates: Any, periodic: Any
    ) -> None:
        self.points = lines.pencil.shape[lines.dim]
        self.periodic = is_periodic(lines, periodic)
        self.wind = as_int("wind", wind)
        if abs(self.wind) > 1:
            raise ArgumentError(f"wind={wind} must be -1, 0 or 1")
        self.order = as_int("order", (5 if self.wind else 6) if order is None else order)
        stencil = STENCILS.get((self.wind, self.order))
        if stencil is None:
            raise ArgumentError(
                f"order={order} with wind={wind} is none of the schemes; order must be 4 or 6, "
                "or 3 or 5 with a wind"
            )
        fewest = 4 if self.periodic else self.order
        check_points(f"order={self.order}", lines, fewest, periodic=self.periodic)
        self._inner = stencil
        self.coordinates: Array | None = None
        if coordinates is not None:
            self.coordinates = checked_coordinates(
                "coordinates", coordinates, lines.dim, self.points, periodic=self.periodic
            )

    def __str__(self) -> str:
        """Describe the scheme: others have other texts."""
        rings = "periodic, " if self.periodic else ""
        places = "" if self.coordinates is None else f", {digest(self.coordinates)}"
        return f"{rings}order={self.order}, wind={self.wind}{places}"

    def system(self, _lines: Lines, _moved: Mapping[int, PencilArray]) -> System:
        """Return the equations, which are the same for all lines."""
        matrix: list[Row] = []
        right: list[RightSide] = []
        for number in range(self.points if self.periodic else self.points - 1):
            stencil = self._stencil_at(number)
            unknowns, given = self._weights(stencil, number)
            near, around = (np.add(number, offsets) % self.points for offsets in stencil)
            matrix.append(dict(zip(near.tolist(), unknowns, strict=True)))
            right.append(list(zip(around.tolist(), given, strict=True)))
        if not self.periodic:
            matrix.append({self.points - 1: 1.0})
            right.append([(self.points - 1, 1.0)])
        return System(matrix, right)

    def _stencil_at(self, number: int) -> Stencil:
        """Return the inner stencil, or beside a wall an explicit one."""
        stencil = self._inner
        last = self.points - 1
        if self.periodic or (
            number + min(stencil.midpoints + stencil.points) >= 0
            and number + max(stencil.midpoints) < last
            and number + max(stencil.points) <= last
        ):
            return stencil
        first = 0 if number < last // 2 else self.points - self.order
        return Stencil((0,), tuple(range(first - number, first - number + self.order)))

    def _weights(self, stencil: Stencil, number: int) -> Weights:
        """Return the weights of unknowns, and of given points."""
        if self.coordinates is None:
            return _uniform_weights(stencil)
        x = self.coordinates
        middle = (x[number] + x[number + 1]) / 2
        near = [(x[number + o] + x[number + o + 1]) / 2 - middle for o in stencil.midpoints]
        around = [x[number + o] - middle for o in stencil.points]
        scale = max(map(abs, around))  # powers of small distances would not be accurate
        unknowns, given = ([float(place / scale) for place in each] for each in (near, around))
        return taylor_weights(unknowns, given, 0)


@cache
def _uniform_weights(stencil: Stencil) -> Weights:
    """Weights where points are equidistant, rounded once."""
    near = [Fraction(offset) for offset in stencil.midpoints]
    around = [offset - Fraction(1, 2) for offset in stencil.points]
    unknowns, given = taylor_weights(near, around, 0)
    return [float(weight) for weight in unknowns], [float(weight) for weight in given]
