"""Where a thread is in its program: in which call, at which line of the user's."""

from __future__ import annotations

import dis
import linecache
import os
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pencils.run.frames import is_library, stack, users_frame

_LONGEST = 70  # characters of a call that are shown
_START = os.getcwd()  # noqa: PTH109 - before the program changes it


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is.

    Parameters
    ----------
    line : str
        File and line of the user's.
    call : str
        What the user has written there.
    waits_in : str
        The method of mpi4py in which the rank waits; empty if it does not wait.
    collective : bool
        Whether it waits in the last of its collectives.
    collectives : int or None
        How many collectives it has begun; None if that was not counted.
    """

    line: str
    call: str
    waits_in: str = ""
    collective: bool = False
    collectives: int | None = None


def line_of(frame: FrameType) -> tuple[str, str]:
    """Find the line of the user's that leads to a frame, and what is called there."""
    users = users_frame(frame)
    name = users.f_code.co_filename
    path = Path(name)
    shown = path.relative_to(_START) if path.is_relative_to(_START) else path
    return f"{shown}:{users.f_lineno}", _expression(users) or _function(frame)


def _function(frame: FrameType) -> str:
    """Name the function of the library that the user has called."""
    found = ""
    for each in stack(frame):
        if not is_library(each.f_code.co_filename):
            break
        found = each.f_code.co_qualname
    return found


def _position(frame: FrameType) -> tuple[int | None, int | None, int | None, int | None]:
    """First line, last line, first column and last column of what a frame executes."""
    return list(frame.f_code.co_positions())[frame.f_lasti // 2]


def _expression(frame: FrameType) -> str:
    """Return what a frame executes, as it is written in the file."""
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


def called_name(frame: FrameType) -> str:
    """Name the function that a frame is calling; empty if that cannot be known."""
    first, _, start, _ = _position(frame)
    found, longest = "", (-1, -1)
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset > frame.f_lasti:
            break
        place = instruction.positions
        if not instruction.opname.startswith("LOAD_") or place is None:
            continue
        # What is called is the longest name that begins where the call begins.
        if (place.lineno, place.col_offset) == (first, start):
            ends = (place.end_lineno or 0, place.end_col_offset or 0)
            if ends >= longest:
                found, longest = str(instruction.argval), ends
    return found
