"""Numbers that are known when a program runs: arguments of a fused function, and what follows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

NUMBERS = (int, float, complex, np.number)


class ValueNeededError(Exception):
    """The value of a number decides what a function does: it is traced for this value alone."""

    def __init__(self, arguments: frozenset[int]) -> None:
        super().__init__("the value of a number is needed")
        self.arguments = arguments


def _operators(name: str) -> tuple[Any, Any]:
    """Make the methods for ``x + y`` and ``2 + x``, as Python computes them."""
    function = getattr(operator, name)

    def forward(self: Number, other: Any) -> Any:
        return _computed(function, self, other) if _is_number(other) else NotImplemented

    def reflected(self: Number, other: Any) -> Any:
        return _computed(function, other, self) if _is_number(other) else NotImplemented

    return forward, reflected


class Number:
    """A number computed from arguments of a fused function, in each call anew.

    Parameters
    ----------
    sample : scalar
        Its value now, which decides on its type.
    evaluate : callable
        Returns its value for all arguments.
    arguments : frozenset of int
        The arguments that it depends on.
    """

    __slots__ = ("arguments", "evaluate", "sample")

    def __init__(
        self, sample: Any, evaluate: Callable[[Sequence[Any]], Any], arguments: frozenset[int]
    ) -> None:
        self.sample, self.evaluate, self.arguments = sample, evaluate, arguments

    @classmethod
    def argument(cls, value: Any, place: int) -> Number:
        """Return the argument of this place."""
        return cls(value, operator.itemgetter(place), frozenset([place]))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or not all(map(_is_number, inputs)):
            return NotImplemented
        return _computed(ufunc, *inputs)

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("sub")
    __mul__, __rmul__ = _operators("mul")
    __truediv__, __rtruediv__ = _operators("truediv")
    __floordiv__, __rfloordiv__ = _operators("floordiv")
    __mod__, __rmod__ = _operators("mod")
    __pow__, __rpow__ = _operators("pow")

    def __neg__(self) -> Number:
        return _computed(operator.neg, self)

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        return _computed(abs, self)

    def _need_value(self, *_: object) -> NoReturn:
        raise ValueNeededError(self.arguments)

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __round__ = _need_value
    __array__ = __str__ = __format__ = _need_value
    __lt__ = __le__ = __gt__ = __ge__ = _need_value
    __eq__ = __ne__ = _need_value
    __hash__ = object.__hash__


def _is_number(value: object) -> bool:
    return isinstance(value, (Number, *NUMBERS))


def _computed(function: Callable[..., Any], *operands: Any) -> Number:
    """Return the number that a function computes of others."""
    sample = function(*(one.sample if isinstance(one, Number) else one for one in operands))

    def evaluate(values: Sequence[Any]) -> Any:
        return function(
            *(one.evaluate(values) if isinstance(one, Number) else one for one in operands)
        )

    needed = [one.arguments for one in operands if isinstance(one, Number)]
    return Number(sample, evaluate, frozenset().union(*needed))
