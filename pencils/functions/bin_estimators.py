"""How many bins a histogram gets by the estimators of NumPy, from reductions over all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from pencils.array import reductions
from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.global_reduction import reduce_field
from pencils.comm.agree import agreed
from pencils.comm.reduce import native
from pencils.errors import ArgumentError
from pencils.functions.arguments import own_values
from pencils.functions.order_statistics import Question, of_all_values, room_for

_ESTIMATORS = ("auto", "doane", "fd", "rice", "scott", "sqrt", "sturges")


def check_estimator(name: str, method: str, weights: Any) -> None:
    """Raise if bins cannot be chosen by a method of NumPy."""
    if method not in _ESTIMATORS:
        raise ArgumentError(
            f"{name}: bins={method!r} must be a number, edges, or one of {', '.join(_ESTIMATORS)}"
        )
    if weights is not None:
        raise TypeError(f"{name}: bins={method!r} takes no weights; give a number of bins")


def number_of_bins(
    name: str, a: Field, method: str, range: tuple[Any, Any] | None
) -> tuple[int, tuple[Any, Any]]:
    """Choose a number of bins. *Collective*.

    Returns
    -------
    int, (scalar, scalar)
        The number, and the range that is divided.
    """
    inside: Any = True
    count = a.size
    if range is not None:
        if range[0] == range[1]:
            range = range[0] - 0.5, range[1] + 0.5
        inside = (a >= range[0]) & (a <= range[1])
        count = int(reductions.count_nonzero(inside))
    if count == 0:
        return 1, (0, 1) if range is None else range
    low, high = reductions.min(a, where=inside), reductions.max(a, where=inside)
    first, last = (low, high) if range is None else range
    edges = np.histogram_bin_edges(np.empty(0, a.dtype), 1, (first, last))
    delta = _difference(first, last) if first != last else edges[1] - edges[0]
    width = _width(name, a, method, inside, count, _difference(low, high))
    if width and a.dtype.kind in "iu":
        width = max(width, 1)
    return int(np.ceil(delta / width)) if width else 1, (first, last)


def _difference(low: Any, high: Any) -> Any:
    """Subtract; integers without overflow."""
    integers = all(np.asarray(one).dtype.kind in "iu" for one in (low, high))
    return int(high) - int(low) if integers else high - low


def _width(name: str, a: Field, method: str, inside: Any, count: int, extent: Any) -> Any:
    """Estimate the width of bins, by the formulas of NumPy. *Collective*."""
    by_count = extent / (np.log2(count) + 1.0)
    by_root = extent / np.sqrt(count)
    width = by_root if method == "sqrt" else by_count
    if method == "rice":
        width = extent / (2.0 * count ** (1.0 / 3))
    elif method == "scott":
        factor = (24.0 * np.pi**0.5 / count) ** (1.0 / 3.0)
        width = factor * reductions.std(a, where=inside)
    elif method == "doane":
        width = _doane(a, inside, count, extent)
    elif method in {"fd", "auto"}:
        width = 2.0 * _middle_half(name, a, inside, count) * count ** (-1.0 / 3.0)
        if method == "auto":
            width = min(max(width, by_root / 2), by_count)
    return width


def _middle_half(name: str, a: Field, inside: Any, count: int) -> Any:
    """Distance between the quartiles. *Collective*."""
    asked = Question(name, np.quantile, skips=False, q=np.array([0.75, 0.25]))
    with agreed(a.pencil.topology.comm, name):
        room = room_for(asked, a)
        values = own_values(a, a.local)
        if inside is not True:
            values = values[own_values(a, inside.local)]
        values = values.astype(native(a.dtype), copy=False)
    return np.subtract(*of_all_values(asked, a, values, count, 0, room))


def _doane(a: Field, inside: Any, count: int, extent: Any) -> Any:
    """Width by the skewness of values. *Collective*."""
    if count <= 2:  # noqa: PLR2004
        return 0.0
    sigma = reductions.std(a, where=inside)
    if not sigma > 0:
        return 0.0
    mean = reductions.mean(a, where=inside)

    def cubes(block: Array) -> Array:
        return np.asarray(((block - mean) / sigma) ** 3)

    kind = mean.dtype
    skewness = reduce_field("histogram", a, dtype=kind, where=inside, of=cubes) / count
    usual = np.sqrt(6.0 * (count - 2) / ((count + 1.0) * (count + 3)))
    return extent / (1.0 + np.log2(count) + np.log2(1.0 + np.absolute(skewness) / usual))
