"""Contents of HDF5 files as one process shows them: descriptions, planes, and numbers over time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import h5py
import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.errors import ArgumentError
from pencils.io.describe import reader_of
from pencils.io.file_info import RESERVED, TIME, Identity
from pencils.io.formats import is_zarr, real_path
from pencils.io.hdf5 import has_own_conventions, only_names_an_axis, opened, stored_datasets
from pencils.io.objects import read_checked
from pencils.layout.integers import as_dim, as_index, as_ints
from pencils.tables import text_bytes

if TYPE_CHECKING:
    from pencils.io.zarr_read import ZarrFolder

_MOST_TEXT = 60
_SOLID = 3  # dimensions
# Programs that have written a file, and the attributes with their versions.
_PROGRAMS = {"pencils": "version", "h5py": "h5py", "HDF5": "hdf5", "Zarr": "zarr"}

# Where a plane is: coordinates by names of axes, or indices of the axes in front of space.
At: TypeAlias = Mapping[str, float] | Sequence[int] | int | None


def describe_file(path: str) -> str:
    """Describe the contents of an HDF5 file or Zarr folder: fields, coordinates, times; local.

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
        If there is no such file, or it is neither of both, or a damaged folder.

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
    if is_zarr(path):
        return _describe_folder(path)
    with opened(os.path.realpath(path)) as file:
        sums = file.get(f"{RESERVED}checksum", ())
        rows = [
            (name, _describe(_of_hdf5(file[name]), _storage(file[name]), summed=name in sums))
            for name in stored_datasets(file)
        ]
        steps = len(file[TIME]) if TIME in file else 0  # none before the first append
        about = _about(file.attrs, "HDF5 file", steps, Path(path).stat().st_size)
        own = {"Conventions"} if has_own_conventions(file.attrs) else set()
        attrs = {name: value for name, value in file.attrs.items() if name not in own}
        return _listed(path, about, rows, attrs)


def _listed(
    path: str, about: Iterable[str], rows: list[tuple[str, str]], attrs: Mapping[str, Any]
) -> str:
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"{path}: {', '.join(about)}"]
    lines += [f"  {name:<{width}}  {text}" for name, text in rows]
    for name, value in attrs.items():
        if not name.startswith(RESERVED):
            lines.append(f"  attribute {name}: {value}")
    return "\n".join(lines)


def _describe_folder(path: str) -> str:
    """Describe a Zarr folder."""
    reader = reader_of(path)
    with reader.opened(real_path(path)) as folder:
        info = folder.info(Identity(0, 0, 0, 0), [])
        sums = folder.attrs.get(reader.SUMS, {})
        rows = [
            (name, _describe(_of_zarr(folder, name), _chunks(array), summed=name in sums))
            for name, array in folder.arrays.items()
            if not name.startswith(RESERVED)
        ]
        size = sum(array.nbytes_stored() for array in folder.arrays.values())
        steps = folder.arrays[TIME].size if TIME in folder.arrays else 0
        return _listed(path, _about(folder.attrs, "Zarr folder", steps, size), rows, info.attrs)


def _chunks(array: Any) -> Iterator[str]:
    """Yield how the elements of an array of Zarr are stored."""
    yield f"in chunks of {array.chunks}"
    if array.shards:
        yield f"in shards of {array.shards}"
    yield from _errors(array.attrs)


class _Item(NamedTuple):
    """A dataset of HDF5 or an array of Zarr, the coordinates along its axes, and how to read it."""

    name: str
    dtype: Any
    shape: tuple[int, ...] | None
    attrs: Mapping[str, Any]
    read: Callable[[Any], Array]
    is_scale: bool
    scales: Sequence[_Item | None] = ()


def _of_hdf5(item: h5py.Dataset, *, alone: bool = False) -> _Item:
    scales = []
    for dim in item.dims if item.shape and not alone else ():
        found = (scale for scale in dim.values() if not only_names_an_axis(scale))
        scales.append(next((_of_hdf5(scale, alone=True) for scale in found), None))
    name, read = str(item.name).rpartition("/")[2], partial(read_checked, item)
    return _Item(name, item.dtype, item.shape, item.attrs, read, item.is_scale, scales)


def _of_zarr(folder: ZarrFolder, name: str, *, alone: bool = False) -> _Item:
    from pencils.io.zarr_read import read_box  # HDF5 needs no zarr

    array, read = folder.arrays[name], partial(read_box, folder, name)
    labels = getattr(array.metadata, "dimension_names", None) or [None] * array.ndim
    known = [label if label in folder.arrays and not alone else None for label in labels]
    scales = [label and _of_zarr(folder, label, alone=True) for label in known]
    is_scale = [*labels] == [name]
    return _Item(name, array.dtype, array.shape, array.attrs, read, is_scale, scales)


@contextmanager
def _items(path: str) -> Iterator[tuple[Mapping[str, Any], dict[str, Callable[[], _Item]]]]:
    """Open a file in a ``with`` block; its attributes, and what makes each item."""
    if is_zarr(path):
        with reader_of(path).opened(real_path(path)) as folder:
            names = [name for name in folder.arrays if not name.startswith(RESERVED)]
            yield folder.attrs, {name: partial(_of_zarr, folder, name) for name in names}
    else:
        with opened(os.path.realpath(path)) as file:
            names = stored_datasets(file)
            yield file.attrs, {name: partial(_of_hdf5, file[name]) for name in names}


def _about(attrs: Mapping[str, Any], kind: str, steps: int, size: int) -> Iterator[str]:
    """Yield the kind of a file, its size in bytes, and the programs that have written it."""
    if f"{RESERVED}series" in attrs:
        yield f"time series of {steps} step{'s' * (steps != 1)}"
    else:
        yield "checkpoint" if f"{RESERVED}format" in attrs else kind
    if attrs.get(f"{RESERVED}complete", 1) != 1:
        yield "INCOMPLETE"
    for name in ("step", "time"):
        if RESERVED + name in attrs:
            yield f"{name} {attrs[RESERVED + name]}"
    yield text_bytes(size)
    versions = [
        f"{name} {attrs[RESERVED + key]}"
        for name, key in _PROGRAMS.items()
        if RESERVED + key in attrs
    ]
    if versions:
        yield f"written by {', '.join(versions)}"


def _describe(item: _Item, storage: Iterable[str], *, summed: bool) -> str:
    if item.shape is None:
        return f"empty  {item.dtype}"
    units = [str(item.attrs["units"])] if "units" in item.attrs else []
    if item.is_scale:
        return " ".join([_points(item), *units])
    if item.shape == ():
        value: Any = item.read(())[()]
        return _short(value.decode(errors="replace") if isinstance(value, bytes) else value)
    pairs = zip(item.shape, item.scales, strict=True)
    axes = [f"{scale.name}: {extent}" if scale else str(extent) for extent, scale in pairs]
    parts = [f"({', '.join(axes)})", str(item.dtype), *units, *storage]
    if summed or f"{RESERVED}checksum" in item.attrs:
        parts.append("with checksum")
    return "  ".join(parts).rstrip()


def _points(item: _Item) -> str:
    """Return the number of points of a coordinate, and its ends."""
    shape, ends = item.shape or (), ""
    if len(shape) == 1 and item.dtype.kind in "iuf" and shape[0]:
        first, last = (item.read((end,))[()] for end in (0, shape[0] - 1))
        ends = f" from {first:.6g} to {last:.6g}"
    kind = "times" if item.name == TIME else "coordinate"
    return f"{kind}, {prod(shape)} points{ends}"


def _short(value: Any) -> str:
    """Return a value as text; the state of a random generator is long."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 4]} ..."


def _errors(attrs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the error of a field that has a bound."""
    bound, error = (attrs.get(RESERVED + key) for key in ("tolerance", "largest_error"))
    if bound is not None:
        yield f"largest error {error:.3g}, tolerance {bound:.3g}"


def _storage(item: h5py.Dataset) -> Iterator[str]:
    """Yield how the elements of a dataset are stored."""
    errors = [*_errors(item.attrs)]
    if item.chunks is not None:
        filters = f" by {item.compression}" if item.compression and not errors else ""
        yield f"in chunks of {item.chunks}{filters}"
    yield from errors
    if item.is_virtual:
        yield "virtual"
    if item.external:
        yield "in other files"


class Plane(NamedTuple):
    """Values, the names and coordinates of their axes, and the place of the plane."""

    values: Array
    names: tuple[str, ...]
    points: tuple[Array, ...]
    title: str


class _NamedAxis(NamedTuple):
    """An axis of a dataset: its name, and its coordinates, which are indices if there are none."""

    name: str
    points: Array


def read_plane(path: str, name: str, axis: int | None, index: int | None, at: At) -> Plane:
    """Read a plane of a dataset: at the index along an axis, and at those of the axes in front.

    Without `at`, that is the last time, and the first of the components.
    """
    with _items(path) as (attrs, items):
        if name not in items:
            raise ArgumentError(f"{path} has no {name!r}; there is {', '.join(items) or 'nothing'}")
        dataset = items[name]()
        if dataset.dtype.kind not in "biuf" or not dataset.shape or not prod(dataset.shape):
            raise ArgumentError(f"{name} has {dataset.dtype} of shape {dataset.shape}; no picture")
        ndim = len(dataset.shape)
        lead = int(dataset.attrs.get(RESERVED + "components", max(0, ndim - _SOLID)))
        times = RESERVED + "series" in attrs and lead > 0
        lines = _lines(dataset, lead, times=times)
        fixed = dict.fromkeys(range(lead), 0) | ({0: dataset.shape[0] - 1} if times else {})
        fixed |= _places(at, lines, lead)
        ndim -= lead
        if axis is None and ndim == _SOLID and len(fixed) == lead:
            axis = ndim - 1
        if axis is not None:
            across = lead + as_dim("axis", axis, ndim)
            if across in fixed:
                raise ArgumentError(f"axis={axis} and at={at!r} name the same axis; pass one")
            fixed[across] = as_index("index", index, dataset.shape[across])
        left = [line for number, line in enumerate(lines) if number not in fixed]
        if len(left) not in (1, 2):
            raise ArgumentError(f"{name} has {ndim} dimensions; pass axis= if there are 2 or 3")
        values = dataset.read(tuple(fixed.get(k, slice(None)) for k in range(len(lines))))
        there = [f"{lines[k].name} = {lines[k].points[i]:.3g}" for k, i in sorted(fixed.items())]
        title = ", ".join(there) or name
        return Plane(values, tuple(x.name for x in left), tuple(x.points for x in left), title)


def _lines(item: _Item, lead: int, *, times: bool) -> list[_NamedAxis]:
    """List the axes of a dataset: a time, components, and those of space."""
    shape, components = item.shape or (), lead - times
    names = [TIME] * times
    names += [f"component{n}" for n in range(components)] if components > 1 else []
    names += ["component"] * (components == 1)
    names += [f"index{dim}" for dim in range(len(shape) - lead)]
    lines = []
    for name, extent, scale in zip(names, shape, item.scales, strict=True):
        has_points = scale and scale.shape == (extent,) and scale.dtype.kind in "iuf"
        points = scale.read((...,)) if scale and has_points else np.arange(extent)
        lines.append(_NamedAxis(scale.name if scale else name, points))
    return lines


def _places(at: At, lines: Sequence[_NamedAxis], lead: int) -> dict[int, int]:
    """Return indices along axes: given for all in front of space, or by names and coordinates."""
    if at is None:
        return {}
    if isinstance(at, Mapping):
        names = [line.name for line in lines]
        unknown = [name for name in at if name not in names]
        if unknown:
            raise ArgumentError(f"there is no axis {unknown[0]!r}; axes are {', '.join(names)}")
        return {names.index(name): _nearest(lines[names.index(name)], at[name]) for name in at}
    front = tuple(line.points.size for line in lines[:lead])
    found = as_ints("at", at)
    if len(found) != lead:
        raise ArgumentError(
            f"at={tuple(found)} must have one index for each axis before space, of shape {front}, "
            f"or coordinates by names of axes: {', '.join(line.name for line in lines)}"
        )
    return {k: as_index("at", i, n) for k, (i, n) in enumerate(zip(found, front, strict=True))}


def _nearest(line: _NamedAxis, value: float) -> int:
    """Return the index of the point that is nearest to a coordinate."""
    points = line.points.astype(float)
    room = np.abs(np.diff(points)).max(initial=0.0)
    if not points.min() - room <= value <= points.max() + room:
        ends = f"{points.min():.6g} to {points.max():.6g}"
        raise ArgumentError(f"{line.name}={value:g} is outside of its points, {ends}")
    return int(np.abs(points - value).argmin())


def read_numbers(path: str) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Return the times of a series, and the real numbers that it has for each of them; local."""
    with _items(path) as (attrs, items):
        if RESERVED + "series" in attrs and TIME not in items:
            raise ArgumentError(f"{path} is a series without snapshots; append one first")
        made = {name: make() for name, make in items.items()}
        times = made.get(TIME)
        if times is None or times.shape is None or len(times.shape) != 1:
            raise ArgumentError(f"{path} has no times: pass a file that TimeSeries has written")
        numbers = {
            name: item.read((...,))
            for name, item in made.items()
            if item.shape == times.shape and item.dtype.kind in "biuf" and not item.is_scale
        }
        return times.read((...,)), numbers
