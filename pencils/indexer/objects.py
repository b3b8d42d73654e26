"""Python objects, which travel as rows of bytes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pencils.indexer.access import Access
from pencils.indexer.arguments import read_items, read_slots
from pencils.indexer.grouping import starts
from pencils.indexer.ragged import Ragged


def take(access: Access, dist_data: object, local_data_l: Any) -> Any:
    """Read objects: see `GlobalMultiIndexer.take`. *Collective*."""
    plan = access.plan
    with access.agreement.on("take"):
        items = read_items("dist_data", dist_data, plan.rows)
        slots = access.each_given(local_data_l, read_slots)
        wanted, where = np.unique(plan.wanted, return_inverse=True)
        rows = pickled([items[number] for number in wanted.tolist()]).pick(where)
        move = plan.pulls.ready_ragged(rows, partial(access.agreement.on, "take"))
    rows = move()
    with access.agreement.on("take"):
        found = unpickled(rows.pick(plan.places))
    if local_data_l is None:
        return [found[part] for part in access.parts]
    for slot, part in zip(slots, access.parts, strict=True):
        slot[:] = found[part]
    return local_data_l


def put(access: Access, local_data_l: object, dist_data: object) -> list[Any]:
    """Write objects: see `GlobalMultiIndexer.put`. *Collective*."""
    plan = access.plan
    with access.agreement.on("put"):
        lists = access.each(local_data_l, read_items)
        given = dist_data is not None
        out = read_slots("dist_data", dist_data, plan.rows) if given else [None] * plan.rows
        items = [item for entries in lists for item in entries]
        rows = pickled(items).pick(plan.order)
        move = plan.pushes.ready_ragged(rows, partial(access.agreement.on, "put"))
    rows = move()
    with access.agreement.on("put"):
        written, writers = plan.writers
        found = unpickled(rows.pick(writers))
    for number, item in zip(written.tolist(), found, strict=True):
        out[number] = item
    return out


def pickled(items: Sequence[Any]) -> Ragged:
    """Pickle items.

    Raises
    ------
    TypeError
        If one cannot be pickled.
    """
    rows = [_pickle(item) for item in items]
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    return Ragged(counts, np.frombuffer(b"".join(rows), np.uint8))


def unpickled(rows: Ragged) -> list[Any]:
    """Make every item again, each a new one."""
    bounds, data = starts(rows.counts).tolist(), rows.values.tobytes()
    return [
        pickle.loads(data[lo:hi])  # noqa: S301 - from this very program
        for lo, hi in pairwise(bounds)
    ]


def _pickle(item: object) -> bytes:
    try:
        return pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # whatever the item raises
        msg = f"an object of type {type(item).__name__} cannot be pickled: {error}"
        raise TypeError(msg) from error
