"""More steps of random programs: points, files, other libraries."""

from zlib import crc32

import model
import numpy as np
from model_steps import STEPS, step, text_of
from world import numbers

import pencils
from pencils import GlobalIndexer, dap
from pencils.fft import PencilFFT
from pencils.indexer import PointIndexer, ReduceOp

__all__ = ["STEPS"]

# ---- points ----


def _points(p, v, rank):
    """Return the points of a rank, which all ranks can compute."""
    rng = np.random.default_rng([crc32(str(p.seed).encode()), p.number, rank])
    count = int(rng.integers(0, 12))
    space = v.data.shape[len(v.u.components) :]
    return [rng.integers(0, extent, count) if extent else np.zeros(0, int) for extent in space]


@step(3, lambda v: v.data.size)
def take(p, v):
    p.note(f"take from {text_of(v)}")
    coords = _points(p, v, p.rank)
    found = v.u.take_points(coords)
    assert np.array_equal(found, v.data[(..., *coords)]), "take"


@step(3, lambda v: v.data.size)
def put(p, v):
    adds = p.rng.random() < 0.5
    p.note(f"put to {text_of(v)}, {adds=}")
    every = [_points(p, v, rank) for rank in range(p.size)]
    shape = (*v.u.components, len(every[p.rank][0]))
    mine = numbers(shape, v.u.dtype.str, p.rank)
    v.u.put_points(every[p.rank], mine, reduce=ReduceOp.SUM if adds else None)
    for rank, coords in enumerate(every):
        values = numbers((*v.u.components, len(coords[0])), v.u.dtype.str, rank)
        for number, at in enumerate(zip(*coords, strict=True)):
            if adds:
                v.data[(..., *at)] += values[..., number]
            else:
                v.data[(..., *at)] = values[..., number]
    v.check()


@step(4, lambda v: v.data.size and not v.u.singletons)
def start_take(p, v):
    if len(p.flights) >= model.FLIGHTS:
        return False
    p.note(f"start to take from {text_of(v)}")
    coords = _points(p, v, p.rank)
    at = PointIndexer(v.u.pencil, coords)
    expected = v.data[(..., *coords)]

    def finish(found):
        assert np.array_equal(found, expected), "take_start"
        at.free()

    p.fly(at.take_start(v.u), [v], finish, "take")
    return None


@step(2, lambda v: v.data.size and v.u.dtype.kind in "fc" and not v.u.singletons)
def interpolate(p, v):
    """At points of the grid, values are those of the field."""
    p.note(f"interpolate {text_of(v)}")
    coords = _points(p, v, p.rank)
    found = pencils.indexer.interpolate(v.u, [along.astype(float) for along in coords])
    assert np.allclose(found, v.data[(..., *coords)]), "interpolate"


@step(1)
def items(p):
    p.note("global indexer")
    cuts = 3 * np.arange(p.size + 1)
    rng = np.random.default_rng([p.number, p.rank])
    index = rng.integers(0, cuts[-1], int(rng.integers(0, 7)))
    data = np.arange(float(cuts[-1])) ** 2
    with GlobalIndexer(cuts, index, p.comm) as at:
        found = at.Take(data[cuts[p.rank] : cuts[p.rank + 1]])
    assert np.array_equal(found, data[index]), "Take"


@step(1)
def save(p):
    found = p.free(lambda v: v.u.dtype.isnative)[:2]
    if not found:
        return False
    path = p.folder / f"{p.depth} {p.seed} {p.number}.h5"
    p.note(f"save and load {[text_of(v) for v in found]}")
    saving = pencils.save(path, {v.name: v.u for v in found}, wait=p.rng.random() < 0.5)
    pen = p.choose_pencil()
    if saving is not None:
        saving.wait()
    state = pencils.load(path, pen)
    for v in found:
        assert np.array_equal(state[v.name].local, v.data[state[v.name].local_slices]), "load"
    return None


@step(1, lambda v: not v.u.singletons and v.u.dtype.isnative)
def export(p, v):
    p.note(f"export and import {text_of(v)}")
    w = dap.import_array(v.u, dap.comm(v.u))
    assert np.array_equal(w.local, v.data[w.local_slices]), "dap"


@step(1, lambda v: v.u.dtype == "f8" and v.u.dtype.isnative and not v.u.singletons)
def transform(p, v):
    if not v.data.size:
        return False
    p.note(f"transform {text_of(v)}")
    with PencilFFT(v.u.pencil, components=v.u.components, backend="scipy") as plan:
        back = plan.backward(plan.forward(v.u))
    assert np.allclose(back.local, v.data[back.local_slices]), "fft"
    return None
