"""NumPy functions of PencilArrays.

Ufuncs and the elementwise functions run on the local blocks and never communicate. Operands that
are NumPy arrays are replicated global data: each rank takes the part of its own block. Functions
that are not listed raise a TypeError instead of computing something rank-local by accident.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array import provided, reductions
from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field, checks
from pencils.array.elementwise import elementwise
from pencils.array.global_reduction import (
    UFUNCS,
    Reduction,
    combining,
    converted,
    prepare_whole,
    reduce_field,
)
from pencils.array.indexing import copy_where
from pencils.array.operands import (
    common_pencil,
    fields_among,
    local_part,
    signature,
    topology_among,
)
from pencils.comm.agree import agreed
from pencils.comm.reduce import dot
from pencils.errors import ArgumentError


def vdot(u: Any, other: Any) -> Any:
    """Sum ``conj(field) * other`` over all elements and ranks. *Collective*.

    Parameters
    ----------
    u, other : PencilArray
        Fields of the same global shape; one of them may be a replicated NumPy array.

    Returns
    -------
    scalar
        A NumPy scalar, the same on every rank. Products are added pairwise over rows of 2048:
        rounding hardly grows with the field, and does not depend on threads of the BLAS.

    Raises
    ------
    PencilMismatchError, ArgumentError
        If pencils or shapes differ.
    """
    # `isinstance` may raise, on one rank only, for an object whose class is a property.
    fields = all(issubclass(type(operand), Field) for operand in (u, other))
    alike = fields and u.pencil is other.pencil
    kept = u.pencil.kept["vdot"].get((u.kind, other.kind)) if alike else None
    if kept is not None:
        return kept(u, other)
    with agreed(topology_among(u, other).comm, "vdot") as agree:
        first = min(fields_among(u, other), key=lambda field: len(field.singletons))
        agree(u=_signature(u), other=_signature(other))  # also if what follows raises
        blocks = _blocks(u, other)
        if np.shape(u) != np.shape(other):
            raise ArgumentError(
                f"vdot of shapes {np.shape(u)} and {np.shape(other)}; they must be equal"
            )
        agree(dtypes=tuple(block.dtype for block in blocks))
        task = Reduction.of("vdot", first, None, None, False)
        axes = memory_axes(first.pencil.order, len(first.components))

        def products(left: Array, right: Array) -> Any:
            return dot(left.transpose(axes), right.transpose(axes))

        part = np.asarray(products(*blocks))
        if not task.contributes:
            part = np.zeros_like(part)
        combined = combining(agree, task, part, np.add)
        result = np.result_type(*blocks)
        if alike and u.singletons == other.singletons:
            idle = None if task.contributes else part[()]
            made = prepare_whole(agree.prepared(), np.add, part.dtype, result, products, idle)
            u.pencil.kept["vdot"].add((u.kind, other.kind), made)
    return converted(result, combined())


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether two fields agree within tolerances on all ranks, as `numpy.allclose`. *Collective*.

    Parameters
    ----------
    a, b : PencilArray
        Fields of the same blocks; one of them may be a replicated NumPy array or a scalar.
    rtol, atol, equal_nan
        As in `numpy.isclose`.
    """
    with agreed(topology_among(a, b).comm, "allclose") as agree:
        agree(a=_signature(a), b=_signature(b))
        agree(tolerances=(float(rtol), float(atol)), equal_nan=bool(equal_nan))
        agree.flag(up=not np.allclose(*_blocks(a, b), rtol, atol, equal_nan))
    return not agree.flagged


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether two fields have the same global shape and elements on all ranks. *Collective*."""
    with agreed(topology_among(a1, a2).comm, "array_equal") as agree:
        agree(a1=_signature(a1), a2=_signature(a2), equal_nan=bool(equal_nan))
        same_shape = np.shape(a1) == np.shape(a2)
        agree.flag(up=not (same_shape and np.array_equal(*_blocks(a1, a2), equal_nan)))
    return not agree.flagged


def _signature(operand: Any) -> object:
    """Return what all ranks must agree on about an operand, values excluded."""
    return signature(operand) if isinstance(operand, Field) else np.shape(operand)


def _blocks(one: Any, other: Any) -> tuple[Array, Array]:
    """Local parts of both operands, broadcast against each other."""
    pencil = common_pencil(fields_among(one, other))
    left, right = np.broadcast_arrays(local_part(one, pencil)[0], local_part(other, pencil)[0])
    return left, right


Function = Callable[..., Any]
_REDUCING_UFUNCS = {ufunc: name for name, ufunc in UFUNCS.items()}
# Other associative and commutative ones with an identity, and extrema that skip NaN.
_ALSO_REDUCING = {np.logaddexp, np.logaddexp2, np.hypot, np.gcd, np.fmax, np.fmin}
_ALSO_REDUCING |= {np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.logical_xor}

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
    if method == "reduce" and ufunc in _ALSO_REDUCING and isinstance(inputs[0], Field):
        return reduce_field(
            f"{ufunc.__name__}.reduce", inputs[0], kwargs.pop("axis", 0), ufunc=ufunc, **kwargs
        )
    replacement = provided("FUNCTIONS").get(
        ufunc if method == "__call__" else getattr(ufunc, method)
    )
    if replacement is None:
        raise TypeError(provided("explain_method")(ufunc.__name__, method))
    return replacement(*inputs, **kwargs)


def apply_function(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a NumPy function that is in one of the tables; others raise a TypeError."""
    if func in ELEMENTWISE:
        return _on_elements(func, args, kwargs)
    if func in REDUCTIONS:
        if not args or not isinstance(args[0], Field):
            raise TypeError(f"numpy.{func.__name__}: give the PencilArray first, without a keyword")
        return getattr(reductions, REDUCTIONS[func])(*args, **kwargs)
    replacement = _FUNCTIONS.get(func) or provided("FUNCTIONS").get(func)
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
            "pencils.functions.own_points(mask) for the global indices of own points"
        )
    return elementwise(np.where, (condition, *choices), {})


def _nan_to_num(x: Any, copy: bool = True, *args: Any, **kwargs: Any) -> Any:
    result = elementwise(lambda part: np.nan_to_num(part, copy, *args, **kwargs), (x,), {})
    if not copy and checks.on:
        x.mark_written()
    return result


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Field):
        raise TypeError("numpy.copyto to a NumPy array: copy u.local to its local part instead")
    copy_where(dst, src, where, casting)


def _full_like(a: Field, fill_value: object, dtype: DTypeLike | None = None) -> Field:
    like = a.blank(dtype)
    like.fill(fill_value)
    return like


# Functions that are attributes or methods of a field, also of one that is traced.
AS_METHODS: dict[Function, Function] = {
    np.real: lambda val: val.real,
    np.imag: lambda val: val.imag,
    np.copy: lambda a: a.copy(),
    np.empty_like: lambda prototype, dtype=None: prototype.blank(dtype),
    np.zeros_like: lambda a, dtype=None: a.blank(dtype, zero=True),
    np.result_type: lambda *operands: np.result_type(
        *(x.dtype if isinstance(x, Field) else x for x in operands)
    ),
}
_FUNCTIONS: dict[Function, Function] = (
    QUERIES
    | AS_METHODS
    | {
        np.vdot: vdot,
        np.allclose: allclose,
        np.array_equal: array_equal,
        np.ones_like: lambda a, dtype=None: _full_like(a, 1, dtype),
        np.full_like: _full_like,
        np.where: _where,
        np.nan_to_num: _nan_to_num,
        np.copyto: _copyto,
    }
)
