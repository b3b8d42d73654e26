"""Time calls on all ranks, and print on one: what the scripts here have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter, sleep

from mpi4py import MPI

COMM = MPI.COMM_WORLD


def print_on_root(*values: object) -> None:
    """Print on rank 0, at once."""
    if COMM.rank == 0:
        print(*values, flush=True)


def slowest(call: Callable[[], object]) -> float:
    """Return the seconds that the slowest rank takes for a call. *Collective*."""
    COMM.Barrier()
    start = perf_counter()
    call()
    seconds: float = COMM.allreduce(perf_counter() - start, op=MPI.MAX)
    return seconds


def in_turn(
    calls: Mapping[str, Callable[[], object]], repeat: int, *, pause: float = 0
) -> dict[str, list[float]]:
    """Time calls in turn, so that a disturbance affects all of them. *Collective*.

    Returns the samples of each, without the first one, which allocates; `pause` is how many seconds
    pass before a sample.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for sample in range(repeat + 1):
        for name, call in calls.items():
            sleep(pause)
            seconds = slowest(call)
            if sample:
                samples[name].append(seconds)
    return samples
