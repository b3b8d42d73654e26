"""Elementwise functions on the blocks of fields, with and without checks of the operands.

`Direct` applies them to blocks where there is nothing to check: fields whose bare frames are the
same object have the same own block and the same singleton dimensions, and numbers fit any field.
All other operands are left to `elementwise`. Large results are written to memory of the pool, small
ones to what NumPy allocates. Of which kind a result is, is found once for the kinds of operands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from pencils.array.allocation import Array, BlockLayout, frame_of, is_c_ordered
from pencils.array.base import Field, checks, on_same_points
from pencils.array.operands import check_fits, common_pencil, everywhere, local_part
from pencils.comm import pool
from pencils.comm.progress import poll, slabs, under_way
from pencils.pencil import Pencil

# Types of numbers, with what `numpy.ufunc.resolve_dtypes` takes for them.
NUMBERS: dict[type, Any] = {int: int, float: float, complex: complex, bool: np.dtype(bool)}
NUMBERS |= {np.dtype(char).type: np.dtype(char) for char in "?bBhHiIlLqQefdgFDG"}
LEAST = pool.LEAST

F = TypeVar("F", bound=Field)

_array = np.ndarray
ELSEWHERE = object()  # instead of an element type: NumPy allocates the result


class Direct:
    """One ufunc on own blocks.

    Parameters
    ----------
    ufunc : numpy.ufunc
        The function, of one or two operands.
    operation : callable, optional
        Another spelling of it for two operands, like `operator.add`.
    """

    __slots__ = ("_kinds", "operation", "ufunc")

    def __init__(self, ufunc: np.ufunc, operation: Callable[..., Any] | None = None) -> None:
        self.ufunc: Callable[..., Any] = ufunc
        self.operation = operation or ufunc
        # By the element types of operands, or the types of numbers: that of the result.
        self._kinds: dict[Any, Any] = {}

    def unary(self, u: F) -> F:
        """Return a field of the values of the function of one field."""
        return self.apply(u, self, u._local)

    def apply(self, u: F, key: object, *parts: Any) -> F:
        """Return a field like `u` of the values for numbers and own blocks, that of `u` included.

        The fields of all blocks have the same bare frame. Where `key` is equal, so are the
        function, the types of numbers, and the kinds of fields.
        """
        made = (u._kind or u.kind).results.get(key)
        if made is None:
            return self.apply_first(u, key, *parts)
        if under_way.on:
            poll()
        if made.small:
            return on_same_points(u, made.frame, self.operation(*parts), made)
        block = fill(self.ufunc, parts, made.new_block())
        return on_same_points(u, made.frame, block, made)

    def apply_first(self, u: F, key: object, *parts: Any) -> F:
        """Do what `apply` does, and keep the kind of the result under `key` if it is known."""
        if under_way.on:
            poll()
        if not u._local.size:
            try_on_one(self.operation, parts, (u,))
        kind = u.kind
        frame, shape = kind.frame, kind.shape
        arrays = [part for part in parts if isinstance(part, _array)]
        dtype = self.result_type(tuple([getattr(part, "dtype", type(part)) for part in parts]))
        if dtype is ELSEWHERE or any(array.shape != shape for array in arrays):
            return wrap(u, frame, self.operation(*parts))
        if kind.small:
            new = wrap(u, frame, self.operation(*parts))
        else:
            block = fill(self.ufunc, parts, frame.make(shape, dtype))
            new = on_same_points(u, frame, block)
        if kind.c_ordered and all(map(is_c_ordered, arrays)):
            kind.results[key] = new.kind
        return new

    def result_type(self, kinds: tuple[Any, ...]) -> Any:
        """Element type of a result that is to lie in the pool; `ELSEWHERE` for others."""
        return self._kinds.get(kinds) or self._resolve(kinds)

    def _resolve(self, kinds: tuple[Any, ...]) -> Any:
        given = [NUMBERS.get(kind, kind) for kind in kinds]
        found = None
        if all(getattr(kind, "kind", "f") in "biufc" for kind in given):
            with suppress(TypeError, ValueError):  # there is no such function: NumPy will raise
                found = self.ufunc.resolve_dtypes((*given, None))[-1]  # type: ignore[attr-defined]
        kept = found if found is not None and found.kind in "biufc" else ELSEWHERE
        self._kinds[kinds] = kept
        return kept


def try_on_one(
    function: Callable[..., Any], parts: Sequence[Any], fields: Sequence[Field], **options: Any
) -> None:
    """Call a function on single elements, on a rank that has none, if other ranks have some.

    NumPy refuses some types and numbers only when it meets an element, like negative powers of
    integers. So it raises on all ranks.
    """
    if not all(field.size for field in fields):
        return
    ones = [
        np.ones([min(extent, 1) or 1 for extent in part.shape], part.dtype)
        if isinstance(part, _array) and not part.size
        else part
        for part in parts
    ]
    with np.errstate(all="ignore"):
        function(*ones, **options)


def fill(ufunc: Callable[..., Any], operands: Sequence[Any], out: Array) -> Array:
    """Write the values of a ufunc to memory that no operand shares."""
    arrays = [each for each in operands if type(each) is _array] if under_way.on else ()
    if not arrays or any(each.shape != out.shape for each in arrays):
        ufunc(*operands, out=out)
        return out
    for key in slabs(out):
        parts = [each[key] if type(each) is _array else each for each in operands]
        ufunc(*parts, out=out[key])
    return out


def wrap(u: F, frame: BlockLayout, block: Any) -> F:
    """Make a field like `u` of an own block, which is copied if it is not in memory order."""
    return on_same_points(u, frame, frame.ordered(np.asarray(block)))


# NumPy's own elementwise functions with one result.
_DIRECT = {
    ufunc: Direct(ufunc)
    for ufunc in vars(np).values()
    if isinstance(ufunc, np.ufunc)
    and ufunc.signature is None
    and ufunc.nout == 1
    and ufunc.nin <= 2  # noqa: PLR2004
}


def compute(
    u: Field, ufunc: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any]
) -> Field | None:
    """Return what a ufunc gives for fields and numbers, or None if something is to be checked.

    The field `u` is one of the inputs, or the output.
    """
    on_blocks = _DIRECT.get(ufunc)
    if on_blocks is None:
        return None
    out: Field | None = None
    frame = u._frame.bare
    if options:
        (out,) = options.get("out", (None,))
        if len(options) > 1 or not isinstance(out, Field) or out._frame.bare is not frame:
            return None
    parts: list[Any] = []
    key: list[Any] = [on_blocks]
    for operand in inputs:
        if isinstance(operand, Field) and operand._frame.bare is frame:
            parts.append(operand._local)
            key.append(operand._kind or operand.kind)
        elif type(operand) in NUMBERS:
            parts.append(operand)
            key.append(type(operand))
        else:
            return None
    if out is not None:
        return _compute_into(out, ufunc, parts)
    found: Field = on_blocks.apply(u, tuple(key), *parts)
    return found


def _compute_into(out: Field, ufunc: np.ufunc, parts: Sequence[Any]) -> Field:
    if under_way.on:
        poll()
    if not out._local.size:
        try_on_one(ufunc, parts, (out,))
    ufunc(*parts, out=out._local)
    if checks.on:
        out.mark_written()
    return out


def room_for(function: Any, parts: list[Any], frame: BlockLayout) -> Array | None:
    """Return memory of the pool for what a function gives, or None if NumPy is to allocate it.

    The parts are those of the operands on this rank.
    """
    on_blocks = _DIRECT.get(function)
    arrays = [part for part in parts if isinstance(part, _array)]
    if on_blocks is None or sum(part.nbytes for part in arrays) < LEAST:
        return None
    kinds = tuple([getattr(part, "dtype", type(part)) for part in parts])
    dtype = on_blocks.result_type(kinds)
    if dtype is ELSEWHERE:
        return None
    shape = np.broadcast_shapes(*(part.shape for part in arrays))
    return frame.make(shape, dtype)


# Operands that are to be checked.


def elementwise(func: Callable[..., Any], inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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


def _may_be_tried(func: Callable[..., Any]) -> bool:
    """Whether a function is one of NumPy's that refuse types and numbers, not values."""
    if func is operator.pow:
        return True
    return isinstance(func, np.ufunc) and getattr(np, func.__name__, None) is func


def _evaluate(
    func: Callable[..., Any], parts: list[Any], kwargs: dict[str, Any], frame: BlockLayout
) -> Any:
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
