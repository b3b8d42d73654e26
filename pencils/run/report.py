"""How the program ended on each rank, and the text that is printed once for all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from traceback import TracebackException, walk_tb
from typing import Literal

from pencils.comm import agree
from pencils.run.frames import CodePosition, keep_users_frames
from pencils.run.program import NoProgramError

INTERRUPTED = 130  # what shells report of a process that SIGINT has ended
_AGREE = str(Path(agree.__file__))


Positions = Mapping[int, CodePosition | str]  # or why there is none, for each rank


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


_CONDITION = """\
All ranks have to make the same collective calls in the same order. Look for one that only some of
the ranks reach, such as `if rank == 0: print(u.sum())`: call it on all ranks, and print on one.
"""
_MESSAGE = """\
Look for a message that no rank sends or receives, and for a collective call that only some of the
ranks reach, such as `if rank == 0: print(u.sum())`.
"""
_COMPUTES = "If a rank is to compute for longer than that while others wait, raise --timeout.\n"

_MOST = 4  # different errors that are shown
_PLURALS = {"computes": "compute", "has": "have", "waits": "wait"}
LOST = "ended without an exit that Python knows of (os._exit, or a crash)"
SILENT = "did not answer"


def ranks(numbers: Iterable[int]) -> str:
    """Name ranks in words: ``rank 2``, ``ranks 0-3, 5``."""
    every = sorted(numbers)
    runs: list[str] = []
    for _, run in groupby(enumerate(every), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        ends = members if len(members) < 3 else [f"{members[0]}-{members[-1]}"]  # noqa: PLR2004
        runs.extend(map(str, ends))
    return f"rank{'s' if len(every) > 1 else ''} {', '.join(runs)}"


def endings(found: Mapping[int, Ending], size: int) -> str:
    """Print how ranks have failed, the same failure once."""
    groups: dict[tuple[str, str], dict[int, Ending]] = {}
    for rank, ending in sorted(found.items()):
        if ending.text:
            groups.setdefault((ending.kind, ending.title), {})[rank] = ending
    shown = [_group(those, size) for those in list(groups.values())[:_MOST]]
    if rest := list(groups.values())[_MOST:]:
        failed = [rank for those in rest for rank in those]
        shown.append(f"pencils run: {len(rest)} other errors on {ranks(failed)}\n")
    return "\n".join(shown)


def _group(those: Mapping[int, Ending], size: int) -> str:
    # The rank at fault may have more to show than those that were told.
    best = max(those.values(), key=lambda ending: (ending.frames, -len(ending.text)))
    if size == 1 or best.kind == "left":
        return best.text
    whom = f"all {size} ranks" if len(those) == size else f"{ranks(those)} of {size}"
    return f"pencils run: raised on {whom}:\n{best.text}"


def unfinished(found: Mapping[int, Ending], places: Positions, size: int) -> str:
    """Print how ranks have failed while others, at `places`, went on."""
    failed = {rank: ending for rank, ending in found.items() if ending.status}
    others = {rank: _ended(ending) for rank, ending in found.items() if rank not in failed}
    how = {
        "raised" if ending.kind == "raised" else f"left with exit status {ending.status}"
        for ending in failed.values()
    }
    why = f"{ranks(failed)} of {size} {', '.join(sorted(how))}"
    return f"{endings(found, size)}pencils run: the job was ended, because {why}; the others:\n" + (
        _lines({**places, **others}) or "  nothing is known of them\n"
    )


def hang(found: Mapping[int, Ending], places: Positions, seconds: float) -> str:
    """Print where ranks wait that have waited for too long, and where the others are."""
    known = [place for place in places.values() if isinstance(place, CodePosition)]
    waiting = [place for place in known if place.waits_in]
    advice = _CONDITION if all(place.collective for place in waiting) else _MESSAGE
    if len(waiting) < len(known):
        advice += _COMPUTES
    lines = _lines({**places, **{rank: _ended(ending) for rank, ending in found.items()}})
    return (
        f"pencils run: the job was ended, for a rank had waited for {seconds:g} s (--timeout):\n"
        f"{lines}{advice}"
    )


def _ended(ending: Ending) -> str:
    how = "has finished" if not ending.status else f"{ending.kind} {ending.title.strip()}"
    return how + _after(ending.collectives)


def _after(number: int | None) -> str:
    return "" if number is None else f", after {number} collective{'s' * (number != 1)}"


def _lines(places: Positions) -> str:
    groups: dict[str, list[int]] = {}
    for rank, place in sorted(places.items()):
        groups.setdefault(place if isinstance(place, str) else _text(place), []).append(rank)
    lines = []
    for text, those in groups.items():
        verb, _, rest = text.partition(" ")
        lines.append(f"  {ranks(those)} {_PLURALS.get(verb, verb) if those[1:] else verb} {rest}\n")
    return "".join(lines)


def _text(place: CodePosition) -> str:
    where = f"in {place.call} at {place.line}" if place.call else f"at {place.line}"
    after = _after(place.collectives)
    if not place.waits_in:
        return f"computes {where}{after}"
    method = "" if f"{place.waits_in}(" in place.call else f", {place.waits_in}"
    if place.collective:
        return f"waits {where} (collective number {place.collectives}{method})"
    return f"waits {where}{method and ' (' + method[2:] + ')'}{after}"
