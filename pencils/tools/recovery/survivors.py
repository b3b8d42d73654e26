"""Run a program again on the processes that are left, each time that some have died.

All processes end an attempt together. Each one calls Agree on the communicator of the attempt, and
unless the program has returned on all of them, Shrink, which makes that of the next attempt. A
process that leaves the program by an error first revokes its communicators, so that no other one
waits for it there.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from threading import Timer
from time import monotonic, perf_counter, sleep
from types import SimpleNamespace
from typing import NoReturn, TypeVar

from pencils.comm import progress
from pencils.comm.agree import agreed
from pencils.comm.failure import Fault, loss, shown
from pencils.comm.mpi import MPI, PerProcess, is_simulated
from pencils.comm.topology import abandon, as_comm, topology_of
from pencils.errors import RanksLostError
from pencils.layout.integers import as_int
from pencils.tools.recovery import guards

T = TypeVar("T")

LOG = logging.getLogger("pencils")
# Seconds that a process waits at exit for the other survivors: they take an early end for one more
# death.
_LEAVING = 5.0
# Seconds until a process that does not end is killed. They begin in `_leave`, and not in
# MPI_Finalize, before which Python has ended: functions that were registered earlier run meanwhile.
_FINALIZING = 60.0
PATIENCE = 600.0  # seconds that a process waits after a loss
_LATE = (
    "the processes that are left did not {what} within {seconds:g} s after a loss: one of "
    "them computes for longer without communication, or this is a defect of MPI; start the job "
    "again, from a pencils.CheckpointSeries"
)
_ENABLED = "OMPI_MCA_mpi_ft_enable"  # what mpiexec of Open MPI sets
# Seconds that other ranks have to complete a call, or to have the same error, after an error.
_GRACE = 0.5
_NEEDED = (
    "recover() needs an MPI that reports dead processes instead of ending the job: Open MPI 5 or "
    "later, started by `mpiexec --with-ft ulfm -n 4 python app.py`; {found}. Without it, save in "
    "a pencils.CheckpointSeries and start the job again"
)


def recover(
    program: Callable[[MPI.Intracomm], T], comm: MPI.Intracomm | None = None, *, least: int = 1
) -> T:
    """Run a program, and restart it on the other processes after some have died. *Collective*.

    When a process dies, calls that need it raise `RanksLostError` on some of the others. The calls
    of the rest are revoked, so that all leave the program by this error. Then the program is called
    again, with a communicator of the processes that are left. It begins from a `BuddyCopies`, made
    before, or from a `CheckpointSeries`, made in the program.

    The program has to pass `comm` to everything that takes it: ``Pencil(shape, comm)``. An error
    that is not caused by a death is raised as it is, and on processes without one as another of the
    same type, which names the rank. The processes that are left end without ``MPI_Finalize``, which
    Open MPI may not complete after a death; functions that were registered with `atexit` after the
    first call of `recover` are then called twice. Where none has died, ``MPI_Finalize`` and those
    that were registered before have a minute together; then SIGALRM ends the process.

    Parameters
    ----------
    program : callable
        Called with a communicator, on all processes of it. Objects that it made before a death are
        lost.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that begin. Default: all.
    least : int, optional
        The smallest number of processes to continue with.

    Returns
    -------
    object
        The result of the program, if no process has died before all have returned.

    Raises
    ------
    RanksLostError
        On every process that is left, if these are fewer than `least`, or the program needs one
        that is not in its communicator. On a process if others do not leave the program within ten
        minutes after it has noticed a death.
    NotImplementedError
        On every process, if MPI ends the job when a process dies; on one process nothing is needed.
    ArgumentError, RankDisagreementError, TypeError
        On every process, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import pencils
    >>> copies = pencils.recovery.BuddyCopies()
    >>> def program(comm):
    ...     u = pencils.zeros(pencils.Pencil((4, 6), comm))
    ...     state = copies.resume({"u": u})  # None at first
    ...     for step in range(state.step + 1 if state else 1, 11):
    ...         u += 1
    ...         if step % 5 == 0:
    ...             copies.save(step, {"u": u})
    ...     return u.sum()
    >>> pencils.recovery.recover(program)
    np.float64(240.0)
    """
    user = as_comm(comm, "recover")
    checked = partial(_checked, program, least)
    if user.size == 1:
        return checked(user)
    name = MPI.Get_library_version().partition("\n")[0].partition(",")[0]
    if is_simulated() or not name.startswith("Open MPI") or not hasattr(MPI.Comm, "Shrink"):
        raise NotImplementedError(_NEEDED.format(found=f"this is {' '.join(name.split())}"))
    if os.environ.get(_ENABLED, "0").lower() not in {"1", "true", "yes", "t", "y"}:
        raise NotImplementedError(_NEEDED.format(found="it was started without `--with-ft ulfm`"))
    # Like Dup, and a process may have died already.
    team = guards.guard(MPI.Intracomm(user.Shrink()))
    leave_with_survivors(team)
    while True:
        results: list[T] = []
        error: BaseException | None = None  # unless it follows from a loss
        try:
            guards.meet(team)
            results = [checked(team)]
        except (Exception, SystemExit) as raised:
            LOG.debug("the program was left by an error", exc_info=True)
            if not loss().noticed:
                if not isinstance(raised, MPI.Exception):
                    sleep(_GRACE)
                guards.revoke()
                error = raised
        if agree(team, here=bool(results)):
            return results[0]
        team = _next_team(team, error, least)


def _checked(program: Callable[[MPI.Intracomm], T], least: int, team: MPI.Intracomm) -> T:
    """Check the arguments and call the program. *Collective*."""
    with agreed(topology_of(team).comm, "recover") as agreement:
        if not callable(program):
            raise TypeError(f"program must be callable with a communicator, not {program!r}")
        agreement(least=as_int("least", least, least=1))
    return program(team)


def _next_team(team: MPI.Intracomm, error: BaseException | None, least: int) -> MPI.Intracomm:
    """Return a communicator of the processes that are left. *Collective*.

    Raises on all ranks if any has an error that no death has caused. Errors of MPI may be traces of
    a death.
    """
    begin, before = perf_counter(), team.size
    innocent: bool | None = None
    for _ in range(before):  # again if one more has died
        guards.revoke()
        progress.forget()
        comms = guards.forget()  # all are given up
        left = shrink(team)
        abandon(comms)
        leave_with_survivors(left)
        team = guards.guard(left)
        innocent = agree(team, here=error is None or isinstance(error, MPI.Exception))
        if innocent is not None:
            break
    LOG.info("%d of %d processes are left", team.size, before)
    if not innocent or team.size == before:
        _raise_together(team, error)
    if team.size < least:
        raise RanksLostError(
            f"{team.size} of {before} processes are left, but least={least}; start the job again"
        )
    LOG.debug("a communicator of them took %.3f s", perf_counter() - begin)
    return team


def _raise_together(team: MPI.Intracomm, error: BaseException | None) -> NoReturn:
    """Raise the error of this rank, or else that of the first one that has any. *Collective*."""
    mine = Fault.of(error) if isinstance(error, Exception) else None
    if isinstance(error, SystemExit):
        mine = Fault(RuntimeError, f"left the program by {shown(error)}", None)
    faults: list[Fault | None] = []
    try:
        faults = team.allgather(mine)
    except RanksLostError:  # one more has died
        if mine is None:
            raise
    if isinstance(error, SystemExit):  # the status is the argument of `sys.exit`
        code = error.code
        _state().status = code if isinstance(code, int) else int(code is not None)
    if error is not None:
        raise error
    for rank, fault in enumerate(faults):
        if fault is not None:
            raise fault.error(rank)
    raise RanksLostError(
        "the program uses a process that has died. Pass the communicator that the program is "
        "called with to every pencil, plan and series"
    )


# Of each process: the communicator of the survivors, and the exit status if it is known.
_state = PerProcess(lambda: SimpleNamespace(comm=None, status=None))


def leave_with_survivors(comm: MPI.Intracomm) -> None:
    """Have this process wait at exit for the other ranks of `comm`."""
    if _state().comm is None:
        atexit.register(_leave)
    _state().comm = comm


def _leave() -> None:
    """End the process if others have died, after what else was registered for its end."""
    if MPI.Is_finalized():
        return
    state = _state()

    def meet() -> bool:
        """Wait for the other survivors; return whether all have come."""
        end = monotonic() + _LEAVING
        with suppress(Exception):  # more ranks have died, or have failed
            return guards.wait_while(state.comm.Ibarrier(), lambda: monotonic() < end)
        return False

    # A process that has just died is noticed here, and not within MPI_Finalize.
    all_leave = meet()
    if not MPI.COMM_WORLD.Get_failed().size:
        if all_leave:  # else MPI_Finalize waits for one that is still at work
            # One that dies now may let MPI_Finalize wait without end, after Python has ended.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, _FINALIZING)
        return
    atexit.unregister(_leave)
    # Those that were registered before are called later.
    atexit._run_exitfuncs()  # noqa: SLF001
    meet()
    status = state.status
    if status is None:
        status = int(hasattr(sys, "last_value"))  # an error that was not caught
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # none, broken, closed
            stream.flush()
    os._exit(status)


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
        if end == inf and (loss().noticed or comm.Is_revoked()):
            end = monotonic() + PATIENCE
        return monotonic() <= end

    try:
        complete = guards.wait_while(comm.Iagree(flag), in_time)
    except MPI.Exception:
        return None
    if not complete:
        raise RanksLostError(_LATE.format(what="agree", seconds=PATIENCE))
    return bool(flag[0])


def shrink(comm: MPI.Intracomm) -> MPI.Intracomm:
    """Make a communicator of the ranks that live. *Collective*.

    The process is killed if it takes longer than `PATIENCE` seconds.
    """

    def end() -> None:
        late = _LATE.format(what="make a communicator", seconds=PATIENCE)
        sys.stderr.write(f"pencils: {late}\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    limit = Timer(PATIENCE, end)
    limit.daemon = True
    limit.start()
    try:
        return MPI.Intracomm(comm.Shrink())
    finally:
        limit.cancel()
