"""Functions of single points, whose other arguments are tables that all ranks have: local."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pencils.array.allocation import Array, check_unmasked
from pencils.array.base import Field
from pencils.array.elementwise import elementwise, try_on_one
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray


def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Field:
    """Find where values of a field belong in sorted edges, as `numpy.searchsorted`.

    Parameters
    ----------
    a : array_like
        Edges, which all ranks have; no field.
    v : PencilArray
        The values.
    side, sorter
        As in `numpy.searchsorted`.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil(5), lambda i: i)
    >>> np.searchsorted([1, 3], u).local
    array([0, 0, 1, 1, 2])
    """
    edges = _table("searchsorted", "a", a, "numpy.sort(pencils.gather(a, root=None))")
    if sorter is not None:  # NumPy would look at as many of its numbers as own points need
        np.searchsorted(edges, np.asarray(edges)[:0], side, sorter)
        order = np.asarray(sorter)
        if ((order < 0) | (order >= order.size)).any():
            raise ValueError("numpy.searchsorted: sorter has an index out of range")
    return _of_one(lambda part: np.searchsorted(edges, part, side, sorter), v)


def digitize(x: Any, bins: Any, right: bool = False) -> Field:
    """Find the bins of values of a field, as `numpy.digitize`; all ranks have the bins."""
    edges = _table("digitize", "bins", bins, "pencils.gather(bins, root=None)")
    return _of_one(lambda part: np.digitize(part, edges, right), x)


def isin(element: Any, test_elements: Any, *args: Any, **options: Any) -> Field:
    """Find which values of a field are in a set, as `numpy.isin`; all ranks have the set."""
    given = _table("isin", "test_elements", test_elements, "numpy.unique(test_elements)")
    values = np.asarray(given)
    if isinstance(element, Field):  # NumPy may compare what has no common type if it is short
        common = np.result_type(element.dtype, values.dtype) if values.size else element.dtype
        values = values.astype(common)
    return _of_one(lambda part: np.isin(part, values, *args, **options), element)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Field:
    """Choose by the first of several conditions that is true, as `numpy.select`.

    Parameters
    ----------
    condlist : sequence of PencilArray or array_like of bool
        Conditions.
    choicelist : sequence of PencilArray or array_like
        Values, one entry for each condition.
    default : scalar, PencilArray or array_like, optional
        Values where no condition is true.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil(5), lambda i: i)
    >>> np.select([u < 1, u < 4], [-1, 10 * u], 99).local
    array([-1, 10, 20, 30, 99])
    """
    conditions, choices = list(condlist), list(choicelist)
    count = len(conditions)

    def choose(*parts: Any) -> Array:
        return np.select(parts[:count], parts[count:-1], parts[-1])

    return elementwise(choose, (*conditions, *choices, default), {})  # type: ignore[no-any-return]


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Field:
    """Apply a function to the points of each condition, as `numpy.piecewise`.

    Parameters
    ----------
    x : PencilArray
        Values that functions get.
    condlist : PencilArray, array_like of bool, or a sequence of these
        Where each function applies.
    funclist : sequence of callables or scalars
        Functions of the values of own points, which must not communicate: they run only on ranks
        that have such points. One more than conditions applies elsewhere.
    *args, **kw
        Further arguments of the functions.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil(5), lambda i: i - 2.0)
    >>> np.piecewise(u, [u < 0, u > 0], [-1, lambda values: 10 * values]).local
    array([-1., -1.,  0., 10., 20.])
    """
    several = isinstance(condlist, list | tuple) and not all(map(np.isscalar, condlist))
    if isinstance(condlist, np.ndarray):
        several = condlist.ndim > np.ndim(x)
    conditions = list(condlist) if several else [condlist]

    def choose(part: Any, *masks: Any) -> Array:
        values, *where = np.broadcast_arrays(part, *masks)
        return np.piecewise(
            values, [np.asarray(mask, bool) for mask in where], funclist, *args, **kw
        )

    return elementwise(choose, (x, *conditions), {})  # type: ignore[no-any-return]


def polyval(p: Any, x: Any) -> Field:
    """Evaluate a polynomial at values of a field, as `numpy.polyval`; all ranks have `p`."""
    coefficients = _table("polyval", "p", p, "pencils.gather(p, root=None)")
    return _of_one(lambda part: np.polyval(coefficients, part), x)


def fix(x: Any, out: Field | None = None) -> Any:
    """Round towards zero, as `numpy.fix`."""
    return elementwise(np.fix, (x,), {} if out is None else {"out": out})


def astype(x: Any, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None) -> Field:
    """Convert to another element type, as `numpy.astype`."""
    if device not in {None, "cpu"}:
        raise ValueError(f"device={device!r}: memory of NumPy is on 'cpu'")
    same = not copy and x.dtype == np.dtype(dtype)
    return x if same else x.astype(dtype)  # type: ignore[no-any-return]


def _table(name: str, argument: str, value: Any, instead: str) -> Any:
    """Return an argument that all ranks have whole, which no field is."""
    if isinstance(value, Field):
        raise TypeError(
            f"numpy.{name}: {argument} must be a NumPy array that all ranks have, not a "
            f"PencilArray; pass {instead}"
        )
    check_unmasked(value)
    return value


def _of_one(function: Callable[[Any], Any], u: Any) -> Field:
    def on_block(block: Any) -> Any:
        if not block.size:
            try_on_one(function, (block,), (u,))
        return function(block)

    return elementwise(on_block, (u,), {})  # type: ignore[no-any-return]


def own_points(mask: PencilArray) -> NDArray[np.int64]:
    """Return global indices of the own points where a boolean field is true; never communicates.

    Together the ranks have each point once: those of replicated dimensions belong to the first
    replica. The rows of all ranks are those of `numpy.argwhere` of the global array.

    Parameters
    ----------
    mask : PencilArray of bool
        The field.

    Returns
    -------
    numpy.ndarray of int64
        One row for each point, one column for each axis of ``mask.shape``, components first.

    Raises
    ------
    TypeError
        If `mask` is not a field of booleans.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: 10 * i + j)
    >>> pencils.functions.own_points(u % 10 == 1)
    array([[0, 1],
           [1, 1]])
    """
    check_type("mask", mask, PencilArray)
    if mask.dtype != bool:
        raise TypeError(
            f"mask must be boolean, not {mask.dtype}; write a comparison, as in u != 0 or u > 0"
        )
    if not mask.extent.layout.is_first_replica(mask.pencil.rank):
        return np.empty((0, mask.ndim), np.int64)
    return np.argwhere(mask.local).astype(np.int64) + np.array(mask.global_box.start, np.int64)
