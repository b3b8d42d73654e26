"""State of libraries and programs that belongs to one process, or to one simulated rank.

Simulated ranks are threads of one process, of which one runs at a time. They share all modules, so
that a module keeps in a `PerProcess` the values that a process of MPI has for itself: MPI objects,
communicators, exchanges under way. When another rank runs, the scheduler exchanges the values of
all of them at once. The scheduler is not imported here.
"""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeAlias, TypeVar, cast

T = TypeVar("T")

# Folders of libraries, whose frames are left out of texts that show the lines of a program.
libraries: list[str] = []


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


class _Entry:
    """An entry of a dictionary outside of the values, which is exchanged with them."""

    def __init__(self, names: dict[str, Any], name: str) -> None:
        self.names = names
        self.name = name


Values: TypeAlias = dict[PerProcess[Any] | _Entry, Any]

_of_process: Values = {}
_values = _of_process
_entries: list[_Entry] = []


def keep_apart(names: dict[str, Any], name: str) -> None:
    """Give each simulated rank its own entry of a dictionary, which begins as that of the process.

    For attributes that are read more often than ranks are exchanged, and those of other modules.

    Examples
    --------
    >>> import sys
    >>> keep_apart(vars(sys), "argv")  # ranks may now set sys.argv
    """
    if not any(entry.names is names and entry.name == name for entry in _entries):
        entry = _Entry(names, name)
        _entries.append(entry)
        _of_process[entry] = names[name]


class Slot:
    """A place outside of the values, with contents of its own for each rank until it is closed.

    Ranks begin with what the place holds when it is opened, or with `outside`.
    """

    def __init__(self, *outside: object) -> None:
        self._outside = outside[0] if outside else self.read()
        self._contents: dict[object, object] = {}
        _slots.append(self)

    def close(self) -> None:
        """Exchange the contents no longer; what the place holds stays, for all ranks."""
        _slots.remove(self)

    def exchange(self, old: object, new: object) -> None:
        """Keep what the place holds for one owner, and put what it held for another one."""
        self._contents[old] = self.read()
        self.write(self._contents.get(new, self._outside))

    def read(self) -> object:
        """Return what the place holds."""
        raise NotImplementedError

    def write(self, value: object) -> None:
        """Put something there."""
        raise NotImplementedError


_slots: list[Slot] = []
_owner: object = None


def exchange_slots(owner: object) -> None:
    """Have all slots hold what they held for an owner: a rank, or None outside of ranks."""
    global _owner
    old, _owner = _owner, owner
    for slot in _slots:
        slot.exchange(old, owner)


def owner() -> object:
    """Return the owner of what slots hold now."""
    return _owner


ABSENT = object()  # the contents of a slot for which there is nothing


class Attribute(Slot):
    """An attribute of a module, class or other object; it may be absent for some ranks.

    Examples
    --------
    >>> class Settings:
    ...     width = 1
    >>> slot = Attribute(Settings, "width")
    >>> exchange_slots("rank 3")
    >>> Settings.width = 2
    >>> exchange_slots(None)
    >>> Settings.width
    1
    >>> slot.close()
    """

    def __init__(self, target: object, name: str, *outside: object) -> None:
        self.target = target
        self.name = name
        super().__init__(*outside)

    def read(self) -> object:
        """Return the value; for classes that of the class itself."""
        try:
            names = vars(self.target)
        except TypeError:  # it has slots
            return getattr(self.target, self.name, ABSENT)
        return names.get(self.name, ABSENT)

    def write(self, value: object) -> None:
        """Set or delete it."""
        present = self.read()
        if value is present:
            return
        if value is ABSENT:
            delattr(self.target, self.name)
        else:
            setattr(self.target, self.name, value)


class _Filters(Attribute):
    """The list of filters of warnings, of which the interpreter keeps results.

    Functions of `warnings` change the list in place, so that each rank needs its own.
    """

    def exchange(self, old: object, new: object) -> None:
        """Put the list of another owner; at first, a copy of that of the process."""
        if new is not None and new not in self._contents:
            self._contents[new] = list(cast("list[object]", self._outside))
        super().exchange(old, new)

    def write(self, value: object) -> None:
        if value is not self.read():
            super().write(value)
            with warnings.catch_warnings():  # the end of which drops those results
                pass


@contextmanager
def warnings_apart() -> Iterator[None]:
    """Give each simulated rank filters of warnings of its own, in the block.

    Otherwise blocks of `warnings.catch_warnings` on several ranks, which overlap, would restore
    each other's filters.
    """
    slots: list[Slot] = [_Filters(warnings, "filters")]
    slots += [Attribute(warnings, name) for name in ("showwarning", "_showwarnmsg_impl")]
    try:
        yield
    finally:
        for slot in slots:
            slot.close()


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
    for entry in _entries:
        old[entry] = entry.names[entry.name]
        entry.names[entry.name] = new[entry] if entry in new else _of_process[entry]
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
