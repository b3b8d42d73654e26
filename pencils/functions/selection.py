"""Values at given positions in the order of all values of all ranks, found by counting.

Values are read as unsigned integers of the same order, digit by digit. In each round the ranks add
up how often each digit occurs, which gives the digit of the wanted value; only values with this
digit go to the next round. Values stay where they are, but for those that are found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.comm.mpi import MPI
from pencils.comm.reduce import reduce_together


class Places(NamedTuple):
    """Positions of the values on both sides of each quantile, and how far it is between them.

    The distance is None for methods that choose a value.
    """

    lower: Array
    upper: Array
    distance: Array | None


# Two constants of the continuous methods.
_CONTINUOUS: dict[str, tuple[float, float]] = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}


def _inverted_cdf(n: int, q: Array) -> Array:
    index = n * q - 1
    below = np.floor(index)
    return np.asarray(np.where(index == below, below, below + 1))


def _closest_observation(n: int, q: Array) -> Array:
    index = n * q - 1 - 0.5
    below = np.floor(index)
    return np.asarray(np.where((index == below) & (below % 2 == 1), below, below + 1))


_DISCRETE: dict[str, Callable[[int, Array], Array]] = {
    "inverted_cdf": _inverted_cdf,
    "closest_observation": _closest_observation,
    "lower": lambda n, q: np.floor((n - 1) * q),
    "higher": lambda n, q: np.ceil((n - 1) * q),
    "nearest": lambda n, q: np.asarray(np.around((n - 1) * q)),
}


def places(method: str, n: int, q: Array) -> Places:
    """Find the places of quantiles among `n` values, in floating point as NumPy does.

    NumPy has checked the method and the quantiles.
    """
    if method in _DISCRETE:
        chosen = np.maximum(_DISCRETE[method](n, q), 0).astype(np.intp)
        return Places(chosen, chosen, None)
    index = np.asarray(_index(method, n, q))
    if method == "linear" and index.dtype.kind in "iu":
        return Places(index, index, None)
    lower = np.floor(index)
    distance = np.asarray(index - lower)
    if method == "averaged_inverted_cdf":
        distance = np.where(distance == 0, 0.5, 1.0).astype(index.dtype)
    elif method == "midpoint":
        distance = np.where(distance == 0, 0.0, 0.5).astype(index.dtype)
    # Beyond the first or the last value it is this one.
    distance = np.where((index < 0) | (index >= n - 1), 0, distance).astype(index.dtype)
    upper = np.clip(np.where(index < 0, 0, lower + 1), 0, n - 1).astype(np.intp)
    lower = np.clip(np.where(index >= n - 1, n - 1, lower), 0, n - 1).astype(np.intp)
    return Places(lower, upper, distance)


def _index(method: str, n: int, q: Array) -> Any:
    match method:
        case "linear":
            return (n - 1) * q
        case "averaged_inverted_cdf":
            return n * q - 1
        case "midpoint":
            return 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q))
        case _:
            alpha, beta = _CONTINUOUS[method]
            return n * q + (alpha + q * (1 - alpha - beta)) - 1


_BYTE = 8  # bits
_WIDE, _MANY = 16, 1 << 20  # bits of a digit if there are many values
_FEW = 16  # positions
_CHUNK = 1 << 17  # values whose digits are found at once
# Extended precision: bits of the mantissa, and of the word with sign and exponent.
_LONG = {63: 16, 112: 64}


class Room:
    """Memory for `select`, which ranks allocate before they agree on a call.

    `size` is the number of elements of the field, `most` that of the positions, or more.
    """

    def __init__(self, size: int, most: int) -> None:
        wide = min(most, _FEW) << _WIDE if size >= _MANY else 0
        self.counts = np.empty(1 + max(most << _BYTE, wide), np.int64)
        self.sums = np.empty(1 << (_WIDE if wide else _BYTE), np.int64)


class _Group(NamedTuple):
    """Own values whose first digits are those of a wanted value, and positions among all such.

    They are the values of the `parent` that have a digit; `whole`: all of them have.
    """

    parent: int
    digit: int
    whole: bool
    positions: NDArray[np.int64]


class _Digit(NamedTuple):
    """Which bits of which word of a value are a digit."""

    word: int
    shift: int
    bits: int


def select(
    comm: MPI.Intracomm,
    call: str,
    values: Array,
    count: int,
    positions: NDArray[np.int64],
    room: Room,
) -> Array:
    """Return the values at positions in the order of all values. *Collective*.

    Parameters
    ----------
    comm, call
        Communicator, and what the user called, on which all ranks have agreed.
    values : array
        Own values: 1-D, of native byte order, without NaN.
    count : int
        Number of values of all ranks, at most the size of the field.
    positions : array of int
        Rising positions in the order of all values, the same on all ranks.
    room : Room
        For the field of the values, and for these positions.
    """
    if comm.size == 1:
        return np.partition(values, positions)[positions] if positions.size else values[:0]
    search = _Search(values, positions)
    wide = count >= _MANY and positions.size <= _FEW
    for digit in _digits_of(values.dtype, _WIDE if wide else _BYTE):
        shape = len(search.groups), 1 << digit.bits
        numbers = room.counts[: 1 + prod(shape)]
        tally = partial(search.count, digit)
        counts = reduce_together(comm, call, numbers, MPI.SUM, tally).reshape(shape)
        search.narrow(counts, room.sums[: shape[1]])
        if search.is_over:
            break
    raw = np.empty(1 + len(search.groups) * values.itemsize, np.uint8)
    found = reduce_together(comm, call, raw, MPI.MAX, search.write).copy().view(values.dtype)
    return np.repeat(found, [group.positions.size for group in search.groups])


class _Search:
    """What one rank knows of the wanted values: groups, the same on all ranks, and own values."""

    def __init__(self, values: Array, positions: NDArray[np.int64]) -> None:
        self.groups = [_Group(0, 0, True, positions)]
        self.is_over = False  # only the wanted values are left
        self._values = [values]  # of each group
        self._digits: list[Array] = [np.empty(0, np.uint16)]  # of these values

    def count(self, digit: _Digit, counts: NDArray[Any]) -> None:
        """Count how often each digit occurs in each group."""
        self._split()
        self._digits = [_digits(values, digit) for values in self._values]
        for row, found in zip(counts.reshape(len(self.groups), -1), self._digits, strict=True):
            _count(found, row)

    def narrow(self, counts: NDArray[Any], sums: NDArray[np.int64]) -> None:
        """Find the groups of the next digit, from the counts of all ranks."""
        made = []
        for parent, (row, group) in enumerate(zip(counts, self.groups, strict=True)):
            np.cumsum(row, out=sums)
            chosen = np.searchsorted(sums, group.positions, "right")
            for digit in np.unique(chosen).tolist():
                positions = group.positions[chosen == digit] - (sums[digit] - row[digit])
                made.append(_Group(parent, digit, bool(row[digit] == sums[-1]), positions))
        self.is_over = all(counts[group.parent, group.digit] == 1 for group in made)
        self.groups = made

    def write(self, raw: NDArray[Any]) -> None:
        """Write a value of each group that has any here."""
        self._split()
        for row, values in zip(raw.reshape(len(self.groups), -1), self._values, strict=True):
            if values.size:
                row[:] = values[:1].view(np.uint8)

    def _split(self) -> None:
        """Keep the values of the groups."""
        self._values = [
            values if group.whole else values[self._digits[group.parent] == group.digit]
            for group, values in ((group, self._values[group.parent]) for group in self.groups)
        ]


def _digits(values: Array, digit: _Digit) -> NDArray[np.uint16]:
    """Find one digit of each value."""
    found = np.empty(values.size, np.uint16)
    for start in range(0, values.size, _CHUNK):
        word = _words(values[start : start + _CHUNK])[digit.word]
        kind = word.dtype.type
        mask = kind((1 << digit.bits) - 1)
        found[start : start + _CHUNK] = (word >> kind(digit.shift)) & mask
    return found


def _count(digits: NDArray[np.uint16], counts: NDArray[Any]) -> None:
    """Count how often each digit occurs."""
    for start in range(0, digits.size, _CHUNK):
        counts += np.bincount(digits[start : start + _CHUNK], minlength=counts.size)


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
