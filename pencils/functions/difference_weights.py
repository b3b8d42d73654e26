"""The weights of `numpy.gradient`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pencils.functions.passes import Formula

Spacing = Any  # a number, or the distances of neighbours along one axis
Weights = tuple[Any, Any, Any]


def formulas(
    own: range, points: int, spacing: Spacing, order: int, *, as_complex: bool
) -> Sequence[Formula]:
    """Return the formula of each own point.

    Parameters
    ----------
    own : range
        The points, of `points` along the axis.
    spacing : number or ndarray
        Their distance, or the real distances of all neighbours.
    order : {1, 2}
        Order of the differences at both ends.
    as_complex : bool
        Whether distances divide complex numbers.
    """
    with np.errstate(all="ignore"):  # distances may vanish
        found = []
        inner = range(max(own.start, 1), min(own.stop, points - 1))
        if own.start == 0:
            found.append(_end(0, 1, order, spacing))
        if np.ndim(spacing):
            before = spacing[inner.start - 1 : max(inner.start, inner.stop) - 1]
            every = zip(*central(before, spacing[inner.start : inner.stop]), strict=True)
            for point, (a, b, c) in zip(inner, every, strict=True):
                terms = (point - 1, float(a)), (point, float(b)), (point + 1, float(c))
                found.append(Formula(terms))
        else:
            factor = _inverse(2.0 * spacing)
            found += [Formula(((point + 1, 1.0), (point - 1, -1.0)), factor) for point in inner]
        if own.stop == points:
            found.append(_end(points - 1, -1, order, spacing))
        return [formula._replace(as_complex=as_complex) for formula in found]


def _end(point: int, inwards: int, order: int, spacing: Spacing) -> Formula:
    """Return the formula of the first or last point."""
    if order == 1:
        high, low = max(point, point + inwards), min(point, point + inwards)
        factor = _inverse(step(spacing, 0 if inwards > 0 else -1))
        return Formula(((high, 1.0), (low, -1.0)), factor)
    if inwards > 0:
        return Formula(tuple((point + n, float(w)) for n, w in enumerate(low_end(spacing))))
    return Formula(tuple((point - 2 + n, float(w)) for n, w in enumerate(high_end(spacing))))


def _inverse(distance: Any) -> float:
    return float(1.0 / np.float64(distance))


def step(spacing: Spacing, number: int) -> Any:
    """Return a distance of neighbours."""
    return spacing[number] if np.ndim(spacing) else spacing


def central(dx1: Any, dx2: Any) -> Weights:
    """Weights of three points, with the distance of the first two and of the last two."""
    a = -(dx2) / (dx1 * (dx1 + dx2))
    b = (dx2 - dx1) / (dx1 * dx2)
    c = dx1 / (dx2 * (dx1 + dx2))
    return a, b, c


def low_end(dx: Spacing) -> Weights:
    """Weights of the first three points for the slope at the first one."""
    if np.ndim(dx) == 0:
        return -1.5 / dx, 2.0 / dx, -0.5 / dx
    dx1, dx2 = dx[0], dx[1]
    a = -(2.0 * dx1 + dx2) / (dx1 * (dx1 + dx2))
    b = (dx1 + dx2) / (dx1 * dx2)
    c = -dx1 / (dx2 * (dx1 + dx2))
    return a, b, c


def high_end(dx: Spacing) -> Weights:
    """Weights of the last three points for the slope at the last one."""
    if np.ndim(dx) == 0:
        return 0.5 / dx, -2.0 / dx, 1.5 / dx
    dx1, dx2 = dx[-2], dx[-1]
    a = (dx2) / (dx1 * (dx1 + dx2))
    b = -(dx2 + dx1) / (dx1 * dx2)
    c = (2.0 * dx2 + dx1) / (dx2 * (dx1 + dx2))
    return a, b, c
