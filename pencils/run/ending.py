"""How the program ended on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from traceback import TracebackException, walk_tb
from typing import Literal

from pencils.comm import agree
from pencils.run.frames import keep_users_frames
from pencils.run.program import NoProgramError

INTERRUPTED = 130  # what shells report of a process that SIGINT has ended
_AGREE = str(Path(agree.__file__))


@dataclass(frozen=True, slots=True)
class Ending:
    """How the program ended on one rank.

    Parameters
    ----------
    kind : {'finished', 'left', 'raised'}
        Whether it came to its end, left by `sys.exit` with an error, or raised.
    status : int
        Exit status.
    title : str
        What is the same on ranks that ended in the same way.
    text : str
        What to print.
    frames : int
        How many frames of the user's the text shows.
    agreed : bool
        Whether the library raised on all ranks.
    collectives : int or None
        How many collectives the rank had begun; None if that was not counted.
    """

    kind: Literal["finished", "left", "raised"]
    status: int = 0
    title: str = ""
    text: str = ""
    frames: int = 0
    agreed: bool = False
    collectives: int | None = None

    @classmethod
    def of(cls, error: BaseException | None, *, full: bool = False) -> Ending:
        """Describe what a program has raised; `full` keeps the frames that are not the user's."""
        if error is None:
            return cls("finished")
        if isinstance(error, NoProgramError):
            return cls("left", 2, str(error), f"error: {error}\n")
        if isinstance(error, SystemExit):
            return cls._left(error.code)
        try:
            return cls._raised(error, full=full)
        except Exception as why:  # noqa: BLE001 - whatever stands in the way, the error is told
            title = type(error).__qualname__
            return cls("raised", 1, title, f"{title} (no traceback: {type(why).__name__})\n")

    @classmethod
    def _left(cls, code: object) -> Ending:
        if code is None or code == 0:
            return cls("finished")
        if isinstance(code, int):
            return cls("left", code & 0xFF or 1, f"exit status {code}")
        text = str(code)
        return cls("left", 1, text, text + "\n")

    @classmethod
    def _raised(cls, error: BaseException, *, full: bool) -> Ending:
        report = TracebackException.from_exception(error)
        title = "".join(report.format_exception_only())
        agreed = any(f.f_code.co_filename == _AGREE for f, _ in walk_tb(error.__traceback__))
        frames = 0 if full else keep_users_frames(report)
        status = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
        return cls("raised", status, title, "".join(report.format()), frames, agreed)
