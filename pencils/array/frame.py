"""Frame: where the fields of one kind lie in memory, found once for each pencil and kind."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from pencils.array.allocation import Array, Key, Widths, memory_axes
from pencils.comm import pool
from pencils.errors import ArgumentError
from pencils.layout import halo_room
from pencils.layout.integers import MOST
from pencils.pencil import Pencil, keep_in


class Kind:
    """What fields with such own blocks have in common.

    There is one object of each kind for a bare frame.

    Attributes
    ----------
    frame : Frame
        The bare frame.
    dtype, shape, nbytes
        Those of own blocks.
    small : bool
        Whether NumPy allocates such blocks, not the pool.
    straight : bool
        Whether the axes of own blocks follow each other in memory as in C order, from the slowest
        to the fastest: then what NumPy computes of such blocks is contiguous in that order.
    results : dict
        The kinds of results that `pencils.array.direct` has found, by function and other operand.
    """

    __slots__ = ("dtype", "frame", "nbytes", "results", "shape", "small", "straight")

    def __init__(
        self, frame: Frame, dtype: np.dtype[Any], shape: tuple[int, ...], *, straight: bool
    ) -> None:
        self.frame = frame
        self.dtype = dtype
        self.shape = shape
        self.nbytes = dtype.itemsize * prod(shape)
        self.small = self.nbytes < pool.LEAST
        self.straight = straight
        self.results: dict[object, Kind] = {}

    def new_block(self) -> Array:
        """Allocate an own block of a straight kind, in memory of the pool."""
        return np.ndarray(self.shape, self.dtype, pool.new_block(self.nbytes, 0))


class Frame:
    """What fields of a pencil with the same singleton dimensions and halo have in common.

    There is one object of each kind for a pencil, so that fields whose `bare` frames are the same
    object have the same pencil, own block and singleton dimensions.

    Attributes
    ----------
    extent : Extent
        Layout and own block, singleton dimensions included.
    singletons, halo, halo_room, trimmed, order
        As the properties of fields and pencils.
    bare : Frame
        The frame of fields without halo on the same points.
    inside : tuple or None
        Index of the own block in the padded one; None where they are the same.
    kinds : dict
        Where `kind_of` has found kinds, by what decides on them.
    permuted : bool
        Whether the memory order is not that of C.
    sections : dict
        Where `pencils.array.indexing` has found sections, by their keys and components.
    shifted : dict
        Indices in the padded block that `shift` has found, by its arguments.
    """

    __slots__ = (
        "_axes",
        "_volume",
        "bare",
        "extent",
        "halo",
        "halo_room",
        "inside",
        "kinds",
        "order",
        "padded_shape",
        "permuted",
        "sections",
        "shifted",
        "singletons",
        "trimmed",
    )

    def __init__(
        self, pencil: Pencil, singletons: frozenset[int], halo: Widths, trimmed: frozenset[int]
    ) -> None:
        self.extent = extent = pencil.extent(singletons)
        self.singletons = singletons
        self.halo = halo
        room = halo_room(extent.box, extent.shape, halo, trimmed) if trimmed else halo
        self.halo_room = room
        self.trimmed = trimmed
        along = list(zip(extent.local_shape, room, strict=True))
        self.padded_shape = tuple(n + lo + hi for n, (lo, hi) in along)
        self.inside: Key | None = None
        self.bare = self
        if any(map(any, halo)):
            self.inside = (Ellipsis, *(slice(lo, lo + n) for n, (lo, _) in along))
        if self.inside is not None or trimmed:
            self.bare = frame_of(pencil, singletons)
        self.kinds: dict[object, Kind] = {}
        self.sections: dict[object, Any] = {}
        self.shifted: dict[object, Key] = {}
        self.order = pencil.order
        self.permuted = pencil.order != tuple(range(pencil.ndim))
        self._axes: dict[int, tuple[tuple[int, ...], list[int]]] = {}
        whole = zip(extent.shape, halo, strict=True)
        # NumPy counts so where an extent is 0, too.
        self._volume = prod(max(1, n + lo + hi) for n, (lo, hi) in whole)

    def axes(self, lead: int) -> tuple[tuple[int, ...], list[int]]:
        """Axes of a logical array in memory order, and the axes that bring it back."""
        found = self._axes.get(lead)
        if found is None:
            axes = memory_axes(self.order, lead)
            found = self._axes[lead] = axes, [axes.index(axis) for axis in range(len(axes))]
        return found

    def make(self, shape: tuple[int, ...], dtype: np.dtype[Any], *, zero: bool = False) -> Array:
        """Allocate an array of a logical shape that is contiguous in memory order."""
        new = pool.zeros if zero else pool.empty
        if not self.permuted:
            return new(shape, dtype)
        axes, back = self.axes(len(shape) - len(self.halo))
        return new(tuple([shape[axis] for axis in axes]), dtype).transpose(back)

    def kind_of(self, block: Array) -> Kind:
        """Return the kind of fields with such an own block; of bare frames only."""
        straight = not self.permuted and is_straight(block)
        key = block.dtype, block.shape, straight
        found = self.kinds.get(key)
        if found is None:
            found = Kind(self, block.dtype, block.shape, straight=straight)
            keep_in(self.kinds, key, found)
        return found

    def shape_of(self, components: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
        """Shape of the padded block of a field.

        Raises
        ------
        ArgumentError
            On every rank alike, if NumPy could not count the bytes of the whole padded field.
        """
        if dtype.itemsize * self._volume * prod(max(1, n) for n in components) > MOST:
            along = zip(self.extent.shape, self.halo, strict=True)
            shape = (*components, *(n + lo + hi for n, (lo, hi) in along))
            raise ArgumentError(
                f"a field of padded shape {shape} of {dtype} with halo {self.halo} has more bytes "
                "than 64 bits can count"
            )
        return components + self.padded_shape

    def ordered(self, block: Array) -> Array:
        """Return a block itself if it is contiguous in memory order, else a copy that is."""
        if not self.permuted:
            return block if block.flags.c_contiguous else np.ascontiguousarray(block)
        axes, back = self.axes(block.ndim - len(self.halo))
        turned = block.transpose(axes)
        return block if turned.flags.c_contiguous else np.ascontiguousarray(turned).transpose(back)


def is_straight(block: Array) -> bool:
    """Whether the axes of a block follow each other in memory as in C order."""
    if block.flags.c_contiguous:
        return True
    steps = block.strides
    return steps[-1] > 0 and all(one >= other for one, other in pairwise(steps))


_NONE: frozenset[int] = frozenset()


def frame_of(
    pencil: Pencil,
    singletons: frozenset[int] = _NONE,
    halo: Widths | None = None,
    trimmed: frozenset[int] = _NONE,
) -> Frame:
    """Return the one frame of this kind on a pencil."""
    key = (singletons, halo, trimmed)
    found: Frame | None = pencil.frames.get(key)
    if found is None:
        if halo is not None and not any(map(any, halo)):
            found = frame_of(pencil, singletons, None, trimmed)
        else:
            found = Frame(pencil, singletons, halo or ((0, 0),) * pencil.ndim, trimmed)
        pencil.frames[key] = found
    return found
