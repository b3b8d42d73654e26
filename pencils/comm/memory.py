"""Addresses, views by address, alignment, order of accesses: what NumPy does not check; local."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from pencils.comm.mpi import MPI

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

# Sizes at which communication changes; tests lower them. One MPI call moves at most this many
# bytes, or units of a datatype, because counts are 32-bit integers.
MOST_BYTES = 2**30
MOST_UNITS = 2**30
# Blocks of at least this many bytes are sent alone, which saves packing them.
ALONE = 2**18
# Blocks for other nodes that have more than two pieces of this many bytes travel in pieces: some
# are packed, or unpacked, while others are on their way. Pieces within a node take longer.
PIECE = 2**20
# Bytes that MPI libraries send at once between nodes, over TCP: 64 KiB with a header. More are
# announced, and sent when the receiver has answered. A connection moves the answer behind the data
# that are already on their way, so that both directions take turns.
EAGER = 63 * 2**10

# Bytes of a cache line. Blocks start at multiples of it: whole lines can be written without reading
# them first.
LINE = 64

_lock = Lock()


def address(array: Array) -> int:
    """Address of the first element of an array."""
    found: int = array.__array_interface__["data"][0]
    return found


with suppress(ImportError):  # else there was no compiler when pencils was installed
    address = import_module("pencils.comm._kernels").address  # takes a microsecond less


def same_view(one: Array, other: Array) -> bool:
    """Whether two arrays have the same elements at the same addresses."""
    return (
        one.shape == other.shape
        and one.strides == other.strides
        and one.dtype == other.dtype
        and address(one) == address(other)
    )


def array_at(
    memory: Any,
    shape: Sequence[int],
    dtype: np.dtype[Any] | str,
    offset: int = 0,
    strides: Sequence[int] | None = None,
) -> Array:
    """View a buffer as an array whose first element is at byte `offset`; C order by default."""
    return np.ndarray(tuple(shape), dtype, memory, offset, strides)


def borrowed(array: Array) -> Array:
    """View the memory of an array without keeping it alive.

    What is prepared for such views suits any array of the same `place` that lives.
    """
    if not array.size:
        return np.empty(array.shape, array.dtype)
    low, high = byte_bounds(array)
    memory: Any = MPI.buffer.fromaddress(low, high - low)
    return np.ndarray(array.shape, array.dtype, memory, address(array) - low, array.strides)


def place(array: Array) -> tuple[int, tuple[int, ...]]:
    """Address and strides: two arrays of a shape and type have the same if they are the same."""
    return address(array) if array.size else 0, array.strides


def restrided(array: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """View the memory of an array, from its first element on, in other strides (not checked)."""
    return as_strided(array, shape, strides)


def array_interface(array: Array) -> dict[str, Any]:
    """Describe an array as bytes of the length of its elements, by the protocol of NumPy."""
    return array.view(f"V{array.itemsize}").__array_interface__


def mpi_buffer(array: Array) -> MPI.buffer:
    """MPI buffer that begins at the first element; datatypes may point before and after it."""
    return MPI.buffer.fromaddress(address(array), 1)


def byte_chunks(array: Array, most: int | None = None) -> list[Bytes]:
    """View a C-contiguous array as bytes, in parts of `most` that one MPI call can move."""
    flat, most = array.reshape(-1).view(np.uint8), min(most or MOST_BYTES, MOST_BYTES)
    size = flat.size
    if 0 < size <= most:
        return [flat]
    return [flat[at : at + most] for at in range(0, size, most)]


def round_up(nbytes: int) -> int:
    """Return the next multiple of a cache line."""
    return -(-nbytes // LINE) * LINE


def aligned_empty(nbytes: int) -> Bytes:
    """Allocate private bytes that begin at a cache line."""
    return _aligned(np.empty(nbytes + LINE, np.uint8), nbytes)


def aligned_zeros(nbytes: int) -> Bytes:
    """Allocate private zeros that begin at a cache line; pages not yet used cost nothing."""
    return _aligned(np.zeros(nbytes + LINE, np.uint8), nbytes)


def _aligned(memory: Bytes, nbytes: int) -> Bytes:
    start = -address(memory) % LINE
    return memory[start : start + nbytes]


def fence() -> None:
    """Order loads and stores: for other ranks, those before it precede those after it.

    Ranks that read what others store call this on both sides of a barrier.
    """
    for _ in range(2):  # to release a lock, and acquire it again, orders memory on any processor
        with _lock:
            pass
