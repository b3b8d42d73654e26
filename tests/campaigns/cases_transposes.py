"""Cases: fields are transposed."""

import numpy as np
from cases import case, each, methods

import pencils
from pencils import Pencil, Transposition

METHODS = methods("auto", "messages", "hybrid", "alltoallw")


@each({"new": False, "out": True})
def transpose(w, value):
    u = w.field()
    out = w.zeros(w.across) if value else None

    def call():
        found = pencils.transpose(u, w.across, out=out)
        w.holds(found, w.data)
        w.holds(pencils.transpose(found, w.pen), w.data)

    return call


@case
def transpose_in_place(w):
    u, v = pencils.alias([w.pen, w.across])

    def call():
        w.refill(u)
        w.holds(pencils.transpose(u, w.across, out=v), w.data)
        w.holds(pencils.transpose(v, w.pen, out=u), w.data)

    return call


@each(METHODS)
def transposition(w, value):
    plan = Transposition(w.pen, w.across, **value)
    u, out = w.field(), pencils.empty(w.across)

    def call():
        out.fill(0)
        w.holds(plan(u, out), w.data)

    return call


@each(METHODS)
def make_transposition(w, value):
    u = w.field(halo=1)

    def call():
        with Transposition(w.pen, w.across, **value) as plan:
            w.holds(plan(u, w.zeros(w.across, halo=(1, 0, 2))), w.data)

    return call


@each({"messages": {"method": "messages"}, "auto": {}})
def transposition_in_chunks(w, value):
    plan = Transposition(w.pen, w.across, max_buffer_bytes=w.data.nbytes // 20, **value)
    u = w.field()
    return lambda: w.holds(plan(u), w.data)


@each(METHODS)
def transposition_unchecked(w, value):
    plan = Transposition(w.pen, w.across, "f4", components=2, check=False, **value)
    u, out = w.field(dtype="f4", components=2), w.zeros(w.across, dtype="f4", components=2)

    def call():
        for tag in range(2):
            w.refill(u, tag)
            w.holds(plan(u, out), w.expected(u, tag))

    return call


@each(METHODS)
def transpositions_under_way(w, value):
    plan = Transposition(w.pen, w.across, **value)
    pairs = [(w.field(tag=tag), w.zeros(w.across)) for tag in range(3)]
    begun = []

    def call():
        while begun:  # what a failure left behind
            begun.pop().wait()
        begun.extend(plan.start(*pair) for pair in pairs)
        for number in np.roll([0, 1, 2], w.rank):  # ranks wait in different orders
            begun[number].wait()
        begun.clear()
        for tag, (u, out) in enumerate(pairs):
            w.holds(out, w.expected(u, tag))

    return call


@each(METHODS)
def transposition_aliased(w, value):
    plan = Transposition(w.pen, w.across, **value)
    u, v = pencils.alias([w.pen, w.across])

    def call():
        w.refill(u)
        w.holds(plan(u, v), w.data)

    return call


@case
def transposition_aliased_in_shared_memory(w):
    def call():
        u, v = pencils.alias([w.pen, w.across], "f4", shared=True)
        w.refill(u)
        w.holds(pencils.transpose(u, w.across, out=v), w.expected(u))

    return call


@each(METHODS)
def transposition_batch(w, value):
    plan = Transposition(w.pen, w.across, **value)
    us = [w.field(tag=tag) for tag in range(3)]

    def call():
        for tag, found in enumerate(plan.batch(us)):
            w.holds(found, w.expected(us[tag], tag))

    return call


@case
def transposition_buffers(w):
    plan = Transposition(w.pen, w.across)

    def call():
        u, out = plan.buffers()
        w.refill(u)
        w.holds(plan(u, out), w.data)

    return call


@case
def transposition_reversed(w):
    plan = Transposition(w.pen, w.across)
    u = w.field(w.across)

    def call():
        with plan.reversed() as back:
            w.holds(back(u), w.data)

    return call


@each(METHODS)
def transposition_of_blocks(w, value):
    """Between pencils that differ in all that they can differ in."""
    ones = w.pen.with_(decomp=(2, 0), order=(1, 2, 0), splits="last")
    others = w.pen.with_(decomp=(0, 1), order=(2, 0, 1), splits="floor")
    u = w.field(ones, halo=1, dtype="c8")

    def call():
        with Transposition(ones, others, "c8", **value) as plan:
            w.holds(plan(u), w.expected(u))

    return call


@case
def transposition_of_planes(w):
    u = w.field(dims=(0, 2), components=3)
    return lambda: w.holds(pencils.transpose(u, w.across), w.expected(u))


@each({"half": lambda size: range((size + 1) // 2), "turned": lambda size: range(size)[::-1]})
def transposition_to_some_ranks(w, value):
    ranks = list(value(w.size))
    group = w.comm.Get_group()
    chosen = group.Incl(ranks)
    comm = w.comm.Create_group(chosen) if w.rank in ranks else None
    chosen.Free()
    group.Free()
    few = None if comm is None else Pencil(w.shape, comm, decomp=1)
    u = w.field()

    def call():
        with Transposition(w.pen, few, comm=w.comm) as plan:
            v = plan(u)
            assert (v is None) == (few is None)
            if v is not None:
                w.holds(v, w.data)
            with plan.reversed() as back:
                w.holds(back(v), w.data)

    return call


@each({"method": {"grids": False}, "grids": {"grids": True}})
def tune(w, value):
    across = w.pen.with_(decomp=(1, 2))

    def call():
        tuned = pencils.tune([w.pen, across], repeat=1, show=False, **value)
        u = w.field(tuned.pencils[0])
        w.holds(pencils.transpose(u, tuned.pencils[1]), w.data)

    return call
