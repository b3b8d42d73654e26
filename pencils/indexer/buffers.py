"""Values of one type, the same number of them for every index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pencils.indexer.access import Access
from pencils.indexer.agreement import Typed, same_type
from pencils.indexer.arguments import read_buffer, read_count, read_output, read_reduce
from pencils.indexer.reduce import ReduceOp
from pencils.indexer.route import Transfer, as_rows, row_type
from pencils.storage import Array


def take(
    access: Access,
    call: str,
    dist_data: object,
    local_data_l: Any,
    *,
    count: object,
    reduce: object,
) -> Transfer[Any]:
    """Prepare to read values: see `GlobalMultiIndexer.Take`. *Collective*."""
    plan = access.plan
    with access.agreement.on(call) as same:
        width, op = read_count(count), read_reduce(reduce)
        same(count=width, reduce=op)
        dist = read_buffer("dist_data", dist_data, width * plan.rows)
        outs = access.each_given("local_data_l", local_data_l, read_output, width)
        typed = Typed(same, [dist], outs, _result(op))
    dtype = access.agreement.settle(call, same, typed)
    if local_data_l is None:
        local_data_l = outs = [_blank(width * size, dtype, op) for size in access.sizes]
    row = row_type(dtype, width)
    lane = plan.pulls.take_lane(row)
    pick(as_rows(dist, row), plan.wanted, lane.source)

    def unpack(rows: Array) -> None:
        for out, part in zip(outs, access.parts, strict=True):
            if op is None:
                pick(rows, plan.places[part], as_rows(out, row))
            else:
                op.fold(out, rows[plan.places[part]].view(dtype))

    return Transfer(plan.pulls, lane, unpack, local_data_l)


def put(
    access: Access,
    call: str,
    local_data_l: object,
    dist_data: Any,
    *,
    count: object,
    reduce: object,
) -> Transfer[Any]:
    """Prepare to write values: see `GlobalMultiIndexer.Put`. *Collective*."""
    plan = access.plan
    with access.agreement.on(call) as same:
        width, op = read_count(count), read_reduce(reduce)
        same(count=width, reduce=op)
        lists = access.each("local_data_l", local_data_l, read_buffer, width)
        outs = []
        if dist_data is not None:
            outs = [read_output("dist_data", dist_data, width * plan.rows)]
        typed = Typed(same, lists, outs, _result(op))
    dtype = access.agreement.settle(call, same, typed)
    if dist_data is None:
        dist_data = _blank(width * plan.rows, dtype, op)
        outs = [dist_data]
    row = row_type(dtype, width)
    lane = plan.pushes.take_lane(row)
    pick(_joined([as_rows(values, row) for values in lists], row), plan.order, lane.source)

    def unpack(rows: Array) -> None:
        if op is not None:
            op.combine(outs[0], plan.wanted, rows.view(dtype), width)
            return
        written, writers = plan.writers
        as_rows(outs[0], row)[written] = rows[writers]

    return Transfer(plan.pushes, lane, unpack, dist_data)


def pick(source: Array, rows: Any, out: Array) -> None:
    """Copy rows of `source`, which are there, into `out`."""
    # Any other mode would copy through a buffer, to leave `out` alone if an index is wrong.
    np.take(source, rows, out=out, mode="clip")


def _result(op: ReduceOp | None) -> Callable[[np.dtype[Any]], np.dtype[Any]]:
    return same_type if op is None else op.result


def _blank(size: int, dtype: np.dtype[Any], op: ReduceOp | None) -> Array:
    """Make an output where none was given."""
    return np.empty(size, dtype) if op is None else op.blank(size, dtype)


def _joined(parts: Sequence[Array], row: np.dtype[Any]) -> Array:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty(0, row), *parts])
