"""What NumPy's own functions do with a PencilArray.

Ufuncs and the elementwise functions run on the local blocks and never communicate. Operands that
are NumPy arrays are replicated global data: each rank takes the part of its own block. Functions
that are not listed raise a TypeError instead of computing something rank-local by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils import reductions
from pencils.errors import ArgumentError
from pencils.operands import check_fits, common_pencil, cut, everywhere, is_field
from pencils.storage import allocate, in_memory_order, read_dtype

if TYPE_CHECKING:
    from pencils.array import PencilArray
    from pencils.pencil import Pencil

Function = Callable[..., Any]
_REDUCING_UFUNCS: dict[np.ufunc, Function] = {
    np.add: reductions.sum,
    np.multiply: reductions.prod,
    np.minimum: reductions.min,
    np.maximum: reductions.max,
    np.logical_and: reductions.all,
    np.logical_or: reductions.any,
}
_FUNCTIONS: dict[Function, Function] = {}


# Ufuncs.


def apply_ufunc(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Carry out ``ufunc.method(*inputs, **kwargs)`` where some operand is a PencilArray.

    Raises
    ------
    TypeError
        For methods and ufuncs that are not elementwise and have no global meaning here.
    """
    if method == "reduce" and ufunc in _REDUCING_UFUNCS and is_field(inputs[0]):
        kwargs.setdefault("axis", 0)
        return _REDUCING_UFUNCS[ufunc](*inputs, **kwargs)
    if method != "__call__" or ufunc.signature is not None:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        raise TypeError(_not_defined(name))
    return _elementwise(ufunc, inputs, kwargs)


def _elementwise(func: Function, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run `func` on the local parts of its inputs and wrap what it returns."""
    out = kwargs.pop("out", None)
    outs = out if isinstance(out, tuple) else (out,) if out is not None else ()
    where = kwargs.get("where", True)
    given = [target for target in outs if target is not None]
    if not all(map(is_field, given)):
        msg = (
            "out= must be a PencilArray where an operand is one; use u.local on both sides instead"
        )
        raise TypeError(msg)
    fields = [operand for operand in (*inputs, where, *given) if is_field(operand)]
    pencil = common_pencil(fields)
    local = []
    singletons = everywhere(pencil)
    for operand in (*inputs, where):
        part, along = cut(operand, pencil)
        local.append(part)
        singletons &= along
    for target in given:
        check_fits(singletons, target, pencil)
    where = local.pop()
    if where is not True:
        kwargs["where"] = where
    if given:
        buffers = tuple(None if target is None else target.local for target in outs)
        kwargs["out"] = buffers if isinstance(out, tuple) else buffers[0]
    result = func(*local, **kwargs)
    if not isinstance(result, tuple):
        return _wrap(result, outs[0] if outs else None, pencil, singletons, fields[0])
    targets = outs or (None,) * len(result)
    return tuple(
        _wrap(part, target, pencil, singletons, fields[0])
        for part, target in zip(result, targets, strict=True)
    )


def _wrap(
    result: Any,
    out: PencilArray | None,
    pencil: Pencil,
    singletons: frozenset[int],
    like: PencilArray,
) -> PencilArray:
    if out is not None:
        return out
    block = in_memory_order(np.asarray(result), pencil.order)
    return type(like).from_block(pencil, block, singletons)


def _not_defined(name: str) -> str:
    return (
        f"numpy.{name} has no global meaning for a PencilArray here; apply it to u.local for the "
        "own block, or to gather(u)"
    )


# Functions.


def apply_function(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out a NumPy function that is in the table.

    Raises
    ------
    TypeError
        If it is not.
    """
    known = _FUNCTIONS.get(func)
    if known is None:
        raise TypeError(_not_defined(func.__name__))
    return known(*args, **kwargs)


def _implements(*functions: Function) -> Callable[[Function], Function]:
    def register(implementation: Function) -> Function:
        for function in functions:
            _FUNCTIONS[function] = implementation
        return implementation

    return register


def _register_elementwise(function: Function, operands: int) -> None:
    def implementation(*args: Any, **kwargs: Any) -> Any:
        def on_blocks(*parts: Any, **options: Any) -> Any:
            return function(*parts, *args[operands:], **options)

        return _elementwise(on_blocks, args[:operands], kwargs)

    _FUNCTIONS[function] = implementation


for _function, _operands in (
    (np.where, 3),
    (np.real, 1),
    (np.imag, 1),
    (np.angle, 1),
    (np.round, 1),
    (np.around, 1),
    (np.clip, 3),
    (np.isclose, 2),
    (np.nan_to_num, 1),
    (np.isposinf, 1),
    (np.isneginf, 1),
    (np.isreal, 1),
    (np.iscomplex, 1),
    (np.sinc, 1),
    (np.i0, 1),
    (np.interp, 1),
):
    _register_elementwise(_function, _operands)

_FUNCTIONS.update(
    {
        np.sum: reductions.sum,
        np.prod: reductions.prod,
        np.min: reductions.min,
        np.max: reductions.max,
        np.mean: reductions.mean,
        np.var: reductions.var,
        np.std: reductions.std,
        np.any: reductions.any,
        np.all: reductions.all,
        np.argmin: reductions.argmin,
        np.argmax: reductions.argmax,
        np.count_nonzero: reductions.count_nonzero,
        np.ptp: reductions.ptp,
        np.vdot: reductions.vdot,
        np.allclose: reductions.allclose,
        np.array_equal: reductions.array_equal,
        np.linalg.norm: reductions.norm,
        np.shape: lambda field: field.shape,
        np.ndim: lambda field: field.ndim,
        np.size: lambda field: field.size,
        np.iscomplexobj: lambda field: field.dtype.kind == "c",
        np.isrealobj: lambda field: field.dtype.kind != "c",
        np.copy: lambda field, **_: field.copy(),
    }
)


@_implements(np.result_type)
def _result_type(*operands: Any) -> np.dtype[Any]:
    return np.result_type(*(x.local if is_field(x) else x for x in operands))


@_implements(np.copyto)
def _copyto(dst: PencilArray, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not is_field(dst):
        msg = "numpy.copyto to a NumPy array: copy u.local to its local part instead"
        raise TypeError(msg)
    pencil = common_pencil([x for x in (dst, src, where) if is_field(x)])
    values, singletons = cut(src, pencil)
    mask, along = cut(where, pencil)
    check_fits(singletons & along, dst, pencil)
    np.copyto(dst.local, values, casting=casting, where=mask)


@_implements(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0) -> PencilArray:
    fields = [array for array in arrays if is_field(array)]
    pencil = common_pencil(fields)
    cuts = [cut(array, pencil) for array in arrays]
    blocks = np.broadcast_arrays(*(part for part, _ in cuts))
    lead = blocks[0].ndim - pencil.ndim
    if not 0 <= axis <= lead:
        msg = f"numpy.stack along axis {axis}: new axes are components and come first, 0..{lead}"
        raise ArgumentError(msg)
    singletons = frozenset.intersection(*(along for _, along in cuts))
    return _wrap(np.stack(blocks, axis), None, pencil, singletons, fields[0])


@_implements(np.einsum)
def _einsum(subscripts: str, *operands: Any, **kwargs: Any) -> PencilArray:
    terms = subscripts.replace("->", ",").replace(" ", "").split(",")
    if "->" not in subscripts or not all(term.endswith("...") for term in terms):
        msg = (
            f"numpy.einsum({subscripts!r}): indices name component axes, and every term ends with "
            "... for space, like 'i...,i...->...'"
        )
        raise ArgumentError(msg)

    def contract(*parts: Any, **options: Any) -> Any:
        return np.einsum(subscripts, *parts, **options)

    result: PencilArray = _elementwise(contract, operands, kwargs)
    return result


def _register_like(function: Function, value: Any) -> None:
    def implementation(prototype: PencilArray, *args: Any, **kwargs: Any) -> PencilArray:
        fill = args[0] if function is np.full_like else value
        dtype = kwargs.pop("dtype", None)
        if kwargs or len(args) > (function is np.full_like):
            msg = f"numpy.{function.__name__} of a PencilArray takes dtype= only"
            raise TypeError(msg)
        kind = prototype.dtype if dtype is None else read_dtype(dtype)
        field, pencil = prototype, prototype.pencil
        block = allocate(pencil, kind, field.components, field.singletons, field.halo)
        if fill is not None:
            block[...] = fill
        return type(field).from_block(pencil, block, field.singletons, field.halo)

    _FUNCTIONS[function] = implementation


for _function, _value in (
    (np.empty_like, None),
    (np.zeros_like, 0),
    (np.ones_like, 1),
    (np.full_like, None),
):
    _register_like(_function, _value)
