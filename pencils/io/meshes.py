"""Find the fields of an HDF5 file and the grids they are on, for descriptions to other programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.io.file_info import RESERVED

# Numbers of dimensions, and sizes of numbers by kind, that XDMF and VTK have.
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
        from pencils.io.unpack import read_checked  # most ranks never need h5py

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
        """Whether XDMF and VTK have such fields."""
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
    """Whether XDMF and VTK have such numbers."""
    return dtype.itemsize in _SIZES.get(dtype.kind, ())
