"""Handlers of errors, and hints: objects that programs pass around, without effect here."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping


class Errhandler:
    """What happens at errors; simulated ranks always raise."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def Free(self) -> None:
        """Drop the handle."""

    free = Free

    def __bool__(self) -> bool:
        return bool(self.name)


ERRHANDLER_NULL = Errhandler()
ERRORS_RETURN = Errhandler("ERRORS_RETURN")
ERRORS_ARE_FATAL = Errhandler("ERRORS_ARE_FATAL")
ERRORS_ABORT = Errhandler("ERRORS_ABORT")


class Info(UserDict[str, str]):
    """Hints, by name."""

    @classmethod
    def Create(cls, items: Mapping[str, str] | None = None) -> Info:
        """Make hints."""
        return cls(items or {})

    def Set(self, key: str, value: str) -> None:
        """Set a hint."""
        self[key] = value

    def Get(self, key: str) -> str | None:
        """Return a hint, or None."""
        return self.get(key)

    def Delete(self, key: str) -> None:
        """Remove a hint."""
        del self[key]

    def Get_nkeys(self) -> int:
        """Number of hints."""
        return len(self)

    def Get_nthkey(self, n: int) -> str:
        """Name of hint number n."""
        return list(self)[n]

    def Dup(self) -> Info:
        """Copy."""
        return Info(self)

    def Free(self) -> None:
        """Drop all hints."""
        self.clear()

    free = Free

    def __bool__(self) -> bool:
        return self is not INFO_NULL


INFO_NULL = Info()
INFO_ENV = Info()
