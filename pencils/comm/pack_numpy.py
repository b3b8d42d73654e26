"""Copies between strided arrays by NumPy alone, faster than single calls of `numpy.copyto`.

Two methods, exact for every dtype without Python objects. *Runs*: elements that are contiguous on
both sides are copied as one item. *Lines*: if the memory order changes, items of a few cache lines
are gathered in a block that fits into the cache, and single elements are copied from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.memory import restrided

Array = NDArray[Any]
Step = tuple[Array, Array]  # target and source of one call of `numpy.copyto`

SMALL = 4096  # bytes; to prepare a copy takes longer than to copy these
LONGEST_ITEM = 4096  # bytes; longer runs gain nothing
ITEM = 128  # bytes of an item of a copy by lines
SCRATCH = 1 << 20  # bytes of the block in the cache
WORTH_LINES = 1 << 18  # bytes; the source of a smaller copy stays in the cache
FAR, CROWDED = 4096, 1024  # strides from which, or at multiples of which, it does not

# NumPy copies items of these sizes by one move if they are integers, or complex numbers.
MOVES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def copy(target: Array, source: Array, whole: int = 0) -> None:  # noqa: ARG001
    """Copy `source` into `target`: see `pencils.comm.pack.copy`."""
    check(target, source)
    if target.nbytes <= SMALL:
        np.copyto(target, source)
    else:
        prepare_copies([(target, source)])()


def prepare_copies(pairs: Sequence[Step]) -> Callable[[], None]:
    """Prepare copies: see `pencils.comm.pack.prepare_copies`."""
    prepared: list[Step] = []
    for target, source in pairs:
        check(target, source)
        for step in steps(target, source):
            prepared += _buffered(*step)
    return partial(_run, prepared)


def _run(prepared: Sequence[Step]) -> None:
    for target, source in prepared:
        np.copyto(target, source)


def _buffered(target: Array, source: Array) -> list[Step]:
    """Copy through a buffer if NumPy would allocate one for each copy: it could fail then."""
    if target.ndim < 2 or not np.may_share_memory(target, source):  # noqa: PLR2004
        return [(target, source)]
    buffer = np.empty(source.shape, source.dtype)
    return [(buffer, source), (target, buffer)]


def check(target: Array, source: Array) -> None:
    """Raise unless shapes and item sizes are equal and `target` can be written."""
    if target.shape != source.shape or target.itemsize != source.itemsize:
        raise ValueError(
            f"a source of shape {source.shape} does not fit a target of shape {target.shape}: "
            "shapes and item sizes have to be equal"
        )
    if not target.flags.writeable:
        raise ValueError("the target is read-only")


def steps(target: Array, source: Array) -> Iterator[Step]:
    """Yield the calls of `numpy.copyto` that make up one copy."""
    if target.nbytes == 0:
        return
    target, source = runs(*target_order(target, source))
    axis = axis_of_items(target, source)
    if axis is None:
        yield target, source
        return
    # The axis of the items comes before the last one, in ascending order of the source.
    target, source = np.moveaxis(target, axis, -2), np.moveaxis(source, axis, -2)
    if source.strides[-2] < 0:
        target, source = target[..., ::-1, :], source[..., ::-1, :]
    yield from lines(target, source)


# ---- runs ----


def target_order(target: Array, source: Array) -> Step:
    """Drop axes of one point; order and reverse the others so that target addresses ascend."""
    point: Any = (*(0 if n == 1 else slice(None) for n in target.shape), ...)
    target, source = target[point], source[point]
    turn: Any = (*(slice(None, None, -1 if step < 0 else 1) for step in target.strides), ...)
    target, source = target[turn], source[turn]
    strides = list(zip(target.strides, map(abs, source.strides), strict=True))
    order = sorted(range(target.ndim), key=strides.__getitem__, reverse=True)
    return target.transpose(order), source.transpose(order)


def runs(target: Array, source: Array) -> Step:
    """Merge axes that follow each other in both arrays, and view contiguous runs as items."""
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
    """View elements that follow each other along the last axis as items of `size` bytes."""
    return array.view(MOVES.get(size, f"V{size}"))


# ---- lines ----


def axis_of_items(target: Array, source: Array) -> int | None:
    """Return the axis along which the source is contiguous if a copy by lines is faster."""
    size, points = target.itemsize, ITEM // target.itemsize
    fast = [axis for axis, stride in enumerate(source.strides[:-1]) if abs(stride) == size]
    if not fast or points < 2 or target.shape[fast[0]] < points:  # noqa: PLR2004
        return None
    stride = abs(source.strides[-1])
    crowded = stride >= FAR or stride % CROWDED == 0
    if target.nbytes < WORTH_LINES or target.strides[-1] != size or stride == size or not crowded:
        return None
    return fast[0]


def lines(target: Array, source: Array) -> Iterator[Step]:
    """Yield steps to a block in the cache and from it; the last items may be shorter."""
    points = ITEM // target.itemsize
    whole = target.shape[-2] // points * points
    scratch = np.empty(SCRATCH, np.uint8)
    yield from whole_lines(target[..., :whole, :], source[..., :whole, :], points, scratch)
    rest = target.shape[-2] - whole
    if rest:
        yield from whole_lines(target[..., whole:, :], source[..., whole:, :], rest, scratch)


def whole_lines(
    target: Array, source: Array, points: int, scratch: NDArray[np.uint8]
) -> Iterator[Step]:
    """Yield the steps for items of `points` elements, into which the axis divides."""
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
    """Divide a block into parts of at most `most` points, whole along as many last axes as fit."""
    cuts = []
    for points in reversed(shape):
        step = max(1, min(points, most))
        cuts.append([slice(start, start + step) for start in range(0, points, step)])
        most //= step
    yield from product(*reversed(cuts))
