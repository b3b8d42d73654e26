"""Values written to the same index, combined."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from pencils.comm.rows import Ints
from pencils.errors import ArgumentError
from pencils.storage import Array


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

    def blank(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Make an output for values of a type, of elements that change nothing.

        Examples
        --------
        >>> ReduceOp.MIN.blank(2, np.dtype(np.int8)), ReduceOp.MAX.blank(1, np.dtype(float))
        (array([127, 127], dtype=int8), array([-inf]))
        """
        kind = self.result(dtype)
        return np.full(size, _RULES[self].neutral(kind), kind)

    def combine(self, out: Array, rows: Ints, values: Array) -> None:
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

    def combine_column(self, out: Array, rows: Ints, values: Array) -> None:
        """Combine single values of the type of `out`; see `combine`."""
        if values.size:
            _RULES[self].ufunc.at(out, rows, values)

    def fold(self, out: Array, values: Array) -> None:
        """Combine each value of `out`, contiguous, with one other value."""
        if values.size:
            flat = out.reshape(-1)
            _RULES[self].ufunc(flat, values.astype(out.dtype, copy=False), out=flat)


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
