"""Check the arguments of indexers, and convert them: all of it local to a rank."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import prod
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array, as_dtype, of_view
from pencils.array.operands import plain_array
from pencils.comm.reduce import ReduceOp
from pencils.comm.rows import Ints
from pencils.errors import ArgumentError
from pencils.indexer.ragged import Ragged

_SHOWN = 16  # bounds of a distribution that an error spells out


def int_array(name: str, value: object) -> NDArray[Any]:
    """Return a one-dimensional array of integers of any size; an empty one may have any type.

    Raises
    ------
    ArgumentError, TypeError
        If it has other axes or items; booleans are refused.
    """
    array = plain_array(value)
    if array.ndim != 1:
        msg = f"{name} must be one-dimensional, not of shape {array.shape}"
        raise ArgumentError(msg)
    if array.dtype.kind not in "iu" and array.size:
        msg = f"{name} must hold integers, not {array.dtype}"
        raise TypeError(msg)
    return array if array.size else np.empty(0, np.int64)


def as_distri(distri: object, size: int) -> Ints:
    """Return where the section of every process begins, and where the last one ends.

    Raises
    ------
    ArgumentError, TypeError
        If this is no such list for `size` processes.
    """
    cuts = int_array("distri", distri).astype(np.int64)
    if len(cuts) != size + 1:
        msg = f"distri has {len(cuts)} entries, but {size} processes need {size + 1}"
        raise ArgumentError(msg)
    if cuts[0] != 0 or (cuts[1:] < cuts[:-1]).any():
        msg = f"distri must start at 0 and never decrease, unlike {summary(cuts)}"
        raise ArgumentError(msg)
    return cuts


_MOST = 2**62  # values; their number must not overflow


def summary(cuts: Ints) -> str:
    """Describe a distribution in few words, and another one with other words."""
    if len(cuts) <= _SHOWN:
        return str(cuts.tolist())
    digest = blake2b(cuts.tobytes(), digest_size=8).hexdigest()
    return f"[{cuts[0]}, {cuts[1]}, ..., {cuts[-1]}] ({digest})"


def as_indices(name: str, value: object, stop: int, *, copy: bool = True) -> Ints:
    """Return indices in ``[0, stop)``; without `copy`, an array of the right type is not copied.

    Raises
    ------
    IndexError
        If one is outside; negative indices are not allowed.
    """
    index = int_array(name, value)
    if index.size and not 0 <= index.min() <= index.max() < stop:
        wrong = index[(index < 0) | (index >= stop)][0]
        msg = f"{name}: index {wrong} is not in [0, {stop})"
        raise IndexError(msg)
    return index.astype(np.int64) if copy else np.require(index, np.int64, "A")


def as_coords(
    coords: object, shape: tuple[int, ...], *, copy: bool
) -> tuple[tuple[int, ...], list[Ints]]:
    """Return coordinates along every dimension, broadcast to each other.

    Without `copy`, arrays of the right type and shape are not copied.

    Returns
    -------
    shape : tuple of int
        Their common shape.
    coords : list of numpy.ndarray
        The coordinates of all points along each dimension, one-dimensional.

    Raises
    ------
    ArgumentError, IndexError, TypeError
        If there is not one entry for each dimension, they do not broadcast, or one is outside the
        global shape.
    """
    if not _is_list(coords) or len(coords) != len(shape):
        msg = f"coords must have an entry for each of {len(shape)} dimensions, like (i, j, k)"
        raise ArgumentError(msg)
    along = []
    for dim, (entry, stop) in enumerate(zip(coords, shape, strict=True)):
        array = plain_array(entry)
        index = as_indices(f"dimension {dim}", array.reshape(-1), stop, copy=copy)
        along.append(index.reshape(array.shape))
    return spread_out("coords", along)


def spread_out(name: str, along: Sequence[Array]) -> tuple[tuple[int, ...], list[Array]]:
    """Broadcast arrays to each other; return their common shape, and each of them flat.

    Raises
    ------
    ArgumentError
        If they do not broadcast.
    """
    try:
        points = np.broadcast_arrays(*along)
    except ValueError as error:
        shapes = ", ".join(str(array.shape) for array in along)
        msg = f"{name} of shapes {shapes} do not broadcast to each other"
        raise ArgumentError(msg) from error
    return points[0].shape, [np.ravel(array) for array in points]


def as_entries(name: str, value: object, count: int | None = None) -> Sequence[Any]:
    """Return the entries of an argument, one for each list of indices.

    Raises
    ------
    ArgumentError, TypeError
        If it is not a sequence of `count` entries.
    """
    if not _is_list(value):
        msg = f"{name} must be a list with an entry for each list of indices, not {value!r:.40}"
        raise TypeError(msg)
    if count is not None and len(value) != count:
        msg = f"{name} has {len(value)} entries, but there are {count} lists of indices"
        raise ArgumentError(msg)
    return value


def as_reduce(reduce: object) -> ReduceOp | None:
    """Return how values are combined, or None."""
    if reduce is not None and not isinstance(reduce, ReduceOp):
        msg = f"reduce must be a ReduceOp or None, not {reduce!r}"
        raise TypeError(msg)
    return reduce


def as_buffer(name: str, value: object, size: int) -> Array:
    """Return a contiguous buffer of `size` values, in any shape, as an array.

    Raises
    ------
    ArgumentError, TypeError
        If it is not a buffer, holds Python objects, is not contiguous or has another size.
    """
    array = _as_array(name, value)
    as_dtype(array.dtype)
    if array.size != size:
        msg = f"{name} has {array.size} values, but {size} are needed"
        raise ArgumentError(msg)
    if not array.flags.c_contiguous:
        msg = f"{name} must be contiguous in C order; np.ascontiguousarray makes a copy that is"
        raise ArgumentError(msg)
    return array


def as_output(name: str, value: object, size: int) -> Array:
    """Return a buffer that will be written; see `as_buffer`.

    Raises
    ------
    ArgumentError
        If it is read-only.
    """
    array = as_buffer(name, value, size)
    _check_writeable(name, array)
    return array


def as_output_array(name: str, value: object, shape: tuple[int, ...]) -> Array:
    """Return a contiguous array of a given shape that will be written; see `as_output`."""
    array = as_output(name, value, prod(shape))
    if array.shape != shape:
        msg = f"{name} has shape {array.shape}, but {shape} is needed"
        raise ArgumentError(msg)
    return array


def as_values(name: str, value: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return values broadcast to a shape, converted to an element type, contiguous.

    Raises
    ------
    ArgumentError, TypeError
        If they do not broadcast, or the conversion loses more than precision.
    """
    array = plain_array(value)
    whole = not isinstance(value, np.ndarray | np.generic) and _holds_integers(array, dtype)
    if array.size and not whole and not np.can_cast(array.dtype, dtype, "same_kind"):
        msg = f"{name} of type {array.dtype} cannot be written to a field of type {dtype}"
        raise TypeError(msg)
    try:
        full = np.broadcast_to(array, shape)
    except ValueError as error:
        msg = f"{name} of shape {array.shape} do not broadcast to {shape}"
        raise ArgumentError(msg) from error
    return np.ascontiguousarray(full.astype(dtype, copy=False)).reshape(shape)


def _holds_integers(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an element type holds Python integers, for which NumPy has only chosen a type."""
    if array.dtype.kind not in "bi" or dtype.kind not in "biu":
        return False
    return bool((array.astype(dtype) == array).all())


def as_ragged(name: str, value: object, rows: int) -> Ragged:
    """Return a pair of counts and values as rows.

    Raises
    ------
    ArgumentError, TypeError
        If it is not a pair, there are not `rows` counts, or their sum is not the number of values.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:  # noqa: PLR2004 - a pair
        msg = f"{name} must be a pair of counts and values, not {value!r:.40}"
        raise TypeError(msg)
    counts = int_array(f"counts of {name}", value[0]).astype(np.int64)
    if len(counts) != rows:
        msg = f"{name} has {len(counts)} counts, but {rows} are needed"
        raise ArgumentError(msg)
    if (counts < 0).any():
        msg = f"{name} has the negative count {counts.min()}"
        raise ArgumentError(msg)
    if counts.sum(dtype=float) > _MOST:
        msg = f"{name} has counts with a sum above {_MOST}"
        raise ArgumentError(msg)
    return Ragged(counts, as_buffer(f"values of {name}", value[1], int(counts.sum())).reshape(-1))


def as_ragged_output(name: str, value: object, rows: int) -> Ragged:
    """Return a pair of counts and values that will be written; see `as_ragged`."""
    ragged = as_ragged(name, value, rows)
    _check_writeable(f"values of {name}", ragged.values)
    return ragged


def as_items(name: str, value: object, size: int) -> Sequence[Any]:
    """Return a list of `size` Python objects.

    Raises
    ------
    ArgumentError, TypeError
        If it is not a list, or has another length.
    """
    if not _is_list(value):
        msg = f"{name} must be a list, not {type(value).__name__}"
        raise TypeError(msg)
    if len(value) != size:
        msg = f"{name} has {len(value)} entries, but {size} are needed"
        raise ArgumentError(msg)
    return value


def as_slots(name: str, value: object, size: int) -> list[Any]:
    """Return a list that will be filled with `size` Python objects.

    Raises
    ------
    ArgumentError, TypeError
        If it is not a list, or has another length.
    """
    if not isinstance(value, list):
        msg = f"{name} must be a list, which can be filled, not {type(value).__name__}"
        raise TypeError(msg)
    as_items(name, value, size)
    return value


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value has a length and entries; a string is one value."""
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _as_array(name: str, value: object) -> Array:
    if isinstance(value, np.ndarray):
        return plain_array(value)
    try:
        return of_view(memoryview(value))  # type: ignore[arg-type]
    except Exception as error:
        msg = f"{name} must be a buffer, such as a NumPy array, not {type(value).__name__}"
        raise TypeError(msg) from error


def _check_writeable(name: str, array: Array) -> None:
    if not array.flags.writeable:
        msg = f"{name} is read-only"
        raise ArgumentError(msg)
