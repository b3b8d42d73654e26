"""Which NumPy functions build nodes, and the shape and type of what they will return.

The type of a result is found by applying the function to a single element, so that NumPy's own
rules of promotion hold; the shape by a rule of its own for each family of functions, at no cost
that grows with the arrays.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pencils.errors import ArgumentError
from pencils.graph.node import DType, Shape, is_node

Function = Callable[..., Any]
Arguments = tuple[Any, ...]
Options = dict[str, Any]
_SCALARS = (bool, int, float, complex, str, bytes, np.generic)


class Operation(NamedTuple):
    """``func(*args, **options)`` with nodes among `args`, and what it will give."""

    func: Function
    args: Arguments
    options: Options
    shape: Shape
    dtype: DType


Rule = Callable[[Function, Arguments, Options], Operation]


# Families of functions.


def elementwise(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions of elements that broadcast their arguments."""
    _check_options(func, options)
    operands = tuple(map(_operand, args))
    shape = np.broadcast_shapes(*(x.shape for x in operands if hasattr(x, "shape")))
    dtype = _type_of(func, operands, options, axes=False)
    return Operation(func, operands, options, shape, dtype)


def reduction(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions that take away axes of one array, or leave them with extent 1."""
    _check_options(func, options)
    x = _first_node(func, args)
    given = _signature(func).bind(*args, **options).arguments
    axis, kept = given.get("axis"), given.get("keepdims") is True
    gone = set(range(x.ndim)) if axis is None else set(_axes(axis, x.ndim))
    shape = tuple(1 if d in gone else n for d, n in enumerate(x.shape) if kept or d not in gone)
    return Operation(func, args, options, shape, _type_of(func, args, options))


def view(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions that only look at their array in another way, and cost nothing to try."""
    _check_options(func, options)
    x = _first_node(func, args)
    result = func(np.broadcast_to(_sample(x.dtype, 0), x.shape), *args[1:], **options)
    return Operation(func, args, options, result.shape, result.dtype)


def along(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions that keep the shape of their array."""
    _check_options(func, options)
    x = _first_node(func, args)
    sample = func(_sample(x.dtype, x.ndim), *args[1:], **options)
    if sample.ndim != x.ndim:
        msg = f"numpy.{_name(func)} of an array of {x.ndim} dimensions needs axis= in a graph"
        raise TypeError(msg)
    return Operation(func, args, options, x.shape, sample.dtype)


# Functions that are a family of their own.


def _concatenate(_func: Function, args: Arguments, options: Options) -> Operation:
    arrays, axis = _joined(*args, **options)
    first = arrays[0]
    if not first.shape:
        msg = "numpy.concatenate joins arrays of at least one dimension; numpy.stack adds one"
        raise ArgumentError(msg)
    (dim,) = _axes(axis, first.ndim)
    shapes = [(*x.shape[:dim], *x.shape[dim + 1 :]) for x in arrays]
    _check_equal("numpy.concatenate", "shapes but for the axis they are joined along", shapes)
    extent = sum(x.shape[dim] for x in arrays)
    shape = (*first.shape[:dim], extent, *first.shape[dim + 1 :])
    return Operation(_join, arrays, {"axis": dim}, shape, _type_of(_join, arrays, {"axis": dim}))


def _stack(_func: Function, args: Arguments, options: Options) -> Operation:
    arrays, axis = _joined(*args, **options)
    _check_equal("numpy.stack", "shapes", [x.shape for x in arrays])
    (dim,) = _axes(axis, arrays[0].ndim + 1)
    shape = (*arrays[0].shape[:dim], len(arrays), *arrays[0].shape[dim:])
    return Operation(_pile, arrays, {"axis": dim}, shape, _type_of(_pile, arrays, {"axis": dim}))


def _joined(arrays: Sequence[Any], axis: int = 0) -> tuple[Arguments, int]:
    return tuple(map(_array, arrays)), axis


def _join(*arrays: Any, axis: int) -> Any:
    return np.concatenate(arrays, axis)


def _pile(*arrays: Any, axis: int) -> Any:
    return np.stack(arrays, axis)


def _take(func: Function, args: Arguments, options: Options) -> Operation:
    given = _signature(func).bind(*args, **options).arguments
    if not set(given) <= {"a", "indices", "axis"}:
        raise TypeError(_no_option(func, set(given) - {"a", "indices", "axis"}))
    x, indices, axis = _array(given["a"]), _array(given["indices"]), given.get("axis")
    shape = indices.shape
    if axis is not None:
        (dim,) = _axes(axis, x.ndim)
        shape = (*x.shape[:dim], *shape, *x.shape[dim + 1 :])
    return Operation(func, (x, indices), {"axis": axis}, shape, x.dtype)


def _pad(func: Function, args: Arguments, options: Options) -> Operation:
    given = _signature(func).bind(*args, **options).arguments
    x = _first_node(func, args)
    widths = np.broadcast_to(np.asarray(given["pad_width"]), (x.ndim, 2)).tolist()
    shape = tuple(n + lo + hi for n, (lo, hi) in zip(x.shape, widths, strict=True))
    return Operation(func, args, options, shape, x.dtype)


def matmul(func: Function, args: Arguments, options: Options) -> Operation:
    """Tell what a product of stacks of matrices gives."""
    _check_options(func, options)
    one, other = map(_array, args)
    if not one.ndim or not other.ndim:
        msg = "numpy.matmul takes arrays of at least one dimension; * multiplies by a number"
        raise ArgumentError(msg)
    left = one.shape if one.ndim > 1 else (1, *one.shape)
    right = other.shape if other.ndim > 1 else (*other.shape, 1)
    _check_equal(
        "numpy.matmul", f"inner extents of {one.shape}, {other.shape}", [left[-1], right[-2]]
    )
    shape = np.broadcast_shapes(left[:-2], right[:-2])
    shape += left[-2:-1] * (one.ndim > 1) + right[-1:] * (other.ndim > 1)
    return Operation(func, (one, other), options, shape, _type_of(func, (one, other), options))


def _tensordot(func: Function, args: Arguments, options: Options) -> Operation:
    given = _signature(func).bind(*args, **options).arguments
    one, other, axes = _array(given["a"]), _array(given["b"]), given.get("axes", 2)
    if isinstance(axes, int):
        axes = range(one.ndim - axes, one.ndim), range(axes)
    here, there = _axes(axes[0], one.ndim), _axes(axes[1], other.ndim)
    extents = [tuple(one.shape[d] for d in here), tuple(other.shape[d] for d in there)]
    _check_equal("numpy.tensordot", "extents that are summed over", extents)
    shape = tuple(n for d, n in enumerate(one.shape) if d not in here)
    shape += tuple(n for d, n in enumerate(other.shape) if d not in there)
    dtype = np.result_type(one.dtype, other.dtype)
    return Operation(func, (one, other), {"axes": (here, there)}, shape, dtype)


def _einsum(func: Function, args: Arguments, options: Options) -> Operation:
    _check_options(func, options)
    subscripts, *rest = args
    operands = tuple(map(_array, rest))
    if not isinstance(subscripts, str):
        msg = "numpy.einsum in a graph takes its subscripts as a text, like 'ij,jk->ik'"
        raise TypeError(msg)
    terms, result = _terms(subscripts.replace(" ", ""), len(operands))
    extents: dict[str, list[int]] = {}
    leading: list[Shape] = [()]
    for term, x in zip(terms, operands, strict=True):
        before, dots, after = term.partition("...")
        named = len(before) + len(after)
        if named > x.ndim or (named < x.ndim and not dots):
            msg = f"numpy.einsum: {term!r} does not name the axes of an array of shape {x.shape}"
            raise ArgumentError(msg)
        leading.append(x.shape[len(before) : x.ndim - len(after)])
        letters = zip(
            before + after, x.shape[: len(before)] + x.shape[x.ndim - len(after) :], strict=True
        )
        for letter, extent in letters:
            extents.setdefault(letter, []).append(extent)
    for letter, found in extents.items():
        _check_equal("numpy.einsum", f"extents of {letter!r}", [n for n in found if n != 1] or [1])
    before, dots, after = result.partition("...")
    shape = tuple(max(extents[letter]) for letter in before)
    shape += np.broadcast_shapes(*leading) if dots else ()
    shape += tuple(max(extents[letter]) for letter in after)
    dtype = np.result_type(*(x.dtype for x in operands))
    return Operation(
        func, (subscripts, *operands), options, shape, np.dtype(options.get("dtype", dtype))
    )


def _terms(subscripts: str, operands: int) -> tuple[list[str], str]:
    inputs, arrow, result = subscripts.partition("->")
    terms = inputs.split(",")
    if len(terms) != operands:
        msg = f"numpy.einsum: {subscripts!r} has {len(terms)} terms for {operands} arrays"
        raise ArgumentError(msg)
    letters = inputs.replace(",", "").replace(".", "")
    if not arrow:  # NumPy's rule: what appears once, in the order of the alphabet
        result = "..." * ("..." in inputs) + "".join(
            x for x in sorted(letters) if letters.count(x) == 1
        )
    unknown = set(result.replace(".", "")) - set(letters)
    if unknown:
        msg = f"numpy.einsum: {subscripts!r} asks for {sorted(unknown)}, which no array has"
        raise ArgumentError(msg)
    return terms, result


def selection(x: Any, key: Any) -> Operation:
    """Tell what indexing gives."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(map(is_node, keys)):
        msg = (
            "an index must be known when the graph is built; numpy.take(x, indices, axis) takes "
            "indices that are computed, numpy.where stands for masks"
        )
        raise TypeError(msg)
    return view(operator.getitem, (x, key), {})


def conversion(x: Any, dtype: Any) -> Operation:
    """Tell what a conversion to another type gives."""
    return Operation(_convert, (x,), {"dtype": np.dtype(dtype)}, x.shape, np.dtype(dtype))


def _convert(x: Any, dtype: DType) -> Any:
    return np.asarray(x).astype(dtype, copy=False)


# The table.

_ELEMENTWISE: tuple[Function, ...] = (
    *(np.where, np.clip, np.round, np.around, np.real, np.imag, np.angle, np.nan_to_num, np.sinc),
    *(np.isclose, np.isposinf, np.isneginf, np.isreal, np.iscomplex, np.copy, np.i0, np.heaviside),
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
    np.ravel: lambda _func, args, options: view(np.reshape, (*args, -1), options),
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.take: _take,
    np.pad: _pad,
    np.tensordot: _tensordot,
    np.einsum: _einsum,
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


# Helpers.


def _operand(value: Any) -> Any:
    """Leave nodes and scalars as they are; make arrays of the rest."""
    return (
        value
        if is_node(value) or value is None or isinstance(value, _SCALARS)
        else np.asarray(value)
    )


def _array(value: Any) -> Any:
    return value if is_node(value) else np.asarray(value)


def _is_array(value: Any) -> bool:
    return is_node(value) or isinstance(value, np.ndarray)


def _first_node(func: Function, args: Arguments) -> Any:
    if not args or not is_node(args[0]) or any(map(is_node, args[1:])):
        msg = f"numpy.{_name(func)}: the array comes first and without a keyword, the only one"
        raise TypeError(msg)
    return args[0]


def _check_options(func: Function, options: Options) -> None:
    bad = {name for name, value in options.items() if is_node(value)}
    bad |= {"out", "where"} & {name for name, value in options.items() if value is not None}
    if bad:
        raise TypeError(_no_option(func, bad))


def _no_option(func: Function, names: set[str]) -> str:
    return (
        f"numpy.{_name(func)} in a graph does not take {', '.join(sorted(names))} by keyword: "
        "arrays that are computed come by position, and results are always new (numpy.where "
        "chooses between two)"
    )


def _type_of(func: Function, args: Arguments, options: Options, *, axes: bool = True) -> DType:
    """Type of the result for single elements, with their axes or without; nobody wants warnings."""
    ones = [_sample(x.dtype, len(x.shape) if axes else 0) if _is_array(x) else x for x in args]
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        result = func(*ones, **options)
    if isinstance(result, tuple) or np.asarray(result).dtype.hasobject:
        msg = f"numpy.{_name(func)} gives Python objects or several arrays; a node is one array"
        raise TypeError(msg)
    return np.asarray(result).dtype


@cache
def _sample(dtype: DType, ndim: int) -> Any:
    return np.ones((1,) * ndim, dtype)


@cache
def _signature(func: Function) -> inspect.Signature:
    return inspect.signature(func)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    axes = np.lib.array_utils.normalize_axis_tuple(axis, ndim)
    return tuple(map(int, axes))


def _check_equal(call: str, what: str, values: Sequence[Any]) -> None:
    if any(value != values[0] for value in values):
        msg = f"{call}: {what} must be equal, not {', '.join(map(str, values))}"
        raise ArgumentError(msg)


def _name(func: Function) -> str:
    return getattr(func, "__name__", repr(func))
