"""Global sums against Allreduce of sums of the block."""

from functools import partial

import numpy as np
from mpi4py import MPI

import pencils

from .line import Calls, Line


def total(n, comm):
    u = pencils.random.uniform(pencils.Pencil((n,) * 3, comm), 1)
    block, mine, whole = u.local.copy(), np.empty(1), np.empty(1)

    def by_hand():
        mine[0] = block.sum()
        comm.Allreduce(mine, whole, op=MPI.SUM)
        return whole[0]

    return Calls(by_hand, u.sum)


def product(n, comm):
    pencil = pencils.Pencil((n,) * 3, comm)
    u, v = (pencils.random.uniform(pencil, rng) for rng in (1, 2))
    blocks, mine, whole = (u.local.copy(), v.local.copy()), np.empty(2), np.empty(2)

    def read_both():
        mine[:] = [block.sum() for block in blocks]
        comm.Allreduce(mine, whole, op=MPI.SUM)
        return whole

    return Calls(read_both, partial(np.vdot, u, v))


LINES = [
    Line(f"u.sum(), {n}^3", "Allreduce of block.sum()", partial(total, n), goal)
    for n, goal in ((16, 0.8), (32, 0.9), (64, 1.0), (128, 1.0))
] + [
    Line(f"np.vdot(u, v), {n}^3", "Allreduce of both sums", partial(product, n), goal)
    for n, goal in ((32, 0.3), (64, 0.77), (128, 0.77))
]
