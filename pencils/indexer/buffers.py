"""Values of one type, the same number of them for every index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pencils.combining import ReduceOp
from pencils.comm.rows import mover
from pencils.indexer.access import Access
from pencils.indexer.agreement import Typed, same_type
from pencils.indexer.arguments import read_buffer, read_count, read_output, read_reduce
from pencils.indexer.route import Errand, Lane, Steps, as_rows, row_type
from pencils.storage import Array


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
        outs = access.each_given("local_data_l", local_data_l, read_output, width)
        typed = Typed(same, [dist], outs, _result(op))
    dtype = access.agreement.settle(call, same, typed)
    if local_data_l is None:
        local_data_l = outs = [_blank(width * size, dtype, op) for size in access.sizes]
    row = row_type(dtype, width)

    def prepare(lane: Lane) -> Steps:
        source = as_rows(dist, row)
        found = np.empty(len(plan.order), row)
        if len(outs) == 1 and op is None:
            found = as_rows(outs[0], row)
        pack, unpack = plan.answers(
            source,
            plan.wanted,
            lane.source,
            lane.target,
            found,
            aliased=np.may_share_memory(source, found),
        )
        if len(outs) != 1 or op is not None:
            unpack.append(partial(_share, found, access.parts, outs, op, dtype))
        return pack, unpack

    return Errand(plan.pulls, row, prepare, local_data_l)


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

    def prepare(lane: Lane) -> Steps:
        source = _joined([as_rows(values, row) for values in lists], row)
        pack = plan.letters(source, lane.source, lane.target)
        if op is None:
            written, writers = plan.writers
            return pack, [mover(as_rows(outs[0], row), written, lane.target, writers)]
        out, rows = outs[0].reshape(-1, width), lane.target.view(dtype).reshape(-1, width)
        return pack, [partial(op.combine, out, plan.wanted, rows)]

    return Errand(plan.pushes, row, prepare, dist_data)


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
