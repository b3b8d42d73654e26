"""How several values of one point become one: the operations and their names."""

from __future__ import annotations

from typing import Any

import numpy as np

from pencils.errors import ArgumentError

COMBININGS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "land": np.logical_and,
    "lor": np.logical_or,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
}

_NUMBERS = "biufcm"  # kinds of element type


def read_combining(name: object, dtype: np.dtype[Any]) -> np.ufunc:
    """Find the operation of this name.

    Parameters
    ----------
    name : {"sum", "prod", "min", "max", "land", "lor", "band", "bor"}
        Its name, as in MPI.
    dtype : numpy.dtype
        Type of the elements to combine.

    Raises
    ------
    ArgumentError
        If there is no such operation.
    TypeError
        If it is not defined for such elements.

    Examples
    --------
    >>> read_combining("max", np.dtype(float))
    <ufunc 'maximum'>
    """
    if not isinstance(name, str) or name not in COMBININGS:
        msg = f"reduce={name!r} must be one of {', '.join(map(repr, COMBININGS))}"
        raise ArgumentError(msg)
    ufunc = COMBININGS[name]
    if dtype.kind not in _NUMBERS or not _has_loop(ufunc, dtype):
        msg = f"reduce={name!r} is not defined for elements of type {dtype}; use another one"
        raise TypeError(msg)
    return ufunc


def _has_loop(ufunc: np.ufunc, dtype: np.dtype[Any]) -> bool:
    try:
        ufunc.reduce(np.zeros(1, dtype))
    except TypeError:
        return False
    return True
