"""Values at given positions in the order of all values of all ranks, found by counting.

Values are read as unsigned integers of the same order, digit by digit. In each round the ranks add
up how often each digit occurs, which gives the digit of the wanted value; only values with this
digit go to the next round. Once few are left, all ranks get all of these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array, real_type
from pencils.comm.mpi import MPI
from pencils.comm.recording import timed
from pencils.comm.reduce import reduce_together

# Two constants of the continuous methods.
_CONTINUOUS: dict[str, tuple[float, float]] = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}


def _odd_or_next(index: Array) -> Array:
    return np.asarray(np.where(index % 2 == 1, index, np.floor(index) + 1))


_DISCRETE: dict[str, Callable[[int, Array], Array]] = {
    "inverted_cdf": lambda n, q: np.ceil(n * q - 1),
    "closest_observation": lambda n, q: _odd_or_next(n * q - 1 - 0.5),
    "lower": lambda n, q: np.floor((n - 1) * q),
    "higher": lambda n, q: np.ceil((n - 1) * q),
    "nearest": lambda n, q: np.asarray(np.around((n - 1) * q)),
}


def places(method: str, n: int, q: Array) -> tuple[Array, Array, Array | None]:
    """Find the places of quantiles among `n` values, in floating point as NumPy does.

    These are the positions of the values on both sides, and how far it is between them: None for
    methods that choose a value. NumPy has checked the method and the quantiles.
    """
    if method in _DISCRETE:
        chosen = np.maximum(_DISCRETE[method](n, q), 0).astype(np.intp)
        return chosen, chosen, None
    if method == "linear":
        index = (n - 1) * q
        if index.dtype.kind in "iu":
            return index, index, None
    elif method == "midpoint":
        index = 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q))
    elif method == "averaged_inverted_cdf":
        index = n * q - 1
    else:
        alpha, beta = _CONTINUOUS[method]
        index = n * q + (alpha + q * (1 - alpha - beta)) - 1
    lower = np.floor(index)
    distance = index - lower
    if method == "averaged_inverted_cdf":
        distance = np.where(distance == 0, 0.5, 1.0)
    elif method == "midpoint":
        distance = np.where(distance == 0, 0.0, 0.5)
    # Beyond the first or the last value it is this one.
    distance = np.where((index < 0) | (index >= n - 1), 0, distance).astype(index.dtype)
    upper = np.clip(np.where(index < 0, 0, lower + 1), 0, n - 1).astype(np.intp)
    lower = np.clip(np.where(index >= n - 1, n - 1, lower), 0, n - 1).astype(np.intp)
    return lower, upper, distance


_BYTE = 8  # bits
_WIDE, _MANY = 16, 1 << 20  # bits of a digit if there are many values
_FEW = 16  # positions
# So many values are collected on all ranks, which takes less time than to count digits.
MOST_COLLECTED = 2**15
_CHUNK = 1 << 17  # values whose digits are found at once
# Extended precision: bits of the mantissa, and of the word with sign and exponent.
_LONG = {63: 16, 112: 64}


# Counts of digits, or of values of each rank; running sums of counts; values that are collected.
Room = tuple[NDArray[np.int64], NDArray[np.int64], Array]


def room_for(size: int, most: int, dtype: np.dtype[Any], ranks: int) -> Room:
    """Allocate memory for `select` in a field of some size, for at most so many positions."""
    wide = min(most, _FEW) << _WIDE if size >= _MANY else 0
    counts = np.empty(1 + max(most << _BYTE, wide, ranks), np.int64)
    sums = np.empty(1 << (_WIDE if wide else _BYTE), np.int64)
    return counts, sums, np.empty(min(size, MOST_COLLECTED), dtype)


class _Group(NamedTuple):
    """Own values whose first digits are those of a wanted value, and positions among all such.

    They are the values of the `parent` that have a digit; `whole`: all of them have. `total`: so
    many all ranks have.
    """

    parent: int
    digit: int
    whole: bool
    total: int
    positions: NDArray[np.int64]


def select(
    comm: MPI.Intracomm,
    call: str,
    values: Array,
    count: int,
    positions: NDArray[np.int64],
    room: Room,
) -> Array:
    """Return the values at rising positions in the order of all values. *Collective*.

    All ranks have agreed on `call`, what the user called, on the positions, and on the `count` of
    all values. Own values are 1-D, of native byte order, without NaN. `room` is what `room_for` has
    made for their field and for these positions.
    """
    groups = [_Group(0, 0, True, count, positions)]  # the same on all ranks
    known: list[Array] = [values]  # own values of each group, or of each parent, and their digits
    digits: list[Array] = [np.empty(0, np.uint16)]

    def split() -> list[Array]:
        pairs = [(group, known[group.parent]) for group in groups]
        return [v if group.whole else v[digits[group.parent] == group.digit] for group, v in pairs]

    def tally(digit: tuple[int, int, int], numbers: NDArray[Any]) -> None:
        known[:] = split()
        digits[:] = [_digits(each, *digit) for each in known]
        for row, found in zip(numbers.reshape(len(groups), -1), digits, strict=True):
            _count(found, row)

    wide = count >= _MANY and positions.size <= _FEW
    for digit in _digits_of(values.dtype, _WIDE if wide else _BYTE):
        if sum(group.total for group in groups) <= MOST_COLLECTED:
            return _collected(comm, call, groups, split, room)
        width = 1 << digit[2]
        numbers = room[0][: 1 + len(groups) * width]
        counts = reduce_together(comm, call, numbers, MPI.SUM, partial(tally, digit))
        groups = _narrowed(groups, counts.reshape(-1, width), room[1][:width])

    def write(raw: NDArray[Any]) -> None:
        for row, mine in zip(raw.reshape(len(groups), -1), split(), strict=True):
            if mine.size:
                row[:] = mine[:1].view(np.uint8)

    raw = np.empty(1 + len(groups) * values.itemsize, np.uint8)
    found = reduce_together(comm, call, raw, MPI.MAX, write).copy().view(values.dtype)
    return np.repeat(found, [group.positions.size for group in groups])


def _collected(
    comm: MPI.Intracomm,
    call: str,
    groups: Sequence[_Group],
    split: Callable[[], Sequence[Array]],
    room: Room,
) -> Array:
    """Find the values at the positions of groups among those that are left. *Collective*."""
    own: list[Array] = []

    def number(sizes: NDArray[Any]) -> None:
        own.append(np.concatenate(split()))
        sizes[comm.rank] = own[0].size

    sizes = reduce_together(comm, call, room[0][: 1 + comm.size], MPI.SUM, number)
    ahead = np.cumsum([0, *(group.total for group in groups)])
    every, mine = room[2][: ahead[-1]], own[0].view(np.uint8)
    received = [every.view(np.uint8), sizes * every.itemsize, MPI.BYTE]
    timed("wait", comm.Allgatherv, [mine, MPI.BYTE], received)
    places = [n + group.positions for n, group in zip(ahead[:-1], groups, strict=True)]
    chosen = np.concatenate(places)
    every.partition(chosen)
    found: Array = every[chosen]
    return found


def _count(digits: NDArray[np.uint16], counts: NDArray[Any]) -> None:
    """Count how often each digit occurs."""
    for start in range(0, digits.size, _CHUNK):
        counts += np.bincount(digits[start : start + _CHUNK], minlength=counts.size)


def _narrowed(
    groups: Sequence[_Group], counts: NDArray[Any], sums: NDArray[np.int64]
) -> list[_Group]:
    """Find the groups of the next digit, from how often each digit occurs in those of this one."""
    made = []
    for parent, (row, group) in enumerate(zip(counts, groups, strict=True)):
        np.cumsum(row, out=sums)
        chosen = np.searchsorted(sums, group.positions, "right")
        for digit in np.unique(chosen).tolist():
            positions = group.positions[chosen == digit] - (sums[digit] - row[digit])
            total = int(row[digit])
            made.append(_Group(parent, digit, bool(total == sums[-1]), total, positions))
    return made


def _digits(values: Array, word: int, shift: int, bits: int) -> NDArray[np.uint16]:
    """Find one digit of each value: bits of one of its words."""
    found = np.empty(values.size, np.uint16)
    for start in range(0, values.size, _CHUNK):
        part = _words(values[start : start + _CHUNK])[word]
        kind = part.dtype.type
        found[start : start + _CHUNK] = (part >> kind(shift)) & kind((1 << bits) - 1)
    return found


def _digits_of(dtype: np.dtype[Any], most: int) -> list[tuple[int, int, int]]:
    """List the digits of an element type, most significant first: word, shift and bits."""
    digits = []
    for word, size in enumerate(word_sizes(dtype)):
        for left in range(size, 0, -most):
            bits = min(most, left)
            digits.append((word, left - bits, bits))
    return digits


def word_sizes(dtype: np.dtype[Any]) -> list[int]:
    """Sizes in bits of the words of `_words`; TypeError if the type has no order known here."""
    kind, size = dtype.kind, dtype.itemsize
    if kind == "c":
        return 2 * word_sizes(real_type(dtype))
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
