"""What is read of the arguments of `save` and `load` before anything happens."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from pencils.array.operands import check_type
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError
from pencils.layout.integers import to_int

# How a series may be opened.
MODES = ("a", "w", "x")
# Beyond what HDF5 has integers for.
_HUGE = 2**63


def read_path(path: object) -> str:
    """Read a path given as text or path-like object.

    Raises
    ------
    TypeError, ArgumentError
        If it is something else, or empty.
    """
    if not isinstance(path, str | os.PathLike):
        msg = f"path must be a str or a path-like object, not {path!r}"
        raise TypeError(msg)
    text = os.fsdecode(path)
    if not text or "\0" in text:
        msg = f"path={text!r} names no file"
        raise ArgumentError(msg)
    return text


def read_mode(mode: object) -> str:
    """Read how a series is opened, in the words of `open`.

    Raises
    ------
    ArgumentError
        If it is something else.
    """
    if not isinstance(mode, str) or mode not in MODES:
        msg = (
            f"mode={mode!r} must be 'a' to continue what is there, 'w' to start anew in its place, "
            "or 'x' to start only where there is nothing yet"
        )
        raise ArgumentError(msg)
    return mode


def already_there(path: object) -> FileExistsError:
    """Make the error for what ``mode="x"`` was to make and is there."""
    msg = (
        f"{path} is there already, and mode='x' only starts where there is nothing yet: mode='a' "
        "continues it, mode='w' starts anew in its place"
    )
    return FileExistsError(msg)


def read_name(name: object) -> str:
    """Read the name of a dataset: text, with '/' between groups.

    Raises
    ------
    TypeError, ArgumentError
        If it is something else, or HDF5 could not have a dataset of that name.
    """
    if not isinstance(name, str):
        msg = f"names of fields must be str, not {name!r}"
        raise TypeError(msg)
    if {"", "."} & set(name.split("/")) or "\0" in name or not _is_text(name):
        msg = (
            f"{name!r} cannot be the name of a field; use text like 'u' or 'fluid/u', with '/' "
            "between groups but neither first nor last"
        )
        raise ArgumentError(msg)
    return name


def read_names(names: object) -> list[str] | None:
    """Read one name or several; None means all. A set is sorted: each rank has its own order.

    Raises
    ------
    TypeError, ArgumentError
        If it is something else, or one cannot be the name of a dataset.
    """
    if names is None:
        return None
    if not isinstance(names, Iterable):
        msg = f"names must be a str, several of them, or None for all fields, not {names!r}"
        raise TypeError(msg)
    found = [read_name(name) for name in ([names] if isinstance(names, str) else names)]
    return sorted(found) if isinstance(names, set | frozenset) else found


def read_attrs(attrs: object, reserved: str) -> dict[str, Any]:
    """Read attributes; whether HDF5 can store the values is found out when it does.

    Raises
    ------
    TypeError, ArgumentError
        If they are no mapping of str, or a name is taken.
    """
    if attrs is None:
        return {}
    if not isinstance(attrs, Mapping) or not all(isinstance(name, str) for name in attrs):
        msg = f"attrs must be a mapping of str to numbers, strings or small arrays, not {attrs!r}"
        raise TypeError(msg)
    bad = [name for name in attrs if not name or name.startswith(reserved) or "\0" in name]
    if bad:
        msg = f"attrs may not be named {bad[0]!r}: empty names and {reserved}... are not free"
        raise ArgumentError(msg)
    return dict(attrs)


def read_facts(step: object, time: object) -> dict[str, Any]:
    """Read the step and the time of a run, as far as they are given.

    Raises
    ------
    TypeError, ArgumentError
        If they are no integer of 64 bits and no real number.
    """
    facts: dict[str, Any] = {}
    if step is not None:
        facts["step"] = to_int(step)
        if facts["step"] is None:
            msg = f"step={step!r} must be an integer"
            raise TypeError(msg)
        if not -_HUGE <= facts["step"] < _HUGE:
            msg = f"{step=} has more than 64 bits"
            raise ArgumentError(msg)
    if time is not None:
        if isinstance(time, str | bytes) or not hasattr(time, "__float__"):
            msg = f"time={time!r} must be a real number"
            raise TypeError(msg)
        facts["time"] = float(time)
    return facts


def read_align(align: object) -> int:
    """Read an alignment in bytes; None means none.

    Raises
    ------
    ArgumentError
        If it is no positive integer.
    """
    if align is None:
        return 1
    number = to_int(align)
    if number is None or not 1 <= number < _HUGE:
        msg = f"align={align!r} must be a number of bytes, like 4096 or the stripe size"
        raise ArgumentError(msg)
    return number


def read_grid(grid: object) -> LocalGrid | None:
    """Read the coordinates to be stored.

    Raises
    ------
    TypeError
        If they are anything else than what `localgrid` makes.
    """
    if grid is None:
        return None
    check_type("grid", grid, LocalGrid)
    found: LocalGrid = grid  # type: ignore[assignment]
    return found


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
