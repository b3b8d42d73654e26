"""Which frames of a traceback belong to the program, and which to libraries and their commands."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException, walk_stack
from types import FrameType

from simmpi.process import libraries

try:
    import mpi4py
except ImportError:
    _MPI4PY = __file__
else:
    _MPI4PY = getattr(mpi4py, "__file__", __file__)  # what stands in for it has no file

_HERE = Path(__file__).parent
# Files and folders that start programs.
_starters = [str(_HERE / name) for name in ("program.py", "command.py", "__main__.py")]
# Python runs context managers, which are generators, and imports through files of its own.
_MACHINES = contextlib.__file__, importlib.__file__, "<frozen importlib"
_OWN = (str(_HERE) + os.sep, str(Path(_MPI4PY).parent) + os.sep, *_MACHINES)
_PATHS = sysconfig.get_paths()
_INSTALLED = tuple({_PATHS[name] + os.sep for name in ("stdlib", "purelib", "platlib")})


def add_starter(folder: Path) -> None:
    """Hide frames of a folder that starts programs, even if no others are left."""
    _starters.append(str(folder) + os.sep)


def is_machinery(filename: str) -> bool:
    """Whether a file only starts the program, as Python's ``runpy`` does."""
    return filename.startswith(tuple(_starters)) or filename == "<frozen runpy>"


def is_library(filename: str) -> bool:
    """Whether a file is one of `libraries`, of mpi4py, or only runs or starts programs."""
    if filename.startswith((*_OWN, *libraries)) or is_machinery(filename):
        return True
    return filename.endswith((".pyx", ".pxi")) and "mpi4py" in filename  # as Cython names them


def is_installed(filename: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return filename.startswith((*_INSTALLED, "<frozen"))


def users_frame(frame: FrameType) -> FrameType:
    """Find the innermost frame of the user's program among the callers of a frame."""
    callers = [each for each, _ in walk_stack(frame)]
    for foreign in (lambda name: is_library(name) or is_installed(name), is_library, is_machinery):
        for each in callers:
            if not foreign(each.f_code.co_filename):
                return each
    return frame


def keep_users_frames(report: TracebackException) -> int:
    """Remove all frames but the user's from a report; return how many are left.

    If none would be left, as for a program that is itself part of the library, only the frames that
    start it are removed.
    """
    links = list(_links(report))
    count = sum(len(_kept(link, is_library)) for link in links)
    syntax = issubclass(report.exc_type or object, SyntaxError)  # its text names the line
    foreign = is_library if count or syntax else is_machinery
    for link in links:
        kept = _kept(link, foreign)
        for name in ("__cause__", "__context__"):
            inner = getattr(link, name)  # the library's error of one rank, which all have raised
            if inner is not None and not _kept(inner, foreign) and _text(inner) in str(link):
                setattr(link, name, None)
        # Without a stack there is no line "Traceback (most recent call last)" either.
        link.stack = StackSummary.from_list(kept) if kept else None  # type: ignore[assignment]
    return count


def _text(report: TracebackException) -> str:
    """Return the text of an error; the number of an OSError stays before what is added to it."""
    return re.sub(r"^\[Errno \d+\] ", "", str(report))


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
