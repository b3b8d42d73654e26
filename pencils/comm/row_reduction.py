"""Reductions of all values of a block, some of them at a time, with the bits of NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pencils.comm.formulas import DType
from pencils.comm.reduce import ADDS_AS_ONE, block_reducer
from pencils.comm.row_builder import Array, Shape

# Doubles that a sum of doubles takes until it is complete; the count of elements and the sum come
# first, and then integers that tell whether an addition raised these exceptions.
_ROOM, _RAISED = 264, (2, 8)
_ROUNDING = np.add, np.multiply


class BlockReduction(NamedTuple):
    """All values of a block, combined as NumPy combines those of a contiguous one."""

    ufunc: np.ufunc
    dtype: DType  # of the result
    start: Any  # what changes no result
    axes: tuple[int, ...]  # from the slowest to the fastest: their order decides on digits of sums

    def block(self, shape: Shape) -> Array:
        """Return a block with this order of axes."""
        ordered = np.empty([shape[axis] for axis in self.axes], self.dtype)
        return ordered.transpose(np.argsort(self.axes))

    def of(self, block: Array) -> Array:
        """Reduce a block."""
        ordered = np.ascontiguousarray(block.transpose(self.axes))
        found = block_reducer(self.ufunc, self.dtype)(ordered) if block.size else self.start
        return np.asarray(found, self.dtype)

    @property
    def is_rounded(self) -> bool:
        """Whether the order of elements decides on the result."""
        return self.ufunc in _ROUNDING and self.dtype.kind in "fc"

    def beginning(self, count: int, *, in_order: bool) -> Array | None:
        """Return the first value of the result, if the elements can be added some at a time."""
        if not self.is_rounded:
            return np.full(1, self.start, self.dtype)
        in_pass = self.ufunc is np.add and self.dtype == np.dtype(float) and in_order
        if not in_pass or not ADDS_AS_ONE:
            return None
        state = np.zeros(_ROOM)
        state.view(np.int64)[0] = count
        return state


def end_of(state: Array) -> tuple[Array, int]:
    """Return the result that began as `beginning`, and exceptions that additions have raised."""
    if state.size == 1:
        return state, 0
    raised = zip(_RAISED, state[2:4].view(np.int64), strict=True)
    bits = 0 if np.isfinite(state[1]) else sum(bit for bit, up in raised if up)
    return state[1:2], bits
