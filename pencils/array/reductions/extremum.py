"""Where the smallest or largest element of a field lies, over all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.operands import signature
from pencils.array.reductions.engine import Reduction
from pencils.comm.agree import agreed
from pencils.comm.reduce import combine
from pencils.errors import ArgumentError

Candidates = tuple[Array, Array] | None


def arg_extremum(
    name: str,
    better: np.ufunc,
    field: Field,
    axis: int | None,
    *,
    out: object,
    keepdims: bool,
) -> Any:
    """Global position of the first element that no other is `better` than. *Collective*."""
    with agreed(field.pencil.topology.comm, name) as agree:
        agree(**signature(field))
        task = Reduction.read(name, field, axis, keepdims=keepdims, out=out)
        agree(axis=task.axes, keepdims=task.keepdims)
        _check(name, task)
        search = np.argmin if better is np.less else np.argmax
        mine = _candidates(search, task) if task.contributes else None
    winners = combine(task.comm, mine, _chooser(better))
    indices = np.zeros(task.partial_shape(), np.intp) if winners is None else winners[1]
    return task.finish(indices)


def _check(name: str, task: Reduction) -> None:
    if not task.whole and len(task.axes) != 1:
        msg = f"{name} along axes {task.axes}: give one axis, or none for the flattened array"
        raise ArgumentError(msg)
    if task.field.dtype.kind not in "biufcmM":
        msg = f"{name} is not defined for dtype {task.field.dtype}"
        raise TypeError(msg)
    if task.count == 0:
        msg = f"{name} of a field without points has no value"
        raise ArgumentError(msg)


def _candidates(search: Callable[..., Any], task: Reduction) -> tuple[Array, Array]:
    """Best values of the own block and their global positions, all axes kept."""
    field, block = task.field, task.field.local
    start = (0,) * len(field.components) + field.extent.box.start
    if task.whole:
        here = np.unravel_index(search(block), block.shape)
        there = [int(i) + o for i, o in zip(here, start, strict=True)]
        index = np.ravel_multi_index(there, field.shape)
        shape = task.partial_shape()
        return np.full(shape, block[here], block.dtype), np.full(shape, index, np.intp)
    (axis,) = task.axes
    found = search(block, axis=axis, keepdims=True)
    return np.take_along_axis(block, found, axis), found + start[axis]


def _chooser(better: np.ufunc) -> Callable[[Candidates, Candidates], Candidates]:
    """Join two sets of candidates; NaN is better than anything, earlier better than later."""

    def choose(one: Candidates, other: Candidates) -> Candidates:
        if one is None or other is None:
            return other if one is None else one
        (a, i), (b, j) = one, other
        a_nan, b_nan = np.not_equal(a, a), np.not_equal(b, b)
        tie = np.equal(a, b) | (a_nan & b_nan)
        second = np.where(tie, j < i, (better(b, a) & ~a_nan) | (b_nan & ~a_nan))
        return np.where(second, b, a), np.where(second, j, i)

    return choose
