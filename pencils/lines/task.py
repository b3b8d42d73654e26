"""What all methods know about the lines of a plan."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
from pencils.array.operands import FieldSpec
from pencils.comm.exchange import Handle
from pencils.layout.layout import Extent
from pencils.layout.split import Split
from pencils.pencil import Pencil

T = TypeVar("T")


class Lines(NamedTuple):
    """The lines of fields of one kind along one dimension.

    Attributes
    ----------
    pencil : Pencil
        The pencil of the fields.
    dim : int
        Dimension of the lines.
    spec : FieldSpec
        Element type, components and singletons of the fields.
    """

    pencil: Pencil
    dim: int
    spec: FieldSpec

    @property
    def axis(self) -> int:
        """Axis of the lines in blocks whose axes are in memory order."""
        return len(self.spec.components) + self.pencil.order.index(self.dim)

    @property
    def extent(self) -> Extent:
        """Layout and own block of the fields."""
        return self.pencil.extent(self.spec.singletons)

    @property
    def split(self) -> Split:
        """How the lines are cut."""
        return self.pencil.layout.splits[self.dim]

    @property
    def part(self) -> int:
        """Number of the own part of each line."""
        return self.pencil.layout.parts(self.pencil.rank)[self.dim]

    @property
    def are_whole(self) -> bool:
        """Whether some part has all points of each line."""
        return self.split.parts == 1 or self.split.filled <= 1

    @property
    def whole(self) -> Lines:
        """The same lines, or those of the pencil on which they are whole."""
        return self if self.are_whole else self.on(self.pencil.whole(self.dim))

    def peer(self, part: int) -> int:
        """Rank that has another part of the same lines."""
        return self.pencil.rank + (part - self.part) * self.pencil.layout.strides[self.dim]

    def block(self, u: Field) -> Array:
        """Own block of a field, axes in memory order."""
        return u.local.transpose(memory_axes(self.pencil.order, len(self.spec.components)))

    def shape(self, points: int) -> tuple[int, ...]:
        """Shape of a block, axes in memory order, with other points along the lines."""
        local = self.extent.local_shape
        shape = [*self.spec.components, *(local[dim] for dim in self.pencil.order)]
        shape[self.axis] = points
        return tuple(shape)

    def on(self, pencil: Pencil) -> Lines:
        """Return the same lines on another pencil."""
        return self._replace(pencil=pencil)


class Bound(Protocol):
    """A solve of given blocks; its methods are *Collective*."""

    def reserve(self) -> None:
        """Allocate what the next call needs; local."""

    def run(self) -> None:
        """Solve."""

    def start(self, result: T, source: object) -> Handle[T]:
        """Start to solve; waiting returns `result`. The handle keeps the field `source`."""
