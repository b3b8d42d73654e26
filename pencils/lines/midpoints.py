"""The verb `midpoints`: compact interpolation to the places in the middle between neighbours."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike

from pencils.array.operands import check_out
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError
from pencils.layout.integers import as_int
from pencils.lines.compact import MIDPOINTS, Stencil, equations
from pencils.lines.derivative import check_points, checked_coordinates, digest, is_periodic
from pencils.lines.methods import Lines
from pencils.lines.plan import Equations, LineVerb


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

    Lines may be cut. The halo is neither read nor needed. Plans are kept for calls in a loop.

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

    def read(lines: Lines) -> Equations:
        found = _interpolation(lines, order, wind, coordinates, periodic)
        check_out(out, u.pencil.section(_filled(lines, found)), lines.spec)
        verb.call.out = out if found.periodic else None
        return found

    verb = LineVerb("midpoints", "u", u, out, axis, read)
    result = verb.run()
    if verb.equations.periodic:
        return result
    result = result[(*[slice(None)] * len(u.components), *_filled(verb.lines, verb.equations))]
    if out is None:
        return result
    out[...] = result
    return out


def _filled(lines: Lines, equations: Equations) -> tuple[slice, ...]:
    """Return the section where values have a meaning: between walls, not at the last point."""
    return (*[slice(None)] * lines.dim, slice(None if equations.periodic else -1))


def _interpolation(
    lines: Lines, order: Any, wind: Any, coordinates: Any, periodic: Any
) -> Equations:
    """Check the arguments, and return the equations of compact interpolation."""
    points = lines.pencil.shape[lines.dim]
    rings = is_periodic(lines, periodic)
    side = as_int("wind", wind)
    if abs(side) > 1:
        raise ArgumentError(f"wind={wind} must be -1, 0 or 1")
    accuracy = as_int("order", (5 if side else 6) if order is None else order)
    inner = MIDPOINTS.get((side, accuracy))
    if inner is None:
        raise ArgumentError(
            f"order={order} with wind={wind} is none of the schemes; order must be 4 or 6, "
            "or 3 or 5 with a wind"
        )
    check_points(f"order={accuracy}", lines, 4 if rings else accuracy, periodic=rings)
    text = f"order={accuracy}, wind={side}"
    grid: Any = 1.0
    if coordinates is not None:
        grid = checked_coordinates("coordinates", coordinates, lines, periodic=rings)
        text += f", {digest(grid)}"

    def stencil_at(number: int) -> Stencil:
        """Return the inner stencil, or beside a wall an explicit one."""
        last = points - 1
        if rings or (
            number + min(inner.unknowns + inner.values) >= 0
            and number + max(inner.unknowns) < last
            and number + max(inner.values) <= last
        ):
            return inner
        first = (0 if number < last // 2 else points - accuracy) - number
        return Stencil((0,), tuple(range(first, first + accuracy)), staggered=True)

    return Equations(
        f"periodic, {text}" if rings else text,
        rings,
        1,
        2,
        lambda _lines, _moved: equations(
            0, points, grid, stencil_at, unknowns=points if rings else points - 1
        ),
    )
