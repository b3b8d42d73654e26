"""Check the arguments that several calls take: paths, modes, names, attributes, step and time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from pencils.errors import ArgumentError
from pencils.io.file_info import MOST_GROUPS, OF_SCALES, RESERVED, VIEW
from pencils.io.formats import is_url, is_zarr
from pencils.layout.integers import as_int


def as_path(path: object) -> str:
    """Return a path as text; raise TypeError or ArgumentError if it names no file."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a str or a path-like object, not {type(path).__name__}")
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise ArgumentError(f"path={text!r} names no file; pass text like 'run.h5'")
    if is_url(text) and not is_zarr(text):
        raise ArgumentError(f"path={text!r} is a store, which has Zarr only; end it with '.zarr'")
    return text


def as_local(path: object) -> str:
    """Return a path as text; raise ArgumentError if it is the address of a store."""
    text = as_path(path)
    if is_url(text):
        raise ArgumentError(f"path={text!r} is a store; a series needs a folder of a file system")
    return text


def as_mode(mode: object) -> str:
    """Return the mode of a series; raise ArgumentError if there is none like it."""
    if not isinstance(mode, str) or mode not in ("a", "w", "x"):
        raise ArgumentError(
            f"mode={mode!r} must be 'a' (continue the series), 'w' (replace it) or 'x' (create a "
            "new one, or fail if it exists)"
        )
    return mode


def already_there(path: object) -> FileExistsError:
    """Make the error for a path that exists, with ``mode="x"``."""
    msg = (
        f"{path} exists, and mode='x' creates new files only; pass mode='a' to continue it, or "
        "mode='w' to replace it"
    )
    return FileExistsError(msg)


def as_name(name: object) -> str:
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


def as_field_names(fields: object) -> list[str]:
    """Return the sorted names of fields and values; raise TypeError or ArgumentError."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"fields must be a mapping like {{'u': u}}, not {type(fields).__name__}")
    if not fields:
        raise ArgumentError("fields is empty; pass at least one, like {'u': u}")
    return sorted(as_name(name) for name in fields)


def as_names(names: object) -> list[str] | None:
    """Return names as a list; None means all. Sets are sorted: each rank has its own order."""
    if names is None:
        return None
    if not isinstance(names, Iterable):
        raise TypeError(
            f"names must be a str, several of them, or None for all fields, not {names!r}"
        )
    found = [as_name(name) for name in ([names] if isinstance(names, str) else names)]
    return sorted(found) if isinstance(names, set | frozenset) else found


def as_attrs(attrs: object) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
    """Return attributes of a file, and of its datasets by name; raise for names not free."""
    if attrs is None:
        return {}, {}
    if not isinstance(attrs, Mapping) or not all(isinstance(name, str) for name in attrs):
        raise TypeError(
            "attrs must be a mapping of str to numbers, strings or small arrays, or of the name of "
            f"a dataset to such a mapping, not {attrs!r}"
        )
    of_datasets = {name: own for name, own in attrs.items() if isinstance(own, Mapping)}
    for own in of_datasets.values():
        as_attrs(own)
        if taken := sorted(OF_SCALES & own.keys()):  # HDF5 may crash
            raise ArgumentError(
                f"attrs of a dataset may not be named {taken[0]!r}, which HDF5 uses for "
                "coordinates; rename it"
            )
    for name in attrs:
        if not name or name.startswith(RESERVED) or "\0" in name:
            raise ArgumentError(
                f"attrs may not be named {name!r}: empty names and {RESERVED}... are reserved"
            )
    return {name: attrs[name] for name in attrs if name not in of_datasets}, of_datasets


def check_known(argument: str, given: object, known: Iterable[str]) -> None:
    """Raise ArgumentError if a mapping has a name of a dataset that is not among those known."""
    missing = sorted({*given} - {*known}, key=str) if isinstance(given, Mapping) else ()
    if missing:
        raise ArgumentError(
            f"{argument} has an entry for {missing[0]!r}, but datasets for which it may have one "
            f"are {sorted(known)}; choose among them"
        )


def as_step_and_time(step: object, time: object) -> dict[str, Any]:
    """Return step and time of a run, as far as they are given; raise TypeError or ArgumentError."""
    given: dict[str, Any] = {} if step is None else {"step": as_int("step", step)}
    if time is not None:
        if isinstance(time, str | bytes) or not hasattr(time, "__float__"):
            raise TypeError(f"time={time!r} must be a real number")
        given["time"] = float(time)
    return given


def check_groups(names: list[str]) -> None:
    """Raise ArgumentError if a name is also the group of another, or in the group for VTK."""
    for name in names:
        groups = [other for other in names if name.startswith(other + "/")]
        if groups:
            raise ArgumentError(
                f"{groups[0]!r} is a field, so it cannot be the group of {name!r}; rename one"
            )
        if name.split("/")[0] == VIEW:
            raise ArgumentError(
                f"{name!r} cannot be the name of a field: the group {VIEW!r} shows fields to VTK; "
                "rename it"
            )
