"""Field: a pencil and the block of one rank, halo included; the base class of `PencilArray`.

Code that works on fields (indexing, reductions, stencils, NumPy functions) imports this file and
makes its results by ``u.from_block`` and ``u.blank``, which give objects of the class of `u`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from operator import attrgetter, itemgetter
from types import SimpleNamespace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import (
    Array,
    BlockLayout,
    BlockType,
    Key,
    Widths,
    allocate_bytes,
    arrange,
    as_dtype,
    as_value,
    frame_of,
    padded_slices,
)
from pencils.comm.mpi import keep_apart
from pencils.comm.pool import LEAST
from pencils.layout import Box, Extent, ghost_box
from pencils.layout.drawing import Blocks, card, svg
from pencils.layout.integers import as_ints
from pencils.pencil import Pencil
from pencils.plans import MOST_REMEMBERED, Remembered
from pencils.tables import text_bytes

_SHOWN = 4  # values
_new = object.__new__

F = TypeVar("F", bound="Field")

VARIABLE = "PENCILS_CHECK"
# While checks are on, every write to own points sets the ghosts to NaN, so that a stencil before
# the next exchange does not read older values, which are only slightly wrong.
checks = SimpleNamespace(on=os.environ.get(VARIABLE, "0") not in {"", "0"})
keep_apart(vars(checks), "on")
# The value of unset ghosts, by kind of element type; both parts of complex numbers have views.
_UNSET = {"f": "nan", "c": complex("nan+nanj"), "M": "NaT", "m": "NaT"}


class Field:
    """What a field stores and knows without communication.

    The block is a NumPy array in logical order: components, then the dimensions of space, halo
    included. All block arguments are trusted here; `PencilArray` checks what users pass.
    """

    __slots__ = (
        *("__weakref__", "_frame", "_kept", "_kept_halo", "_kind", "_local", "_look", "_padded"),
        *("_pencil", "base", "lent", "shifts"),
    )
    _frame: BlockLayout
    _kept: Remembered[Any]  # missing before the first call of a verb that keeps something
    _kind: BlockType | None  # if it was found
    _local: Array
    _look: tuple[object, int, Array]  # missing before it is asked for
    _padded: Array
    _pencil: Pencil
    record: ClassVar[Callable[..., Any] | None] = None  # of traced fields: instead of `elementwise`
    base: Field  # the field of which this one is a section of space: missing if it is none
    lent: Any  # what `pencils.dap` imported, of which this is the field: None or missing if nothing
    shifts: dict[object, Field]  # views that `shift` has made: missing before the first one

    @classmethod
    def from_block(
        cls,
        pencil: Pencil,
        padded: Array,
        singletons: frozenset[int] = frozenset(),
        halo: Widths | None = None,
        trimmed: frozenset[int] = frozenset(),
    ) -> Self:
        """Wrap a block that is known to fit, without the checks of the constructor."""
        return cls.in_frame(pencil, frame_of(pencil, singletons, halo, trimmed), padded)

    @classmethod
    def in_frame(
        cls, pencil: Pencil, frame: BlockLayout, padded: Array, kind: BlockType | None = None
    ) -> Self:
        """Wrap a block that is known to fit in a frame of the pencil; with its kind if known."""
        new = _new(cls)
        new._pencil = pencil
        new._frame = frame
        new._kind = kind
        new._padded = padded
        new._local = padded if frame.inside is None else padded[frame.inside]
        return new

    @classmethod
    def allocated(
        cls,
        pencil: Pencil,
        dtype: np.dtype[Any],
        components: tuple[int, ...] = (),
        singletons: frozenset[int] = frozenset(),
        halo: Widths | None = None,
        *,
        zero: bool = False,
        shared: bool = False,
    ) -> Self:
        """Make a field from arguments that are normalized. *Collective* if `shared`.

        The block is then in shared memory of the node, if there is enough.
        """
        frame = frame_of(pencil, singletons, halo)
        shape = frame.shape_of(components, dtype)
        if shared:
            nbytes = dtype.itemsize * prod(shape)
            memory = allocate_bytes(pencil, nbytes, zero=zero, shared=True)
            return cls.in_frame(pencil, frame, arrange(memory, pencil, dtype, shape))
        return cls.in_frame(pencil, frame, frame.make(shape, dtype, zero=zero))

    @classmethod
    def maker(
        cls,
        pencil: Pencil,
        dtype: np.dtype[Any],
        components: tuple[int, ...] = (),
        singletons: frozenset[int] = frozenset(),
        halo: Widths | None = None,
    ) -> Callable[[], Self]:
        """Return a function that makes fields of one kind; halo points are zero."""
        frame = frame_of(pencil, singletons, halo)
        shape, zero = frame.shape_of(components, dtype), frame.inside is not None
        new = frame.maker(shape, dtype, zero=zero)
        return lambda: in_frame(cls, pencil, frame, new())

    @property
    def frame(self) -> BlockLayout:
        """What all fields of this kind have in common; for the library."""
        return self._frame

    @property
    def kind(self) -> BlockType:
        """What fields with such own blocks have in common; for the library."""
        found = self._kind
        if found is None:
            found = self._kind = self._frame.bare.kind_of(self._local)
        return found

    @property
    def look(self) -> tuple[object, int, Array]:
        """An object that fields of one frame have whose blocks look alike, and the padded block.

        Between them is the id of the object that owns the memory. For the library.
        """
        try:
            return self._look
        except AttributeError:
            block: Any = self._padded
            key = block.dtype, block.shape, block.strides
            look = self._frame.looks.get(key)
            if look is None:
                look = object()
                self._frame.looks.add(key, look)
            while isinstance(block, np.ndarray) and block.base is not None:
                block = block.base
            self._look = look, id(block), self._padded
            return self._look

    @property
    def kept(self) -> Remembered[Any]:
        """Calls of verbs that were prepared for this field; for the library."""
        try:
            return self._kept
        except AttributeError:
            self._kept = Remembered(MOST_REMEMBERED)
            return self._kept

    @property
    def pencil(self) -> Pencil:
        """The decomposed grid."""
        return self._pencil

    @property
    def extent(self) -> Extent:
        """Layout and own block, singleton dimensions included; for the library's own plans."""
        return self._frame.extent

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape: components first, singleton dimensions as 1."""
        return self.components + self._frame.extent.shape

    @property
    def ndim(self) -> int:
        """Number of axes, components included."""
        return self._padded.ndim

    @property
    def size(self) -> int:
        """Global number of elements, each replica counted once."""
        kind = self._kind  # which traced fields do not have
        return prod(self.shape) if kind is None else kind.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._padded.dtype

    @property
    def components(self) -> tuple[int, ...]:
        """Shape of the leading axes that are not space."""
        return self._padded.shape[: self._padded.ndim - self._pencil.ndim]

    @property
    def singletons(self) -> frozenset[int]:
        """Space dimensions along which the field has extent 1 and is replicated."""
        return self._frame.singletons

    @property
    def halo(self) -> Widths:
        """Halo widths ``(lo, hi)`` of every space dimension, the same on all ranks."""
        return self._frame.halo

    @property
    def trimmed(self) -> frozenset[int]:
        """Space dimensions along which padded blocks end with the domain.

        Imported fields may have no memory there for boundary points and wrapped ghosts. Fields that
        pencils makes, ``u.copy()`` too, are not trimmed.
        """
        return self._frame.trimmed

    @property
    def halo_room(self) -> Widths:
        """Widths of `padded` around the own block: `halo`, but 0 where the field is `trimmed`."""
        return self._frame.halo_room

    @property
    def local(self) -> Array:
        """The own block, without halo: a NumPy view in logical order."""
        return self._local

    @local.setter
    def local(self, values: object) -> None:
        if values is not self._local:  # after ``u.local += 1`` it is
            self._local[...] = values
        if checks.on:
            self.mark_written()

    @property
    def padded(self) -> Array:
        """The own block with its halo: a NumPy view in logical order."""
        return self._padded

    @padded.setter
    def padded(self, values: object) -> None:
        if values is not self._padded:
            self._padded[...] = values

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of `local`."""
        return self._local.shape

    @property
    def local_slices(self) -> tuple[slice, ...]:
        """Global indices of the own block: ``global_array[u.local_slices]`` equals ``u.local``."""
        return self.global_box.slices()

    @property
    def global_box(self) -> Box:
        """Own block in global indices, component axes included; for the library's own plans."""
        box, components = self._frame.extent.box, self.components
        return Box((0,) * len(components) + box.start, components + box.stop)

    @property
    def real(self) -> Self:
        """Real part, a view."""
        return self.map_block(attrgetter("real"))

    @property
    def imag(self) -> Self:
        """Imaginary part, a view."""
        return self.map_block(attrgetter("imag"))

    def component(self, *index: int) -> Self:
        """One component as a field of its own, a view with the same halo.

        Parameters
        ----------
        *index : int
            Index along each component axis, or along the first few.

        Raises
        ------
        IndexError
            If there are fewer component axes, or the index is out of range.
        """
        key = as_ints("component", index)
        if len(key) > len(self.components):
            raise IndexError(
                f"component {key} has more indices than the field has component axes, "
                f"{self.components}"
            )
        return self.map_block(itemgetter(key))

    def unstack(self) -> list[Self]:
        """List the fields along the first component axis, as views: ``ux, uy, uz = u.unstack()``.

        Raises
        ------
        IndexError
            If there is no component axis.
        """
        if not self.components:
            raise IndexError("a field without component axes cannot be unstacked")
        return [self.component(i) for i in range(self.components[0])]

    def copy(self) -> Self:
        """Copy of the field, halo included; where it is trimmed, the copy has unset points."""
        frame, block = self._frame, self._padded
        if frame.trimmed:
            new = self.blank()
            np.copyto(self._room_in(new), block)
            return new
        if block.nbytes < LEAST and block.flags.c_contiguous and not frame.permuted:
            copied, kind = block.copy(), self._kind
        else:
            copied, kind = frame.make(block.shape, block.dtype), None
            np.copyto(copied, block)
        return in_frame(type(self), self._pencil, frame, copied, kind)  # type: ignore[no-any-return]

    def astype(self, dtype: DTypeLike) -> Self:
        """Copy converted to another element type, halo included."""
        new = self.blank(dtype)
        np.copyto(new.local, self._local, casting="unsafe")
        if self._padded is not self._local:
            with np.errstate(all="ignore"):  # ghosts may not be set yet
                np.copyto(self._room_in(new), self._padded, casting="unsafe")
        return new

    def _room_in(self, new: Field) -> Array:
        """View the points of a field like this one that this one has, too."""
        frame = self._frame
        if not frame.trimmed:
            return new.padded
        return new.padded[padded_slices(frame.extent.local_shape, frame.halo, frame.halo_room)]

    def fill(self, value: object) -> None:
        """Set every own point and every halo point to one `value`."""
        self._padded[...] = as_value("value", value, self.dtype)
        if hasattr(self, "base"):  # other points of the whole field have copies
            self.mark_written()

    def blank(self, dtype: DTypeLike | None = None, *, zero: bool = False) -> Self:
        """Make a field like this one, of another type if given; values are not set, or zero."""
        kind = self.dtype if dtype is None else as_dtype(dtype)
        frame = self._frame
        if frame.trimmed:
            frame = frame_of(self._pencil, frame.singletons, frame.halo)
        block = frame.make(frame.shape_of(self.components, kind), kind, zero=zero)
        return self.in_frame(self._pencil, frame, block)

    def map_block(self, view: Callable[[Array], Array]) -> Self:
        """View what a function takes of the block, on the same points; for the library."""
        part = self.in_frame(self._pencil, self._frame, view(self._padded))
        if hasattr(self, "base"):
            part.base = self.base.map_block(view)
        return part

    def mark_written(self) -> None:
        """Set the ghosts to NaN or NaT after a write to own points, while `checks` are on.

        Of a section, those of the whole field: other points have copies of its own points.
        """
        if not checks.on:
            return
        if hasattr(self, "base"):
            self.base.mark_written()
            return
        unset = _UNSET.get(self.dtype.kind)
        if self._padded is self._local or unset is None:
            return
        extent, room = self._frame.extent, self._frame.halo_room
        origin = extent.box.grow(room).start
        known = ghost_box(extent.box, extent.shape, extent.layout.periodic, room)
        for box in known.without(extent.box):
            key: Key = (Ellipsis, *box.slices(origin))
            self._padded[key] = unset

    def __repr__(self) -> str:
        pencil, box = self.pencil, self.extent.box
        owned = ", ".join(f"{lo}:{hi}" for lo, hi in zip(box.start, box.stop, strict=True))
        extras = [f"components {self.components}"] if self.components else []
        extras += [f"singleton dimensions {sorted(self.singletons)}"] if self.singletons else []
        extras += [f"halo {self.halo}"] if any(map(any, self.halo)) else []
        extras += [f"trimmed along {sorted(self.trimmed)}"] if self.trimmed else []
        lines = (
            f"<PencilArray {self.shape} {self.dtype}{''.join(', ' + extra for extra in extras)}>",
            f"  on {pencil!r}",
            f"  rank {pencil.rank} of {pencil.size} owns [{owned}], local shape {self.local_shape}",
            f"  local values {self._first_values()}".rstrip(),
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return a table and a picture for notebooks; local."""
        pencil, blocks = self.pencil, Blocks(self.extent, self.components, self.dtype.itemsize)
        extra = self._padded.nbytes - self._local.nbytes
        widths = {width for pair in self.halo for width in pair}
        halo = str(widths.pop() if len(widths) == 1 else self.halo)
        rows = [
            ("", "all ranks", f"rank {pencil.rank} of {pencil.size}"),
            ("shape", *blocks.shapes),
            ("bytes", *blocks.amounts),
            ("indices", "", blocks.indices),
            ("values", "", self._first_values()),
            ("dtype", str(self.dtype)),
            *([("components", str(self.components))] if self.components else []),
            ("process grid", blocks.grid),
            *([("halo", halo, text_bytes(extra))] if any(map(any, self.halo)) else []),
        ]
        return card("PencilArray", rows, svg(pencil.layout, pencil.rank))

    def _first_values(self) -> str:
        more = ["..."] if self.local.size > _SHOWN else []
        return " ".join([*map(str, self.local.flat[:_SHOWN]), *more])


in_frame: Any = vars(Field)["in_frame"].__func__  # as a method it takes longer to find
