"""The position of the smallest or largest element: each rank finds its own, then all choose one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.global_reduction import Reduction
from pencils.array.operands import signature
from pencils.comm.agree import agreed
from pencils.comm.reduce import combine, native
from pencils.errors import ArgumentError

Candidates = tuple[Array, Array] | None


def arg_extremum(
    name: str,
    u: Field,
    axis: int | None,
    out: object,
    *,
    keepdims: bool,
    of: Callable[[Array], Array] | None = None,
) -> Any:
    """Global position of the first extremum: `argmin` and `argmax`. *Collective*.

    `of` is applied to the own block first; it leaves its type.
    """
    least = name.endswith("argmin")
    with agreed(u.pencil.topology.comm, name) as agree:
        agree(**signature(u))
        task = Reduction.of(name, u, axis, out, keepdims)
        agree(axis=task.axes, keepdims=task.keepdims)
        _check_extremum(name, task)
        search = np.argmin if least else np.argmax
        mine = None
        if task.contributes:
            mine = _candidates(search, task, u.local if of is None else of(u.local))
        if task.is_everywhere:
            agree.carry(_packed(mine, task))
    choose = _chooser(np.less if least else np.greater)
    if agree.carried is None:
        winners = combine(task.comm, mine, choose)
    else:
        found = [_unpacked(row, task) for row in agree.carried]
        winners = functools.reduce(choose, found)
    indices = np.zeros(task.partial_shape, np.intp) if winners is None else winners[1]
    return task.finish(indices)


def _check_extremum(name: str, task: Reduction) -> None:
    if not task.whole and len(task.axes) != 1:
        raise ArgumentError(
            f"{name} along axes {task.axes}: give one axis, or none for the flattened array"
        )
    if task.field.dtype.kind not in "biufcmM":
        raise TypeError(f"{name} is not defined for dtype {task.field.dtype}")
    if task.count == 0:
        raise ArgumentError(
            f"{name} of a field without points has no value; pass a field with points"
        )


def _candidates(search: Callable[..., Any], task: Reduction, block: Array) -> tuple[Array, Array]:
    """Best values of the own block and their global positions, all axes kept."""
    u = task.field
    start = (0,) * len(u.components) + u.extent.box.start
    if task.whole:
        here = np.unravel_index(search(block), block.shape)
        there = [int(i) + o for i, o in zip(here, start, strict=True)]
        index = np.ravel_multi_index(there, u.shape)
        shape = task.partial_shape
        return np.full(shape, block[here], block.dtype), np.full(shape, index, np.intp)
    (axis,) = task.axes
    found = search(block, axis=axis, keepdims=True)
    return np.take_along_axis(block, found, axis), found + start[axis]


def _packed(mine: Candidates, task: Reduction) -> Array:
    """Values and positions as one array; a rank without candidates has position -1."""
    kind = np.dtype([("value", native(task.field.dtype)), ("index", np.int64)])
    packed = np.zeros(task.partial_shape, kind)
    packed["index"] = -1
    if mine is not None:
        packed["value"], packed["index"] = mine
    return packed


def _unpacked(row: Array, task: Reduction) -> Candidates:
    values = row.reshape(task.partial_shape)
    if (values["index"] < 0).any():
        return None
    return values["value"], values["index"]


def _chooser(better: np.ufunc) -> Callable[[Candidates, Candidates], Candidates]:
    """Join two sets of candidates; NaN is better than any number, earlier better than later."""

    def choose(one: Candidates, other: Candidates) -> Candidates:
        if one is None or other is None:
            return other if one is None else one
        (a, i), (b, j) = one, other
        a_nan, b_nan = np.not_equal(a, a), np.not_equal(b, b)
        tie = np.equal(a, b) | (a_nan & b_nan)
        with np.errstate(invalid="ignore"):  # complex NaN; only some ranks might take it for errors
            second = np.where(tie, j < i, (better(b, a) & ~a_nan) | (b_nan & ~a_nan))
        return np.where(second, b, a), np.where(second, j, i)

    return choose
