"""Elementwise functions straight on the blocks of fields, where there is nothing to check.

Fields whose bare frames are the same object have the same own block and the same singleton
dimensions, and numbers fit any field. All other operands are left to `numpy_api.elementwise`.
Large results are written to memory of the pool, small ones to what NumPy allocates. Of which kind
a result is, is found once for the kinds of operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field, checks
from pencils.array.frame import Frame, Kind, is_straight
from pencils.comm import pool
from pencils.comm.progress import poll, slabs, under_way

# Types of numbers, with what `numpy.ufunc.resolve_dtypes` takes for them.
NUMBERS: dict[type, Any] = {int: int, float: float, complex: complex, bool: np.dtype(bool)}
NUMBERS |= {np.dtype(char).type: np.dtype(char) for char in "?bBhHiIlLqQefdgFDG"}
LEAST = pool.LEAST

F = TypeVar("F", bound=Field)

_array = np.ndarray
_new = object.__new__
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
            return wrap_made(u, made, self.operation(*parts))
        return wrap_made(u, made, fill(self.ufunc, parts, made.new_block()))

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
            new = wrap_ordered(u, frame, fill(self.ufunc, parts, frame.make(shape, dtype)))
        if kind.straight and all(map(is_straight, arrays)):
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


def wrap_ordered(u: F, frame: Frame, block: Any) -> F:
    """Make a field like `u` of an own block in memory order."""
    new = _new(type(u))
    new._pencil = u._pencil
    new._frame = frame
    new._kind = None
    new._padded = new._local = block
    return new


def wrap_made(u: F, made: Kind, block: Any) -> F:
    """Make a field like `u` of an own block, which is of this straight kind."""
    new = _new(type(u))
    new._pencil = u._pencil
    new._frame = made.frame
    new._kind = made
    new._padded = new._local = block
    return new


def wrap(u: F, frame: Frame, block: Any) -> F:
    """Make a field like `u` of an own block, which is copied if it is not in memory order."""
    if type(block) is not _array or frame.permuted or not block.flags.c_contiguous:
        block = frame.ordered(np.asarray(block))
    new = _new(type(u))
    new._pencil = u._pencil
    new._frame = frame
    new._kind = None
    new._padded = new._local = block
    return new


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


def room_for(function: Any, parts: list[Any], frame: Frame) -> Array | None:
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
