"""What is read of the arguments of a series of checkpoints before anything happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from pencils.array.operands import is_field
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout.integers import check_64_bits, to_int
from pencils.pencil import Pencil


class Truncatable(Protocol):
    """Output that can be cut off at a time of the run, like a `TimeSeries`.

    If it has attributes `closed`, `times` and `mode`, they say whether it no longer can, what it
    has, and whether that is all, or there was more.
    """

    def truncate(self, time: float) -> object:
        """Drop what is later than `time`. *Collective*."""


def read_keep(keep: object) -> int | None:
    """Read how many checkpoints to keep; None means all.

    Raises
    ------
    ArgumentError
        If it is no positive integer.
    """
    return None if keep is None else _read_count("keep", keep)


def read_every(every: object) -> int | timedelta | None:
    """Read how often to save: steps, or time between two checkpoints; None means never.

    Raises
    ------
    ArgumentError
        If it is neither, or not positive.
    """
    if every is None:
        return None
    if not isinstance(every, timedelta):
        return _read_count("every", every)
    if every <= timedelta():
        msg = f"every={every!r} must be positive"
        raise ArgumentError(msg)
    return every


def _read_count(name: str, value: object) -> int:
    number = to_int(value)
    check_64_bits(name, [number or 0])
    if number is None or number < 1:
        what = " or a timedelta" if name == "every" else ""
        msg = f"{name}={value!r} must be a positive integer{what}, or None"
        raise ArgumentError(msg)
    return number


def read_step(step: object) -> int:
    """Read the number of a step.

    Raises
    ------
    TypeError, ArgumentError
        If it is no integer, or negative.
    """
    number = to_int(step)
    if number is None:
        msg = f"step={step!r} must be an integer"
        raise TypeError(msg)
    check_64_bits("step", [number])
    if number < 0:
        msg = f"{step=} must not be negative"
        raise ArgumentError(msg)
    return number


def read_outputs(outputs: object) -> list[Truncatable]:
    """Read outputs that can be cut off.

    Raises
    ------
    TypeError, ArgumentError
        If some cannot, or they are not several, or some are closed.
    """
    found: list[Any] = list(outputs) if isinstance(outputs, Iterable) else [None]
    if not all(callable(getattr(output, "truncate", None)) for output in found):
        msg = f"outputs={outputs!r:.80} must be several that can be cut off, like [series]"
        raise TypeError(msg)
    closed = next((output for output in found if getattr(output, "closed", False)), None)
    if closed is not None:
        msg = f"{closed!r} is closed, so it cannot be cut off; make a new one"
        raise ArgumentError(msg)
    return found


def check_empty(outputs: Iterable[Truncatable], directory: Path) -> None:
    """Check that outputs of a run without checkpoints have nothing, either.

    Raises
    ------
    ArgumentError
        If one has.
    """
    for output in outputs:
        if len(getattr(output, "times", ())):
            msg = (
                f"there is no checkpoint in {directory}, but {output!r} holds what a run wrote: is "
                "this the right directory? To start anew, open the output with mode='w'"
            )
            raise ArgumentError(msg)


def check_continued(outputs: Iterable[Truncatable]) -> None:
    """Check that outputs of a run that goes on are continued, too.

    Raises
    ------
    ArgumentError
        If one is to replace what the run has written before.
    """
    for output in outputs:
        if getattr(output, "mode", "a") == "w":
            msg = (
                f"{output!r} was opened with mode='w', which drops what was written before, but "
                "the run goes on from a checkpoint: use mode='a' for it, or mode='w' for both"
            )
            raise ArgumentError(msg)


def check_fields(fields: object, ranks: Pencil) -> None:
    """Check that there is something to save, over the processes of `ranks`.

    Raises
    ------
    TypeError, ArgumentError, PencilMismatchError
        If there is not.
    """
    if not isinstance(fields, Mapping):
        msg = f"fields must be a mapping like {{'u': u}}, not {type(fields).__name__}"
        raise TypeError(msg)
    check_places(ranks, fields)


def check_places(ranks: Pencil, *places: object) -> None:
    """Check that fields and pencils, given alone or by name, lie over the processes of `ranks`.

    Raises
    ------
    ArgumentError, PencilMismatchError
        If there are none, or they do not.
    """
    found = list(_pencils(places))
    if not found:
        msg = "pass at least one field of these processes, or a pencil to load onto"
        raise ArgumentError(msg)
    for pencil in found:
        if not pencil.same_ranks(ranks):
            msg = (
                f"{pencil!r}\nlies over other processes than the series of checkpoints; make one "
                "with comm=pencil.comm"
            )
            raise PencilMismatchError(msg)


def _pencils(places: Iterable[object]) -> Iterator[Pencil]:
    for place in places:
        for thing in place.values() if isinstance(place, Mapping) else (place,):
            pencil = thing.pencil if is_field(thing) else thing
            if isinstance(pencil, Pencil):
                yield pencil
