"""Which NumPy functions build nodes: a rule for each family of functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from pencils.errors import ArgumentError
from pencils.graph.node import DType, is_node
from pencils.graph.operation import (
    Arguments,
    Function,
    Operation,
    Options,
    arguments_of,
    array,
    check_equal,
    check_options,
    name_of,
    not_an_option,
    only_node,
    operand,
    outline,
    read_axes,
    sample,
    type_of,
)
from pencils.graph.products import einsum, matmul, tensordot

Rule = Callable[[Function, Arguments, Options], Operation]


# Families of functions.


def elementwise(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions of elements that broadcast their arguments."""
    check_options(func, options)
    if not isinstance(func, np.ufunc):
        arrays = {name for name, value in options.items() if np.ndim(value)}
        if arrays:
            raise TypeError(not_an_option(func, arrays))
    elif len(args) > func.nin:
        raise TypeError(not_an_option(func, {"out"}))
    operands = tuple(map(operand, args))
    shapes = {x.shape for x in operands if hasattr(x, "shape")}
    shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    dtype = type_of(func, operands, options, axes=False)
    return Operation(func, operands, options, shape, dtype)


def reduction(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions that take away axes of one array, or leave them with extent 1."""
    check_options(func, options)
    x = only_node(func, args)
    axis = arguments_of(func, args, options).get("axis")
    gone = set(range(x.ndim)) if axis is None else set(read_axes(axis, x.ndim))
    ndim, dtype = outline(func, args, options)
    shape = tuple(
        1 if d in gone else n for d, n in enumerate(x.shape) if ndim == x.ndim or d not in gone
    )
    return Operation(func, args, options, shape, dtype)


def view(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions that only look at their array in another way, and cost nothing to try."""
    check_options(func, options)
    x = only_node(func, args)
    result = func(np.broadcast_to(sample(x.dtype, 0), x.shape), *args[1:], **options)
    return Operation(func, args, options, result.shape, result.dtype)


def along(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions that keep the shape of their array."""
    check_options(func, options)
    x = only_node(func, args)
    ndim, dtype = outline(func, args, options)
    if ndim != x.ndim:
        msg = f"numpy.{name_of(func)} of an array of {x.ndim} dimensions needs axis= in a graph"
        raise TypeError(msg)
    return Operation(func, args, options, x.shape, dtype)


# Functions that are a family of their own.


def _concatenate(func: Function, args: Arguments, options: Options) -> Operation:
    check_options(func, options)
    arrays, axis, rest = _joined(*args, **options)
    if axis is None:
        arrays, axis = tuple(map(np.ravel, arrays)), 0
    first = arrays[0]
    if not first.shape:
        msg = "numpy.concatenate joins arrays of at least one dimension; numpy.stack adds one"
        raise ArgumentError(msg)
    (dim,) = read_axes(axis, first.ndim)
    shapes = [(*x.shape[:dim], *x.shape[dim + 1 :]) for x in arrays]
    check_equal("numpy.concatenate", "shapes but for the axis they are joined along", shapes)
    extent = sum(x.shape[dim] for x in arrays)
    shape = (*first.shape[:dim], extent, *first.shape[dim + 1 :])
    rest["axis"] = dim
    return Operation(_join, arrays, rest, shape, type_of(_join, arrays, rest))


def _stack(func: Function, args: Arguments, options: Options) -> Operation:
    check_options(func, options)
    arrays, axis, rest = _joined(*args, **options)
    check_equal("numpy.stack", "shapes", [x.shape for x in arrays])
    (dim,) = read_axes(axis, arrays[0].ndim + 1)
    shape = (*arrays[0].shape[:dim], len(arrays), *arrays[0].shape[dim:])
    rest["axis"] = dim
    return Operation(_pile, arrays, rest, shape, type_of(_pile, arrays, rest))


def _joined(
    arrays: Sequence[Any], axis: int | None = 0, **rest: Any
) -> tuple[Arguments, Any, Options]:
    return tuple(map(array, arrays)), axis, rest


def _join(*arrays: Any, **options: Any) -> Any:
    return np.concatenate(arrays, **options)


def _pile(*arrays: Any, **options: Any) -> Any:
    return np.stack(arrays, **options)


def _vstack(_func: Function, args: Arguments, options: Options) -> Operation:
    return _concatenate(np.concatenate, (list(map(np.atleast_2d, args[0])), 0), options)


def _hstack(_func: Function, args: Arguments, options: Options) -> Operation:
    arrays = list(map(np.atleast_1d, args[0]))
    return _concatenate(np.concatenate, (arrays, int(arrays[0].ndim > 1)), options)


def _ravel(func: Function, args: Arguments, options: Options) -> Operation:
    x = only_node(func, args)
    order = arguments_of(func, args, options).get("order", "C")
    if order not in {"C", "F"}:
        msg = f"numpy.ravel: order={order!r} depends on memory; in a graph it is 'C' or 'F'"
        raise ArgumentError(msg)
    return view(np.reshape, (x, -1), {"order": order})


def _take(func: Function, args: Arguments, options: Options) -> Operation:
    given = arguments_of(func, args, options)
    if not set(given) <= {"a", "indices", "axis"}:
        raise TypeError(not_an_option(func, set(given) - {"a", "indices", "axis"}))
    x, indices, axis = array(given["a"]), array(given["indices"]), given.get("axis")
    shape = indices.shape
    if axis is not None:
        (dim,) = read_axes(axis, x.ndim)
        shape = (*x.shape[:dim], *shape, *x.shape[dim + 1 :])
    return Operation(func, (x, indices), {"axis": axis}, shape, x.dtype)


def _pad(func: Function, args: Arguments, options: Options) -> Operation:
    check_options(func, options)
    x = only_node(func, args)
    given = arguments_of(func, args, options)["pad_width"]
    if isinstance(given, dict):
        msg = "numpy.pad in a graph takes pad_width as numbers or pairs of such, not as a dict"
        raise TypeError(msg)
    widths = np.broadcast_to(np.asarray(given), (x.ndim, 2)).tolist()
    shape = tuple(n + lo + hi for n, (lo, hi) in zip(x.shape, widths, strict=True))
    return Operation(func, args, options, shape, x.dtype)


def selection(x: Any, key: Any) -> Operation:
    """Tell what indexing gives."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(map(is_node, keys)):
        msg = (
            "an index must be known when the graph is built; numpy.take(x, indices, axis) takes "
            "indices that are computed, numpy.where stands for masks"
        )
        raise TypeError(msg)
    # What is selected must not change any more: the shape follows from it.
    known = tuple(deepcopy(k) if isinstance(k, list | np.ndarray) else k for k in keys)
    return view(operator.getitem, (x, known), {})


def conversion(x: Any, dtype: Any) -> Operation:
    """Tell what a conversion to another type gives."""
    return Operation(_convert, (x,), {"dtype": np.dtype(dtype)}, x.shape, np.dtype(dtype))


def _convert(x: Any, dtype: DType) -> Any:
    return np.asarray(x).astype(dtype, copy=False)


# The table.

_ELEMENTWISE: tuple[Function, ...] = (
    *(np.where, np.clip, np.round, np.around, np.real, np.imag, np.angle, np.nan_to_num, np.sinc),
    *(np.isclose, np.isposinf, np.isneginf, np.isreal, np.iscomplex, np.copy, np.i0),
)
_REDUCTIONS: tuple[Function, ...] = (
    *(np.sum, np.prod, np.min, np.max, np.amin, np.amax, np.mean, np.var, np.std, np.any, np.all),
    *(np.argmin, np.argmax, np.count_nonzero, np.ptp, np.nansum, np.nanmin, np.nanmax, np.nanmean),
)
_VIEWS: tuple[Function, ...] = (
    *(np.reshape, np.transpose, np.squeeze, np.expand_dims, np.broadcast_to, np.swapaxes),
    *(np.moveaxis, np.rollaxis, np.flip, np.flipud, np.fliplr, np.rot90, np.diagonal),
    *(np.atleast_1d, np.atleast_2d, np.atleast_3d),
)
_ALONG: tuple[Function, ...] = (np.roll, np.sort, np.argsort, np.cumsum, np.cumprod)

RULES: dict[Function, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(_REDUCTIONS, reduction),
    **dict.fromkeys(_VIEWS, view),
    **dict.fromkeys(_ALONG, along),
    np.ravel: _ravel,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.vstack: _vstack,
    np.hstack: _hstack,
    np.take: _take,
    np.pad: _pad,
    np.tensordot: tensordot,
    np.einsum: einsum,
}
REDUCING_UFUNCS: dict[np.ufunc, Function] = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.minimum: np.min,
    np.maximum: np.max,
    np.logical_and: np.all,
    np.logical_or: np.any,
}


def rule_of(func: Function) -> Rule:
    """Look up the rule for a function.

    Raises
    ------
    TypeError
        If there is none.
    """
    if func not in RULES:
        msg = (
            f"{func.__module__}.{func.__name__} has no rule for arrays that are not computed yet; "
            "use call(func, *arrays, shape=, dtype=)"
        )
        raise TypeError(msg)
    return RULES[func]


def rule_of_ufunc(ufunc: np.ufunc, method: str) -> tuple[Rule, Function]:
    """Look up the rule for a ufunc, and the function that stands for one of its methods.

    Raises
    ------
    TypeError
        If there is none.
    """
    if method == "__call__" and ufunc is np.matmul:
        return matmul, ufunc
    if method == "__call__" and ufunc.signature is None and ufunc.nout == 1:
        return elementwise, ufunc
    if method == "reduce" and ufunc in REDUCING_UFUNCS:
        return reduction, REDUCING_UFUNCS[ufunc]
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    msg = (
        f"numpy.{name} has no rule for arrays that are not computed yet; "
        "use call(func, *arrays, shape=, dtype=)"
    )
    raise TypeError(msg)
