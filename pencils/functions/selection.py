"""Values at given positions in the order of all values of all ranks, found by counting.

Values are read as unsigned integers of the same order, digit by digit. In each round the ranks add
up how often each digit occurs, which gives the digit of the wanted value; only values with this
digit go to the next round. Values stay where they are, but for those that are found.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.comm.reduce import reducer

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

_BYTE = 8  # bits
_WIDE, _MANY = 16, 1 << 20  # bits of a digit if there are many values
_FEW = 16  # positions
_CHUNK = 1 << 17  # values whose digits are found at once
# Extended precision: bits of the mantissa, and of the word with sign and exponent.
_LONG = {63: 16, 112: 64}


class _Group(NamedTuple):
    """Own values whose first digits are those of a wanted value, and positions among all such."""

    values: Array
    positions: NDArray[np.int64]


class _Digit(NamedTuple):
    """Which bits of which word of a value are a digit."""

    word: int
    shift: int
    bits: int


def select(
    comm: MPI.Intracomm, call: str, values: Array, positions: NDArray[np.int64], total: int
) -> Array:
    """Return the values at positions in the order of all values. *Collective*.

    Parameters
    ----------
    comm, call
        Communicator, and what the user called.
    values : array
        Own values: 1-D, of native byte order, without NaN.
    positions : array of int
        Rising positions in ``0 .. total - 1``, the same on all ranks, as is `total`.
    total : int
        Number of values of all ranks.
    """
    if comm.size == 1:
        return np.partition(values, positions)[positions] if positions.size else values[:0]
    bits = _WIDE if total >= _MANY and positions.size <= _FEW else _BYTE
    groups = [_Group(values, positions)]
    digits: list[Array] = []
    totals: Array = np.zeros(0)
    for digit in _digits_of(values.dtype, bits):
        with agreed(comm, call):
            groups = _next(groups, digits, totals) if digits else groups
            digits = [_digits(group.values, digit) for group in groups]
            counts = np.array([_counts(found, digit.bits) for found in digits])
            reduce = reducer(counts, np.add)
        totals = reduce(comm)
        if all(totals[n, chosen].max() == 1 for n, chosen in enumerate(_chosen(groups, totals))):
            break  # only the wanted values are left
    with agreed(comm, call):
        groups = _next(groups, digits, totals)
        raw = np.zeros((len(groups), values.dtype.itemsize), np.uint8)
        for row, group in zip(raw, groups, strict=True):
            if group.values.size:
                row[:] = group.values[:1].view(np.uint8)
        reduce = reducer(raw, np.maximum)
    found = np.ascontiguousarray(reduce(comm)).view(values.dtype).reshape(-1)
    return np.repeat(found, [group.positions.size for group in groups])


def _chosen(groups: list[_Group], totals: Array) -> list[Array]:
    """Digits of the wanted values of each group."""
    before = [np.cumsum(row) for row in totals]
    return [
        np.searchsorted(row, group.positions, "right")
        for row, group in zip(before, groups, strict=True)
    ]


def _next(groups: list[_Group], digits: list[Array], totals: Array) -> list[_Group]:
    """Split groups by the digits that all ranks have found."""
    made = []
    for group, mine, row, chosen in zip(
        groups, digits, totals, _chosen(groups, totals), strict=True
    ):
        starts = np.cumsum(row) - row
        for digit in np.unique(chosen):
            positions = group.positions[chosen == digit] - starts[digit]
            values = group.values
            made.append(
                _Group(values if row[digit] == row.sum() else values[mine == digit], positions)
            )
    return made


def _digits(values: Array, digit: _Digit) -> NDArray[np.uint16]:
    """Find one digit of each value."""
    found = np.empty(values.size, np.uint16)
    for start in range(0, values.size, _CHUNK):
        word = _words(values[start : start + _CHUNK])[digit.word]
        kind = word.dtype.type
        mask = kind((1 << digit.bits) - 1)
        found[start : start + _CHUNK] = (word >> kind(digit.shift)) & mask
    return found


def _counts(digits: NDArray[np.uint16], bits: int) -> NDArray[np.int64]:
    """Count how often each digit occurs."""
    counts = np.zeros(1 << bits, np.int64)
    for start in range(0, digits.size, _CHUNK):
        counts += np.bincount(digits[start : start + _CHUNK], minlength=counts.size)
    return counts


def _digits_of(dtype: np.dtype[Any], most: int) -> list[_Digit]:
    """List the digits of an element type, most significant first."""
    digits = []
    for word, size in enumerate(word_sizes(dtype)):
        left = size
        while left:
            bits = min(most, left)
            left -= bits
            digits.append(_Digit(word, left, bits))
    return digits


def word_sizes(dtype: np.dtype[Any]) -> list[int]:
    """Sizes in bits of the words of `_words`.

    Raises
    ------
    TypeError
        If values of this type have no order that is known here.
    """
    kind, size = dtype.kind, dtype.itemsize
    if kind == "c":
        return 2 * word_sizes(np.empty(0, dtype).real.dtype)
    if kind in "biufmM" and size <= 8:  # noqa: PLR2004
        return [_BYTE * size]
    mantissa = np.finfo(dtype).nmant if kind == "f" else 0
    if size == 16 and mantissa in _LONG and sys.byteorder == "little":  # noqa: PLR2004
        return [_LONG[mantissa], 64]
    raise TypeError(f"values of type {dtype} cannot be put in order here")


def _words(values: Array) -> list[Array]:
    """Read values as unsigned integers of the same order; long ones as several, high ones first."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "c":
        return [*_words(values.real), *_words(values.imag)]
    if size > 8:  # noqa: PLR2004
        return _long_words(values)
    unsigned = np.dtype(f"u{size}").type
    bits: Array = values.view(unsigned)
    top = unsigned(1 << (_BYTE * size - 1))
    if kind in {"b", "u"}:
        return [bits]
    if kind != "f":
        return [bits ^ top]
    # All bits of negative numbers are inverted, of others the sign.
    return [bits ^ (np.negative(bits >> unsigned(_BYTE * size - 1)) | top)]


def _long_words(values: Array) -> list[Array]:
    low, high = np.ascontiguousarray(values).view(np.uint64).reshape(-1, 2).T
    size = _LONG[np.finfo(values.dtype).nmant]
    every, top = np.uint64((1 << size) - 1), np.uint64(1 << (size - 1))
    high = high & every
    negative = high >= top
    return [high ^ np.where(negative, every, top), np.where(negative, ~low, low)]
