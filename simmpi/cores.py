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
        one = {_core()}
        os.sched_setaffinity(0, one)
    except (AttributeError, OSError, IndexError, ValueError):  # not on this system
        yield
        return
    try:
        yield
    finally:
        _restore(one, cores)


def _restore(one: set[int], cores: set[int]) -> None:
    """Let this thread, and those of libraries that began in the block, use all cores again."""
    for task in Path("/proc/self/task").iterdir():
        number = int(task.name)
        with suppress(OSError):  # the thread has ended
            if os.sched_getaffinity(number) == one:
                os.sched_setaffinity(number, cores)


def _core() -> int:
    """Return the core that runs this thread now; other programs run on other ones."""
    fields = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()
    return int(fields[36])
