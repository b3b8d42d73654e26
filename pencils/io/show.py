"""Descriptions of what HDF5 files hold, for people; of files of other programs, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pencils.io.file_info import RESERVED, TIME
from pencils.io.hdf5 import opened
from pencils.io.hdf5_file import has_own_conventions, list_datasets
from pencils.io.unpack import read_checked
from pencils.tables import text_bytes

_MOST_TEXT = 60


def describe_file(path: str) -> str:
    """Describe the contents of an HDF5 file: fields, coordinates, times; local.

    Parameters
    ----------
    path : str
        The file.

    Returns
    -------
    str
        A line about the file, one for each dataset with its shape, type, axes, and how it is
        stored, and one for each attribute.

    Raises
    ------
    OSError, CheckpointError
        If there is no such file, or it is no HDF5 file.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> pen = pencils.Pencil((4, 3))
    >>> grid = pencils.localgrid(pen, [np.linspace(0, 1, n) for n in pen.shape])
    >>> pencils.save("run.h5", {"u": pencils.ones(pen)}, grid=grid, step=3, time=1.5)
    >>> print(describe_file("run.h5"))  # doctest: +ELLIPSIS
    run.h5: checkpoint, step 3, time 1.5, ...
      u  (x: 4, y: 3)  float64  with checksum
      x  coordinate, 4 points from 0 to 1
      y  coordinate, 3 points from 0 to 1
    """
    with opened(os.path.realpath(path)) as file:
        found = {name: file[name] for name in list_datasets(file) if _is_listed(name, file[name])}
        sums = file.get(f"{RESERVED}checksum", ())
        rows = [(name, _describe(each, summed=name in sums)) for name, each in found.items()]
        width = max((len(name) for name, _ in rows), default=0)
        lines = [f"  {name:<{width}}  {text}" for name, text in rows]
        notes = [f"  attribute {name}: {value}" for name, value in _notes(file)]
        return "\n".join((f"{path}: {', '.join(_about(file, path))}", *lines, *notes))


def _is_listed(name: str, item: h5py.Dataset) -> bool:
    """Whether to describe it: not if it names an axis or holds checksums of others."""
    return not name.startswith(RESERVED) and not _only_names_an_axis(item)


def _only_names_an_axis(item: h5py.Dataset) -> bool:
    return "not a netCDF variable" in str(item.attrs.get("NAME", ""))


def _about(file: h5py.File, path: str) -> Iterator[str]:
    """Yield what the file is, its size, and what has written it."""
    attrs = file.attrs
    if f"{RESERVED}series" in attrs:
        steps = len(file[TIME]) if TIME in file else 0  # none before the first append
        yield f"time series of {steps} step{'s' * (steps != 1)}"
    else:
        yield "checkpoint" if f"{RESERVED}format" in attrs else "HDF5 file"
    if attrs.get(f"{RESERVED}complete", 1) != 1:
        yield "INCOMPLETE"
    for name in ("step", "time"):
        if RESERVED + name in attrs:
            yield f"{name} {attrs[RESERVED + name]}"
    yield text_bytes(Path(path).stat().st_size)
    versions = [
        f"{name} {attrs[RESERVED + key]}"
        for name, key in (("pencils", "version"), ("h5py", "h5py"), ("HDF5", "hdf5"))
        if RESERVED + key in attrs
    ]
    if versions:
        yield f"written by {', '.join(versions)}"


def _describe(item: h5py.Dataset, *, summed: bool) -> str:
    if item.is_scale:
        unit = f" {item.attrs['units']}" if "units" in item.attrs else ""
        kind = "times" if item.name == "/time" else "coordinate"
        ends = ""
        if item.ndim == 1 and item.dtype.kind in "iuf" and item.size:
            first, last = (read_checked(item, end)[()] for end in (0, -1))
            ends = f" from {first:.6g} to {last:.6g}"
        return f"{kind}, {item.size} points{ends}{unit}"
    if item.shape is None:
        return f"empty  {item.dtype}"
    if item.shape == ():
        return _value(read_checked(item, ())[()])
    units = (str(item.attrs["units"]),) if "units" in item.attrs else ()
    return "  ".join(
        (_axes(item), str(item.dtype), *units, *_storage(item, summed=summed))
    ).rstrip()


def _value(value: Any) -> str:
    """Return a number or a text; the state of a random generator is long."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    elif isinstance(value, np.generic):
        value = value.item()
    text = repr(value)
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 4]} ..."


def _axes(item: h5py.Dataset) -> str:
    """Return the extents, with names of coordinates where there are some."""
    texts = []
    for extent, dim in zip(item.shape, item.dims, strict=True):
        scales = [scale for scale in dim.values() if not _only_names_an_axis(scale)]
        names = [str(scale.name).rpartition("/")[2] for scale in scales]
        texts.append(f"{names[0]}: {extent}" if names else str(extent))
    return f"({', '.join(texts)})"


def _storage(item: h5py.Dataset, *, summed: bool) -> Iterator[str]:
    """Yield how a dataset is stored, as far as that is not usual."""
    if item.chunks is not None:
        filters = f" by {item.compression}" if item.compression else ""
        yield f"in chunks of {item.chunks}{filters}"
    if item.is_virtual:
        yield "virtual"
    if item.external:
        yield "in other files"
    if summed or f"{RESERVED}checksum" in item.attrs:
        yield "with checksum"


def _notes(file: h5py.File) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of users."""
    own = {"Conventions"} if has_own_conventions(file.attrs) else set()
    pairs = (pair for pair in file.attrs.items() if pair[0] not in own)
    return ((name, value) for name, value in pairs if not name.startswith(RESERVED))
