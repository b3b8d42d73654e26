"""Find datasets in HDF5 files without following links and storage to other files.

A file may name any other file of the system as the place of its data. Unless the user wants that,
it is refused before HDF5 opens any of them.
"""

from __future__ import annotations

import re
from typing import Any

import h5py

from pencils.errors import CheckpointError
from pencils.io.dataset_info import RESERVED

# Soft links that lead from one to the next; HDF5 itself follows as many.
_MOST_LINKS = 16
# The files of a series, to which the index beside them refers.
_SNAPSHOT = re.compile(r"snapshot-\d{6,}\.h5")
_SAME_FILE = "."


def external_links(file: Any) -> list[str]:
    """List the links of a file that lead to other files."""
    found: list[str] = []

    def visit(name: bytes, link: Any) -> None:
        if link.type not in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT):
            found.append(name.decode("utf8", "surrogateescape"))

    file.id.links.visit(visit, info=True)
    return found


def find_inside(path: str, file: Any, name: str) -> Any:
    """Find what has a name in a file, if neither it nor what it shows lies in another one.

    Parameters
    ----------
    path : str
        The file.
    file : h5py.File
        It, open.
    name : str
        The name.

    Returns
    -------
    h5py.Dataset, h5py.Group or None
        What has that name; None if there is nothing.

    Raises
    ------
    CheckpointError
        If it lies in another file.
    """
    return _find(path, file, name, frozenset())


def outside(path: str, name: str, how: str) -> CheckpointError:
    """Make the error for data of another file."""
    msg = f"{name!r} in {path} is {how} another file; external=True follows it"
    return CheckpointError(msg)


def look_up(file: Any, name: str) -> Any:
    """Find what has a name, wherever it lies; None if there is nothing."""
    try:
        return file[name]
    except (KeyError, ValueError):
        return None


def _find(path: str, file: Any, name: str, seen: frozenset[str]) -> Any:
    _check_links(path, file, name)
    found = look_up(file, name)
    if name in seen or not isinstance(found, h5py.Dataset):
        return found
    layout = found.id.get_create_plist()
    if layout.get_external_count():
        raise outside(path, name, "stored in")
    if layout.get_layout() == h5py.h5d.VIRTUAL:
        _check_sources(path, file, name, layout, seen)
    return found


def _check_sources(path: str, file: Any, name: str, layout: Any, seen: frozenset[str]) -> None:
    own = RESERVED + "series" in file.attrs
    for number in range(layout.get_virtual_count()):
        other, source = layout.get_virtual_filename(number), layout.get_virtual_dsetname(number)
        if other != _SAME_FILE:
            if not (own and _SNAPSHOT.fullmatch(other)):
                raise outside(path, name, f"a view of {other!r},")
        elif "%" in source:  # a pattern for several names
            raise outside(path, name, "a view of what may lie in")
        else:
            _find(path, file, source, seen | {name})


def _check_links(path: str, file: Any, name: str) -> None:
    """Follow a name link by link, as HDF5 would, but not into other files."""
    here, parts = "", _split(name)
    for _ in range(_MOST_LINKS):
        target = None
        while parts and target is None:
            parent, here = here, f"{here}/{parts.pop(0)}"
            target = _read_link(path, file, name, here)
        if target is None:
            return
        here = "" if target.startswith("/") else parent
        parts = _split(target) + parts
    msg = f"{name!r} in {path} is a link that leads to no dataset"
    raise CheckpointError(msg)


def _split(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _read_link(path: str, file: Any, name: str, here: str) -> str | None:
    """Where a soft link leads; None if it is none."""
    links, raw = file.id.links, here.encode("utf8", "surrogateescape")
    try:
        kind = links.get_info(raw).type if links.exists(raw) else None
    except (KeyError, RuntimeError, ValueError):  # as of what would lie in a dataset
        return None
    if kind in (None, h5py.h5l.TYPE_HARD):
        return None
    if kind != h5py.h5l.TYPE_SOFT:
        raise outside(path, name, "a link to")
    target: str = links.get_val(raw).decode("utf8", "surrogateescape")
    return target
