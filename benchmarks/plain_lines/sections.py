"""Sections against views of the blocks, and what their layouts cost."""

from functools import partial

import pencils
from pencils.layout import build_layout

from .line import Calls, Line

MANY = 10**6


def cut(key, comm):
    u = pencils.random.uniform(pencils.Pencil((64, 64, 64), comm), 1)
    return Calls(None, partial(u.__getitem__, key))


def assignment(n, comm):
    u = pencils.random.uniform(pencils.Pencil((n,) * 3, comm, decomp=0), 1)
    block = u.local.copy()
    here = slice(1 if comm.rank == 0 else 0, -1 if comm.rank == comm.size - 1 else None)

    def by_hand():
        block[here] = -block[here]

    def plainly():
        u[1:-1] = -u[1:-1]

    return Calls(by_hand, plainly)


def layout(comm):  # noqa: ARG001 - a layout has no communicator
    whole = build_layout((4096, 4096, 4096), MANY)
    return Calls(None, partial(whole.section, [range(1, n - 1) for n in whole.shape]))


LINES = [
    Line("u[1:-1]", "-", partial(cut, slice(1, -1)), limit=15e-6),
    Line("u[3]", "-", partial(cut, 3), limit=15e-6),
    Line("layout of a section, 10^6 ranks", "-", layout, limit=10e-3),
    *(
        Line(f"u[1:-1] = -u[1:-1], {n}^3", "the same on blocks", partial(assignment, n), 1 / 1.3)
        for n in (64, 128)
    ),
]
