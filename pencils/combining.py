"""How several values of one point become one: the operations and their names."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.errors import ArgumentError


class ReduceOp(Enum):
    """How values that belong to the same index are combined.

    ``L`` stands for logical and ``B`` for bitwise operations. ``LAND`` and ``LOR`` give booleans,
    ``SUM`` of booleans counts them; everything else keeps the element type.

    Examples
    --------
    >>> [op.name for op in ReduceOp]
    ['SUM', 'PROD', 'MIN', 'MAX', 'LAND', 'LOR', 'BAND', 'BOR']
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
        """What makes one value of two."""
        return _RULES[self].ufunc

    def result(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Element type of what comes out for values of another one.

        Raises
        ------
        ArgumentError
            If such values cannot be combined.
        """
        if dtype.kind not in _RULES[self].kinds:
            msg = f"ReduceOp.{self.name} does not combine values of type {dtype}"
            raise ArgumentError(msg)
        if self in (ReduceOp.LAND, ReduceOp.LOR):
            return np.dtype(bool)
        return np.dtype(np.int64) if self is ReduceOp.SUM and dtype.kind == "b" else dtype

    def blank(self, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Make an output for values of a type, of elements that change nothing.

        Examples
        --------
        >>> ReduceOp.MIN.blank(2, np.dtype(np.int8)), ReduceOp.MAX.blank(1, np.dtype(float))
        (array([127, 127], dtype=int8), array([-inf]))
        """
        kind = self.result(dtype)
        return np.full(size, _RULES[self].neutral(kind), kind)

    def combine(self, out: NDArray[Any], rows: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Combine values with what stands in `out`, one after the other.

        Parameters
        ----------
        out : numpy.ndarray
            Rows of values, each component of which is combined by itself.
        rows : numpy.ndarray
            Row of `out` that each row of `values` is for.
        values : numpy.ndarray
            Rows of as many values.
        """
        for component in range(out.shape[1]):  # much faster than rows at once
            column = values[:, component].astype(out.dtype, copy=False)
            self.combine_column(out[:, component], rows, column)

    def combine_column(
        self, out: NDArray[Any], rows: NDArray[np.int64], values: NDArray[Any]
    ) -> None:
        """Combine single values of the type of `out`; see `combine`."""
        if values.size:
            self.ufunc.at(out, rows, values)

    def fold(self, out: NDArray[Any], values: NDArray[Any]) -> None:
        """Combine each value of `out`, contiguous, with one other value."""
        if values.size:
            flat = out.reshape(-1)
            self.ufunc(flat, values.astype(out.dtype, copy=False), out=flat)


class _Rule(NamedTuple):
    ufunc: np.ufunc
    kinds: str  # of element types, as NumPy abbreviates them
    neutral: Callable[[np.dtype[Any]], Any]


def _largest(dtype: np.dtype[Any]) -> Any:
    return {"b": True, "f": np.inf}.get(dtype.kind) or np.iinfo(dtype).max


def _smallest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return False
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


_RULES = {
    ReduceOp.SUM: _Rule(np.add, "biufc", lambda _: 0),
    ReduceOp.PROD: _Rule(np.multiply, "iufc", lambda _: 1),
    ReduceOp.MIN: _Rule(np.minimum, "biuf", _largest),
    ReduceOp.MAX: _Rule(np.maximum, "biuf", _smallest),
    ReduceOp.LAND: _Rule(np.logical_and, "biufc", lambda _: True),
    ReduceOp.LOR: _Rule(np.logical_or, "biufc", lambda _: False),
    ReduceOp.BAND: _Rule(np.bitwise_and, "biu", lambda dtype: ~dtype.type(0)),
    ReduceOp.BOR: _Rule(np.bitwise_or, "biu", lambda _: 0),
}

_NUMBERS = "biufcm"  # kinds of element type


def read_combining(reduce: object, dtype: np.dtype[Any]) -> ReduceOp:
    """Find the operation of this name, for elements that keep their type.

    Parameters
    ----------
    reduce : ReduceOp or {"sum", "prod", "min", "max", "land", "lor", "band", "bor"}
        It, or its name, as in MPI.
    dtype : numpy.dtype
        Type of the elements to combine.

    Raises
    ------
    ArgumentError
        If there is no such operation.
    TypeError
        If NumPy does not define it for such elements.

    Examples
    --------
    >>> read_combining("max", np.dtype(float))
    <ReduceOp.MAX: 'max'>
    """
    try:
        op = ReduceOp(reduce)
    except ValueError:
        names = ", ".join(repr(op.value) for op in ReduceOp)
        msg = f"reduce={reduce!r} must be a ReduceOp, or one of {names}"
        raise ArgumentError(msg) from None
    if dtype.kind not in _NUMBERS or not _has_loop(op.ufunc, dtype):
        msg = f"reduce={op.value!r} is not defined for elements of type {dtype}; use another one"
        raise TypeError(msg)
    return op


def _has_loop(ufunc: np.ufunc, dtype: np.dtype[Any]) -> bool:
    try:
        ufunc.reduce(np.zeros(1, dtype))
    except TypeError:
        return False
    return True
