"""Counts, bytes and seconds of each phase, which a rank records while `pencils.profile` is on."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial, wraps
from threading import get_ident
from time import perf_counter, time
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar

from pencils.comm.mpi import keep_apart

P = ParamSpec("P")
T = TypeVar("T")

# Agreements on calls; packing, and starting messages; waiting for messages and for other ranks;
# copies of blocks that stay on a rank; writing what has come to fields; files; making plans, and
# importing modules of the library, which first calls do.
PHASES = ("agree", "pack", "wait", "copy", "unpack", "I/O", "plan", "import")
# Numbers of an event: the phase, its start and duration in seconds, and its bytes.
NUMBERS = 4

current = SimpleNamespace(recorder=None)  # None unless a profile records
keep_apart(vars(current), "recorder")


class Recorder:
    """Totals of each phase, and at most `most` events; later ones are only counted.

    A phase inside of another one counts for the inner one only; other threads are not recorded.
    """

    def __init__(self, most: int) -> None:
        self.calls = dict.fromkeys(PHASES, 0)
        self.nbytes = dict.fromkeys(PHASES, 0)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.events = array("d")  # `NUMBERS` for each; the start counts from that of the recorder
        self.omitted = 0  # events that were not kept
        self.whole = 0.0  # seconds, set by `stop`
        self._most = NUMBERS * most
        self._thread = get_ident()
        self._inner = 0.0  # seconds of phases inside of the one that runs
        self.started, self._start = time(), perf_counter()  # since the epoch; of this process

    def stop(self) -> None:
        """Set `whole`, the seconds since the recorder was made."""
        self.whole = perf_counter() - self._start

    def count(self, phase: str, nbytes: int) -> None:
        """Count a call, of which the time is recorded elsewhere."""
        self.calls[phase] += 1
        self.nbytes[phase] += nbytes

    def run(
        self, phase: str, function: Callable[..., T], *args: Any, calls: int = 1, nbytes: int = 0
    ) -> T:
        """Call a function, and record it."""
        if get_ident() != self._thread:
            return function(*args)
        outer, self._inner = self._inner, 0.0
        start = perf_counter()
        try:
            return function(*args)
        finally:
            seconds = perf_counter() - start
            self.calls[phase] += calls
            self.nbytes[phase] += nbytes
            self.seconds[phase] += seconds - self._inner
            self._inner = outer + seconds
            if len(self.events) < self._most:
                row = PHASES.index(phase), start - self._start, seconds, nbytes
                self.events.extend(row)
            else:
                self.omitted += 1


def timed(phase: str, function: Callable[..., T], *args: Any, calls: int = 1, nbytes: int = 0) -> T:
    """Call a function; record it if a profile is on."""
    recorder: Recorder | None = current.recorder
    if recorder is None:
        return function(*args)
    return recorder.run(phase, function, *args, calls=calls, nbytes=nbytes)


def makes_plan(make: Callable[P, T]) -> Callable[P, T]:
    """Record what a function does as making a plan."""

    @wraps(make)
    def recorded(*args: P.args, **options: P.kwargs) -> T:
        return timed("plan", partial(make, *args, **options))

    return recorded
