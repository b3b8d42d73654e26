"""Positions of points that a mask selects."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray


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
    >>> pencils.own_points(u % 10 == 1)
    array([[0, 1],
           [1, 1]])
    """
    check_type("mask", mask, PencilArray)
    if mask.dtype != bool:
        raise TypeError(f"mask must be a field of bool, not of {mask.dtype}; write u != 0 or u > 0")
    if not mask.extent.layout.is_first_replica(mask.pencil.rank):
        return np.empty((0, mask.ndim), np.int64)
    return np.argwhere(mask.local).astype(np.int64) + np.array(mask.global_box.start, np.int64)
