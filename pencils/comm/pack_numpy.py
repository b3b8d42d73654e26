"""Copies between strided blocks of memory by NumPy alone, faster than `numpy.copyto` left alone.

Two tricks, exact for every dtype without Python objects. *Runs*: what is contiguous on both sides
is copied as one item. *Lines*: a changed memory order goes through a block in the cache, into which
items of a few cache lines are gathered, and out of which single elements are picked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm.memory import restrided

Array = NDArray[Any]
Step = tuple[Array, Array]

SMALL = 4096  # bytes; preparing takes longer than copying these
LONGEST_ITEM = 4096  # bytes; longer runs gain nothing
ITEM = 128  # bytes of a line
SCRATCH = 1 << 20  # bytes of the block in the cache
WORTH_LINES = 1 << 18  # bytes; the source of a smaller copy stays in the cache by itself
FAR, CROWDED = 4096, 1024  # strides from which, or at multiples of which, it does not

# Items that NumPy copies by one move are integers for it, or complex numbers.
MOVES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def copy(target: Array, source: Array) -> None:
    """Copy `source` into `target`: see `pencils.comm.pack.copy`."""
    check(target, source)
    if target.nbytes <= SMALL:
        np.copyto(target, source)
    else:
        Copies([(target, source)])()


class Copies:
    """Prepared copies: see `pencils.comm.pack.Copies`."""

    __slots__ = ("__weakref__", "_steps")

    def __init__(self, pairs: Sequence[tuple[Array, Array]]) -> None:
        self._steps: list[Step] = []
        for target, source in pairs:
            check(target, source)
            for step in steps(target, source):
                self._steps += _buffered(*step)

    def __call__(self) -> None:
        """Copy every source, as it is now, into its target."""
        for target, source in self._steps:
            np.copyto(target, source)


def _buffered(target: Array, source: Array) -> list[Step]:
    """Copy through a buffer if NumPy would allocate one for each copy: it could fail then."""
    if target.ndim < 2 or not np.may_share_memory(target, source):  # noqa: PLR2004
        return [(target, source)]
    buffer = np.empty(source.shape, source.dtype)
    return [(buffer, source), (target, buffer)]


def check(target: Array, source: Array) -> None:
    """Raise unless `target` can take `source` as it is."""
    if target.shape != source.shape or target.itemsize != source.itemsize:
        msg = (
            f"a target of shape {target.shape} cannot take a source of shape {source.shape}: "
            "shapes and item sizes have to be the same"
        )
        raise ValueError(msg)
    if not target.flags.writeable:
        msg = "the target is read-only"
        raise ValueError(msg)


def steps(target: Array, source: Array) -> Iterator[Step]:
    """Yield the calls of `numpy.copyto` that make up one copy."""
    if target.nbytes == 0:
        return
    target, source = runs(*straight(target, source))
    tiling = tiling_of(target, source)
    if tiling is None:
        yield target, source
    else:
        yield from lines(*axes_last(target, source, tiling), tiling)


# ---- runs ----


def straight(target: Array, source: Array) -> Step:
    """Drop axes of one point, turn and order the others so that the target is walked in order."""
    point: Any = (*(0 if n == 1 else slice(None) for n in target.shape), ...)
    target, source = target[point], source[point]
    turn: Any = (*(slice(None, None, -1 if step < 0 else 1) for step in target.strides), ...)
    target, source = target[turn], source[turn]
    strides = list(zip(target.strides, map(abs, source.strides), strict=True))
    order = sorted(range(target.ndim), key=strides.__getitem__, reverse=True)
    return target.transpose(order), source.transpose(order)


def runs(target: Array, source: Array) -> Step:
    """Join axes that are one in both arrays, and see each contiguous run as one item."""
    shape: list[int] = []
    strides: list[tuple[int, int]] = []
    every = zip(target.shape, target.strides, source.strides, strict=True)
    for points, *pair in every:
        if strides and strides[-1] == (points * pair[0], points * pair[1]):
            strides.pop()
            points *= shape.pop()  # noqa: PLW2901
        shape.append(points)
        strides.append((pair[0], pair[1]))
    target, source = (
        restrided(array, shape, [pair[side] for pair in strides])
        for side, array in enumerate((target, source))
    )
    size = target.itemsize
    if shape and strides[-1] == (size, size) and shape[-1] * size <= LONGEST_ITEM:
        size *= shape[-1]
        return as_items(target, size)[..., 0], as_items(source, size)[..., 0]
    if target.ndim == 0:
        return target, source
    return as_items(target, size), as_items(source, size)


def as_items(array: Array, size: int) -> Array:
    """See elements that follow each other along the last axis as items of `size` bytes."""
    return array.view(MOVES.get(size, f"V{size}"))


# ---- lines ----


class Tiling(NamedTuple):
    """The axis that is fastest in the source, and how many of its points make an item."""

    axis: int
    points: int


def tiling_of(target: Array, source: Array) -> Tiling | None:
    """Decide whether a copy goes by lines."""
    size, points = target.itemsize, ITEM // target.itemsize
    fast = [axis for axis, stride in enumerate(source.strides[:-1]) if abs(stride) == size]
    if not fast or points < 2 or target.shape[fast[0]] < points:  # noqa: PLR2004
        return None
    stride = abs(source.strides[-1])
    crowded = stride >= FAR or stride % CROWDED == 0
    if target.nbytes < WORTH_LINES or target.strides[-1] != size or stride == size or not crowded:
        return None
    return Tiling(fast[0], points)


def axes_last(target: Array, source: Array, tiling: Tiling) -> Step:
    """Put the axis of the items before the last one, and read forwards along it."""
    target, source = (np.moveaxis(array, tiling.axis, -2) for array in (target, source))
    if source.strides[-2] < 0:
        target, source = target[..., ::-1, :], source[..., ::-1, :]
    return target, source


def lines(target: Array, source: Array, tiling: Tiling) -> Iterator[Step]:
    """Yield steps into a block in the cache and out of it; what is left over has shorter items."""
    whole = target.shape[-2] // tiling.points * tiling.points
    scratch = np.empty(SCRATCH, np.uint8)
    yield from whole_lines(target[..., :whole, :], source[..., :whole, :], tiling.points, scratch)
    rest = target.shape[-2] - whole
    if rest:
        yield from whole_lines(target[..., whole:, :], source[..., whole:, :], rest, scratch)


def whole_lines(
    target: Array, source: Array, points: int, scratch: NDArray[np.uint8]
) -> Iterator[Step]:
    """Yield the steps for items of `points` elements, of which there is a whole number."""
    *outer, rows, columns = target.shape
    size = target.itemsize
    split = (*outer, rows // points, points, columns)
    into = target.reshape(split)
    items = as_items(source.swapaxes(-1, -2), points * size).swapaxes(-1, -2)
    for part in parts(items.shape, SCRATCH // (points * size)):
        taken = items[part]
        block = scratch[: taken.size * points * size].view(target.dtype)
        block = block.reshape(*taken.shape, points)
        yield as_items(block, points * size)[..., 0], taken
        yield into[*part[:-1], :, part[-1]], block.swapaxes(-1, -2)


def parts(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Cut a block into parts of at most so many points, whole along as many last axes as fit."""
    cuts = []
    for points in reversed(shape):
        step = max(1, min(points, most))
        cuts.append([slice(start, start + step) for start in range(0, points, step)])
        most //= step
    yield from product(*reversed(cuts))
