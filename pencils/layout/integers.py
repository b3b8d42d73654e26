"""Integer arguments: Python and NumPy integers are accepted, booleans and masks are not."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from pencils.errors import ArgumentError

MOST = 2**63 - 1  # the largest count of NumPy, MPI and HDF5


def to_int(value: object) -> int | None:
    """Return an integer as a Python int; None for anything else."""
    # Booleans of NumPy 2.0 have __index__, with a warning.
    if type(value).__name__ == "bool" or not hasattr(value, "__index__"):
        return None
    try:
        return index(value)
    except TypeError:  # arrays have __index__, but it works for 0-D ones of integers only
        return None


def check_64_bits(name: str, numbers: Sequence[int]) -> None:
    """Raise an ArgumentError if one of the integers has more than 64 bits."""
    if numbers and not -MOST <= min(numbers) <= max(numbers) <= MOST:
        # Python refuses to print very long ones.
        raise ArgumentError(
            f"{name} holds an integer of more than 64 bits; the largest possible one is {MOST}"
        )


def as_int(name: str, value: object, *, least: int | None = None) -> int:
    """Return one integer of at most 64 bits, and at least `least`, as a Python int."""
    number = to_int(value)
    if number is None:
        msg = f"{name}={value!r} must be one integer"
        raise TypeError(msg if least is None else f"{msg}, at least {least}")
    check_64_bits(name, [number])
    if least is not None and number < least:
        raise ArgumentError(f"{name}={number} must be at least {least}")
    return number


def as_ints(name: str, values: object) -> tuple[int, ...]:
    """Return one integer, or a sequence of integers, as a tuple of Python ints."""
    if type(values) is tuple and {int}.issuperset(map(type, values)):  # as in every shift
        check_64_bits(name, values)
        return values
    numbers = []
    for item in items_of(values):
        number = to_int(item)
        if number is None:
            raise TypeError(
                f"{name}={values!r} must be an integer or a sequence of them, not {item!r}"
            )
        numbers.append(number)
    check_64_bits(name, numbers)
    return tuple(numbers)


def as_rank(name: str, value: object, size: int) -> int:
    """Return the number of one of `size` ranks as a Python int."""
    ranks = as_ints(name, value)
    if len(ranks) != 1 or not 0 <= ranks[0] < size:
        raise ArgumentError(f"{name}={value} is not one of the ranks 0..{size - 1}")
    return ranks[0]


def as_dims(name: str, values: object, ndim: int) -> tuple[int, ...]:
    """Return distinct dimension numbers in ``[-ndim, ndim)`` as non-negative ones."""
    given = as_ints(name, values)
    if any(not -ndim <= dim < ndim for dim in given):
        raise ArgumentError(
            f"{name}={given} names a dimension outside 0..{ndim - 1} "
            f"(or -{ndim}..-1, counted from the end)"
        )
    dims = tuple(dim % ndim for dim in given)
    if len(set(dims)) < len(dims):
        raise ArgumentError(f"{name}={given} names a dimension twice; name each at most once")
    return dims


def as_dim(name: str, value: object, ndim: int) -> int:
    """Return one dimension number in ``[-ndim, ndim)`` as a non-negative one."""
    dims = as_dims(name, value, ndim)
    if len(dims) != 1:
        raise ArgumentError(f"{name}={value!r} must be one dimension")
    return dims[0]


def as_index(name: str, value: object, points: int) -> int:
    """Return an index in ``[-points, points)`` as a non-negative one; for None the middle."""
    if value is None:
        return points // 2
    found = as_int(name, value)
    if not -points <= found < points:
        raise ArgumentError(f"{name} {found} is not within {points} points")
    return found % points


def items_of(values: object) -> list[object]:
    """Entries of a sequence; anything else, and text, is one entry."""
    if isinstance(values, str):
        return [values]
    try:
        return list(values)  # type: ignore[call-overload, no-any-return]
    except TypeError:  # has no entries, or only claims to, as NumPy's 0-D arrays do
        return [values]


def each_dim(name: str, values: object, ndim: int, allowed: str) -> list[Any]:
    """Return an entry for each dimension, where one for all is given, or one for each."""
    found = items_of(values)
    if len(found) not in {1, ndim}:
        raise ArgumentError(
            f"{name} has {len(found)} entries; it must be {allowed}, or a sequence of one for each "
            f"of {ndim} dimensions"
        )
    return found * (ndim // len(found))
