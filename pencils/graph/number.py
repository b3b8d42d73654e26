"""Numbers that are known when a program runs: arguments of a fused function, and what follows."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

NUMBERS = (int, float, complex, np.number)

_serial = itertools.count()


class ValueNeededError(BaseException):
    """The value of a number decides what a function does: it is traced for this value alone.

    Functions that are traced do not catch it by ``except Exception``.
    """

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

    The type of its value is the same in all calls. What is not such a number, or a number whose
    type depends on values, needs the value.

    Parameters
    ----------
    sample : scalar
        Its value now, which decides on its type.
    arguments : frozenset of int
        The arguments that it depends on.
    function : callable, optional
        Computes it of the operands, some of which are numbers; None for an argument.
    operands : sequence, optional
        What it is computed of.
    """

    def __init__(
        self,
        sample: Any,
        arguments: frozenset[int],
        function: Callable[..., Any] | None = None,
        operands: Sequence[Any] = (),
    ) -> None:
        self.sample, self.arguments = sample, arguments
        self.function, self.operands = function, operands
        self.serial = next(_serial)  # larger than those of the operands

    @classmethod
    def argument(cls, value: Any, place: int) -> Number:
        """Return the argument of this place."""
        return cls(value, frozenset([place]))

    @cached_property
    def evaluate(self) -> Callable[[Sequence[Any]], Any]:
        """A function that returns the value for all arguments."""
        if self.function is None:
            return operator.itemgetter(*self.arguments)
        several = evaluation([self])
        return lambda values: several(values)[0]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Type of the value, for ``isinstance``."""
        return type(self.sample)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(map(_has_its_own_ufuncs, (*inputs, *options.get("out", ())))):
            return NotImplemented
        plain = method == "__call__" and not options and all(map(_is_number, inputs))
        if not plain or ufunc.nout > 1 or ufunc is np.power:  # scalars round powers otherwise
            self._need_value()
        result = _computed(ufunc, *inputs)
        ints = [one for one in inputs if isinstance(one, Number) and type(one.sample) is int]
        if ints and not isinstance(result.sample, np.inexact):  # large ones have other types
            self._need_value()
        return result

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("sub")
    __mul__, __rmul__ = _operators("mul")
    __truediv__, __rtruediv__ = _operators("truediv")
    __floordiv__, __rfloordiv__ = _operators("floordiv")
    __mod__, __rmod__ = _operators("mod")

    def __pow__(self, other: Any, *modulus: Any) -> Any:
        if type(other) is int and not modulus:
            return _computed(operator.pow, self, other)
        return self._need_value() if _is_number(other) else NotImplemented

    def __rpow__(self, other: Any, *_: Any) -> Any:
        return self._need_value() if _is_number(other) else NotImplemented

    def __neg__(self) -> Number:
        return _computed(operator.neg, self)

    def __pos__(self, *_: object) -> Number:
        return self

    __copy__ = __deepcopy__ = __pos__

    def __abs__(self) -> Number:
        return _computed(abs, self)

    def _need_value(self, *_: object, **_options: object) -> NoReturn:
        raise ValueNeededError(self.arguments)

    def __getattr__(self, name: str) -> NoReturn:
        getattr(self.sample, name)  # raises for what numbers of this type do not have
        self._need_value()

    __bool__ = __int__ = __float__ = __complex__ = __index__ = _need_value
    __round__ = __trunc__ = __floor__ = __ceil__ = __invert__ = _need_value
    __array__ = __str__ = __repr__ = __format__ = __hash__ = __reduce_ex__ = _need_value
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _need_value
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __divmod__ = _need_value
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = __rdivmod__ = _need_value


def _is_number(value: object) -> bool:
    return isinstance(value, (Number, *NUMBERS))


def _has_its_own_ufuncs(value: object) -> bool:
    """Whether NumPy leaves functions of this operand to it, as of fields."""
    kind = type(value)
    known = issubclass(kind, (Number, np.ndarray, np.generic))
    return hasattr(kind, "__array_ufunc__") and not known


def _computed(function: Callable[..., Any], *operands: Any) -> Number:
    """Return the number that a function computes of others."""
    sample = function(*[one.sample if isinstance(one, Number) else one for one in operands])
    needed = [one.arguments for one in operands if isinstance(one, Number)]
    return Number(sample, frozenset().union(*needed), function, operands)


def evaluation(numbers: Sequence[Number]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that computes one or several numbers of all arguments.

    It executes each operation once, in the order in which they were recorded.
    """
    needed: dict[int, Number] = {}
    left = list(numbers)
    while left:
        one = left.pop()
        if one.serial not in needed:
            needed[one.serial] = one
            left += [other for other in one.operands if isinstance(other, Number)]
    if all(one.function is None for one in numbers):
        return several([place for one in numbers for place in one.arguments])
    order = [needed[serial] for serial in sorted(needed)]
    # A list has room for their values, then constants, and then the values of all arguments.
    constants = [x for one in order for x in one.operands if not isinstance(x, Number)]
    start = [*[None] * len(order), *constants]
    unused = itertools.count(len(order))
    places: dict[int, int] = {}
    steps = []
    for place, one in enumerate(order):
        if one.function is None:
            (argument,) = one.arguments
            places[one.serial] = len(start) + argument
            continue
        places[one.serial] = place
        operands = [
            places[x.serial] if isinstance(x, Number) else next(unused) for x in one.operands
        ]
        steps.append((place, one.function, several(operands)))
    results: Callable[..., Sequence[Any]] = several([places[one.serial] for one in numbers])

    def evaluate(values: Sequence[Any]) -> Sequence[Any]:
        found = [*start, *values]
        for place, function, operands in steps:
            found[place] = function(*operands(found))
        return results(found)

    return evaluate


def several(places: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that takes the items of these places, as a sequence even if it is one."""
    first = places[0]
    return operator.itemgetter(*(places if places[1:] else [slice(first, first + 1)]))
