"""Halo exchanges and explicit heat steps against Sendrecv of the faces, one axis decomposed."""

from functools import partial

import numpy as np
from mpi4py import MPI

import pencils
from pencils.halo import exchange_halos

from .line import Calls, Line, values

RATE = 0.1  # of the heat equation, for one step


class Faces:
    """A block, padded along axis 0, or all with `wrap`, whose faces are sent by Sendrecv."""

    def __init__(self, n, comm, *, wrap=False):
        start, stop = (n * rank // comm.size for rank in (comm.rank, comm.rank + 1))
        self.block = values((stop - start + 2, n + 2 * wrap, n + 2 * wrap), comm)
        self.own = self.block[1:-1, 1:-1, 1:-1] if wrap else self.block[1:-1]
        self.comm, self.wrap = comm, wrap
        self.up, self.down = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def exchange(self):
        block, comm = self.block, self.comm
        comm.Sendrecv(block[-2], self.up, recvbuf=block[0], source=self.down)
        comm.Sendrecv(block[1], self.down, recvbuf=block[-1], source=self.up)
        if self.wrap:
            block[:, 0] = block[:, -2]
            block[:, -1] = block[:, 1]
            block[:, :, 0] = block[:, :, -2]
            block[:, :, -1] = block[:, :, 1]

    def naive_step(self):
        self.exchange()
        block = self.block
        own, up, down = self.own, block[2:], block[:-2]
        self.own[...] = own + RATE * (up + down - 2 * own)


class TunedFaces(Faces):
    """The same with persistent requests, and memory for the temporary values."""

    def __init__(self, n, comm):
        super().__init__(n, comm)
        block = self.block
        self.requests = [
            comm.Recv_init(block[0], self.down, 1),
            comm.Recv_init(block[-1], self.up, 2),
            comm.Send_init(block[-2], self.up, 1),
            comm.Send_init(block[1], self.down, 2),
        ]
        self.shifted = block[2:], block[:-2]
        self.work, self.twice = np.empty(self.own.shape), np.empty(self.own.shape)

    def step(self):
        MPI.Prequest.Startall(self.requests)
        MPI.Request.Waitall(self.requests)
        tuned_formula(self.own, *self.shifted, self.work, self.twice)

    def free(self):
        for request in self.requests:
            request.Free()


def tuned_formula(own, up, down, work, twice):
    np.add(up, down, out=work)
    np.multiply(own, 2, out=twice)
    np.subtract(work, twice, out=work)
    np.multiply(work, RATE, out=work)
    np.add(own, work, out=own)


ALONG_0 = ((1, 1), (0, 0), (0, 0))


def field(n, comm, halo=1):
    pencil = pencils.Pencil((n,) * 3, comm, decomp=0, periodic=True)
    u = pencils.zeros(pencil, halo=halo)
    u.local[...] = values(u.local_shape, comm)
    return u


def exchange(n, comm, *, wrap):
    u, faces = field(n, comm, 1 if wrap else ALONG_0), Faces(n, comm, wrap=wrap)
    return Calls(faces.exchange, u.exchange_halo)


def together(n, comm):
    u, v = field(n, comm), field(n, comm)

    def one_by_one():
        u.exchange_halo()
        v.exchange_halo()

    return Calls(one_by_one, lambda: exchange_halos([u, v]))


def unchecked(n, comm):
    u = field(n, comm)
    plan = pencils.HaloExchange(u, check=False)
    return Calls(u.exchange_halo, partial(plan, u), plan.free)


def boundary(n, comm, mode):
    u = pencils.ones(pencils.Pencil((n,) * 3, comm, decomp=0), halo=1)
    last, source = comm.size - 1, 1 if mode == "edge" else 2
    edges = [(axis, at) for axis in range(3) for at in (0, -1)]
    here = [(axis, at) for axis, at in edges if axis or comm.rank == (last if at else 0)]
    turned = [(np.moveaxis(u.padded, axis, 0), at) for axis, at in here]
    copies = [(block[at], block[at - source if at else source]) for block, at in turned]

    def by_hand():
        for target, points in copies:
            target[...] = points

    return Calls(by_hand, partial(u.fill_boundary, mode))


def naive(n, comm):
    u, faces = field(n, comm, ALONG_0), Faces(n, comm)

    def step():
        u.exchange_halo()
        u[...] = u + RATE * (u.shift((1, 0, 0)) + u.shift((-1, 0, 0)) - 2 * u)

    return Calls(faces.naive_step, step)


def tuned(n, comm):
    u, faces = field(n, comm, ALONG_0), TunedFaces(n, comm)
    plan = pencils.HaloExchange(u)
    work, twice = pencils.empty(u.pencil), pencils.empty(u.pencil)
    up, down = u.shift((1, 0, 0)), u.shift((-1, 0, 0))

    def step():
        plan(u)
        tuned_formula(u, up, down, work, twice)

    def free():
        plan.free()
        faces.free()

    return Calls(faces.step, step, free)


LINES = [
    *(
        Line(
            f"u.exchange_halo(), {n}^3",
            "Sendrecv of two faces",
            partial(exchange, n, wrap=False),
            goal,
        )
        for n, goal in ((16, 1.0), (32, 1.2), (64, 1.0), (128, 1.0))
    ),
    *(
        Line(
            f"u.exchange_halo(), {n}^3, all axes",
            "Sendrecv, other axes wrapped",
            partial(exchange, n, wrap=True),
            1.2,
        )
        for n in (16, 32, 64, 128)
    ),
    *(
        Line(f"exchange_halos([u, v]), {n}^3", "one after the other", partial(together, n), 1.0)
        for n in (8, 16, 32, 64, 128)
    ),
    *(
        Line(
            f"HaloExchange(u, check=False)(u), {n}^3",
            "u.exchange_halo()",
            partial(unchecked, n),
            1.0,
        )
        for n in (7, 16, 63, 128)
    ),
    *(
        Line(
            f"u.fill_boundary({mode!r}), {n}^3",
            "copies of faces by NumPy",
            partial(boundary, n, mode=mode),
            goal,
        )
        for n, goal in ((8, 0.3), (64, 0.7))
        for mode in ("edge", "reflect")
    ),
    *(
        Line(f"naive heat step, {n}^3", "NumPy and Sendrecv", partial(naive, n), goal)
        for n, goal in ((16, 0.6), (32, 0.75), (64, 0.8), (128, 0.9))
    ),
    *(
        Line(f"tuned heat step, {n}^3", "tuned: out=, requests", partial(tuned, n), goal)
        for n, goal in ((32, 0.95), (64, 1.0), (128, 1.0))
    ),
]
