"""Describe an HDF5 file to VTK and ParaView inside the file: the group ``/VTKHDF``.

The group has links to the fields, the coordinates and the times, and a virtual dataset for each
field with components, because VTK wants these last. They are soft links: a second hard link would
hide the first from programs that list each dataset once, and h5netcdf mistakes the other name of a
coordinate for another dimension.

VTK has one grid in a file: that with the most points. Equal spacings are an image, whose
``Direction`` states which coordinate each axis has; other ones are a rectilinear grid, whose axes
VTK calls x, y, z from the fastest on. What is left out is as in `pencils.io.xdmf`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import h5py
import numpy as np

from pencils.io.file_info import RESERVED, VIEW
from pencils.io.meshes import TIME, Axis, Field, find_fields

_STEPS = f"{VIEW}/Steps"
# Of the format of VTK, the first version with time, and with rectilinear grids.
_IMAGES, _RECTILINEAR = (2, 0), (2, 7)
_LETTERS = "xyz"

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
    spacings = [axis.spacing for axis in axes]
    is_image = None not in spacings
    if is_image:
        _describe_image(view, axes, [step for step in spacings if step is not None])
    else:
        _describe_rectilinear(view, axes)
    points = view.create_group("PointData")
    here = [field for field in fields if field.axes == axes]
    for field, name, indices in _list_arrays(here, together=is_image):
        if field.components:
            _make_virtual(points, name, field, indices)
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


def _describe_image(view: Any, axes: Sequence[Axis], spacings: Sequence[float]) -> None:
    last = len(axes) - 1
    origin, direction = np.zeros(3), np.eye(3)
    direction[: last + 1, : last + 1] = 0
    for at, (axis, along) in enumerate(zip(axes, _find_directions(axes), strict=True)):
        origin[along] = axis.coordinates[0]
        direction[along, last - at] = np.sign(spacings[at])
    if last == 1:  # the third direction is the one that is left
        rest = set(range(3)) - {*_find_directions(axes)}
        direction[:, 2] = np.isin(np.arange(3), [*rest])
    steps = [abs(step) for step in reversed(spacings)] + [1.0] * (2 - last)
    extent = [end for n in _counts(axes) for end in (0, n - 1)]
    _describe(view, "ImageData", _IMAGES, WholeExtent=extent, Origin=origin, Spacing=steps)
    view.attrs["Direction"] = direction.ravel()


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
    view.attrs["Type"] = np.bytes_(kind)
    for name, value in {"Version": version, **attrs}.items():
        view.attrs[name] = np.array(value)


def _counts(axes: Sequence[Axis]) -> list[int]:
    """Return the numbers of points along the three axes of VTK, fastest first."""
    return [axis.points for axis in reversed(axes)] + [1] * (3 - len(axes))


def _find_directions(axes: Sequence[Axis]) -> Sequence[int]:
    """Return which of x, y, z each axis is: by its name, or else by its number."""
    words = [[word for word in axis.name.split("_") if not word.isdigit()] for axis in axes]
    letters = [found[-1] if found else "" for found in words]
    if len(set(letters)) == len(axes) and all(letter in [*_LETTERS] for letter in letters):
        return [_LETTERS.index(letter) for letter in letters]
    return range(len(axes))


def _list_arrays(
    fields: Iterable[Field], *, together: bool
) -> Iterator[tuple[Field, str, list[tuple[int, ...]]]]:
    """Yield the arrays of VTK: their field, name, and the components that each has."""
    taken: set[str] = set()
    for field in sorted(fields, key=lambda field: prod(field.components)):
        indices = [*product(*map(range, field.components))]
        apart = len(indices) > 1 and not together
        for group in [[index] for index in indices] if apart else [indices]:
            numbers = [str(i) for i, n in zip(group[0], field.components, strict=True) if n > 1]
            name = "_".join([*field.name.split("/"), *(numbers if apart else ())])
            while name in taken:
                name += "_"
            taken.add(name)
            yield field, name, group


def _make_virtual(points: Any, name: str, field: Field, indices: Sequence[tuple[int, ...]]) -> None:
    """Make a virtual dataset of some components of a field, which are its last axis if several."""
    dataset, lead = field.dataset, len(field.shape) - len(field.components) - len(field.axes)
    time, most = dataset.shape[:lead], dataset.maxshape[:lead]
    space = tuple(axis.points for axis in field.axes)
    last = (len(indices),) if len(indices) > 1 else ()
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.VIRTUAL)
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
