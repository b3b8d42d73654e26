"""How a process ends after others have died: without MPI_Finalize, which may wait for the dead."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from time import monotonic

from pencils.comm import failure
from pencils.comm.mpi import MPI, PerProcess

# Seconds that a process waits at exit for the other survivors: they take an early end for one more
# death.
_PATIENCE = 5.0
# Seconds until a process that does not end is killed. They begin in `_leave`, and not in
# MPI_Finalize, before which Python has ended: functions that were registered earlier run meanwhile.
_FINALIZING = 60.0


class _State:
    def __init__(self) -> None:
        self.comm: MPI.Intracomm | None = None  # of the survivors
        self.status: int | None = None


_state = PerProcess(_State)


def leave_with(status: object) -> None:
    """Set the exit status, as the argument of `sys.exit`; without it, it is found out."""
    _state().status = status if isinstance(status, int) else int(status is not None)


def leave_with_survivors(comm: MPI.Intracomm) -> None:
    """Have this process wait at exit for the other ranks of `comm`."""
    if _state().comm is None:
        atexit.register(_leave)
    _state().comm = comm


def _leave() -> None:
    """End the process if others have died, after what else was registered for its end."""
    if MPI.Is_finalized():
        return
    # A process that has just died is noticed here, and not within MPI_Finalize.
    all_leave = _meet()
    if not MPI.COMM_WORLD.Get_failed().size:
        if not all_leave:  # MPI_Finalize waits for one that is still at work
            return
        # One that dies now may let MPI_Finalize wait without end, after Python has ended.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _FINALIZING)
        return
    atexit.unregister(_leave)
    # Those that were registered before are called later.
    atexit._run_exitfuncs()  # noqa: SLF001
    _meet()
    status = _state().status
    if status is None:
        status = int(hasattr(sys, "last_value"))  # an error that was not caught
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # none, broken, closed
            stream.flush()
    os._exit(status)


def _meet() -> bool:
    """Wait for the other survivors; return whether all have come."""
    comm, end = _state().comm, monotonic() + _PATIENCE
    with suppress(Exception):  # more ranks have died, or have failed
        assert comm is not None
        return failure.wait_while(comm.Ibarrier(), lambda: monotonic() < end)
    return False
