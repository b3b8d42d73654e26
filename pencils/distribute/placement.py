"""Global data as `partition` reads them: which of their axes are components, and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from pencils.array.allocation import (
    Array,
    Widths,
    arrange,
    as_dtype,
    frame_of,
    is_masked_array,
    plain_array,
)
from pencils.array.pencil_array import PencilArray
from pencils.comm.pool import empty_bytes
from pencils.errors import ArgumentError
from pencils.layout import Box
from pencils.layout.integers import as_dims
from pencils.pencil import Pencil

T = TypeVar("T")


class ArrayLike(Protocol):
    """What `partition` reads: a NumPy array, a memmap, an HDF5 or netCDF variable, a zarr array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""

    def __getitem__(self, key: Any, /) -> Any:
        """Read a box of slices."""


class Placement(NamedTuple):
    """Which axes of global data are components, and the dimensions of the others."""

    components: tuple[int, ...]
    dims: tuple[int, ...]
    singletons: frozenset[int]

    def key(self, box: Box) -> tuple[slice, ...]:
        """Index the data for the part inside a box of components and dimensions."""
        return self._axes(box.slices())

    def shape(self, box: Box) -> tuple[int, ...]:
        """Shape that the data have inside a box of components and dimensions."""
        return self._axes(box.shape)

    def _axes(self, each: tuple[T, ...]) -> tuple[T, ...]:
        """Select what belongs to each axis of the data."""
        lead = len(self.components)
        return (*each[:lead], *(each[lead + dim] for dim in self.dims))

    def expand(self, part: Array, ndim: int) -> Array:
        """View data axes as components followed by all dimensions of the pencil."""
        if self.dims == tuple(range(ndim)):
            return part
        lead = len(self.components)
        axes = (*range(lead), *(lead + int(axis) for axis in np.argsort(self.dims)))
        missing = tuple(lead + dim for dim in range(ndim) if dim not in self.dims)
        return np.expand_dims(part.transpose(axes), missing)


def place_data(pencil: Pencil, data: ArrayLike, dims: Sequence[int] | int | None) -> Placement:
    """Find the dimensions of the axes of data, which must fit the pencil."""
    shape = tuple(data.shape)
    axes = tuple(range(pencil.ndim)) if dims is None else as_dims("dims", dims, pencil.ndim)
    lead = len(shape) - len(axes)
    if lead < 0:
        hint = "" if dims is not None else "; name the dimensions of fewer axes with dims="
        hint = hint if shape else "; pencils.full(pencil, value) makes a field of one value"
        raise ArgumentError(
            f"data of shape {shape} have too few axes for dimensions {axes} of {pencil!r}{hint}"
        )
    singletons = set(range(pencil.ndim)) - set(axes)
    for dim, extent in zip(axes, shape[lead:], strict=True):
        if extent == 1 != pencil.shape[dim]:
            singletons.add(dim)
        elif extent != pencil.shape[dim]:
            raise ArgumentError(
                f"data of shape {shape} do not fit {pencil!r}: dimension {dim} must have extent "
                f"{pencil.shape[dim]}, or 1 for a singleton, not {extent}"
            )
    return Placement(shape[:lead], axes, frozenset(singletons))


def array_of(source: ArrayLike) -> Array | None:
    """Return data that are in memory, or mapped, as a plain array; else None."""
    if isinstance(source, np.ndarray) and not is_masked_array(source):
        return np.asarray(source)
    return None


def readable(data: Any) -> ArrayLike:
    """Check that data can be read by boxes; lists become arrays."""
    if isinstance(data, PencilArray):
        raise TypeError(
            "data are distributed already; use transpose() to move them to another pencil"
        )
    if data is None:
        raise TypeError(
            "data is None; every rank passes the global data, or root=r names the one that does"
        )
    by_boxes = all(hasattr(data, name) for name in ("shape", "__getitem__"))
    source: ArrayLike = data if by_boxes else np.asarray(data)
    return source


def dtype_of(source: ArrayLike) -> np.dtype[Any]:
    """Element type of data, which netCDF variables of SciPy do not name."""
    if hasattr(source, "dtype"):
        return as_dtype(source.dtype)
    return as_dtype(np.asarray(source[(slice(0, 0),) * len(source.shape)]).dtype)


def read_part(source: ArrayLike, place: Placement, box: Box) -> Array:
    """Read the part of data inside a box, which must have the announced shape and dtype."""
    part = plain_array(source[place.key(box) or ...])
    announced = place.shape(box), dtype_of(source)
    if (part.shape, part.dtype) != announced:
        raise ArgumentError(
            f"data announce {announced[1]} of shape {announced[0]} for the part "
            f"{place.key(box)}, but reading gives {part.dtype} of shape {part.shape}; switch "
            "conversion on reading off (as of scaled netCDF variables), or pass a NumPy array"
        )
    return part


def new_field(
    pencil: Pencil, dtype: np.dtype[Any], place: Placement, widths: Widths, start: int = 0
) -> PencilArray:
    """Make the field for placed data: halo points zero, own points to be filled.

    Without a halo its block begins `start` bytes after the beginning of a cache line.
    """
    zero = any(map(any, widths))
    if not start or zero:
        kind = dtype, place.components, place.singletons, widths
        return PencilArray.allocated(pencil, *kind, zero=zero)
    frame = frame_of(pencil, place.singletons)
    shape = frame.shape_of(place.components, dtype)
    memory = empty_bytes(start + dtype.itemsize * prod(shape))[start:]
    return PencilArray.in_frame(pencil, frame, arrange(memory, pencil, dtype, shape))
