"""Find objects of an open HDF5 file by name, and check where their data are. No communication.

A file may refer to any other file of the system as the place of its data: by external links,
external storage and virtual datasets. Unless the user allows that, it is refused before HDF5 opens
the other file. A virtual dataset that shows itself is always refused: HDF5 would end the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import h5py

from pencils.errors import CheckpointError
from pencils.io.file_access import open_to_read
from pencils.io.file_info import MOST_GROUPS

# Soft links that refer to each other; HDF5 itself follows as many. Also virtual datasets that show
# each other; HDF5 needs memory of the stack for each.
_MOST_LINKS = 16
# How often HDF5 may have to read a dataset to show a virtual one.
_MOST_SOURCES = 10**7
_SAME_FILE = "."
# In names of sources, for which HDF5 puts 0, 1, 2, ..., as long as there are such.
_NUMBER, _MARK = "%b", re.compile("%[b%]")


class Objects(NamedTuple):
    """The objects of an open file."""

    path: str
    file: Any  # h5py.File
    external: bool  # whether data may be in other files

    def find(self, name: str) -> Any:
        """Return the object with a name; None if there is none.

        Raises CheckpointError if it, or data that it shows, are in another file, unless that is
        allowed.
        """
        return self.look_up(name, {})[0]

    def outside(self, name: str, how: str) -> CheckpointError:
        """Make the error for data in another file."""
        msg = f"{name!r} in {self.path} is {how} another file; external=True follows it"
        return CheckpointError(msg)

    def look_up(self, name: str, seen: dict[object, int]) -> tuple[Any, int]:
        """Return the object, and how many datasets HDF5 reads to show it.

        `seen` has these numbers for virtual datasets; zero while their sources are looked for.
        """
        if not self.external:
            self._check_links(name)
        try:
            found = self.file[name]
        except (KeyError, ValueError):
            return None, 0
        if not isinstance(found, h5py.Dataset):
            return found, 0
        layout = found.id.get_create_plist()
        if layout.get_external_count() and not self.external:
            raise self.outside(name, "stored in")
        if layout.get_layout() != h5py.h5d.VIRTUAL:
            return found, 1
        path = Path(found.file.filename).resolve()
        key = path.stat().st_dev, path.stat().st_ino, h5py.h5o.get_info(found.id).addr
        if key not in seen:
            seen[key] = 0
            if list(seen.values()).count(0) <= _MOST_LINKS:
                here = self._replace(path=str(path), file=found.file)
                seen[key] = 1 + sum(
                    here.count_source(name, pair, seen) for pair in _sources(layout)
                )
        if not 0 < seen[key] <= _MOST_SOURCES:
            raise CheckpointError(
                f"{name!r} in {self.path} is a virtual dataset that shows itself, or others over "
                f"more than {_MOST_LINKS} steps or {_MOST_SOURCES} times: HDF5 cannot read it"
            )
        return found, seen[key]

    def count_source(self, name: str, pair: tuple[str, str], seen: dict[object, int]) -> int:
        """Count the datasets that HDF5 reads for the source of a virtual dataset: file and name."""
        other, source = pair
        is_pattern = any(_NUMBER in text for text in pair)
        if not self.external:
            if other != _SAME_FILE:
                raise self.outside(name, f"a view of {other!r},")
            if is_pattern:
                raise self.outside(name, "a view of what may be in")
        if not is_pattern:
            return self._count_in(other, source, seen)
        total = 0
        for number in count():
            other, source = (_MARK.sub(partial(_fill, str(number)), text) for text in pair)
            added = self._count_in(other, source, seen)
            if not added:
                break
            total += added
        return total

    def _count_in(self, other: str, source: str, seen: dict[object, int]) -> int:
        if other == _SAME_FILE:
            return self.look_up(source, seen)[1]
        # HDF5 takes the first of these files that it can open.
        folder, total = Path(self.path).parent, 0
        first = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", str(folder)).split(":")
        names = [other, Path(other).name] if Path(other).is_absolute() else [other]
        folders = *map(Path, first), folder, Path()
        for path in dict.fromkeys(place / name for name in names for place in folders):
            if not path.exists():
                continue
            # A FIFO is an error: HDF5 would wait for it.
            with suppress(OSError), open_to_read(str(path)), open_unlocked(path) as file:
                total += self._replace(path=str(path.resolve()), file=file).look_up(source, seen)[1]
        return total

    def _check_links(self, name: str) -> None:
        """Follow a name link by link, as HDF5 does, but not into other files."""
        here, parts = "", _split(name)
        for _ in range(_MOST_LINKS):
            if here.count("/") + len(parts) > MOST_GROUPS + 1:
                break
            target = None
            while parts and target is None:
                parent, here = here, f"{here}/{parts.pop(0)}"
                target = self._read_link(name, here)
            if target is None:
                return
            here = "" if target.startswith("/") else parent
            parts = _split(target) + parts
        raise CheckpointError(
            f"{name!r} in {self.path} is a link that leads to no dataset, or by more than "
            f"{_MOST_LINKS} links or {MOST_GROUPS} groups; load that dataset itself"
        )

    def _read_link(self, name: str, here: str) -> str | None:
        """Return the target of a soft link; None if `here` is not one."""
        links, raw = self.file.id.links, here.encode("utf8", "surrogateescape")
        try:
            kind = links.get_info(raw).type if links.exists(raw) else None
        except (KeyError, RuntimeError, ValueError):  # as of a name below a dataset
            return None
        if kind in (None, h5py.h5l.TYPE_HARD):
            return None
        if kind != h5py.h5l.TYPE_SOFT:
            raise self.outside(name, "a link to")
        target: str = links.get_val(raw).decode("utf8", "surrogateescape")
        return target


def open_unlocked(source: Any) -> Any:
    """Open a file for reading, without locks if that is possible."""
    with suppress(OSError):  # for example, this process has it open with locks
        return h5py.File(source, "r", locking=False)
    return h5py.File(source, "r")


def _split(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _fill(number: str, mark: re.Match[str]) -> str:
    return number if mark[0] == _NUMBER else "%"


def _sources(layout: Any) -> Iterator[tuple[str, str]]:
    """Yield file and name of each source of a virtual dataset."""
    for number in range(layout.get_virtual_count()):
        yield layout.get_virtual_filename(number), layout.get_virtual_dsetname(number)
