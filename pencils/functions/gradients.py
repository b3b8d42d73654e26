"""Gradients with the formulas of `numpy.gradient`. *Collective*."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pencils.array.allocation import Array, plain_array
from pencils.array.base import Field
from pencils.comm.reduce import native
from pencils.errors import ArgumentError
from pencils.functions.arguments import Line
from pencils.functions.moves import Computation, Mappings, Window, fetch_and_compute
from pencils.functions.planes import Formula, Planes, Run, suits
from pencils.layout.integers import as_dims, as_int
from pencils.plans import Agreement

Spacing = Any  # a number, or the distances of neighbours along one axis
Weights = tuple[Any, Any, Any]


def gradient_formulas(
    own: range, points: int, spacing: Spacing, order: int, *, as_complex: bool
) -> Sequence[Formula]:
    """Return the formula of each own point.

    Parameters
    ----------
    own : range
        The points, of `points` along the axis.
    spacing : number or ndarray
        Their distance, or the real distances of all neighbours.
    order : {1, 2}
        Order of the differences at both ends.
    as_complex : bool
        Whether distances divide complex numbers.
    """
    with np.errstate(all="ignore"):  # distances may vanish
        found = []
        inner = range(max(own.start, 1), min(own.stop, points - 1))
        if own.start == 0:
            found.append(_end(0, 1, order, spacing))
        if np.ndim(spacing):
            before = spacing[inner.start - 1 : max(inner.start, inner.stop) - 1]
            every = zip(*central_weights(before, spacing[inner.start : inner.stop]), strict=True)
            for point, (a, b, c) in zip(inner, every, strict=True):
                terms = (point - 1, float(a)), (point, float(b)), (point + 1, float(c))
                found.append(Formula(terms))
        else:
            factor = _inverse(2.0 * spacing)
            found += [Formula(((point + 1, 1.0), (point - 1, -1.0)), factor) for point in inner]
        if own.stop == points:
            found.append(_end(points - 1, -1, order, spacing))
        return [formula._replace(as_complex=as_complex) for formula in found]


def _end(point: int, inwards: int, order: int, spacing: Spacing) -> Formula:
    """Return the formula of the first or last point."""
    if order == 1:
        high, low = max(point, point + inwards), min(point, point + inwards)
        factor = _inverse(distance_at(spacing, 0 if inwards > 0 else -1))
        return Formula(((high, 1.0), (low, -1.0)), factor)
    if inwards > 0:
        return Formula(tuple((point + n, float(w)) for n, w in enumerate(low_weights(spacing))))
    return Formula(tuple((point - 2 + n, float(w)) for n, w in enumerate(high_weights(spacing))))


def _inverse(distance: Any) -> float:
    return float(1.0 / np.float64(distance))


def distance_at(spacing: Spacing, number: int) -> Any:
    """Return a distance of neighbours."""
    return spacing[number] if np.ndim(spacing) else spacing


def central_weights(dx1: Any, dx2: Any) -> Weights:
    """Weights of three points, with the distance of the first two and of the last two."""
    a = -(dx2) / (dx1 * (dx1 + dx2))
    b = (dx2 - dx1) / (dx1 * dx2)
    c = dx1 / (dx2 * (dx1 + dx2))
    return a, b, c


def low_weights(dx: Spacing) -> Weights:
    """Weights of the first three points for the slope at the first one."""
    if np.ndim(dx) == 0:
        return -1.5 / dx, 2.0 / dx, -0.5 / dx
    dx1, dx2 = dx[0], dx[1]
    a = -(2.0 * dx1 + dx2) / (dx1 * (dx1 + dx2))
    b = (dx1 + dx2) / (dx1 * dx2)
    c = -dx1 / (dx2 * (dx1 + dx2))
    return a, b, c


def high_weights(dx: Spacing) -> Weights:
    """Weights of the last three points for the slope at the last one."""
    if np.ndim(dx) == 0:
        return 0.5 / dx, -2.0 / dx, 1.5 / dx
    dx1, dx2 = dx[-2], dx[-1]
    a = (dx2) / (dx1 * (dx1 + dx2))
    b = -(dx2 + dx1) / (dx1 * dx2)
    c = (2.0 * dx2 + dx1) / (dx2 * (dx1 + dx2))
    return a, b, c


Function = Callable[..., Any]

_LEAST = 1e-30  # distance, whose reciprocal single precision can hold


def gradient(
    f: Field, *varargs: Any, axis: int | Sequence[int] | None = None, edge_order: int = 1
) -> Field | tuple[Field, ...]:
    """Central differences along axes, one-sided at both ends, as `numpy.gradient`. *Collective*.

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
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 1.0 * x * x + y)
    >>> ux, uy = np.gradient(u, 0.5)
    >>> ux.local[:, 0]
    array([ 2.,  4.,  8., 10.])
    """
    task: _Task

    def plan(agree: Agreement) -> list[Mappings]:
        nonlocal task
        task = _Task(f, varargs, axis, edge_order)
        agree(axes=task.axes, spacing=task.spacing, edge_order=task.order)
        return [{along: window} for along, window in zip(task.axes, task.windows, strict=True)]

    def prepare(around: Sequence[Array]) -> Computation:
        return task.prepare(around)

    fetch_and_compute("gradient", f, plan, prepare)
    slopes = task.results
    return slopes[0] if len(slopes) == 1 else slopes


class _Task:
    """Checked arguments, and the fields to be filled."""

    def __init__(self, u: Field, varargs: Sequence[Any], axis: Any, edge_order: object) -> None:
        lead = len(u.components)
        self.field = u
        self.axes = tuple(range(lead, u.ndim)) if axis is None else as_dims("axis", axis, u.ndim)
        self.order = as_int("edge_order", edge_order)
        if self.order not in (1, 2):
            raise ArgumentError(f"edge_order={edge_order} must be 1 or 2")
        if not self.axes:
            raise ArgumentError("axis=() names no axis; leave it out for all dimensions of space")
        for along in self.axes:
            if u.shape[along] <= self.order:
                raise ArgumentError(
                    f"gradient with edge_order={self.order} takes at least {self.order + 1} "
                    f"points; axis {along} of shape {u.shape} has {u.shape[along]}"
                )
        given = _given(varargs, len(self.axes))
        self.spacing = [
            _spacing(each, along, u.shape[along])
            for each, along in zip(given, self.axes, strict=True)
        ]
        self.windows = [self._window(along) for along in self.axes]
        self.results = tuple(self._new(each, n) for each, n in zip(given, self.axes, strict=True))

    def _window(self, axis: int) -> Window:
        """Return a window in which blocks at the ends have the points that they need."""
        split = Line.of(self.field, axis).split
        ends = (split.bounds(split.owner(end)) for end in (0, split.points - 1))
        width = max(1, self.order + 1 - min(stop - start for start, stop in ends))
        return Window(width, width)

    def _new(self, given: Any, axis: int) -> Field:
        """Allocate a result of NumPy's type; raise NumPy's error for types that do not fit."""
        u = self.field
        kind = native(u.dtype) if u.dtype.kind == "M" else u.dtype
        few = min(3, u.shape[axis])
        plainly: Function = np.gradient
        distances = given if np.ndim(given) == 0 else np.arange(few).astype(np.asarray(given).dtype)
        with np.errstate(all="ignore"):
            tried = plainly(np.zeros(few, kind), distances, edge_order=self.order)
        frame = u.frame.bare
        block = frame.make(frame.shape_of(u.components, tried.dtype), tried.dtype)
        return u.in_frame(u.pencil, frame, block)

    def prepare(self, around: Sequence[Array]) -> Computation:
        """Prepare to compute the gradients from the planes around the own block; local."""
        runs: list[Run] = []
        reserved = True
        every = zip(self.axes, self.windows, around, self.spacing, self.results, strict=True)
        for axis, window, planes, spacing, out in every:
            block = np.moveaxis(out.local, axis, 0)
            given = Planes(self.field, axis, window, planes)
            if _is_plain(self.field, out, spacing):
                own = range(given.start, given.stop)
                formulas = gradient_formulas(
                    own,
                    given.points,
                    spacing,
                    self.order,
                    as_complex=out.dtype.kind == "c",
                )
                runs += given.prepare(block, formulas)
            else:
                reserved = False
                runs.append(partial(_fill, block, given, spacing, self.order))
        return Computation(runs, reserved)


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


def _spacing(given: Any, axis: int, points: int) -> Spacing:
    """Return a number, or the distances of neighbours if they differ anywhere."""
    distances = plain_array(given)
    if distances.ndim == 0:
        return given
    if distances.shape != (points,):
        raise ArgumentError(
            f"spacing of shape {distances.shape} must be a number, or the global coordinates of "
            f"the {points} points along axis {axis}"
        )
    if distances.dtype.kind in "iu":
        distances = distances.astype(float)
    steps = np.diff(distances)
    return steps[0] if (steps == steps[0]).all() else steps


def _is_plain(u: Field, out: Field, spacing: Spacing) -> bool:
    """Whether a gradient is one of floats with real distances, which is the fast case.

    It multiplies by reciprocals, which must not be 0 or infinite.
    """
    steps = np.asarray(spacing)
    if not suits(u.dtype, out.dtype) or steps.dtype.kind not in "iuf":
        return False
    return bool(((abs(steps) > _LEAST) & (abs(steps) < 1 / _LEAST)).all())


def _fill(out: Array, planes: Planes, spacing: Spacing, order: int) -> None:
    """Compute the gradient at own points; axes come first."""
    start, stop, points = planes.start, planes.stop, planes.points
    if start == stop:
        return
    uniform = np.ndim(spacing) == 0
    for first, last in _pieces(start, stop, points):
        near = _as_numbers(planes.between(first - 1, last + 1))
        steps = spacing if uniform else (spacing[first - 1 : last - 1], spacing[first:last])
        central = _central if uniform else _central_between
        central(out[first - start : last - start], near, steps)
    if start == 0:
        out[0] = _low_end(_as_floats(planes.between(0, order + 1)), spacing, order)
    if stop == points:
        out[-1] = _high_end(_as_floats(planes.between(points - order - 1, points)), spacing, order)


def _pieces(start: int, stop: int, points: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of own points with two neighbours; the longest one needs own planes only."""
    first, last = max(start, 1), min(stop, points - 1)
    if first < last:
        inner = min(max(first, start + 1), last)
        cuts = first, inner, max(inner, min(last, stop - 1)), last
        yield from ((low, high) for low, high in pairwise(cuts) if low < high)


def _as_numbers(planes: Array) -> Array:
    """View times as differences of times, as NumPy does."""
    if planes.dtype.kind != "M":
        return planes
    times = planes.astype(native(planes.dtype), copy=False)
    return times.view(times.dtype.str.replace("M8", "m8"))


def _as_floats(planes: Array) -> Array:
    numbers = _as_numbers(planes)
    return numbers.astype(float) if numbers.dtype.kind in "iu" else numbers


def _central(out: Array, near: Array, step: Any) -> None:
    """Compute central differences of equidistant planes."""
    if out.dtype.kind not in "fc":
        out[...] = (near[2:] - near[:-2]) / (2.0 * step)
        return
    np.subtract(near[2:], near[:-2], out=out, dtype=native(out.dtype))
    np.divide(out, 2.0 * step, out=out, casting="unsafe")


def _central_between(out: Array, near: Array, steps: tuple[Array, Array]) -> None:
    """Compute central differences of planes at any distances."""
    a, b, c = central_weights(*(step.reshape(-1, *[1] * (out.ndim - 1)) for step in steps))
    if out.dtype.kind not in "fc":
        out[...] = a * near[:-2] + b * near[1:-1] + c * near[2:]
        return
    kind = np.result_type(a.dtype, out.dtype)
    total = out if kind == out.dtype else np.empty(out.shape, kind)
    np.multiply(a, near[:-2], out=total, dtype=kind)
    for factor, part in ((b, near[1:-1]), (c, near[2:])):
        total += np.multiply(factor, part, dtype=kind)
    if total is not out:
        out[...] = total


def _low_end(f: Array, dx: Spacing, order: int) -> Any:
    """Compute the one-sided difference at the first plane."""
    if order == 1:
        return (f[1] - f[0]) / distance_at(dx, 0)
    a, b, c = low_weights(dx)
    return a * f[0] + b * f[1] + c * f[2]


def _high_end(f: Array, dx: Spacing, order: int) -> Any:
    """Compute the one-sided difference at the last plane."""
    if order == 1:
        return (f[-1] - f[-2]) / distance_at(dx, -1)
    a, b, c = high_weights(dx)
    return a * f[-3] + b * f[-2] + c * f[-1]
