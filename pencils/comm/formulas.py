"""Formulas: operations on real numbers that row programs compute by one instruction.

A value that only one operation needs is computed where that is, and stays in registers of the
processor. Each operation is rounded by itself, as by NumPy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

DType = np.dtype[Any]

MOST_OPERANDS = 64  # of an instruction of the compiled programs, results included
_REALS = {np.dtype("f4"): 0, np.dtype("f8"): 1}
# Operations in the order of the compiled kernels.
_LOAD, _ADD, _SUBTRACT, _FROM, _MULTIPLY, _DIVIDE, _INTO, _ADD_PRODUCT, _SUBTRACT_PRODUCT = range(9)
_FROM_PRODUCT, _NEGATE, _SQUARE, _KEEP = range(9, 13)
_NUMBER = 16
# With the value so far as the first operand, as the second one; and with a product as the other.
_BINARY: dict[Any, tuple[int, int]] = {
    np.add: (_ADD, _ADD),
    np.subtract: (_SUBTRACT, _FROM),
    np.multiply: (_MULTIPLY, _MULTIPLY),
    np.divide: (_DIVIDE, _INTO),
}
_OF_PRODUCT: dict[Any, tuple[int, int]] = {
    np.add: (_ADD_PRODUCT, _ADD_PRODUCT),
    np.subtract: (_SUBTRACT_PRODUCT, _FROM_PRODUCT),
}
_FORMULA = 3  # as compiled kernels call them
_IN_MEMORY = _FORMULA, np.copyto  # steps that read values wherever they are
_UNARY: dict[Any, int] = {np.negative: _NEGATE, np.square: _SQUARE}


class Instruction(NamedTuple):
    """``values[result] = function(*values[operands])`` for all points."""

    name: str
    function: Any  # a ufunc, or what compiled kernels have a number for, or an address
    number: int | bytes  # the loop of the ufunc, or bytes, types, steps, results
    operands: tuple[int, ...]
    result: int
    others: tuple[int, ...] = ()  # results before it


def with_formulas(
    steps: Sequence[Instruction],
    dtypes: Sequence[DType],
    stride_of: Callable[[int], int],
    late: int,
) -> list[Instruction]:
    """Join steps to formulas, for values of types and with bytes from element to element.

    The last `late` steps write where operands are read.
    """

    def fits(step: Instruction) -> bool:
        values = *step.operands, step.result
        dtype = dtypes[step.result]
        known = step.function in _BINARY or step.function in _UNARY
        return (
            known
            and dtype in _REALS
            and all(dtypes[one] == dtype for one in values)
            and all(stride_of(one) in {0, dtype.itemsize} for one in values)
        )

    made = {step.result: step for step in steps if fits(step)}
    uses = Counter(value for step in steps for value in step.operands)
    inner: dict[int, Instruction] = {}  # steps whose value only another one needs
    sizes: dict[int, int] = {}
    for step in made.values():
        alone = [one for one in step.operands if one in sizes and uses[one] == 1]
        size = len(step.operands) + sum(sizes[one] for one in alone)
        if size < MOST_OPERANDS:
            inner |= {one: made[one] for one in alone}
        sizes[step.result] = size if size < MOST_OPERANDS else len(step.operands)
    numbers = {one for step in made.values() for one in step.operands if stride_of(one) == 0}
    found = [
        _StepWriter(inner, numbers, step).instruction(_REALS[dtypes[step.result]])
        if step.result in made
        else step
        for step in steps
        if step.result not in inner
    ]
    return _stored_at_once(found[: len(found) - late], found[len(found) - late :], stride_of)


def _stored_at_once(
    steps: Sequence[Instruction], late: Sequence[Instruction], stride_of: Callable[[int], int]
) -> list[Instruction]:
    """Let formulas write what is copied to memory, where others read it, in place of a register."""
    others = {
        one for step in (*steps, *late) if step.function not in _IN_MEMORY for one in step.operands
    }
    others.update(one for step in late for one in step.operands)
    made = {step.result for step in steps if step.name == "formula"} - others
    places: dict[int, int] = {}
    kept = []
    for step in steps:
        value = step.operands[0]
        is_copy = step.function is np.copyto and value in made and value not in places
        if is_copy and stride_of(step.result) == stride_of(value):
            places[value] = step.result
        else:
            kept.append(step)
    return [
        step._replace(
            operands=tuple(places.get(one, one) for one in step.operands),
            result=places.get(step.result, step.result),
        )
        for step in (*kept, *late)
    ]


class _StepWriter:
    """Writes the steps of a formula, for the instruction that computes its last value."""

    def __init__(self, inner: dict[int, Instruction], numbers: set[int], last: Instruction) -> None:
        self._inner, self._numbers, self._last = inner, numbers, last
        self._places: dict[int, int] = {}  # of operands
        self._steps: list[tuple[int, int | None, int | None]] = []
        self._needs: dict[int, int] = {}
        self._kept = 0  # values at most
        self._free: list[int] = []  # places of those that are not needed any more
        self._compute(last)

    def instruction(self, real: int) -> Instruction:
        """Return the instruction."""
        result = len(self._places)

        def place(given: int | None) -> int:
            if given is None:
                return result
            return result - given if given < 0 else given

        code = bytes([real, result + 1, len(self._steps), self._kept])
        code += bytes(part for kind, x, y in self._steps for part in (kind, place(x), place(y)))
        return Instruction("formula", _FORMULA, code, tuple(self._places), self._last.result)

    def _value(self, value: int) -> None:
        """Begin with a value."""
        if value in self._inner:
            self._compute(self._inner[value])
        else:
            self._add(_LOAD, value)

    def _compute(self, step: Instruction) -> None:
        if step.function in _UNARY:
            self._value(step.operands[0])
            self._steps.append((_UNARY[step.function], None, None))
            return
        one, other = step.operands
        forward, backward = _BINARY[step.function]
        of_product = _OF_PRODUCT.get(step.function, (0, 0))
        if any(of_product) and self._product(other):
            self._value(one)
            self._add(of_product[0], *self._product(other))
        elif other not in self._inner:
            self._value(one)
            self._add(forward, other)
        elif one not in self._inner:
            self._value(other)
            self._add(backward, one)
        elif any(of_product) and self._product(one):
            self._value(other)
            self._add(of_product[1], *self._product(one))
        else:
            first = self._need(one) >= self._need(other)
            self._value(one if first else other)
            if not self._free:
                self._kept += 1
                self._free.append(-self._kept)
            kept = self._free.pop()
            self._steps.append((_KEEP, kept, None))
            self._value(other if first else one)
            self._steps.append((backward if first else forward, None, kept))
            self._free.append(kept)

    def _product(self, value: int) -> tuple[int, ...]:
        """Return the factors of a product of operands, if it is one; a number comes first."""
        step = self._inner.get(value)
        if step is None or step.function is not np.multiply:
            return ()
        numbers = [one in self._numbers for one in step.operands]
        if all(numbers) or any(one in self._inner for one in step.operands):
            return ()
        return step.operands if numbers[0] else step.operands[::-1]

    def _need(self, value: int) -> int:
        """Count the values that are kept at once to compute a value."""
        if value not in self._inner:
            return 0
        if value not in self._needs:
            needs = sorted(map(self._need, self._inner[value].operands))
            both = all(one in self._inner for one in self._inner[value].operands)
            self._needs[value] = max(needs[-1], needs[0] + (both and len(needs) > 1))
        return self._needs[value]

    def _add(self, kind: int, y: int, x: int | None = None) -> None:
        """Add a step with an operand, or a product."""
        first = None if x is None else self._place(x)
        self._steps.append((kind + _NUMBER * (y in self._numbers), first, self._place(y)))

    def _place(self, value: int) -> int:
        return self._places.setdefault(value, len(self._places))
