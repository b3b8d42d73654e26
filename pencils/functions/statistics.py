"""Averages, and sums, extrema, means and variances without NaN. All are *Collective*.

Signatures are those of NumPy, which checks them before it calls these functions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array import reductions
from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.elementwise import as_field
from pencils.array.global_reduction import (
    NO_VALUE,
    Axis,
    Reduction,
    any_of,
    arg_extremum,
    mask_part,
    reduce_field,
)
from pencils.array.operands import signature
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.functions.arguments import check_given, facts_of, warn, weights_part
from pencils.layout.integers import as_dims

divide: Any = np.divide
_ZERO = "average: weights sum to zero, can't be normalized"
_ALL_NAN = "All-NaN slice encountered"


def average(
    a: Field,
    axis: Axis = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """Compute the weighted average over all ranks. *Collective*, by two reductions.

    Parameters
    ----------
    a : PencilArray
        The field.
    axis : int or tuple of int, optional
        Axes of the global shape, default all.
    weights : PencilArray or array_like, optional
        A field that broadcasts to `a`, or global data that all ranks have: of the shape of `a`,
        or of its extents along `axis`. Default: all are 1.
    returned : bool, optional
        Whether to return the sum of the weights, too.
    keepdims : bool, optional
        Whether reduced component axes stay with extent 1; axes of space always do.

    Returns
    -------
    scalar or PencilArray
        As `numpy.mean`; with `returned` a pair of them.

    Raises
    ------
    ZeroDivisionError
        On all ranks, if some weights sum to zero.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda i, j: 1.0 * j)
    >>> np.average(u, weights=u)
    np.float64(1.6666666666666667)
    >>> np.average(u, axis=1, weights=[0, 1, 3]).shape
    (4, 1)
    """
    check_given("average", a, weights)
    if weights is None:
        return _plain_average(a, axis, returned, keepdims)
    with agreed(a.pencil.topology.comm, "average") as agree:
        agree(**signature(a), weights=facts_of(weights), returned=bool(returned))
        Reduction.of("average", a, axis, None, keepdims)
        part = weights_part(weights, a, None if axis is None else as_dims("axis", axis, a.ndim))
        along = not isinstance(weights, Field) and np.shape(weights) != a.shape
        if along and not a.size and not np.sum(weights):  # no point has them, but NumPy raises
            raise ZeroDivisionError(_ZERO)
        # As in NumPy, times have no weighted average.
        result = np.result_type(a.dtype, part.dtype, *([] if a.dtype.kind in "fc" else ["f8"]))

    total_of = partial(reduce_field, "average", a, axis, dtype=result, keepdims=keepdims)
    weight = total_of(of=lambda _: part)
    own_weight = weight.local if isinstance(weight, Field) else weight
    if not a.size and any_of(a, own_weight == 0):  # no rank calls `products`
        raise ZeroDivisionError(_ZERO)

    def products(block: Array) -> Array:
        if (own_weight == 0).any():
            raise ZeroDivisionError(_ZERO)
        return np.multiply(block, part, dtype=result)

    total = total_of(of=products)
    target: Any = total if isinstance(total, Field) else None
    with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
        mean = np.divide(total, weight, out=target)
    return (mean, weight) if returned else mean


def _plain_average(a: Field, axis: Axis, returned: bool, keepdims: bool) -> Any:
    with agreed(a.pencil.topology.comm, "average") as agree:
        returned = bool(returned)
        agree(**signature(a), weights=None, returned=returned)
    mean = reductions.mean(a, axis, keepdims=keepdims)
    if not returned:
        return mean
    count = prod(a.shape) / max(1, prod(mean.shape))
    if not isinstance(mean, Field):
        return mean, mean.dtype.type(count)
    weight = mean.blank()
    weight.fill(count)
    return mean, weight


def nansum(a: Field, *args: Any, **options: Any) -> Any:
    """Sum over all ranks, with NaN counted as zero. *Collective*, by one reduction.

    Parameters
    ----------
    a : PencilArray
        The field.
    axis, dtype, out, keepdims, initial, where
        As in `PencilArray.sum`.

    Returns
    -------
    scalar or PencilArray
        As of `PencilArray.sum`.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda i, j: np.where(i > 0, j, np.nan))
    >>> np.nansum(u), np.nanmax(u), np.nanmean(u)
    (np.float64(9.0), np.float64(2.0), np.float64(1.0))
    """
    return _nan_total("nansum", np.add, a, *args, **options)


def nanprod(a: Field, *args: Any, **options: Any) -> Any:
    """Multiply over all ranks, with NaN counted as one; else like `nansum`. *Collective*."""
    return _nan_total("nanprod", np.multiply, a, *args, **options)


def _nan_total(
    name: str,
    ufunc: np.ufunc,
    a: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    check_given(name, a, out)
    options: dict[str, Any] = {"initial": initial, "where": where, "ufunc": ufunc}
    of = _filling(a, ufunc.identity)
    return reduce_field(name, a, axis, dtype, out, keepdims, of=of, **options)


def nanmin(a: Field, *args: Any, **options: Any) -> Any:
    """Return the minimum over all ranks, ignoring NaN and NaT. *Collective*, by one reduction.

    Parameters as in `nansum`; as in NumPy, `where` needs `initial`. All ranks warn if a result is
    NaN because there is nothing else.
    """
    return _nan_extremum("nanmin", np.fmin, a, *args, **options)


def nanmax(a: Field, *args: Any, **options: Any) -> Any:
    """Return the maximum over all ranks, ignoring NaN and NaT; else like `nanmin`. *Collective*."""
    return _nan_extremum("nanmax", np.fmax, a, *args, **options)


def _nan_extremum(
    name: str,
    ufunc: np.ufunc,
    a: Field,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    check_given(name, a, out)
    options: dict[str, Any] = {"initial": initial, "where": where, "ufunc": ufunc}
    found = reduce_field(name, a, axis, None, out, keepdims, **options)
    if a.dtype.kind in "fcmM":
        missing = np.isnan(found.local if isinstance(found, Field) else found)
        if any_of(found, missing) if isinstance(found, Field) else missing:
            warn(_ALL_NAN, up=1)
    return found


def nanargmin(a: Field, *args: Any, **options: Any) -> Any:
    """Return the global position of the first minimum, with NaN counted as infinite. *Collective*.

    Parameters and results are those of `PencilArray.argmin`.

    Raises
    ------
    ArgumentError
        On all ranks, if some slice is all NaN, or there are no elements.
    """
    return _nan_position("nanargmin", np.inf, a, *args, **options)


def nanargmax(a: Field, *args: Any, **options: Any) -> Any:
    """Return the global position of the first maximum; else like `nanargmin`. *Collective*."""
    return _nan_position("nanargmax", -np.inf, a, *args, **options)


def _nan_position(
    name: str,
    worst: float,
    a: Field,
    axis: int | None = None,
    out: None = None,
    *,
    keepdims: bool = False,
) -> Any:
    check_given(name, a, out)
    if a.dtype.kind in "fc" and a.size:
        options: dict[str, Any] = {"dtype": np.bool, "ufunc": np.logical_and, "of": np.isnan}
        missing = reduce_field(name, a, axis, out=out, **options)
        if any_of(a, missing.local if isinstance(missing, Field) else missing):
            raise ArgumentError(f"{name}: {_ALL_NAN}")
    return arg_extremum(name, a, axis, out, keepdims=keepdims, of=_filling(a, worst))


def _filling(a: Field, value: float) -> Callable[[Array], Array] | None:
    """Return a function that replaces NaN in a block; None if the field cannot have any."""
    if a.dtype.kind not in "fc":
        return None

    def fill(block: Array) -> Array:
        missing = np.isnan(block)
        return np.where(missing, block.dtype.type(value), block) if missing.any() else block

    return fill


def nanmean(
    a: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Return the mean over all ranks, ignoring NaN. *Collective*, by two reductions.

    Parameters as in `nansum`. All ranks warn if a result is NaN because there is nothing else.
    """
    given: dict[str, Any] = {"axis": axis, "dtype": dtype, "out": out, "keepdims": keepdims}
    return _known("nanmean", "Mean of empty slice", a, where, 0, given)


def nanvar(a: Field, *args: Any, **options: Any) -> Any:
    """Return the variance over all ranks, ignoring NaN. *Collective*, by three reductions.

    Parameters
    ----------
    a, axis, dtype, out, keepdims, where
        As in `nansum`.
    ddof, correction : float, optional
        The divisor is the number of elements minus this; give one of them.
    mean : PencilArray or array_like, optional
        The mean with the reduced axes kept, like that of `nanmean` with ``keepdims=True``.

    Returns
    -------
    scalar or PencilArray
        As in `nansum`. Where the divisor is not positive the result is NaN, and all ranks warn.
    """
    return _nan_variance("nanvar", a, *args, **options)


def nanstd(a: Field, *args: Any, **options: Any) -> Any:
    """Return the square root of `nanvar`, with the same parameters. *Collective*."""
    return _nan_variance("nanstd", a, *args, **options)


def _nan_variance(
    name: str,
    a: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = NO_VALUE,
    correction: Any = NO_VALUE,
) -> Any:
    given: dict[str, Any] = {"axis": axis, "dtype": dtype, "out": out, "keepdims": keepdims}
    given |= {"ddof": ddof, "mean": mean, "correction": correction}
    least = ddof if correction is NO_VALUE else correction
    return _known(name, "Degrees of freedom <= 0 for slice.", a, where, least, given)


def _known(name: str, text: str, a: Field, where: Any, least: float, given: dict[str, Any]) -> Any:
    """Reduce elements that are not NaN; what is made of no more than `least` of them is NaN."""
    check_given(name, a, given["out"], given.get("mean"))
    reduce: Callable[..., Any] = getattr(reductions, name.removeprefix("nan"))
    if a.dtype.kind not in "fc":
        return reduce(a, **given, where=where)
    with agreed(a.pencil.topology.comm, name) as agree:
        agree(**signature(a), where=where is not True)
        dtype = given["dtype"]
        if dtype is not None and np.dtype(dtype).kind not in "fc":
            raise TypeError(f"dtype={np.dtype(dtype)} cannot hold a mean; give a float or complex")
        known = ~np.isnan(a.local)
        agree.flag(up=not known.all())
        if where is not True:
            known &= mask_part(where, a)
    if agree.flagged:
        where = as_field(known, None, a.pencil, a.singletons, a)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = reduce(a, **given, where=where)
    ours = [str(each.message).startswith(text) for each in caught]  # of all ranks
    for each, mine in zip(caught, ours, strict=True):
        if not mine:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if not any(ours):
        return found
    warn(text, up=1 + (name != "nanmean"))
    few = reductions.count_where(a, given["axis"], given["keepdims"], where) <= least
    return np.where(few, np.nan, found)[()]
