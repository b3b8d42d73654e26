"""Describe an HDF5 file to VTK and ParaView inside the file: the group ``/VTKHDF``.

The group has links to the fields, the coordinates and the times, and a virtual dataset for each
field with components, because VTK wants these last. They are soft links: a second hard link would
hide the first from programs that list each dataset once, and h5netcdf mistakes the other name of a
coordinate for another dimension.

VTK has one grid in a file: that with the most points. Equal spacings are an image, other ones a
rectilinear grid. VTK calls the fastest axis x, which is the last dimension. The attribute
``Direction`` could turn the axes of an image, but filters of VTK 9.7 ignore it, contours among
them, and VTK 9.4 to 9.6 crash at the second time. Left out are complex, boolean and compound
fields, and those that do not have two or three dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import h5py
import numpy as np

from pencils.array.allocation import Array
from pencils.io.file_info import RESERVED, TIME, VIEW
from pencils.io.objects import read_checked

# Numbers of dimensions, and sizes of numbers by kind, that VTK has.
_DIMENSIONS = (2, 3)
_SIZES = {"f": (4, 8), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8)}
# Largest difference of spacings that are called equal: relative, and in roundings of coordinates.
_TOLERANCE, _ROUNDINGS = 1e-6, 4
_STEPS = f"{VIEW}/Steps"
# Of the format of VTK, the first version with time, and with rectilinear grids.
_IMAGES, _RECTILINEAR = (2, 0), (2, 7)


@dataclass(frozen=True)
class GridAxis:
    """A dimension: its name, number of points, and the dataset of coordinates, if there is one."""

    name: str
    points: int
    scale: Any = None

    @classmethod
    def of(cls, dataset: Any, at: int, dim: int) -> GridAxis:
        """Describe an axis of a dataset, which is this dimension of the grid."""
        scales = list(dataset.dims[at].values())
        points = dataset.shape[at]
        if not scales:
            return cls(f"dim{dim}_{points}", points)
        is_listed = RESERVED + "value" in scales[0].attrs and _is_plain(scales[0].dtype)
        return cls(str(scales[0].name).lstrip("/"), points, scales[0] if is_listed else None)

    @cached_property
    def coordinates(self) -> Array:
        """Coordinates, or indices if there are none; read from the file once."""
        return np.arange(self.points) if self.scale is None else read_checked(self.scale)

    @cached_property
    def spacing(self) -> float | None:
        """Distance from each point to the next; None if it varies."""
        given = self.coordinates
        rounding = np.finfo(given.dtype).eps if given.dtype.kind == "f" else 0.0
        points = given.astype(float)
        steps = np.diff(points)
        if steps.size == 0:
            return 1.0
        step = float((points[-1] - points[0]) / steps.size)
        most = max(_TOLERANCE * abs(step), _ROUNDINGS * rounding * float(np.abs(points).max()))
        even = np.isfinite(step) and step and np.all(np.abs(steps - step) <= most)
        return step if even else None


Axes = tuple[GridAxis, ...]


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether VTK has such numbers."""
    return dtype.itemsize in _SIZES.get(dtype.kind, ())


def update_view(file: Any, names: list[str], count: int) -> None:
    """Describe an open series again, now that it has this number of snapshots."""
    if count > 1 and _STEPS in file:
        file[_STEPS].attrs.modify("NSteps", np.int64(count))
    elif count <= 2:  # noqa: PLR2004
        if VIEW in file:
            del file[VIEW]
        write_view(file, names, count)


def write_view(file: Any, names: list[str], count: int | None = None) -> None:
    """Describe the fields among some datasets of an open file; `count` are snapshots of a series.

    VTK finds a time axis only if there are two times: the first alone is shown without.
    """
    times = 0 if count is None else 1
    fields: list[tuple[Any, Axes]] = []
    seen: dict[GridAxis, GridAxis] = {}  # fields share axes, and what was read of them
    for dataset in map(file.get, names if count != 0 else ()):
        lead = int(dataset.attrs.get(RESERVED + "components", dataset.ndim))
        axes = tuple(
            seen.setdefault(axis, axis)
            for axis in (GridAxis.of(dataset, at, at - lead) for at in range(lead, dataset.ndim))
        )
        if len(axes) in _DIMENSIONS and prod(dataset.shape[times:]) and _is_plain(dataset.dtype):
            fields.append((dataset, axes))
    if not fields:
        return
    axes = max((axes for _, axes in fields), key=lambda axes: prod(axis.points for axis in axes))
    view = file.create_group(VIEW)
    _describe_grid(view, axes)
    points, taken = view.create_group("PointData"), set()
    for dataset in (dataset for dataset, own in fields if own == axes):
        name = dataset.name.strip("/").replace("/", "_")
        while name in taken:
            name += "_"
        taken.add(name)
        if count == 1 or dataset.ndim > times + len(axes):
            _make_virtual(points, name, dataset, 0 if count == 1 else times, axes)
        else:
            points[name] = h5py.SoftLink(dataset.name)
    time = file.attrs.get(RESERVED + "time") if count is None else file[TIME][0]
    if count is not None and count > 1:
        steps = file.create_group(_STEPS)
        steps["Values"] = h5py.SoftLink(f"/{TIME}")
        steps.attrs["NSteps"] = count
    elif time is not None:
        view.create_group("FieldData").create_dataset("TimeValue", data=np.array([time]))


def _describe_grid(view: Any, axes: Axes) -> None:
    fastest, rest = axes[::-1], 3 - len(axes)
    counts = [axis.points for axis in fastest] + [1] * rest
    steps = [axis.spacing for axis in fastest]
    attrs: dict[str, Any]
    if all(step is not None and step > 0 for step in steps):
        start = [float(axis.coordinates[0]) for axis in fastest] + [0.0] * rest
        attrs = {"Type": np.bytes_("ImageData"), "Version": _IMAGES}
        attrs["WholeExtent"] = [end for n in counts for end in (0, n - 1)]
        attrs |= {"Origin": start, "Spacing": [*steps, *[1.0] * rest]}
        attrs["Direction"] = np.eye(3).ravel()
    else:
        attrs = {"Type": np.bytes_("RectilinearGrid"), "Version": _RECTILINEAR}
        attrs["Dimensions"] = counts
    for name, value in attrs.items():
        data = np.asarray(value)
        scalar = h5py.h5s.create(h5py.h5s.SCALAR)
        space = h5py.h5s.create_simple(data.shape) if data.ndim else scalar
        # Without the high level of h5py, which takes five times as long.
        made = h5py.h5a.create(view.id, name.encode(), h5py.h5t.py_create(data.dtype), space)
        made.write(data)
    if "Dimensions" in attrs:
        for letter, axis in zip("XYZ", [*fastest, GridAxis("", 1)][:3], strict=True):
            plain = axis.scale is None
            points = axis.coordinates.astype(float) if plain else h5py.SoftLink(axis.scale.name)
            view[f"{letter}Coordinates"] = points


def _make_virtual(points: Any, name: str, dataset: Any, times: int, axes: Axes) -> None:
    """Make a virtual dataset of a field, whose components are its last axis, if several.

    The order in vectors and tensors, with components for each dimension, is that of VTK's axes.
    """
    components = dataset.shape[times : dataset.ndim - len(axes)]
    indices = [*product(*map(range, components))]
    if {n for n in components if n > 1} == {len(axes)}:
        indices.reverse()
    last = (len(indices),) if len(indices) > 1 else ()
    space, time = tuple(axis.points for axis in axes), dataset.shape[:times]
    ends = (h5py.h5s.UNLIMITED,) * times  # times to come included

    def select(shape: tuple[int, ...], start: tuple[int, ...], block: tuple[int, ...]) -> Any:
        made = h5py.h5s.create_simple((*time, *shape), (*ends, *shape))
        counts, blocks = ends + (1,) * len(block), (1,) * times + block
        made.select_hyperslab((0,) * times + start, counts, blocks, blocks)
        return made

    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.VIRTUAL)
    layout.set_obj_track_times(False)  # equal fields give equal files
    zeros = (0,) * len(space)
    for number, index in enumerate(indices):
        here = select(space + last, zeros + (number,) * len(last), space + (1,) * len(last))
        there = select(components + space, index + zeros, (1,) * len(index) + space)
        layout.set_virtual(here, b".", dataset.name.encode(), there)
    extents = h5py.h5s.create_simple((*time, *space, *last), (*ends, *space, *last))
    h5py.h5d.create(points.id, name.encode(), dataset.id.get_type(), extents, dcpl=layout)
