"""Processes that die: communicators on which all survivors notice it.

An MPI library with User-Level Failure Mitigation (ULFM) reports a process that has died as an error
of the calls that need it. Other survivors may wait for a rank that has had this error and has left.
So the first error on a rank revokes every communicator of the rank that is `guarded`: whatever
waits in one of them has the error, too, and revokes its own. By and by no survivor waits any more.

Any method of a communicator may be the first that notices a death, so that classes of guarded ones
are derived with all methods wrapped. Only communicators of `pencils.recovery.recover` are: others
cost nothing. A rank that leaves the program by another error revokes them, too. Everything that
waits for other ranks is a call of MPI, shared memory included.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from inspect import getattr_static
from time import monotonic, sleep
from typing import Any, NoReturn, TypeVar

from pencils.comm.mpi import MPI, PerProcess
from pencils.comm.recording import timed
from pencils.errors import RanksLostError

T = TypeVar("T", bound="MPI.Comm")

# Open MPI crashes on a rank that still makes a communicator when another rank revokes it. So ranks
# meet on a new one. If they cannot, they have this many seconds to make it after the first one.
_MAKING = 0.5
_PAUSE = 5e-4  # seconds between two looks
_NAMES = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
# Methods of communicators that are left alone: local ones, and those of the recovery itself.
_PLAIN = ("Get_", "Set_", "Is_", "Delete_", "Ack_", "Iagree", "Free", "Revoke", "Shrink", "py2f")
_LOST = (
    "a process of this communicator has died, or has left the program; "
    "pencils.recovery.recover(program) runs it again on the other ones, or raises the error of "
    "that one"
)


@dataclass
class _Entry:
    """A guarded communicator."""

    comm: weakref.ref[MPI.Comm]
    made: float = field(default_factory=monotonic)
    complete: bool = False  # whether all of its ranks have made it


class _State:
    """The guarded communicators of this process."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.pending: list[MPI.Request] = []
        self.lost = False  # all communicators are revoked
        self.kinds: dict[type[MPI.Comm], Any] = {}  # guarded classes, by their bases
        self.handler: MPI.Errhandler | None = None


_state = PerProcess(_State)


class Guarded:
    """Mark of the communicators of which `guarded` is true."""


def guard(comm: T) -> T:
    """Return a new communicator as one that is guarded, as are those made of it; local.

    It may not be used before `meet`.
    """
    state = _state()
    if state.handler is None:
        state.handler = MPI.Comm.Create_errhandler(_notice)
    found, kind = comm, type(comm)
    if not issubclass(kind, Guarded):
        if kind not in state.kinds:
            state.kinds[kind] = type(kind.__name__, (Guarded, kind), _methods(kind))
        found = state.kinds[kind](comm)
    found.Set_errhandler(state.handler)
    state.entries = [each for each in state.entries if each.comm()]  # a freed one is false
    state.entries.append(_Entry(weakref.ref(found)))
    return found


def meet(comm: MPI.Comm) -> None:
    """Wait until all ranks have made a guarded communicator. *Collective*.

    Raises
    ------
    RanksLostError
        If a rank has died, or could not make it because another one has.
    """
    # Open MPI does not report a death to a barrier if it had the news while it made `comm`.
    entries, cause = _state().entries, None
    try:
        request = comm.Iagree(array("i", [1]))
        complete = wait_while(request, lambda: not any(map(_is_revoked, entries)))
    except MPI.Exception as error:
        complete, cause = False, error
    if not complete:
        revoke()
        raise RanksLostError(_LOST) from cause
    for entry in entries:
        if entry.comm() is comm:
            entry.complete = True


def _is_revoked(entry: _Entry) -> bool:
    comm = entry.comm()
    return comm is not None and bool(comm) and comm.Is_revoked()


def wait_while(request: MPI.Request, goes_on: Callable[[], bool]) -> bool:
    """Wait for a request as long as `goes_on` is true; return whether it is complete."""
    pending = _state().pending
    pending.append(request)  # MPI may still write to its memory after this rank stops waiting
    while not request.Test():
        if not goes_on():
            return False
        sleep(_PAUSE)
    pending.remove(request)
    return True


def lost() -> bool:
    """Whether this process has noticed that one of a guarded communicator is lost; local."""
    return _state().lost


def revoke() -> None:
    """Revoke all guarded communicators, once; local."""
    state = _state()
    if state.lost:
        return
    state.lost = True
    for entry in state.entries:  # the oldest first
        comm = entry.comm()
        if comm:
            if not entry.complete:
                sleep(max(0.0, entry.made + _MAKING - monotonic()))
            with suppress(MPI.Exception):
                comm.Revoke()


def forget() -> list[MPI.Comm]:
    """Guard no communicator any more, and return those that lived; local."""
    state = _state()
    found = [comm for comm in (entry.comm() for entry in state.entries) if comm]
    state.entries, state.lost = [], False
    return found


def wait_all(requests: Sequence[MPI.Request]) -> None:
    """Wait for requests.

    Raises
    ------
    RanksLostError
        If a process that takes part has died.
    """
    try:
        timed("wait", MPI.Request.Waitall, requests)
    except MPI.Exception as error:
        raise_lost(error)


def raise_lost(error: MPI.Exception) -> NoReturn:
    """Raise an error of MPI, as a `RanksLostError` if a process has died."""
    if lost() or _is_death(error.Get_error_class()):
        raise RanksLostError(_LOST) from error
    raise error


def _notice(_: MPI.Comm, code: int) -> None:
    """Handle an error of MPI; the call that has it returns afterwards, with the error."""
    if _is_death(MPI.Get_error_class(code)):
        revoke()


def _is_death(kind: int) -> bool:
    return kind in [getattr(MPI, name, None) for name in _NAMES]


def _methods(kind: type[MPI.Comm]) -> dict[str, Callable[..., Any]]:
    """Methods of a guarded class: what they make is guarded, and errors have one class."""
    names = [name for name in dir(kind) if name[0].isalpha() and not name.startswith(_PLAIN)]
    return {
        name: _guarding(getattr(kind, name))
        for name in names
        if callable(getattr_static(kind, name))
    }


def _guarding(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
        except MPI.Exception as error:
            raise_lost(error)
        if not isinstance(result, MPI.Comm) or not result:
            return result
        made = guard(result)
        meet(made)
        return made

    return call
