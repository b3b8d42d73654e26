"""Texts of errors of simulated ranks: which rank waits where, for which other ones."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from simmpi.process import libraries

if TYPE_CHECKING:
    from simmpi.ranks import Rank

# Files whose frames belong to no program: this folder, and threads.
_HERE = str(Path(__file__).parent) + os.sep
_THREADS = traceback.__file__.replace("traceback.py", "threading.py")
_PLURALS = {
    "waits": "wait",
    "is ready": "are ready",
    "is running": "are running",
    "was killed": "were killed",
}
# What a program can do, by what its ranks wait for.
_ADVICE = {
    "collective": "All ranks of a communicator have to make the same collective calls in the same "
    "order. Look for one that only some of the ranks reach, such as `if rank == 0: "
    "print(u.sum())`: call it on all ranks, and print on one.",
    "send": "A send may wait until the other rank receives. Two ranks that both send first wait "
    "for each other: call Sendrecv, or Isend and later Wait, or let one of the two receive first.",
    "receive": "A receive waits for a message from its source, with its tag, on its communicator. "
    "Look for the send: whether a rank reaches it, and whether destination, tag and communicator "
    "are those of the receive.",
}
# Most frames of a stack, ranks of a list, and groups of ranks in one text.
_MOST_FRAMES, _MOST_NUMBERS, _MOST_GROUPS = 12, 20, 30


def where(ranks: Iterable[Rank]) -> Iterator[str]:
    """Describe where each rank is; ranks at the same place have one description."""
    every = list(ranks)
    found: dict[tuple[str, ...], list[Rank]] = {}
    for rank in every:
        stack = _stack(rank.frame()) if rank.error is None else ()
        key = rank.status, _rest(rank, every), *stack
        found.setdefault(key, []).append(rank)
    for number, ((_, rest, *lines), alike) in enumerate(found.items()):
        if number == _MOST_GROUPS:
            yield f"and {len(found) - number} other groups of ranks"
            return
        yield f"{numbered(rank.number for rank in alike)} {_verb(alike)}{rest}"
        yield from lines


def advice(ranks: Iterable[Rank]) -> Iterator[str]:
    """Describe what can be wrong in a program of which these ranks wait."""
    waiting = [rank.waiting for rank in ranks if rank.waiting is not None]
    kinds = {_kind_of(each.call) for each in waiting}
    yield from (text for kind, text in _ADVICE.items() if kind in kinds)


def _kind_of(call: str) -> str:
    """Return which kind of call a rank waits in, from its name."""
    name = call.lower()
    if "recv" in name or "probe" in name:
        return "receive"
    if "lock" in name or "win" in name:
        return "window"
    return "send" if "send" in name else "collective"


def place() -> str:
    """Return file and line of the program that has called the simulated MPI."""
    frame: FrameType | None = sys._getframe()
    found = None
    while frame is not None and frame.f_code.co_filename != _THREADS:
        name = frame.f_code.co_filename
        if not name.startswith(_HERE):
            found = found or frame
            if not name.startswith(tuple(libraries)):
                return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "" if found is None else f"{found.f_code.co_filename}:{found.f_lineno}"


def _rest(rank: Rank, every: list[Rank]) -> str:
    """Describe what follows the verb: where a rank waits and for which ranks, or its error."""
    waiting = rank.waiting
    if waiting is None:
        return "" if rank.error is None else f" {text_of_error(rank.error)}"
    what = waiting.what()
    text = f" in {waiting.call}{f' ({what})' if what else ''}"
    by_state: dict[tuple[str, str], list[Rank]] = {}
    for number in waiting.missing():
        other = every[number]
        by_state.setdefault((other.status, _brief(other)), []).append(other)
    missing = [
        f"{numbered(rank.number for rank in some)}, which {_verb(some)}{brief}"
        for (_, brief), some in by_state.items()
    ]
    return f"{text} for {'; '.join(missing)}" if missing else text


def _brief(rank: Rank) -> str:
    if rank.error is not None:
        return f" {type(rank.error).__name__}"
    return "" if rank.waiting is None else f" in {rank.waiting.call}"


def text_of_error(error: BaseException) -> str:
    """Describe an error of the program, whose `__str__` may fail itself."""
    try:
        text = str(error)
    except Exception as other:  # noqa: BLE001 - code of the program
        text = f"(its __str__ raises {type(other).__name__})"
    return f"{type(error).__name__}: {text}"


def _verb(ranks: list[Rank]) -> str:
    """Return the status of ranks that have the same one, singular or plural."""
    status = ranks[0].status
    return status if len(ranks) == 1 else _PLURALS.get(status, status)


def _stack(frame: FrameType | None) -> tuple[str, ...]:
    """Lines of the program in a stack, outermost first; those of the library if there are none."""
    if frame is None:
        return ()
    frames = [
        each
        for each in traceback.extract_stack(frame)
        if not each.filename.startswith(_HERE) and each.filename != _THREADS
    ]
    own = [each for each in frames if not each.filename.startswith(tuple(libraries))]
    return tuple(
        f"    {each.filename}:{each.lineno} in {each.name}: {each.line}"
        for each in (own or frames)[-_MOST_FRAMES:]
    )


def numbered(ranks: Iterable[int]) -> str:
    """Name ranks, consecutive ones as a range.

    Examples
    --------
    >>> numbered([0, 1, 2, 5])
    'ranks 0-2, 5'
    """
    every = sorted(ranks)
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(every), key=lambda pair: pair[1] - pair[0])
    ]
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    shown = ", ".join([*parts[:_MOST_NUMBERS], *(["..."] if len(parts) > _MOST_NUMBERS else [])])
    return f"rank{'s' if len(every) > 1 else ''} {shown}"
