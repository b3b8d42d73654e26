"""How long collective calls take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

from pencils.comm.mpi import MPI


def time_in_turn(
    comm: MPI.Intracomm, calls: Sequence[Callable[[], object]], repeat: int
) -> list[float]:
    """Time calls in turn, so that what disturbs the machine disturbs all of them. *Collective*.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator.
    calls : sequence of callable
        What to time; each runs once before, to allocate what it needs.
    repeat : int
        How often.

    Returns
    -------
    list of float
        Median over the repetitions of the time of the slowest rank, in seconds; the same on all
        ranks.
    """
    for call in calls:
        call()
    rounds = [[_slowest(comm, call) for call in calls] for _ in range(repeat)]
    return [median(samples) for samples in zip(*rounds, strict=True)]


def _slowest(comm: MPI.Intracomm, call: Callable[[], object]) -> float:
    comm.Barrier()
    start = perf_counter()
    call()
    seconds: float = comm.allreduce(perf_counter() - start, op=MPI.MAX)
    return seconds
