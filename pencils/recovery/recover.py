"""Run a program again on the processes that are left, each time that some have died."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TypeVar

from pencils.comm import failure, progress
from pencils.comm.agree import agreed, as_comm
from pencils.comm.leaving import leave_with, leave_with_survivors
from pencils.comm.mpi import MPI
from pencils.comm.topology import abandon, topology_of
from pencils.errors import RanksLostError
from pencils.layout.integers import as_int
from pencils.process import is_simulated

T = TypeVar("T")

LOG = logging.getLogger("pencils")
_ENABLED = "OMPI_MCA_mpi_ft_enable"  # what mpiexec of Open MPI sets
_NEEDED = (
    "recover() needs an MPI that reports processes that die instead of ending the job: Open MPI 5 "
    "or later, started by `mpiexec --with-ft ulfm -n 4 python app.py`; {found}. Without it, save "
    "in a pencils.CheckpointSeries, and start the job again, which resumes from it"
)


def recover(
    program: Callable[[MPI.Intracomm], T],
    comm: MPI.Intracomm | None = None,
    *,
    least: int = 1,
) -> T:
    """Run a program, and again on the other processes each time that some have died. *Collective*.

    When a process dies, calls that need it raise `RanksLostError` on some of the others. The calls
    of the rest are revoked, so that all leave the program by this error. Then the program is called
    again, with a communicator of the processes that are left. It begins from a `BuddyCopies`, made
    before, or from a `CheckpointSeries`, made in the program.

    The program has to pass `comm` to everything that takes it: ``Pencil(shape, comm)``. An error
    that is not caused by a death is raised as it is. The processes that are left end without
    ``MPI_Finalize``, which Open MPI may not complete after a death.

    Parameters
    ----------
    program : callable
        Called with a communicator, on all processes of it. What it made before a death is lost.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that begin. Default: all.
    least : int, optional
        The number of processes with which to go on, at least.

    Returns
    -------
    object
        What the program returns, if no process has died until all have returned from it.

    Raises
    ------
    RanksLostError
        On every process that is left, if these are fewer than `least`, or the program needs one
        that is not in its communicator.
    NotImplementedError
        On every process, if MPI ends the job when a process dies; on one process nothing is needed.
    ArgumentError, RankDisagreementError, TypeError
        On every process, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import pencils
    >>> copies = pencils.BuddyCopies()
    >>> def program(comm):
    ...     u = pencils.zeros(pencils.Pencil((4, 6), comm))
    ...     state = copies.resume({"u": u})  # None at first
    ...     for step in range(state.step + 1 if state else 1, 11):
    ...         u += 1
    ...         if step % 5 == 0:
    ...             copies.save(step, {"u": u})
    ...     return u.sum()
    >>> pencils.recover(program)
    np.float64(240.0)
    """
    user = as_comm(comm, "recover")
    checked = partial(_checked, program, least)
    if user.size == 1:
        return checked(user)
    _check_library()
    # Like Dup, and a process may have died already.
    team = failure.guard(MPI.Intracomm(user.Shrink()))
    leave_with_survivors(team)
    while True:
        done, result = _attempt(checked, team)
        if done:
            return result[0]
        team = _survivors(team, least)


def _checked(program: Callable[[MPI.Intracomm], T], least: int, team: MPI.Intracomm) -> T:
    """Check the arguments and call the program. *Collective*."""
    with agreed(topology_of(team).comm, "recover") as agree:
        if not callable(program):
            raise TypeError(f"program must be callable with a communicator, not {program!r}")
        agree(least=as_int("least", least, least=1))
    return program(team)


def _check_library() -> None:
    """Raise if MPI does not go on when a process dies; local."""
    name = MPI.Get_library_version().partition("\n")[0].partition(",")[0]
    if is_simulated() or not name.startswith("Open MPI") or not hasattr(MPI.Comm, "Shrink"):
        raise NotImplementedError(_NEEDED.format(found=f"this is {' '.join(name.split())}"))
    if os.environ.get(_ENABLED, "0").lower() not in {"1", "true", "yes", "t", "y"}:
        raise NotImplementedError(_NEEDED.format(found="it was started without `--with-ft ulfm`"))


def _attempt(program: Callable[[MPI.Intracomm], T], team: MPI.Intracomm) -> tuple[bool, list[T]]:
    """Call the program; return whether all have returned from it, and the result. *Collective*."""
    results = []
    try:
        results.append(program(team))
    except SystemExit as end:
        leave_with(end.code)
        raise
    except Exception:
        if not failure.lost():
            raise
        LOG.debug("the program was left because a process has died", exc_info=True)
    return _all(team, present=bool(results)), results


def _all(team: MPI.Intracomm, *, present: bool) -> bool:
    """Whether something is true on all that live; not if one more has just died. *Collective*."""
    team.Ack_failed()
    try:
        return bool(team.Agree(int(present)))
    except MPI.Exception:
        return False


def _survivors(team: MPI.Intracomm, least: int) -> MPI.Intracomm:
    """Return a communicator of the processes that are left. *Collective*."""
    begin, before = perf_counter(), team.size
    failure.revoke()
    progress.forget()
    comms = failure.forget()
    left = MPI.Intracomm(team.Shrink())
    abandon(comms)
    leave_with_survivors(left)
    LOG.info("%d of %d processes are left", left.size, before)
    if left.size == before:
        raise RanksLostError(
            "the program needs a process that has died, but is not in its communicator; pass the "
            "communicator that it is called with to every pencil, plan and series"
        )
    if left.size < least:
        raise RanksLostError(
            f"{left.size} of {before} processes are left, but least={least}; start the job again"
        )
    LOG.debug("a communicator of them took %.3f s", perf_counter() - begin)
    return failure.guard(left)
