"""Check the arguments of saves, loads and series before anything happens."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import inf, isnan
from typing import Any, Protocol

from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.io.file_info import MOST_GROUPS, OF_SCALES
from pencils.layout.integers import as_int
from pencils.pencil import Pencil


class Truncatable(Protocol):
    """Output like a `TimeSeries`; it may have `closed`, `mode`, and `set_aside`."""

    def truncate(self, time: float) -> object:
        """Drop what is later than `time`. *Collective*."""


def as_path(path: object) -> str:
    """Return a path as text; raise TypeError or ArgumentError if it names no file."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a str or a path-like object, not {path!r}")
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise ArgumentError(f"path={text!r} names no file; pass text like 'run.h5'")
    return text


def read_mode(mode: object) -> str:
    """Return the mode of a series; raise ArgumentError if there is none like it."""
    if not isinstance(mode, str) or mode not in ("a", "w", "x"):
        raise ArgumentError(
            f"mode={mode!r} must be 'a' to continue what is there, 'w' to start anew in its place, "
            "or 'x' to start only where there is nothing yet"
        )
    return mode


def already_there(path: object) -> FileExistsError:
    """Make the error for a path that exists, with ``mode="x"``."""
    msg = (
        f"{path} is there already, and mode='x' only starts where there is nothing yet: mode='a' "
        "continues it, mode='w' starts anew in its place"
    )
    return FileExistsError(msg)


def read_name(name: object) -> str:
    """Return the name of a dataset, like 'fluid/u'; raise TypeError or ArgumentError for others."""
    if not isinstance(name, str):
        raise TypeError(f"names of fields must be str, not {name!r}")
    is_text = name == name.encode(errors="ignore").decode() and "\0" not in name
    parts = name.split("/")
    if {"", ".", ".."} & {*parts} or len(parts) > MOST_GROUPS or not is_text:
        raise ArgumentError(
            f"{name!r:.80} cannot be the name of a field; use text like 'u' or 'fluid/u', with '/' "
            f"after each of at most {MOST_GROUPS - 1} groups, none of them '.' or '..'"
        )
    return name


def read_fields(fields: object) -> list[str]:
    """Return the sorted names of what is to be stored; raise TypeError or ArgumentError."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"fields must be a mapping like {{'u': u}}, not {type(fields).__name__}")
    if not fields:
        raise ArgumentError("fields is empty; pass at least one, like {'u': u}")
    return sorted(read_name(name) for name in fields)


def read_names(names: object) -> list[str] | None:
    """Return names as a list; None means all. Sets are sorted: each rank has its own order."""
    if names is None:
        return None
    if not isinstance(names, Iterable):
        raise TypeError(
            f"names must be a str, several of them, or None for all fields, not {names!r}"
        )
    found = [read_name(name) for name in ([names] if isinstance(names, str) else names)]
    return sorted(found) if isinstance(names, set | frozenset) else found


def as_attrs(attrs: object, reserved: str) -> dict[str, Any]:
    """Return attributes, those of datasets in mappings; raise for empty or reserved names."""
    if attrs is None:
        return {}
    if not isinstance(attrs, Mapping) or not all(isinstance(name, str) for name in attrs):
        raise TypeError(
            "attrs must be a mapping of str to numbers, strings or small arrays, or of the name of "
            f"a dataset to such a mapping, not {attrs!r}"
        )
    for own in attrs.values():
        if isinstance(own, Mapping):
            as_attrs(own, reserved)
            taken = sorted(OF_SCALES & own.keys())
            if taken:  # HDF5 may crash
                raise ArgumentError(
                    f"attrs of a dataset may not be named {taken[0]!r}, by which HDF5 attaches "
                    "coordinates; rename it"
                )
    bad = [name for name in attrs if not name or name.startswith(reserved) or "\0" in name]
    if bad:
        raise ArgumentError(
            f"attrs may not be named {bad[0]!r}: empty names and {reserved}... are not free"
        )
    return dict(attrs)


def split_attrs(attrs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the attributes of a file from those of its datasets, by name."""
    notes = {name: value for name, value in attrs.items() if isinstance(value, Mapping)}
    return {name: value for name, value in attrs.items() if name not in notes}, notes


def check_notes(notes: Iterable[str], known: Iterable[str]) -> None:
    """Raise ArgumentError if a dataset that is to have attributes is not among those known."""
    names = sorted(known)
    missing = sorted(set(notes) - set(names))
    if missing:
        raise ArgumentError(
            f"attrs has attributes of {missing[0]!r}, which is not stored; choose among {names}"
        )


def read_facts(step: object, time: object) -> dict[str, Any]:
    """Return step and time of a run, as far as they are given; raise TypeError or ArgumentError."""
    facts: dict[str, Any] = {} if step is None else {"step": as_int("step", step)}
    if time is not None:
        if isinstance(time, str | bytes) or not hasattr(time, "__float__"):
            raise TypeError(f"time={time!r} must be a real number")
        facts["time"] = float(time)
    return facts


def read_grid(grid: Any) -> LocalGrid | None:
    """Return the coordinates to store; raise TypeError if they are no `LocalGrid`."""
    if grid is not None:
        check_type("grid", grid, LocalGrid)
    found: LocalGrid | None = grid
    return found


def read_every(every: object) -> int | timedelta | None:
    """Return the interval of saves, in steps or time; None means never."""
    if every is None:
        return None
    if not isinstance(every, timedelta):
        return as_int("every", every, least=1)
    if every <= timedelta():
        raise ArgumentError(f"every={every!r} must be positive")
    return every


def read_seconds(name: str, value: object) -> float:
    """Return a time span in seconds; None is endless. Raise TypeError or ArgumentError."""
    if value is None:
        return inf
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}={value!r} must be a number of seconds, a timedelta or None")
    seconds = float(value)
    if isnan(seconds):
        raise ArgumentError(
            f"{name} must not be NaN; pass a number of seconds, a timedelta or None"
        )
    return seconds


def read_outputs(outputs: object) -> list[Truncatable]:
    """Return outputs; raise TypeError or ArgumentError if one cannot be truncated."""
    found: list[Any] = list(outputs) if isinstance(outputs, Iterable) else [None]
    if not all(callable(getattr(output, "truncate", None)) for output in found):
        raise TypeError(
            f"outputs={outputs!r:.80} must be several that can be cut off, like [series]"
        )
    closed = next((output for output in found if getattr(output, "closed", False)), None)
    if closed is not None:
        raise ArgumentError(f"{closed!r} is closed, so it cannot be cut off; make a new one")
    return found


def set_back(outputs: Iterable[Truncatable], time: float | None) -> None:
    """Drop what is later than a time; None: everything, which is kept if possible. *Collective*."""
    for output in outputs:
        if time is None and hasattr(output, "set_aside"):
            output.set_aside()
        else:
            output.truncate(-inf if time is None else time)


def check_continued(outputs: Iterable[Truncatable]) -> None:
    """Raise ArgumentError if an output was opened with mode "w", which drops earlier output."""
    for output in outputs:
        if getattr(output, "mode", "a") == "w":
            raise ArgumentError(
                f"{output!r} was opened with mode='w', which drops what was written before, but "
                "the run goes on from a checkpoint: use mode='a' for it, or mode='w' for both"
            )


def check_processes(ranks: Pencil, *given: object) -> None:
    """Raise an error unless the fields and pencils in `given` are on the processes of `ranks`."""
    groups = (one.values() if isinstance(one, Mapping) else [one] for one in given)
    things = (thing for group in groups for thing in group)
    pencils = (thing.pencil if isinstance(thing, PencilArray) else thing for thing in things)
    found = [pencil for pencil in pencils if isinstance(pencil, Pencil)]
    if not found:
        raise ArgumentError("pass at least one field of these processes, or a pencil to load onto")
    for pencil in found:
        if not pencil.same_ranks(ranks):
            raise PencilMismatchError(
                f"{pencil!r}\nis on other processes than the series of checkpoints; make a series "
                "with comm=pencil.comm"
            )
