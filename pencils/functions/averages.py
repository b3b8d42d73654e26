"""Weighted averages over all ranks. *Collective*."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from pencils.array import reductions
from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.global_reduction import Axis, Reduction, any_of, reduce_field
from pencils.array.operands import signature
from pencils.comm.agree import agreed
from pencils.functions.arguments import check_given, facts_of, weights_part
from pencils.layout.integers import as_dims

_ZERO = "average: weights sum to zero, can't be normalized"


def average(
    a: Field,
    axis: Axis = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """Weighted average over all ranks. *Collective*, by two reductions.

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
    >>> import numpy as np
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

    options: dict[str, Any] = {"dtype": result, "keepdims": keepdims}
    weight = reduce_field("average", a, axis, of=lambda _: part, **options)
    own_weight = weight.local if isinstance(weight, Field) else weight
    if not a.size and any_of(a, own_weight == 0):  # no rank calls `products`
        raise ZeroDivisionError(_ZERO)

    def products(block: Array) -> Array:
        if (own_weight == 0).any():
            raise ZeroDivisionError(_ZERO)
        return np.multiply(block, part, dtype=result)

    total = reduce_field("average", a, axis, of=products, **options)
    target: Any = total if isinstance(total, Field) else None
    with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
        mean = np.divide(total, weight, out=target)
    return (mean, weight) if returned else mean


def _plain_average(a: Field, axis: Axis, returned: bool, keepdims: bool) -> Any:
    with agreed(a.pencil.topology.comm, "average") as agree:
        pair = bool(returned)
        agree(**signature(a), weights=None, returned=pair)
    mean = reductions.mean(a, axis, keepdims=keepdims)
    if not pair:
        return mean
    count = prod(a.shape) / max(1, prod(mean.shape))
    if not isinstance(mean, Field):
        return mean, mean.dtype.type(count)
    weight = mean.blank()
    weight.fill(count)
    return mean, weight


FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {np.average: average}
