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


def moved(line, planes, comm, *, leave=0):
    """Compare an assignment that moves points with a transpose of as many bytes.

    That is one between slabs, out of place, of a field that has at least as many planes as the
    section, and of which at least as many bytes leave their rank: `leave` planes do in the line.
    """
    u, v = (pencils.random.uniform(pencils.Pencil((64,) * 3, comm, decomp=0), n) for n in (1, 2))
    w = pencils.random.uniform(u.pencil.with_(shape=(32, 64, 64)), 3)
    extent = max(planes, round(leave * comm.size / max(1, comm.size - 1)))
    field = pencils.random.uniform(u.pencil.with_(shape=(extent, 64, 64)), 4)
    out = pencils.empty(field.pencil.with_(decomp=1))
    code, names = compile(line, line, "exec"), {"u": u, "v": v, "w": w}
    return Calls(
        partial(pencils.transpose, field, out.pencil, out),
        partial(exec, code, names),
    )


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
    *(
        Line(
            f"{line}, 64^3",
            "transpose of as many bytes",
            partial(moved, line, planes, leave=leave),
            1 / 1.5,
        )
        for line, planes, leave in (
            ("u[1:] = u[:-1]", 63, 0),
            ("u[..., 1:] = u[..., :-1]", 63, 0),
            ("u[:32] = v[32:]", 32, 32),
            ("u[::2] = w", 32, 0),
            ("w[...] = u[::2]", 32, 0),
        )
    ),
]
