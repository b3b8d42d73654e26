"""What HDF5 files hold, as one process shows it: descriptions, planes, and numbers over time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.errors import ArgumentError
from pencils.io.file_info import RESERVED, TIME
from pencils.io.hdf5 import has_own_conventions, list_datasets, opened
from pencils.io.objects import read_checked
from pencils.io.vtkhdf import Axis
from pencils.layout.integers import as_dim, as_ints, as_place
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


_FLAT, _SOLID = 2, 3


class Plane(NamedTuple):
    """Values, the names and coordinates of their axes, and where the plane lies."""

    values: Array
    names: tuple[str, ...]
    points: tuple[Array, ...]
    title: str


def read_plane(
    path: str, name: str, axis: int | None, index: int | None, at: Sequence[int] | int | None
) -> Plane:
    """Read a plane of a dataset: at the index along an axis, and at those of the axes in front."""
    with opened(os.path.realpath(path)) as file:
        names = [one for one in list_datasets(file) if not one.startswith(RESERVED)]
        if name not in names:
            raise ArgumentError(f"{path} has no {name!r}; there is {', '.join(names) or 'nothing'}")
        dataset = file[name]
        if dataset.dtype.kind not in "biuf" or not dataset.shape or not dataset.size:
            raise ArgumentError(f"{name} has {dataset.dtype} of shape {dataset.shape}; no picture")
        lead = int(dataset.attrs.get(RESERVED + "components", max(0, dataset.ndim - _SOLID)))
        ndim = dataset.ndim - lead
        if axis is None and ndim == _SOLID:
            axis = ndim - 1
        across = None if axis is None else as_dim("axis", axis, ndim)
        key: list[int | slice] = [*_in_front(dataset, lead, at), *[slice(None)] * ndim]
        axes = [Axis.of(dataset, lead + dim, dim) for dim in range(ndim)]
        title = [name, *map(str, key[:lead])]
        if across is not None:
            key[lead + across] = place = as_place("index", index, axes[across].points)
            fixed = axes.pop(across)
            title.append(f"{_short(fixed)} = {fixed.coordinates[place]:.3g}")
        if not 1 <= len(axes) <= _FLAT:
            raise ArgumentError(f"{name} has {ndim} dimensions; pass axis= if there are 2 or 3")
        values = read_checked(dataset, tuple(key))
        return Plane(
            values,
            tuple(map(_short, axes)),
            tuple(each.coordinates for each in axes),
            ", ".join(title),
        )


def _in_front(dataset: h5py.Dataset, lead: int, at: Sequence[int] | int | None) -> tuple[int, ...]:
    """Return indices of the axes in front of space; default: the last time, first components."""
    if at is None:
        times = lead and RESERVED + "series" in dataset.file.attrs
        return (dataset.shape[0] - 1, *[0] * (lead - 1)) if times else (0,) * lead
    found = as_ints("at", at)
    if len(found) != lead:
        raise ArgumentError(
            f"at={found}, but {lead} axes are in front of space, of shape {dataset.shape[:lead]}"
        )
    return tuple(as_place("at", i, n) for i, n in zip(found, dataset.shape, strict=False))


def _short(axis: Axis) -> str:
    return axis.name.rpartition("/")[2]


def read_numbers(path: str) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Return the times of a series, and the real numbers that it has for each of them; local."""
    with opened(os.path.realpath(path)) as file:
        if RESERVED + "series" in file.attrs and TIME not in file:
            raise ArgumentError(f"{path} is a series without snapshots; append one first")
        found = file.get(TIME)
        if not isinstance(found, h5py.Dataset) or found.ndim != 1:
            raise ArgumentError(f"{path} has no times: pass a file that TimeSeries has written")
        times = read_checked(found)
        numbers = {
            name: read_checked(item)
            for name, item in file.items()
            if isinstance(item, h5py.Dataset) and not item.is_scale
            if item.shape == times.shape and item.dtype.kind in "biuf"
        }
    return times, numbers
