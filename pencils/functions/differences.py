"""Differences, gradients and integrals along axes, with the signatures of NumPy. *Collective*."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, memory_axes, plain_array
from pencils.array.base import Field
from pencils.array.global_reduction import NO_VALUE, reduce_within
from pencils.array.operands import check_field, signature, topology_among
from pencils.comm.agree import agreed
from pencils.comm.line_program import LineProgram, Rows, Step, Term, pieces, planes, prepare_lines
from pencils.comm.reduce import native
from pencils.errors import ArgumentError
from pencils.functions.arguments import Line, one_axis
from pencils.functions.mapping import Mapping
from pencils.functions.moves import (
    Computation,
    Formula,
    PlaneAxis,
    Planes,
    Run,
    Steps,
    fetch_boxes,
    roll,
    suits,
)
from pencils.functions.shapes import diff_with_ends
from pencils.layout.integers import as_dims, as_int
from pencils.plans import Agreement


def diff(
    a: Field, n: int = 1, axis: int = -1, prepend: Any = NO_VALUE, append: Any = NO_VALUE
) -> Field:
    """Subtract neighbours along an axis, as `numpy.diff`. *Collective*.

    Each rank gets `n` planes of those behind it, if the axis is cut.

    Parameters
    ----------
    a : PencilArray
        The field.
    n : int, optional
        How often differences are taken.
    axis : int, optional
        Axis of the global shape, default the last one.
    prepend, append : scalar, array_like or PencilArray, optional
        Points before and after the axis: one number, a NumPy array that all ranks have, or a field
        that `numpy.concatenate` joins to this one.

    Returns
    -------
    PencilArray
        A new field without halo, with `n` points less along the axis: along a dimension of space it
        lies on ``u[:-n].pencil``, for the first dimension. Point ``i`` of the first differences is
        ``u[i + 1] - u[i]``, on the rank that owns point ``i`` of the field. With `prepend` or
        `append` it lies on ``u.pencil.resized(shape)``, which is ``u.pencil`` if there are as many
        points; then all points are fetched, by one exchange, or three if one of them is a field.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis, or the field is replicated along it.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: x * x + y)
    >>> d = np.diff(u, axis=0)
    >>> d.shape, d.local[:, 0]
    ((3, 3), array([1, 3, 5]))
    >>> d.pencil == u[:-1].pencil
    True
    >>> np.diff(u, axis=0, prepend=0).local[:, 0]
    array([0, 1, 3, 5])
    """
    if n and not (prepend is append is NO_VALUE):
        return diff_with_ends(a, n, axis, prepend, append)

    def plan(agree: Agreement) -> Steps:
        position = one_axis("diff", a, axis)
        times = as_int("n", n, least=0)
        agree(axis=position, n=times)
        window = Mapping(window=(0, times))
        prepare = partial(_prepare_differences, PlaneAxis.of(a, position, window), times)
        return Steps([{position: window}], [_shorter(a, position, times)], prepare)

    (result,) = fetch_boxes("diff", a, (n, axis), plan)
    return result


def _prepare_differences(
    along: PlaneAxis, n: int, block: Array, around: Sequence[Array], results: Sequence[Array]
) -> Computation:
    """Prepare to compute differences."""
    given, target = Planes(along, block, around[0]), np.moveaxis(results[0], along.axis, 0)
    if n != 1 or not suits(block.dtype, target.dtype):
        return [partial(_fill_differences, target, given, n)], False
    points = range(given.start, given.start + len(target))
    formulas = [Formula(((point + 1, 1.0), (point, -1.0))) for point in points]
    return given.prepare(target, formulas), True


def _shorter(u: Field, axis: int, n: int) -> Callable[[], Field]:
    """Return a function that makes results of `diff`."""
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
            f"diff along axis {axis} needs 2 points, but the field is replicated there and has "
            "extent 1"
        )
    return u.maker(pencil, dtype, tuple(components), u.singletons)


def _fill_differences(out: Array, given: Planes, n: int) -> None:
    """Compute differences, axis first."""
    start = given.start
    for first, last in given.cuts(start, start + len(out), 0, n):
        near, part = given.between(first, last + n), out[first - start : last - start]
        if n == 1 and out.dtype == near.dtype and out.dtype.isnative:
            combine = np.not_equal if out.dtype.kind == "b" else np.subtract
            combine(near[1:], near[:-1], out=part)
        else:
            part[...] = np.diff(near, n, axis=0)


def trapezoid(y: Field, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Field:
    """Integrate along an axis by the trapezoidal rule, as `numpy.trapezoid`. *Collective*.

    A reduction of own points that are weighted. For other types than floats, points are first
    moved by one along the axis.

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
        pair = np.zeros(2, y.dtype)
        dtype = _areas(pair[1:], pair[:1], steps[:1] if np.ndim(steps) else steps).sum(axis=0).dtype
        reduce = partial(reduce_within, name="trapezoid", u=y, axis=position, dtype=dtype)
        suited = suits(y.dtype, dtype) and np.asarray(steps).dtype.kind in "biuf"
        complete = None
        if suited and y.shape[position] > 1:
            complete = reduce(agree, of=partial(_weighted, y, position, steps))
    if complete is None:
        behind = roll(y, -1, position)
        with agreed(y.pencil.topology.comm, "trapezoid") as agree:
            complete = reduce(agree, of=partial(_all_areas, behind, position, steps, dtype))
    total: Field = complete()
    return total


def _weighted(y: Field, axis: int, steps: Any, block: Array) -> Array:
    """Return the integral over own points, in one pass; it needs no other ones."""
    line = Line.of(y, axis)
    halves = np.zeros(line.split.points + 1)
    halves[1:-1] = np.multiply(steps, 0.5)
    weights = (halves[:-1] + halves[1:])[slice(*line.bounds)].tolist()
    order = memory_axes(y.pencil.order, len(y.components))
    values, along = block.transpose(order), order.index(axis)
    total = np.zeros([1 if each == axis else block.shape[each] for each in order], y.dtype)
    for start, stop in pieces(values.shape[along]):
        terms = [Term(row, weight) for row, weight in enumerate(weights[start:stop], 1)]
        program = LineProgram(1 + stop - start, [Step(0, [Term(0), *terms])])
        sums, piece = Rows(0, total), Rows(1, planes(values, along, start, stop))
        prepare_lines(program, [sums, piece], [sums], along)()
    if y.dtype.kind == "c" and not np.isfinite(total).all():
        # NumPy multiplies by complex distances, then divides by a complex 2.
        scale = np.reshape(weights, [-1 if each == axis else 1 for each in range(y.ndim)])
        areas = values * scale.transpose(order) * (1 + 0j)
        np.sum(areas, axis=along, keepdims=True, out=total)
    return total.transpose(np.argsort(order))


def _all_areas(behind: Field, axis: int, steps: Any, dtype: np.dtype[Any], block: Array) -> Array:
    """Return the areas between own points and those behind; the last point has none."""
    first, last = Line.of(behind, axis).bounds
    last = max(first, min(last, behind.shape[axis] - 1))
    key = (slice(None),) * axis + (slice(last - first),)
    if np.ndim(steps):
        steps = steps[first:last].reshape(-1, *[1] * (block.ndim - 1 - axis))
    return _areas(block[key], behind.local[key], steps).astype(dtype, copy=False)


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


def _areas(before: Array, behind: Array, steps: Any) -> Array:
    """Return the areas between neighbouring points."""
    areas: Array = steps * (behind + before) / 2.0
    return areas


_LEAST = 1e-30  # distance, whose reciprocal single precision can hold


def gradient(
    f: Field, *varargs: Any, axis: int | Sequence[int] | None = None, edge_order: int = 1
) -> Field | tuple[Field, ...]:
    """Compute central differences, one-sided at both ends, as `numpy.gradient`. *Collective*.

    Neighbours exchange one plane along each axis that is cut, two where the block at an end has
    one plane only and `edge_order` is 2. No halo is needed. Along periodic dimensions, too, the
    differences at both ends are one-sided, as in NumPy; for others take a halo and `u.shift`.

    Parameters
    ----------
    f : PencilArray
        The field.
    *varargs : scalar or array_like
        Distances of points: one number for all axes; or for each axis a number, or the global
        coordinates of all points as 1-D data that all ranks have. Default 1.
    axis : int or sequence of int, optional
        Axes of the global shape. Default: all dimensions of space; unlike in NumPy, components are
        not differentiated.
    edge_order : {1, 2}, optional
        Order of the differences at both ends.

    Returns
    -------
    PencilArray or tuple of PencilArray
        New fields on the same pencil, without halo; a tuple for several axes. Floats are equal to
        those of NumPy up to rounding, elements of other types exactly.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if an argument does not fit, or there are too few points.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 1.0 * x * x + y)
    >>> ux, uy = np.gradient(u, 0.5)
    >>> ux.local[:, 0]
    array([ 2.,  4.,  8., 10.])
    """

    def plan(agree: Agreement) -> Steps:
        lead = len(f.components)
        axes = tuple(range(lead, f.ndim)) if axis is None else as_dims("axis", axis, f.ndim)
        order = as_int("edge_order", edge_order)
        if order not in (1, 2):
            raise ArgumentError(f"edge_order={edge_order} must be 1 or 2")
        if not axes:
            raise ArgumentError("axis=() names no axis; leave it out for all dimensions of space")
        for along in axes:
            if f.shape[along] <= order:
                raise ArgumentError(
                    f"gradient with edge_order={order} takes at least {order + 1} points; "
                    f"axis {along} of shape {f.shape} has {f.shape[along]}"
                )
        given = _given(varargs, len(axes))
        tasks = [_task(f, *pair, order) for pair in zip(axes, given, strict=True)]
        agree(axes=axes, spacing=[task.spacing for task in tasks], edge_order=order)
        moves = [{task.along.axis: task.along.window} for task in tasks]
        return Steps(moves, [task.make for task in tasks], partial(_prepare_slopes, tasks, order))

    slopes = tuple(fetch_boxes("gradient", f, (*varargs, axis, edge_order), plan))
    return slopes[0] if len(slopes) == 1 else slopes


class _Slope(NamedTuple):
    """A derivative: its axis, its spacing (distances if they differ), and what makes its field."""

    along: PlaneAxis
    spacing: Any
    make: Callable[[], Field]


def _prepare_slopes(
    tasks: Sequence[_Slope],
    order: int,
    block: Array,
    around: Sequence[Array],
    results: Sequence[Array],
) -> Computation:
    """Prepare to compute derivatives."""
    runs: list[Run] = []
    reserved = True
    for (along, spacing, _), fetched, result in zip(tasks, around, results, strict=True):
        target, given = np.moveaxis(result, along.axis, 0), Planes(along, block, fetched)
        steps = np.asarray(spacing)
        # Formulas multiply by reciprocals, which must not be 0 or infinite.
        plain = suits(block.dtype, target.dtype) and steps.dtype.kind in "iuf"
        if plain and ((abs(steps) > _LEAST) & (abs(steps) < 1 / _LEAST)).all():
            runs += given.prepare(target, _formulas(given, spacing, order, target.dtype))
        else:
            reserved = False
            runs.append(partial(_fill_gradient, target, given, spacing, order))
    return runs, reserved


def _given(varargs: Sequence[Any], axes: int) -> Sequence[Any]:
    """Return a spacing for each axis, as NumPy distributes them."""
    if any(isinstance(each, Field) for each in varargs):
        raise TypeError(
            "spacings are numbers or global 1-D coordinates, not PencilArrays; pass the NumPy "
            "array of all coordinates along the axis"
        )
    if not varargs:
        return [1.0] * axes
    if len(varargs) == 1 and np.ndim(varargs[0]) == 0:
        return [*varargs] * axes
    if len(varargs) != axes:
        raise TypeError(f"gradient got {len(varargs)} spacings for {axes} axes; give one for each")
    return varargs


def _task(u: Field, axis: int, given: Any, order: int) -> _Slope:
    """Return a derivative along an axis."""
    points, spacing, distances = u.shape[axis], given, plain_array(given)
    if distances.ndim:
        if distances.shape != (points,):
            raise ArgumentError(
                f"spacing of shape {distances.shape} must be a number, or the global coordinates "
                f"of the {points} points along axis {axis}"
            )
        if distances.dtype.kind in "iu":
            distances = distances.astype(float)
        steps = np.diff(distances)
        spacing = steps[0] if (steps == steps[0]).all() else steps
    # Blocks at both ends get all points of the formulas there.
    split = Line.of(u, axis).split
    ends = (split.bounds(split.owner(end)) for end in (0, points - 1))
    width = max(1, order + 1 - min(stop - start for start, stop in ends))
    # A gradient of few points has NumPy's type, and raises NumPy's error for types that do not fit.
    few = min(3, points)
    kind = native(u.dtype) if u.dtype.kind == "M" else u.dtype
    apart = given if np.ndim(given) == 0 else np.arange(few).astype(np.asarray(given).dtype)
    with np.errstate(all="ignore"):
        function: Any = np.gradient
        dtype = function(np.zeros(few, kind), apart, edge_order=order).dtype
    along = PlaneAxis.of(u, axis, Mapping(window=(width, width)))
    return _Slope(along, spacing, u.maker(u.pencil, dtype, u.components, u.singletons))


def _formulas(given: Planes, spacing: Any, order: int, dtype: np.dtype[Any]) -> list[Formula]:
    """Return the formula of each own point; distances divide numbers of this type."""
    inner, real = range(max(given.start, 1), min(given.stop, given.points - 1)), dtype.kind != "c"
    with np.errstate(all="ignore"):  # distances may vanish
        found = [_end(0, spacing, order, real=real)] if given.start == 0 else []
        if np.ndim(spacing):
            before = spacing[inner.start - 1 : max(inner.start, inner.stop) - 1]
            every = zip(*_central(before, spacing[inner.start : inner.stop]), strict=True)
            for point, (a, b, c) in zip(inner, every, strict=True):
                terms = (point - 1, float(a)), (point, float(b)), (point + 1, float(c))
                found.append(Formula(terms, as_complex=not real))
        else:
            factor = float(1.0 / np.float64(2.0 * spacing))
            pairs = (((point + 1, 1.0), (point - 1, -1.0)) for point in inner)
            found += [Formula(terms, factor, not real) for terms in pairs]
        if given.stop == given.points:
            found.append(_end(given.points - 1, spacing, order, real=real))
    return found


def _end(point: int, spacing: Any, order: int, *, real: bool) -> Formula:
    """Return the formula of the first or last point."""
    low = max(0, point - order)
    if order == 1:
        distance = spacing[-1 if point else 0] if np.ndim(spacing) else spacing
        factor = float(1.0 / np.float64(distance))
        return Formula(((low + 1, 1.0), (low, -1.0)), factor, not real)
    weights = _end_weights(spacing, last=point > 0)
    terms = tuple((low + n, float(weight)) for n, weight in enumerate(weights))
    return Formula(terms, as_complex=not real)


def _central(dx1: Any, dx2: Any) -> tuple[Any, Any, Any]:
    """Weights of three points, with the distance of the first two and of the last two."""
    a = -(dx2) / (dx1 * (dx1 + dx2))
    b = (dx2 - dx1) / (dx1 * dx2)
    c = dx1 / (dx2 * (dx1 + dx2))
    return a, b, c


def _end_weights(dx: Any, *, last: bool) -> tuple[Any, Any, Any]:
    """Weights of the first three points for the slope at the first one, or of the last three."""
    if np.ndim(dx) == 0:
        a, b, c = -1.5 / dx, 2.0 / dx, -0.5 / dx
    else:
        dx1, dx2 = (dx[-1], dx[-2]) if last else (dx[0], dx[1])
        a = -(2.0 * dx1 + dx2) / (dx1 * (dx1 + dx2))
        b = (dx1 + dx2) / (dx1 * dx2)
        c = -dx1 / (dx2 * (dx1 + dx2))
    return (-c, -b, -a) if last else (a, b, c)


def _fill_gradient(out: Array, given: Planes, spacing: Any, order: int) -> None:
    """Compute the gradient at own points by NumPy; axes come first."""
    start, stop, points = given.start, given.stop, given.points
    if start == stop:
        return
    for first, last in given.cuts(max(start, 1), min(stop, points - 1), 1, 1):
        near, part = _numbers(given.between(first - 1, last + 1)), out[first - start : last - start]
        if np.ndim(spacing):
            shape = -1, *[1] * (out.ndim - 1)
            steps = spacing[first - 1 : last - 1], spacing[first:last]
            a, b, c = _central(*(each.reshape(shape) for each in steps))
            kind = np.result_type(a.dtype, out.dtype) if out.dtype.kind in "fc" else None
            total = np.multiply(a, near[:-2], dtype=kind)
            for factor, planes_there in ((b, near[1:-1]), (c, near[2:])):
                total += np.multiply(factor, planes_there, dtype=kind)
            part[...] = total
        elif out.dtype.kind not in "fc":
            part[...] = (near[2:] - near[:-2]) / (2.0 * spacing)
        else:
            np.subtract(near[2:], near[:-2], out=part, dtype=native(out.dtype))
            np.divide(part, 2.0 * spacing, out=part, casting="unsafe")
    for low, place in ((0, 0), (points - order - 1, points - 1)):
        if start <= place < stop:
            near = _numbers(given.between(low, low + order + 1))
            near = near.astype(float) if near.dtype.kind in "iu" else near
            if order == 1:
                distance = spacing[-1 if place else 0] if np.ndim(spacing) else spacing
                out[place - start] = (near[1] - near[0]) / distance
            else:
                a, b, c = _end_weights(spacing, last=place > 0)
                out[place - start] = a * near[0] + b * near[1] + c * near[2]


def _numbers(near: Array) -> Array:
    """View times as differences of times, as NumPy does."""
    if near.dtype.kind != "M":
        return near
    times = near.astype(native(near.dtype), copy=False)
    return times.view(times.dtype.str.replace("M8", "m8"))
