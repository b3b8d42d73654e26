"""What `save` and `load` read of their arguments before anything happens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pencils.errors import ArgumentError


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


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
