"""Fourier transforms there and back against mpi4py-fft, both with FFTW."""

from functools import partial

import pencils
from pencils.fft import PencilFFT

from .line import Calls, Line

try:
    from mpi4py_fft import PFFT, newDistArray
except ImportError:
    PFFT = None

BACKEND = "scipy" if PFFT is None else "fftw"


def there_and_back(n, with_out, comm):
    """No out=: each call of ours returns a new field, those of the peer its own arrays."""
    pencil = pencils.Pencil((n,) * 3, comm, decomp=(0, 1))
    plan = PencilFFT(pencil, float, backend=BACKEND)
    u = pencils.random.uniform(pencil, 1)
    ours = sides(plan, u, pencils.empty(plan.output_pencil, dtype=complex), with_out=with_out)
    if PFFT is None:
        return Calls(None, ours, plan.free)
    theirs = PFFT(comm, [n] * 3, dtype=float)
    v, v_hat = newDistArray(theirs, forward_output=False), newDistArray(theirs)
    v[...] = 1

    def free():
        plan.free()
        theirs.destroy()

    return Calls(sides(theirs, v, v_hat, with_out=with_out), ours, free)


def sides(plan, u, u_hat, *, with_out):
    """Return the same line for both libraries."""

    def plain():
        return plan.backward(plan.forward(u))

    def filled():
        plan.forward(u, u_hat)
        plan.backward(u_hat, u)

    return filled if with_out else plain


LINES = [
    Line(name, "mpi4py-fft", partial(there_and_back, n, with_out), goal, heavy=n > 100)
    for name, n, with_out, goal in (
        ("fft.backward(fft.forward(u)), 64^3", 64, False, 1.0),
        ("fft.forward, backward with out=, 64^3", 64, True, 1.0),
        ("fft.backward(fft.forward(u)), 256^3", 256, False, 1.5),
        ("fft.forward, backward with out=, 256^3", 256, True, 1.6),
    )
]
