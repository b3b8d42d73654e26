"""Patches that hold for one simulated rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.compat import NOTSET

from simmpi.process import ABSENT, Attribute, Slot, owner


class _Item(Slot):
    """An item of a mapping, as an environment variable."""

    def __init__(self, mapping: Any, key: object, outside: object) -> None:
        self.target, self.name = mapping, key
        super().__init__(outside)

    def read(self) -> object:
        return self.target.get(self.name, ABSENT)

    def write(self, value: object) -> None:
        if value is self.read():
            return
        if value is ABSENT:
            del self.target[self.name]
        else:
            self.target[self.name] = value


class _Folder(Slot):
    """The current folder."""

    def read(self) -> object:
        try:
            return str(Path.cwd())
        except FileNotFoundError:  # it was removed
            return "/"

    def write(self, value: object) -> None:
        os.chdir(str(value))


class _SearchPath(Slot):
    """What `sys.path` contains."""

    def read(self) -> object:
        return tuple(sys.path)

    def write(self, value: object) -> None:
        sys.path[:] = value  # type: ignore[call-overload]


_open: dict[object, tuple[Slot, set[int]]] = {}  # slots, and the patches that need them


class RankMonkeyPatch(pytest.MonkeyPatch):  # type: ignore[misc]
    """A `pytest.MonkeyPatch` that patches for the rank that calls it.

    What it patches is a slot, whose contents the scheduler exchanges with the rank.
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: set[object] = set()
        self._rank = owner()

    def setattr(self, *args: Any, **kwargs: Any) -> None:
        """Set an attribute for this rank."""
        __tracebackhide__ = True
        super().setattr(*args, **kwargs)
        self._open_attribute()

    def delattr(self, *args: Any, **kwargs: Any) -> None:
        """Delete an attribute for this rank."""
        __tracebackhide__ = True
        super().delattr(*args, **kwargs)
        self._open_attribute()

    def setitem(self, *args: Any) -> None:
        """Set an item of a mapping for this rank."""
        super().setitem(*args)
        self._open_item()

    def delitem(self, *args: Any, **kwargs: Any) -> None:
        """Delete an item of a mapping for this rank."""
        super().delitem(*args, **kwargs)
        self._open_item()

    def chdir(self, path: str | os.PathLike[str]) -> None:
        """Change the current folder of this rank."""
        self._open("cwd", _Folder)
        super().chdir(path)

    def syspath_prepend(self, path: object) -> None:
        """Add a folder to `sys.path` for this rank."""
        self._open("sys.path", _SearchPath)
        super().syspath_prepend(path)

    def undo(self) -> None:
        """Undo what was patched."""
        if owner() is self._rank:
            super().undo()
        else:  # the rank has ended: its patches are in no place
            self.__dict__.update(pytest.MonkeyPatch().__dict__)
        for key in self._keys:
            slot, users = _open[key]
            users.remove(id(self))
            if not users:
                slot.close()
                del _open[key]
        self._keys.clear()

    def _open_attribute(self) -> None:
        if self._setattr:
            target, name, before = self._setattr[-1]
            outside = ABSENT if before is NOTSET else before
            self._open((id(target), name), lambda: Attribute(target, name, outside))

    def _open_item(self) -> None:
        if self._setitem:
            mapping, key, before = self._setitem[-1]
            outside = ABSENT if before is NOTSET else before
            self._open((id(mapping), "item", key), lambda: _Item(mapping, key, outside))

    def _open(self, key: object, make: Callable[[], Slot]) -> None:
        """Exchange a place with the ranks, as long as any of them has patched it."""
        if key not in _open:
            _open[key] = make(), set()
        _open[key][1].add(id(self))
        self._keys.add(key)
