"""What is printed when a program fails or waits for ever: once, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from pencils.run.ending import Ending
from pencils.run.place import Place

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


def unfinished(found: Mapping[int, Ending], places: Mapping[int, Place | str], size: int) -> str:
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


def hang(found: Mapping[int, Ending], places: Mapping[int, Place | str], seconds: float) -> str:
    """Print where ranks wait that have waited for too long, and where the others are."""
    known = [place for place in places.values() if isinstance(place, Place)]
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


def _lines(places: Mapping[int, Place | str]) -> str:
    groups: dict[str, list[int]] = {}
    for rank, place in sorted(places.items()):
        groups.setdefault(place if isinstance(place, str) else _text(place), []).append(rank)
    lines = []
    for text, those in groups.items():
        verb, _, rest = text.partition(" ")
        lines.append(f"  {ranks(those)} {_PLURALS.get(verb, verb) if those[1:] else verb} {rest}\n")
    return "".join(lines)


def _text(place: Place) -> str:
    where = f"in {place.call} at {place.line}" if place.call else f"at {place.line}"
    after = _after(place.collectives)
    if not place.waits_in:
        return f"computes {where}{after}"
    method = "" if f"{place.waits_in}(" in place.call else f", {place.waits_in}"
    if place.collective:
        return f"waits {where} (collective number {place.collectives}{method})"
    return f"waits {where}{method and ' (' + method[2:] + ')'}{after}"
