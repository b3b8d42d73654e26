"""Whose frames are on a stack: the user's, the library's, or those of other packages."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator
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
