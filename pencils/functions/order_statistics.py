"""Medians and quantiles over all ranks. All are *Collective*.

Signatures are those of NumPy, which checks them before it calls these functions.
"""

# ruff: noqa: ARG001 - `overwrite_input` is NumPy's, and without effect

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.global_reduction import Axis, Reduction
from pencils.array.operands import signature
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.mpi import MPI
from pencils.comm.recording import timed
from pencils.comm.reduce import carried_total, native
from pencils.comm.stream import bcast_array
from pencils.functions.arguments import (
    Line,
    check_given,
    comm_along,
    decomposed_axes,
    facts_of,
    own_values,
    warn,
    weights_part,
)
from pencils.functions.lines import whole_axis
from pencils.functions.selection import MOST_COLLECTED, Room, places, room_for, select, word_sizes
from pencils.transposition.transpose import transpose


class Question(NamedTuple):
    """What is asked about values."""

    name: str  # what the user called
    of: Callable[..., Any]  # the function of NumPy, with all arguments but axis, keepdims, weights
    skips: bool  # whether NaN is left out
    q: Array | None = None  # the quantiles; None for a median
    method: str = "linear"
    scalar: type | None = None  # that of one number, if it leaves the type of the values

    @property
    def positions(self) -> int:
        """Positions of values that are found, or more."""
        return 2 if self.q is None else 2 * self.q.size


# Of calls of which nothing is kept.
_NOTHING: tuple[PreparedAgreement | None, Callable[[Field], Callable[[], Array]] | None]
_NOTHING = None, None
_MEDIAN = Question("median", np.median, skips=False)
_NANMEDIAN = Question("nanmedian", np.nanmedian, skips=True)


def median(a: Field, *args: Any, **options: Any) -> Any:
    """Return the median over all ranks, as `numpy.median`. *Collective*, by reductions of counts.

    Along all axes of space the ranks count digits of the values to find those in the middle. Along
    some, each rank takes the medians of its own block. If one of these is decomposed, the field is
    moved to where they are whole, and the result back: two transposes, of which the second one is
    small.

    Parameters
    ----------
    a : PencilArray
        The field; replicas of singleton dimensions count once. A NaN anywhere makes the result NaN.
    axis : int or tuple of int, optional
        Axes of the global shape, default all.
    out : None
        Not supported.
    overwrite_input : bool, optional
        Without effect.
    keepdims : bool, optional
        Whether reduced component axes stay with extent 1; axes of space always do.

    Returns
    -------
    scalar or PencilArray
        A NumPy scalar, the same on every rank, if `axis` is not given; else a field.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((5, 3)), lambda i, j: i**2 + 0.0 * j)
    >>> np.median(u), np.percentile(u, [25, 90])
    (np.float64(4.0), array([ 1., 16.]))
    """
    return _answer(_MEDIAN, a, *args, **options)


def nanmedian(a: Field, *args: Any, **options: Any) -> Any:
    """Return the median over all ranks, ignoring NaN; else like `median`. *Collective*.

    All ranks warn if a result is NaN because there is nothing else.
    """
    return _answer(_NANMEDIAN, a, *args, **options)


def quantile(a: Field, q: Any, *args: Any, **options: Any) -> Any:
    """Return quantiles over all ranks, as `numpy.quantile`. *Collective*, by reductions of counts.

    Parameters
    ----------
    a, axis, out, overwrite_input, keepdims
        As in `median`.
    q : float or array_like
        Quantiles between 0 and 1. The axes of an array come first in the result: as components of
        a field.
    method : str, optional
        Any method of NumPy.
    weights : PencilArray or array_like, optional
        Weights for the method ``"inverted_cdf"``, if `axis` is given and not all axes.

    Returns
    -------
    scalar, array or PencilArray
        NumPy scalars or arrays, the same on every rank, if `axis` is not given; else a field.
    """
    return _quantile("quantile", a, q, *args, **options)


def percentile(a: Field, q: Any, *args: Any, **options: Any) -> Any:
    """Return percentiles over all ranks, as `quantile` with `q` from 0 to 100. *Collective*."""
    return _quantile("percentile", a, q, *args, **options)


def nanquantile(a: Field, q: Any, *args: Any, **options: Any) -> Any:
    """Return quantiles over all ranks, ignoring NaN; else like `quantile`. *Collective*."""
    return _quantile("nanquantile", a, q, *args, **options)


def nanpercentile(a: Field, q: Any, *args: Any, **options: Any) -> Any:
    """Return percentiles over all ranks, ignoring NaN; else like `percentile`. *Collective*."""
    return _quantile("nanpercentile", a, q, *args, **options)


def _quantile(
    name: str,
    a: Field,
    q: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> Any:
    check_given(name, a, q, out, weights)
    function = getattr(np, name)
    with agreed(a.pencil.topology.comm, name) as agree:
        if isinstance(q, Field):
            raise TypeError(f"{name}: q must be numbers that all ranks have, not a PencilArray")
        agree(**signature(a), q=q, method=method)
        # NumPy checks what it checks before it reads values.
        function(np.zeros(2, a.dtype), q, method=method)
        fractions = np.true_divide(q, 100) if "percentile" in name else q
    scalar = type(q) if isinstance(q, np.floating) else float if type(q) in {int, float} else None
    of = partial(function, q=q, method=method)
    asked = Question(name, of, name.startswith("nan"), np.asarray(fractions), method, scalar)
    return _answer(asked, a, axis, out, overwrite_input, keepdims, weights)


def _answer(
    asked: Question,
    a: Field,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
    weights: Any = None,
) -> Any:
    """Reduce a field to medians or quantiles. *Collective*."""
    name = asked.name
    check_given(name, a, out)
    plain = axis is out is weights is asked.q is None and keepdims is False
    agreement, begin = a.pencil.kept[name].get(a.kind, _NOTHING) if plain else _NOTHING
    if agreement is not None and begin is not None:
        collect, _ = agreement.attempt(partial(begin, a))
        return asked.of(collect())
    with agreed(a.pencil.topology.comm, name) if agreement is None else agreement.block() as agree:
        task = Reduction.of(name, a, axis, out, keepdims)
        if agreement is None:
            agree(**signature(a), weights=facts_of(weights))
            agree(axis=task.axes, keepdims=task.keepdims, whole=task.whole)
            word_sizes(a.dtype)
            if asked.q is None:  # quantiles have been checked
                asked.of(np.zeros(2, a.dtype))
        if len(task.axes) < a.ndim:
            moved = _moves(task)
            block = _own(asked, task, weights, agree, moved=moved)
        elif weights is not None:
            raise TypeError(
                f"{name} over all axes takes no weights; write numpy.histogram(u, bins, "
                "weights=weights)"
            )
        else:
            complete = _prepare_all(asked, agree, a)
    if plain and agreement is None:
        begin = _collector(a) if a.size <= MOST_COLLECTED else None
        a.pencil.kept[name].add(a.kind, (agree.prepared(), begin))
    if len(task.axes) == a.ndim:
        return _of_all(complete(), task)
    flagged = agree.flagged
    if moved:
        task, block, flagged = _moved(asked, task, weights)
    if flagged:
        up = 1 if asked.q is None else 2  # calls behind the function that replaces NumPy's
        warn("All-NaN slice encountered" if a.size else "Mean of empty slice", up)
    result = task.finish(block, block.ndim - a.ndim)
    return result if task.field is a else transpose(result, a.pencil)


def _of_all(result: Any, task: Reduction) -> Any:
    """Return the answer about all values as the user has asked for it."""
    if task.whole and not task.keepdims:
        return result
    front = np.ndim(result)
    return task.finish(np.reshape(result, np.shape(result) + (1,) * task.field.ndim), front)


def _moved(asked: Question, task: Reduction, weights: Any) -> tuple[Reduction, Array, bool]:
    """Reduce a field where the reduced axes are whole: the result is there. *Collective*.

    Return whether some result is that of no values, too.
    """
    a, dims = task.field, task.dims - task.field.singletons
    if len(dims | a.singletons) == a.pencil.ndim and weights is None:
        return task, *_by_component(asked, task)
    if len(dims) > 1:  # what is cut instead has points
        dims |= a.singletons
    lines = whole_axis(a, *(len(a.components) + dim for dim in dims))
    if isinstance(weights, PencilArray):
        weights = transpose(weights, lines.pencil)
    task = replace(task, field=lines)
    with agreed(lines.pencil.topology.comm, asked.name) as agree:
        block = _own(asked, task, weights, agree)
    for axis in task.axes:
        line = Line.of(lines, axis)
        if line.is_cut and line.filled:  # the first rank has all lines
            block = np.ascontiguousarray(block)
            bcast_array(comm_along(lines, axis), block, line.filled[0])
    return task, block, agree.flagged


def _by_component(asked: Question, task: Reduction) -> tuple[Array, bool]:
    """Answer for all points of space, but not for all components together. *Collective*."""
    a, kept, found = task.field, task.partial_shape[: len(task.field.components)], []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in np.ndindex(*kept):
            pairs = zip(index, kept, strict=True)
            key = tuple([slice(None) if n == 1 else slice(i, i + 1) for i, n in pairs])
            found.append(_answer(asked, cast("Any", a)[key]))
    block = np.moveaxis(np.array(found), 0, -1)
    return block.reshape(*block.shape[:-1], *kept, *(1,) * a.pencil.ndim), bool(caught)


def _prepare_all(asked: Question, agree: agreed, a: Field) -> Callable[[], Any]:
    """Prepare to answer a question about all values of a field, within an agreement; local.

    Returns what finds the answer after it. *Collective*
    """
    if a.size <= MOST_COLLECTED:
        collect = _collector(a)(a)
        return lambda: asked.of(collect())
    comm = a.pencil.topology.comm
    values, missing = _known(a)
    room = room_for(a.size, asked.positions, values.dtype, comm.size)
    size = np.array([values.size])
    agree.carry(size)
    agree.flag(up=missing > 0)

    def complete() -> Any:
        count = int(carried_total(comm, agree, size, np.add)[0]) if agree.flagged else a.size
        return of_all_values(asked, comm, a.dtype, values, count, room, missing=agree.flagged)

    return complete


def _collector(a: Field) -> Callable[[Field], Callable[[], Array]]:
    """Return a function that allocates memory for the values of all ranks; local.

    It takes fields of the kind of `a`, and returns what collects the values of one. *Collective*
    """
    layout, comm, dtype = a.extent.layout, a.pencil.topology.comm, native(a.dtype)
    ranks = range(comm.size)
    volumes = [layout.box(rank).volume * layout.is_first_replica(rank) for rank in ranks]
    sizes = [prod(a.components) * dtype.itemsize * volume for volume in volumes]
    total, own = sum(sizes) // dtype.itemsize, sizes[comm.rank] // dtype.itemsize
    order, _ = a.frame.axes(len(a.components))

    def begin(a: Field) -> Callable[[], Array]:
        mine = a.local.transpose(order).reshape(-1)[:own].astype(dtype, copy=False)
        if len(sizes) == 1:
            return lambda: mine
        every = np.empty(total, dtype)
        sent = [np.ascontiguousarray(mine).view(np.uint8), MPI.BYTE]
        received = [every.view(np.uint8), sizes, MPI.BYTE]

        def collect() -> Array:
            timed("wait", comm.Allgatherv, sent, received)
            return every

        return collect

    return begin


def _moves(task: Reduction) -> bool:
    """Whether a reduced axis is decomposed, and has points."""
    return task.field.size > 0 and not decomposed_axes(task.field).isdisjoint(task.axes)


def _own(
    asked: Question, task: Reduction, weights: Any, agree: agreed, *, moved: bool = False
) -> Array:
    """Reduce the own block along axes that are whole, unless it is moved first; all axes kept."""
    a = task.field
    options: dict[str, Any] = {"axis": task.axes, "keepdims": True}
    few = [min(1, n) if axis in task.axes else 1 for axis, n in enumerate(a.shape)]
    more = {} if weights is None else {"weights": weights_part(weights, a, task.axes)}
    if moved:
        return np.empty(0)
    agree.flag(up=_without_values(asked, task))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # only some ranks would warn
        # Some functions of NumPy take no empty blocks, or give values with NaN another type.
        one = np.asarray(asked.of(np.zeros(few, a.dtype), **options))
        kind = native(one.dtype)
        if a.size and not a.local.size:
            return np.empty(one.shape[: one.ndim - a.ndim] + task.partial_shape, kind)
        return np.asarray(asked.of(a.local, **options, **more)).astype(kind, copy=False)


def _without_values(asked: Question, task: Reduction) -> bool:
    """Whether some own result is that of no values at all, of which NumPy warns."""
    a = task.field
    if task.count == 0:
        return asked.skips or asked.q is None
    if not asked.skips or a.dtype.kind not in "fcmM" or not a.local.size:
        return False
    return bool(np.isnan(a.local).all(axis=task.axes).any())


def _known(a: Field) -> tuple[Array, int]:
    """Own values that are not NaN, and how many are."""
    values = own_values(a, a.local)
    values = values.astype(native(a.dtype), copy=False)
    if a.dtype.kind not in "fcmM":
        return values, 0
    nan = np.isnan(values)
    missing = int(np.count_nonzero(nan))
    return (values[~nan] if missing else values), missing


def of_all_values(
    asked: Question,
    comm: MPI.Intracomm,
    dtype: np.dtype[Any],
    values: Array,
    count: int,
    room: Room,
    *,
    missing: bool,
) -> Any:
    """Find the answer about the values of ranks, for a field of some type. *Collective*.

    The ranks have agreed on the number of values, and on whether some are `missing`.

    Where it depends on few values, NumPy makes it of these.
    """
    unknown = count == 0 or (missing and not asked.skips)
    if unknown:
        nothing = "NaT" if dtype.kind in "mM" else np.nan
        size = 1 if count + missing else 0
        empty = np.zeros(size) if dtype.kind in "biu" else np.full(size, nothing)
        values = empty.astype(dtype)
    if unknown or comm.size == 1 or (asked.q is not None and asked.q.size == 0):
        return asked.of(values)
    if asked.q is None:
        middle = np.arange((count - 1) // 2, count // 2 + 1)
        return asked.of(select(comm, asked.name, values, count, middle, room))
    low, high, distance = places(asked.method, count, asked.q)
    wanted = np.unique([low, high])
    found = select(comm, asked.name, values, count, wanted, room)
    lower, upper = (found[np.searchsorted(wanted, ends)] for ends in (low, high))
    if distance is None:
        return lower.astype(dtype) if lower.ndim else lower[()]
    if distance.dtype.kind == "i" and asked.scalar is None:  # integers q: none or all the way
        kind = np.result_type(dtype, distance.dtype)
        return np.where(distance == 0, lower, upper).astype(kind)[()]
    if asked.q.ndim == 0:
        between = asked.scalar(distance) if asked.scalar else distance
        return np.quantile(np.array([lower, upper], dtype), between)
    pairs = np.array([lower.ravel(), upper.ravel()], dtype).T
    steps = distance.reshape(-1, 1)
    parts = [np.quantile(pair, step) for pair, step in zip(pairs, steps, strict=True)]
    return np.concatenate(parts).reshape(asked.q.shape)
