"""State of the library that belongs to one process, or to one simulated rank.

Simulated ranks (`pencils.simulation`) are threads of one process, of which one runs at a time. They
share all modules, so that a module keeps in a `PerProcess` what a process of MPI has for itself:
MPI objects, communicators, exchanges under way. When another rank runs, the scheduler exchanges the
values of all of them at once.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")


class Switch:
    """A flag that each process, and each simulated rank, has once, for code that reads it often.

    Simulated ranks begin with the value that the process began with.
    """

    def __init__(self, *, on: bool) -> None:
        self.on = self.first = on
        _switches.append(self)


_switches: list[Switch] = []


class PerProcess(Generic[T]):
    """A value that each process, and each simulated rank, has once; made on first use.

    Examples
    --------
    >>> names = PerProcess(list[str])
    >>> names().append("u")
    >>> names()
    ['u']
    >>> of_process = exchange({})  # what follows belongs to another rank
    >>> names()
    []
    >>> of_rank = exchange(of_process)
    >>> names()
    ['u']
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    def __call__(self) -> T:
        """Return the value of the process or rank that runs."""
        value: T
        try:
            value = _values[self]
        except KeyError:
            value = _values[self] = self._make()
        return value

    def replace(self, value: T) -> None:
        """Set another value for the process or rank that runs."""
        _values[self] = value


Values: TypeAlias = dict[PerProcess[Any] | Switch, Any]

_of_process: Values = {}
_values = _of_process


def values() -> Values:
    """Return the values of the process or rank that runs."""
    return _values


def exchange(new: Values) -> Values:
    """Make other values those of the rank that runs, and return the ones before.

    While the names of a simulated MPI are installed, the values are never those of the process:
    these hold objects of the real MPI.
    """
    global _values
    old, _values = _values, new
    for switch in _switches:
        old[switch] = switch.on
        switch.on = new.get(switch, switch.first)
    return old


def is_simulated() -> bool:
    """Whether a simulated rank runs."""
    return _values is not _of_process


_at_end: PerProcess[list[Callable[[], object]]] = PerProcess(list)


def at_exit(function: Callable[[], object]) -> None:
    """Have a function called when this process exits, or at the end of this simulated rank."""
    if is_simulated():
        _at_end().append(function)
    else:
        atexit.register(function)


def end() -> None:
    """Call what `at_exit` was given on this simulated rank, the last one first.

    A simulation calls it on each rank when it is closed, before it looks for what was not freed.
    """
    functions = _at_end()
    while functions:
        functions.pop()()
