"""Boundary points: those of the padded block that lie outside the physical domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dims

Mode = Literal["constant", "edge", "linear_ramp", "reflect", "symmetric", "antisymmetric"]

_MIRRORS = ("reflect", "symmetric")
_WITH_VALUE = ("constant", "linear_ramp", "antisymmetric")
_MODES: tuple[str, ...] = get_args(Mode)
_SIDES = {"lo": (False,), "hi": (True,), "both": (False, True)}


def fill_boundary(
    field: PencilArray,
    mode: Mode | Callable[..., Any],
    *,
    value: object = None,
    axis: int | Sequence[int] | None = None,
    side: Literal["lo", "hi", "both"] = "both",
    reflect_type: Literal["even", "odd"] = "even",
) -> None:
    """Fill halo points outside the physical domain: see `PencilArray.fill_boundary`."""
    check_type("field", field, PencilArray)
    rule = _read_rule(field, mode, value, reflect_type)
    edges = _read_edges(field, axis, side)
    if not field.padded.flags.writeable:
        msg = "the field is read-only, like the data it views; fill the boundary of u.copy()"
        raise ArgumentError(msg)
    for edge in edges:
        _check_points(field, edge, rule)
    if field.extent.box.volume > 0:
        for edge in edges:
            _fill(field, edge, rule)


class _Rule(NamedTuple):
    """What to fill in: the arguments of `fill_boundary`, checked."""

    mode: Any  # a name or a function
    value: Any  # an array that broadcasts to the padded block, for modes that take one
    reflect_type: Literal["even", "odd"]

    def needs(self, reach: int) -> int:
        """Points next to the edge that determine `reach` boundary points, on an endless grid."""
        if self.mode == "reflect":
            return reach + 1
        return reach if self.mode in {"symmetric", "antisymmetric"} else 1


class _Edge(NamedTuple):
    """One end of one dimension of the grid, and what lies around it in global indices."""

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


def _read_rule(field: PencilArray, mode: object, value: object, reflect_type: object) -> _Rule:
    if mode == "wrap":
        msg = (
            "mode 'wrap' is a matter of the pencil: make it with periodic=, and the halo exchange "
            "fills the halo"
        )
        raise ArgumentError(msg)
    if not callable(mode) and mode not in _MODES:
        msg = f"mode={mode!r} is not one of {', '.join(_MODES)}, or a function of global indices"
        raise ArgumentError(msg)
    if reflect_type not in ("even", "odd"):
        msg = f"reflect_type={reflect_type!r} must be 'even' or 'odd'"
        raise ArgumentError(msg)
    if reflect_type == "odd" and mode not in _MIRRORS:
        msg = f"reflect_type='odd' has no meaning for mode={mode!r}; only {_MIRRORS} mirror"
        raise ArgumentError(msg)
    if value is not None and mode not in _WITH_VALUE:
        msg = f"value={value!r} has no meaning for mode={mode!r}; only {_WITH_VALUE} take one"
        raise ArgumentError(msg)
    computed = mode in {"linear_ramp", "antisymmetric"}
    if field.dtype.kind not in "biufc" and (computed or reflect_type == "odd"):
        what = mode if computed else f"{mode} with reflect_type='odd'"
        msg = f"{what} computes with numbers, and the elements are {field.dtype}; use another mode"
        raise TypeError(msg)
    if mode not in _WITH_VALUE:
        return _Rule(mode, None, reflect_type)
    # A ramp is computed in floating point and rounded at its points, not at its end.
    kind = np.result_type(field.dtype, float) if mode == "linear_ramp" else field.dtype
    return _Rule(mode, _read_value(field, 0 if value is None else value, kind), reflect_type)


def _read_value(field: PencilArray, value: object, dtype: np.dtype[Any]) -> Array:
    """Convert and shape a value so that it broadcasts to the padded block."""
    lead = field.components
    try:
        values = np.broadcast_to(np.asarray(value, dtype), lead)
    except (TypeError, ValueError, OverflowError) as error:
        msg = (
            f"value={value!r} must be {dtype} elements that broadcast to the components {lead} of "
            f"the field: {error}"
        )
        raise ArgumentError(msg) from None
    return values.reshape(*lead, *(1,) * field.pencil.ndim)


def _read_edges(field: PencilArray, axis: int | Sequence[int] | None, side: str) -> list[_Edge]:
    """List the ends of dimensions to fill at, in the order to fill."""
    if side not in _SIDES:
        msg = f"side={side!r} must be one of {', '.join(map(repr, _SIDES))}"
        raise ArgumentError(msg)
    edges = [
        _Edge(dim, upper, field.extent.shape[dim], field.halo[dim])
        for dim in _read_axis(field, axis, side)
        for upper in _SIDES[side]
    ]
    return [edge for edge in edges if edge.width > 0]


def _read_axis(field: PencilArray, axis: int | Sequence[int] | None, side: str) -> list[int]:
    """Read dimensions along which there are boundary points to fill."""
    ndim = field.pencil.ndim
    wanted = range(ndim) if axis is None else sorted(as_dims("axis", axis, ndim))
    reasons = {dim: _no_boundary(field, dim, side) for dim in wanted}
    if axis is None:
        found = [dim for dim in wanted if not reasons[dim]]
        # A program for any periodicity need not ask; one without any halo has forgotten it.
        wraps = any(field.pencil.periodic[dim] and any(field.halo[dim]) for dim in wanted)
        if not (found or wraps):
            each = "; ".join(f"dimension {dim}, {reason}" for dim, reason in reasons.items())
            msg = f"there are no boundary points to fill; leave out this call, or see {each}"
            raise ArgumentError(msg)
        return found
    for dim, reason in reasons.items():
        if reason:
            msg = f"axis={axis!r} names dimension {dim}, {reason}; leave it out"
            raise ArgumentError(msg)
    return list(wanted)


def _no_boundary(field: PencilArray, dim: int, side: str) -> str:
    """Say why a field has no boundary points along a dimension; nothing, if it may have some."""
    if dim in field.singletons:
        return "along which the field is a singleton and has no halo"
    if field.pencil.periodic[dim]:
        return "which is periodic and has no boundary: exchange_halo() fills its halo"
    if dim in field.trimmed:
        return (
            "along which the field is trimmed: its blocks end with the domain; u.copy() has room "
            "for boundary points"
        )
    if not any(field.halo[dim][upper] for upper in _SIDES[side]):
        where = "no halo" if side == "both" else f"halo {field.halo[dim]}, none on side {side!r}"
        return f"along which the field has {where}: make it with one, as in zeros(pen, halo=1)"
    return ""


def _check_points(field: PencilArray, edge: _Edge, rule: _Rule) -> None:
    """Check that every block with boundary points holds the points that determine them.

    The one at the edge needs the most of them and reaches least far inside: if it has them, so do
    all others.
    """
    if rule.mode == "constant" or callable(rule.mode):
        return
    dim, (lo, hi) = edge.dim, edge.halo
    if edge.points == 0:
        msg = f"dimension {dim} has no points for mode={rule.mode!r} to start from; use 'constant'"
        raise ArgumentError(msg)
    if rule.mode == "antisymmetric" and edge.width > edge.points:
        msg = (
            f"mode='antisymmetric' mirrors each point once, and the halo of dimension {dim}, "
            f"{(lo, hi)}, is wider than its {edge.points} points; use a narrower halo there"
        )
        raise ArgumentError(msg)
    split = field.extent.layout.splits[dim]
    start, stop = split.bounds(split.owner(edge.last))
    needed = edge.inside(rule.needs(edge.width))
    if start - lo > needed.start or needed.stop > stop + hi:
        msg = (
            f"mode={rule.mode!r} needs the points {needed.start}:{needed.stop} of dimension {dim}, "
            f"which do not all lie in the block {start}:{stop} at the edge with its halo "
            f"{(lo, hi)}; make it as wide on both sides, {max(lo, hi)}, or use fewer processes "
            "along that dimension"
        )
        raise ArgumentError(msg)


def _fill(field: PencilArray, edge: _Edge, rule: _Rule) -> None:
    """Fill the boundary points that this rank has beyond one edge, if any."""
    box = field.extent.box
    outside = edge.outside(box.start[edge.dim], box.stop[edge.dim])
    if not outside:
        return
    target = _along(field, edge.dim, outside)
    if callable(rule.mode):
        target[...] = _call(rule.mode, field, edge.dim, outside, target.shape)
    elif rule.mode == "constant":
        target[...] = rule.value
    elif rule.mode == "edge":
        target[...] = _along(field, edge.dim, edge.inside(1))
    elif rule.mode == "linear_ramp":
        target[...] = _ramp(field, edge, outside, rule)
    elif rule.mode == "antisymmetric":
        with np.errstate(all="ignore"):
            np.subtract(
                2 * rule.value,
                _mirrored(field, edge, outside, rule._replace(mode="symmetric")),
                out=target,
                casting="unsafe",
            )
    else:
        target[...] = _mirrored(field, edge, outside, rule)


def _along(field: PencilArray, dim: int, points: range) -> Array:
    """Part of the padded block with global indices `points` along one dimension, as a view."""
    first = field.extent.box.start[dim] - field.halo_room[dim][0]
    part = slice(points.start - first, points.stop - first)
    return field.padded[_at(len(field.components) + dim, part)]


def _at(axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, part)


def _call(
    function: Callable[..., Any],
    field: PencilArray,
    dim: int,
    outside: range,
    shape: tuple[int, ...],
) -> Array:
    """Values of a function of the global indices."""
    box = field.extent.box.grow(field.halo_room)
    indices = [np.arange(*bounds) for bounds in zip(box.start, box.stop, strict=True)]
    indices[dim] = np.array(outside)
    values = np.asarray(function(*np.ix_(*indices)))
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        msg = (
            f"the function returned values of shape {values.shape}, which do not broadcast to the "
            f"boundary points along dimension {dim} of rank {field.pencil.rank}, shape {shape}"
        )
        raise ArgumentError(msg) from None


# Below, corners may still hold anything, of which a later dimension makes something better.


def _ramp(field: PencilArray, edge: _Edge, outside: range, rule: _Rule) -> Array:
    """Values on straight lines from the edge to `rule.value` at the outermost point.

    The formula is that of `numpy.linspace`, which however multiplies in another order if any line
    of the array is level; the last bit would then depend on the decomposition.
    """
    steps = edge.width - np.abs(np.array(outside) - edge.last)
    steps = steps.reshape(-1, *(1,) * (field.pencil.ndim - edge.dim - 1))
    with np.errstate(all="ignore"):
        rise = _along(field, edge.dim, edge.inside(1)) - rule.value
        line: Array = steps * (rise / edge.width) + rule.value
        return (np.floor(line) if field.dtype.kind in "iu" else line).astype(field.dtype)


def _mirrored(field: PencilArray, edge: _Edge, outside: range, rule: _Rule) -> Array:
    """Values that `numpy.pad` takes from the points which determine them."""
    source = edge.inside(rule.needs(len(outside)))
    axis = len(field.components) + edge.dim
    widths = [(0, 0)] * field.ndim
    widths[axis] = edge.halo  # both ends: to mirror few points far out, NumPy looks at both
    with np.errstate(all="ignore"):
        padded: Array = np.pad(
            _along(field, edge.dim, source), widths, rule.mode, reflect_type=rule.reflect_type
        )
    first = source.start - edge.halo[0]
    return padded[_at(axis, slice(outside.start - first, outside.stop - first))]
