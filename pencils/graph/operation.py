"""What a function will return, found without calling it on anything large.

The type of a result is found by applying the function to a single element, so that NumPy's own
rules of promotion hold.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
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


def operand(value: Any) -> Any:
    """Leave nodes and scalars as they are; make arrays of the rest."""
    return (
        value
        if is_node(value) or value is None or isinstance(value, _SCALARS)
        else np.asarray(value)
    )


def array(value: Any) -> Any:
    """Leave nodes as they are; make arrays of the rest."""
    return value if is_node(value) else np.asarray(value)


def only_node(func: Function, args: Arguments) -> Any:
    """Return the first argument, which must be the only node."""
    if not args or not is_node(args[0]) or any(map(is_node, args[1:])):
        msg = f"numpy.{name_of(func)}: the array comes first and without a keyword, the only one"
        raise TypeError(msg)
    return args[0]


def check_options(func: Function, options: Options) -> None:
    """Check that options are known when the graph is built, and ask for a new array."""
    bad = {name for name, value in options.items() if is_node(value)}
    bad |= {"out", "where"} & {name for name, value in options.items() if value is not None}
    if bad:
        raise TypeError(not_an_option(func, bad))


def not_an_option(func: Function, names: set[str]) -> str:
    """Explain what cannot be an option."""
    return (
        f"numpy.{name_of(func)} in a graph does not take {', '.join(sorted(names))} by keyword: "
        "arrays that are computed come by position, and results are always new (numpy.where "
        "chooses between two)"
    )


class Outline(NamedTuple):
    """What a function makes of single elements."""

    ndim: int
    dtype: DType


Typed = tuple[Any, Any]  # a type and a number of axes, or the class of a value and the value


def type_of(func: Function, args: Arguments, options: Options, *, axes: bool = True) -> DType:
    """Type of the result for single elements, with their axes or without."""
    return outline(func, args, options, axes=axes).dtype


def outline(func: Function, args: Arguments, options: Options, *, axes: bool = True) -> Outline:
    """Find what a function makes of single elements, with their axes or without."""
    given = tuple(_typed(x, axes=axes) for x in args)
    named = tuple((name, type(value), value) for name, value in options.items())
    try:
        hash((given, named))
    except TypeError:  # there are lists among them
        return _outline.__wrapped__(func, given, named)
    return _outline(func, given, named)


def _typed(x: Any, *, axes: bool) -> Typed:
    if is_node(x) or isinstance(x, np.ndarray):
        return x.dtype, len(x.shape) if axes else 0
    return type(x), x  # 1, 1.0 and True are equal, but not of the same type


@lru_cache(maxsize=4096)
def _outline(
    func: Function, given: tuple[Typed, ...], named: tuple[tuple[str, type, Any], ...]
) -> Outline:
    args = [sample(kind, x) if isinstance(kind, np.dtype) else x for kind, x in given]
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        result = func(*args, **{name: value for name, _, value in named})
    if isinstance(result, tuple) or np.asarray(result).dtype.hasobject:
        msg = f"numpy.{name_of(func)} gives Python objects or several arrays; a node is one array"
        raise TypeError(msg)
    array = np.asarray(result)
    return Outline(array.ndim, array.dtype)


@cache
def sample(dtype: DType, ndim: int) -> Any:
    """Make one element to try functions on."""
    one = np.ones((1,) * ndim, dtype)
    one.flags.writeable = False
    return one


def arguments_of(func: Function, args: Arguments, options: Options) -> Options:
    """Name all arguments of a call."""
    return _parameters(func).bind(*args, **options).arguments


@cache
def _parameters(func: Function) -> inspect.Signature:
    return inspect.signature(func)


def read_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Read one axis or several, also negative ones."""
    axes = np.lib.array_utils.normalize_axis_tuple(axis, ndim)
    return tuple(map(int, axes))


def check_equal(call: str, what: str, values: Sequence[Any]) -> None:
    """Check that values are all equal."""
    if any(value != values[0] for value in values):
        msg = f"{call}: {what} must be equal, not {', '.join(map(str, values))}"
        raise ArgumentError(msg)


def name_of(func: Function) -> str:
    """Name a function, if it has a name."""
    return getattr(func, "__name__", repr(func))
