"""A simulated rank: its thread, its state, what it waits for, and what goes wrong in it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NamedTuple

READY, RUNNING, WAITING, RETURNED, RAISED, KILLED = (
    "is ready",
    "is running",
    "waits",
    "returned",
    "raised",
    "was killed",
)


class Fault(NamedTuple):
    """What goes wrong in a rank at one of its calls of MPI.

    Parameters
    ----------
    rank : int
        The rank.
    call : int
        Number of the call, from 0, among the calls of this rank.
    error : Exception or type of Exception, optional
        What the call raises. By default the rank is killed: it never runs again.

    Examples
    --------
    >>> Fault(rank=1, call=3, error=MemoryError).rank
    1
    """

    rank: int
    call: int
    error: BaseException | type[BaseException] | None = None


class Waiting(NamedTuple):
    """What a rank waits for: the call, and, when needed, a description and the ranks missing."""

    call: str
    what: Callable[[], str]
    missing: Callable[[], Iterable[int]]


class Rank:
    """One simulated rank: its thread, its state, and what belongs to its process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.status = RETURNED
        self.waiting: Waiting | None = None
        self.lock = threading.Lock()
        self.lock.acquire()
        self.thread: threading.Thread | None = None
        self.values: dict[Any, Any] = {}  # of `simmpi.process`
        self.calls: list[str] = []
        self.operations: dict[Any, None] = {}  # started, not completed; in order
        self.attributes: dict[Any, dict[int, Any]] = {}  # of communicators, by context
        self.abandoned = 0  # calls of MPI since the simulation has failed
        self.result: Any = None
        self.error: BaseException | None = None

    def frame(self) -> FrameType | None:
        """Return the innermost frame of the thread."""
        ident = None if self.thread is None else self.thread.ident
        return None if ident is None else sys._current_frames().get(ident)
