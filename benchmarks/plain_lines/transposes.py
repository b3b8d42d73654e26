"""Transposes against mpi4py-fft and against a packed Alltoall, between slabs."""

from functools import partial

import numpy as np

import pencils

from .line import OPEN_MPI, Calls, Line, values

try:
    from mpi4py_fft import DistArray
    from mpi4py_fft.pencil import Subcomm
except ImportError:
    DistArray = None


def slabs(n, comm):
    source = pencils.Pencil((n,) * 3, comm, decomp=0)
    return pencils.random.uniform(source, 1), source.with_(decomp=1)


def peer_array(n, comm):
    """Return an array of mpi4py-fft whose axis 0 is decomposed."""
    array = DistArray((n,) * 3, subcomm=Subcomm(comm, [0, 1, 1]), dtype=float, alignment=1)
    array[...] = 1
    return array


class Alltoall:
    """Slabs of an extent that the ranks divide, packed into one buffer."""

    def __init__(self, n, comm):
        ranks, thick = comm.size, n // comm.size
        self.comm = comm
        self.block = values((thick, n, n), comm)
        self.pieces = self.block.reshape(thick, ranks, thick, n).transpose(1, 0, 2, 3)
        self.outbox, self.inbox = (np.empty((ranks, thick, thick, n)) for _ in range(2))
        self.shape = n, thick, n

    def __call__(self):
        self.outbox[...] = self.pieces
        self.comm.Alltoall(self.outbox, self.inbox)
        # The ranks are the slowest axis of both: the received pieces lie in order.
        return self.inbox.reshape(self.shape)


def against_library(n, comm):
    u, pencil = slabs(n, comm)
    array = None if DistArray is None else peer_array(n, comm)
    return Calls(
        None if array is None else partial(array.redistribute, 0),
        partial(pencils.transpose, u, pencil),
    )


def against_alltoall(n, comm):
    u, pencil = slabs(n, comm)
    peer = Alltoall(n, comm) if n % comm.size == 0 else None
    return Calls(peer, partial(pencils.transpose, u, pencil))


def permuted(n, comm):
    """Move to a pencil whose memory has the axes in reverse order."""
    u, pencil = slabs(n, comm)
    pencil = pencil.with_(order=(2, 1, 0))
    if DistArray is None:
        return Calls(None, partial(pencils.transpose, u, pencil))
    array = peer_array(n, comm)

    def peer():
        return np.ascontiguousarray(np.transpose(array.redistribute(0)))

    return Calls(peer, partial(pencils.transpose, u, pencil))


def unchecked(n, comm, *, new):
    u, pencil = slabs(n, comm)
    out = None if new else pencils.empty(pencil)
    plan = pencils.Transposition(u.pencil, pencil, check=False)
    return Calls(partial(pencils.transpose, u, pencil, out), partial(plan, u, out), plan.free)


def in_place(n, comm):
    u, pencil = slabs(n, comm)
    one, other = pencils.alias([u.pencil, pencil])
    one.local[...] = u.local
    out = pencils.empty(pencil)
    return Calls(
        partial(pencils.transpose, u, pencil, out=out),
        partial(pencils.transpose, one, pencil, out=other),
    )


LINES = [
    *(
        Line(
            f"transpose(u, pen), {n}^3",
            "redistribute",
            partial(against_library, n),
            goal,
            heavy=big,
        )
        for n, goal, big in (
            (16, 3.0, False),
            (32, 3.0, False),
            (256, 1.6 if OPEN_MPI else 2.0, True),
        )
    ),
    *(
        Line(
            f"transpose(u, pen), {n}^3, by hand",
            "packed Alltoall",
            partial(against_alltoall, n),
            goal,
        )
        for n, goal in ((16, 1.1), (32, 1.2), (64, 1.5), (128, 1.6))
    ),
    *(
        Line(
            f"Transposition(check=False){call}, {n}^3",
            f"transpose{call}",
            partial(unchecked, n, new=new),
            1.0,
        )
        for n in (8, 16, 32, 64)
        for call, new in (("(u)", True), ("(u, out)", False))
    ),
    Line(
        "transpose to order (2, 1, 0), 128^3",
        "redistribute, transpose",
        partial(permuted, 128),
        1.2,
    ),
    Line("transpose in place (alias), 128^3", "out of place", partial(in_place, 128), 1 / 1.3),
]
