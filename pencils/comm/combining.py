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

    ``L`` stands for logical and ``B`` for bitwise operations. A new output has the type of the
    values, but ``LAND`` and ``LOR`` make booleans, ``SUM`` and ``PROD`` of booleans integers. An
    output that is given may have that type or the one of the values, in which NumPy then computes:
    ``LAND`` of floats writes 0.0 and 1.0, and the sum of two true booleans is true.

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
        """What makes one value of two."""
        return _RULES[self].ufunc

    def result(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Element type of a new output for values of another one.

        Raises
        ------
        ArgumentError
            If such values cannot be combined.
        """
        if dtype.kind not in _RULES[self].kinds:
            known = ", ".join(_KINDS[kind] for kind in _RULES[self].kinds)
            msg = f"ReduceOp.{self.name} does not combine values of type {dtype}, but {known}"
            raise ArgumentError(msg)
        if self in (ReduceOp.LAND, ReduceOp.LOR):
            return np.dtype(bool)
        counts = dtype.kind == "b" and self in (ReduceOp.SUM, ReduceOp.PROD)
        return np.dtype(np.int64) if counts else dtype

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
    return {"b": True, "f": np.inf}.get(dtype.kind) or np.iinfo(_as_integer(dtype)).max


def _smallest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return False
    # The smallest integer means "not a time".
    return -np.inf if dtype.kind == "f" else np.iinfo(_as_integer(dtype)).min + (dtype.kind in "mM")


def _as_integer(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type of the integers by which times are stored, or of those that are no times."""
    return np.dtype(np.int64) if dtype.kind in "mM" else dtype


_RULES = {
    ReduceOp.SUM: _Rule(np.add, "biufcm", lambda _: 0),
    ReduceOp.PROD: _Rule(np.multiply, "biufc", lambda _: 1),
    ReduceOp.MIN: _Rule(np.minimum, "biufmM", _largest),
    ReduceOp.MAX: _Rule(np.maximum, "biufmM", _smallest),
    ReduceOp.LAND: _Rule(np.logical_and, "biufc", lambda _: True),
    ReduceOp.LOR: _Rule(np.logical_or, "biufc", lambda _: False),
    ReduceOp.BAND: _Rule(np.bitwise_and, "biu", lambda dtype: ~dtype.type(0)),
    ReduceOp.BOR: _Rule(np.bitwise_or, "biu", lambda _: 0),
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


def read_combining(reduce: object, dtype: np.dtype[Any]) -> ReduceOp:
    """Find the operation of this name, for elements of a type.

    Parameters
    ----------
    reduce : ReduceOp or {"sum", "prod", "min", "max", "land", "lor", "band", "bor"}
        It, or its name, as in MPI.
    dtype : numpy.dtype
        Type of the elements to combine.

    Raises
    ------
    ArgumentError
        If there is no such operation, or it does not combine such elements.

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
    op.result(dtype)
    return op
