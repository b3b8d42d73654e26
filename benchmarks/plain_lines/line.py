"""A line of code and what it is compared with: how both are made, timed in turn and shown."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

Call = Callable[[], object]

OPEN_MPI = "Open MPI" in MPI.Get_library_version()
# Seconds of a sample, which has as many calls as fit.
SAMPLE = 3e-3


class Calls(NamedTuple):
    """The same work by somebody else and by the line, and what frees the requests of both."""

    peer: Call | None
    ours: Call
    free: Call | None = None


class Line(NamedTuple):
    """A line of the table; `make` is *Collective* and gets the communicator."""

    name: str  # the line as a user writes it, and the size
    peer: str  # what it is compared with
    make: Callable[[MPI.Intracomm], Calls]
    goal: float | None = None  # time of the peer / time of the line, at least
    limit: float | None = None  # seconds of the line, at most
    heavy: bool = False  # left out by --quick: takes seconds or gigabytes
    ranks: int = 1  # at least


class Times(NamedTuple):
    """Medians in seconds, the median ratio of samples taken in turn, and the ratio of minima."""

    ours: float
    peer: float | None
    ratio: float | None
    least: float | None


def measure(comm: MPI.Intracomm, calls: Calls, seconds: float, least: int) -> Times:
    """Time both calls in turn for some seconds, at least `least` samples of each. *Collective*.

    A sample is the time of the slowest rank; the order changes from one pair to the next.
    """
    both = [call for call in (calls.peer, calls.ours) if call is not None]
    counts = []
    for call in both:
        call()  # the first call allocates
        alone = max(1e-9, min(slowest(comm, call, 1) for _ in range(2)))
        counts.append(max(1, min(2000, round(SAMPLE / alone))))
    samples: list[list[float]] = [[] for _ in both]
    begun = perf_counter()
    while len(samples[0]) < least or _on_root(comm, answer=perf_counter() - begun < seconds):
        turn = list(zip(both, counts, samples, strict=True))
        for call, count, found in turn if len(samples[0]) % 2 else reversed(turn):
            found.append(slowest(comm, call, count) / count)
    if calls.peer is None:
        return Times(median(samples[0]), None, None, None)
    peer, ours = samples
    ratio = median(theirs / mine for theirs, mine in zip(peer, ours, strict=True))
    return Times(median(ours), median(peer), ratio, min(peer) / min(ours))


def slowest(comm: MPI.Intracomm, call: Call, count: int) -> float:
    """Return the seconds that the slowest rank takes for some calls. *Collective*."""
    comm.Barrier()
    start = perf_counter()
    for _ in range(count):
        call()
    seconds: float = comm.allreduce(perf_counter() - start, op=MPI.MAX)
    return seconds


def _on_root(comm: MPI.Intracomm, *, answer: bool) -> bool:
    said: bool = comm.bcast(answer)
    return said


def row(line: Line, times: Times) -> str:
    """Return a row of the table."""
    peer = "-" if times.peer is None else _shown(times.peer)
    if line.goal is not None and times.ratio is not None:
        goal, good = f">= {line.goal:.2f}", times.ratio >= line.goal
    else:
        limit = line.limit or 0
        goal, good = f"<= {_shown(limit)}", times.ours <= limit
    ratio, least = (
        "-" if value is None else f"{value:.2f}" for value in (times.ratio, times.least)
    )
    mark = "" if good else "  below"
    first = f"{line.name:44}{_shown(times.ours):>11}{peer:>11}{ratio:>8}{least:>8}"
    return f"{first}{goal:>13}{mark:8} {line.peer}"


def heading() -> str:
    """Return the line above the table."""
    return f"{'line':44}{'pencils':>11}{'peer':>11}{'ratio':>8}{'minima':>8}{'goal':>13}{'':8} peer"


def _shown(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.1f} us"
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def values(shape: tuple[int, ...], comm: MPI.Intracomm) -> np.ndarray:
    """Return random numbers, other ones on each rank."""
    return np.random.default_rng(comm.rank).random(shape)
