"""Reductions: over the ranks of a communicator, of values for the same index, and of products."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from math import inf
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.failure import Fault
from pencils.comm.mpi import MPI
from pencils.comm.pack import compiled
from pencils.comm.recording import timed
from pencils.errors import ArgumentError

Array = NDArray[Any]
Integers = NDArray[np.integer[Any]]
T = TypeVar("T")

_INTEGERS = "bhilqBHILQ"
_FLOATS = "fdg"
_COMPLEX = "FDG"
_NUMBERS = _INTEGERS + _FLOATS + _COMPLEX
_DOUBLE = np.dtype(float)
# Whether NumPy adds a contiguous block as one, as compiled sums do; before 2.3, 8192 elements.
ADDS_AS_ONE = np.lib.NumpyVersion(np.__version__) >= "2.3.0"
EXTREMA = frozenset({np.maximum, np.minimum, np.fmax, np.fmin})  # without neutral element
# Operations of MPI that have the results of NumPy, and the types for which they have. The MPI
# standard defines no extrema of NaN, and no half precision.
_NATIVE: dict[np.ufunc, tuple[str, str]] = {
    np.add: ("SUM", _NUMBERS),
    np.multiply: ("PROD", _NUMBERS),
    np.maximum: ("MAX", _INTEGERS),
    np.minimum: ("MIN", _INTEGERS),
    np.fmax: ("MAX", _INTEGERS),
    np.fmin: ("MIN", _INTEGERS),
    np.logical_and: ("LAND", "?"),
    np.logical_or: ("LOR", "?"),
}


def allreduce(comm: MPI.Intracomm, array: Array, ufunc: np.ufunc) -> Array:
    """Reduce arrays of equal shape and dtype over all ranks. *Collective*.

    The result is that of `ufunc` in NumPy, NaN included, and the same on every rank.
    """
    return reducer(array, ufunc)(comm)


def carried_total(
    comm: MPI.Intracomm, agree: agreed | None, array: Array, ufunc: np.ufunc
) -> Array:
    """Reduce arrays that an agreement was to carry. *Collective*, unless it had room for them."""
    if agree is None or agree.carried is None:
        return allreduce(comm, array, ufunc)
    return fold(agree.carried, ufunc).reshape(array.shape)


def operation(ufunc: np.ufunc, dtype: np.dtype[Any]) -> MPI.Op | None:
    """Return the operation of MPI that does what a ufunc does with elements of a type, if any."""
    name, chars = _NATIVE.get(ufunc, ("", ""))
    return getattr(MPI, name) if dtype.isnative and dtype.char in chars else None


def reduce_in_place(comm: MPI.Intracomm, array: Array, op: MPI.Op) -> Array:
    """Reduce C-contiguous arrays over all ranks by an `operation`. *Collective*."""
    timed("wait", comm.Allreduce, MPI.IN_PLACE, array, op)
    return array


def reducer(array: Array, ufunc: np.ufunc) -> Callable[[MPI.Intracomm], Array]:
    """Allocate what `allreduce` needs; local. Call the result once, with the communicator."""
    if not array.dtype.isnative:  # MPI has no such types, and NumPy's results are native, too
        array = array.astype(native(array.dtype))
    op = operation(ufunc, array.dtype)
    if ufunc in EXTREMA and array.dtype.char in _FLOATS:
        reduce = _extremum(array, ufunc)
    elif op is not None:
        reduce = partial(reduce_in_place, array=np.array(array, order="C"), op=op)
    else:

        def join(one: Array, other: Array) -> Array:
            with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
                return np.asarray(ufunc(one, other))

        def reduce(comm: MPI.Intracomm) -> Array:
            return np.asarray(combine(comm, array, join))

    return lambda comm: array if comm.size == 1 else reduce(comm)


def block_reducer(
    ufunc: np.ufunc, dtype: np.dtype[Any], of: Callable[..., Array] | None = None
) -> Callable[..., Any]:
    """Return the function that reduces all elements of a block to a value of a type; local.

    It has the results and the warnings of NumPy. Sums of doubles are compiled: the same bits. `of`
    is applied to the block, and what is given with it, first.
    """
    if of is not None:
        reduce_result = block_reducer(ufunc, dtype)
        return lambda block, *given: reduce_result(of(block, *given))
    kernels, selected, reduce = compiled(), selectable(dtype), ufunc.reduce

    def by_numpy(block: Array) -> Any:
        return reduce(block, None, selected)

    if kernels is None or ufunc is not np.add or dtype is not _DOUBLE or not ADDS_AS_ONE:
        return by_numpy

    def compiled_sum(block: Array) -> Any:
        found: float | None = kernels.total(block) if block.dtype is _DOUBLE else None
        # NumPy warns of what is not finite.
        return found if found is not None and -inf < found < inf else by_numpy(block)

    return compiled_sum


def fold(rows: Array, ufunc: np.ufunc) -> Array:
    """Reduce values of all ranks, one in each row, in the order of ranks; local.

    The result is the same on every rank that has the same rows. Nothing warns of overflow, as in
    MPI: only some ranks might take warnings for errors.
    """
    values = folder(ufunc, rows.dtype)
    if values is not None and rows.shape[1] == 1:
        return np.array([values(rows.ravel().tolist())], rows.dtype)
    with np.errstate(all="ignore"):
        if ufunc is np.multiply and rows.dtype.kind == "c":
            return _complex_product(rows)
        return np.asarray(ufunc.reduce(rows, axis=0, dtype=selectable(rows.dtype)))


def _complex_product(rows: Array) -> Array:
    """Multiply rows without the factor 1 that NumPy begins with: it makes NaN of infinities."""
    total: Array = rows[0].copy()
    for row in rows[1:]:
        replaced = total == 1
        np.multiply(total, row, out=total, where=~replaced & (row != 1))
        np.copyto(total, row, where=replaced)
    return total


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in the byte order of the machine.

    For numbers it is NumPy's own object: `ufunc.at` is some 20 times slower with an equal one.
    """
    if dtype.kind in "biufc":
        return np.dtype(dtype.char)
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def selectable(dtype: np.dtype[Any] | None) -> np.dtype[Any] | None:
    """Return what ufuncs take as ``dtype=``: they find units of time by themselves."""
    return None if dtype is None or dtype.kind in "mM" else dtype


def _sum(values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:  # one after the other: `sum` may add in another way
        total = total + value
    return total


def _greatest(values: list[float]) -> float:
    found = values[0]
    for value in values:
        if value > found or value != value:  # noqa: PLR0124 - a NaN wins
            found = value
    return found


def _least(values: list[float]) -> float:
    found = values[0]
    for value in values:
        if value < found or value != value:  # noqa: PLR0124 - a NaN wins
            found = value
    return found


# Functions of Python that do what a ufunc does with elements of a type, for few of them faster.
_FOLDS: dict[tuple[np.ufunc, str], Callable[[list[Any]], Any]] = {
    (np.add, "d"): _sum,
    (np.add, "D"): _sum,
    (np.maximum, "d"): _greatest,
    (np.minimum, "d"): _least,
    (np.logical_or, "?"): any,
    (np.logical_and, "?"): all,
}


def folder(ufunc: np.ufunc, dtype: np.dtype[Any]) -> Callable[[list[Any]], Any] | None:
    """Return the function of Python that folds a list of elements of a type, if there is one."""
    return _FOLDS.get((ufunc, dtype.char))


def combine(comm: MPI.Intracomm, value: T, join: Callable[[T, T], T]) -> T:
    """Reduce picklable values with an associative, commutative `join`. *Collective*.

    If `join` raises on any rank, it raises on all.
    """

    def joined_or_fault(one: T | Fault, other: T | Fault) -> T | Fault:
        if isinstance(one, Fault) or isinstance(other, Fault):
            return one if isinstance(one, Fault) else other
        try:
            return join(one, other)
        except Exception as error:  # noqa: BLE001 - sent to all ranks instead of the value
            return Fault.of(error)

    joined: T | Fault = timed("wait", comm.allreduce, value, joined_or_fault)
    if isinstance(joined, Fault):
        raise joined.error()
    return joined


def _extremum(array: Array, ufunc: np.ufunc) -> Callable[[MPI.Intracomm], Array]:
    """Maximum or minimum of floats in one reduction.

    It is NaN if any value is NaN, but for `fmax` and `fmin` if all values are.
    """
    sign = array.dtype.type(1 if ufunc in (np.maximum, np.fmax) else -1)
    skips = ufunc in (np.fmax, np.fmin)
    missing = np.isnan(array)
    rising = np.where(missing, -np.inf, sign * array)
    # Both zeros are equal for MPI: without the third row, ranks could get different ones.
    # The second row finds whether any value is NaN, or whether any is not.
    rows = np.array([rising, missing != skips, ~np.signbit(rising)], array.dtype)
    greatest: Array
    greatest, found, plus = rows

    def reduce(comm: MPI.Intracomm) -> Array:
        comm.Allreduce(MPI.IN_PLACE, rows, op=MPI.MAX)
        np.equal(greatest, 0, out=missing)
        # 0.5 or -0.5: its sign is the one that a zero gets.
        np.subtract(plus, 0.5, out=plus)
        np.copysign(greatest, plus, out=greatest, where=missing)
        np.multiply(sign, greatest, out=greatest)
        np.not_equal(found, skips, out=missing)
        np.copyto(greatest, np.nan, where=missing)
        return greatest

    return reduce


class ReduceOp(Enum):
    """The operation that combines values for the same index.

    ``L`` means logical and ``B`` bitwise operations. A new output has the type of the values, but
    ``LAND`` and ``LOR`` make booleans, and ``SUM`` and ``PROD`` of booleans make integers. An
    output passed by the caller may have that type, or the type of the values, in which NumPy then
    computes: ``LAND`` of floats writes 0.0 and 1.0, and the sum of two true booleans is true.

    Examples
    --------
    >>> [op.name for op in ReduceOp]
    ['SUM', 'PROD', 'MIN', 'MAX', 'LAND', 'LOR', 'BAND', 'BOR']
    >>> ReduceOp.LAND.result(np.dtype(float)), ReduceOp.MAX.result(np.dtype(float))
    (dtype('bool'), dtype('float64'))
    """

    SUM = "sum"
    PROD = "prod"
    MIN = "min"
    MAX = "max"
    LAND = "land"
    LOR = "lor"
    BAND = "band"
    BOR = "bor"

    @property
    def ufunc(self) -> np.ufunc:
        """The NumPy function that combines two values."""
        return _OPERATIONS[self][0]

    def result(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the element type of a new output for values of type `dtype`, or raise."""
        _, kinds, _ = _OPERATIONS[self]
        if dtype.kind not in kinds:
            known = ", ".join(_KINDS[kind] for kind in kinds)
            raise ArgumentError(
                f"ReduceOp.{self.name} does not combine values of type {dtype}, but {known}"
            )
        if self in (ReduceOp.LAND, ReduceOp.LOR):
            return np.dtype(bool)
        counts = dtype.kind == "b" and self in (ReduceOp.SUM, ReduceOp.PROD)
        return np.dtype(np.int64) if counts else dtype

    def blank(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Make an output for values of type `dtype`, of neutral elements."""
        _, _, neutral = _OPERATIONS[self]
        result = self.result(dtype)
        return np.full(size, neutral(result), result)

    def combine(self, out: Array, rows: NDArray[np.int64], values: Array) -> None:
        """Combine ``values[i]`` with ``out[rows[i]]``, for each component, one after the other."""
        for component in range(out.shape[1]):  # much faster than all components at once
            column = values[:, component].astype(out.dtype, copy=False)
            self.combine_column(out[:, component], rows, column)

    def combine_column(self, out: Array, rows: NDArray[np.int64], values: Array) -> None:
        """Combine single values of the type of `out`; see `combine`."""
        if values.size:
            self.ufunc.at(out, rows, values)

    def fold(self, out: Array, values: Array) -> None:
        """Combine each value of the contiguous array `out` with one other value."""
        if values.size:
            flat = out.reshape(-1)
            self.ufunc(flat, values.astype(out.dtype, copy=False), out=flat)


def _extreme(dtype: np.dtype[Any], *, largest: bool) -> Any:
    if dtype.kind in "bf":
        return {"b": largest, "f": np.inf if largest else -np.inf}[dtype.kind]
    times = dtype.kind in "mM"  # stored as integers; the smallest one means "not a time"
    bounds = np.iinfo(np.int64 if times else dtype)
    return bounds.max if largest else bounds.min + times


# Function, kinds of element types as NumPy abbreviates them, and neutral element of a type.
_OPERATIONS: dict[ReduceOp, tuple[np.ufunc, str, Callable[[np.dtype[Any]], Any]]] = {
    ReduceOp.SUM: (np.add, "biufcm", lambda _: 0),
    ReduceOp.PROD: (np.multiply, "biufc", lambda _: 1),
    ReduceOp.MIN: (np.minimum, "biufmM", partial(_extreme, largest=True)),
    ReduceOp.MAX: (np.maximum, "biufmM", partial(_extreme, largest=False)),
    ReduceOp.LAND: (np.logical_and, "biufc", lambda _: True),
    ReduceOp.LOR: (np.logical_or, "biufc", lambda _: False),
    ReduceOp.BAND: (np.bitwise_and, "biu", lambda dtype: ~dtype.type(0)),
    ReduceOp.BOR: (np.bitwise_or, "biu", lambda _: 0),
}
_KINDS = {
    "b": "booleans",
    "i": "integers",
    "u": "unsigned integers",
    "f": "floats",
    "c": "complex numbers",
    "m": "time differences",
    "M": "times",
}


def as_reduce_op(reduce: object, dtype: np.dtype[Any]) -> ReduceOp:
    """Return the operation that `reduce` names, as in MPI, or raise if `dtype` does not suit it."""
    try:
        op = ReduceOp(reduce)
    except ValueError:
        names = ", ".join(repr(op.value) for op in ReduceOp)
        raise ArgumentError(f"reduce={reduce!r} must be a ReduceOp, or one of {names}") from None
    op.result(dtype)
    return op


def reduce_together(
    comm: MPI.Intracomm,
    call: str,
    numbers: Integers,
    op: MPI.Op,
    work: Callable[[Integers], object],
) -> Integers:
    """Let `work` write to ``numbers[1:]``, which is 0; reduce that over ranks. *Collective*.

    The first number tells whether a rank has failed, so that this needs no agreement before it: all
    ranks have agreed on the `call`. The memory is there before the work, so that a rank that fails
    can take part. Returns a view of the same memory.
    """
    error = None
    numbers[:] = 0
    try:
        work(numbers[1:])
    except Exception as mistake:  # noqa: BLE001 - raised on all ranks
        error = mistake
        numbers[:] = 0
        numbers[0] = 1
    timed("wait", comm.Allreduce, MPI.IN_PLACE, numbers, op)
    if numbers[0]:
        with agreed(comm, call):
            if error is not None:
                raise error
    return numbers[1:]


# ---- Products by the BLAS, in parts so small that it starts no threads. ----

# By default each rank's BLAS has a thread for every core of the node. Where those of several ranks
# compete for the cores, a product takes tens of milliseconds instead of some microseconds.
# OpenBLAS starts threads for vectors of more than 10,000 elements, and for matrices with more than
# 2**18 products of elements.
_ROW = 2048
_PRODUCTS = 2**17


def dot(left: Array, right: Array) -> Any:
    """Return what `numpy.vdot` returns of two arrays of one shape, whose last axis is the fastest.

    Sums of short rows are added pairwise, so that many elements round as few do. Half precision
    is added up in single precision, which is the type of the result.
    """
    kind = np.result_type(left, right)
    if kind == np.float16:
        left, right = left.astype(np.float32), right.astype(np.float32)
    elif left.size <= _ROW or kind.char not in "fdFD":
        return np.vdot(left, right)
    if left.flags.c_contiguous and right.flags.c_contiguous:
        left, right = left.reshape(-1), right.reshape(-1)
    rows = left.shape[-1] // _ROW
    shape = (*left.shape[:-1], rows, _ROW)
    whole = (each[..., : rows * _ROW].reshape(shape) for each in (left, right))
    rest = (each[..., rows * _ROW :] for each in (left, right))
    with np.errstate(all="ignore"):  # the BLAS warns of nothing
        return np.vecdot(*whole).sum() + np.vecdot(*rest).sum()


def multiply(matrix: Array, columns: Array, out: Array) -> None:
    """Multiply a small matrix and a matrix of many columns, some of them at once."""
    some = max(1, _PRODUCTS // max(1, matrix.size))
    for start in range(0, columns.shape[1], some):
        part = slice(start, start + some)
        np.matmul(matrix, columns[:, part], out=out[:, part])
