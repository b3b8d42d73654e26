"""Drop waves that alias, or add waves of zero, along one axis."""

from __future__ import annotations

from typing import Any

from pencils.array.allocation import Array
from pencils.fft.lines import Line


def truncate(spectrum: Array, axis: int, line: Line, out: Array) -> None:
    """Keep the waves of the resolution.

    The waves n/2 and -n/2 of an even number of points are one: what both hold is added.
    """
    n = line.resolution
    middle = _at(axis, n // 2)
    if line.transform == "r2c":
        out[...] = spectrum[_at(axis, slice(0, line.waves))]
        if n % 2 == 0:
            out[middle] += out[middle].conj()
        return
    rising = (n + 1) // 2
    out[_at(axis, slice(0, rising))] = spectrum[_at(axis, slice(0, rising))]
    out[_at(axis, slice(rising, n))] = spectrum[_at(axis, slice(line.modes - n // 2, None))]
    if n % 2 == 0:
        out[middle] += spectrum[middle]


def pad(waves: Array, axis: int, line: Line, out: Array) -> None:
    """Undo `truncate`: half of a wave n/2 goes to n/2, half to -n/2, and the rest is zero."""
    n = line.resolution
    middle = _at(axis, n // 2)
    if line.transform == "r2c":
        out[_at(axis, slice(0, line.waves))] = waves
        out[_at(axis, slice(line.waves, None))] = 0
        if n % 2 == 0:  # it stands for both halves: their imaginary parts cancel
            out[middle] = 0.5 * out[middle].real
        return
    rising, falling = (n + 1) // 2, line.modes - n // 2
    out[_at(axis, slice(0, rising))] = waves[_at(axis, slice(0, rising))]
    out[_at(axis, slice(rising, falling))] = 0
    out[_at(axis, slice(falling, None))] = waves[_at(axis, slice(rising, n))]
    if n % 2 == 0:
        out[_at(axis, falling)] *= 0.5
        out[middle] = out[_at(axis, falling)]


def drop(spectrum: Array, axis: int, line: Line) -> None:
    """Zero the waves that the 2/3 rule drops, in place."""
    spectrum[_at(axis, line.dropped)] = 0


def _at(axis: int, where: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, where)
