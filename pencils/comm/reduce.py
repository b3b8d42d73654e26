"""Elementwise reductions of small arrays over the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pencils.comm.fault import Fault
from pencils.comm.mpi import MPI

Array = NDArray[Any]
T = TypeVar("T")

_INTEGERS = "bhilqBHILQ"
_FLOATS = "fdg"
_COMPLEX = "FDG"
# Operations that MPI does as NumPy would, with the types for which that holds. Extrema of floats
# are missing because MPI says nothing about NaN, half precision because MPI does not know it.
_NATIVE: dict[np.ufunc, tuple[MPI.Op, str]] = {
    np.add: (MPI.SUM, _INTEGERS + _FLOATS + _COMPLEX),
    np.multiply: (MPI.PROD, _INTEGERS + _FLOATS + _COMPLEX),
    np.maximum: (MPI.MAX, _INTEGERS),
    np.minimum: (MPI.MIN, _INTEGERS),
    np.logical_and: (MPI.LAND, "?"),
    np.logical_or: (MPI.LOR, "?"),
}


def allreduce(comm: MPI.Intracomm, array: Array, ufunc: np.ufunc) -> Array:
    """Reduce arrays of equal shape and dtype over all ranks. *Collective*.

    The result is that of `ufunc` in NumPy, NaN included, and the same on every rank.
    """
    return reducer(array, ufunc)(comm)


def reducer(array: Array, ufunc: np.ufunc) -> Callable[[MPI.Intracomm], Array]:
    """Allocate what it takes to reduce arrays; local.

    Returns
    -------
    callable
        Does once what `allreduce` does over the communicator it is given. *Collective*.
    """
    if not array.dtype.isnative:  # MPI has no such types, and NumPy's results are native, too
        array = array.astype(array.dtype.newbyteorder("="))
    if ufunc in (np.maximum, np.minimum) and array.dtype.char in _FLOATS:
        reduce = _extremum(array, ufunc)
    else:
        reduce = _combination(array, ufunc)
    return lambda comm: array if comm.size == 1 else reduce(comm)


def _combination(array: Array, ufunc: np.ufunc) -> Callable[[MPI.Intracomm], Array]:
    op, chars = _NATIVE.get(ufunc, (MPI.OP_NULL, ""))
    if array.dtype.char not in chars:
        return lambda comm: np.asarray(combine(comm, array, ufunc))
    total = np.array(array, order="C")

    def reduce(comm: MPI.Intracomm) -> Array:
        comm.Allreduce(MPI.IN_PLACE, total, op=op)
        return total

    return reduce


def combine(comm: MPI.Intracomm, value: T, join: Callable[[T, T], T]) -> T:
    """Reduce any picklable value with an associative, commutative `join`. *Collective*.

    Raises
    ------
    Exception
        On every rank, if `join` raises on any.
    """

    def joined_or_fault(one: T | Fault, other: T | Fault) -> T | Fault:
        for each in (one, other):
            if isinstance(each, Fault):
                return each
        try:
            return join(cast("T", one), cast("T", other))
        except Exception as error:  # noqa: BLE001 - travels to all ranks instead of the value
            return Fault.of(error)

    joined: T | Fault = comm.allreduce(value, op=joined_or_fault)
    if isinstance(joined, Fault):
        raise joined.anywhere()
    return joined


def _extremum(array: Array, ufunc: np.ufunc) -> Callable[[MPI.Intracomm], Array]:
    """Maximum or minimum of floats, where a NaN anywhere wins, in one reduction."""
    sign = array.dtype.type(1 if ufunc is np.maximum else -1)
    missing = np.isnan(array)
    rising = np.where(missing, -np.inf, sign * array)
    # To MPI both zeros are one: without the third row ranks could end up with different ones.
    rows = np.array([rising, missing, ~np.signbit(rising)], array.dtype)
    greatest: Array
    greatest, missing_anywhere, plus = rows

    def reduce(comm: MPI.Intracomm) -> Array:
        comm.Allreduce(MPI.IN_PLACE, rows, op=MPI.MAX)
        np.equal(greatest, 0, out=missing)
        # Halves of one, or of minus one, have the sign that zeros are to have.
        np.subtract(plus, 0.5, out=plus)
        np.copysign(greatest, plus, out=greatest, where=missing)
        np.multiply(sign, greatest, out=greatest)
        np.not_equal(missing_anywhere, 0, out=missing)
        np.copyto(greatest, np.nan, where=missing)
        return greatest

    return reduce
