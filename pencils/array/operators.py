"""Operators of fields: ``u + v``, ``2 * u``, ``u += v``, ``-u``, ``u < v``.

Where both operands have the same frame, or one is a number, they go to the blocks directly. Other
operands are checked: see `elementwise`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pencils.array.base import Field, checks, on_same_points
from pencils.array.elementwise import NUMBERS, Direct, elementwise, try_on_one, wrap
from pencils.array.signatures import F, Operand
from pencils.comm.pool import new_block
from pencils.comm.progress import poll, under_way

Operation = Callable[[Any, Any], Any]

_MISSING = object()
_array = np.ndarray
_divmod: Any = np.divmod
_matmul: Any = np.matmul


def _takes_no_part(other: object) -> bool:
    """Whether an operand takes no part in ufuncs: then Python asks it for the result."""
    return getattr(other, "__array_ufunc__", _MISSING) is None


def _forward(
    operation: Operation, ufunc: Any, checked: Operation | None = None
) -> Callable[[F, Operand], F]:
    """Make the method for ``u + v``; `checked` takes the operands that are to be checked."""
    on_blocks, elsewhere = Direct(ufunc, operation), checked or ufunc

    def method(self: Any, other: Any) -> Any:
        kind = self._kind or self.kind
        key: Any = on_blocks
        if type(other) is type(self):
            operand, fellow = other._local, other._kind or other.kind
            if fellow is not kind:
                if fellow.frame is not kind.frame:
                    return elsewhere(self, other)
                key = on_blocks, fellow
        else:
            operand, key = other, (on_blocks, type(other))
        made = kind.results.get(key)
        if made is None:
            if operand is other and type(other) not in NUMBERS:
                return NotImplemented if _takes_no_part(other) else elsewhere(self, other)
            return on_blocks.apply_first(self, key, self._local, operand)
        if under_way.on:
            return on_blocks.apply(self, key, self._local, operand)
        if made.small:
            block = operation(self._local, operand)
        else:
            out = _array(made.shape, made.dtype, new_block(made.nbytes, 0))
            block = ufunc(self._local, operand, out)
        return on_same_points(self, made.frame, block, made)

    return method


def _reflected(operation: Operation, ufunc: Any) -> Callable[[F, Operand], F]:
    """Make the method for ``2 + u``."""
    on_blocks = Direct(ufunc, operation)

    def method(self: Any, other: Any) -> Any:
        if type(other) in NUMBERS:
            return on_blocks.apply(self, (on_blocks, type(other)), other, self._local)
        return NotImplemented if _takes_no_part(other) else ufunc(other, self)

    return method


def _in_place(operation: Operation, ufunc: Any) -> Callable[[F, Operand], F]:
    """Make the method for ``u += v``."""

    def method(self: Any, other: Any) -> Any:
        if under_way.on:
            poll()
        kind = type(other)
        if kind is type(self) and other._frame.bare is self._frame.bare:
            operation(self._local, other._local)
        elif kind in NUMBERS:
            operation(self._local, other)
        else:
            return ufunc(self, other, out=(self,))
        if checks.on:
            self.mark_written()
        return self

    return method


def _unary(ufunc: Any) -> Callable[[F], F]:
    """Make the method for ``-u``."""
    on_blocks = Direct(ufunc)

    def method(self: Any) -> Any:
        return on_blocks.unary(self)

    return method


def _on_elements(operation: Operation) -> Operation:
    """Apply an operation to blocks where it is more than its ufunc."""
    return lambda u, other: elementwise(operation, (u, other), {})


# NumPy may compute ``block**number`` for these without `numpy.power`, which is faster, and differs
# where values are infinite. So must blocks of all sizes.
_SIMPLE = (-1, 0, 0.5, 1, 2)
_POWERS: dict[complex, Direct] = {0.5: Direct(np.sqrt), 2: Direct(np.square)}


class Operators(Field):
    """What Python's operators do with fields: elementwise, and without communication."""

    __slots__ = ()

    __add__ = _forward(operator.add, np.add)
    __sub__ = _forward(operator.sub, np.subtract)
    __mul__ = _forward(operator.mul, np.multiply)
    __truediv__ = _forward(operator.truediv, np.true_divide)
    __floordiv__ = _forward(operator.floordiv, np.floor_divide)
    __mod__ = _forward(operator.mod, np.remainder)
    __and__ = _forward(operator.and_, np.bitwise_and)
    __or__ = _forward(operator.or_, np.bitwise_or)
    __xor__ = _forward(operator.xor, np.bitwise_xor)
    __lshift__ = _forward(operator.lshift, np.left_shift)
    __rshift__ = _forward(operator.rshift, np.right_shift)
    __lt__ = _forward(operator.lt, np.less)
    __le__ = _forward(operator.le, np.less_equal)
    __gt__ = _forward(operator.gt, np.greater)
    __ge__ = _forward(operator.ge, np.greater_equal)
    if TYPE_CHECKING:  # otherwise these return what those of `object` do

        def __eq__(self, other: Operand) -> Self: ...  # type: ignore[override]
        def __ne__(self, other: Operand) -> Self: ...  # type: ignore[override]

    else:  # comparisons of records are not ufuncs
        __eq__ = _forward(operator.eq, np.equal, _on_elements(operator.eq))
        __ne__ = _forward(operator.ne, np.not_equal, _on_elements(operator.ne))
    __hash__ = None  # type: ignore[assignment]

    __radd__ = _reflected(operator.add, np.add)
    __rsub__ = _reflected(operator.sub, np.subtract)
    __rmul__ = _reflected(operator.mul, np.multiply)
    __rtruediv__ = _reflected(operator.truediv, np.true_divide)
    __rfloordiv__ = _reflected(operator.floordiv, np.floor_divide)
    __rmod__ = _reflected(operator.mod, np.remainder)
    __rpow__ = _reflected(operator.pow, np.power)
    __rand__ = _reflected(operator.and_, np.bitwise_and)
    __ror__ = _reflected(operator.or_, np.bitwise_or)
    __rxor__ = _reflected(operator.xor, np.bitwise_xor)
    __rlshift__ = _reflected(operator.lshift, np.left_shift)
    __rrshift__ = _reflected(operator.rshift, np.right_shift)

    __iadd__ = _in_place(operator.iadd, np.add)
    __isub__ = _in_place(operator.isub, np.subtract)
    __imul__ = _in_place(operator.imul, np.multiply)
    __itruediv__ = _in_place(operator.itruediv, np.true_divide)
    __ifloordiv__ = _in_place(operator.ifloordiv, np.floor_divide)
    __imod__ = _in_place(operator.imod, np.remainder)
    __iand__ = _in_place(operator.iand, np.bitwise_and)
    __ior__ = _in_place(operator.ior, np.bitwise_or)
    __ixor__ = _in_place(operator.ixor, np.bitwise_xor)
    __ilshift__ = _in_place(operator.ilshift, np.left_shift)
    __irshift__ = _in_place(operator.irshift, np.right_shift)

    __neg__ = _unary(np.negative)
    __pos__ = _unary(np.positive)
    __abs__ = _unary(np.absolute)
    __invert__ = _unary(np.invert)

    _power = _forward(operator.pow, np.power, _on_elements(operator.pow))
    _power_in_place = _in_place(operator.ipow, np.power)

    def __pow__(self, other: Operand) -> Self:
        kind: Any = type(other)
        if kind not in NUMBERS or other not in _SIMPLE:
            return self._power(other)
        if kind in {int, float} and other in _POWERS and self.dtype.kind in "fc":
            return _POWERS[other].unary(self)
        if not self._local.size:
            try_on_one(operator.pow, (self._local, other), (self,))
        return wrap(self, self._frame.bare, self._local**other)

    def __ipow__(self, other: Operand) -> Self:
        if not self._local.size and type(other) in NUMBERS:
            try_on_one(operator.pow, (self._local, other), (self,))
        return self._power_in_place(other)

    def __divmod__(self, other: Operand) -> tuple[Self, Self]:
        return NotImplemented if _takes_no_part(other) else _divmod(self, other)

    def __rdivmod__(self, other: Operand) -> tuple[Self, Self]:
        return NotImplemented if _takes_no_part(other) else _divmod(other, self)

    if not TYPE_CHECKING:  # without meaning for fields: the ufunc raises

        def __matmul__(self, other: Any) -> Any:
            return NotImplemented if _takes_no_part(other) else _matmul(self, other)

        def __rmatmul__(self, other: Any) -> Any:
            return NotImplemented if _takes_no_part(other) else _matmul(other, self)

        def __imatmul__(self, other: Any) -> Self:
            return _matmul(self, other, out=(self,))
