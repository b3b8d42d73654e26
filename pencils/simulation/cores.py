"""Where threads of simulated ranks run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep threads that the block starts on one core: they run in turn, and change faster so."""
    try:
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {_core()})
    except (AttributeError, OSError, IndexError, ValueError):  # not on this system
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)


def _core() -> int:
    """Return the core that runs this thread now; other programs run on other ones."""
    fields = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()
    return int(fields[36])
