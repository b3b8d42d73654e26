"""The time to make plans, of 64^3 points, against that of PFFT."""

import pencils
from pencils.fft import PencilFFT

from .line import Calls, Line

try:
    from mpi4py_fft import PFFT
except ImportError:
    PFFT = None


def transposition(comm):
    source = pencils.Pencil((64,) * 3, comm, decomp=(0, 1))
    target = source.with_(decomp=(0, 2))

    def ours():
        pencils.Transposition(source, target).free()

    return Calls(None, ours)


def halo_exchange(comm):
    u = pencils.zeros(pencils.Pencil((64,) * 3, comm, periodic=True), halo=1)

    def ours():
        pencils.HaloExchange(u).free()

    return Calls(None, ours)


def transform(comm):
    pencil = pencils.Pencil((64,) * 3, comm)

    def ours():
        PencilFFT(pencil, float, backend="scipy").free()

    def peer():
        PFFT(comm, [64] * 3, dtype=float).destroy()

    return Calls(None if PFFT is None else peer, ours)


LINES = [
    Line("Transposition(pen, other), 64^3", "", transposition, limit=10e-3),
    Line("HaloExchange(u), 64^3", "", halo_exchange, limit=10e-3),
    Line("PencilFFT(pen, float), 64^3", "PFFT", transform, limit=25e-3),
]
