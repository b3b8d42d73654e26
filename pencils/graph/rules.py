"""Shape and element type of what NumPy functions return, found by NumPy itself.

Nothing large is computed or allocated. Views are made of an array of the real shape that repeats a
single element. Other functions are applied to stand-ins: small arrays of zeros whose extents are
equal to each other where the real ones are.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import lru_cache, partial
from types import NoneType
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pencils.array.global_reduction import UFUNCS
from pencils.array.numpy_api import ELEMENTWISE, REDUCTIONS
from pencils.comm import pool
from pencils.errors import ArgumentError

Shape = tuple[int, ...]
DType = np.dtype[Any]
Function = Callable[..., Any]
Arguments = tuple[Any, ...]
Options = dict[str, Any]
# A function, its arguments and options, and the shape and element type of its result.
Operation = tuple[Function, Arguments, Options, Shape, DType]
Rule = Callable[[Function, Arguments, Options], Operation]

_SCALARS = (bool, int, float, complex, str, bytes, np.generic)


class Node:
    """Base class of arrays whose shape and element type are known, but whose values are not."""

    __slots__ = ()
    shape: Shape
    dtype: DType


def is_node(value: object) -> TypeGuard[Node]:
    """Whether the values of an argument are not known yet."""
    return isinstance(value, Node)


# Families of functions.


def elementwise(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions of elements that broadcast their arguments."""
    if isinstance(func, np.ufunc):
        bad = {"out"} if len(args) > func.nin else None
    else:
        bad = {name for name, value in options.items() if np.ndim(value)}
    if bad:
        raise TypeError(_not_an_option(func, bad))
    kept = (NoneType, *_SCALARS)
    return _same_extents(
        func, tuple(x if isinstance(x, kept) else _array(x) for x in args), options
    )


def view(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions that return a view of their array, or select from it."""
    _check_options(func, options)
    result = func(_repeated(_only_node(func, args)), *args[1:], **options)
    return func, args, options, result.shape, result.dtype


def of_one_array(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions of one array, each extent of whose result is an extent of the array."""
    _only_node(func, args)
    return _same_extents(func, args, options)


def of_arrays(count: int, func: Function, args: Arguments, options: Options) -> Operation:
    """Functions of `count` arrays, each extent of whose result is an extent of one of them."""
    return _same_extents(func, (*map(_array, args[:count]), *args[count:]), options)


def _two_arrays(func: Function, args: Arguments, options: Options) -> Operation:
    """Functions of two arrays, which may also be passed by keyword."""
    given = list(inspect.signature(func).bind(*args, **options).arguments.items())
    return of_arrays(2, func, tuple(value for _, value in given[:2]), dict(given[2:]))


def _einsum(func: Function, args: Arguments, options: Options) -> Operation:
    if not isinstance(args[0], str):
        raise TypeError("numpy.einsum in a graph takes its subscripts as a text, like 'ij,jk->ik'")
    return _same_extents(func, (args[0], *map(_array, args[1:])), options)


def _same_extents(func: Function, args: Arguments, options: Options) -> Operation:
    """Apply a function to stand-ins, and read the extents of its result backwards."""
    _check_options(func, options)
    arrays = {name for name, value in options.items() if isinstance(value, np.ndarray)}
    if arrays:  # their extents are not those of stand-ins
        raise TypeError(_not_an_option(func, arrays))
    small = {1: 1}  # extent of the stand-in for each real extent
    stand_ins = tuple(
        (x.dtype, tuple(small.setdefault(n, len(small) + 1) for n in x.shape))
        if is_node(x) or isinstance(x, np.ndarray)
        else (type(x), x)
        for x in args
    )
    named = tuple((name, type(value), value) for name, value in options.items())
    compute: Callable[..., tuple[Shape, DType]] = _computed
    try:
        hash((*stand_ins, *named))
    except TypeError:  # there are lists among them
        compute = _computed.__wrapped__
    try:
        extents, dtype = compute(func, stand_ins, named)
    except np.exceptions.AxisError:
        raise  # stand-ins have as many axes; the real arrays might be copied before it is raised
    except ValueError as error:  # raise it again, now with the real extents in its text
        func(*(_repeated(x) if hasattr(x, "shape") else x for x in args), **options)
        raise ArgumentError(f"numpy.{name_of(func)} does not take these arrays: {args}") from error
    real = {stand_in: n for n, stand_in in small.items()}
    if any(n not in real for n in extents):
        raise TypeError(
            f"numpy.{name_of(func)} of an array of several dimensions needs axis= in a graph"
        )
    return func, args, options, tuple(real[n] for n in extents), dtype


# Function, arguments, and options with their types. An argument is a type and a shape, or the class
# of a value and the value: 1, 1.0 and True are equal.
@lru_cache(maxsize=4096)
def _computed(
    func: Function, stand_ins: tuple[tuple[Any, Any], ...], named: tuple[tuple[str, type, Any], ...]
) -> tuple[Shape, DType]:
    """Shape and element type of what a function returns for small arrays of zeros."""
    args = [np.zeros(x, kind) if isinstance(kind, np.dtype) else x for kind, x in stand_ins]
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        result = func(*args, **{name: value for name, _, value in named})
    if isinstance(result, tuple) or np.asarray(result).dtype.hasobject:
        raise TypeError(
            f"numpy.{name_of(func)} returns Python objects or several arrays: a node is one array"
        )
    array = np.asarray(result)
    return array.shape, array.dtype


# Functions that are a family of their own.


def _join(func: Function, args: Arguments, options: Options) -> Operation:
    """Join a sequence of arrays: NumPy itself joins arrays with one more axis, of no extent."""
    given = dict(zip(("arrays", "axis", "out"), args, strict=False)) | options
    _check_options(func, given)
    arrays, axis = list(map(_array, given.pop("arrays"))), given.pop("axis", 0)
    if axis is None:
        arrays, axis = list(map(np.ravel, arrays)), 0
    axis = normalize_axis_index(axis, arrays[0].ndim + (func is np.stack))
    try:
        result = func([np.empty((*x.shape, 0), x.dtype) for x in arrays], axis=axis, **given)
    except ValueError as error:
        shapes = ", ".join(str(x.shape) for x in arrays)
        but = f" but along axis {axis}" if func is np.concatenate else ""
        raise ArgumentError(
            f"numpy.{name_of(func)}: shapes {shapes} must be equal{but}; reshape the arrays"
        ) from error
    options = {"func": func, "axis": axis, **given}
    return joined, tuple(arrays), options, result.shape[:-1], result.dtype


def joined(*arrays: Any, func: Function, **options: Any) -> Any:
    """Join arrays."""
    return func(arrays, **options)


def keys_of_joined(arrays: Sequence[Node], func: Function, axis: int) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of arrays in what is joined of them."""
    stop = 0
    for array in arrays:
        start, stop = stop, stop + (1 if func is np.stack else array.shape[axis])
        key: Any = start if func is np.stack else slice(start, stop)
        yield (*(slice(None),) * axis, key)


def _vstack(_func: Function, args: Arguments, options: Options) -> Operation:
    return _join(np.concatenate, (list(map(np.atleast_2d, args[0])), 0), options)


def _hstack(_func: Function, args: Arguments, options: Options) -> Operation:
    arrays = list(map(np.atleast_1d, args[0]))
    return _join(np.concatenate, (arrays, int(arrays[0].ndim > 1)), options)


def _ravel(func: Function, args: Arguments, options: Options) -> Operation:
    x = _only_node(func, args)
    order = inspect.signature(func).bind(*args, **options).arguments.get("order", "C")
    if order not in {"C", "F"}:
        raise ArgumentError(
            f"numpy.ravel: order={order!r} depends on memory; in a graph it is 'C' or 'F'"
        )
    return view(np.reshape, (x, -1), {"order": order})


def _pad(func: Function, args: Arguments, options: Options) -> Operation:
    _check_options(func, options)
    x = _only_node(func, args)
    given = inspect.signature(func).bind(*args, **options).arguments["pad_width"]
    if isinstance(given, dict):
        raise TypeError(
            "numpy.pad in a graph takes pad_width as numbers or pairs of such, not as a dict"
        )
    widths = np.broadcast_to(np.asarray(given), (x.ndim, 2)).tolist()
    shape = tuple(n + lo + hi for n, (lo, hi) in zip(x.shape, widths, strict=True))
    return func, args, options, shape, x.dtype


def selection(x: Any, key: Any) -> Operation:
    """Index a node; the shape of the result follows from the index."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(map(is_node, keys)):
        raise TypeError(
            "an index must be known when the graph is built; numpy.take(x, indices, axis) takes "
            "indices that are computed, numpy.where replaces masks"
        )
    # A copy: the caller may change the arrays and lists of an index before the graph is executed.
    known = tuple(deepcopy(k) if isinstance(k, list | np.ndarray) else k for k in keys)
    return view(operator.getitem, (x, known), {})


def conversion(x: Any, dtype: DType) -> Operation:
    """Convert a node to another element type."""
    return convert, (x,), {"dtype": dtype}, x.shape, dtype


def convert(x: Any, dtype: DType) -> Any:
    """Convert an array to another element type."""
    return np.asarray(x).astype(dtype, copy=False)


class Padding(NamedTuple):
    """Puts blocks where a halo surrounds them; one pass may compute them there."""

    shape: Shape  # in the order of memory
    axes: tuple[int, ...]  # that bring it to the logical order
    own: Sequence[tuple[Any, ...]]  # keys of the blocks
    zero: Sequence[tuple[Any, ...]]  # keys of what is set to zero

    def new(self, dtype: DType) -> Any:
        """Make the memory."""
        block = pool.empty(self.shape, dtype).transpose(self.axes)
        for key in self.zero:
            block[key] = 0
        return block

    def __call__(self, *blocks: Any) -> Any:
        """Put blocks there."""
        new = self.new(np.result_type(*blocks))
        for key, block in zip(self.own, blocks, strict=True):
            new[key] = block
        return new


# The table.

_ELEMENTWISE: tuple[Function, ...] = (
    *(func for func in ELEMENTWISE if func is not np.interp),  # whose tables do not broadcast
    *(np.where, np.real, np.imag, np.nan_to_num, np.copy, np.fix),
)
_OF_ONE_ARRAY: tuple[Function, ...] = (
    *REDUCTIONS,
    *(np.nansum, np.nanmin, np.nanmax, np.nanmean),
    *(np.roll, np.sort, np.argsort, np.cumsum, np.cumprod),
)
VIEWS: tuple[Function, ...] = (
    *(np.reshape, np.transpose, np.squeeze, np.expand_dims, np.broadcast_to, np.swapaxes),
    *(np.moveaxis, np.rollaxis, np.flip, np.flipud, np.fliplr, np.rot90, np.diagonal),
    *(np.atleast_1d, np.atleast_2d, np.atleast_3d),
)
RULES: dict[Function, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(_OF_ONE_ARRAY, of_one_array),
    **dict.fromkeys(VIEWS, view),
    **dict.fromkeys((np.take, np.tensordot), _two_arrays),
    np.einsum: _einsum,
    np.ravel: _ravel,
    np.concatenate: _join,
    np.stack: _join,
    np.vstack: _vstack,
    np.hstack: _hstack,
    np.pad: _pad,
}
REDUCING_UFUNCS: dict[np.ufunc, Function] = {
    ufunc: getattr(np, name) for name, ufunc in UFUNCS.items()
}


def rule_of(func: Function) -> Rule:
    """Return the rule for a function, or raise a TypeError if there is none."""
    if func not in RULES:
        raise TypeError(_no_rule(f"{func.__module__}.{func.__name__}"))
    return RULES[func]


def rule_of_ufunc(ufunc: np.ufunc, method: str) -> tuple[Rule, Function]:
    """Return the rule for a method of a ufunc, and the function that computes the same."""
    if method == "__call__" and ufunc.nout == 1:
        return partial(of_arrays, ufunc.nin) if ufunc.signature else elementwise, ufunc
    if method == "reduce" and ufunc in REDUCING_UFUNCS:
        return of_one_array, REDUCING_UFUNCS[ufunc]
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    raise TypeError(_no_rule(f"numpy.{name}"))


def _no_rule(name: str) -> str:
    return (
        f"{name} has no rule for arrays that are not computed yet; "
        "use call(func, *arrays, shape=, dtype=)"
    )


def name_of(func: Function) -> str:
    """Name a function, if it has a name."""
    if isinstance(func, partial):
        return name_of(func.keywords.get("func", func.func))
    return getattr(func, "__name__", repr(func))


# Arguments.


def _array(value: Any) -> Any:
    """Return nodes as they are, and anything else as an array."""
    return value if is_node(value) else np.asarray(value)


def _only_node(func: Function, args: Arguments) -> Any:
    """Return the first argument, which must be the only node."""
    if not args or not is_node(args[0]) or any(map(is_node, args[1:])):
        raise TypeError(
            f"numpy.{name_of(func)} in a graph takes one array: pass it first, by position"
        )
    return args[0]


def _check_options(func: Function, options: Options) -> None:
    """Check that options are known when the graph is built, and ask for a new array."""
    if not options:
        return
    bad = {name for name, value in options.items() if is_node(value)}
    bad |= {"out", "where"} & {name for name, value in options.items() if value is not None}
    if bad:
        raise TypeError(_not_an_option(func, bad))


def _not_an_option(func: Function, names: set[str]) -> str:
    return (
        f"numpy.{name_of(func)} in a graph does not take {', '.join(sorted(names))} by keyword: "
        "pass computed arrays by position; instead of out= and where=, use the result and "
        "numpy.where"
    )


def _repeated(x: Any) -> Any:
    """Return an array of the shape and type of another one that repeats a single element."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)
