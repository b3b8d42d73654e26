"""Values of one type, the same number of them for every index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.combining import ReduceOp
from pencils.comm.rows import mover
from pencils.indexer.access import Access
from pencils.indexer.agreement import Typed, same_type
from pencils.indexer.arguments import read_buffer, read_count, read_output, read_reduce
from pencils.indexer.route import Errand, Lane, Steps, as_rows, row_type


def take(
    access: Access,
    call: str,
    dist_data: object,
    local_data_l: Any,
    *,
    count: object,
    reduce: object,
) -> Errand[Any]:
    """Prepare to read values: see `GlobalMultiIndexer.Take`. *Collective*."""
    plan = access.plan
    with access.agreement.on(call) as same:
        width, op = read_count(count), read_reduce(reduce)
        same(count=width, reduce=op)
        dist = read_buffer("dist_data", dist_data, width * plan.rows)
        outs = access.each_given(local_data_l, read_output, width)
        typed = Typed(same, [("dist_data", dist)], access.named(outs), _result(op))

        def make(dtype: np.dtype[Any]) -> Errand[Any]:
            filled = outs
            if local_data_l is None:
                filled = [_blank(width * size, dtype, op) for size in access.sizes]
            result = filled if local_data_l is None else local_data_l
            prepare = partial(_taking, access, dist, filled, op=op, dtype=dtype)
            row = row_type(dtype, width)
            return Errand(plan.pulls, row, prepare, result, starts=call == "Take_start")

        ready = typed.ready(make)
    return access.agreement.settle(call, same, typed, ready, make)


def put(
    access: Access,
    call: str,
    local_data_l: object,
    dist_data: Any,
    *,
    count: object,
    reduce: object,
) -> Errand[Any]:
    """Prepare to write values: see `GlobalMultiIndexer.Put`. *Collective*."""
    plan = access.plan
    with access.agreement.on(call) as same:
        width, op = read_count(count), read_reduce(reduce)
        same(count=width, reduce=op)
        lists = access.each(local_data_l, read_buffer, width)
        outs = []
        if dist_data is not None:
            outs = [read_output("dist_data", dist_data, width * plan.rows)]
        named = [("dist_data", out) for out in outs]
        typed = Typed(same, access.named(lists), named, _result(op))

        def make(dtype: np.dtype[Any]) -> Errand[Any]:
            out = outs[0] if outs else _blank(width * plan.rows, dtype, op)
            prepare = partial(_putting, access, lists, out, op=op, dtype=dtype)
            row, result = row_type(dtype, width), out if dist_data is None else dist_data
            return Errand(plan.pushes, row, prepare, result, starts=call == "Put_start")

        ready = typed.ready(make)
    return access.agreement.settle(call, same, typed, ready, make)


def _taking(
    access: Access,
    dist: Array,
    outs: Sequence[Array],
    lane: Lane,
    *,
    op: ReduceOp | None,
    dtype: np.dtype[Any],
) -> Steps:
    """Prepare to pack what others want, and to fill the outputs with what arrives."""
    plan, row = access.plan, lane.source.dtype
    source = as_rows(dist, row)
    whole = len(outs) == 1 and op is None
    found = as_rows(outs[0], row) if whole else np.empty(len(plan.order), row)
    pack, unpack = plan.answers(
        source,
        plan.wanted,
        lane.source,
        lane.target,
        found,
        aliased=np.may_share_memory(source, found),
    )
    if not whole:
        unpack.append(partial(_share, found, access.parts, outs, op, dtype))
    return pack, unpack


def _putting(
    access: Access,
    lists: Sequence[Array],
    target: Array,
    lane: Lane,
    *,
    op: ReduceOp | None,
    dtype: np.dtype[Any],
) -> Steps:
    """Prepare to pack what is written to others' rows, and to write what arrives."""
    plan, row = access.plan, lane.source.dtype
    source = _joined([as_rows(values, row) for values in lists], row)
    pack = plan.letters(source, lane.source, lane.target)
    if op is None:
        written, writers = plan.writers
        return pack, [mover(as_rows(target, row), written, lane.target, writers)]
    width = row.itemsize // dtype.itemsize
    out, rows = target.reshape(-1, width), lane.target.view(dtype).reshape(-1, width)
    return pack, [partial(op.combine, out, plan.wanted, rows)]


def _share(
    rows: Array,
    parts: Sequence[slice],
    outs: Sequence[Array],
    op: ReduceOp | None,
    dtype: np.dtype[Any],
) -> None:
    """Give each list its part of all rows."""
    for out, part in zip(outs, parts, strict=True):
        if op is None:
            as_rows(out, rows.dtype)[:] = rows[part]
        else:
            op.fold(out, rows[part].view(dtype))


def _result(op: ReduceOp | None) -> Callable[[np.dtype[Any]], np.dtype[Any]]:
    return same_type if op is None else op.result


def _blank(size: int, dtype: np.dtype[Any], op: ReduceOp | None) -> Array:
    """Make an output where none was given."""
    return np.empty(size, dtype) if op is None else op.blank(size, dtype)


def _joined(parts: Sequence[Array], row: np.dtype[Any]) -> Array:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty(0, row), *parts])
