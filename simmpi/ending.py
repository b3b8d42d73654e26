"""How a program ended on one rank, as a text that is equal on ranks that ended in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from traceback import TracebackException
from typing import Literal, Self

from simmpi.frames import keep_users_frames
from simmpi.program import NoProgramError

INTERRUPTED = 130  # exit status that shells report of a process that SIGINT has ended


@dataclass(frozen=True, slots=True)
class Ending:
    """How the program ended on one rank."""

    kind: Literal["finished", "left", "raised"]  # left: by `sys.exit` with an error
    status: int = 0
    title: str = ""  # equal on ranks that ended in the same way
    text: str = ""  # to print
    frames: int = 0  # of the user's program in the text

    @classmethod
    def of(cls, error: BaseException | None, *, full: bool = False) -> Self:
        """Describe the error of a program; `full` keeps the frames that are not the user's."""
        if error is None:
            return cls("finished")
        if isinstance(error, NoProgramError):
            return cls("left", 2, str(error), f"error: {error}\n")
        if isinstance(error, SystemExit):
            return cls._left(error.code)
        try:
            return cls._raised(error, full=full)
        except Exception as why:  # noqa: BLE001 - an error whose text raises is printed, too
            title = type(error).__qualname__
            return cls("raised", 1, title, f"{title} (no traceback: {type(why).__name__})\n")

    @classmethod
    def _left(cls, code: object) -> Self:
        if code is None or code == 0:
            return cls("finished")
        if isinstance(code, int):
            return cls("left", code & 0xFF or 1, f"exit status {code}")
        text = str(code)
        return cls("left", 1, text, text + "\n")

    @classmethod
    def _raised(cls, error: BaseException, *, full: bool) -> Self:
        report = TracebackException.from_exception(error)
        title = "".join(report.format_exception_only())
        frames = 0 if full else keep_users_frames(report)
        status = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
        return cls("raised", status, title, "".join(report.format()), frames)


def ranks(numbers: Iterable[int]) -> str:
    """List ranks as text: ``rank 2``, ``ranks 0-3, 5``."""
    every = sorted(numbers)
    runs: list[str] = []
    for _, run in groupby(enumerate(every), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        ends = members if len(members) < 3 else [f"{members[0]}-{members[-1]}"]  # noqa: PLR2004
        runs.extend(map(str, ends))
    return f"rank{'s' if len(every) > 1 else ''} {', '.join(runs)}"
