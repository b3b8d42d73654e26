"""How often values occur on all ranks, with the signatures of NumPy. All are *Collective*.

For histograms the ranks agree on edges, each counts its own values by the function of NumPy, and
the counts are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from pencils.array import reductions
from pencils.array.allocation import Array, plain_array
from pencils.array.base import Field
from pencils.array.elementwise import elementwise
from pencils.array.global_reduction import (
    UFUNCS,
    extent_of,
    neutral_of,
    own_extent,
    own_part,
    reduce_field,
)
from pencils.array.operands import signature, topology_among
from pencils.comm.agree import agreed
from pencils.comm.reduce import carried_total, combine, native, reducer
from pencils.errors import ArgumentError
from pencils.functions.arguments import check_given, facts_of, own_values, own_weights, warn
from pencils.functions.order_statistics import Question, of_all_values
from pencils.functions.selection import room_for

_ESTIMATORS = ("auto", "doane", "fd", "rice", "scott", "sqrt", "sturges")
_Distinct = tuple[Array, Array | None]  # distinct values, and how often they occur


def histogram(
    a: Field, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Array, Array]:
    """Count values of all ranks in bins, as `numpy.histogram`. *Collective*, by reductions.

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
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda i, j: 1.0 * i * j)
    >>> np.histogram(u, bins=3)
    (array([7, 3, 2]), array([0., 2., 4., 6.]))
    """
    edges, own_bins, own_range, numbers = _bins("histogram", a, bins, range, weights)
    with agreed(a.pencil.topology.comm, "histogram") as agree:
        agree(density=bool(density))
        values = own_values(numbers, numbers.local)
        part = own_weights(weights, a)
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
    """Find the edges of a histogram, and the bins and range that give them without values.

    *Collective*. The field is returned, too, with booleans as integers.
    """
    check_given(name, a, bins, weights)
    comm, named, pair = a.pencil.topology.comm, isinstance(bins, str), None
    with agreed(comm, name) as agree:
        _check_plain(name, bins)
        agree(**signature(a), bins=bins, range=range)
        agree(weights=facts_of(weights))
        _check_real(name, a)
        numbers = a
        if a.dtype.kind == "b":
            numbers = a.in_frame(a.pencil, a.frame, a.padded.view(np.uint8))
        nothing = np.empty(0, numbers.dtype)
        if named and bins not in _ESTIMATORS:
            raise ArgumentError(
                f"{name}: bins={bins!r} must be a number, edges, or one of {', '.join(_ESTIMATORS)}"
            )
        if named and weights is not None:
            raise TypeError(f"{name}: bins={bins!r} takes no weights; give a number of bins")
        np.histogram_bin_edges(nothing, 1 if named else bins, range)
        if not named and np.ndim(bins) == 0 and range is None and a.size:
            pair = own_extent(name, numbers)
            agree.carry(pair)
    if not named and np.ndim(bins):
        edges = np.asarray(bins)
        return edges, edges, None, numbers
    limits = range if pair is None else extent_of(comm, agree, pair)
    if named:
        bins, limits = _number_of_bins(name, numbers, bins, range)
    return np.histogram_bin_edges(nothing, bins, limits), bins, limits, numbers


def _check_plain(name: str, bins: Any) -> None:
    several = isinstance(bins, list | tuple)
    if isinstance(bins, Field) or (several and any(isinstance(one, Field) for one in bins)):
        raise TypeError(f"{name}: bins must be numbers or arrays that all ranks have, not fields")


def _check_real(name: str, a: Any) -> None:
    if np.result_type(a.dtype).kind == "c":
        raise TypeError(f"{name} of complex numbers: take u.real, u.imag or numpy.abs(u)")


def _number_of_bins(
    name: str, a: Field, method: str, range: tuple[Any, Any] | None
) -> tuple[int, tuple[Any, Any]]:
    """Choose a number of bins, and the range that they divide. *Collective*."""
    inside: Any = True
    count = a.size
    if range is not None:
        if range[0] == range[1]:
            range = range[0] - 0.5, range[1] + 0.5
        inside = (a >= range[0]) & (a <= range[1])
        count = int(reductions.count_nonzero(inside))
    if count == 0:
        return 1, (0, 1) if range is None else range
    low, high = (
        reduce_field(end, a, where=inside, initial=neutral_of(end, UFUNCS[end], a.dtype, 1))
        for end in ("min", "max")
    )
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
        ends = np.array([0.75, 0.25])
        asked = Question(name, partial(np.quantile, q=ends), skips=False, q=ends)
        comm = a.pencil.topology.comm
        with agreed(comm, name):
            values = own_values(a, a.local)
            if inside is not True:
                values = values[own_values(a, inside.local)]
            values = values.astype(native(a.dtype), copy=False)
            room = room_for(a.size, asked.positions, values.dtype, comm.size)
        quartiles = of_all_values(asked, comm, a.dtype, values, count, room, missing=False)
        middle_half = np.subtract(*quartiles)
        width = 2.0 * middle_half * count ** (-1.0 / 3.0)
        if method == "auto":
            width = min(max(width, by_root / 2), by_count)
    return width


def _doane(a: Field, inside: Any, count: int, extent: Any) -> Any:
    """Width by the skewness of values. *Collective*."""
    sigma = reductions.std(a, where=inside) if count > 2 else 0.0  # noqa: PLR2004
    if not sigma > 0:
        return 0.0
    mean = reductions.mean(a, where=inside)

    def cubes(block: Array) -> Array:
        return np.asarray(((block - mean) / sigma) ** 3)

    skewness = reduce_field("histogram", a, dtype=mean.dtype, where=inside, of=cubes) / count
    usual = np.sqrt(6.0 * (count - 2) / ((count + 1.0) * (count + 3)))
    return extent / (1.0 + np.log2(count) + np.log2(1.0 + np.absolute(skewness) / usual))


def histogram2d(
    x: Field, y: Field, bins: Any = 10, *args: Any, **options: Any
) -> tuple[Array, Array, Array]:
    """Count pairs of values of two fields in bins; else like `histogramdd`. *Collective*.

    Returns
    -------
    counts, x_edges, y_edges : array
        NumPy arrays, the same on every rank.

    Examples
    --------
    >>> import pencils
    >>> x, y = pencils.localgrid(pencils.Pencil((4, 3)), [range(4), range(3)])
    >>> np.histogram2d(x, y, bins=2)[0]
    array([[2., 4.],
           [2., 4.]])
    """
    with suppress(Exception):  # a number has no length; others are checked on all ranks
        bins = bins if len(bins) in {1, 2} else [bins, bins]
    counts, edges = _histogram("histogram2d", [x, y], bins, *args, **options)
    return counts, edges[0], edges[1]


def histogramdd(sample: Sequence[Field], *args: Any, **options: Any) -> tuple[Array, list[Array]]:
    """Count tuples of values of several fields in bins, as `numpy.histogramdd`. *Collective*.

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
    return _histogram("histogramdd", sample, *args, **options)


def _histogram(
    name: str,
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, list[Array]]:
    comm = topology_among(sample, weights).comm
    with agreed(comm, name) as agree:
        _check_plain(name, bins)
        if isinstance(sample, Field):
            raise TypeError(f"{name} takes a sequence of fields; of a vector, velocity.unstack()")
        columns: list[Any] = [one if isinstance(one, Field) else plain_array(one) for one in sample]
        for column in columns:
            _check_real(name, column)
        if not any(isinstance(column, Field) for column in columns):
            raise TypeError(f"{name}: weights are a PencilArray, so the sample must contain one")
        # All columns broadcast to this field, which has no values.
        shape_of = np.broadcast_shapes
        whole = elementwise(
            lambda *parts: np.empty(shape_of(*map(np.shape, parts)), bool), columns, {}
        )
        agree(sample=[facts_of(column) for column in columns], bins=bins, range=range)
        agree(weights=facts_of(weights), density=bool(density))
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
        part = own_weights(weights, whole)
        counts, _ = np.histogramdd(np.array(values, dtype).T, edges, weights=part)
        reduce = reducer(counts, np.add)
    total = reduce(comm)
    if density:
        weight = total.sum()
        for width in np.ix_(*map(np.diff, edges)):
            total = total / width
        total /= weight
    return total, list(edges)


def bincount(x: Field, /, weights: Any = None, minlength: int = 0) -> Array:
    """Count how often each integer occurs on all ranks. *Collective*, by two reductions.

    Parameters
    ----------
    x : PencilArray
        A field of any shape, of integers that are not negative; replicas of singleton dimensions
        count once.
    weights : PencilArray or array_like, optional
        A field that broadcasts to `x`, or global data of the same shape that all ranks have.
    minlength : int, optional
        The least length of the result.

    Returns
    -------
    array
        NumPy array, the same on every rank; as long as the largest integer needs.

    Examples
    --------
    >>> import pencils
    >>> np.bincount(pencils.from_function(pencils.Pencil((4, 3)), lambda i, j: i + j, dtype=int))
    array([1, 2, 3, 3, 2, 1])
    """
    check_given("bincount", x, weights, parameter="x")
    comm = x.pencil.topology.comm
    with agreed(comm, "bincount") as agree:
        agree(**signature(x), minlength=minlength)
        agree(weights=facts_of(weights))
        np.bincount(np.zeros(1, x.dtype), minlength=minlength)  # NumPy checks arguments
        values = own_values(x, x.local)
        least, most = (int(values.min()), int(values.max())) if values.size else (0, -1)
        if least < 0:
            raise ArgumentError(f"bincount of {least}: values must not be negative")
        part = own_weights(weights, x)
        greatest = np.array([most])
        agree.carry(greatest)
    size = max(int(carried_total(comm, agree, greatest, np.maximum)[0]) + 1, int(minlength))
    with agreed(comm, "bincount"):
        counts = np.bincount(values, part, size)
        kind = np.intp if part is None or x.size == 0 else float
        reduce = reducer(counts.astype(kind, copy=False), np.add)  # integers without values
    return reduce(comm)


def unique(
    ar: Field,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,  # noqa: ARG001
) -> Any:
    """Return the distinct values of all ranks, in order. *Collective*.

    Every rank gets all distinct values: this is for fields that have few of them.

    Parameters
    ----------
    ar : PencilArray
        The field; replicas of singleton dimensions count once.
    return_index, return_inverse, axis
        Not supported.
    return_counts : bool, optional
        Whether to return how often each value occurs, too.
    equal_nan : bool, optional
        Whether all NaN are one value.
    sorted : bool, optional
        Without effect: values are always in order.

    Returns
    -------
    values, counts : array
        NumPy arrays, the same on every rank; without `return_counts` the values only.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda i, j: i * j % 3, dtype=int)
    >>> np.unique(u, return_counts=True)
    (array([0, 1, 2]), array([8, 2, 2]))
    """
    given = {"return_index": return_index, "return_inverse": return_inverse, "axis": axis}
    refused = [key for key, value in given.items() if value is not None and value is not False]
    options: dict[str, Any] = {"counted": return_counts, "equal_nan": equal_nan}
    values, counts = _distinct("unique", ar, refused=refused, **options)
    return values if counts is None else (values, counts)


def unique_values(x: Field) -> Array:
    """Return the distinct values of all ranks, with every NaN; see `unique`. *Collective*."""
    values, _ = _distinct("unique_values", x, counted=False, equal_nan=False)
    return values


def unique_counts(x: Field) -> Any:
    """Return distinct values and counts over all ranks; else like `unique_values`. *Collective*."""
    values, counts = _distinct("unique_counts", x, counted=True, equal_nan=False)
    pair: Any = type(np.unique_counts(np.zeros(1)))
    return pair(values, counts)


def _distinct(
    name: str, u: Field, *, counted: Any, equal_nan: Any, refused: list[str] | None = None
) -> _Distinct:
    comm = u.pencil.topology.comm
    with agreed(comm, name) as agree:
        counted, equal_nan = bool(counted), bool(equal_nan)
        agree(**signature(u), counted=counted, equal_nan=equal_nan)
        if refused:
            raise TypeError(
                f"{name} of a PencilArray takes no {refused[0]}=, only return_counts=; write "
                "numpy.nonzero(u.local == value) for the own positions of a value"
            )
        found: Any = np.unique(own_values(u, u.local), return_counts=counted, equal_nan=equal_nan)
        mine: _Distinct = found if counted else (found, None)
    if comm.size == 1:
        return mine
    values, counts = combine(comm, mine, lambda one, other: _merged(one, other, equal_nan))
    return values.astype(mine[0].dtype, copy=False), counts


def _merged(one: _Distinct, other: _Distinct, equal_nan: bool) -> _Distinct:
    """Combine the distinct values of two groups of ranks."""
    (a, a_counts), (b, b_counts) = one, other
    both = np.concatenate([a, b])
    if a_counts is None or b_counts is None:
        return np.unique(both, equal_nan=equal_nan), None
    values, places = np.unique(both, return_inverse=True, equal_nan=equal_nan)
    counts = np.zeros(values.size, a_counts.dtype)
    np.add.at(counts, places.reshape(-1), np.concatenate([a_counts, b_counts]))
    return values, counts
