"""Elementwise functions straight on the blocks of fields, where there is nothing to check.

Fields whose bare frames are the same object have the same own block and the same singleton
dimensions, and numbers fit any field. All other operands are left to `numpy_api.elementwise`.
Large results are written to memory of the pool, small ones to what NumPy allocates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field, checks
from pencils.array.frame import Frame
from pencils.comm import pool

# Types of numbers, with what `numpy.ufunc.resolve_dtypes` takes for them.
NUMBERS: dict[type, Any] = {int: int, float: float, complex: complex, bool: np.dtype(bool)}
NUMBERS |= {np.dtype(char).type: np.dtype(char) for char in "?bBhHiIlLqQefdgFDG"}
LEAST = pool.LEAST

_array = np.ndarray
_new = object.__new__
_nothing = object()


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
        self.ufunc = ufunc
        self.operation = operation or ufunc
        self._kinds: dict[tuple[object, object], np.dtype[Any] | None] = {}

    def unary(self, u: Field) -> Any:
        """Return a field of the values of the function of one field."""
        frame, block = u._frame.bare, u._local
        if block.nbytes < LEAST or (out := self._room(frame, block, block, _nothing)) is None:
            return wrap(u, frame, self.operation(block))
        return wrap(u, frame, self.ufunc(block, out))

    def binary(self, u: Field, one: Any, other: Any) -> Any:
        """Return a field like `u` of the values for two operands: its own block, and another one.

        The other one may be a number, or the own block of a field with the same bare frame.
        """
        frame, block = u._frame.bare, u._local
        if block.nbytes < LEAST or (out := self._room(frame, block, one, other)) is None:
            return wrap(u, frame, self.operation(one, other))
        return wrap(u, frame, self.ufunc(one, other, out))

    def into(self, out: Field, parts: tuple[Any, ...]) -> Field:
        """Write the values into a field."""
        self.ufunc(*parts, out._local)
        if checks.on:
            out.mark_written()
        return out

    def _room(self, frame: Frame, block: Array, one: Any, other: Any) -> Array | None:
        """Return memory of the pool for the result, or None if NumPy is to allocate it."""
        kinds = (
            one.dtype if type(one) is _array else type(one),
            other.dtype if type(other) is _array else type(other),
        )
        try:
            dtype = self._kinds[kinds]
        except KeyError:
            dtype = self._kinds[kinds] = self._resolve(kinds)
        if dtype is None or (
            other is not block and type(other) is _array and other.shape != block.shape
        ):
            return None
        return frame.make(block.shape, dtype)

    def _resolve(self, kinds: tuple[object, object]) -> np.dtype[Any] | None:
        """Element type of results that are numbers; None for others, and if it is refused."""
        given = [NUMBERS.get(kind, kind) for kind in kinds if kind is not object]  # type: ignore[call-overload]
        if any(isinstance(kind, np.dtype) and kind.kind not in "biufc" for kind in given):
            return None
        try:
            dtype: np.dtype[Any] = self.ufunc.resolve_dtypes((*given, None))[-1]
        except (TypeError, ValueError):
            return None
        return dtype if dtype.kind in "biufc" else None


def wrap(u: Field, frame: Frame, block: Any) -> Any:
    """Make a field like `u` of an own block, which is copied if it is not in memory order."""
    if type(block) is not _array or frame.permuted or not block.flags.c_contiguous:
        block = frame.ordered(np.asarray(block))
    new = _new(type(u))
    new._pencil = u._pencil
    new._frame = frame
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


def compute(ufunc: np.ufunc, inputs: tuple[Any, ...], outs: tuple[Any, ...] | None) -> Any:
    """Return what `ufunc` gives for fields and numbers, or None if something is to be checked."""
    on_blocks = _DIRECT.get(ufunc)
    if on_blocks is None:
        return None
    like: Any = None
    parts = []
    for operand in inputs if outs is None else (*inputs, *outs):
        if type(operand) in NUMBERS:
            parts.append(operand)
        elif not isinstance(operand, Field):
            return None
        elif like is None:
            like = operand
            parts.append(operand._local)
        elif operand._frame.bare is like._frame.bare:
            parts.append(operand._local)
        else:
            return None
    if outs is not None:
        return on_blocks.into(outs[0], tuple(parts[:-1]))
    return on_blocks.unary(like) if len(parts) == 1 else on_blocks.binary(like, *parts)
