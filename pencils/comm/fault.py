"""Errors and values in words that can be sent, whatever they are: nothing here raises."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

# Characters of a text that is sent to other ranks.
MOST_TEXT = 10_000
MOST_SHOWN = 2_000


class Fault(NamedTuple):
    """An error as other ranks can raise it; by its number a full disk is told from a broken one."""

    kind: type[Exception]
    text: str
    number: int | None

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """Describe an error; one that cannot say what it means is told by its type."""
        kind = _transportable(type(error))
        try:
            return cls._of_system(kind, error) or cls(kind, _words(str, error), None)
        except BaseException:  # noqa: BLE001 - attributes of the error may be anything
            return cls(kind, _words(str, error), None)

    @classmethod
    def _of_system(cls, kind: type[Exception], error: Exception) -> Fault | None:
        if not isinstance(error, OSError) or type(error.errno) is not int:
            return None
        where = "" if error.filename is None else f": {_words(repr, error.filename)}"
        return cls(kind, f"{_words(str, error.strerror)}{where}", error.errno)

    def anywhere(self) -> Exception:
        """Make the error of a rank that is not known again."""
        return self.kind(self.text) if self.number is None else self.kind(self.number, self.text)

    def on(self, rank: int) -> Exception:
        """Make the error of a rank again."""
        text = f"rank {rank}: {self.text}"
        return self.kind(text) if self.number is None else self.kind(self.number, text)


def shown(value: object) -> str:
    """Show a value to people."""
    return _words(repr, value, MOST_SHOWN)


def _words(text_of: Callable[[object], str], value: object, most: int = MOST_TEXT) -> str:
    try:
        text = str.__str__(text_of(value))
    except BaseException as why:  # noqa: BLE001 - else this rank is lost between two collectives
        return f"{type(value).__name__}, whose text cannot be made: {type(why).__name__}"
    return text if len(text) <= most else f"{text[:most]} ..."


def _transportable(kind: type[Exception]) -> type[Exception]:
    """Nearest base class that is known on every rank and takes a single text."""
    for base in kind.__mro__:
        if _is_known(base) and _takes_text(base):
            return base
    return Exception


def _is_known(kind: type) -> bool:
    """Whether a class is found by its name; what users make may claim to be from anywhere."""
    module: object = kind.__module__
    if not isinstance(module, str) or not f"{module}.".startswith(("builtins.", "pencils.")):
        return False
    return getattr(sys.modules.get(module), kind.__qualname__, None) is kind


def _takes_text(kind: type) -> bool:
    try:
        kind("")
    except Exception:  # noqa: BLE001 - it takes something else
        return False
    return issubclass(kind, Exception)
