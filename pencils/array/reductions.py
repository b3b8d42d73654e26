"""Reductions of fields over all ranks, with the signatures of NumPy. All are *Collective*.

Each rank reduces its own block, then the ranks combine their results: see `global_reduction`. Axes
of space that are reduced stay as singletons, so that the result broadcasts back; component axes
vanish as in NumPy; without `axis` the result is a NumPy scalar, the same on every rank.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array, real_type
from pencils.array.base import Field
from pencils.array.global_reduction import (
    NO_VALUE,
    Axis,
    Reduction,
    any_of,
    arg_extremum,
    mask_part,
    own_part,
    reduce_field,
)
from pencils.array.operands import signature
from pencils.comm.agree import agreed
from pencils.comm.reduce import native
from pencils.errors import ArgumentError


def sum(
    u: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    """Sum over all ranks, as `numpy.sum`. *Collective*.

    Parameters
    ----------
    u : PencilArray
        The field; replicas of singleton dimensions count once.
    axis : int or tuple of int, optional
        Axes of the global shape, default all.
    dtype : dtype, optional
        Type of the sum.
    out : None
        Not supported.
    keepdims : bool, optional
        Whether reduced component axes stay with extent 1; axes of space always do.
    initial : scalar, optional
        Start value.
    where : array_like or PencilArray of bool, optional
        Elements to include, as a global array or a field.

    Returns
    -------
    scalar or PencilArray
        A NumPy scalar, the same on every rank, if `axis` is not given; else a field.
    """
    return reduce_field("sum", u, axis, dtype, out, keepdims, initial=initial, where=where)


def prod(
    u: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    """Multiply over all ranks, as `numpy.prod`; parameters as in `sum`. *Collective*."""
    return reduce_field("prod", u, axis, dtype, out, keepdims, initial=initial, where=where)


def min(
    u: Field,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    """Return the minimum over all ranks, as `numpy.min`; parameters as in `sum`. *Collective*.

    A NaN anywhere wins. A field without elements, and `where`, need `initial`.
    """
    return reduce_field("min", u, axis, None, out, keepdims, initial=initial, where=where)


def max(
    u: Field,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    """Return the maximum over all ranks, as `numpy.max`; else like `min`. *Collective*."""
    return reduce_field("max", u, axis, None, out, keepdims, initial=initial, where=where)


def any(
    u: Field, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = True
) -> Any:
    """Return whether any element is true, on any rank; parameters as in `sum`. *Collective*."""
    return reduce_field("any", u, axis, None, out, keepdims, where=where)


def all(
    u: Field, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = True
) -> Any:
    """Return whether all elements are true, on all ranks; parameters as in `sum`. *Collective*."""
    return reduce_field("all", u, axis, None, out, keepdims, where=where)


def count_nonzero(u: Field, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Count the elements that are not zero, over all ranks. *Collective*."""
    options: dict[str, Any] = {"of": lambda block: block.astype(bool), "keep_as": "count_nonzero"}
    return reduce_field("count_nonzero", u, axis, np.intp, None, keepdims, **options)


def ptp(u: Field, axis: Axis = None, out: object = None, keepdims: bool = False) -> Any:
    """Return maximum minus minimum over all ranks, as `numpy.ptp`. *Collective*."""
    least, greatest = (
        reduce_field("ptp", u, axis, None, out, keepdims, ufunc=end, keep_as=f"ptp {end.__name__}")
        for end in (np.minimum, np.maximum)
    )
    with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
        return greatest - least


def mean(
    u: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Return the mean over all ranks, as `numpy.mean`; parameters as in `sum`. *Collective*."""
    result, count = _mean("mean", u, axis, dtype, out, keepdims, where)
    _warn_if_empty(u, count, "Mean of empty slice.")
    return result


def var(
    u: Field,
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
    """Return the variance over all ranks, as `numpy.var`. *Collective*.

    Parameters as in `sum`; the divisor is the number of elements minus `ddof`, or `correction`. The
    mean is computed first, which keeps digits if it is large. It may be passed as `mean`, with the
    reduced axes kept.
    """
    center: Any = None
    if mean is not NO_VALUE or correction is not NO_VALUE:
        with agreed(u.pencil.topology.comm, "var") as agree:
            agree(**signature(u), mean=mean is not NO_VALUE)
            ddof = corrected("var", ddof, correction)
            center = None if mean is NO_VALUE else own_part(mean, u)
    accumulate = _mean_dtype(u.dtype) if dtype is None else dtype
    options: dict[str, Any] = {"where": where}
    if center is None and axis is None and dtype is None and u.dtype != np.float16:
        center, _ = _mean("var", u, None, None, out, False, where)
        options["keep_as"] = f"var {ddof}" if type(ddof) is int else ""
    elif center is None:
        center = _mean("var", u, axis, accumulate, out, True, where)[0].local
    options |= {"of": _squares, "given": (center,), "same": {"ddof": ddof}}
    total = reduce_field("var", u, axis, real_type(np.dtype(accumulate)), None, keepdims, **options)
    left = count_where(u, axis, keepdims, where) - ddof
    if type(total) is not np.float64 or type(left) is not int:  # of other types as in NumPy
        left = np.maximum(left, 0)
    elif left < 0:
        left = 0
    result = _divided(total, left, u.dtype, accumulate, dtype)
    _warn_if_empty(u, left, "Degrees of freedom <= 0 for slice.")
    return result


def std(
    u: Field,
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
    """Return the square root of `var`, with the same parameters. *Collective*."""
    options: dict[str, Any] = {"where": where, "mean": mean, "correction": correction}
    square: Any = var(u, axis, dtype, out, ddof, keepdims, **options)
    out_square: Any = square if isinstance(square, Field) else None
    return np.sqrt(square, out=out_square)


def argmin(u: Field, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
    """Return the global position of the first minimum, as `numpy.argmin`. *Collective*.

    Parameters
    ----------
    u : PencilArray
        The field.
    axis : int, optional
        Axis along which to search; default: the flattened global array, in C order.
    out : None
        Not supported.
    keepdims : bool, optional
        As in `sum`.

    Returns
    -------
    int or PencilArray
        ``numpy.unravel_index(u.argmin(), u.shape)`` gives the global index.

    Raises
    ------
    ArgumentError
        If there are no elements.
    """
    return arg_extremum("argmin", u, axis, out, keepdims=keepdims)


def argmax(u: Field, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
    """Return the global position of the first maximum; like `argmin`. *Collective*."""
    return arg_extremum("argmax", u, axis, out, keepdims=keepdims)


def norm(u: Field, ord: float | None = None) -> Any:
    """Return the vector norm of all elements over all ranks. *Collective*.

    Parameters
    ----------
    u : PencilArray
        The field, taken as one long vector.
    ord : float, optional
        The p of the norm ``(sum |u|^p)^(1/p)``; ``inf`` for the largest modulus; 0 counts the
        elements that are not zero. Default 2.

    Returns
    -------
    scalar
        The norm, the same on every rank.
    """
    return norm_of("norm", u, ord, {})


def norm_of(name: str, u: Field, ord: float | None, same: Mapping[str, object]) -> Any:
    """Do what `norm` does for a function `name`, which has the arguments `same`. *Collective*."""
    order: Any = 2 if ord is None else ord
    known = largest = smallest = is_half = False
    with suppress(Exception):  # what raises here is no number, either
        if isinstance(order, int | float | np.number):
            largest, smallest, known = order == np.inf, order == -np.inf, True
            is_half = bool(u.dtype == np.float16 and order == 2)  # noqa: PLR2004
    ufunc = np.maximum if largest else np.minimum if smallest else np.add
    real = real_type(u.dtype)
    if u.dtype.kind in "biu" or is_half:  # room for the modulus, or the square, of any value
        real = np.dtype(np.float32 if is_half else float)

    def powers(block: Array) -> Array:
        if not known:  # raises inside the agreement of all ranks
            raise TypeError(f"norm with ord={order!r}: give a number, inf, -inf or None")
        values = block if block.dtype.kind == "c" else block.astype(real, copy=False)
        if order == 2:  # noqa: PLR2004
            return _square_modulus(values)
        if order == 0:
            return values.astype(bool)
        modulus = np.abs(values)
        return np.asarray(modulus if largest or smallest else modulus**order)

    options: dict[str, Any] = {"ufunc": ufunc, "of": powers, "same": {**same, "ord": order}}
    total = reduce_field(name, u, dtype=real, keep_as="" if ord is not None else name, **options)
    if order == 2:  # noqa: PLR2004
        return np.sqrt(total.astype(np.float16) if is_half else total)
    if largest or smallest or order == 0:
        return total
    return total ** np.reciprocal(order, dtype=np.dtype(total.dtype))  # with all digits of the type


def corrected(name: str, ddof: float, correction: Any) -> float:
    """Return what is subtracted from the number of elements: one of both names may be given."""
    if correction is NO_VALUE:
        return ddof
    if ddof != 0:
        raise ArgumentError(f"{name}: ddof={ddof} and correction= mean the same; give one")
    return correction  # type: ignore[no-any-return]


def _mean(
    name: str, u: Field, axis: Axis, dtype: DTypeLike | None, out: None, keepdims: bool, where: Any
) -> tuple[Any, Any]:
    """Return means, and the number of elements behind each. *Collective*."""
    accumulate = _mean_dtype(u.dtype) if dtype is None else dtype
    options: dict[str, Any] = {"where": where, "keep_as": name if dtype is None else ""}
    total = reduce_field(name, u, axis, accumulate, out, keepdims, **options)
    count = count_where(u, axis, keepdims, where)
    return _divided(total, count, u.dtype, accumulate, dtype), count


def count_where(u: Field, axis: Axis, keepdims: bool, where: Any) -> Any:
    """Return the number of elements behind each result."""
    if where is True:
        return u.size if axis is None else Reduction.of("count", u, axis, None, keepdims).count
    mask: Any = lambda _: mask_part(where, u)  # noqa: E731
    return reduce_field("count", u, axis, np.intp, None, keepdims, of=mask)


def _divided(
    total: Any, count: Any, dtype: np.dtype[Any], accumulated: DTypeLike, wanted: DTypeLike | None
) -> Any:
    """Divide, and convert to the type in which NumPy returns a mean, or the real part of it.

    Division is in place if the type stays: an allocation could fail on one rank only. Nothing
    warns: only some ranks might take warnings for errors.
    """
    if type(total) is np.float64 and type(count) is int and count > 0 and wanted is None:
        return np.float64(float(total) / count)  # the same bits
    in_place = isinstance(total, Field) and total.dtype.kind in "fc" and np.ndim(count) == 0
    half = wanted is None and dtype == np.float16
    final = native(np.dtype(np.float16 if half else accumulated))
    with np.errstate(all="ignore"):
        result = np.divide(total, count, out=total) if in_place else total / count
        final = final if result.dtype.kind == "c" else real_type(final)
        return result.astype(final) if result.dtype != final else result


def _warn_if_empty(u: Field, count: Any, text: str) -> None:
    """Warn on all ranks if there is no element behind some result. *Collective* for a field."""
    empty = any_of(u, count.local == 0) if isinstance(count, Field) else count == 0
    if empty:
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _squares(block: Array, center: Any) -> Array:
    away = np.asarray(block - center)
    return _square_modulus(away) if away.dtype.kind == "c" else np.multiply(away, away, out=away)


def _square_modulus(block: Array) -> Array:
    if block.dtype.kind == "c":
        return np.asarray(block.real**2 + block.imag**2)
    return np.asarray(block * block)


@cache
def _mean_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in which a mean is accumulated, as in NumPy."""
    if dtype.kind in "biu":
        return np.dtype(float)
    return np.dtype(np.float32) if dtype == np.float16 else native(dtype)
