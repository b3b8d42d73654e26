"""Who does serial transforms: libraries by name, and which is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pencils.comm.timing import time_in_turn
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.fft.fftw_kernel import FFTWKernel, suits_fftw, why_no_fftw
from pencils.fft.passes import Job, Kernel, trial
from pencils.fft.scipy_kernel import ScipyKernel
from pencils.plan import fastest_methods

AUTO = "auto"
SCIPY, FFTW = "scipy", "fftw"
BACKENDS = (AUTO, SCIPY, FFTW)
# How often pieces are transformed to find out what is faster.
SAMPLES = 5


def check_backend(backend: str) -> str:
    """Check the name of a backend, and that its library works here.

    Raises
    ------
    ArgumentError
        If it is unknown, or the library is missing or broken.
    """
    if backend not in list(BACKENDS):
        msg = f"backend={backend!r} is unknown; choose from {', '.join(BACKENDS)}"
        raise ArgumentError(msg)
    if backend == FFTW and why_no_fftw():
        msg = f"backend='fftw' needs mpi4py-fft; use 'scipy' or 'auto': {why_no_fftw()}"
        raise ArgumentError(msg)
    return backend


def kernel_of(backend: str) -> Callable[[Job], Kernel]:
    """Return what makes the kernels of a library."""
    return FFTWKernel if backend == FFTW else ScipyKernel


def choose_backend(backend: str, key: object, jobs: tuple[Job, Job], topology: Topology) -> str:
    """Return the library for the jobs of both directions. *Collective*.

    What FFTW cannot do on some rank is left to SciPy; else `AUTO` measures which is faster.

    Parameters
    ----------
    backend : str
        As given by the user.
    key : object
        Names the jobs, alike on all ranks; what was measured for it is remembered.
    jobs : (Job, Job)
        On the block of this rank.
    topology : Topology
        The ranks that take part.
    """
    if backend == SCIPY:
        return SCIPY
    key = "fft", backend, key
    known = fastest_methods(topology)
    if key not in known:
        known[key] = _suitable(backend, jobs, topology)
    found: str = known[key]
    return found


def _suitable(backend: str, jobs: tuple[Job, Job], topology: Topology) -> str:
    unsuitable = not all(map(suits_fftw, jobs))
    if topology.any_of([unsuitable])[0]:
        return SCIPY
    return FFTW if backend == FFTW else _faster(jobs, topology)


def _faster(jobs: tuple[Job, Job], topology: Topology) -> str:
    """Time one piece of every job. *Collective*."""
    names = (SCIPY, FFTW)
    calls = [partial(_run_all, [trial(job, kernel_of(name)) for job in jobs]) for name in names]
    times = time_in_turn(topology.comm, calls, SAMPLES)
    return names[times.index(min(times))]


def _run_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()
