"""Lines of a plan, as all methods know them, and methods for lines that are or become whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Handle
from pencils.comm.pack import no_op
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology
from pencils.layout.layout import Extent
from pencils.layout.split import Split
from pencils.lines.system import WholeLines
from pencils.pencil import Pencil
from pencils.transposition.plan import Transposition
from pencils.transposition.sides import Move

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


Solve = Callable[[], None]


class LineMethod(ABC):
    """How the lines of a plan are solved. Making one is *Collective*."""

    name: ClassVar[str]

    @abstractmethod
    def bind(self, b: PencilArray, out: PencilArray) -> Bound:
        """Prepare to solve lines of `b`; local."""

    def free(self) -> None:  # noqa: B027 - some methods own nothing
        """Release memory and MPI objects."""


class AtOnce:
    """A solve that is complete when it was started."""

    def __init__(self, run: Solve) -> None:
        self.run = run

    def reserve(self) -> None:
        """Do nothing: all memory is there."""

    def start(self, result: T, source: object) -> Handle[T]:  # noqa: ARG002
        """Solve; there is nothing to wait for."""
        self.run()
        return Handle.completed(result)


class Local(LineMethod):
    """Each rank solves its lines, which are whole."""

    name = "local"

    def __init__(self, lines: Lines, solver: WholeLines) -> None:
        self._lines = lines
        self._solver = solver

    def bind(self, b: PencilArray, out: PencilArray) -> Bound:
        """Prepare to solve lines; ranks without points do nothing."""
        block, target = self._lines.block(b), self._lines.block(out)
        if not block.size:
            return AtOnce(no_op)
        return AtOnce(self._solver.prepare([block], [target], self._lines.axis))


class Transposed(LineMethod):
    """Fields move to a pencil on which lines are whole, and back."""

    name = "transposed"

    def __init__(self, lines: Lines, whole: Lines, solver: WholeLines) -> None:
        self._topology = lines.pencil.topology
        here, there, spec = lines.pencil, whole.pencil, lines.spec
        buffers = Buffers()
        self._there = Transposition.for_spec(here, there, spec, AUTO, buffers=buffers)
        self._back = Transposition.for_spec(there, here, spec, AUTO, buffers=buffers)
        self._work = PencilArray.allocated(there, *spec, shared=True)
        with agreed(self._topology.comm, "LineSolver"):
            self._solve = Local(whole, solver).bind(self._work, self._work)

    def bind(self, b: PencilArray, out: PencilArray) -> Bound:
        """Prepare the transposes."""
        there = self._there.prepared_one(b, self._work)
        back = self._back.prepared_one(self._work, out)
        return _BoundTransposed(self._topology, there, self._solve, back)

    def free(self) -> None:
        """Free the transposes."""
        self._there.free()
        self._back.free()


class _BoundTransposed:
    def __init__(self, topology: Topology, there: Move, solve: Bound, back: Move) -> None:
        self._topology = topology
        self._there = there
        self._solve = solve
        self._back = back

    def reserve(self) -> None:
        self._there.reserve()
        self._back.reserve()

    def run(self) -> None:
        self._there.run()
        self._finish()

    def start(self, result: T, source: object) -> Handle[T]:
        self._topology.complete()  # an older solve may use the lines that arrive
        return self._there.start(result, self._finish, sources=source, agreed=False)

    def _finish(self) -> None:
        self._solve.run()
        self._back.run()
