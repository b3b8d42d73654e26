"""Bounds on the error of stored numbers, for any format: check them, round numbers, measure errors.

ZFP compresses smooth numbers best. Where it cannot keep the bound, numbers are rounded to multiples
of a power of two, and then compressed without loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import frexp, ldexp, sqrt
from sys import float_info
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.errors import ArgumentError

Tolerance = float | Mapping[str, float] | None

_MOST_AXES = 4  # of ZFP
_LARGEST_EXPONENT = 1023


def as_tolerance(given: Any, name: str = "tolerance") -> Any:
    """Return bounds as float, for all fields or by name; raise TypeError or ArgumentError."""
    if given is None and name == "tolerance":
        return None
    if isinstance(given, Mapping) and name == "tolerance":
        names = sorted(given, key=str)
        return {one: as_tolerance(given[one], f"tolerance[{one!r}]") for one in names}
    if isinstance(given, bool) or not isinstance(given, int | float | np.floating | np.integer):
        raise TypeError(f"{name}={given!r:.80} must be a number like 1e-6, or one for each field")
    if not 0 <= given <= float_info.max:
        raise ArgumentError(f"{name}={given!r:.80} must be finite: positive, or zero for no error")
    return float(given)


def suits_zfp(dtype: np.dtype[Any], chunks: tuple[int, ...]) -> bool:
    """Whether ZFP compresses such chunks: real numbers in native order, along 1 to 4 axes."""
    axes = sum(extent > 1 for extent in chunks)
    return dtype in (np.float32, np.float64) and 1 <= axes <= _MOST_AXES


def rounded(values: Array, tolerance: float) -> Array:
    """Round numbers by at most `tolerance`, complex ones by absolute value; keep all others.

    Integers stay as they are, and so do NaN, infinities and numbers that are too large.

    Examples
    --------
    >>> rounded(np.array([0.3, 2.6, np.nan, 1e300]), 0.5)
    array([0.e+000, 3.e+000,     nan, 1.e+300])
    """
    if values.dtype.kind not in "fc" or tolerance == 0:
        return values
    values = np.ascontiguousarray(values)
    parts = values.view(values.real.dtype)
    _, exponent = frexp(tolerance / (sqrt(2) if values.dtype.kind == "c" else 1))
    unit = ldexp(1.0, min(exponent, _LARGEST_EXPONENT))  # at most twice the bound
    wide = parts.astype(np.result_type(parts.dtype, np.float64))
    with np.errstate(all="ignore"):
        found = (np.rint(wide / unit) * unit).astype(parts.dtype).view(values.dtype)
        return np.asarray(np.where(_errors(values, found) <= tolerance, found, values))


def largest_error(values: Array, stored: Array) -> float:
    """Return the largest absolute error of stored numbers; integers are taken as equal.

    It is NaN or infinite if a number is stored as NaN or infinite that is not the same, or reverse.
    """
    if values.dtype.kind not in "fc":
        return 0.0
    with np.errstate(all="ignore"):
        same = (values == stored) | (np.isnan(values) & np.isnan(stored))
        return float(np.where(same, 0, _errors(values, stored)).max(initial=0))


def _errors(values: Array, stored: Array) -> Array:
    wide = np.result_type(values.dtype, np.float64)
    return np.abs(np.subtract(stored, values, dtype=wide))
