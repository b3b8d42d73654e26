"""Boundary points: those of the padded block that lie outside the physical domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dims

Mode = Literal["constant", "edge", "linear_ramp", "reflect", "symmetric", "antisymmetric"]

_SIDES = {"lo": (False,), "hi": (True,), "both": (False, True)}


def fill_boundary(
    u: PencilArray,
    mode: Mode | Callable[..., Any],
    *,
    value: object = None,
    axis: int | Sequence[int] | None = None,
    side: Literal["lo", "hi", "both"] = "both",
    reflect_type: Literal["even", "odd"] = "even",
) -> None:
    """Fill halo points outside the physical domain: see `PencilArray.fill_boundary`."""
    check_type("u", u, PencilArray)
    rule = _as_rule(u, mode, value, reflect_type)
    edges = _edges(u, axis, side)
    if not u.padded.flags.writeable:
        raise ArgumentError(
            "the field is read-only, like the data it views; fill the boundary of u.copy()"
        )
    for edge in edges:
        _check_points(u, edge, rule)
    if u.extent.box.volume > 0:
        for edge in edges:
            _fill(u, edge, rule)


class _Filling(NamedTuple):
    """What to fill in: the arguments of `fill_boundary`, checked."""

    name: Any  # of the mode, or a function
    mode: _Mode
    value: Any  # an array that broadcasts to the padded block, for modes that take one
    reflect_type: Literal["even", "odd"]


class _Mode(NamedTuple):
    """How to fill boundary points: one row of `_MODES`."""

    # Returns values, given the field, the edge, the points along its dimension, and the rule.
    values: Callable[[PencilArray, _Edge, range, _Filling], Any]
    needs: Callable[[int], int]  # points inside that determine a number of boundary points
    takes_value: bool = False
    takes_reflect_type: bool = False
    computes: bool = False  # with numbers
    rounds: bool = False  # computes in floating point
    once: bool = False  # each point inside determines one boundary point at most


class _Edge(NamedTuple):
    """One side of one dimension of the grid; points are global indices."""

    dim: int
    upper: bool
    points: int
    halo: tuple[int, int]

    @property
    def width(self) -> int:
        """Width of the halo on this side."""
        return self.halo[self.upper]

    @property
    def last(self) -> int:
        """Index of the outermost point inside."""
        return self.points - 1 if self.upper else 0

    def inside(self, count: int) -> range:
        """Range of `count` points next to the edge, or of all if there are fewer."""
        count = min(count, self.points)
        return range(self.points - count, self.points) if self.upper else range(count)

    def outside(self, start: int, stop: int) -> range:
        """Boundary points of an own block that is ``[start, stop)`` along the dimension."""
        if self.upper:
            return range(self.points, stop + self.halo[1])
        return range(start - self.halo[0], 0)


def _as_rule(u: PencilArray, name: object, value: object, reflect_type: object) -> _Filling:
    if name == "wrap":
        raise ArgumentError(
            "mode 'wrap' is a matter of the pencil: make it with periodic=, and the halo exchange "
            "fills the halo"
        )
    mode = _FUNCTION if callable(name) else _MODES.get(str(name))
    if mode is None:
        raise ArgumentError(
            f"mode={name!r} is not one of {', '.join(_MODES)}, or a function of global indices"
        )
    if reflect_type not in ("even", "odd"):
        raise ArgumentError(f"reflect_type={reflect_type!r} must be 'even' or 'odd'")
    if reflect_type == "odd" and not mode.takes_reflect_type:
        known = tuple(each for each, row in _MODES.items() if row.takes_reflect_type)
        raise ArgumentError(
            f"reflect_type='odd' has no meaning for mode={name!r}; only {known} mirror"
        )
    if value is not None and not mode.takes_value:
        known = tuple(each for each, row in _MODES.items() if row.takes_value)
        raise ArgumentError(
            f"value={value!r} has no meaning for mode={name!r}; only {known} take one"
        )
    if u.dtype.kind not in "biufc" and (mode.computes or reflect_type == "odd"):
        what = name if mode.computes else f"{name} with reflect_type='odd'"
        raise TypeError(
            f"{what} computes with numbers, and the elements are {u.dtype}; use another mode"
        )
    if not mode.takes_value:
        return _Filling(name, mode, None, reflect_type)
    dtype = np.result_type(u.dtype, float) if mode.rounds else u.dtype
    return _Filling(name, mode, _as_value(u, 0 if value is None else value, dtype), reflect_type)


def _as_value(u: PencilArray, value: object, dtype: np.dtype[Any]) -> Array:
    """Convert and shape a value so that it broadcasts to the padded block."""
    lead = u.components
    try:
        values = np.broadcast_to(np.asarray(value, dtype), lead)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"value={value!r} must be {dtype} elements that broadcast to the components {lead} of "
            f"the field: {error}"
        ) from None
    return values.reshape(*lead, *(1,) * u.pencil.ndim)


def _edges(u: PencilArray, axis: int | Sequence[int] | None, side: str) -> list[_Edge]:
    """List the edges at which to fill boundary points, in this order."""
    if side not in _SIDES:
        raise ArgumentError(f"side={side!r} must be one of {', '.join(map(repr, _SIDES))}")
    edges = [
        _Edge(dim, upper, u.extent.shape[dim], u.halo[dim])
        for dim in _dims(u, axis, side)
        for upper in _SIDES[side]
    ]
    return [edge for edge in edges if edge.width > 0]


def _dims(u: PencilArray, axis: int | Sequence[int] | None, side: str) -> list[int]:
    """Read dimensions along which there are boundary points to fill."""
    ndim = u.pencil.ndim
    wanted = range(ndim) if axis is None else sorted(as_dims("axis", axis, ndim))
    reasons = {dim: _no_boundary(u, dim, side) for dim in wanted}
    if axis is None:
        found = [dim for dim in wanted if not reasons[dim]]
        # Programs may call this for any periodicity, but not for a field without halo.
        wraps = any(u.pencil.periodic[dim] and any(u.halo[dim]) for dim in wanted)
        if not (found or wraps or len(u.singletons) == ndim):
            each = "; ".join(f"dimension {dim}, {reason}" for dim, reason in reasons.items())
            raise ArgumentError(
                f"there are no boundary points to fill; leave out this call, or see {each}"
            )
        return found
    for dim, reason in reasons.items():
        if reason:
            raise ArgumentError(f"axis={axis!r} names dimension {dim}, {reason}; leave it out")
    return list(wanted)


def _no_boundary(u: PencilArray, dim: int, side: str) -> str:
    """Return why a field has no boundary points along a dimension; empty if it may have some."""
    if dim in u.singletons:
        return "along which the field is a singleton and has no halo"
    if u.pencil.periodic[dim]:
        return "which is periodic and has no boundary: exchange_halo() fills its halo"
    if dim in u.trimmed:
        return (
            "along which the field is trimmed: its blocks end with the domain; u.copy() has room "
            "for boundary points"
        )
    if not any(u.halo[dim][upper] for upper in _SIDES[side]):
        where = "no halo" if side == "both" else f"halo {u.halo[dim]}, none on side {side!r}"
        return f"along which the field has {where}: make it with one, as in zeros(pencil, halo=1)"
    return ""


def _check_points(u: PencilArray, edge: _Edge, rule: _Filling) -> None:
    """Check that the block at the edge, which needs most, holds the points that are mirrored."""
    dim, (lo, hi) = edge.dim, edge.halo
    count = rule.mode.needs(edge.width)
    if count == 0:
        return
    if edge.points == 0:
        raise ArgumentError(
            f"dimension {dim} has no points for mode={rule.name!r} to start from; use 'constant'"
        )
    if rule.mode.once and edge.width > edge.points:
        raise ArgumentError(
            f"mode={rule.name!r} mirrors each point once, and the halo of dimension {dim}, "
            f"{(lo, hi)}, is wider than its {edge.points} points; use a narrower halo there"
        )
    split = u.extent.layout.splits[dim]
    start, stop = split.bounds(split.owner(edge.last))
    needed = edge.inside(count)
    if start - lo > needed.start or needed.stop > stop + hi:
        raise ArgumentError(
            f"mode={rule.name!r} needs the points {needed.start}:{needed.stop} of dimension {dim}, "
            f"which do not all lie in the block {start}:{stop} at the edge with its halo "
            f"{(lo, hi)}; make it as wide on both sides, {max(lo, hi)}, or use fewer processes "
            "along that dimension"
        )


def _fill(u: PencilArray, edge: _Edge, rule: _Filling) -> None:
    """Fill the boundary points that this rank has beyond one edge, if any."""
    box = u.extent.box
    outside = edge.outside(box.start[edge.dim], box.stop[edge.dim])
    if not outside:
        return
    target = _along(u, edge.dim, outside)
    target[...] = rule.mode.values(u, edge, outside, rule)


def _along(u: PencilArray, dim: int, points: range) -> Array:
    """Part of the padded block with global indices `points` along one dimension, as a view."""
    first = u.extent.box.start[dim] - u.halo_room[dim][0]
    part = slice(points.start - first, points.stop - first)
    return u.padded[_at(len(u.components) + dim, part)]


def _at(axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, part)


def _function(u: PencilArray, edge: _Edge, outside: range, rule: _Filling) -> Array:
    """Return values of a function of the global indices."""
    box = u.extent.box.grow(u.halo_room)
    indices = [np.arange(*bounds) for bounds in zip(box.start, box.stop, strict=True)]
    indices[edge.dim] = np.array(outside)
    values = np.asarray(rule.name(*np.ix_(*indices)))
    shape = _along(u, edge.dim, outside).shape
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise ArgumentError(
            f"the function returned values of shape {values.shape}, which do not broadcast to the "
            f"boundary points along dimension {edge.dim} of rank {u.pencil.rank}, shape {shape}"
        ) from None


def _constant(_u: PencilArray, _edge: _Edge, _outside: range, rule: _Filling) -> Any:
    return rule.value


def _last(u: PencilArray, edge: _Edge, _outside: range, _rule: _Filling) -> Array:
    """Return the points at the edge."""
    return _along(u, edge.dim, edge.inside(1))


# Corners may hold any values while these run; later dimensions overwrite the results.


def _ramp(u: PencilArray, edge: _Edge, outside: range, rule: _Filling) -> Array:
    """Return values on straight lines from the edge to `rule.value` at the outermost point.

    The formula is that of `numpy.linspace`, which however multiplies in another order if any line
    of the array is level; the last bit would then depend on the decomposition.
    """
    steps = edge.width - np.abs(np.array(outside) - edge.last)
    steps = steps.reshape(-1, *(1,) * (u.pencil.ndim - edge.dim - 1))
    with np.errstate(all="ignore"):
        rise = _along(u, edge.dim, edge.inside(1)) - rule.value
        line: Array = steps * (rise / edge.width) + rule.value
        return (np.floor(line) if u.dtype.kind in "iu" else line).astype(u.dtype)


def _padded_by(numpy_mode: str) -> Callable[[PencilArray, _Edge, range, _Filling], Array]:
    """Return a function that gives the values of `numpy.pad` in one of its modes."""

    def values(u: PencilArray, edge: _Edge, outside: range, rule: _Filling) -> Array:
        source = edge.inside(rule.mode.needs(len(outside)))
        axis = len(u.components) + edge.dim
        widths = [(0, 0)] * u.ndim
        widths[axis] = edge.halo  # both sides: to mirror few points far out, NumPy looks at both
        points: Any = _along(u, edge.dim, source)
        keywords: Any = {"mode": numpy_mode, "reflect_type": rule.reflect_type}
        with np.errstate(all="ignore"):
            padded: Array = np.pad(points, widths, **keywords)
        first = source.start - edge.halo[0]
        return padded[_at(axis, slice(outside.start - first, outside.stop - first))]

    return values


def _antisymmetric(u: PencilArray, edge: _Edge, outside: range, rule: _Filling) -> Array:
    """Return twice the value at the wall less the mirrored values."""
    with np.errstate(all="ignore"):
        values = 2 * rule.value - _padded_by("symmetric")(u, edge, outside, rule)
        return np.asarray(values).astype(u.dtype)


# A new mode is a row here, and a name in `Mode`. `needs` is 0 if no points are needed.
_FUNCTION = _Mode(_function, lambda _: 0)
_MODES = {
    "constant": _Mode(_constant, lambda _: 0, takes_value=True),
    "edge": _Mode(_last, lambda _: 1),
    "linear_ramp": _Mode(_ramp, lambda _: 1, takes_value=True, computes=True, rounds=True),
    "reflect": _Mode(_padded_by("reflect"), lambda count: count + 1, takes_reflect_type=True),
    "symmetric": _Mode(_padded_by("symmetric"), lambda count: count, takes_reflect_type=True),
    "antisymmetric": _Mode(
        _antisymmetric, lambda count: count, takes_value=True, computes=True, once=True
    ),
}
