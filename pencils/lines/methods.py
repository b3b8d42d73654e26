"""Lines of a plan, and methods that solve them where they are or become whole on one rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Handle
from pencils.comm.memory import array_at
from pencils.comm.methods.shared import IN_PLACE, OFFSET, STRIDES, WINDOW, SharedMemoryGroup
from pencils.comm.pack import no_op
from pencils.comm.shared_memory import Buffers, synchronize
from pencils.layout.layout import Extent
from pencils.layout.split import Split
from pencils.pencil import Pencil
from pencils.transposition.plan import Transposition

T = TypeVar("T")
Run = Callable[[], object]

LOCAL, SHARED, REDUCED, TRANSPOSED = "local", "shared", "reduced", "transposed"


class Lines(NamedTuple):
    """The lines of fields of one kind, on one pencil, along the dimension `dim`."""

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
        return self if self.are_whole else self._replace(pencil=self.pencil.whole(self.dim))

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


class Bound:
    """A solve of given blocks. `run` and `start` are *Collective*; `reserve` allocates memory.

    `begin` starts to solve: it takes what `start` does. By default, starting solves at once.
    """

    ready = True  # nothing is left to prepare after the agreement about a call

    def __init__(
        self, run: Run, reserve: Run = no_op, begin: Callable[..., Handle[Any]] | None = None
    ) -> None:
        self.run, self.reserve, self._begin = run, reserve, begin

    def start(self, result: T, source: object, after: Run = no_op) -> Handle[T]:
        """Start; waiting calls `after` and returns `result`. The handle keeps the `source`."""
        if self._begin is not None:
            return self._begin(result, source, after)
        self.run()
        after()
        return Handle.completed(result)


class LineMethod(NamedTuple):
    """How the lines of a plan are solved: `bind` prepares to solve lines of a field; local."""

    name: str
    bind: Callable[[PencilArray, PencilArray], Bound]
    free: Run = no_op


# Prepares to solve lines whose segments are given one after the other: see `WholeLines.prepare`.
Solver: TypeAlias = "Callable[[Sequence[Array], Sequence[Array], int], Run]"


def local(lines: Lines, solver: Solver) -> LineMethod:
    """Each rank solves its lines, which are whole; ranks without points do nothing."""

    def bind(b: PencilArray, out: PencilArray) -> Bound:
        block, target = lines.block(b), lines.block(out)
        return Bound(solver([block], [target], lines.axis) if block.size else no_op)

    return LineMethod(LOCAL, bind)


def transposed(lines: Lines, whole: Lines, solver: Solver) -> LineMethod:
    """Fields move to a pencil on which lines are whole, and back. *Collective*."""
    topology, spec, buffers = lines.pencil.topology, lines.spec, Buffers()
    there = Transposition.for_spec(lines.pencil, whole.pencil, spec, AUTO, buffers=buffers)
    back = Transposition.for_spec(whole.pencil, lines.pencil, spec, AUTO, buffers=buffers)
    work = PencilArray.allocated(whole.pencil, *spec, shared=True)
    with agreed(topology.comm, "LineSolver"):
        solve = local(whole, solver).bind(work, work)

    def bind(b: PencilArray, out: PencilArray) -> Bound:
        first, last = there.prepared_one(b, work), back.prepared_one(work, out)

        def run(begun: Run = first.run, after: Run = no_op) -> None:
            begun()
            solve.run()
            last.run()
            after()

        def reserve() -> None:
            first.reserve()
            last.reserve()

        def begin(result: T, source: object, after: Run) -> Handle[T]:
            topology.complete()  # an older solve may use the lines that arrive
            return first.start(result, lambda: run(no_op, after), sources=source, agreed=False)

        return Bound(run, reserve, begin)

    def free() -> None:
        there.free()
        back.free()

    return LineMethod(TRANSPOSED, bind, free)


class SharedLines:
    """Each rank of a node solves some of the lines in the memory of all: nothing is moved.

    Its lines are those that it has on a pencil on which lines are whole. Making it is
    *Collective*.
    """

    name = SHARED

    def __init__(self, lines: Lines, whole: Lines, solver: Solver) -> None:
        self.lines, self._solver = lines, solver
        self._topology = topology = lines.pencil.topology
        self._peers = [lines.peer(part) for part in range(lines.split.parts)]
        columns = len(lines.spec.components) + lines.pencil.ndim
        self.group = SharedMemoryGroup(topology, self._peers, columns, Buffers())
        self.table = self.group.take_table(2)  # None if there is no room, perhaps here only
        self.met = False  # whether the ranks have met for the solve that comes next
        box, mine = lines.extent.box, whole.extent.box
        self._start = [
            0 if dim == lines.dim else mine.start[dim] - box.start[dim]
            for dim in lines.pencil.order
        ]
        self._shape = [mine.shape[dim] for dim in lines.pencil.order]

    @staticmethod
    def fits(lines: Lines, whole: Lines) -> bool:
        """Whether the own lines, where they are whole, lie in own memory of the node; local."""
        on_node = lines.pencil.topology.on_node
        inner, outer = whole.extent.box, lines.extent.box
        inside = not inner.volume or all(
            outer.start[dim] <= inner.start[dim] and inner.stop[dim] <= outer.stop[dim]
            for dim in range(lines.pencil.ndim)
            if dim != lines.dim
        )
        near = all(lines.peer(part) in on_node for part in range(lines.split.parts))
        return near and inside and not lines.spec.singletons

    def reaches(self, u: PencilArray) -> bool:
        """Whether other ranks can read and write the own block of a field; local."""
        return not u.local.size or self._topology.is_shared(u.local)

    def bind(self, b: PencilArray, out: PencilArray) -> SharedSolve:
        """Prepare to publish where the blocks are; local."""
        return SharedSolve(self, [self.lines.block(b), self.lines.block(out)])

    def meet(self, bind: Callable[[], Bound | None]) -> Run:
        """Publish where the blocks of a solve are. *Collective* over the group.

        `bind` returns the solve, or None if other ranks do not reach the fields. Returns a function
        that prepares it, or raises what went wrong here; local.
        """
        assert self.table is not None
        bound: Bound | None = None
        error: Exception | None = None
        try:
            bound = bind()
            if isinstance(bound, SharedSolve):
                bound.publish()
        except Exception as mistake:  # noqa: BLE001 - the other ranks wait for this one
            bound, error = None, mistake
        if bound is None:  # other ranks may look there, but will not solve
            self.table.rows[self.group.comm.rank], self.table.writer = 0, None
        synchronize(self.group.comm)

        def prepare() -> None:
            if error is not None:
                raise error
            if isinstance(bound, SharedSolve):
                bound.prepare()

        return prepare

    def free(self) -> None:
        """Release the table of addresses."""
        self.table = None

    def rows(self, blocks: Sequence[Array]) -> Array:
        """Rows of the table of addresses for the own blocks."""
        found = []
        for block in blocks:
            window = self._topology.shared.find(block) if block.size else (0, 0)
            assert window is not None
            found.append((IN_PLACE, *window, *block.strides))
        return np.array(found, np.int64)

    def prepare(self) -> Run:
        """Prepare to solve own lines in the blocks that the table lists."""
        if 0 in self._shape or self.table is None:
            return no_op
        rows, ranks = self.table.rows, self.group.ranks
        sources, targets = (
            [
                self._segment(part, rows[ranks[peer], number].tolist())
                for part, peer in enumerate(self._peers)
            ]
            for number in range(2)
        )
        return self._solver(sources, targets, self.lines.axis)

    def _segment(self, part: int, row: Sequence[int]) -> Array:
        """View what a peer has of the own lines."""
        lines = self.lines
        start, stop = lines.split.bounds(part)
        lead = lines.spec.components
        shape = [*lead, *self._shape]
        shape[lines.axis] = stop - start
        if start == stop:
            return np.empty(shape, lines.spec.dtype)
        strides = row[STRIDES : STRIDES + len(shape)]
        ahead = zip(self._start, strides[len(lead) :], strict=True)
        offset = row[OFFSET] + sum(i * step for i, step in ahead)
        node_rank = self._topology.on_node[self._peers[part]]
        memory = self._topology.shared.memory(node_rank, row[WINDOW])
        return array_at(memory, shape, lines.spec.dtype, offset, strides)


class SharedSolve(Bound):
    """Solves lines in shared blocks: ranks meet before, and after.

    It is `ready` if it was ever prepared, and prepared anew if blocks of other ranks lie elsewhere.
    """

    ready = False

    def __init__(self, method: SharedLines, blocks: Sequence[Array]) -> None:
        super().__init__(self._solve_together)
        self._method = method
        self._mine = method.rows(blocks)
        self._seen = b""
        self._solve: Run = no_op

    def publish(self) -> None:
        """Write where the own blocks are; local."""
        table = self._method.table
        if table is not None and table.writer is not self:
            table.writer = self
            table.rows[self._method.group.comm.rank] = self._mine

    def prepare(self) -> None:
        """Prepare to solve own lines where the blocks are that the table lists; local."""
        table = self._method.table
        seen = b"" if table is None else table.rows.tobytes()
        if seen != self._seen:
            self._solve = self._method.prepare()
            self._seen = seen
        self.ready = True

    def _solve_together(self) -> None:
        method, comm = self._method, self._method.group.comm
        if not method.met:
            self.publish()
            synchronize(comm)
        method.met = False
        try:
            self.prepare()
            self._solve()
        finally:  # the other ranks go on, even if this one has no memory
            synchronize(comm)
