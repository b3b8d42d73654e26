"""Products by the BLAS, in parts so small that it starts no threads.

By default each rank's BLAS has a thread for every core of the node. Where threads of several ranks
compete for the cores, a product takes tens of milliseconds instead of some microseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# OpenBLAS starts threads for vectors of more than 10,000 elements, and for matrices with more than
# 2**18 products of elements.
_ROW = 2048
_PRODUCTS = 2**17


def dot(left: Array, right: Array) -> Any:
    """Return what `numpy.vdot` returns of two arrays of one shape, whose last axis is the fastest.

    Sums of short rows are added pairwise, so that many elements round as few do. Half precision
    is added up in single precision, which is the type of the result.
    """
    kind = np.result_type(left, right)
    if kind == np.float16:
        left, right = left.astype(np.float32), right.astype(np.float32)
    elif left.size <= _ROW or kind.char not in "fdFD":
        return np.vdot(left, right)
    if left.flags.c_contiguous and right.flags.c_contiguous:
        left, right = left.reshape(-1), right.reshape(-1)
    rows = left.shape[-1] // _ROW
    shape = (*left.shape[:-1], rows, _ROW)
    whole = (each[..., : rows * _ROW].reshape(shape) for each in (left, right))
    rest = (each[..., rows * _ROW :] for each in (left, right))
    with np.errstate(all="ignore"):  # the BLAS warns of nothing
        return np.vecdot(*whole).sum() + np.vecdot(*rest).sum()


def multiply(matrix: Array, columns: Array, out: Array) -> None:
    """Multiply a small matrix and a matrix of many columns, some of them at once."""
    some = max(1, _PRODUCTS // max(1, matrix.size))
    for start in range(0, columns.shape[1], some):
        part = slice(start, start + some)
        np.matmul(matrix, columns[:, part], out=out[:, part])
