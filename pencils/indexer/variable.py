"""Values of one type, another number of them for every index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.errors import ArgumentError
from pencils.indexer.access import Access
from pencils.indexer.agreement import Typed
from pencils.indexer.arguments import read_ragged, read_ragged_output
from pencils.indexer.ragged import Ragged, extended, replaced


def take(access: Access, dist_data: object, local_data_l: Any) -> Any:
    """Read values: see `GlobalMultiIndexer.Take_v`. *Collective*."""
    plan = access.plan
    with access.agreement.on("Take_v") as same:
        dist = read_ragged("dist_data", dist_data, plan.rows)
        outs = access.each_given(local_data_l, read_ragged_output)
        named = access.named(out.values for out in outs)
        typed = Typed(same, [("dist_data", dist.values)], named)

        def make(dtype: np.dtype[Any]) -> Callable[[], Ragged]:
            rows = dist.as_type(dtype).pick(plan.wanted)
            return plan.pulls.ready_ragged(rows, partial(access.agreement.on, "Take_v"))

        ready = typed.ready(make)
    rows = access.agreement.settle("Take_v", same, typed, ready, make)()
    with access.agreement.on("Take_v"):
        parts = rows.pick(plan.places).split(access.sizes)
        if local_data_l is None:
            outs = [Ragged(part.counts, np.empty_like(part.values)) for part in parts]
        _check_counts(access, outs, parts)
    for out, part in zip(outs, parts, strict=True):
        out.values[:] = part.values
    return [tuple(out) for out in outs] if local_data_l is None else local_data_l


def put(
    access: Access, local_data_l: object, dist_data: object, *, extend: bool
) -> tuple[Array, Array]:
    """Write values: see `GlobalMultiIndexer.Put_v`. *Collective*."""
    plan = access.plan
    with access.agreement.on("Put_v") as same:
        same(extend=bool(extend))
        lists = access.each(local_data_l, read_ragged)
        given = []
        if dist_data is not None:
            given = [read_ragged("dist_data", dist_data, plan.rows)]
        named = access.named(part.values for part in lists)
        typed = Typed(same, [*(("dist_data", part.values) for part in given), *named])

        def make(dtype: np.dtype[Any]) -> Callable[[], Ragged]:
            rows = Ragged.joined(lists, dtype).pick(plan.order)
            return plan.pushes.ready_ragged(rows, partial(access.agreement.on, "Put_v"))

        ready = typed.ready(make)
    rows = access.agreement.settle("Put_v", same, typed, ready, make)()
    with access.agreement.on("Put_v"):
        dtype = rows.values.dtype
        before = given[0].as_type(dtype) if given else Ragged.empty(plan.rows, dtype)
        counts, values = (extended if extend else replaced)(before, rows, plan.wanted)
    return counts, values


def _check_counts(access: Access, outs: Sequence[Ragged], parts: Sequence[Ragged]) -> None:
    """Check that the counts of outputs are those of what arrives."""
    for number, (out, part) in enumerate(zip(outs, parts, strict=True)):
        wrong = np.flatnonzero(out.counts != part.counts)
        if wrong.size:
            first = wrong[0]
            msg = (
                f"{access.name(number)} has count {out.counts[first]} for its index {first}, of "
                f"which there are {part.counts[first]} values"
            )
            raise ArgumentError(msg)
