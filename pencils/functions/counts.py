"""How often values occur on all ranks, and which own points a mask selects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.operands import check_type, signature
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.reduce import carried_total, combine, reducer
from pencils.errors import ArgumentError
from pencils.functions.arguments import check_given, facts_of, own_values, own_weights

_Distinct = tuple[Array, Array | None]  # distinct values, and how often they occur


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
    >>> import numpy as np
    >>> import pencils
    >>> np.bincount(pencils.from_function(pencils.Pencil((4, 3)), lambda i, j: i + j, dtype=int))
    array([1, 2, 3, 3, 2, 1])
    """
    check_given("bincount", x, weights, parameter="x")
    comm = x.pencil.topology.comm
    with agreed(comm, "bincount") as agree:
        agree(**signature(x), minlength=minlength)
        agree(weights=None if weights is None else facts_of(weights))
        np.bincount(np.zeros(1, x.dtype), minlength=minlength)  # NumPy checks arguments
        values = own_values(x, x.local)
        least, most = (int(values.min()), int(values.max())) if values.size else (0, -1)
        if least < 0:
            raise ArgumentError(f"bincount of {least}: values must not be negative")
        part = None if weights is None else own_values(x, own_weights(weights, x))
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
    """Distinct values of all ranks, in order. *Collective*; ranks combine their distinct values.

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
    >>> import numpy as np
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
    """Distinct values of all ranks, in order, each NaN one of them. *Collective*; see `unique`."""
    values, _ = _distinct("unique_values", x, counted=False, equal_nan=False)
    return values


def unique_counts(x: Field) -> Any:
    """Distinct values of all ranks and their counts; else like `unique_values`. *Collective*."""
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
                f"{name} of a PencilArray takes no {refused[0]}=: give return_counts= only; for "
                "the places of a value take numpy.nonzero(u.local == value)"
            )
        mine = _own_distinct(u, counted=counted, equal_nan=equal_nan)
    if comm.size == 1:
        return mine

    values, counts = combine(comm, mine, lambda one, other: _merged(one, other, equal_nan))
    return values.astype(mine[0].dtype, copy=False), counts


def _own_distinct(u: Field, *, counted: bool, equal_nan: bool) -> _Distinct:
    values = own_values(u, u.local)
    if not counted:
        return np.unique(values, equal_nan=equal_nan), None
    return np.unique(values, return_counts=True, equal_nan=equal_nan)


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


def own_points(mask: PencilArray) -> NDArray[np.int64]:
    """Global indices of the own points at which a boolean field is true; never communicates.

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
        raise TypeError(f"mask must be a field of bool, not of {mask.dtype}; write u != 0 or u > 0")
    if not mask.extent.layout.is_first_replica(mask.pencil.rank):
        return np.empty((0, mask.ndim), np.int64)
    return np.argwhere(mask.local).astype(np.int64) + np.array(mask.global_box.start, np.int64)
