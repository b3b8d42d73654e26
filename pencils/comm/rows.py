"""Find points by their coordinates, and move rows of arrays: compiled, or by NumPy.

The implementation is that of copies, see `pencils.comm.pack`. No function here checks whether
numbers and coordinates are within bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm.memory import address
from pencils.comm.pack import compiled

Array = NDArray[Any]
Ints = NDArray[np.int64]

_FEW = 2048  # bytes that NumPy may allocate while items are moved


class Points(NamedTuple):
    """Points on a process grid; every field but the last has an entry for each dimension."""

    coords: tuple[Ints, ...]  # contiguous coordinates of all points
    cuts: tuple[Ints, ...]  # part p of the dimension holds cuts[p] .. cuts[p + 1] - 1
    steps: tuple[int, ...]  # difference between the owners of adjacent parts
    first: int  # owner of the first part along all dimensions

    @property
    def number(self) -> int:
        """Number of points."""
        return len(self.coords[0])

    def part(self, some: slice) -> Points:
        """Return some of the points."""
        return self._replace(coords=tuple(index[some] for index in self.coords))


def mover(target: Array, to: Ints | None, source: Array, rows: Ints | None) -> Callable[[], None]:
    """Prepare to move items: ``target[to] = source[rows]``, on the first axis.

    Arrays have one axis or two, and items of the same size. Row numbers are contiguous; None means
    all rows in order.
    """
    kernels = compiled()
    if kernels is not None:
        return partial(kernels.move, target, to, source, rows)
    room = None
    strided = to is not None or not target.flags.c_contiguous
    if rows is not None and strided and source.flags.c_contiguous:
        room = np.empty((len(rows), *target.shape[1:]), target.dtype)
    return partial(_move, target, to, source.view(target.dtype), rows, room)


def move(target: Array, to: Ints | None, source: Array, rows: Ints | None) -> None:
    """Move items at once; see `mover`."""
    kernels = compiled()
    if kernels is None:
        mover(target, to, source, rows)()
    else:
        kernels.move(target, to, source, rows)


def locate(points: Points, room: Sequence[Ints] | None = None) -> tuple[Ints, Ints]:
    """Find the owner of each point, and its number in the block there; the last axis is fastest.

    `room` are two arrays to write them to.
    """
    owners, offsets = np.empty((2, points.number), np.int64) if room is None else room
    kernels = compiled()
    if kernels is not None:
        kernels.locate(*points, owners, offsets)
        return owners, offsets
    owners[:], offsets[:] = points.first, 0
    for index, cuts, step in zip(points.coords, points.cuts, points.steps, strict=True):
        part = part_of(cuts, index)
        owners += part * step
        offsets *= cuts[part + 1] - cuts[part]
        offsets += index - cuts[part]
    return owners, offsets


def sort(owners: Ints, size: int) -> tuple[Ints, Ints]:
    """Sort numbers by owner, stably; return them, and where those of each of `size` owners end."""
    order, ends = np.empty(len(owners), np.int64), np.empty(size, np.int64)
    sort_to(owners, ends, order)
    return order, ends


def sort_to(owners: Ints, ends: Ints, order: Ints) -> None:
    """Write what `sort` returns."""
    kernels = compiled()
    if kernels is not None:
        kernels.sort(owners, ends, order)
        return
    narrow = owners.astype(np.min_scalar_type(len(ends) - 1))  # short integers are sorted by radix
    order[:] = np.argsort(narrow, kind="stable")
    np.cumsum(np.bincount(owners, minlength=len(ends)), out=ends)


def fetch(points: Points, homes: Sequence[tuple[Array, Sequence[int]]], target: Array) -> None:
    """Read points from the blocks of their owners; compiled only.

    `homes` has the block of every rank, and the coordinates of its first point.
    """
    kernels = compiled()
    assert kernels is not None  # NumPy would allocate memory while other ranks wait
    table = []  # addresses that points with all coordinates 0 would have, and strides
    for block, start in homes:
        ahead = sum(at * stride for at, stride in zip(start, block.strides, strict=True))
        table.append([address(block) - ahead, *block.strides])
    kernels.fetch(*points, np.array(table, np.int64), target)


def part_of(cuts: Ints, index: Ints) -> Ints:
    """Return the block that holds each index: block ``p`` is ``cuts[p] .. cuts[p + 1] - 1``.

    Examples
    --------
    >>> part_of(np.array([0, 2, 2, 5]), np.array([4, 0, 2]))
    array([2, 0, 2])
    """
    return np.searchsorted(cuts, index, side="right") - 1


# ---- by NumPy ----


def _move(
    target: Array, to: Ints | None, source: Array, rows: Ints | None, room: Array | None
) -> None:
    if rows is not None and source.flags.c_contiguous:
        taken = target if room is None else room
        source = np.take(source, rows, 0, out=taken, mode="clip")
    elif rows is not None:
        # np.take would copy the whole source. A few items at a time need little memory, so that no
        # allocation fails on this rank while others wait.
        few = max(1, _FEW // max(1, target[:1].nbytes))
        for start in range(0, len(rows), few):
            some = slice(start, start + few)
            target[some if to is None else to[some]] = source[rows[some]]
        return
    if source is not target:
        target[... if to is None else to] = source
