"""Guarded communicators: what notices that a process has died ends all waiting for it.

Survivors may wait for a rank that has had the error of a death and has left. So the first error on
a rank revokes every guarded communicator of the rank: whatever waits in one of them has the error,
too, and revokes its own. By and by no survivor waits any more. A rank that leaves the program by
another error revokes them, too. Any method of a communicator may be the first that notices a death,
so that guarded ones have classes with all methods wrapped; others cost nothing.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from inspect import getattr_static
from time import monotonic, sleep
from typing import Any, TypeVar

from pencils.comm.failure import LOST, Guarded, is_death, loss, raise_lost
from pencils.comm.mpi import MPI, PerProcess
from pencils.errors import RanksLostError

T = TypeVar("T", bound="MPI.Comm")

# Open MPI crashes on a rank that still makes a communicator when another rank revokes it. So ranks
# meet on a new one. If they cannot, they have this many seconds to make it after the first one.
_MAKING = 0.5
_PAUSE = 5e-4  # seconds between two looks
# Methods of communicators that are left alone: local ones, and those of the recovery itself.
_PLAIN = ("Get_", "Set_", "Is_", "Delete_", "Ack_", "Iagree", "Free", "Revoke", "Shrink", "py2f")


@dataclass
class _Entry:
    """A guarded communicator."""

    comm: weakref.ref[MPI.Comm]
    made: float = field(default_factory=monotonic)
    complete: bool = False  # whether all of its ranks have made it


@dataclass
class _Guards:
    """The guarded communicators of this process."""

    entries: list[_Entry] = field(default_factory=list)
    pending: list[MPI.Request] = field(default_factory=list)
    kinds: dict[type[MPI.Comm], Any] = field(default_factory=dict)  # guarded classes, by bases
    handler: MPI.Errhandler | None = None


_guards = PerProcess(_Guards)


def guard(comm: T) -> T:
    """Return a new communicator as one that is guarded, as are those made of it; local.

    It may not be used before `meet`.
    """
    state = _guards()
    if state.handler is None:
        state.handler = MPI.Comm.Create_errhandler(_notice)
    found, kind = comm, type(comm)
    if not issubclass(kind, Guarded):
        if kind not in state.kinds:
            names = [name for name in dir(kind) if name[0].isalpha()]
            methods = {
                name: _guarding(getattr(kind, name))
                for name in names
                if not name.startswith(_PLAIN) and callable(getattr_static(kind, name))
            }
            state.kinds[kind] = type(kind.__name__, (Guarded, kind), methods)
        found = state.kinds[kind](comm)
    found.Set_errhandler(state.handler)
    state.entries = [each for each in state.entries if each.comm()]  # a freed one is false
    state.entries.append(_Entry(weakref.ref(found)))
    return found


def _guarding(method: Callable[..., Any]) -> Callable[..., Any]:
    """Guard what a method makes, and give its errors one class."""

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


def meet(comm: MPI.Comm) -> None:
    """Wait until all ranks have made a guarded communicator. *Collective*.

    Raises
    ------
    RanksLostError
        If a rank has died, or could not make it because another one has.
    """
    # Open MPI does not report a death to a barrier if it had the news while it made `comm`.
    entries, cause = _guards().entries, None

    def all_live() -> bool:
        made = [each for each in (entry.comm() for entry in entries) if each]
        return not any(each.Is_revoked() for each in made)

    try:
        complete = wait_while(comm.Iagree(array("i", [1])), all_live)
    except MPI.Exception as error:
        complete, cause = False, error
    if not complete:
        revoke()
        raise RanksLostError(LOST) from cause
    for entry in entries:
        if entry.comm() is comm:
            entry.complete = True


def wait_while(request: MPI.Request, goes_on: Callable[[], bool]) -> bool:
    """Wait for a request as long as `goes_on` is true; return whether it is complete."""
    pending = _guards().pending
    pending.append(request)  # MPI may still write to its memory after this rank stops waiting
    while not request.Test():
        if not goes_on():
            return False
        sleep(_PAUSE)
    pending.remove(request)
    return True


def revoke() -> None:
    """Revoke all guarded communicators, once; local."""
    state = _guards()
    if loss().noticed:
        return
    loss().noticed = True
    for entry in state.entries:  # the oldest first
        comm = entry.comm()
        if comm:
            if not entry.complete:
                sleep(max(0.0, entry.made + _MAKING - monotonic()))
            with suppress(MPI.Exception):
                comm.Revoke()


def forget() -> list[MPI.Comm]:
    """Guard no communicator any more, and return those that lived; local."""
    state = _guards()
    found = [comm for comm in (entry.comm() for entry in state.entries) if comm]
    state.entries, loss().noticed = [], False
    return found


def _notice(_: MPI.Comm, code: int) -> None:
    """Handle an error of MPI; the call that has it returns afterwards, with the error."""
    if is_death(MPI.Get_error_class(code)):
        revoke()
