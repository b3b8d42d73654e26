"""Functions of whole lines, wherever these are cut: two transposes around a local function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pencils.array.allocation import Array, plain_array
from pencils.array.frame import frame_of
from pencils.array.operands import (
    FieldSpec,
    check_out,
    check_type,
    signature,
    topology_among,
)
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.reduce import combine
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dim
from pencils.pencil import Pencil
from pencils.transposition.transpose import transpose

Function = Callable[[Any, int], Any]


def along(f: Function, u: PencilArray, axis: int, *, out: PencilArray | None = None) -> PencilArray:
    """Apply a function of NumPy arrays to whole lines along an axis. *Collective*.

    Where lines are cut, the field is moved to ``u.pencil.whole(axis)`` and the result back; where
    each process has whole lines already, nothing is moved.

    Parameters
    ----------
    f : callable
        Called as ``f(block, axis)`` with the part of the global array that this rank has, in which
        lines along `axis` are whole. It returns an array of the same shape; other element types are
        allowed, the same on all ranks. The block is read-only. Ranks without points do not call it,
        unless no rank has any, so it must not communicate.
    u : PencilArray
        The field; its halo is not read.
    axis : int
        An axis of ``u.shape``, components first, in ``[-u.ndim, u.ndim)``: the same one in `f`.
    out : PencilArray, optional
        Field on the pencil of `u` to fill, of a type to which NumPy casts results by the rule
        "same_kind"; it may be `u`. Default: a new field without halo.

    Returns
    -------
    PencilArray
        `out`, on the pencil of `u`.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError, RankDisagreementError
        On every rank, if arguments do not fit, or `f` returns anything else.
    Exception
        What `f` raises on any rank, on all.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> u = pencils.from_function(pencils.Pencil((3, 2)), lambda i, j: 10 * i + j)
    >>> pencils.along(lambda block, axis: np.roll(block, 1, axis), u, 0).local
    array([[20, 21],
           [ 0,  1],
           [10, 11]])
    """
    topology = topology_among(u, out)
    with agreed(topology.comm, "along") as agree:
        check_type("u", u, PencilArray)
        agree(**signature(u))
        if not callable(f):
            raise TypeError(f"f must be callable as f(block, axis), not {type(f).__name__}")
        number = as_dim("axis", axis, u.ndim)
        agree(axis=number, out=None if out is None else out.dtype)
        if out is not None:
            check_type("out", out, PencilArray)
            check_out(out, u.pencil, FieldSpec(out.dtype, u.components, u.singletons))
        pencil = _pencil_of_lines(u, number)
    lines = u if pencil is u.pencil else transpose(u, pencil)
    dtype = None if out is None else out.dtype
    block = None
    with agreed(topology.comm, "along") as agree:
        if lines.local.size or not lines.size:
            block = _result(f, lines, number, dtype)
        agree.dtype(None if block is None else block.dtype)
        agree.flag(up=block is None)
    if agree.flagged and dtype is None:
        dtype = combine(topology.comm, None if block is None else block.dtype, _known)
    if block is None:
        block = np.empty(lines.local_shape, dtype)
    if lines is not u:
        return transpose(_field_of(block, lines), u.pencil, out)
    if out is None:
        return _field_of(block, u)
    out.local = block
    return out


def _pencil_of_lines(u: PencilArray, number: int) -> Pencil:
    """Return the pencil of the field if each process has whole lines, else the one to move to."""
    dim = number - len(u.components)
    if dim < 0 or dim in u.singletons or u.pencil.process_shape[dim] == 1:
        return u.pencil
    return u.pencil.whole(dim)


def _result(f: Function, lines: PencilArray, axis: int, dtype: np.dtype[Any] | None) -> Array:
    """Call a function for the own block, and return what it returns in memory of its own."""
    given = lines.local.view()
    given.flags.writeable = False
    result = f(given, axis)
    if result is None:
        raise TypeError(
            "f returned None; it must return an array of the shape of its block, which is "
            "read-only: to work in place, write block = block.copy() in f, and return it"
        )
    block = plain_array(result)
    if block.shape != given.shape:
        raise ArgumentError(
            f"f returned shape {block.shape} for a block of shape {given.shape}; it must return "
            "the same shape: numpy.apply_along_axis(f, axis, u.whole(axis)) takes functions that "
            "reduce a line"
        )
    if block.dtype.hasobject:
        raise TypeError("f must return numbers, not Python objects")
    if dtype is not None:
        if not np.can_cast(block.dtype, dtype, "same_kind"):
            raise TypeError(
                f"f returned {block.dtype}, which does not fit into out of {dtype}; pass "
                f"out of {block.dtype}, or let f cast what it returns"
            )
        block = block.astype(dtype, copy=False)
    block = frame_of(lines.pencil, lines.singletons).ordered(block)
    shared = not block.flags.writeable or np.may_share_memory(block, lines.local)
    return block.copy(order="K") if shared else block


def _known(one: np.dtype[Any] | None, other: np.dtype[Any] | None) -> np.dtype[Any] | None:
    return other if one is None else one


def _field_of(block: Array, like: PencilArray) -> PencilArray:
    """Return a field like another one, of an own block in memory order, without halo."""
    return like.in_frame(like.pencil, frame_of(like.pencil, like.singletons), block)
