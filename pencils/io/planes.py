"""A line or a plane of a dataset, as one process reads it to draw it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import h5py

from pencils.array.allocation import Array
from pencils.errors import ArgumentError
from pencils.io.file_info import RESERVED
from pencils.io.hdf5 import opened
from pencils.io.hdf5_file import list_datasets
from pencils.io.meshes import Axis
from pencils.io.unpack import read_checked
from pencils.layout.integers import as_dim, as_ints, as_place

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
