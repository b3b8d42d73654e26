"""Where the program is on each rank, how it ended there, and the text printed for all ranks."""

from __future__ import annotations

import argparse
import dis
import linecache
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Self

from pencils.array.base import VARIABLE, checks
from pencils.comm import agree
from simmpi.ending import Ending, ranks
from simmpi.frames import add_starter, is_library, users_frame

add_starter(Path(__file__).parent)

_LONGEST = 70  # characters of a call that are shown
_START = os.getcwd()  # noqa: PTH109 - before the program changes it


@dataclass(frozen=True, slots=True)
class CodePosition:
    """The line of the program that a rank executes."""

    line: str  # file and line of the user's program
    call: str  # source code of the call there
    waits_in: str = ""  # the method of mpi4py in which the rank waits
    collective: bool = False  # whether it waits in the last of its collectives
    collectives: int | None = None  # number of collectives so far; None: not counted


def line_of(frame: FrameType) -> tuple[str, str]:
    """Find the line of the user's program that leads to a frame, and the call there."""
    users = users_frame(frame)
    name = users.f_code.co_filename
    path = Path(name)
    shown = path.relative_to(_START) if path.is_relative_to(_START) else path
    return f"{shown}:{users.f_lineno}", _expression(users) or _function(frame)


def _function(frame: FrameType) -> str:
    """Name the function of the library that the user has called."""
    found = ""
    for each, _ in walk_stack(frame):
        if not is_library(each.f_code.co_filename):
            break
        found = each.f_code.co_qualname
    return found


def _position(frame: FrameType) -> tuple[int | None, int | None, int | None, int | None]:
    """First line, last line, first column and last column of what a frame executes."""
    return list(frame.f_code.co_positions())[frame.f_lasti // 2]


def _expression(frame: FrameType) -> str:
    """Return the source code of what a frame executes."""
    first, last, start, end = _position(frame)
    if first is None or last is None:
        return ""
    name, names = frame.f_code.co_filename, frame.f_globals
    lines = [linecache.getline(name, n, names).encode() for n in range(first, last + 1)]
    if start is not None and end is not None and lines:
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
    text = b" ".join(b" ".join(lines).split()).decode(errors="replace")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def called_names(frame: FrameType) -> list[str]:
    """Name what a frame is calling, as ``["comm", "recv"]``; empty if that cannot be known."""
    first, _, start, _ = _position(frame)
    found: dict[tuple[int, int], str] = {}  # by where they end
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset >= frame.f_lasti:
            break
        place = instruction.positions
        # These names begin where the call begins.
        if place is not None and (place.lineno, place.col_offset) == (first, start):
            ends = (place.end_lineno or 0, place.end_col_offset or 0)
            if instruction.opname.startswith("LOAD_"):
                found[ends] = str(instruction.argval)
            elif instruction.opname.startswith(("CALL", "BINARY")):  # f().recv, f[0].recv
                found[ends] = ""
    return [found[ends] for ends in sorted(found)]


_AGREE = str(Path(agree.__file__))
Positions = Mapping[int, CodePosition | str]  # of each rank; or a text why it is unknown


@dataclass(frozen=True, slots=True)
class RankEnding(Ending):
    """How the program ended on one rank of a job."""

    agreed: bool = False  # whether pencils raised on all ranks
    collectives: int | None = None  # number of collectives; None: not counted

    @classmethod
    def of(cls, error: BaseException | None, *, full: bool = False) -> Self:
        """Describe the error of a program; `full` keeps the frames that are not the user's."""
        trace = None if error is None else error.__traceback__
        agreed = any(frame.f_code.co_filename == _AGREE for frame, _ in walk_tb(trace))
        return replace(super(RankEnding, cls).of(error, full=full), agreed=agreed)


_CONDITION = """\
All ranks have to make the same collective calls in the same order. Look for one that only some of
the ranks reach, such as `if rank == 0: print(u.sum())`: call it on all ranks, and print on one.
"""
_MESSAGE = """\
Look for a message that no rank sends or receives, and for a collective call that only some of the
ranks reach, such as `if rank == 0: print(u.sum())`.
"""
_STOPPED = "A rank that does not answer may have been stopped, or its host was cut off.\n"
_COMPUTES = "If a rank may compute for longer than that while others wait, raise --timeout.\n"
_MOST = 4  # different errors that are shown
_PLURALS = {"computes": "compute", "has": "have", "waits": "wait"}
LOST = "ended without an exit that Python can report (os._exit, or a crash)"
SILENT = "did not answer"


def endings(found: Mapping[int, RankEnding], size: int) -> str:
    """Describe how ranks have failed, equal failures once."""
    groups: dict[tuple[str, str], dict[int, RankEnding]] = {}
    for rank, ending in sorted(found.items()):
        if ending.text:
            groups.setdefault((ending.kind, ending.title), {})[rank] = ending
    shown = [_group(those, size) for those in list(groups.values())[:_MOST]]
    if rest := list(groups.values())[_MOST:]:
        failed = [rank for those in rest for rank in those]
        shown.append(f"pencils run: {len(rest)} other errors on {ranks(failed)}\n")
    return "\n".join(shown)


def _group(those: Mapping[int, RankEnding], size: int) -> str:
    # The rank that caused an error may show more than those on which the library raised it, too.
    best = max(those.values(), key=lambda ending: (ending.frames, -len(ending.text)))
    if size == 1 or best.kind == "left":
        return best.text
    which = f"all {size} ranks" if len(those) == size else f"{ranks(those)} of {size}"
    return f"pencils run: raised on {which}:\n{best.text}"


def unfinished(found: Mapping[int, RankEnding], places: Positions, size: int) -> str:
    """Describe how ranks have failed while others, at `places`, continued."""
    failed = {rank: ending for rank, ending in found.items() if ending.status}
    others = {rank: _ended(ending) for rank, ending in found.items() if rank not in failed}
    how = {
        "raised" if ending.kind == "raised" else f"left with exit status {ending.status}"
        for ending in failed.values()
    }
    why = f"{ranks(failed)} of {size} {', '.join(sorted(how))}"
    return f"{endings(found, size)}pencils run: the job was ended, because {why}; the others:\n" + (
        _lines({**places, **others}) or "  their positions are unknown\n"
    )


def hang(
    found: Mapping[int, RankEnding], places: Positions, seconds: float, *, ended: bool = True
) -> str:
    """Describe where ranks have waited for too long, and the positions of the others.

    `ended` is whether the job is ended because of it.
    """
    known = [place for place in places.values() if isinstance(place, CodePosition)]
    waiting = [place for place in known if place.waits_in]
    advice = _CONDITION if all(place.collective for place in waiting) else _MESSAGE
    if len(waiting) < len(known):
        advice += _COMPUTES
    if SILENT in places.values():
        advice = _STOPPED
    lines = _lines({**places, **{rank: _ended(ending) for rank, ending in found.items()}})
    why = f"the job was ended: a rank had waited for {seconds:g} s (--timeout)"
    if not ended:
        why = f"no rank has computed for {seconds:g} s; the job goes on waiting (--timeout ends it)"
    return f"pencils run: {why}:\n{lines}{advice}"


def _ended(ending: RankEnding) -> str:
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


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--check", action="store_true", help=f"make stale ghosts NaN, as {VARIABLE}=1 does"
    )


def turn_on_checks(args: argparse.Namespace) -> None:
    """Make stale ghosts NaN if ``--check`` is given."""
    if args.check:
        os.environ[VARIABLE] = "1"  # also for processes that the program starts
        checks.on = True
