"""Buffers of values by global indices: `Take`, `Put`, `Take_v` and `Put_v`.

Every call reads its arguments inside an agreement of all ranks, and allocates there, too. The type
of the values is the same on all ranks, but a rank without values may not know it: then
`_prepared` finds it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.comm.combining import ReduceOp
from pencils.comm.rows import mover
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.indexer.agreement import Unheard
from pencils.indexer.arguments import (
    read_buffer,
    read_count,
    read_output,
    read_ragged,
    read_ragged_output,
    read_reduce,
)
from pencils.indexer.gather_scatter import Request, RowBuffers, Steps
from pencils.indexer.lists import IndexLists
from pencils.indexer.ragged import Ragged, as_rows, extended, replaced, row_type

T = TypeVar("T")
DType = np.dtype[Any]
Named = tuple[str, Array]
Agreeing = agreed | Unheard


def take(
    lists: IndexLists, call: str, dist_data: object, local: Any, *, count: object, reduce: object
) -> Request[Any]:
    """Prepare to read values: see `GlobalIndexer.Take`. *Collective*."""

    def read(same: Agreeing) -> tuple[BufferTypes, Callable[[DType], Request[Any]]]:
        width, op = read_count(count), read_reduce(reduce)
        same(count=width, reduce=op)
        dist = read_buffer("dist_data", dist_data, width * lists.plan.rows)
        given = [] if local is None else lists.read(local, read_output, width)
        types = BufferTypes([("dist_data", dist)], _named(lists, given), _result(op))

        def make(dtype: DType) -> Request[Any]:
            outs, result = given, local
            if local is None:
                outs = [_blank(width * size, dtype, op) for size in lists.sizes]
                result = lists.result(outs)
            steps = partial(_take_steps, lists, dist, outs, op=op, dtype=dtype)
            row = row_type(dtype, width)
            starts = call == "Take_start"
            return Request(lists.plan.to_requesters, row, steps, result, starts=starts)

        return types, make

    return _prepared(lists, call, read)


def put(
    lists: IndexLists, call: str, local: object, dist_data: Any, *, count: object, reduce: object
) -> Request[Any]:
    """Prepare to write values: see `GlobalIndexer.Put`. *Collective*."""
    rows = lists.plan.rows

    def read(same: Agreeing) -> tuple[BufferTypes, Callable[[DType], Request[Any]]]:
        width, op = read_count(count), read_reduce(reduce)
        same(count=width, reduce=op)
        parts = lists.read(local, read_buffer, width)
        outs = []
        if dist_data is not None:
            outs = [("dist_data", read_output("dist_data", dist_data, width * rows))]
        types = BufferTypes(_named(lists, parts), outs, _result(op))

        def make(dtype: DType) -> Request[Any]:
            out = outs[0][1] if outs else _blank(width * rows, dtype, op)
            result = out if dist_data is None else dist_data
            steps = partial(_put_steps, lists, parts, out, op=op, dtype=dtype)
            row = row_type(dtype, width)
            return Request(lists.plan.to_owners, row, steps, result, starts=call == "Put_start")

        return types, make

    return _prepared(lists, call, read)


def take_v(lists: IndexLists, dist_data: object, local: Any) -> Any:
    """Read rows of values: see `GlobalIndexer.Take_v`. *Collective*."""
    plan, agree = lists.plan, partial(lists.agreement.on, "Take_v")
    given: list[Ragged] = []

    def read(_: Agreeing) -> tuple[BufferTypes, Callable[[DType], Callable[[], Ragged]]]:
        dist = read_ragged("dist_data", dist_data, plan.rows)
        given[:] = [] if local is None else lists.read(local, read_ragged_output)
        outs = _named(lists, (out.values for out in given))
        types = BufferTypes([("dist_data", dist.values)], outs)

        def make(dtype: DType) -> Callable[[], Ragged]:
            rows = dist.as_type(dtype).pick(plan.requested)
            return plan.to_requesters.prepare_ragged(rows, agree)

        return types, make

    rows = _prepared(lists, "Take_v", read)()
    with agree():
        parts = rows.pick(plan.places).split(lists.sizes)
        outs = given
        if local is None:
            outs = [Ragged(part.counts, np.empty_like(part.values)) for part in parts]
        _check_counts(lists, outs, parts)
    for out, part in zip(outs, parts, strict=True):
        out.values[:] = part.values
    return lists.result([tuple(out) for out in outs]) if local is None else local


def put_v(
    lists: IndexLists, local: object, dist_data: object, *, extend: bool
) -> tuple[Array, Array]:
    """Write rows of values: see `GlobalIndexer.Put_v`. *Collective*."""
    plan, agree = lists.plan, partial(lists.agreement.on, "Put_v")
    given: list[Ragged] = []

    def read(same: Agreeing) -> tuple[BufferTypes, Callable[[DType], Callable[[], Ragged]]]:
        same(extend=bool(extend))
        parts = lists.read(local, read_ragged)
        if dist_data is not None:
            given.append(read_ragged("dist_data", dist_data, plan.rows))
        named = _named(lists, (part.values for part in parts))
        types = BufferTypes([*(("dist_data", part.values) for part in given), *named])

        def make(dtype: DType) -> Callable[[], Ragged]:
            rows = Ragged.joined(parts, dtype).pick(plan.order)
            return plan.to_owners.prepare_ragged(rows, agree)

        return types, make

    rows = _prepared(lists, "Put_v", read)()
    with agree():
        dtype = rows.values.dtype
        before = given[0].as_type(dtype) if given else Ragged.empty(plan.rows, dtype)
        counts, values = (extended if extend else replaced)(before, rows, plan.requested)
    return counts, values


# ---- fixed number of values for each index ----


def _take_steps(
    lists: IndexLists,
    dist: Array,
    outs: Sequence[Array],
    buffers: RowBuffers,
    *,
    op: ReduceOp | None,
    dtype: DType,
) -> Steps:
    """Prepare to pack what is requested, and to fill the outputs with what arrives."""
    plan, row = lists.plan, buffers.source.dtype
    source = as_rows(dist, row)
    direct = len(outs) == 1 and op is None
    found = as_rows(outs[0], row) if direct else np.empty(len(plan.order), row)
    aliased = np.may_share_memory(source, found)
    pack, unpack = plan.take_steps(source, plan.requested, buffers[:2], found, aliased=aliased)
    if not direct:
        unpack.append(partial(_fill_outputs, found, lists.parts, outs, op, dtype))
    return pack, unpack


def _put_steps(
    lists: IndexLists,
    parts: Sequence[Array],
    target: Array,
    buffers: RowBuffers,
    *,
    op: ReduceOp | None,
    dtype: DType,
) -> Steps:
    """Prepare to pack what is written to rows of other ranks, and to write what arrives."""
    plan, arriving = lists.plan, buffers.target
    row = arriving.dtype
    rows = [as_rows(values, row) for values in parts]
    source = rows[0] if len(rows) == 1 else np.concatenate([np.empty(0, row), *rows])
    pack = plan.put_steps(source, buffers[:2])
    if op is None:
        written, writers = plan.last_writers
        return pack, [mover(as_rows(target, row), written, arriving, writers)]
    width = row.itemsize // dtype.itemsize
    out, values = target.reshape(-1, width), arriving.view(dtype).reshape(-1, width)
    return pack, [partial(op.combine, out, plan.requested, values)]


def _fill_outputs(
    rows: Array, parts: Sequence[slice], outs: Sequence[Array], op: ReduceOp | None, dtype: DType
) -> None:
    """Copy to each output its part of all rows, or combine them with it."""
    for out, part in zip(outs, parts, strict=True):
        if op is None:
            as_rows(out, rows.dtype)[:] = rows[part]
        else:
            op.fold(out, rows[part].view(dtype))


def _result(op: ReduceOp | None) -> Callable[[DType], DType] | None:
    return None if op is None else op.result


def _blank(size: int, dtype: DType, op: ReduceOp | None) -> Array:
    """Make an output where none was given."""
    return np.empty(size, dtype) if op is None else op.blank(size, dtype)


# ---- rows of different lengths ----


def _check_counts(lists: IndexLists, outs: Sequence[Ragged], parts: Sequence[Ragged]) -> None:
    """Check that the counts of outputs are those of what arrives."""
    for number, (out, part) in enumerate(zip(outs, parts, strict=True)):
        wrong = np.flatnonzero(out.counts != part.counts)
        if wrong.size:
            first = wrong[0]
            msg = (
                f"{lists.name(number)} has count {out.counts[first]} for its index {first}, of "
                f"which there are {part.counts[first]} values"
            )
            raise ArgumentError(msg)


# ---- one type of values on all ranks ----


class BufferTypes:
    """Element types of the buffers of a call. A buffer without values may have any type.

    Parameters
    ----------
    inputs, outputs : sequence of (str, numpy.ndarray)
        What is read, and what is written if it was given, with their names.
    result : callable, optional
        Element type of a new output for inputs of another type. Default: the same.

    Attributes
    ----------
    known : numpy.dtype or None
        Type of the values; None if there are none on this rank.

    Raises
    ------
    TypeError
        If the types of the buffers do not fit each other.
    """

    def __init__(
        self,
        inputs: Sequence[Named],
        outputs: Sequence[Named] = (),
        result: Callable[[DType], DType] | None = None,
    ) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._result = (lambda dtype: dtype) if result is None else result
        alike = [*inputs, *(outputs if result is None else ())]
        full = [(name, array.dtype) for name, array in alike if array.size]
        self.known = full[0][1] if full else None
        for name, dtype in full[1:]:
            if dtype != self.known:
                msg = (
                    f"{full[0][0]} and {name} have types {self.known} and {dtype}; their types "
                    "must be the same"
                )
                raise TypeError(msg)
        if self.known is not None:
            self.check(self.known)

    @property
    def without_values(self) -> DType | None:
        """Type of a buffer without values, where no rank has values."""
        empty = [array.dtype for _, array in (*self._outputs, *self._inputs)]
        return next(filter(self._is_possible, empty), None)

    @property
    def default(self) -> DType:
        """Type where no rank has a buffer."""
        return next(filter(self._is_possible, map(np.dtype, (float, int))))

    @property
    def unchecked(self) -> DType | None:
        """Type where ranks do not agree: also buffers without values must have the right one."""
        if self.known is not None:
            return self.known
        return self._inputs[0][1].dtype if self._inputs else self.without_values

    def check(self, dtype: DType) -> None:
        """Check the outputs for inputs of a type.

        Raises
        ------
        ArgumentError, TypeError
            If there is no result of that type, or an output has neither that type nor the one of a
            new output.
        """
        allowed = list(dict.fromkeys([dtype, self._result(dtype)]))
        for name, array in self._outputs:
            if array.size and array.dtype not in allowed:
                wanted = " or ".join(map(str, allowed))
                msg = f"{name} has type {array.dtype}, but values of type {dtype} need {wanted}"
                raise TypeError(msg)

    def _is_possible(self, dtype: DType) -> bool:
        try:
            self._result(dtype)
        except ArgumentError:
            return False
        return True


def _prepared(
    lists: IndexLists,
    call: str,
    read: Callable[[Agreeing], tuple[BufferTypes, Callable[[DType], T]]],
) -> T:
    """Read the arguments of a call, and allocate what it needs. *Collective*.

    Parameters
    ----------
    lists : IndexLists
        The indexer.
    call : str
        The method.
    read : callable
        Reads the arguments. Returns the types of the buffers, and a function that allocates what
        the call needs for one type of values.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if the arguments do not fit on any, or an output does not have the type that
        the values have on other ranks.
    """
    checks = lists.agreement.check
    with lists.agreement.on(call) as same:
        types, make = read(same)
        same.dtype(types.known)
        same.flag(up=types.known is None)
        ready = None if types.known is None else make(types.known)
    if not checks:
        return make(_unchecked(lists, call, types)) if ready is None else ready
    if not same.flagged:
        assert ready is not None
        return ready
    dtype = _first_known(lists.topology, types.known)
    likely = dtype or _first_known(lists.topology, types.without_values) or types.default
    with lists.agreement.on(call):
        if dtype is not None:
            types.check(dtype)
        return make(likely) if ready is None else ready


def _first_known(topology: Topology, dtype: DType | None) -> DType | None:
    """Return the type of the first rank that knows one. *Collective*."""
    first = topology.first_of(present=dtype is not None)
    if first is None:
        return None
    known: DType = topology.comm.bcast(dtype, first)
    return known


def _unchecked(lists: IndexLists, call: str, types: BufferTypes) -> DType:
    """Return the type of values where ranks do not agree on it."""
    if types.unchecked is None:
        msg = (
            f"{lists.names.owner}.{call} with check=False cannot find the type of values where "
            "there are no lists; pass the output"
        )
        raise TypeError(msg)
    return types.unchecked


def _named(lists: IndexLists, arrays: Iterable[Array]) -> list[Named]:
    """Name arrays, one for each list of indices."""
    return [(lists.name(number), array) for number, array in enumerate(arrays)]
