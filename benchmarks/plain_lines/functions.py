"""Functions of NumPy against the same work on blocks, with Sendrecv of planes and Allreduce."""

from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import pencils

from .line import Calls, Line

SIZES = (16, 64, 128)


def field(n, comm):
    u = pencils.random.uniform(pencils.Pencil((n,) * 3, comm, decomp=0), 1)
    return u, u.local.copy()


def neighbours(comm):
    """Return the ranks below and above; none beyond the ends."""
    below, above = comm.rank - 1, comm.rank + 1
    return below if below >= 0 else MPI.PROC_NULL, above if above < comm.size else MPI.PROC_NULL


def local(call, n, comm):
    """Call a function that needs no other rank with a field, and with its block."""
    u, block = field(n, comm)
    return Calls(partial(call, block), partial(call, u))


def diff_across(n, comm):
    u, block = field(n, comm)
    below, above = neighbours(comm)
    padded = np.empty((len(block) + (above >= 0), *block.shape[1:]))

    def by_hand():
        padded[: len(block)] = block
        comm.Sendrecv(block[0], below, recvbuf=padded[-1], source=above)
        return np.diff(padded, axis=0)

    return Calls(by_hand, partial(np.diff, u, axis=0))


def roll_across(n, comm):
    u, block = field(n, comm)
    below, above = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size

    def by_hand():
        rolled = np.empty_like(block)
        comm.Sendrecv(block[-1], above, recvbuf=rolled[0], source=below)
        rolled[1:] = block[:-1]
        return rolled

    return Calls(by_hand, partial(np.roll, u, 1, axis=0))


def gradient_across(n, comm):
    u, block = field(n, comm)
    below, above = neighbours(comm)
    low, high = int(below >= 0), int(above >= 0)
    padded = np.empty((low + len(block) + high, *block.shape[1:]))

    def by_hand():
        own = padded[low : low + len(block)]
        own[...] = block
        comm.Sendrecv(block[0], below, recvbuf=padded[-1], source=above)
        comm.Sendrecv(block[-1], above, recvbuf=padded[0], source=below)
        if comm.size == 1:
            return np.gradient(own, axis=0)
        return np.gradient(padded, axis=0)[low : low + len(block)]

    return Calls(by_hand, partial(np.gradient, u, axis=0))


def total_along(n, comm):
    u, block = field(n, comm)

    def by_hand():
        mine = block.sum(axis=0)
        comm.Allreduce(MPI.IN_PLACE, mine, op=MPI.SUM)
        return mine

    return Calls(by_hand, partial(u.sum, axis=0))


def place_of_maximum(n, comm):
    u, block = field(n, comm)
    first = u.local_slices[0].start * n * n
    mine, found = np.empty(2), np.empty((comm.size, 2))

    def by_hand():
        place = block.argmax()
        mine[:] = block.flat[place], first + place
        comm.Allgather(mine, found)
        return int(found[found[:, 0].argmax(), 1])

    return Calls(by_hand, u.argmax)


def variance(n, comm):
    u, block = field(n, comm)
    mine, whole = np.empty(1), np.empty(1)

    def total(values):
        mine[0] = values.sum()
        comm.Allreduce(mine, whole, op=MPI.SUM)
        return whole[0] / n**3

    def by_hand():
        away = block - total(block)
        return total(np.multiply(away, away, out=away))

    return Calls(by_hand, u.var)


def middle(n, comm):
    u, block = field(n, comm)
    counts = comm.allgather(block.size)
    whole, found = np.empty(n**3 if comm.rank == 0 else 0), np.empty(1)

    def by_hand():
        comm.Gatherv(block, [whole, counts])
        if comm.rank == 0:
            found[0] = np.median(whole)
        comm.Bcast(found)
        return found[0]

    return Calls(by_hand, partial(np.median, u))


BLOCKS, PLANES = "NumPy on the blocks", "Sendrecv, NumPy"
ROWS: list[tuple[str, str, Any, tuple[float, ...]]] = [
    ("np.diff(u, axis=2)", BLOCKS, partial(local, partial(np.diff, axis=2)), (0.5, 0.9, 1.0)),
    ("np.diff(u, axis=0)", PLANES, diff_across, (0.5, 1.0, 1.0)),
    ("np.roll(u, 1, axis=0)", PLANES, roll_across, (0.5, 0.9, 1.0)),
    ("np.gradient(u, axis=0)", PLANES, gradient_across, (0.5, 1.0, 1.0)),
    ("u.sum(axis=0)", "Allreduce of block.sum(axis=0)", total_along, (0.5, 0.9, 1.0)),
    ("u.argmax()", "Allgather of block.argmax()", place_of_maximum, (0.5, 0.9, 1.0)),
    ("u.var()", "two Allreduce", variance, (0.5, 0.9, 1.0)),
    ("u.copy()", BLOCKS, partial(local, np.copy), (0.5, 0.9, 1.0)),
    ("np.median(u)", "Gatherv, np.median", middle, (0.5, 1.0, 1.0)),
]
LINES = [
    Line(f"{name}, {n}^3", peer, partial(make, n), goal)
    for name, peer, make, goals in ROWS
    for n, goal in zip(SIZES, goals, strict=True)
]
