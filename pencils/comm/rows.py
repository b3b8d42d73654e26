"""Rows of arrays by their numbers, and points by their coordinates: compiled, or by NumPy.

Which of both is chosen like that of copies, see `pencils.comm.pack`. Nothing here checks whether
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
    """Points on a process grid; every field but the last has an entry for each dimension.

    Parameters
    ----------
    coords : tuple of numpy.ndarray
        Contiguous coordinates of all points along a dimension.
    cuts : tuple of numpy.ndarray
        How it is cut: part ``p`` holds ``cuts[p] .. cuts[p + 1] - 1``.
    steps : tuple of int
        How far apart the owners of neighbouring parts are.
    first : int
        Owner of the first part along all dimensions.
    """

    coords: tuple[Ints, ...]
    cuts: tuple[Ints, ...]
    steps: tuple[int, ...]
    first: int

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.coords[0])


class Home(NamedTuple):
    """The points of one owner: an axis for each dimension, the first of which are at `start`."""

    block: Array
    start: Sequence[int]


def mover(target: Array, to: Ints | None, source: Array, rows: Ints | None) -> Callable[[], None]:
    """Prepare to move some items: ``target[to] = source[rows]``, on the first axis.

    Parameters
    ----------
    target, source : numpy.ndarray
        Arrays of one axis, or two, with items of the same size.
    to, rows : numpy.ndarray, optional
        Contiguous numbers of items; None stands for all of them in turn.
    """
    kernels = compiled()
    if kernels is not None:
        return partial(kernels.move, target, to, source, rows)
    room = None
    strided = to is not None or not target.flags.c_contiguous
    if rows is not None and strided and source.flags.c_contiguous:
        room = np.empty((len(rows), *target.shape[1:]), target.dtype)
    return partial(_move, target, to, source.view(target.dtype), rows, room)


def locate(points: Points) -> tuple[Ints, Ints]:
    """Find the owner of each point, and its number in the block there; the last axis is fastest."""
    owners, offsets = np.empty((2, points.number), np.int64)
    kernels = compiled()
    if kernels is None:
        _locate(points, owners, offsets)
    else:
        kernels.locate(*points, owners, offsets)
    return owners, offsets


def sort(owners: Ints, size: int) -> tuple[Ints, Ints]:
    """Sort numbers by their owner, stably.

    Returns
    -------
    order, ends : numpy.ndarray
        The numbers in their new order, and where those of each of `size` owners end.
    """
    order, ends = np.empty(len(owners), np.int64), np.empty(size, np.int64)
    kernels = compiled()
    (_sort if kernels is None else kernels.sort)(owners, ends, order)
    return order, ends


def fetcher(points: Points, homes: Sequence[Home], target: Array) -> Callable[[], None]:
    """Prepare to read points in the blocks of their owners, one for each rank; compiled only."""
    kernels = compiled()
    assert kernels is not None  # NumPy would allocate memory while other ranks wait
    table = np.array([_row(*home) for home in homes], np.int64)
    return partial(_held, homes, partial(kernels.fetch, *points, table, target))


def part_of(cuts: Ints, index: Ints) -> Ints:
    """Return the block that holds each index: block ``p`` is ``cuts[p] .. cuts[p + 1] - 1``.

    Examples
    --------
    >>> part_of(np.array([0, 2, 2, 5]), np.array([4, 0, 2]))
    array([2, 0, 2])
    """
    return np.searchsorted(cuts, index, side="right") - 1


def _row(block: Array, start: Sequence[int]) -> list[int]:
    """Where the point with all coordinates 0 would lie, and the strides."""
    ahead = sum(at * stride for at, stride in zip(start, block.strides, strict=True))
    return [address(block) - ahead, *block.strides]


def _held(_homes: object, call: Callable[[], None]) -> None:
    """Call what needs memory that is held meanwhile."""
    call()


# ---- by NumPy ----


def _move(
    target: Array, to: Ints | None, source: Array, rows: Ints | None, room: Array | None
) -> None:
    if rows is not None and source.flags.c_contiguous:
        taken = target if room is None else room
        source = np.take(source, rows, 0, out=taken, mode="clip")
    elif rows is not None:
        # np.take would copy all of the source. A few items at a time need no memory to speak of:
        # it could be missing on this rank only, while others wait.
        few = max(1, _FEW // max(1, target[:1].nbytes))
        for start in range(0, len(rows), few):
            some = slice(start, start + few)
            target[some if to is None else to[some]] = source[rows[some]]
        return
    if source is not target:
        target[... if to is None else to] = source


def _locate(points: Points, owners: Ints, offsets: Ints) -> None:
    owners[:], offsets[:] = points.first, 0
    for index, cuts, step in zip(points.coords, points.cuts, points.steps, strict=True):
        part = part_of(cuts, index)
        owners += part * step
        offsets *= cuts[part + 1] - cuts[part]
        offsets += index - cuts[part]


def _sort(owners: Ints, ends: Ints, order: Ints) -> None:
    narrow = owners.astype(np.min_scalar_type(len(ends) - 1))  # short integers go by radix
    order[:] = np.argsort(narrow, kind="stable")
    np.cumsum(np.bincount(owners, minlength=len(ends)), out=ends)
