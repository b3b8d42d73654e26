"""Differences and integrals along one axis, with the signatures of NumPy. All are *Collective*."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pencils.array.allocation import Array, frame_of, memory_axes, plain_array
from pencils.array.base import Field
from pencils.array.global_reduction import NO_VALUE, reduce_within
from pencils.array.operands import check_field, signature, topology_among
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.functions.arguments import Line, one_axis
from pencils.functions.moves import Computation, Mappings, Window, fetch_and_compute, fetch_boxes
from pencils.functions.planes import Formula, Planes, add_weighted, suits
from pencils.layout.integers import as_int
from pencils.plans import Agreement


def diff(
    a: Field, n: int = 1, axis: int = -1, prepend: None = NO_VALUE, append: None = NO_VALUE
) -> Field:
    """Differences of neighbours along an axis, as `numpy.diff`. *Collective*.

    Each rank gets `n` planes of those behind it, if the axis is cut.

    Parameters
    ----------
    a : PencilArray
        The field.
    n : int, optional
        How often differences are taken.
    axis : int, optional
        Axis of the global shape, default the last one.
    prepend, append
        Not supported.

    Returns
    -------
    PencilArray
        A new field without halo, with `n` points less along the axis: along a dimension of space it
        lies on ``u[:-n].pencil``, for the first dimension. Point ``i`` of the first differences is
        ``u[i + 1] - u[i]``, on the rank that owns point ``i`` of the field.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis, or the field is replicated along it.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: x * x + y)
    >>> d = np.diff(u, axis=0)
    >>> d.shape, d.local[:, 0]
    ((3, 3), array([1, 3, 5]))
    >>> d.pencil == u[:-1].pencil
    True
    """
    position, times = 0, 0
    out: Field

    def plan(agree: Agreement) -> list[Mappings]:
        nonlocal position, times, out
        if prepend is not NO_VALUE or append is not NO_VALUE:
            raise TypeError(
                "numpy.diff of a PencilArray takes neither prepend= nor append=, whose points no "
                "rank would own; set the ends of a field, as in d = np.zeros_like(u); "
                "d[:-1] = np.diff(u, axis=0)"
            )
        position = one_axis("diff", a, axis)
        times = as_int("n", n, least=0)
        agree(axis=position, n=times)
        out = _shorter(a, position, times)
        return [{position: Window(0, times)}]

    def prepare(around: Sequence[Array]) -> Computation:
        planes = Planes(a, position, Window(0, times), around[0])
        target = np.moveaxis(out.local, position, 0)
        if times != 1 or not suits(a.dtype, out.dtype):
            return Computation([partial(_fill, target, planes, times)], reserved=False)
        points = range(planes.start, planes.start + len(target))
        formulas = [Formula(((point + 1, 1.0), (point, -1.0))) for point in points]
        return Computation(planes.prepare(target, formulas), reserved=True)

    fetch_and_compute("diff", a, plan, prepare)
    return out


def _shorter(u: Field, axis: int, n: int) -> Field:
    """Allocate the result of `diff`."""
    dim = axis - len(u.components)
    few = min(n, 2)  # further differences have the same type
    dtype = np.diff(np.zeros(few + 1, u.dtype), few).dtype
    points = max(0, u.shape[axis] - n)
    components, pencil = list(u.components), u.pencil
    if dim < 0:
        components[axis] = points
    elif dim not in u.singletons:
        ranges = [range(extent) for extent in pencil.shape]
        ranges[dim] = range(points)
        pencil = pencil.part(tuple(ranges))
    elif n:
        raise ArgumentError(
            f"diff along axis {axis} of a field that has extent 1 there, and is replicated, would "
            "leave nothing of it"
        )
    frame = frame_of(pencil, u.singletons)
    return u.in_frame(pencil, frame, frame.make(frame.shape_of(tuple(components), dtype), dtype))


def _fill(out: Array, planes: Planes, n: int) -> None:
    """Compute differences, axis first: of own planes, then of those behind them, too."""
    start, end = planes.start, planes.start + len(out)
    inner = min(end, max(start, planes.stop - n))
    for first, last in ((start, inner), (inner, end)):
        if first < last:
            near, part = planes.between(first, last + n), out[first - start : last - start]
            if n == 1 and out.dtype == near.dtype and out.dtype.isnative:
                combine = np.not_equal if out.dtype.kind == "b" else np.subtract
                combine(near[1:], near[:-1], out=part)
            else:
                part[...] = np.diff(near, n, axis=0)


def trapezoid(y: Field, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Field:
    """Integral along an axis by the trapezoidal rule, as `numpy.trapezoid`. *Collective*.

    A reduction of own points that are weighted. For other types than floats, each rank first gets
    one plane of the next one, if the axis is cut.

    Parameters
    ----------
    y : PencilArray
        The field.
    x : array_like, optional
        Global coordinates of all points along the axis, 1-D data that all ranks have.
    dx : scalar, optional
        Distance of points, without `x`.
    axis : int, optional
        Axis of the global shape, default the last one.

    Returns
    -------
    PencilArray
        A dimension of space stays with extent 1, as in ``u.sum(axis)``; a component axis vanishes.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 1.0 * x + y)
    >>> np.trapezoid(u, axis=0).local
    array([[ 4.5,  7.5, 10.5]])
    """
    with agreed(topology_among(y).comm, "trapezoid") as agree:
        check_field("y", y)
        agree(**signature(y))
        position = one_axis("trapezoid", y, axis)
        steps = _steps(x, dx, y.shape[position])
        agree(axis=(position,), steps=steps)
        dtype = _areas(np.zeros(2, y.dtype), _part(steps, 0, 1)).sum(axis=0).dtype
        reduce = partial(reduce_within, name="trapezoid", u=y, axis=position, dtype=dtype)
        suited = suits(y.dtype, dtype) and np.asarray(steps).dtype.kind in "biuf"
        complete = None
        if suited and y.shape[position] > 1:
            complete = reduce(agree, of=partial(_weighted, y, position, steps))
    if complete is None:
        window = Window(0, 1)
        (around,) = fetch_boxes("trapezoid", y, lambda _: [{position: window}])
        planes = Planes(y, position, window, around)
        with agreed(y.pencil.topology.comm, "trapezoid") as agree:
            complete = reduce(agree, of=partial(_all_areas, planes, position, steps, dtype))
    total: Field = complete()
    return total


def _weighted(y: Field, axis: int, steps: Any, block: Array) -> Array:
    """Return the integral over own points, in one pass; it needs no other ones."""
    line = Line.of(y, axis)
    halves = np.zeros(line.split.points + 1)
    halves[1:-1] = np.multiply(steps, 0.5)
    weights = (halves[:-1] + halves[1:])[slice(*line.bounds)].tolist()
    order = memory_axes(y.pencil.order, len(y.components))
    given = block.transpose(order)
    shape = list(given.shape)
    shape[order.index(axis)] = 1
    total = np.zeros(shape, y.dtype)
    add_weighted(given, weights, order.index(axis), total)
    if y.dtype.kind == "c" and not np.isfinite(total).all():
        # NumPy multiplies by complex distances, then divides by a complex 2.
        scale = np.reshape(weights, [-1 if each == axis else 1 for each in range(y.ndim)])
        areas = given * scale.transpose(order) * (1 + 0j)
        np.sum(areas, axis=order.index(axis), keepdims=True, out=total)
    return total.transpose(np.argsort(order))


def _all_areas(planes: Planes, axis: int, steps: Any, dtype: np.dtype[Any], block: Array) -> Array:
    """Return the areas behind own points."""
    start, stop = planes.start, min(planes.stop, planes.points - 1)
    inner = min(stop, planes.stop - 1)
    areas = np.empty((*block.shape[:axis], stop - start, *block.shape[axis + 1 :]), dtype)
    found = np.moveaxis(areas, axis, 0)
    for first, last in ((start, inner), (inner, stop)):
        if first < last:
            near = planes.between(first, last + 1)
            found[first - start : last - start] = _areas(near, _part(steps, first, last))
    return areas


def _steps(x: Any, dx: Any, points: int) -> Any:
    """Return the distance of points, or those of all neighbours."""
    if isinstance(x, Field) or isinstance(dx, Field):
        raise TypeError(
            "x= and dx= of trapezoid are global data, not PencilArrays; pass the NumPy array of "
            "all coordinates along the axis"
        )
    if x is None:
        if np.ndim(dx):
            raise ArgumentError(f"dx={dx!r} must be one number; pass coordinates as x=")
        return dx
    coordinates = plain_array(x)
    if coordinates.shape != (points,):
        raise ArgumentError(
            f"x of shape {coordinates.shape} must be the global coordinates of the {points} points "
            "along the axis"
        )
    return np.diff(coordinates)


def _part(steps: Any, first: int, last: int) -> Any:
    return steps if np.ndim(steps) == 0 else steps[first:last]


def _areas(planes: Array, steps: Any) -> Any:
    """Return the areas between neighbouring planes, axis first."""
    if np.ndim(steps):
        steps = steps.reshape(-1, *[1] * (planes.ndim - 1))
    return steps * (planes[1:] + planes[:-1]) / 2.0
