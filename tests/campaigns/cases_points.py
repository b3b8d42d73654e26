"""Cases: points of fields, items of collections, interpolation."""

import contextlib

import numpy as np
from cases import case, each

import pencils
from pencils import GlobalIndexer, GlobalMultiIndexer
from pencils.comm.pack import using
from pencils.indexer import Interpolation, PointIndexer, ReduceOp

# ---- points ----


def _written(w, values, before, reduce=None):
    """Return what NumPy makes of the writes of all ranks; `values` are those of a rank."""
    data = before.copy()
    where = tuple(w.everyones_coords())
    every = np.concatenate([values(w, rank) for rank in range(w.size)])
    if reduce is None:
        for *at, value in zip(*where, every, strict=True):
            data[tuple(at)] = value
    else:
        reduce.at(data, where, every)
    return data


def _values(w, rank):
    return np.arange(float(w.points)) + 100 * rank


@each({"private": {}, "shared": {"shared": True}, "components": {"components": 2, "halo": 1}})
def take(w, value):
    u = w.field(**value)
    coords = w.coords(w.rank)
    return lambda: w.equal(u.take_points(coords), w.expected(u)[(..., *coords)])


@case
def take_onto_itself(w):
    u = w.field(shared=True)
    coords = w.coords(w.rank, min(w.points, u.local.size))

    def call():
        w.refill(u)
        w.comm.Barrier()
        out = u.local.reshape(-1)[: len(coords[0])]
        found = u.take_points(coords, out)
        w.equal(found, w.data[tuple(coords)])

    return call


@case
def take_nothing(w):
    """Most ranks read nothing."""
    u = w.field(w.pen.with_(decomp=(0, 2)))
    coords = w.coords(w.rank, 4 if w.rank == w.size - 1 else 0)
    return lambda: w.equal(u.take_points(coords), w.data[tuple(coords)])


@case
def take_outside(w):
    u = w.field()
    coords = w.coords(w.rank)
    if w.rank == w.size - 1:
        coords[1] = coords[1] + w.shape[1]
    return lambda: w.raises(
        IndexError, lambda: u.take_points(coords), "" if w.size == 1 else f"rank {w.size - 1}: "
    )


@each({"last": None, "sum": ReduceOp.SUM, "max": ReduceOp.MAX})
def put(w, value):
    u = w.field()
    ufunc = value and value.ufunc

    def call():
        w.refill(u)
        u.put_points(w.coords(w.rank), _values(w, w.rank), reduce=value)
        w.holds(u, _written(w, _values, w.data, ufunc))

    return call


@case
def put_converted(w):
    u = w.field(w.pen.with_(order=(2, 1, 0), decomp=(1, 2)), dtype=">f4", halo=1)

    def call():
        w.refill(u)
        u.put_points(w.coords(w.rank), np.arange(w.points))
        w.holds(u, _written(w, lambda *_: np.arange(w.points), w.expected(u)))

    return call


@case
def put_replicas(w):
    u = w.field(dims=(1, 2))

    def call():
        w.refill(u)
        coords = [0, *w.coords(w.rank)[1:]]
        u.put_points(coords, _values(w, w.rank), reduce=ReduceOp.SUM)
        data = w.expected(u).copy()
        _, *where = w.everyones_coords()
        np.add.at(data[0], tuple(where), np.concatenate([_values(w, r) for r in range(w.size)]))
        w.holds(u, data)
        pencils.debug.verify_replicas(u)

    return call


@each({"checked": {}, "unchecked": {"check": False}, "numpy": {"kernels": "numpy"}})
def point_indexer(w, value):
    u, v = w.field(shared=True, components=2), w.field(components=2)
    coords = w.coords(w.rank)
    expected = w.expected(u)[(..., *coords)]
    out = np.empty((2, w.points))
    options = dict(value)
    kernels = options.pop("kernels", None)

    def call():
        w.refill(v)
        with (
            using(kernels) if kernels else contextlib.nullcontext(),
            PointIndexer(w.pen, coords, **options) as at,
        ):
            w.equal(at.take(u, out), expected)
            w.equal(at.take(u, out), expected)
            at.put(v, 2 * out)
            w.equal(at.take(v), 2 * expected)

    return call


@case
def points_under_way(w):
    at = PointIndexer(w.pen, w.coords(w.rank))
    us = [w.field(tag=tag) for tag in range(3)]
    begun = []

    def call():
        while begun:
            begun.pop().wait()
        for tag, u in enumerate(us):
            w.refill(u, tag)
        begun.extend(at.take_start(u) for u in us)
        found = {number: begun[number].wait() for number in np.roll([0, 1, 2], w.rank)}
        begun.clear()
        for tag, u in enumerate(us):
            w.equal(found[tag], w.expected(u, tag)[tuple(w.coords(w.rank))])
        begun.extend(at.put_start(u, 3 * found[tag]) for tag, u in enumerate(us))
        for number in np.roll([0, 1, 2], w.rank):
            begun[number].wait()
        begun.clear()
        for tag, u in enumerate(us):
            data = w.expected(u, tag).copy()
            where = tuple(w.everyones_coords())
            data[where] = 3 * w.expected(u, tag)[where]
            w.holds(u, data)

    return call


def _collection(w, count=1):
    return (np.arange(w.rows * w.size * count) * 37 % 101.0).reshape(-1, count)


@each({"one": {}, "rows": {"count": 3}, "sum": {"reduce": ReduceOp.SUM}})
def global_take(w, value):
    data = _collection(w, value.get("count", 1))
    items = w.items(w.rank)
    at = GlobalIndexer(w.cuts, items, w.comm)
    return lambda: w.equal(at.Take(data[w.section], None, **value), data[items].reshape(-1))


@each({"one": {}, "rows": {"count": 3}, "sum": {"reduce": ReduceOp.SUM}})
def global_put(w, value):
    count = value.get("count", 1)
    every = w.everyones_items()
    values = np.arange(float(len(every) * count)).reshape(-1, count)
    at = GlobalIndexer(w.cuts, w.items(w.rank), w.comm)
    expected = _collection(w, count)
    if "reduce" in value:
        np.add.at(expected, every, values)
    else:
        for item, row in zip(every, values, strict=True):
            expected[item] = row

    def call():
        section = _collection(w, count)[w.section].copy()
        at.Put(values[w.mine], section, **value)
        w.equal(section, expected[w.section])

    return call


@case
def global_objects(w):
    items, every = w.items(w.rank), w.everyones_items()
    at = GlobalIndexer(w.cuts, items, w.comm)
    data = [f"item {item}" for item in range(w.cuts[-1])]
    last = {item: f"value {number}" for number, item in enumerate(every)}

    def call():
        found = at.take(data[w.section])
        assert found == [data[item] for item in items]
        written = at.put([f"value {number}" for number in range(len(every))[w.mine]])
        assert written == [last.get(item) for item in range(w.cuts[-1])[w.section]]
        w.record(np.array([len(found), len(written)]))

    return call


@case
def global_ragged(w):
    items = w.items(w.rank)
    at = GlobalIndexer(w.cuts, items, w.comm)
    data = [np.arange(float(item % 3)) + item for item in range(w.cuts[-1])]
    mine = data[w.section]
    section = np.array([len(item) for item in mine]), np.concatenate(mine)

    def call():
        counts, values = at.Take_v(section)
        w.equal(np.asarray(counts, int), np.array([len(data[item]) for item in items], int))
        w.equal(values, np.concatenate([np.empty(0), *(data[item] for item in items)]))

    return call


@case
def global_lists_under_way(w):
    items = w.items(w.rank)
    data = _collection(w)[:, 0]

    def call():
        with GlobalMultiIndexer(w.cuts, [items, items[::-2]], w.comm) as at:
            begun = [at.Take_start(factor * data[w.section]) for factor in (1, 2, 3)]
            found = {number: begun[number].wait() for number in np.roll([0, 1, 2], w.rank)}
        for number, factor in enumerate((1, 2, 3)):
            for values, index in zip(found[number], (items, items[::-2]), strict=True):
                w.equal(values, factor * data[index])

    return call


@case
def global_put_ragged(w):
    items, every = w.items(w.rank), w.everyones_items()
    at = GlobalIndexer(w.cuts, items, w.comm)
    values = [np.arange(float(number % 4)) + number for number in range(len(every))]
    before = [np.full(item % 3, float(item)) for item in range(w.cuts[-1])]
    after = dict(enumerate(before)) | dict(zip(every.tolist(), values, strict=True))
    longer = {item: before[item] for item in after}
    for item, value in zip(every.tolist(), values, strict=True):
        longer[item] = np.concatenate([longer[item], value])

    def ragged(rows):
        return np.array([len(row) for row in rows], int), np.concatenate([np.empty(0), *rows])

    def call():
        rows = range(w.cuts[-1])[w.section]
        mine, own = ragged(values[w.mine]), ragged(before[w.section])
        for found, expected in (
            (at.Put_v(mine, own), after),
            (at.Put_v(mine, own, extend=True), longer),
        ):
            counts, numbers = ragged([expected[row] for row in rows])
            w.equal(np.asarray(found[0], int), counts)
            w.equal(found[1], numbers)

    return call


@case
def global_puts_under_way(w):
    every = w.everyones_items()
    values = np.arange(float(len(every)))
    expected = [factor * _collection(w)[:, 0] for factor in (1, 2, 3)]
    for factor, data in enumerate(expected, 1):
        np.maximum.at(data, every, factor * values)

    def call():
        sections = [factor * _collection(w)[w.section, 0] for factor in (1, 2, 3)]
        with GlobalIndexer(w.cuts, w.items(w.rank), w.comm) as at:
            begun = [
                at.Put_start(factor * values[w.mine], section, reduce=ReduceOp.MAX)
                for factor, section in enumerate(sections, 1)
            ]
            for number in np.roll([0, 1, 2], w.rank):
                begun[number].wait()
        for section, data in zip(sections, expected, strict=True):
            w.equal(section, data[w.section])

    return call


def _weights(w, rank):
    """Return positions of a rank, and the points around them with their weights."""
    rng = w.rng(rank, 2)
    at = [rng.uniform(0, n - 1, w.points) for n in w.shape]
    lows = [np.minimum(a.astype(int), n - 2) for a, n in zip(at, w.shape, strict=True)]
    corners = []
    for offsets in np.ndindex(2, 2, 2):
        weight = np.ones(w.points)
        for a, low, offset in zip(at, lows, offsets, strict=True):
            weight = weight * ((a - low) if offset else (1 - (a - low)))
        corners.append((tuple(low + o for low, o in zip(lows, offsets, strict=True)), weight))
    return at, corners


@each({"verb": False, "plan": True})
def interpolate(w, value):
    u = w.field()
    at, corners = _weights(w, w.rank)
    expected = sum(weight * w.data[where] for where, weight in corners)

    def call():
        if value:
            with Interpolation(w.pen, at) as plan:
                w.about(plan(u), expected)
        else:
            w.about(pencils.indexer.interpolate(u, at), expected)

    return call


@case
def interpolate_outside(w):
    u = w.field()
    at, corners = _weights(w, w.rank)
    expected = sum(weight * w.data[where] for where, weight in corners)
    if w.rank == 0:
        at[0][3], expected[3] = -7.5, -1.0

    def call():
        w.about(pencils.indexer.interpolate(u, at, fill_value=-1.0), expected)
        text = "" if w.size == 1 else "rank 0: "
        w.raises(IndexError, lambda: pencils.indexer.interpolate(u, at), text)

    return call


@case
def deposit(w):
    at, _ = _weights(w, w.rank)
    v = pencils.zeros(w.pen)
    expected = np.zeros(w.shape)
    for rank in range(w.size):
        for where, weight in _weights(w, rank)[1]:
            np.add.at(expected, where, weight * _values(w, rank))

    def call():
        v.fill(0)
        with Interpolation(w.pen, at) as plan:
            plan.deposit(v, _values(w, w.rank))
        w.holds_about(v, expected)

    return call
