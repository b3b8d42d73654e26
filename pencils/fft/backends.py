"""Who does serial transforms: libraries by name, and which is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pencils.comm.timing import time_in_turn
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.fft.fftw_kernel import FFTWKernel, has_fftw, suits_fftw
from pencils.fft.passes import Job, Kernel, trial
from pencils.fft.scipy_kernel import ScipyKernel

AUTO = "auto"
SCIPY, FFTW = "scipy", "fftw"
BACKENDS = (AUTO, SCIPY, FFTW)
# How often pieces are transformed to find out what is faster.
SAMPLES = 5


def check_backend(backend: str) -> str:
    """Check the name of a backend, and that its library is here.

    Raises
    ------
    ArgumentError
        If it is unknown or missing.
    """
    if backend not in list(BACKENDS):
        msg = f"backend={backend!r} is unknown; choose from {', '.join(BACKENDS)}"
        raise ArgumentError(msg)
    if backend == FFTW and not has_fftw():
        msg = "backend='fftw' needs mpi4py-fft, which is not installed; use 'scipy' or 'auto'"
        raise ArgumentError(msg)
    return backend


def kernel_of(backend: str) -> Callable[[Job], Kernel]:
    """Return what makes kernels; what FFTW cannot do is left to SciPy."""
    return _fftw_if_suitable if backend == FFTW else ScipyKernel


def choose_backend(backend: str, key: object, jobs: tuple[Job, Job], topology: Topology) -> str:
    """Return the backend for the jobs of both directions; `AUTO` measures them. *Collective*.

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
    if backend != AUTO:
        return backend
    key = "fft", key
    if key not in topology.methods:
        unsuitable = not (has_fftw() and all(map(suits_fftw, jobs)))
        slower = topology.any_of([unsuitable])[0]
        topology.methods[key] = SCIPY if slower else _faster(jobs, topology)
    found: str = topology.methods[key]
    return found


def _fftw_if_suitable(job: Job) -> Kernel:
    return FFTWKernel(job) if suits_fftw(job) else ScipyKernel(job)


def _faster(jobs: tuple[Job, Job], topology: Topology) -> str:
    """Time one piece of every job. *Collective*."""
    names = (SCIPY, FFTW)
    calls = [partial(_run_all, [trial(job, kernel_of(name)) for job in jobs]) for name in names]
    times = time_in_turn(topology.comm, calls, SAMPLES)
    return names[times.index(min(times))]


def _run_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()
