"""Elementwise reductions of small arrays over the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

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
    if not array.dtype.isnative:  # MPI has no such types, and NumPy's results are native, too
        array = array.astype(array.dtype.newbyteorder("="))
    if comm.size == 1:
        return array
    if ufunc in (np.maximum, np.minimum) and array.dtype.char in _FLOATS:
        return _extremum(comm, array, ufunc)
    op, chars = _NATIVE.get(ufunc, (MPI.OP_NULL, ""))
    if array.dtype.char not in chars:
        return np.asarray(combine(comm, array, ufunc))
    total = np.array(array, order="C")
    comm.Allreduce(MPI.IN_PLACE, total, op=op)
    return total


def combine(comm: MPI.Intracomm, value: T, join: Callable[[T, T], T]) -> T:
    """Reduce any picklable value with an associative, commutative `join`. *Collective*."""
    joined: T = comm.allreduce(value, op=join)
    return joined


def _extremum(comm: MPI.Intracomm, array: Array, ufunc: np.ufunc) -> Array:
    """Maximum or minimum of floats, where a NaN anywhere wins, in one reduction."""
    sign = array.dtype.type(1 if ufunc is np.maximum else -1)
    missing = np.isnan(array)
    rising = np.where(missing, -np.inf, sign * array)
    # To MPI both zeros are one: without the third row ranks could end up with different ones.
    rows = np.array([rising, missing, ~np.signbit(rising)], array.dtype)
    comm.Allreduce(MPI.IN_PLACE, rows, op=MPI.MAX)
    greatest, missing_anywhere, plus = rows
    greatest = np.where(greatest == 0, np.where(plus > 0, 0.0, -0.0), greatest)
    return np.asarray(np.where(missing_anywhere > 0, np.nan, sign * greatest), array.dtype)
