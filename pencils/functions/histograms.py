"""Histograms of fields over all ranks, with the signatures of NumPy. All are *Collective*.

The ranks agree on edges, each counts its own values by the function of NumPy, and the counts are
added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from pencils.array import reductions
from pencils.array.allocation import Array, plain_array
from pencils.array.base import Field
from pencils.array.elementwise import elementwise
from pencils.array.global_reduction import extent_of, own_extent, own_part, reduce_field
from pencils.array.operands import signature, topology_among
from pencils.comm.agree import agreed
from pencils.comm.reduce import native, reducer
from pencils.errors import ArgumentError
from pencils.functions.arguments import check_given, facts_of, own_values, own_weights, warn
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


def histogram(
    a: Field,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, Array]:
    """Histogram of all values of all ranks, as `numpy.histogram`. *Collective*, by reductions.

    Parameters
    ----------
    a : PencilArray
        The field; replicas of singleton dimensions count once.
    bins : int, sequence of numbers or str, optional
        Number of bins of equal width, edges that all ranks have, or the name of an estimator of
        NumPy; all but ``"stone"`` are there.
    range : (float, float), optional
        Range of the bins, default from the smallest to the largest value.
    density : bool, optional
        Whether to return the density of probability instead of counts.
    weights : PencilArray or array_like, optional
        A field that broadcasts to `a`, or global data of the same shape that all ranks have.

    Returns
    -------
    counts, edges : array
        NumPy arrays, the same on every rank.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda i, j: 1.0 * i * j)
    >>> np.histogram(u, bins=3)
    (array([7, 3, 2]), array([0., 2., 4., 6.]))
    """
    edges, own_bins, own_range, numbers = _bins("histogram", a, bins, range, weights)
    with agreed(a.pencil.topology.comm, "histogram") as agree:
        agree(density=bool(density))
        values = own_values(numbers, numbers.local)
        part = None if weights is None else own_values(numbers, own_weights(weights, a))
        counts, _ = np.histogram(values, own_bins, own_range, weights=part)
        reduce = reducer(counts, np.add)
    total = reduce(a.pencil.topology.comm).astype(counts.dtype, copy=False)
    _warn_of_booleans(a)
    if not density:
        return total, edges
    return total / np.diff(edges).astype(float) / total.sum(), edges


def histogram_bin_edges(a: Field, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """Return the edges of `histogram`, with the same parameters. *Collective*."""
    edges = _bins("histogram_bin_edges", a, bins, range, weights)[0]
    _warn_of_booleans(a)
    return edges


def _warn_of_booleans(a: Field) -> None:
    if a.dtype.kind == "b":
        warn(f"Converting input from bool to {np.uint8} for compatibility.", up=1)


def _bins(
    name: str, a: Field, bins: Any, range: Any, weights: Any
) -> tuple[Array, Any, Any, Field]:
    """Find the edges of a histogram. *Collective*.

    Returns
    -------
    edges, bins, range, numbers
        The edges, what gives them without the values of all ranks, and the field, with booleans
        as integers.
    """
    check_given(name, a, bins, weights)
    with agreed(a.pencil.topology.comm, name) as agree:
        _check_plain(name, bins)
        agree(**signature(a), bins=bins, range=range)
        agree(weights=None if weights is None else facts_of(weights))
        _check_real(name, a)
        numbers = a
        if a.dtype.kind == "b":
            numbers = a.in_frame(a.pencil, a.frame, a.padded.view(np.uint8))
        nothing = np.empty(0, numbers.dtype)
        if isinstance(bins, str):
            check_estimator(name, bins, weights)
        np.histogram_bin_edges(nothing, 1 if isinstance(bins, str) else bins, range)
        pair = None
        if not isinstance(bins, str) and np.ndim(bins) == 0 and range is None and a.size:
            pair = own_extent(name, numbers)
            agree.carry(pair)
    if not isinstance(bins, str) and np.ndim(bins):
        edges = np.asarray(bins)
        return edges, edges, None, numbers
    limits: Any
    if isinstance(bins, str):
        bins, limits = number_of_bins(name, numbers, bins, range)
    else:
        limits = range if pair is None else extent_of(a.pencil.topology.comm, agree, pair)
    return np.histogram_bin_edges(nothing, bins, limits), bins, limits, numbers


def _check_plain(name: str, bins: Any) -> None:
    several = isinstance(bins, list | tuple)
    if isinstance(bins, Field) or (several and any(isinstance(one, Field) for one in bins)):
        raise TypeError(f"{name}: bins must be numbers or arrays that all ranks have, not fields")


def _check_real(name: str, a: Any) -> None:
    if np.result_type(a.dtype).kind == "c":
        raise TypeError(f"{name} of complex numbers: take u.real, u.imag or numpy.abs(u)")


def histogram2d(
    x: Field,
    y: Field,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, Array, Array]:
    """Histogram of pairs of values of two fields; else like `histogramdd`. *Collective*.

    Returns
    -------
    counts, x_edges, y_edges : array
        NumPy arrays, the same on every rank.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> x, y = pencils.localgrid(pencils.Pencil((4, 3)), [range(4), range(3)])
    >>> np.histogram2d(x, y, bins=2)[0]
    array([[2., 4.],
           [2., 4.]])
    """
    with suppress(Exception):  # a number has no length; others are checked on all ranks
        bins = bins if len(bins) in {1, 2} else [bins, bins]
    counts, edges = _histogram("histogram2d", [x, y], bins, range, density, weights)
    return counts, edges[0], edges[1]


def histogramdd(
    sample: Sequence[Field],
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, list[Array]]:
    """Histogram of tuples of values of several fields, as `numpy.histogramdd`. *Collective*.

    Parameters
    ----------
    sample : sequence of PencilArray
        The fields, which broadcast against each other. Those of a vector are
        ``velocity.unstack()``.
    bins : int or sequence, optional
        Number of bins, or a number or edges for each field.
    range : sequence of (float, float), optional
        Range for each field, or None for that of its values.
    density, weights
        As in `histogram`.

    Returns
    -------
    counts : array
        NumPy array with one axis for each field, the same on every rank.
    edges : list of array
        The edges along each axis.
    """
    return _histogram("histogramdd", sample, bins, range, density, weights)


def _histogram(
    name: str, sample: Any, bins: Any, range: Any, density: bool | None, weights: Any
) -> tuple[Array, list[Array]]:
    comm = topology_among(sample, weights).comm
    with agreed(comm, name) as agree:
        _check_plain(name, bins)
        columns, whole = _columns(name, sample)
        agree(sample=[facts_of(column) for column in columns], bins=bins, range=range)
        agree(weights=None if weights is None else facts_of(weights), density=bool(density))
        dtype = np.result_type(*(column.dtype for column in columns))
        nothing = np.empty((0, len(columns)), dtype)
        np.histogramdd(nothing, bins, range)  # NumPy checks arguments
    several = isinstance(bins, list | tuple) or np.ndim(bins) > 0
    every = bins if several else [bins] * len(columns)
    limits: list[Any] = [None] * len(columns) if range is None else list(range)
    for n, column in enumerate(columns):
        if limits[n] is None and np.ndim(every[n]) == 0 and whole.size:
            limits[n] = [dtype.type(reduce(column)) for reduce in (np.min, np.max)]
    _, edges = np.histogramdd(nothing, bins, limits)
    with agreed(comm, name):
        values = [own_values(whole, own_part(column, whole)) for column in columns]
        part = None if weights is None else own_values(whole, own_weights(weights, whole))
        counts, _ = np.histogramdd(np.array(values, dtype).T, edges, weights=part)
        reduce = reducer(counts, np.add)
    total = reduce(comm)
    if density:
        weight = total.sum()
        for width in np.ix_(*map(np.diff, edges)):
            total = total / width
        total /= weight
    return total, list(edges)


def _columns(name: str, sample: Any) -> tuple[list[Any], Field]:
    """Check the fields of a sample, and make one, without values, to which all broadcast."""
    if isinstance(sample, Field):
        raise TypeError(f"{name} takes a sequence of fields; of a vector, velocity.unstack()")
    columns = [one if isinstance(one, Field) else plain_array(one) for one in sample]
    for column in columns:
        _check_real(name, column)
    if not any(isinstance(column, Field) for column in columns):
        raise TypeError(f"{name}: one of the sample must be a PencilArray, as its weights are")
    return columns, elementwise(_blank, columns, {})


def _blank(*blocks: Array) -> Array:
    return np.empty(np.broadcast_shapes(*map(np.shape, blocks)), bool)
