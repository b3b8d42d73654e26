"""Frames of a stack: those of the user, and the call in which a thread is."""

from __future__ import annotations

import dis
import linecache
import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from types import FrameType

import mpi4py

_RUNNER = str(Path(__file__).parent) + os.sep
_LIBRARY = str(Path(__file__).parents[1]) + os.sep
_MPI4PY = str(Path(mpi4py.__file__).parent) + os.sep
_PATHS = sysconfig.get_paths()
_INSTALLED = tuple({_PATHS[name] + os.sep for name in ("stdlib", "purelib", "platlib")})


def is_machinery(filename: str) -> bool:
    """Whether a file only starts the program: the runner, and Python's ``runpy``."""
    return filename.startswith(_RUNNER) or filename == "<frozen runpy>"


def is_library(filename: str) -> bool:
    """Whether a file is one of pencils, of mpi4py, or only starts the program."""
    if filename.startswith((_LIBRARY, _MPI4PY)) or is_machinery(filename):
        return True
    return filename.endswith((".pyx", ".pxi")) and "mpi4py" in filename  # as Cython names them


def is_installed(filename: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return filename.startswith((*_INSTALLED, "<frozen"))


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def users_frame(frame: FrameType) -> FrameType:
    """Find the line of the user's that leads to a frame: the innermost that is theirs."""
    callers = list(stack(frame))
    for foreign in (lambda name: is_library(name) or is_installed(name), is_library, is_machinery):
        for each in callers:
            if not foreign(each.f_code.co_filename):
                return each
    return frame


def keep_users_frames(report: TracebackException) -> int:
    """Take all frames but the user's from a report; return how many are left.

    Where none would be left, as for a program that is itself part of the library, all stay but
    those that start it.
    """
    links = list(_links(report))
    count = sum(len(_kept(link, is_library)) for link in links)
    syntax = issubclass(report.exc_type or object, SyntaxError)  # names the line by itself
    foreign = is_library if count or syntax else is_machinery
    for link in links:
        kept = _kept(link, foreign)
        # Without a stack there is no line "Traceback (most recent call last)" either.
        link.stack = StackSummary.from_list(kept) if kept else None  # type: ignore[assignment]
    return count


def _kept(report: TracebackException, foreign: Callable[[str], bool]) -> list[FrameSummary]:
    return [frame for frame in report.stack or () if not foreign(frame.filename)]


def _links(report: TracebackException | None) -> Iterator[TracebackException]:
    """Yield a report, those of its causes, and those of its group."""
    if report is not None:
        yield report
        yield from _links(report.__cause__)
        yield from _links(report.__context__)
        members: Iterable[TracebackException] = getattr(report, "exceptions", None) or ()
        for member in members:
            yield from _links(member)


_LONGEST = 70  # characters of a call that are shown
_START = os.getcwd()  # noqa: PTH109 - before the program changes it


@dataclass(frozen=True, slots=True)
class CodePosition:
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
