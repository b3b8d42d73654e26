"""What the processes that are left do together after a death: agree, and make a communicator.

Nothing here waits for ever, whatever MPI does: a process that has waited for too long ends, with an
error or, if it waits inside of MPI, by a signal.
"""

from __future__ import annotations

import os
import signal
import sys
from array import array
from math import inf
from threading import Timer
from time import monotonic

from pencils.comm import failure
from pencils.comm.mpi import MPI
from pencils.errors import RanksLostError

PATIENCE = 600.0  # seconds that a process waits after a loss
_LATE = (
    "the processes that are left did not {what} within {seconds:g} s after a loss: one of "
    "them computes for longer without communication, or this is a defect of MPI; start the job "
    "again, from a pencils.CheckpointSeries"
)


def agree(comm: MPI.Intracomm, *, here: bool) -> bool | None:
    """Whether something is true on all ranks; None if one of them has died. *Collective*.

    Raises
    ------
    RanksLostError
        If the others are not there `PATIENCE` seconds after this rank has noticed a loss.
    """
    flag, end = array("i", [here]), inf

    def in_time() -> bool:
        nonlocal end
        if end == inf and (failure.lost() or comm.Is_revoked()):
            end = monotonic() + PATIENCE
        return monotonic() <= end

    try:
        complete = failure.wait_while(comm.Iagree(flag), in_time)
    except MPI.Exception:
        return None
    if not complete:
        raise RanksLostError(_LATE.format(what="agree", seconds=PATIENCE))
    return bool(flag[0])


def shrink(comm: MPI.Intracomm) -> MPI.Intracomm:
    """Make a communicator of the ranks that live. *Collective*.

    The process is killed if it takes longer than `PATIENCE` seconds.
    """
    limit = Timer(PATIENCE, _end)
    limit.daemon = True
    limit.start()
    try:
        return MPI.Intracomm(comm.Shrink())
    finally:
        limit.cancel()


def _end() -> None:
    late = _LATE.format(what="make a communicator", seconds=PATIENCE)
    sys.stderr.write(f"pencils: {late}\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
