"""Memory of fields that is used again, because the system sets new pages to zero.

``PENCILS_POOL`` is a bound of what waits, such as ``512M`` or ``2 GiB``, or 0 for none. The default
is a quarter of the memory of the machine for each of its processors, at most 1 GiB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm import pack
from pencils.comm.memory import Bytes, aligned_empty, aligned_zeros
from pencils.errors import ArgumentError

VARIABLE = "PENCILS_POOL"

# Bytes; malloc keeps smaller arrays for itself.
LEAST = 2**16

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_MOST = 2**62  # bytes: as good as no bound
_kernels = pack.compiled()


class Memory(NamedTuple):
    """Memory of the fields of this process, apart from small and shared blocks, in bytes.

    Attributes
    ----------
    live : int
        Bytes of blocks that fields and arrays use.
    pooled : int
        Bytes that wait for the next fields.
    bound : int
        The most bytes that may wait.
    made, reused : int
        Numbers of blocks so far whose memory came from the system, and from the pool.
    """

    live: int
    pooled: int
    bound: int
    made: int
    reused: int

    def empty(self) -> None:
        """Return the kept memory to the system."""
        if _kernels:
            _kernels.pool_keep(_kernels.pool_keep(0))


def memory() -> Memory:
    """Return the memory that fields of this process use, and the memory kept for new ones.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(pencils.Pencil((64, 64, 64)))
    >>> used = pencils.memory().live
    >>> for _ in range(10):
    ...     u = 0.5 * u + 1
    >>> pencils.memory().live <= used
    True
    >>> pencils.memory().empty()
    >>> pencils.memory().pooled
    0
    """
    return Memory(*_kernels.pool_counts()) if _kernels else Memory(0, 0, 0, 0, 0)


def _new_array(nbytes: int, zero: int) -> Any:
    return np.zeros(nbytes, np.uint8) if zero else np.empty(nbytes, np.uint8)


# ``new_block(nbytes, zero)`` returns memory, zeroed if not 0, as a buffer: all comes from here.
new_block: Callable[[int, int], Any] = _kernels.pool_block if _kernels else _new_array


def empty_bytes(nbytes: int) -> Bytes:
    """Allocate private bytes that begin at a cache line."""
    small = nbytes < LEAST or not _kernels
    return aligned_empty(nbytes) if small else np.ndarray(nbytes, np.uint8, new_block(nbytes, 0))


def zero_bytes(nbytes: int) -> Bytes:
    """Allocate private zeros that begin at a cache line."""
    small = nbytes < LEAST or not _kernels
    return aligned_zeros(nbytes) if small else np.ndarray(nbytes, np.uint8, new_block(nbytes, 1))


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate an array in C order."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < LEAST or not _kernels:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, new_block(nbytes, 0))


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate an array of zeros in C order."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < LEAST or not _kernels:
        return np.zeros(shape, dtype)
    return np.ndarray(shape, dtype, new_block(nbytes, 1))


def read_bytes(text: str) -> int:
    """Read a number of bytes with a unit.

    Examples
    --------
    >>> read_bytes("512M"), read_bytes("2 GiB"), read_bytes("0")
    (536870912, 2147483648, 0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ArgumentError(f"{VARIABLE}={text!r} must be a number of bytes, such as 512M or 0")
    return int(min(float(match[1]) * 2 ** _UNITS[match[2].upper()], _MOST))


def _default_bound() -> int:
    """Quarter of the memory of the machine for each of its processors, at most 1 GiB."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not POSIX
        memory = 2**32
    return min(memory // (os.cpu_count() or 1) // 4, 2**30)


if _kernels:
    _given = os.environ.get(VARIABLE)
    _kernels.pool_keep(_default_bound() if _given is None else read_bytes(_given))
