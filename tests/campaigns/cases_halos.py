"""Cases: fields exchange ghosts."""

import numpy as np
from cases import case, each, methods
from world import accumulated, check_ghosts, fill_padded, ghost_mask, padded_block

import pencils
from pencils import HaloExchange

WIDTHS = {"one": 1, "some": ((2, 0), (0, 1), (1, 1)), "wide": (4, 3, 1)}


@each(WIDTHS)
def exchange_halo(w, value):
    us = [w.field(w.pen.with_(periodic=wraps), halo=value) for wraps in (True, False)]

    def call():
        for u in us:
            w.refill(u, ghosts=-1)
            u.exchange_halo()
            check_ghosts(w, u, w.data, -1)

    return call


@case
def exchange_halo_star(w):
    u = w.field(w.pen.with_(decomp=(0, 1), periodic=(True, False, True)), halo=1)

    def call():
        w.refill(u, ghosts=-1)
        u.exchange_halo(corners=False)
        if u.local.size:  # corners may be filled or not
            mask = ghost_mask(u, corners=False)
            w.equal(u.padded[mask], padded_block(u, w.data)[mask])

    return call


@each({"plain": {}, "shared": {"shared": True}})
def exchange_halos(w, value):
    pen = w.pen.with_(periodic=True)
    us = [
        w.field(pen, halo=1, dtype="f8", **value),
        w.field(pen, halo=(2, 0, 1), dtype="f4", components=2, **value),
        w.field(pen, halo=1, dims=(0, 1), dtype="i2"),
    ]

    def call():
        for u in us:
            w.refill(u, ghosts=-1)
        pencils.halo.exchange_halos(us)
        for u in us:
            check_ghosts(w, u, w.expected(u), -1)

    return call


@each({"plain": {}, "shared": {"shared": True}})
def halos_under_way(w, value):
    us = [w.field(w.pen.with_(periodic=True), halo=2, tag=tag, **value) for tag in range(3)]
    begun = []

    def call():
        while begun:
            begun.pop().wait()
        for tag, u in enumerate(us):
            w.refill(u, tag, ghosts=-1)
        begun.extend(u.start_halo_exchange() for u in us)
        for number in np.roll([0, 1, 2], w.rank):
            begun[number].wait()
        begun.clear()
        for tag, u in enumerate(us):
            check_ghosts(w, u, w.expected(u, tag), -1)

    return call


@each(
    methods("auto", "messages", "hybrid")
    | {"sweeps": {"route": "sweeps"}, "sweeping": {"route": "sweeps", "method": "messages"}}
    | {"measure": {"route": "measure"}}
)
def halo_plan(w, value):
    u = w.field(w.pen.with_(decomp=(0, 1), periodic=True), halo=2, shared=True)

    def call():
        with HaloExchange(u, **value) as plan:
            for tag in range(2):
                w.refill(u, tag, ghosts=-1)
                plan(u)
                check_ghosts(w, u, w.expected(u, tag), -1)

    return call


@each({"direct": "direct", "sweeps": "sweeps"})
def halo_plan_unchecked(w, value):
    pen = w.pen.with_(decomp=(1, 2), periodic=True)
    us = [w.field(pen, halo=1, dtype=dtype) for dtype in ("f4", "c16")]
    plan = HaloExchange(us, route=value, check=False)

    def call():
        for tag in range(3):
            for u in us:
                w.refill(u, tag, ghosts=-1)
            if tag == 1:
                plan.start(*us).wait()
            else:
                plan(*us)
            for u in us:
                check_ghosts(w, u, w.expected(u, tag), -1)

    return call


@each({"verb": None} | methods("auto", "messages", "hybrid"))
def accumulate_halo(w, value):
    u = w.field(w.pen.with_(periodic=(True, False, True)), halo=1)
    plan = None if value is None else HaloExchange(u, **value)

    def call():
        fill_padded(u)
        if plan is None:
            u.accumulate_halo()
        else:
            plan.accumulate(u)
        w.holds(u, accumulated(u))

    return call


@case
def stencil(w):
    u = w.field(w.pen.with_(periodic=True), halo=1)

    def call():
        w.refill(u)
        u.exchange_halo()
        found = u.shift((1, 0, 0)) - 2 * u + u.shift((-1, 0, 1))
        w.holds(found, np.roll(w.data, -1, 0) - 2 * w.data + np.roll(w.data, (1, -1), (0, 2)))

    return call


@case
def fill_boundary(w):
    u = w.field(halo=1)

    def call():
        w.refill(u)
        u.exchange_halo()
        u.fill_boundary("edge")
        if u.local.size:
            whole = np.pad(w.data, 1, "edge")
            start = u.pencil.box().start
            key = tuple(
                slice(a, a + extent) for a, extent in zip(start, u.padded.shape, strict=True)
            )
            w.equal(u.padded, whole[key])

    return call
