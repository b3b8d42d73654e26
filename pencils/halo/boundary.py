"""Boundary points: those of the padded block that lie outside the physical domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.array.verbs import Mode
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dims

# Returns values for boundary points, given the argument `value` as an array that broadcasts to the
# field: None in modes that take none.
Values: TypeAlias = Callable[[Any], Any]

# Types of arguments by which a call is found again: they are equal only if they are the same.
_PLAIN = frozenset({str, int, tuple, type(None)})
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
    key = "fill_boundary", mode, axis, side, reflect_type
    plain = _PLAIN.issuperset(map(type, (*key, *axis) if type(axis) is tuple else key))
    filling: _Filling | None = u.kept.find(key) if plain else None
    if filling is None:
        filling = _Filling(u, _as_rule(u, mode, reflect_type), _edges(u, axis, side))
        if plain:
            u.kept.add(key, filling, (), [u.padded])
    filling.run(u, value)


class _Filling:
    """A call of `fill_boundary` for a field, checked and prepared."""

    def __init__(self, u: PencilArray, rule: _Rule, edges: Sequence[_Edge]) -> None:
        if not u.padded.flags.writeable:
            raise ArgumentError(
                "the field is read-only, like the data it views; fill the boundary of u.copy()"
            )
        for edge in edges:
            _check_points(u, edge, rule)
        self._rule = rule
        self._dtype = np.result_type(u.dtype, float) if rule.mode.rounds else u.dtype
        self._default = self._as_value(u, 0) if rule.mode.takes_value else None
        # The boundary points of each edge.
        self._steps: list[tuple[Array, Values]] = []
        if u.extent.box.volume > 0:
            box = u.extent.box
            for edge in edges:
                outside = edge.outside(box.start[edge.dim], box.stop[edge.dim])
                if outside:
                    target = _along(u, edge.dim, outside)
                    self._steps.append((target, rule.mode.prepare(u, edge, outside, rule)))

    def run(self, u: PencilArray, value: object) -> None:
        """Fill."""
        values = self._default if value is None else self._as_value(u, value)
        if self._rule.computes:
            with np.errstate(all="ignore"):
                self._fill(values)
        else:
            self._fill(values)

    def _fill(self, value: Array | None) -> None:
        for target, values in self._steps:
            target[...] = values(value)

    def _as_value(self, u: PencilArray, value: object) -> Array:
        """Convert and shape a value so that it broadcasts to the padded block."""
        name, mode, _ = self._rule
        if not mode.takes_value:
            known = tuple(each for each, row in _MODES.items() if row.takes_value)
            raise ArgumentError(
                f"value={value!r} has no meaning for mode={name!r}; only {known} take one"
            )
        lead = u.components
        try:
            values = np.asarray(value, self._dtype)
            values = values if values.ndim == 0 else np.broadcast_to(values, lead)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(
                f"value={value!r} must be {self._dtype} elements that broadcast to the components "
                f"{lead} of the field: {error}"
            ) from None
        return values.reshape(*(values.shape or (1,) * len(lead)), *(1,) * u.pencil.ndim)


class _Rule(NamedTuple):
    """What to fill in: arguments of `fill_boundary`, checked."""

    name: Any  # of the mode, or a function
    mode: _Mode
    reflect_type: Literal["even", "odd"]

    @property
    def computes(self) -> bool:
        """Whether values are computed, not copied."""
        return self.mode.computes or self.reflect_type == "odd"


class _Mode(NamedTuple):
    """How to fill boundary points: one row of `_MODES`."""

    # Takes the field, the edge, the points along its dimension, and the rule.
    prepare: Callable[[PencilArray, _Edge, range, _Rule], Values]
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


def _as_rule(u: PencilArray, name: object, reflect_type: object) -> _Rule:
    if name == "wrap":
        raise ArgumentError(
            "mode 'wrap' is not a boundary; create the pencil with periodic=, and exchange_halo() "
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
    if u.dtype.kind not in "biufc" and (mode.computes or reflect_type == "odd"):
        what = name if mode.computes else f"{name} with reflect_type='odd'"
        raise TypeError(f"{what} needs numbers, not elements of {u.dtype}; use another mode")
    return _Rule(name, mode, reflect_type)


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
            "along which the halo is trimmed at the ends of the domain; u.copy() has room for "
            "boundary points"
        )
    if not any(u.halo[dim][upper] for upper in _SIDES[side]):
        where = "no halo" if side == "both" else f"halo {u.halo[dim]}, none on side {side!r}"
        return f"along which the field has {where}; create it with one, as in zeros(pencil, halo=1)"
    return ""


def _check_points(u: PencilArray, edge: _Edge, rule: _Rule) -> None:
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
            f"mode={rule.name!r} mirrors each point once, but the halo {(lo, hi)} of dimension "
            f"{dim} is wider than its {edge.points} points; use a narrower halo"
        )
    split = u.extent.layout.splits[dim]
    start, stop = split.bounds(split.owner(edge.last))
    needed = edge.inside(count)
    if start - lo > needed.start or needed.stop > stop + hi:
        raise ArgumentError(
            f"mode={rule.name!r} needs the points {needed.start}:{needed.stop} of dimension "
            f"{dim}, but the block at the edge with its halo {(lo, hi)} has {start}:{stop}. Make "
            f"the halo {max(lo, hi)} wide on both sides, or use fewer processes along this "
            "dimension"
        )


def _along(u: PencilArray, dim: int, points: range) -> Array:
    """Part of the padded block with global indices `points` along one dimension, as a view."""
    first = u.extent.box.start[dim] - u.halo_room[dim][0]
    part = slice(points.start - first, points.stop - first)
    return u.padded[_at(len(u.components) + dim, part)]


def _at(axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, part)


def _function(u: PencilArray, edge: _Edge, outside: range, rule: _Rule) -> Values:
    """Prepare values of a function of the global indices."""
    box = u.extent.box.grow(u.halo_room)
    indices = [np.arange(*bounds) for bounds in zip(box.start, box.stop, strict=True)]
    indices[edge.dim] = np.array(outside)
    shape = _along(u, edge.dim, outside).shape

    def values(_: Array) -> Array:
        found = np.asarray(rule.name(*np.ix_(*indices)))
        try:
            return np.broadcast_to(found, shape)
        except ValueError:
            raise ArgumentError(
                f"the function returned shape {found.shape} for the boundary along dimension "
                f"{edge.dim} on rank {u.pencil.rank}; it must broadcast to the shape of these "
                f"points, {shape}"
            ) from None

    return values


def _constant(_u: PencilArray, _edge: _Edge, _outside: range, _rule: _Rule) -> Values:
    return lambda value: value


def _last(u: PencilArray, edge: _Edge, _outside: range, _rule: _Rule) -> Values:
    """Prepare the points at the edge."""
    last = _along(u, edge.dim, edge.inside(1))
    return lambda _: last


# Corners may hold any values while these run; later dimensions overwrite the results.


def _ramp(u: PencilArray, edge: _Edge, outside: range, _rule: _Rule) -> Values:
    """Prepare values on straight lines from the edge to the given value at the outermost point.

    The formula is that of `numpy.linspace`, which however multiplies in another order if any line
    of the array is level; the last bit would then depend on the decomposition.
    """
    steps = edge.width - np.abs(np.array(outside) - edge.last)
    steps = steps.reshape(-1, *(1,) * (u.pencil.ndim - edge.dim - 1))
    last, width, dtype = _along(u, edge.dim, edge.inside(1)), edge.width, u.dtype

    def values(value: Array) -> Array:
        line: Array = steps * ((last - value) / width) + value
        return (np.floor(line) if dtype.kind in "iu" else line).astype(dtype)

    return values


def _mirror(u: PencilArray, edge: _Edge, outside: range, rule: _Rule) -> Values:
    """Prepare values of `numpy.pad` in one of its modes that mirror."""
    last = 2 * edge.last + (0 if rule.name == "reflect" else 1 if edge.upper else -1)
    first, stop = last - outside[-1], last - outside[0] + 1
    if first < 0 or stop > edge.points:
        return _mirror_again(u, edge, outside, rule)
    mirrored = _along(u, edge.dim, range(first, stop))
    mirrored = np.flip(mirrored, len(u.components) + edge.dim)
    if rule.reflect_type == "even":
        return lambda _: mirrored
    at_edge = _along(u, edge.dim, edge.inside(1))
    return lambda _: 2 * at_edge - mirrored


def _mirror_again(u: PencilArray, edge: _Edge, outside: range, rule: _Rule) -> Values:
    """Prepare values that are mirrored several times, since there are few points."""
    source = edge.inside(rule.mode.needs(len(outside)))
    axis = len(u.components) + edge.dim
    widths = [(0, 0)] * u.ndim
    widths[axis] = edge.halo  # both sides: to mirror few points far out, NumPy looks at both
    points: Any = _along(u, edge.dim, source)
    keywords: Any = {"mode": rule.name, "reflect_type": rule.reflect_type}
    first = source.start - edge.halo[0]
    part = _at(axis, slice(outside.start - first, outside.stop - first))
    return lambda _: np.pad(points, widths, **keywords)[part]


def _antisymmetric(u: PencilArray, edge: _Edge, outside: range, rule: _Rule) -> Values:
    """Prepare twice the value at the wall less the mirrored values."""
    mirrored, dtype = _mirror(u, edge, outside, rule), u.dtype
    return lambda value: np.asarray(2 * value - mirrored(value)).astype(dtype)


# A new mode is a row here, and a name in `Mode`. `needs` is 0 if no points are needed.
_FUNCTION = _Mode(_function, lambda _: 0)
_MODES = {
    "constant": _Mode(_constant, lambda _: 0, takes_value=True),
    "edge": _Mode(_last, lambda _: 1),
    "linear_ramp": _Mode(_ramp, lambda _: 1, takes_value=True, computes=True, rounds=True),
    "reflect": _Mode(_mirror, lambda count: count + 1, takes_reflect_type=True),
    "symmetric": _Mode(_mirror, lambda count: count, takes_reflect_type=True),
    "antisymmetric": _Mode(
        _antisymmetric, lambda count: count, takes_value=True, computes=True, once=True
    ),
}
