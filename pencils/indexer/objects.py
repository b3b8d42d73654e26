"""Python objects by global indices: `take` and `put`. They travel pickled, as rows of bytes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pencils.indexer.arguments import read_items, read_slots
from pencils.indexer.lists import IndexLists
from pencils.indexer.ragged import Ragged
from pencils.indexer.requests import bounds_of


def take(lists: IndexLists, dist_data: object, local: Any) -> Any:
    """Read objects: see `GlobalIndexer.take`. *Collective*."""
    plan, agree = lists.plan, partial(lists.agreement.on, "take")
    with agree():
        items = read_items("dist_data", dist_data, plan.rows)
        slots = [] if local is None else lists.read(local, read_slots)
        requested, where = np.unique(plan.requested, return_inverse=True)
        rows = pickled([items[number] for number in requested.tolist()]).pick(where)
        move = plan.to_requesters.prepare_ragged(rows, agree)
    rows = move()
    with agree():
        found = unpickled(rows.pick(plan.places))
    if local is None:
        return lists.result([found[part] for part in lists.parts])
    for slot, part in zip(slots, lists.parts, strict=True):
        slot[:] = found[part]
    return local


def put(lists: IndexLists, local: object, dist_data: object) -> list[Any]:
    """Write objects: see `GlobalIndexer.put`. *Collective*."""
    plan, agree = lists.plan, partial(lists.agreement.on, "put")
    with agree():
        parts = lists.read(local, read_items)
        given = dist_data is not None
        out = read_slots("dist_data", dist_data, plan.rows) if given else [None] * plan.rows
        items = [item for part in parts for item in part]
        rows = pickled(items).pick(plan.order)
        move = plan.to_owners.prepare_ragged(rows, agree)
    rows = move()
    with agree():
        written, writers = plan.last_writers
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
    """Make a new object of every row."""
    bounds, data = bounds_of(rows.counts).tolist(), rows.values.tobytes()
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
