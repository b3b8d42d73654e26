"""NumPy functions that arrange what fields have already: parts, axes of components, sets of values.

None moves points, but `choose` and those of sets are collective.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.elementwise import as_field, elementwise
from pencils.array.operands import fields_among, signature, topology_among
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.functions.arguments import check_first, check_no_out
from pencils.functions.components import component_axis
from pencils.functions.refused import AXES, DOT, SQUEEZED
from pencils.layout.integers import as_dim, as_dims


def _permuted(name: str, a: Any, *args: Any, **options: Any) -> Field:
    """View a field with its component axes in another order."""
    check_first(name, a)
    order = getattr(np, name)(np.empty(range(a.ndim)), *args, **options).shape
    if order[len(a.components) :] != tuple(range(len(a.components), a.ndim)):
        raise TypeError(f"numpy.{name} does not take these axes of a PencilArray: {AXES}")
    view: Field = a.map_block(lambda block: block.transpose(order))
    return view


def expand_dims(a: Any, axis: Any) -> Field:
    """View a field with component axes of extent 1, as `numpy.expand_dims`; never communicates."""
    check_first("expand_dims", a)
    count = np.size(axis)
    places = as_dims("axis", axis, a.ndim + count)
    if max(places, default=0) >= len(a.components) + count:
        raise TypeError(
            f"numpy.expand_dims: axis {axis} would be one of space; new axes are components and "
            f"come first, 0..{len(a.components)}"
        )
    view: Field = a.map_block(lambda block: np.expand_dims(block, places))
    return view


def squeeze(a: Any, axis: Any = None) -> Field:
    """View a field without component axes of extent 1, as `numpy.squeeze`; never communicates."""
    check_first("squeeze", a)
    if axis is None:
        raise TypeError(f"numpy.squeeze of a PencilArray needs axis=: {SQUEEZED}")
    places = tuple(component_axis("squeeze", a, each) for each in np.atleast_1d(axis))
    view: Field = a.map_block(lambda block: block.squeeze(places))
    return view


def _at_least(ndim: int, *arrays: Any) -> Any:
    """Return fields that have so many axes; one that lacks one gets a component axis."""
    found = [_with_axes(ndim, each) for each in arrays]
    return found[0] if len(found) == 1 else tuple(found)


def _with_axes(ndim: int, a: Any) -> Any:
    if not isinstance(a, Field):
        return np.array(a, ndmin=ndim, copy=None)
    if a.ndim >= ndim:
        return a
    if ndim > 2:  # noqa: PLR2004 - NumPy appends the third axis
        raise TypeError(
            f"numpy.atleast_{ndim}d of a field of shape {a.shape} would add axes after space"
        )
    return expand_dims(a, 0)


def _split(name: str, ary: Any, sections: Any, axis: int | None = None) -> list[Field]:
    """List sections of a field along an axis, as `numpy.split`; never communicates."""
    check_first(name, ary)
    if axis is None:
        axis = {"vsplit": 0, "hsplit": min(1, ary.ndim - 1), "dsplit": 2}.get(name, 0)
    number = as_dim("axis", axis, ary.ndim)
    cut: Callable[..., list[Array]] = np.array_split if name == "array_split" else np.split
    bounds = np.cumsum([0, *map(len, cut(np.empty(ary.shape[number], bool), sections))])
    lead = (slice(None),) * number
    pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    if number < len(ary.components):
        return [ary.map_block(lambda x, s=slice(*pair): x[(*lead, s)]) for pair in pairs]
    return [ary[(*lead, slice(*pair))] for pair in pairs]


def _joined(name: str, tup: Any, **options: Any) -> Any:
    """Join fields along the axis that a function of NumPy has, as `numpy.concatenate`."""
    axis = {"vstack": 0, "hstack": 1, "dstack": 2, "column_stack": 1}[name]
    if name == "hstack" and np.ndim(tup[0]) == 1:
        axis = 0
    elif any(np.ndim(each) <= axis for each in tup):
        raise TypeError(
            f"numpy.{name} of fields with fewer than {axis + 1} axes would make axes after space; "
            "numpy.stack makes component axes"
        )
    whole = [_at_least(2, each) for each in tup] if axis == 0 and name == "vstack" else tup
    joined: Any = np.concatenate(whole, axis, **options)
    return joined


def block(arrays: Any) -> Any:
    """Join fields in nested lists along the last axes, as `numpy.block`. *Collective* in space."""
    depth, first = 0, arrays
    while isinstance(first, list) and first:
        depth, first = depth + 1, first[0]

    def joined(part: Any, axis: int) -> Any:
        if not isinstance(part, list):
            return part
        return np.concatenate([joined(each, axis + 1) for each in part], axis)

    return joined(arrays, -depth)


def real_if_close(a: Any, tol: float = 100) -> Any:
    """Return the real part if all imaginary ones are small, as NumPy. *Collective*."""
    if a.dtype.kind != "c":
        return a
    most = float(np.finfo(a.dtype).eps) * tol if tol > 1 else tol
    return a.real if np.all(np.less(np.abs(a.imag), most)) else a


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Join two fields along an axis, as `numpy.append` and `numpy.concatenate`."""
    if axis is None and np.ndim(arr) == np.ndim(values) == 1:
        axis = 0
    joined: Any = np.concatenate((arr, values), axis)
    return joined


def _triangle(function: Callable[..., Array], m: Any, k: int = 0) -> Field:
    """Set the points on one side of a diagonal of the last two axes to zero; local."""
    check_first(function.__name__, m)
    if m.ndim < 2:  # noqa: PLR2004
        raise TypeError(f"numpy.{function.__name__} takes a field of two axes at least")
    row, column = m.global_box.start[-2:]
    block = function(m.local, k + row - column)
    triangle: Field = as_field(block, None, m.pencil, m.singletons, m)
    return triangle


def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Broadcast fields against each other, as `numpy.broadcast_arrays`; the results are copies."""
    del subok
    return elementwise(lambda *parts: tuple(np.broadcast_arrays(*parts)), args, {})


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """Broadcast a field to a global shape, as `numpy.broadcast_to`; the result is a copy."""
    wanted = np.broadcast_to(np.False_, shape)
    found = broadcast_arrays(array, wanted, subok=subok)[0]
    if found.shape != wanted.shape:
        raise ArgumentError(
            f"numpy.broadcast_to: a field of shape {np.shape(array)} does not broadcast to {shape}"
        )
    return found


def _spaced(name: str, start: Any, stop: Any, num: int = 50, *args: Any, **options: Any) -> Any:
    """Compute values between ends at each point, as `numpy.linspace`; axis 0 is of components."""
    if options.get("axis", 0) != 0 or options.get("retstep", False) or len(args) > 1:
        raise TypeError(f"numpy.{name} of fields has axis=0, of components, and no retstep=")

    def between(one: Any, other: Any) -> Any:
        return getattr(np, name)(*np.broadcast_arrays(one, other), num, *args, **options)

    if name == "geomspace":  # it raises for zeros
        return _checked(name, 2, start, stop, call=between)
    return elementwise(between, (start, stop), {})


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """Leave out components, as `numpy.delete`; never communicates."""
    number = component_axis("delete", arr, axis)
    return as_field(np.delete(arr.local, obj, number), None, arr.pencil, arr.singletons, arr)


def _put(name: str, a: Any, mask: Any, values: Any) -> None:
    """Set points of a mask to one value, or to those of a field at the same points; local."""
    if not isinstance(values, Field) and np.shape(values) != np.shape(a):
        if np.size(values) != 1:
            raise TypeError(
                f"numpy.{name} would repeat {np.size(values)} values in the order of all points: "
                "write u[mask] = value, or numpy.copyto(u, values, where=mask)"
            )
        values = np.asarray(values).reshape(-1)[0]
    np.copyto(a, values, where=mask)


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Multiply by a number, or sum products of two fields with one axis. *Collective* then."""
    if out is not None or (np.ndim(a) and np.ndim(b) and not np.ndim(a) == np.ndim(b) == 1):
        raise TypeError(f"numpy.dot and numpy.inner do not take such a PencilArray: {DOT}")
    if np.ndim(a) == np.ndim(b) == 1:
        return np.vdot(np.conj(a), b)
    return np.multiply(a, b)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Subtract neighbours of a field with one axis, as `numpy.ediff1d`. *Collective*."""
    if np.ndim(ary) != 1 or to_end is not None or to_begin is not None:
        raise TypeError(
            "numpy.ediff1d takes a field with one axis, and no further values; write "
            "numpy.diff(u, axis=axis)"
        )
    return np.diff(ary)


def _checked(
    name: str, count: int, *args: Any, call: Callable[..., Any] | None = None, **options: Any
) -> Any:
    """Apply a function of NumPy that raises for some values to own points. *Collective*.

    Ranks agree whether it raises; nothing else is communicated. The first arguments may be fields.
    """
    operands, function = args[:count], call or getattr(np, name)
    check_no_out(name, options.pop("out", None))
    with agreed(topology_among(*operands).comm, f"numpy.{name}") as agree:
        agree(fields=[signature(each) for each in fields_among(*operands)])

        def on_blocks(*parts: Any) -> Any:
            return function(*parts, *args[count:], **options)

        return elementwise(on_blocks, operands, {})


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """Choose values by integers at each point, as `numpy.choose`. *Collective*."""

    def chosen(index: Any, *parts: Any) -> Any:
        return np.choose(index, parts, mode=mode)  # type: ignore[call-overload]

    operands = a, *choices
    return _checked("choose", len(operands), *operands, call=chosen, out=out)


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: Any = "C") -> Any:
    """Return numbers of points at indices, as `numpy.ravel_multi_index`. *Collective*."""

    def number(*parts: Any) -> Any:
        return np.ravel_multi_index(parts, dims, mode, order)

    return _checked("ravel_multi_index", len(multi_index), *multi_index, call=number)


def array_equiv(a1: Any, a2: Any) -> bool:
    """Whether two fields are equal after broadcasting, as `numpy.array_equiv`. *Collective*."""
    try:
        np.broadcast_shapes(np.shape(a1), np.shape(a2))
    except ValueError:
        return False
    return bool(np.all(np.equal(a1, a2)))


def _of_sets(
    name: str, ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Array:
    """Apply a function of sets to the distinct values of all ranks. *Collective*."""
    del assume_unique  # distinct values are computed anyway
    if return_indices:
        raise TypeError(
            f"numpy.{name} of a PencilArray takes no return_indices=, which are numbers of points "
            "of any rank; write pencils.functions.own_points(numpy.isin(u, values))"
        )
    sets = [np.unique(each) for each in (ar1, ar2)]
    options = {} if name == "union1d" else {"assume_unique": True}
    found: Array = getattr(np, name)(*sets, **options)
    return found


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Any:
    """Apply a reduction along one axis after another, as `numpy.apply_over_axes`. *Collective*."""
    with agreed(topology_among(a).comm, "numpy.apply_over_axes") as agree:
        numbers = as_dims("axes", axes, np.ndim(a))
        agree(axes=numbers)
    for axis in numbers:
        found = func(a, axis)
        a = found if np.ndim(found) == np.ndim(a) else np.expand_dims(found, axis)
    return a


# What replaces functions of the same names.
ARRANGING: dict[Callable[..., Any], Callable[..., Any]] = {
    getattr(np, name): partial(replacement, name)
    for names, replacement in (
        ("permute_dims transpose swapaxes moveaxis rollaxis", _permuted),
        ("split array_split vsplit hsplit dsplit", _split),
        ("vstack hstack dstack column_stack", _joined),
        ("union1d intersect1d setdiff1d setxor1d", _of_sets),
    )
    for name in names.split()
} | {
    np.atleast_1d: partial(_at_least, 1),
    np.atleast_2d: partial(_at_least, 2),
    np.atleast_3d: partial(_at_least, 3),
    np.linspace: partial(_spaced, "linspace"),
    np.logspace: partial(_spaced, "logspace"),
    np.geomspace: partial(_spaced, "geomspace"),
    np.putmask: partial(_put, "putmask"),
    np.place: partial(_put, "place"),
    np.inner: dot,
    np.can_cast: lambda from_, *args, **options: np.can_cast(from_.dtype, *args, **options),
    np.min_scalar_type: lambda a: a.dtype,
    np.unravel_index: partial(_checked, "unravel_index", 1),
    np.is_busday: partial(_checked, "is_busday", 1),
    np.busday_count: partial(_checked, "busday_count", 2),
    np.busday_offset: partial(_checked, "busday_offset", 2),
    np.tril: partial(_triangle, np.tril),
    np.triu: partial(_triangle, np.triu),
}
