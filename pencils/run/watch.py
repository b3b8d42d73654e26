"""Tell a thread that waits for other ranks from one that computes, from outside."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from time import monotonic
from types import FrameType
from typing import NamedTuple

from pencils.run.counting import POLLING, Counting
from pencils.run.frames import CodePosition, called_name, line_of, stack

# Methods of requests, windows, files and the whole of MPI that wait for other ranks. Those of
# communicators are counted where they are called.
_WAITS = (
    "wait waitall waitany waitsome Wait Waitall Waitany Waitsome Finalize Fence Lock Lock_all "
    "Unlock Unlock_all Flush Flush_all Complete Allocate Allocate_shared Create_dynamic Open "
    "Close Disconnect Read_all Read_at_all Write_all Write_at_all Read_ordered Write_ordered "
    "allgather allreduce alltoall barrier bcast sendrecv Allgather Allgatherv Allreduce Alltoall "
    "Alltoallv Alltoallw Barrier Bcast Gather Gatherv Recv Reduce Scatter Scatterv Send Sendrecv "
    "Split Split_type Dup Create Create_cart"
)
# Sockets have methods of these names, too: only looked at where calls are not counted.
_MESSAGES = "gather recv scatter send ssend"
_LIBRARY_THREADS = "pencils"  # how the names of its threads begin


class _Wait(NamedTuple):
    """A call in which a thread waits: as long as `token` is the same, it is the same call."""

    token: object
    name: str
    collective: bool


class Watch:
    """Follow the thread that makes this object, which is to be the main one.

    Parameters
    ----------
    counting : Counting or None
        What counts the calls; without, only what the thread does now can be found out.
    """

    def __init__(self, counting: Counting | None) -> None:
        self._counting = counting
        self._thread = threading.get_ident()
        self._token: object = None
        self._since = monotonic()

    @property
    def collectives(self) -> int | None:
        """Number of collectives so far; None if they are not counted."""
        return None if self._counting is None else self._counting.calls.collectives

    def place(self) -> CodePosition:
        """Find where the thread is now."""
        frames = sys._current_frames()  # noqa: SLF001 - the only way to see another thread
        line, call = line_of(frames[self._thread])
        wait = self._wait(frames)
        if wait is None:
            return CodePosition(line, call, collectives=self.collectives)
        return CodePosition(line, call, wait.name, wait.collective, self.collectives)

    def waited(self) -> float:
        """Return for how many seconds the thread has been seen to wait in one and the same call."""
        wait = self._wait(sys._current_frames())  # noqa: SLF001 - as above
        token = None if wait is None else wait.token
        if token is None or token != self._token:
            self._token, self._since = token, monotonic()
        return monotonic() - self._since

    def _wait(self, frames: Mapping[int, FrameType]) -> _Wait | None:
        own = frames[self._thread]
        wait = self._wait_of(own, main=True)
        if wait is None and any(each.f_code is Future.result.__code__ for each in stack(own)):
            # The library lets a thread communicate, and this one waits for it.
            for thread in threading.enumerate():
                frame = frames.get(thread.ident or 0)
                if thread.name.startswith(_LIBRARY_THREADS) and frame is not None:
                    wait = wait or self._wait_of(frame, main=False)
        return wait

    def _wait_of(self, frame: FrameType, *, main: bool) -> _Wait | None:
        counting = self._counting
        polls = any(each.f_code in POLLING for each in stack(frame))
        if counting is not None and (polls or frame.f_code in counting.codes):
            name, step = counting.calls.latest
            return _Wait(counting.calls.begun, name, bool(step))
        name = called_name(frame)
        known = _WAITS if counting is not None else f"{_WAITS} {_MESSAGES}"
        if name not in known.split():
            return _Wait(None, "Wait", collective=False) if polls else None
        token = _PROBE.number() if main else (id(frame), frame.f_lasti)
        return _Wait(("call", token), name, collective=False)


class _Probe:
    """Finds out whether the main thread has come back to Python from the call it was in.

    CPython runs a pending call in the main thread, as soon as that executes Python again.
    """

    def __init__(self) -> None:
        self._number = 0
        self._pending = False
        self._function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._run)

    def number(self) -> int:
        """Return a number which is the same as long as the main thread does not come back."""
        if not self._pending:
            self._pending = True
            self._number += 1
            ctypes.pythonapi.Py_AddPendingCall(self._function, None)
        return self._number

    def _run(self, _: object) -> int:
        self._pending = False
        return 0


_PROBE = _Probe()  # has to outlive all calls that are pending
