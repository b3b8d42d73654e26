"""Drop waves that alias, or add waves of zero, along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from pencils.fft.lines import Line
from pencils.storage import Array


def truncate(spectrum: Array, axis: int, line: Line) -> Array:
    """Keep the waves of the resolution.

    The waves n/2 and -n/2 of an even number of points are one: what both hold is added.
    """
    n, kept = line.resolution, line.waves
    if line.transform == "r2c":
        short: Array = spectrum[_at(axis, slice(0, kept))].copy()
        if n % 2 == 0:
            middle = short[_at(axis, n // 2)]
            middle += middle.conj()
        return short
    rising = (n + 1) // 2
    shape = list(spectrum.shape)
    shape[axis] = kept
    short = np.empty(shape, spectrum.dtype)
    short[_at(axis, slice(0, rising))] = spectrum[_at(axis, slice(0, rising))]
    short[_at(axis, slice(rising, n))] = spectrum[_at(axis, slice(line.modes - n // 2, None))]
    if n % 2 == 0:
        short[_at(axis, n // 2)] += spectrum[_at(axis, n // 2)]
    return short


def pad(waves: Array, axis: int, line: Line) -> Array:
    """Undo `truncate`: half of a wave n/2 goes to n/2, half to -n/2, and the rest is zero."""
    n = line.resolution
    shape = list(waves.shape)
    shape[axis] = line.modes
    long = np.zeros(shape, waves.dtype)
    if line.transform == "r2c":
        long[_at(axis, slice(0, line.waves))] = waves
        if n % 2 == 0:
            long[_at(axis, n // 2)] *= 0.5
        return long
    rising = (n + 1) // 2
    long[_at(axis, slice(0, rising))] = waves[_at(axis, slice(0, rising))]
    long[_at(axis, slice(line.modes - n // 2, None))] = waves[_at(axis, slice(rising, n))]
    if n % 2 == 0:
        half = long[_at(axis, line.modes - n // 2)]
        half *= 0.5
        long[_at(axis, n // 2)] = half
    return long


def drop(spectrum: Array, axis: int, line: Line) -> Array:
    """Zero the waves that the 2/3 rule drops, in place."""
    spectrum[_at(axis, line.dropped)] = 0
    return spectrum


def _at(axis: int, where: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, where)
