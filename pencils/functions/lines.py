"""Functions of lines: along an axis that is whole on each rank, or made whole by a transpose."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from math import prod
from typing import Any, cast

import numpy as np

from pencils.array.allocation import Array, frame_of, plain_array
from pencils.array.base import Field
from pencils.array.elementwise import as_field
from pencils.array.operands import (
    FieldSpec,
    check_field,
    check_out,
    check_type,
    signature,
    topology_among,
)
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.reduce import combine
from pencils.comm.stream import bcast_array
from pencils.errors import ArgumentError
from pencils.functions.arguments import Line, check_first, comm_along, decomposed_axes
from pencils.layout.integers import as_dim
from pencils.layout.whole import is_whole
from pencils.transposition.transpose import transpose

LineFunction = Callable[[Any, int], Any]


def along(
    f: LineFunction, u: PencilArray, axis: int, *, out: PencilArray | None = None
) -> PencilArray:
    """Apply a function of NumPy arrays to whole lines along an axis. *Collective*.

    Where lines are cut, the field is moved to ``u.pencil.whole(axis)`` and the result back; where
    each process has whole lines already, nothing is moved.

    Parameters
    ----------
    f : callable
        Called as ``f(block, axis)`` with the part of the global array that this rank has, in which
        lines along `axis` are whole. It returns an array of the same shape; other element types are
        allowed, the same on all ranks. The block is read-only. Ranks without points do not call it,
        unless no rank has any, so it must not communicate.
    u : PencilArray
        The field; its halo is not read.
    axis : int
        An axis of ``u.shape``, components first, in ``[-u.ndim, u.ndim)``: the same one in `f`.
    out : PencilArray, optional
        Field on the pencil of `u` to fill, of a type to which NumPy casts results by the rule
        "same_kind"; it may be `u`. Default: a new field without halo.

    Returns
    -------
    PencilArray
        `out`, on the pencil of `u`.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError, RankDisagreementError
        On every rank, if arguments do not fit, or `f` returns anything else.
    Exception
        Any exception of `f` on one rank, on all ranks.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> u = pencils.from_function(pencils.Pencil((3, 2)), lambda i, j: 10 * i + j)
    >>> pencils.functions.along(lambda block, axis: np.roll(block, 1, axis), u, 0).local
    array([[20, 21],
           [ 0,  1],
           [10, 11]])
    """
    return _along("along", f, u, axis, out)


def _along(
    name: str,
    f: LineFunction,
    u: PencilArray,
    axis: Any,
    out: PencilArray | None = None,
    *,
    always: bool = False,
) -> PencilArray:
    """Do what `along` does; `always`: ranks without points call the function, too."""
    topology = topology_among(u, out)
    with agreed(topology.comm, name) as agree:
        check_type("u", u, PencilArray)
        agree(**signature(u))
        if not callable(f):
            raise TypeError(f"f must be callable as f(block, axis), not {type(f).__name__}")
        number = as_dim("axis", axis, u.ndim)
        agree(axis=number, out=None if out is None else out.dtype)
        if out is not None:
            check_type("out", out, PencilArray)
            check_out(out, u.pencil, FieldSpec(out.dtype, u.components, u.singletons))
    lines = whole_axis(u, number)
    dtype = None if out is None else out.dtype
    block = None
    with agreed(topology.comm, name) as agree:
        if always or lines.local.size or not lines.size:
            block = _result(f, lines, number, dtype)
        agree.dtype(None if block is None else block.dtype)
        agree.flag(up=block is None)
    if agree.flagged and dtype is None:
        mine = None if block is None else block.dtype
        dtype = combine(topology.comm, mine, lambda one, other: other if one is None else one)
    if block is None:
        block = np.empty(lines.local_shape, dtype)
    if lines is u and out is not None:
        out.local = block
        return out
    found = lines.in_frame(lines.pencil, frame_of(lines.pencil, lines.singletons), block)
    return found if lines is u else transpose(found, u.pencil, out)


def _result(f: LineFunction, lines: PencilArray, axis: int, dtype: np.dtype[Any] | None) -> Array:
    """Call a function for the own block, and return what it returns in memory of its own."""
    given = lines.local.view()
    given.flags.writeable = False
    result = f(given, axis)
    if result is None:
        raise TypeError(
            "f returned None; it must return an array with the shape of its block. The block is "
            "read-only: to work in place, write block = block.copy() in f, and return it"
        )
    block = plain_array(result)
    if block.shape != given.shape:
        raise ArgumentError(
            f"f returned shape {block.shape} for a block of shape {given.shape}; it must return "
            "the same shape: numpy.apply_along_axis(f, axis, u) takes functions that reduce a line"
        )
    if block.dtype.hasobject:
        raise TypeError("f must return numbers, not Python objects")
    if dtype is not None:
        if not np.can_cast(block.dtype, dtype, "same_kind"):
            raise TypeError(
                f"f returned {block.dtype}, which does not fit into out of {dtype}; pass "
                f"out of {block.dtype}, or let f cast what it returns"
            )
        block = block.astype(dtype, copy=False)
    block = frame_of(lines.pencil, lines.singletons).ordered(block)
    shared = not block.flags.writeable or np.may_share_memory(block, lines.local)
    return block.copy(order="K") if shared else block


def whole_axis(u: Field, *axes: int) -> PencilArray:
    """Return the field on a pencil where lines along axes are whole. *Collective*.

    It is `u` itself if they are; else results are moved back by ``transpose(result, u.pencil)``.
    What depends on a line only, such as a median, is moved as a field that is singleton there. If
    no other dimension can be cut, the first rank has all lines, and others have no points.
    """
    field = cast("PencilArray", u)
    lead, cut = len(u.components), decomposed_axes(u)
    if not any(axis in cut and u.pencil.process_shape[axis - lead] > 1 for axis in axes):
        return field
    pencil = u.pencil.whole([axis - lead for axis in axes])
    return field if pencil is u.pencil else transpose(field, pencil)


def sort(a: Any, axis: int | None = -1, *args: Any, **options: Any) -> Field:
    """Sort along an axis, as `numpy.sort`. *Collective* along decomposed dimensions.

    Along these, the field is moved to where lines are whole, and the result back: two transposes.
    Along other axes nothing is communicated.

    Parameters
    ----------
    a : PencilArray
        The field.
    axis : int, optional
        Axis of the global shape, default the last one.
    kind, order, stable
        As in `numpy.sort`.

    Returns
    -------
    PencilArray
        A new field without halo, on the same pencil.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: i - j)
    >>> np.sort(u).local
    array([[-2, -1,  0],
           [-1,  0,  1]])
    """
    return _in_order(np.sort, a, axis, *args, **options)


def argsort(a: Any, axis: int | None = -1, *args: Any, **options: Any) -> Field:
    """Return positions that sort along an axis, as `numpy.argsort`. *Collective* as `sort`.

    Parameters are those of `sort`; positions count from 0 along the axis.
    """
    return _in_order(np.argsort, a, axis, *args, **options)


def unwrap(
    p: Any, discont: Any = None, axis: int = -1, *, period: float = 6.283185307179586
) -> Field:
    """Add periods so that steps along an axis are short, as `numpy.unwrap`.

    *Collective* along decomposed dimensions, by two transposes, as `sort`.

    Parameters
    ----------
    p : PencilArray
        The field.
    discont, period
        As in `numpy.unwrap`.
    axis : int, optional
        Axis of the global shape, default the last one.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 1)), lambda i, j: 5.0 * i % 6 + 0 * j)
    >>> np.unwrap(u, axis=0, period=6).local[:, 0]
    array([ 0., -1., -2., -3.])
    """

    def function(block: Array, number: int) -> Array:
        return np.unwrap(block, discont, number, period=period)

    return _of_lines("unwrap", function, p, axis)


def partition(
    function: Any, a: Any, kth: Any, axis: int | None = -1, *args: Any, **options: Any
) -> Field:
    """Put points in place along an axis, as `numpy.partition` or `argpartition`.

    *Collective* as `sort`. Parameters are those of NumPy.
    """

    def parted(block: Array, number: int) -> Array:
        np.partition(np.zeros(a.shape[number], bool), kth)  # it raises on ranks without points, too
        return cast("Array", function(block, kth, number, *args, **options))

    return _in_order(wraps(function)(parted), a, axis)


def _in_order(function: Any, a: Any, axis: object, *args: Any, **options: Any) -> Field:
    name = function.__name__
    check_first(name, a)
    if axis is None:
        with agreed(a.pencil.topology.comm, f"numpy.{name}"):
            raise TypeError(
                f"numpy.{name} with axis=None would sort the values of all ranks; give one axis, "
                "or write numpy.quantile(u, q) or numpy.unique(u)"
            )
    return _of_lines(name, lambda block, number: function(block, number, *args, **options), a, axis)


def take_along_axis(arr: Any, indices: Any, axis: int = -1) -> Field:
    """Take points along an axis by a field of their numbers, as `numpy.take_along_axis`.

    *Collective*. Along decomposed dimensions both fields are moved to where lines are whole, and
    the result back: three transposes.

    Parameters
    ----------
    arr : PencilArray
        The field.
    indices : PencilArray of int
        Numbers along the axis, as `numpy.argsort` and `argmin` return them: as many as points, or
        one for each line.
    axis : int, optional
        Axis of the global shape, default the last one.

    Returns
    -------
    PencilArray
        A new field without halo, of the shape of `indices`, on the pencil of `arr`.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: (i - j) ** 2)
    >>> np.take_along_axis(u, np.argmin(u, axis=1), axis=1).local
    array([[0],
           [0]])
    """
    name = "take_along_axis"
    topology = topology_among(arr, indices)
    with agreed(topology.comm, name) as agree:
        check_field("arr", arr)
        check_field("indices", indices)
        number = as_dim("axis", axis, arr.ndim)
        agree(arr=signature(arr), indices=signature(indices), axis=number)
        dim = number - len(arr.components)
        shape = list(arr.shape)
        if dim < 0 or dim in indices.singletons:
            shape[number] = indices.shape[number]
        if shape != [*indices.shape] or (arr.singletons ^ indices.singletons) - {dim}:
            raise ArgumentError(
                f"numpy.{name}: indices of shape {indices.shape} must have that of the field, "
                f"{arr.shape}, or one point along the axis, as numpy.argmin returns them, or any "
                "number of components"
            )
    lines = whole_axis(arr, number)
    places = indices if lines is arr else transpose(indices, lines.pencil)
    block = None
    with agreed(topology.comm, name):
        if lines.local_shape[number] == arr.shape[number]:
            block = np.take_along_axis(lines.local, places.local, number)
    result = _joined(lines, number, block, arr.dtype, indices.shape[number : number + 1])
    return result if lines is arr else transpose(result, arr.pencil)


def _of_lines(name: str, function: LineFunction, a: Field, axis: Any) -> Field:
    """Apply a function of whole lines to a field. *Collective* along decomposed dimensions."""
    number = None
    with suppress(ArgumentError, TypeError):  # raised below, on all ranks
        number = as_dim("axis", axis, a.ndim)
    if number is not None:
        dim = number - len(a.components)
        if number not in decomposed_axes(a) or is_whole(a.pencil.layout, dim):
            return as_field(function(a.local, number), None, a.pencil, a.singletons, a)
    return _along(f"numpy.{name}", function, cast("PencilArray", a), axis, always=True)


# Element type and components along the axis of what a function of a line returns.
_Kind = tuple[np.dtype[Any], tuple[int, ...]]


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Field:
    """Apply a function to lines along an axis, as `numpy.apply_along_axis`. *Collective*.

    Ranks agree on the type of the results. Along decomposed dimensions the field is moved to where
    lines are whole, and the result back: two transposes.

    Parameters
    ----------
    func1d : callable
        Function of a NumPy array with one axis; it must not communicate. Along space it returns as
        many values, or one; then the dimension becomes a singleton. Along a component axis it
        returns any number of values.
    axis : int
        Axis of the global shape.
    arr : PencilArray
        The field.
    *args, **kwargs
        Further arguments of the function.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: i - j)
    >>> np.apply_along_axis(np.median, 1, u).local
    array([[-1.],
           [ 0.]])
    """
    name = "apply_along_axis"
    with agreed(arr.pencil.topology.comm, name) as agree:
        agree(**signature(arr))
        number = as_dim("axis", axis, arr.ndim)
        agree(axis=number)
        if _lines(arr.shape, number) == 0:
            raise ArgumentError(f"numpy.{name} of a field of shape {arr.shape}: it has no lines")
    lines = whole_axis(arr, number)
    with agreed(arr.pencil.topology.comm, name):
        block = None
        # One rank may have all points of the lines.
        if _lines(lines.local_shape, number) and lines.local_shape[number] == arr.shape[number]:
            block = np.asarray(np.apply_along_axis(func1d, number, lines.local, *args, **kwargs))
        mine = None if block is None else _kind_of(block, arr, number)
    kind = combine(arr.pencil.topology.comm, mine, _common)
    assert kind is not None
    result = _joined(lines, number, block, *kind)
    return result if lines is arr else transpose(result, arr.pencil)


def _lines(shape: tuple[int, ...], axis: int) -> int:
    return prod(shape[:axis]) * prod(shape[axis + 1 :])


def _kind_of(block: Array, arr: Field, number: int) -> _Kind:
    """Check what a function has returned, by the extents that replace the axis."""
    more = block.ndim - (arr.ndim - 1)
    extents = block.shape[number : number + more]
    if number >= len(arr.components) and extents not in {(), (1,), (arr.shape[number],)}:
        raise ArgumentError(
            f"numpy.apply_along_axis: the function returns shape {extents} for a line of "
            f"{arr.shape[number]} points of space; it must return as many values, or one"
        )
    if block.dtype.hasobject:
        raise TypeError("numpy.apply_along_axis: the function must return numbers, not objects")
    return block.dtype, extents


def _common(one: _Kind | None, other: _Kind | None) -> _Kind | None:
    if one is None or other is None:
        return one or other
    if one[1] != other[1]:
        raise ArgumentError(
            f"numpy.apply_along_axis: the function returns shapes {one[1]} and {other[1]} on "
            "different ranks; they must be equal"
        )
    return np.result_type(one[0], other[0]), one[1]


def _joined(
    arr: PencilArray,
    number: int,
    block: Array | None,
    dtype: np.dtype[Any],
    extents: tuple[int, ...],
) -> PencilArray:
    """Return the results of own lines as a field; there are none in an empty block. *Collective*.

    What is left of lines that only one rank along the axis has is replicated there.
    """
    lead, line = len(arr.components), Line.of(arr, number)
    singletons = arr.singletons
    reduced = number >= lead and extents != (arr.shape[number],)
    if reduced:
        singletons, extents = singletons | {number - lead}, (1,)
    elif number >= lead:
        extents = (arr.local_shape[number],)
    shape = (*arr.local_shape[:number], *extents, *arr.local_shape[number + 1 :])
    if block is None:
        block = np.empty(shape, dtype)
    frame = frame_of(arr.pencil, singletons)
    ordered = frame.ordered(block.reshape(shape).astype(dtype, copy=False))
    if reduced and line.is_cut and line.filled:
        bcast_array(comm_along(arr, number), ordered.transpose(frame.axes(lead)[0]), line.filled[0])
    return arr.in_frame(arr.pencil, frame, ordered)
