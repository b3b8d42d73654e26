"""NumPy functions of PencilArrays.

Ufuncs and the elementwise functions run on the local blocks and never communicate. Operands that
are NumPy arrays are replicated global data: each rank takes the part of its own block. Functions
that are not listed raise a TypeError instead of computing something rank-local by accident.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array import pairs, provided, reductions
from pencils.array.base import Field, checks
from pencils.array.direct import fill, room_for, try_on_one
from pencils.array.frame import Frame, frame_of
from pencils.array.global_reduction import UFUNCS, reduce_field
from pencils.array.indexing import copy_where
from pencils.array.operands import check_fits, common_pencil, everywhere, local_part
from pencils.comm.progress import poll, under_way

if TYPE_CHECKING:
    from pencils.pencil import Pencil

Function = Callable[..., Any]
_REDUCING_UFUNCS = {ufunc: name for name, ufunc in UFUNCS.items()}

# What fields and graphs have in common: functions of elements, with their arguments that may be
# fields,
ELEMENTWISE: dict[Function, tuple[str, ...]] = {
    np.angle: ("z",),
    np.round: ("a",),
    np.around: ("a",),
    np.clip: ("a", "a_min", "a_max", "min", "max"),
    np.isclose: ("a", "b"),
    np.isposinf: ("x",),
    np.isneginf: ("x",),
    np.isreal: ("x",),
    np.iscomplex: ("x",),
    np.sinc: ("x",),
    np.i0: ("x",),
    np.interp: ("x",),
}
# reductions of one array, with their names in `reductions`,
REDUCTIONS: dict[Function, str] = {
    **{
        getattr(np, name): name
        for name in (
            *("sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "ptp"),
            *("argmin", "argmax", "count_nonzero"),
        )
    },
    np.amin: "min",
    np.amax: "max",
}
# and functions that need no values.
QUERIES: dict[Function, Function] = {
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.isrealobj: lambda x: x.dtype.kind != "c",
}


# Ufuncs.


def apply_ufunc(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Apply ``ufunc.method(*inputs, **kwargs)`` where some operand is a PencilArray.

    Methods and ufuncs that are not elementwise, and have no global meaning, raise a TypeError.
    """
    if method == "__call__" and ufunc.signature is None:
        return elementwise(ufunc, inputs, kwargs)
    if method == "reduce" and ufunc in _REDUCING_UFUNCS and isinstance(inputs[0], Field):
        axis = kwargs.pop("axis", 0)
        return reduce_field(_REDUCING_UFUNCS[ufunc], inputs[0], axis, **kwargs)
    replacement = find_function(ufunc if method == "__call__" else getattr(ufunc, method))
    if replacement is None:
        raise TypeError(provided("explain_method")(ufunc.__name__, method))
    return replacement(*inputs, **kwargs)


def elementwise(func: Function, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run `func` on the local parts of its inputs and wrap what it returns."""
    out = kwargs.pop("out", None)
    where = kwargs.pop("where", True)
    outs = out if isinstance(out, tuple) else (out,)
    targets = [target for target in outs if target is not None]
    if not all(isinstance(one, Field) for one in targets):
        raise TypeError(
            "out= must be a PencilArray where an operand is one; use u.local on both sides instead"
        )
    fields = [operand for operand in (*inputs, where, *targets) if isinstance(operand, Field)]
    if not fields:
        raise TypeError(
            "this argument must be a number or a NumPy array, not a PencilArray; pass u.local"
        )
    pencil = common_pencil(fields)
    parts, singletons = _own_parts(inputs, pencil)
    if where is not True:
        kwargs["where"], along = local_part(where, pencil)
        singletons &= along
    if targets:
        singletons = singletons.intersection(*(target.singletons for target in targets))
        for target in targets:
            check_fits(singletons, target, pencil)
        buffers = tuple(None if target is None else target.local for target in outs)
        kwargs["out"] = buffers if isinstance(out, tuple) else buffers[0]
    result = _evaluate(func, parts, kwargs, frame_of(pencil, singletons))
    if where is True and not getattr(result, "size", True) and _may_be_tried(func):
        kwargs.pop("out", None)
        try_on_one(func, parts, fields, **kwargs)
    if checks.on:
        for target in targets:
            target.mark_written()
    if not isinstance(result, tuple):
        return as_field(result, outs[0], pencil, singletons, fields[0])
    outs = outs if targets else (None,) * len(result)
    return tuple(
        as_field(part, target, pencil, singletons, fields[0])
        for part, target in zip(result, outs, strict=True)
    )


def _own_parts(operands: Sequence[Any], pencil: Pencil) -> tuple[list[Any], frozenset[int]]:
    """Cut the own blocks out of operands; also the dimensions along which all are singletons."""
    parts = []
    singletons = everywhere(pencil.ndim)
    for operand in operands:
        part, along = local_part(operand, pencil)
        parts.append(part)
        singletons &= along
    return parts, singletons


def _may_be_tried(func: Function) -> bool:
    """Whether a function is one of NumPy's that refuse types and numbers, not values."""
    if func is operator.pow:
        return True
    return isinstance(func, np.ufunc) and getattr(np, func.__name__, None) is func


def _evaluate(func: Function, parts: list[Any], kwargs: dict[str, Any], frame: Frame) -> Any:
    """Run a function on local parts."""
    if under_way.on:
        poll()
    room = None if kwargs else room_for(func, parts, frame)
    return func(*parts, **kwargs) if room is None else fill(func, parts, room)


def as_field(
    result: Any,
    out: Field | None,
    pencil: Pencil,
    singletons: frozenset[int],
    like: Field,
) -> Field:
    """Return `out`, or a field like another one of a new own block."""
    if out is not None:
        return out
    frame = frame_of(pencil, singletons)
    block = frame.ordered(np.asarray(result))
    if block.dtype.hasobject:
        raise TypeError(
            "the result would hold Python objects, which cannot be distributed; "
            "compute it from u.local"
        )
    return type(like).in_frame(pencil, frame, block)


# Functions.


def find_function(function: Function) -> Function | None:
    """Return what replaces a function of NumPy for fields, if there is anything."""
    found: Function | None = provided("FUNCTIONS").get(function)
    return found


def apply_function(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a NumPy function that is in one of the tables; others raise a TypeError."""
    if func in ELEMENTWISE:
        return _on_elements(func, args, kwargs)
    if func in REDUCTIONS:
        if not args or not isinstance(args[0], Field):
            raise TypeError(f"numpy.{func.__name__}: give the PencilArray first, without a keyword")
        return getattr(reductions, REDUCTIONS[func])(*args, **kwargs)
    replacement = _FUNCTIONS.get(func) or find_function(func)
    if replacement is None:
        raise TypeError(provided("explain_function")(f"{func.__module__}.{func.__name__}"))
    return replacement(*args, **kwargs)


def _on_elements(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a function of `ELEMENTWISE`; arguments that may not be fields are passed on."""
    given = dict(zip(_parameters(function), args, strict=False)) | kwargs
    mine = [name for name in ELEMENTWISE[function] if name in given]

    def on_blocks(*parts: Any, **options: Any) -> Any:
        return function(**dict(zip(mine, parts, strict=True)), **options)

    return elementwise(on_blocks, [given.pop(name) for name in mine], given)


@cache
def _parameters(function: Function) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _where(condition: Any, *choices: Any) -> Any:
    if not choices:
        raise TypeError(
            "numpy.where of a PencilArray needs the two values to choose from; write "
            "pencils.own_points(mask) for the global indices of own points"
        )
    return elementwise(np.where, (condition, *choices), {})


def _nan_to_num(x: Any, copy: bool = True, *args: Any, **kwargs: Any) -> Any:
    result = elementwise(lambda part: np.nan_to_num(part, copy, *args, **kwargs), (x,), {})
    if not copy and checks.on:
        x.mark_written()
    return result


def _result_type(*operands: Any) -> np.dtype[Any]:
    return np.result_type(*(x.dtype if isinstance(x, Field) else x for x in operands))


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Field):
        raise TypeError("numpy.copyto to a NumPy array: copy u.local to its local part instead")
    copy_where(dst, src, where, casting)


def _full_like(a: Field, fill_value: object, dtype: DTypeLike | None = None) -> Field:
    like = a.blank(dtype)
    like.fill(fill_value)
    return like


def _zeros_like(a: Field, dtype: DTypeLike | None = None) -> Field:
    like = a.blank(dtype)
    like.fill(np.zeros((), like.dtype))  # text and records, too
    return like


_FUNCTIONS: dict[Function, Function] = QUERIES | {
    np.vdot: pairs.vdot,
    np.allclose: pairs.allclose,
    np.array_equal: pairs.array_equal,
    np.real: lambda val: val.real,
    np.imag: lambda val: val.imag,
    np.copy: lambda a: a.copy(),
    np.empty_like: lambda prototype, dtype=None: prototype.blank(dtype),
    np.zeros_like: _zeros_like,
    np.ones_like: lambda a, dtype=None: _full_like(a, 1, dtype),
    np.full_like: _full_like,
    np.where: _where,
    np.nan_to_num: _nan_to_num,
    np.result_type: _result_type,
    np.copyto: _copyto,
}
