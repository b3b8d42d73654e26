"""A checksum of arrays that can be computed in parts, in any order, by any number of processes.

It is the sum over all words of ``mix(word + K * position)``, modulo 2**64. A part needs only its
position, and the sums of all parts add up to the sum of the whole. A word that changes, moves or is
lost changes the sum. Because `mix` is not linear, several such changes do not cancel, as two
flipped signs do in a plain sum.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.pack import compiled
from pencils.comm.reduce import carried_total
from pencils.layout import Box

if TYPE_CHECKING:
    from pencils.comm.agree import agreed
    from pencils.comm.mpi import MPI

Words = NDArray[np.uint64]

_MODULUS = 2**64
# Odd numbers without pattern, from the generator "splitmix64".
_STEP = 0x9E3779B97F4A7C15
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_HIGH, _LOW = np.uint64(32), np.uint64(29)
_WORD_BYTES = 8
# Words that are mixed at once: their buffers fit into the cache.
_PIECE = 2**14


def checksum(data: NDArray[Any], first: int = 0) -> int:
    """Compute the checksum of consecutive elements of an array, of which `first` is the position.

    The elements are in C order, and of any type without Python objects; their bytes count. The sum
    is to be added modulo ``2**64`` to those of other parts.
    """
    words, first = _words(data), first * _words_each(data.dtype)
    kernels = _kernels()
    if kernels is not None:
        return int(kernels.mixed_sum(words, words.itemsize, first))
    total = 0
    for at in range(0, words.size, _PIECE):
        total += _mixed_sum(words[at : at + _PIECE], first + at, _ramp((_PIECE,), (1,)))
    return total % _MODULUS


def checksum_box(data: NDArray[Any], start: Sequence[int], shape: Sequence[int]) -> int:
    """Compute the checksum of a box that begins at index `start` of an array of this `shape`."""
    steps = strides(shape)
    total = 0
    for piece in Box.of_shape(data.shape).pieces(max(1, _PIECE // _words_each(data.dtype))):
        index = (at + lo for at, lo in zip(piece.start, start, strict=True))
        first = sum(i * step for i, step in zip(index, steps, strict=True))
        part: tuple[Any, ...] = (*piece.slices(), ...)  # an array even of a single element
        box = np.ascontiguousarray(data[part]).reshape(-1).view(np.uint8)
        apart = [step * data.itemsize for step in strides(piece.shape)]
        total += sum_box(box, data.dtype, piece.shape, first, steps, apart=apart)
    return total % _MODULUS


def sum_box(
    memory: NDArray[np.uint8],
    dtype: np.dtype[Any],
    shape: Sequence[int],
    first: int,
    steps: Sequence[int],
    *,
    apart: Sequence[int],
) -> int:
    """Compute the checksum of a box of elements, which begins at position `first` of an array.

    `memory` begins with its first element. Neighbours along each axis are `steps` positions of the
    array and `apart` bytes of the memory from each other, in both the least along the last axis.
    """
    each, width, size = _words_each(dtype), gcd(dtype.itemsize, _WORD_BYTES), dtype.itemsize
    kernels = _kernels()
    if kernels is None:
        # As bytes: a copy of elements leaves out the gaps between their parts.
        box = np.ndarray((*shape, size), np.uint8, memory, strides=(*apart, 1))
        words = np.ascontiguousarray(box).reshape(-1).view(f"<u{width}")
        ramp = _ramp((*shape, each), (*(each * step for step in steps), 1))
        return _mixed_sum(words, first * each, ramp)
    row, axis = 1, len(shape) - 1
    while axis >= 0 and (shape[axis] == 1 or (steps[axis] == row and apart[axis] == row * size)):
        row, axis = row * shape[axis], axis - 1
    if axis < 0:
        return int(kernels.mixed_sum(memory, width, first * each, row * each))
    rows = row * each, shape[axis], steps[axis] * each, apart[axis]
    total = 0
    for index in np.ndindex(*shape[:axis]):
        at = first + sum(i * step for i, step in zip(index, steps, strict=False))
        skip = sum(i * distance for i, distance in zip(index, apart, strict=False))
        total += kernels.mixed_sum(memory[skip:], width, at * each, *rows)
    return total


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from an index to the next along each axis of an array in C order."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _kernels() -> Any:
    """Return the module of the compiled kernels, or None where NumPy computes."""
    return compiled() if sys.byteorder == "little" else None


def carry_sums(agree: agreed, sums: Mapping[str, int]) -> None:
    """Send this rank's parts of checksums along with an agreement, for `add_sums`."""
    if sums:
        agree.carry(np.array(list(sums.values()), np.uint64))


def add_sums(
    comm: MPI.Intracomm, sums: Mapping[str, int], agree: agreed | None = None
) -> dict[str, int]:
    """Add the parts of checksums that all ranks have, which have the same names.

    *Collective*, unless `agree` carried them, or there are none.
    """
    if not sums:
        return {}
    totals = carried_total(comm, agree, np.array(list(sums.values()), np.uint64), np.add)
    return dict(zip(sums, map(int, totals), strict=True))


def _words_each(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize // gcd(dtype.itemsize, _WORD_BYTES)


def _words(data: NDArray[Any]) -> NDArray[Any]:
    width = gcd(data.dtype.itemsize, _WORD_BYTES)
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).view(f"<u{width}")


def _mixed_sum(words: NDArray[Any], first: int, ramp: Words) -> int:
    mixed = ramp[: words.size] + np.uint64((first + 1) * _STEP % _MODULUS)
    mixed += words
    mixed ^= mixed >> _HIGH
    mixed *= _FACTOR
    mixed ^= mixed >> _LOW
    return int(mixed.sum())


@lru_cache(maxsize=8)
def _ramp(shape: tuple[int, ...], steps: tuple[int, ...]) -> Words:
    """Return ``_STEP`` times the positions in a box, which are `steps` apart along each axis."""
    ramp = np.zeros((), np.uint64)
    for n, step in zip(shape, steps, strict=True):
        ramp = ramp[..., np.newaxis] + np.arange(n, dtype=np.uint64) * np.uint64(step)
    return ramp.reshape(-1) * np.uint64(_STEP)
