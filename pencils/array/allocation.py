"""From the arguments of a field to its memory: types, widths, padded shapes, allocation."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pencils.comm import pool
from pencils.comm.agree import agreed
from pencils.comm.pool import empty_bytes, zero_bytes
from pencils.comm.reduce import native
from pencils.errors import ArgumentError
from pencils.layout import halo_room
from pencils.layout.integers import MOST, as_dims, as_ints, to_int
from pencils.pencil import Bounded, Pencil

Array = NDArray[Any]
Key = tuple[Any, ...]  # Ellipsis for the components, a slice for every space dimension
Widths = tuple[tuple[int, int], ...]
HaloLike = int | Sequence[int] | Sequence[tuple[int, int]]


def as_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Normalize an element type; it must have a fixed size and hold no Python objects."""
    normal = np.dtype(dtype)
    if normal.subdtype is not None:
        raise TypeError(f"dtype {dtype!r} has a shape of its own; pass the shape as components=")
    if normal.hasobject or normal.itemsize == 0:
        raise TypeError(
            f"dtype {normal} cannot be distributed; use a dtype of fixed size without Python "
            "objects"
        )
    return native(normal) if normal.isnative else normal


def is_masked_array(value: object) -> bool:
    """Whether a value is a masked array; there is none before `numpy.ma` is imported."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def check_unmasked(operand: object) -> None:
    """Raise TypeError if data are masked anywhere: the mask would be lost."""
    if is_masked_array(operand) and np.ma.is_masked(operand):
        raise TypeError("a masked array cannot be used here: take a.filled(value), or pass where=")


def plain_array(operand: object) -> Array:
    """Return replicated data as a NumPy array; a mask is refused."""
    check_unmasked(operand)
    return np.asarray(operand)


@cache
def real_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of real and imaginary parts."""
    return np.empty(0, dtype).real.dtype


def as_value(name: str, value: object, dtype: np.dtype[Any]) -> Any:
    """Convert one value to an element type."""
    check_unmasked(value)
    one = np.asarray(value, dtype)
    if one.ndim:
        raise ArgumentError(
            f"{name}={value!r} must be one value; assign arrays with u[...] = values"
        )
    return one[()]


def as_components(components: int | Sequence[int]) -> tuple[int, ...]:
    """Normalize the shape of the component axes, like ``3`` or ``(3, 3)``."""
    shape = as_ints("components", components)
    if any(extent < 0 for extent in shape):
        raise ArgumentError(f"components={shape} must not be negative")
    return shape


def as_halo(halo: HaloLike, ndim: int, singletons: Collection[int] = ()) -> Widths:
    """Normalize halo widths to ``(lo, hi)`` for every dimension; singletons have no halo."""
    width = to_int(halo)
    given: object = halo if width is None else [width] * ndim
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(
            f"halo={halo!r} must be a width, a sequence of widths, or a sequence of (lo, hi) pairs"
        )
    entries = list(given)
    if len(entries) != ndim:
        raise ArgumentError(
            f"halo={halo!r} must be one width or one entry for each of {ndim} dimensions"
        )
    pairs = [as_ints("halo", width) for width in entries]
    widths = [pair * 2 if len(pair) == 1 else pair for pair in pairs]
    if any(len(pair) != 2 or min(pair) < 0 for pair in widths):  # noqa: PLR2004
        raise ArgumentError(f"halo={halo!r} must hold widths >= 0 or (lo, hi) pairs of them")
    return tuple((0, 0) if dim in singletons else (lo, hi) for dim, (lo, hi) in enumerate(widths))


def as_singletons(ndim: int, dims: Sequence[int] | int | None) -> frozenset[int]:
    """Dimensions left over as singletons when a field varies along `dims` only."""
    if dims is None:
        return frozenset()
    return frozenset(range(ndim)) - set(as_dims("dims", dims, ndim))


def padded_shape(
    pencil: Pencil, components: tuple[int, ...], singletons: frozenset[int], halo: Widths
) -> tuple[int, ...]:
    """Shape of the padded block of a field, in logical order."""
    along = zip(pencil.extent(singletons).local_shape, halo, strict=True)
    return (*components, *(n + lo + hi for n, (lo, hi) in along))


def padded_slices(local_shape: Sequence[int], room: Widths, widths: Widths) -> Key:
    """Index of a block with `room` around the own points, for these and `widths` around them."""
    along = zip(local_shape, room, widths, strict=True)
    return (Ellipsis, *(slice(at - lo, at + n + hi) for n, (at, _), (lo, hi) in along))


def allocate_bytes(
    pencil: Pencil, nbytes: int, *, zero: bool = False, shared: bool = False
) -> Array:
    """Allocate bytes that begin at a cache line; *Collective* if `shared`."""
    make = zero_bytes if zero else empty_bytes
    if not shared:
        return make(nbytes)
    memory = pencil.topology.shared.allocate(nbytes)
    with agreed(pencil.topology.comm, "shared=True"):  # one rank may have no memory
        if memory is None:
            return make(nbytes)
    if zero:
        memory[:] = 0
    return memory


def arrange(memory: Array, pencil: Pencil, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """View the first bytes as a block of `shape` that is contiguous in the pencil's order."""
    axes = memory_axes(pencil.order, len(shape) - pencil.ndim)
    block = memory[: dtype.itemsize * prod(shape)].view(dtype)
    return block.reshape([shape[axis] for axis in axes]).transpose(np.argsort(axes))


def memory_axes(order: Sequence[int], lead: int) -> tuple[int, ...]:
    """Axes of a logical array in memory order, slowest first: components, then space."""
    return (*range(lead), *(lead + dim for dim in order))


def of_view(view: memoryview) -> Array:
    """View memory that another library describes (PEP 3118) as an array, without copying.

    It raises an exception of any type if NumPy has no such element type.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a format of ctypes that is wrong
        array = np.asarray(view)
    kind: Any = type(view.obj)
    while issubclass(kind, ctypes.Array):
        kind = kind._type_
    if not issubclass(kind, ctypes.Structure | ctypes.Union):
        return array
    # Formats of structures of ctypes leave out gaps, packing and bits.
    whole = memoryview(view.obj)
    was_cast = (view.format, view.itemsize) != (whole.format, whole.itemsize)
    return array if was_cast else array.view(np.dtype(kind))


class BlockType:
    """What fields with such own blocks have in common: one object of each kind for a bare frame."""

    __slots__ = ("c_ordered", "dtype", "frame", "nbytes", "results", "shape", "size", "small")

    def __init__(
        self, frame: BlockLayout, dtype: np.dtype[Any], shape: tuple[int, ...], *, c_ordered: bool
    ) -> None:
        self.frame = frame  # the bare one
        self.dtype = dtype
        self.shape = shape
        # Global number of elements.
        self.size = prod(shape[: len(shape) - len(frame.halo)]) * prod(frame.extent.shape)
        self.nbytes = dtype.itemsize * prod(shape)
        self.small = self.nbytes < pool.LEAST  # NumPy allocates such blocks, not the pool
        # Whether the axes follow each other in memory as in C order, from the slowest to the
        # fastest: then what NumPy computes of such blocks is contiguous in that order.
        self.c_ordered = c_ordered
        # Of results that `elementwise.Direct` has found, by function and other operand.
        self.results: dict[object, BlockType] = {}

    def new_block(self) -> Array:
        """Allocate an own block of a c_ordered kind, in memory of the pool."""
        return np.ndarray(self.shape, self.dtype, pool.new_block(self.nbytes, 0))


class BlockLayout:
    """What fields of a pencil with the same singleton dimensions and halo have in common.

    There is one object of each kind for a pencil, so that fields whose `bare` frames are the same
    object have the same pencil, own block and singleton dimensions.
    """

    __slots__ = (
        *("_axes", "_volume", "bare", "extent", "halo", "halo_room", "inside", "kinds", "looks"),
        *("order", "padded_shape", "permuted", "sections", "shifted", "singletons", "trimmed"),
    )

    def __init__(
        self, pencil: Pencil, singletons: frozenset[int], halo: Widths, trimmed: frozenset[int]
    ) -> None:
        self.extent = extent = pencil.extent(singletons)  # layout and own block
        self.singletons = singletons
        self.halo = halo
        room = halo_room(extent.box, extent.shape, halo, trimmed) if trimmed else halo
        self.halo_room = room
        self.trimmed = trimmed
        along = list(zip(extent.local_shape, room, strict=True))
        self.padded_shape = tuple(n + lo + hi for n, (lo, hi) in along)
        self.inside: Key | None = None  # index of the own block in the padded one, if they differ
        self.bare = self  # the frame of fields without halo on the same points
        if any(map(any, halo)):
            self.inside = (Ellipsis, *(slice(lo, lo + n) for n, (lo, _) in along))
        if self.inside is not None or trimmed:
            self.bare = frame_of(pencil, singletons)
        self.kinds = Bounded()  # by what decides on them
        self.looks = Bounded()  # of `Field.look`
        self.sections = Bounded()  # of `indexing`, by keys and components
        self.shifted: dict[object, Key] = {}  # indices in the padded block, by offsets
        self.order = pencil.order
        self.permuted = pencil.order != tuple(range(pencil.ndim))  # not the memory order of C
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

    def maker(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], *, zero: bool = False
    ) -> Callable[[], Array]:
        """Return a function that does what `make` does."""
        if zero or self.permuted or dtype.itemsize * prod(shape) >= pool.LEAST:
            return partial(self.make, shape, dtype, zero=zero)
        return partial(np.empty, shape, dtype)

    def kind_of(self, block: Array) -> BlockType:
        """Return the kind of fields with such an own block; of bare frames only."""
        c_ordered = not self.permuted and is_c_ordered(block)
        key = block.dtype, block.shape, c_ordered
        found: BlockType | None = self.kinds.get(key)
        if found is None:
            found = BlockType(self, block.dtype, block.shape, c_ordered=c_ordered)
            self.kinds.add(key, found)
        return found

    def shape_of(self, components: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
        """Shape of the padded block of a field, whose bytes as a whole NumPy must be able to count.

        Otherwise it raises, on every rank alike.
        """
        if dtype.itemsize * self._volume * prod(max(1, n) for n in components) > MOST:
            along = zip(self.extent.shape, self.halo, strict=True)
            shape = (*components, *(n + lo + hi for n, (lo, hi) in along))
            raise ArgumentError(
                f"a field of padded shape {shape} of {dtype} with halo {self.halo} has more than "
                "2**63 bytes; use fewer points or another dtype"
            )
        return components + self.padded_shape

    def ordered(self, block: Array) -> Array:
        """Return a block itself if it is contiguous in memory order, else a copy that is."""
        if not self.permuted:
            return block if block.flags.c_contiguous else np.ascontiguousarray(block)
        axes, back = self.axes(block.ndim - len(self.halo))
        turned = block.transpose(axes)
        return block if turned.flags.c_contiguous else np.ascontiguousarray(turned).transpose(back)


def is_c_ordered(block: Array) -> bool:
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
) -> BlockLayout:
    """Return the one frame of this kind on a pencil."""
    key = (singletons, halo, trimmed)
    found: BlockLayout | None = pencil.frames.get(key)
    if found is None:
        if halo is not None and not any(map(any, halo)):
            found = frame_of(pencil, singletons, None, trimmed)
        else:
            found = BlockLayout(pencil, singletons, halo or ((0, 0),) * pencil.ndim, trimmed)
        pencil.frames[key] = found
    return found
