"""Reductions over the whole field: each rank reduces its own block, then the ranks combine.

All functions here are *Collective*. Axes of space that are reduced stay as singletons, so that the
result broadcasts back; component axes vanish as in NumPy; no axis at all gives a NumPy scalar, the
same on every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.reductions.engine import NO_VALUE, Axis, Reduction, read_mask, reduce_field
from pencils.array.reductions.extremum import arg_extremum


def sum(
    field: Field,
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
    field : PencilArray
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
    return reduce_field(
        "sum",
        np.add,
        field,
        axis,
        keepdims=keepdims,
        dtype=dtype,
        out=out,
        initial=initial,
        where=where,
    )


def prod(
    field: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    """Product over all ranks, as `numpy.prod`; parameters as in `sum`. *Collective*."""
    return reduce_field(
        "prod",
        np.multiply,
        field,
        axis,
        keepdims=keepdims,
        dtype=dtype,
        out=out,
        initial=initial,
        where=where,
    )


def min(
    field: Field,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    """Minimum over all ranks, as `numpy.min`: a NaN anywhere wins. *Collective*.

    Parameters as in `sum`.

    Raises
    ------
    ArgumentError
        If there are no elements and no `initial`.
    """
    return reduce_field(
        "min", np.minimum, field, axis, keepdims=keepdims, out=out, initial=initial, where=where
    )


def max(
    field: Field,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    """Maximum over all ranks, as `numpy.max`: a NaN anywhere wins. *Collective*.

    Parameters as in `sum`.

    Raises
    ------
    ArgumentError
        If there are no elements and no `initial`.
    """
    return reduce_field(
        "max", np.maximum, field, axis, keepdims=keepdims, out=out, initial=initial, where=where
    )


def any(
    field: Field,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Whether any element is true, on any rank; parameters as in `sum`. *Collective*."""
    return reduce_field("any", np.logical_or, field, axis, keepdims=keepdims, out=out, where=where)


def all(
    field: Field,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Whether all elements are true, on all ranks; parameters as in `sum`. *Collective*."""
    return reduce_field("all", np.logical_and, field, axis, keepdims=keepdims, out=out, where=where)


def count_nonzero(field: Field, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Count the elements that are not zero, over all ranks. *Collective*."""
    return reduce_field(
        "count_nonzero",
        np.add,
        field,
        axis,
        keepdims=keepdims,
        dtype=np.intp,
        of=lambda block: block.astype(bool),
    )


def ptp(field: Field, axis: Axis = None, out: None = None, keepdims: bool = False) -> Any:
    """Return maximum minus minimum over all ranks, as `numpy.ptp`. *Collective*."""
    return max(field, axis, out, keepdims) - min(field, axis, out, keepdims)


def mean(
    field: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Mean over all ranks, as `numpy.mean`; parameters as in `sum`. *Collective*."""
    return _mean("mean", field, axis, dtype, keepdims=keepdims, out=out, where=where)


def _mean(
    name: str,
    field: Field,
    axis: Axis,
    dtype: DTypeLike | None,
    *,
    keepdims: bool,
    out: None,
    where: Any,
) -> Any:
    accumulate = _mean_dtype(field.dtype) if dtype is None else dtype
    total = reduce_field(
        name, np.add, field, axis, keepdims=keepdims, dtype=accumulate, out=out, where=where
    )
    result = _divided(total, _count(field, axis, keepdims=keepdims, where=where))
    return _as_type(result, _returned(field.dtype, accumulate, dtype))


def _divided(total: Any, count: Any) -> Any:
    """Divide; in place if that changes no type: one rank alone may have no memory for more."""
    floats = isinstance(total, Field) and total.dtype.kind in "fc" and np.ndim(count) == 0
    return np.divide(total, count, out=total) if floats else total / count


def var(
    field: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Variance over all ranks, as `numpy.var`. *Collective*.

    Parameters as in `sum`; the divisor is the number of elements minus `ddof`. The mean is taken
    first, so that large means do not cost digits.
    """
    accumulate = _mean_dtype(field.dtype) if dtype is None else dtype
    center = _mean("var", field, axis, accumulate, keepdims=True, out=out, where=where)
    total = reduce_field(
        "var",
        np.add,
        field,
        axis,
        keepdims=keepdims,
        dtype=_real(np.dtype(accumulate)),
        where=where,
        of=lambda block: _square_modulus(block - center.local),
        same={"ddof": ddof},
    )
    count = _count(field, axis, keepdims=keepdims, where=where)
    result = _divided(total, np.maximum(count - ddof, 0))
    return _as_type(result, _real(_returned(field.dtype, accumulate, dtype)))


def std(
    field: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Return the square root of `var`, with the same parameters. *Collective*."""
    square: Any = var(field, axis, dtype, out, ddof, keepdims, where=where)
    out_square: Any = square if isinstance(square, Field) else None
    return np.sqrt(square, out=out_square)


def argmin(
    field: Field, axis: int | None = None, out: None = None, *, keepdims: bool = False
) -> Any:
    """Global position of the first minimum, as `numpy.argmin`. *Collective*.

    Parameters
    ----------
    field : PencilArray
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
    return arg_extremum("argmin", np.less, field, axis, out=out, keepdims=keepdims)


def argmax(
    field: Field, axis: int | None = None, out: None = None, *, keepdims: bool = False
) -> Any:
    """Global position of the first maximum; like `argmin`. *Collective*."""
    return arg_extremum("argmax", np.greater, field, axis, out=out, keepdims=keepdims)


def norm(field: Field, ord: float | None = None) -> Any:
    """Vector norm of all elements over all ranks. *Collective*.

    Parameters
    ----------
    field : PencilArray
        The field, taken as one long vector.
    ord : float, optional
        The p of the norm ``(sum |u|^p)^(1/p)``; ``inf`` for the largest modulus; 0 counts the
        elements that are not zero. Default 2.

    Returns
    -------
    scalar
        The norm, the same on every rank.
    """
    order: Any = 2 if ord is None else ord
    if not isinstance(order, int | float | np.number):  # then it fails where all ranks notice
        return _reduce_real(np.add, field, lambda block: _power(block, order), order)
    if order == 2:  # noqa: PLR2004
        return np.sqrt(_reduce_real(np.add, field, _square_modulus, order))
    if order in (np.inf, -np.inf):
        ufunc = np.maximum if order > 0 else np.minimum
        return _reduce_real(ufunc, field, np.abs, order)
    if order == 0:
        return _reduce_real(np.add, field, lambda block: block.astype(bool), order)
    return _reduce_real(np.add, field, lambda block: _power(block, order), order) ** (1 / order)


def _power(block: Array, order: object) -> Array:
    if not isinstance(order, int | float | np.number):
        msg = f"norm with ord={order!r}: give a number, inf, -inf or None"
        raise TypeError(msg)
    return np.asarray(np.abs(block) ** order)


def _reduce_real(ufunc: np.ufunc, field: Field, of: Callable[[Array], Array], order: object) -> Any:
    """Reduce something that is computed of each element and real."""
    values = _inexact(field)
    kind = _real(values.dtype)
    return reduce_field("norm", ufunc, values, None, dtype=kind, of=of, same={"ord": order})


def _inexact(field: Field) -> Field:
    """Field with room for the modulus of any of its values."""
    return field.astype(float) if field.dtype.kind in "biu" else field


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type of real and imaginary parts."""
    return np.empty(0, dtype).real.dtype


def _square_modulus(block: Array) -> Array:
    if block.dtype.kind == "c":
        return np.asarray(block.real**2 + block.imag**2)
    return np.asarray(block * block)


def _mean_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in which a mean is accumulated, as in NumPy."""
    if dtype.kind in "biu":
        return np.dtype(float)
    return np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")


def _returned(
    dtype: np.dtype[Any], accumulated: DTypeLike, wanted: DTypeLike | None
) -> np.dtype[Any]:
    """Type in which a mean is returned, as in NumPy."""
    if wanted is None and dtype == np.float16:
        return np.dtype(np.float16)
    return np.dtype(accumulated).newbyteorder("=")


def _as_type(result: Any, dtype: np.dtype[Any]) -> Any:
    return result.astype(dtype) if result.dtype != dtype else result


def _count(field: Field, axis: Axis, *, keepdims: bool, where: Any) -> Any:
    """Return the number of elements behind each result."""
    if where is True:
        return Reduction.read("count", field, axis, keepdims=keepdims, out=None).count
    return reduce_field(
        "count",
        np.add,
        field,
        axis,
        keepdims=keepdims,
        dtype=np.intp,
        of=lambda _: read_mask(where, field),
    )
