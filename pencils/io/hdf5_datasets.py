"""Find and describe the datasets of an open HDF5 file. No communication.

A file may refer to any other file of the system as the place of its data: by external links,
external storage and virtual datasets. Unless the user allows that, it is refused before HDF5 opens
the other file.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pencils.array.allocation import as_dtype
from pencils.errors import CheckpointError
from pencils.io.file_info import COORDINATE, RESERVED, DatasetInfo

# Soft links that refer to each other; HDF5 itself follows as many.
_MOST_LINKS = 16
# The files of a series; the index in the same folder refers to them.
_SNAPSHOT = re.compile(r"snapshot-(\d+-)?\d{6,}\.h5")
_SAME_FILE = "."


def list_datasets(file: Any) -> list[str]:
    """Return the names of all datasets of a file or group."""
    found: list[str] = []

    def visit(name: str, thing: object) -> None:
        if isinstance(thing, h5py.Dataset):
            found.append(name)

    file.visititems(visit)
    return found


def external_links(file: Any) -> list[str]:
    """Return the names of all links to other files."""
    found: list[str] = []

    def visit(name: bytes, link: Any) -> None:
        if link.type not in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT):
            found.append(name.decode("utf8", "surrogateescape"))

    file.id.links.visit(visit, info=True)
    return found


def find_anywhere(file: Any, name: str) -> Any:
    """Return the object with a name, in this or another file; None if there is none."""
    try:
        return file[name]
    except (KeyError, ValueError):
        return None


def find_inside(path: str, file: Any, name: str, seen: frozenset[str] = frozenset()) -> Any:
    """Return the object with a name; None if there is none.

    Raises CheckpointError if it, or data that it shows, are in another file. `seen` are names that
    lead here by virtual datasets.
    """
    _check_links(path, file, name)
    found = find_anywhere(file, name)
    if name in seen or not isinstance(found, h5py.Dataset):
        return found
    layout = found.id.get_create_plist()
    if layout.get_external_count():
        raise outside(path, name, "stored in")
    if layout.get_layout() == h5py.h5d.VIRTUAL:
        _check_sources(path, file, name, layout, seen)
    return found


def outside(path: str, name: str, how: str) -> CheckpointError:
    """Make the error for data in another file."""
    msg = f"{name!r} in {path} is {how} another file; external=True follows it"
    return CheckpointError(msg)


def kind_of(dataset: Any) -> str:
    """Return `DatasetInfo.kind` of a dataset of a file of pencils, or `COORDINATE`."""
    if RESERVED + "components" in dataset.attrs:
        return ""
    kind: str = dataset.attrs.get(RESERVED + "value", COORDINATE)
    return kind


def is_array(dataset: Any) -> bool:
    """Whether a dataset has a shape, and elements of a type that fields can have."""
    try:
        as_dtype(dataset.dtype)
    except TypeError:
        return False
    return dataset.shape is not None


def describe_dataset(path: str, name: str, dataset: Any) -> DatasetInfo:
    """Describe a dataset.

    Raises CheckpointError if no field can hold it, or it reaches beyond the end of the file.
    """
    if dataset.shape is None:
        msg = f"{name!r} in {path} is empty: it has neither shape nor points"
        raise CheckpointError(msg)
    attrs = dataset.attrs
    components, checksum = (attrs.get(RESERVED + key) for key in ("components", "checksum"))
    ends = map(int, attrs.get(RESERVED + "boundary", ()))
    info = DatasetInfo(
        name,
        dataset.shape,
        _field_type(path, name, dataset),
        components=None if components is None else int(components),
        singletons=tuple(map(bool, attrs.get(RESERVED + "singleton", ()))),
        periodic=tuple(map(bool, attrs.get(RESERVED + "periodic", ()))),
        boundary=tuple(zip(ends, ends, strict=True)),
        kind=attrs.get(RESERVED + "value", ""),
        checksum=None if checksum is None else int(checksum),
        chunks=dataset.chunks or (),
    )
    offset = _plain_offset(path, dataset)
    if offset is not None and offset + info.nbytes > Path(path).stat().st_size:
        msg = f"{path} is damaged: it ends before {name!r} does"
        raise CheckpointError(msg)
    return replace(info, offset=offset)


def _field_type(path: str, name: str, dataset: Any) -> np.dtype[Any]:
    try:
        dtype = as_dtype(dataset.dtype)
    except TypeError as error:
        msg = f"{name!r} in {path} has elements that no field can hold: {error}"
        raise CheckpointError(msg) from None
    return dtype if dtype.names else np.dtype(dtype.str)  # without metadata of h5py


def _plain_offset(path: str, dataset: Any) -> int | None:
    """Return where the elements are as plain bytes in this file; None if they are not."""
    layout = dataset.id.get_create_plist()
    plain = layout.get_layout() == h5py.h5d.CONTIGUOUS and layout.get_external_count() == 0
    here = Path(path).samefile(dataset.file.filename)  # false behind an external link
    native = h5py.h5t.py_create(dataset.dtype, logical=True)
    if not (plain and here and native.equal(dataset.id.get_type())):
        return None
    offset: int | None = dataset.id.get_offset()
    return offset


def _check_sources(path: str, file: Any, name: str, layout: Any, seen: frozenset[str]) -> None:
    """Raise CheckpointError if a virtual dataset shows data of other files than snapshots."""
    is_index = RESERVED + "series" in file.attrs
    for number in range(layout.get_virtual_count()):
        other, source = layout.get_virtual_filename(number), layout.get_virtual_dsetname(number)
        if other != _SAME_FILE:
            if not (is_index and _SNAPSHOT.fullmatch(other)):
                raise outside(path, name, f"a view of {other!r},")
        elif "%" in source:  # a pattern for several names
            raise outside(path, name, "a view of what may be in")
        else:
            find_inside(path, file, source, seen | {name})


def _check_links(path: str, file: Any, name: str) -> None:
    """Follow a name link by link, as HDF5 does, but not into other files."""
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
    """Return the target of a soft link; None if `here` is not one."""
    links, raw = file.id.links, here.encode("utf8", "surrogateescape")
    try:
        kind = links.get_info(raw).type if links.exists(raw) else None
    except (KeyError, RuntimeError, ValueError):  # as of a name below a dataset
        return None
    if kind in (None, h5py.h5l.TYPE_HARD):
        return None
    if kind != h5py.h5l.TYPE_SOFT:
        raise outside(path, name, "a link to")
    target: str = links.get_val(raw).decode("utf8", "surrogateescape")
    return target
