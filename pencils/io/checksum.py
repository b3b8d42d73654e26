"""A checksum of arrays that can be computed in parts, in any order, by any number of processes.

It is the sum over all words of ``mix(word + K * position)``, modulo 2**64. A part only has to know
where it begins, and sums of parts add up to the sum of the whole. A word that changes, moves or is
lost changes the sum; because `mix` is not linear, several such changes do not cancel, as two
flipped signs would in a plain sum.
"""

from __future__ import annotations

from functools import cache
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_MODULUS = 2**64
# Odd numbers without pattern, of the generator "splitmix64".
_STEP = 0x9E3779B97F4A7C15
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_HIGH, _LOW = np.uint64(32), np.uint64(29)
_WORD_BYTES = 8
# Words that are mixed at once: their buffers stay in the cache.
_PIECE = 2**14


def checksum(data: NDArray[Any], first: int = 0) -> int:
    """Sum up consecutive elements of an array.

    Parameters
    ----------
    data : numpy.ndarray
        The elements in C order, of any type without Python objects; their bytes count.
    first : int, optional
        Position of the first of them in the C order of the whole array.

    Returns
    -------
    int
        The sum, from 0 to ``2**64 - 1``; to be added modulo ``2**64`` to those of other parts.

    Examples
    --------
    >>> import numpy as np
    >>> whole = np.arange(10.0)
    >>> parts = checksum(whole[:3]) + checksum(whole[3:], first=3)
    >>> parts % 2**64 == checksum(whole)
    True
    >>> checksum(whole[::-1]) == checksum(whole)
    False
    """
    width = gcd(data.dtype.itemsize, _WORD_BYTES)
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    words = flat.view(f"<u{width}")
    start = first * (data.dtype.itemsize // width)
    total = 0
    for at in range(0, words.size, _PIECE):
        total += _mixed_sum(words[at : at + _PIECE], start + at)
    return total % _MODULUS


def _mixed_sum(words: NDArray[Any], first: int) -> int:
    mixed = _ramp()[: words.size] + np.uint64((first + 1) * _STEP % _MODULUS)
    mixed += words
    mixed ^= mixed >> _HIGH
    mixed *= _FACTOR
    mixed ^= mixed >> _LOW
    return int(mixed.sum())


@cache
def _ramp() -> Words:
    return np.arange(_PIECE, dtype=np.uint64) * np.uint64(_STEP)
