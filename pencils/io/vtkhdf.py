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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple

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


@dataclass(frozen=True)
class Axis:
    """A dimension: its name, number of points, and the dataset of coordinates, if there is one."""

    name: str
    points: int
    scale: Any = None

    @classmethod
    def of(cls, dataset: Any, at: int, dim: int) -> Axis:
        """Describe an axis of a dataset, which is this dimension of the grid."""
        scales = list(dataset.dims[at].values())
        points = dataset.shape[at]
        if not scales:
            return cls(f"dim{dim}_{points}", points)
        is_listed = RESERVED + "value" in scales[0].attrs and is_plain(scales[0].dtype)
        return cls(str(scales[0].name).lstrip("/"), points, scales[0] if is_listed else None)

    @cached_property
    def coordinates(self) -> Array:
        """Coordinates, or indices if there are none; read from the file once."""
        if self.scale is None:
            return np.arange(self.points)
        return read_checked(self.scale)

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


class Field(NamedTuple):
    """The dataset of a field: its shape, with the times to list, and its axes."""

    dataset: Any
    shape: tuple[int, ...]
    components: tuple[int, ...]
    axes: tuple[Axis, ...]

    @property
    def name(self) -> str:
        """Its name in the file."""
        return str(self.dataset.name).lstrip("/")

    @property
    def is_shown(self) -> bool:
        """Whether VTK has such fields."""
        points = prod(axis.points for axis in self.axes) * prod(self.components)
        return len(self.axes) in _DIMENSIONS and points > 0 and is_plain(self.dataset.dtype)


def find_fields(file: Any, names: list[str], count: int | None = None) -> Iterator[Field]:
    """Yield the fields among some datasets; of a series, list the first `count` snapshots."""
    timed = () if count is None else (count,)
    seen: dict[Axis, Axis] = {}  # fields share axes, and what was read of them
    for name in names:
        dataset = file[name]
        if RESERVED + "components" in dataset.attrs:
            lead = int(dataset.attrs[RESERVED + "components"])
            found = (Axis.of(dataset, at, at - lead) for at in range(lead, dataset.ndim))
            axes = (seen.setdefault(axis, axis) for axis in found)
            shape = timed + dataset.shape[len(timed) :]
            yield Field(dataset, shape, shape[len(timed) : lead], tuple(axes))


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether VTK has such numbers."""
    return dtype.itemsize in _SIZES.get(dtype.kind, ())


_STEPS = f"{VIEW}/Steps"
_SCALAR = h5py.h5s.create(h5py.h5s.SCALAR)
# Of the format of VTK, the first version with time, and with rectilinear grids.
_IMAGES, _RECTILINEAR = (2, 0), (2, 7)

Limits = Sequence[int | None]


def write_view(file: Any, names: list[str], count: int | None = None) -> None:
    """Describe the fields among some datasets of an open file; `count` are snapshots of a series.

    VTK finds a time axis only if there are two times: the first alone is shown without.
    """
    fields = [field for field in find_fields(file, names, count) if field.is_shown]
    if not fields or count == 0:
        return
    if count == 1:
        fields = [field._replace(components=(1, *field.components)) for field in fields]
    axes = max((one.axes for one in fields), key=lambda axes: prod(axis.points for axis in axes))
    view = file.create_group(VIEW)
    steps = [axis.spacing for axis in reversed(axes)]
    if all(step is not None and step > 0 for step in steps):
        _describe_image(view, axes, steps)
    else:
        _describe_rectilinear(view, axes)
    points, taken = view.create_group("PointData"), set()
    for field in (one for one in fields if one.axes == axes):
        name = field.name.replace("/", "_")
        while name in taken:
            name += "_"
        taken.add(name)
        if field.components:
            _make_virtual(points, name, field)
        else:
            points[name] = h5py.SoftLink(f"/{field.name}")
    _describe_times(file, view, count)


def update_view(file: Any, names: list[str], count: int) -> None:
    """Describe an open series again, now that it has this number of snapshots."""
    if count > 1 and _STEPS in file:
        file[_STEPS].attrs.modify("NSteps", np.int64(count))
    elif count <= 2:  # noqa: PLR2004
        if VIEW in file:
            del file[VIEW]
        write_view(file, names, count)


def _describe_times(file: Any, view: Any, count: int | None) -> None:
    if count is not None and count > 1:
        steps = file.create_group(_STEPS)
        steps["Values"] = h5py.SoftLink(f"/{TIME}")
        steps.attrs["NSteps"] = count
        return
    time = file.attrs.get(RESERVED + "time") if count is None else file[TIME][0]
    if time is not None:
        view.create_group("FieldData").create_dataset("TimeValue", data=np.array([time]))


def _describe_image(view: Any, axes: Sequence[Axis], steps: Sequence[float | None]) -> None:
    rest = 3 - len(axes)
    start = [float(axis.coordinates[0]) for axis in reversed(axes)] + [0.0] * rest
    extent = [end for n in _counts(axes) for end in (0, n - 1)]
    facts = {"WholeExtent": extent, "Origin": start, "Spacing": [*steps, *[1.0] * rest]}
    _describe(view, "ImageData", _IMAGES, **facts, Direction=np.eye(3).ravel())


def _describe_rectilinear(view: Any, axes: Sequence[Axis]) -> None:
    _describe(view, "RectilinearGrid", _RECTILINEAR, Dimensions=_counts(axes))
    found = [*reversed(axes), Axis("", 1)][:3]
    for letter, axis in zip("XYZ", found, strict=True):
        name = f"{letter}Coordinates"
        if axis.scale is None:
            view[name] = axis.coordinates.astype(float)
        else:
            view[name] = h5py.SoftLink(axis.scale.name)


def _describe(view: Any, kind: str, version: tuple[int, int], **attrs: Any) -> None:
    for name, value in {"Type": np.bytes_(kind), "Version": version, **attrs}.items():
        data = np.asarray(value)
        space = h5py.h5s.create_simple(data.shape) if data.shape else _SCALAR
        # Without the high level of h5py, which takes five times as long.
        made = h5py.h5a.create(view.id, name.encode(), h5py.h5t.py_create(data.dtype), space)
        made.write(data)


def _counts(axes: Sequence[Axis]) -> list[int]:
    """Return the numbers of points along the three axes of VTK, fastest first."""
    return [axis.points for axis in reversed(axes)] + [1] * (3 - len(axes))


def _make_virtual(points: Any, name: str, field: Field) -> None:
    """Make a virtual dataset of a field, whose components are its last axis, if several.

    The order in vectors and tensors, with components for each dimension, is that of VTK's axes.
    """
    dataset, lead = field.dataset, len(field.shape) - len(field.components) - len(field.axes)
    indices = [*product(*map(range, field.components))]
    if {n for n in field.components if n > 1} == {len(field.axes)}:
        indices.reverse()
    time, most = dataset.shape[:lead], dataset.maxshape[:lead]
    space = tuple(axis.points for axis in field.axes)
    last = (len(indices),) if len(indices) > 1 else ()
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.VIRTUAL)
    layout.set_obj_track_times(False)  # equal fields give equal files
    for number, index in enumerate(indices):
        at = (0,) * len(space) + (number,) * len(last)
        here = _make_space(time, most, space + last)
        _select(here, most, at, space + (1,) * len(last))
        there = _make_space(time, most, field.components + space)
        _select(there, most, index + (0,) * len(space), (1,) * len(index) + space)
        layout.set_virtual(here, b".", dataset.name.encode(), there)
    kind, whole = dataset.id.get_type(), _make_space(time, most, space + last)
    h5py.h5d.create(points.id, name.encode(), kind, whole, dcpl=layout)


def _make_space(time: Limits, most: Limits, shape: tuple[int, ...]) -> Any:
    limits = tuple(h5py.h5s.UNLIMITED if one is None else one for one in most)
    return h5py.h5s.create_simple((*time, *shape), (*limits, *shape))


def _select(space: Any, most: Limits, start: tuple[int, ...], block: tuple[int, ...]) -> None:
    """Select a block at all times, those to come included."""
    times = tuple(h5py.h5s.UNLIMITED if one is None else one for one in most)
    zeros, ones, shape = (0,) * len(times), (1,) * len(block), (*(1 for _ in times), *block)
    space.select_hyperslab((*zeros, *start), (*times, *ones), shape, shape)
