"""Running sums along an axis of local arrays, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.line_program import (
    LineProgram,
    Rows,
    Step,
    Term,
    pieces,
    planes,
    prepare_lines,
)
from pencils.comm.pack import compiled

Array = NDArray[Any]


def prepare_running_sums(
    values: Array,
    sums: Array,
    axis: int,
    *,
    before: Array | None = None,
    after: Array | None = None,
    besides: int = 0,
) -> Sequence[Callable[[], object]]:
    """Prepare to add up values along an axis; call the results in their order.

    Parameters
    ----------
    values, sums : ndarray
        What is added up, and where the sums are written; float or complex, of one shape and type.
        They share no memory.
    axis : int
        The axis; contiguous ones are last.
    before, after : ndarray, optional
        A plane of what comes before the first values, read when the results are called; and one
        that becomes a copy of the last sums.
    besides : int, optional
        Bytes that other calls write before these sums are read. If all are too many for the cache,
        sums are written past it.
    """
    kernels, last = compiled(), sums.ndim - 1
    floats = sums.dtype.char in "fdFD" and sums.dtype.isnative
    contiguous = axis == last and values.strides[last] == sums.strides[last] == sums.itemsize
    if kernels is not None and floats and contiguous:
        return [partial(kernels.running_sums, sums, values, before, after, besides)]
    runs = _prepare_pieces(values, sums, axis, before, besides)
    if after is not None and sums.size:
        runs.append(partial(np.copyto, after, planes(sums, axis, -1, sums.shape[axis])))
    return runs


def _prepare_pieces(
    values: Array, sums: Array, axis: int, before: Array | None, besides: int
) -> list[Callable[[], None]]:
    """Prepare line programs, one for each piece of all lines."""
    runs = []
    for start, stop in pieces(values.shape[axis]):
        first = before if start == 0 else planes(sums, axis, start - 1, start)
        known = 0 if first is None else 1
        sources = [Rows(known, planes(values, axis, start, stop))]
        if first is not None:
            sources.append(Rows(0, first))
        target = Rows(known, planes(sums, axis, start, stop))
        program = _running_sums(known + stop - start)
        others = besides + sums.nbytes - target.array.nbytes
        runs.append(prepare_lines(program, sources, [target], axis, besides=others))
    return runs


@lru_cache(maxsize=64)
def _running_sums(rows: int) -> LineProgram:
    return LineProgram(rows, [Step(row, [Term(row - 1), Term(row)]) for row in range(1, rows)])
