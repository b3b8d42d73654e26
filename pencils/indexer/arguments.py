"""Check the arguments of indexers, and convert them to rows of values: all of it local to a rank.

Rows may have different lengths (`Ragged`); pickled Python objects are such rows of bytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array, as_dtype, of_view, plain_array
from pencils.comm.reduce import ReduceOp, native
from pencils.comm.rows import Ints
from pencils.errors import ArgumentError
from pencils.indexer.requests import bounds_of, last_of_each

Named = tuple[str, Array]

_MOST = 2**62  # values; their number must not overflow
_FEW = 512  # points, whose coordinates cost less to copy than to look at one after the other
_INT64 = np.dtype(np.int64)


class Ragged(NamedTuple):
    """Rows of different lengths: row ``i`` has ``counts[i]`` values, which follow each other."""

    counts: Ints
    values: Array

    @classmethod
    def joined(cls, parts: Sequence[Ragged], dtype: np.dtype[Any]) -> Ragged:
        """Return the rows of all parts, one after the other; perhaps there are none."""
        none = cls(np.empty(0, np.int64), np.empty(0, dtype))
        counts, values = zip(none, *(part.as_type(dtype) for part in parts), strict=True)
        return cls(np.concatenate(counts), np.concatenate(values))

    def as_type(self, dtype: np.dtype[Any]) -> Ragged:
        """Return the same rows; if there are no values, these may have been of any type."""
        return self if self.values.size else Ragged(self.counts, np.empty(0, dtype))

    def pick(self, rows: Ints) -> Ragged:
        """Return some rows, in any order, also several times."""
        counts = self.counts[rows]
        ahead = bounds_of(counts)
        jumps = bounds_of(self.counts)[rows] - ahead[:-1]
        return Ragged(counts, self.values[np.arange(ahead[-1]) + np.repeat(jumps, counts)])

    def split(self, sizes: Sequence[int]) -> list[Ragged]:
        """Split into parts of `sizes` rows; the parts are views."""
        rows = bounds_of(sizes)[1:-1]
        parts = np.split(self.counts, rows), np.split(self.values, bounds_of(self.counts)[rows])
        return [Ragged(*part) for part in zip(*parts, strict=True)][: len(sizes)]

    def replaced(self, targets: Ints, written: Ragged) -> Ragged:
        """Replace row ``targets[i]`` by row ``i`` of `written`; the last one is kept."""
        origin = np.arange(len(self.counts))
        rows, writers = last_of_each(targets, len(origin))
        origin[rows] = len(origin) + writers
        return Ragged.joined([self, written], self.values.dtype).pick(origin)

    def extended(self, targets: Ints, written: Ragged) -> Ragged:
        """Append row ``i`` of `written` to row ``targets[i]``, in this order."""
        both = Ragged.joined([self, written], self.values.dtype)
        owners = np.concatenate([np.arange(len(self.counts)), targets])
        counts = self.counts.copy()
        np.add.at(counts, targets, written.counts)
        return Ragged(counts, both.pick(np.argsort(owners, kind="stable")).values)


def pickled(items: Sequence[Any]) -> Ragged:
    """Pickle items to rows of bytes; raise TypeError if one cannot be pickled."""
    rows = []
    for item in items:
        try:
            rows.append(pickle.dumps(item, pickle.HIGHEST_PROTOCOL))
        except Exception as error:  # whatever the item raises
            name = type(item).__name__
            raise TypeError(f"an object of type {name} cannot be pickled: {error}") from error
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    return Ragged(counts, np.frombuffer(b"".join(rows), np.uint8))


def unpickled(rows: Ragged) -> list[Any]:
    """Make a new object of every row."""
    bounds, data = bounds_of(rows.counts).tolist(), rows.values.tobytes()
    return [
        pickle.loads(data[lo:hi])  # noqa: S301 - from this very program
        for lo, hi in pairwise(bounds)
    ]


# ---- indices and coordinates ----


def int_array(name: str, value: object) -> NDArray[Any]:
    """Return a one-dimensional array of integers of any size; an empty one may have any type."""
    array = plain_array(value)
    if array.ndim != 1:
        raise ArgumentError(f"{name} must be one-dimensional, not of shape {array.shape}")
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name} must hold integers, not {array.dtype}")
    return array if array.size else np.empty(0, np.int64)


def as_distri(distri: object, size: int) -> Ints:
    """Return where the section of each of `size` processes begins, and where the last one ends."""
    cuts = int_array("distri", distri).astype(np.int64)
    if len(cuts) != size + 1:
        raise ArgumentError(f"distri has {len(cuts)} entries, but {size} processes need {size + 1}")
    if cuts[0] != 0 or (cuts[1:] < cuts[:-1]).any():
        raise ArgumentError(f"distri must start at 0 and never decrease, unlike {cuts}")
    return cuts


def as_indices(name: str, value: object, stop: int, *, copy: bool = True) -> Ints:
    """Return indices in ``[0, stop)``; without `copy`, an array of the right type is not copied."""
    index = int_array(name, value)
    unsigned, most = index, stop
    if index.dtype.kind == "i":  # negative ones are large if read without sign
        unsigned = index.astype(native(index.dtype), copy=False).view(f"u{index.itemsize}")
        most = min(stop, 2 ** (8 * index.itemsize - 1))
    if index.size and unsigned.max() >= most:
        wrong = index[(index < 0) | (index >= stop)][0]
        raise IndexError(f"{name}: index {wrong} is not in [0, {stop})")
    return index.astype(np.int64) if copy else np.require(index, np.int64, "A")


def as_coords(
    coords: object, shape: tuple[int, ...], *, copy: bool
) -> tuple[tuple[int, ...], list[Ints]]:
    """Return the shape to which coordinates broadcast, and those along each dimension, flat.

    Without `copy`, arrays of the right type and shape are not copied.
    """
    if not _is_list(coords) or len(coords) != len(shape):
        raise ArgumentError(
            f"coords must have an entry for each of {len(shape)} dimensions, like (i, j, k)"
        )
    few = _few_coords(coords, shape)
    if few is not None:
        return few
    along = []
    for dim, (entry, stop) in enumerate(zip(coords, shape, strict=True)):
        array = plain_array(entry)
        index = as_indices(f"dimension {dim}", array.reshape(-1), stop, copy=copy)
        along.append(index.reshape(array.shape))
    return broadcast("coords", along)


def _few_coords(
    coords: Sequence[Any] | Array, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], list[Ints]] | None:
    """Check coordinates of a few points together; None if they are others, or wrong."""
    first = coords[0]
    for entry in coords:
        if type(entry) is not np.ndarray or entry.dtype is not _INT64 or entry.shape != first.shape:
            return None
    if first.size > _FEW:
        return None
    table = np.concatenate(list(coords), None).reshape(len(shape), first.size)
    # Negative ones are large if read without sign.
    if False in (table.view(np.uint64) < _stops(shape)).tobytes():
        return None
    return first.shape, list(table)


@lru_cache(maxsize=64)
def _stops(shape: tuple[int, ...]) -> NDArray[np.uint64]:
    return np.array(shape, np.uint64)[:, None]


def broadcast(name: str, along: Sequence[Array]) -> tuple[tuple[int, ...], list[Array]]:
    """Broadcast arrays to each other; return their common shape, and each flat and contiguous."""
    if all(array.shape == along[0].shape for array in along):  # nothing to do
        return along[0].shape, [np.ravel(array) for array in along]
    try:
        points = np.broadcast_arrays(*along)
    except ValueError as error:
        shapes = ", ".join(str(array.shape) for array in along)
        raise ArgumentError(f"{name} of shapes {shapes} do not broadcast to each other") from error
    return points[0].shape, [np.ravel(array) for array in points]


# ---- values ----


def as_reduce(reduce: object) -> ReduceOp | None:
    """Return how values are combined, or None."""
    if reduce is not None and not isinstance(reduce, ReduceOp):
        raise TypeError(f"reduce must be a ReduceOp or None, not {reduce!r}")
    return reduce


def as_buffer(name: str, value: object, size: int) -> Array:
    """Return a contiguous buffer of `size` values, in any shape, as an array."""
    if isinstance(value, np.ndarray):
        array = plain_array(value)
    else:
        try:
            array = of_view(memoryview(value))  # type: ignore[arg-type]
        except Exception as error:
            raise TypeError(
                f"{name} must be a buffer, such as a NumPy array, not {type(value).__name__}"
            ) from error
    as_dtype(array.dtype)
    if array.size != size:
        raise ArgumentError(f"{name} has {array.size} values, but {size} are needed")
    if not array.flags.c_contiguous:
        raise ArgumentError(
            f"{name} must be contiguous in C order; pass a copy, made by np.ascontiguousarray"
        )
    return array


def as_output(name: str, value: object, size: int) -> Array:
    """Return a buffer that will be written; see `as_buffer`."""
    array = as_buffer(name, value, size)
    if not array.flags.writeable:
        raise ArgumentError(f"{name} is read-only")
    return array


def as_results(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the argument `out`, an array of a shape and an element type; None: a new one."""
    if out is None:
        return np.empty(shape, dtype)
    array = as_output("out", out, prod(shape))
    if array.shape != shape:
        raise ArgumentError(f"out has shape {array.shape}, but {shape} is needed")
    if array.dtype != dtype:
        raise TypeError(f"out has type {array.dtype}, but the results have type {dtype}")
    return array


def as_values(name: str, value: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return values broadcast to a shape, converted to an element type, contiguous."""
    array = plain_array(value)
    if array.dtype == dtype and array.shape == shape and array.flags.c_contiguous:
        return array
    # Python integers, for which NumPy has only chosen a type.
    chosen = not isinstance(value, np.ndarray | np.generic) and array.dtype.kind in "bi"
    whole = chosen and dtype.kind in "biu" and (array.astype(dtype) == array).all()
    if array.size and not whole and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(
            f"{name} of type {array.dtype} cannot be written to a field of type {dtype}"
        )
    try:
        full = np.broadcast_to(array, shape)
    except ValueError as error:
        raise ArgumentError(f"{name} of shape {array.shape} do not broadcast to {shape}") from error
    return np.ascontiguousarray(full.astype(dtype, copy=False)).reshape(shape)


def as_ragged(name: str, value: object, rows: int) -> Ragged:
    """Return a pair of counts and values as `rows` rows."""
    if not isinstance(value, tuple | list) or len(value) != 2:  # noqa: PLR2004 - a pair
        raise TypeError(f"{name} must be a pair of counts and values, not {value!r:.40}")
    counts = int_array(f"counts of {name}", value[0]).astype(np.int64)
    if len(counts) != rows:
        raise ArgumentError(f"{name} has {len(counts)} counts, but {rows} are needed")
    if (counts < 0).any():
        raise ArgumentError(f"{name} has the negative count {counts.min()}")
    if counts.sum(dtype=float) > _MOST:
        raise ArgumentError(f"{name} has counts with a sum above {_MOST}")
    return Ragged(counts, as_buffer(f"values of {name}", value[1], int(counts.sum())).reshape(-1))


def as_ragged_output(name: str, value: object, rows: int) -> Ragged:
    """Return a pair of counts and values that will be written; see `as_ragged`."""
    counts, values = as_ragged(name, value, rows)
    return Ragged(counts, as_output(f"values of {name}", values, len(values)))


# ---- types of values ----


def common_type(buffers: Sequence[Named]) -> np.dtype[Any] | None:
    """Return the one type of all buffers that have values; None if there are none."""
    full = [(name, array.dtype) for name, array in buffers if array.size]
    for name, dtype in full[1:]:
        if dtype != full[0][1]:
            both = f"{full[0][1]} and {dtype}"
            raise TypeError(
                f"{full[0][0]} and {name} have types {both}; their types must be the same"
            )
    return full[0][1] if full else None


def possible_type(buffers: Sequence[Named], op: ReduceOp | None) -> np.dtype[Any] | None:
    """Return the type of the first buffer whose values can be combined; None if there is none."""
    for _, array in buffers:
        try:
            check_outputs([], array.dtype, op)
        except ArgumentError:
            continue
        return array.dtype
    return None


def check_outputs(outputs: Sequence[Named], dtype: np.dtype[Any], op: ReduceOp | None) -> None:
    """Check that outputs have the type of the values, or that of their combination."""
    allowed = list(dict.fromkeys([dtype] if op is None else [dtype, op.result(dtype)]))
    for name, array in outputs:
        if array.size and array.dtype not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise TypeError(
                f"{name} has type {array.dtype}, but values of type {dtype} need {wanted}"
            )


# ---- lists ----


def as_items(name: str, value: object, size: int | None = None) -> Sequence[Any]:
    """Return a list of `size` Python objects; None: of any number of them."""
    if not _is_list(value):
        raise TypeError(f"{name} must be a list, not {type(value).__name__}")
    if size is not None and len(value) != size:
        raise ArgumentError(f"{name} has {len(value)} entries, but {size} are needed")
    return value


def as_slots(name: str, value: object, size: int) -> list[Any]:
    """Return a list that will be filled with `size` Python objects."""
    if not isinstance(value, list):
        raise TypeError(f"{name} must be a list, which can be filled, not {type(value).__name__}")
    as_items(name, value, size)
    return value


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value has a length and entries; a string is one value."""
    if type(value) in (list, tuple):
        return True
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
