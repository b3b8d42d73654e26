"""Lines that are cut, solved as whole ones in the memory that the ranks of a node share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.comm.memory import array_at
from pencils.comm.methods.shared import (
    IN_PLACE,
    OFFSET,
    STRIDES,
    WINDOW,
    AddressTable,
    SharedMemoryGroup,
)
from pencils.comm.pack import no_op
from pencils.comm.shared_memory import Buffers, synchronize
from pencils.lines.methods import AtOnce, Bound, LineMethod, Lines, Solve
from pencils.lines.system import WholeLines


class Shared(LineMethod):
    """Each rank of a node solves some of the lines in the memory of all: nothing is moved.

    Its lines are those that it has on a pencil on which lines are whole. Making it is
    *Collective*.
    """

    name = "shared"

    def __init__(self, lines: Lines, whole: Lines, solver: WholeLines) -> None:
        self._lines, self._solver = lines, solver
        self._topology = topology = lines.pencil.topology
        self._parts = range(lines.split.parts)
        self._peers = [lines.peer(part) for part in self._parts]
        columns = len(lines.spec.components) + lines.pencil.ndim
        self.group = SharedMemoryGroup(topology, self._peers, columns, Buffers())
        self.table = self.group.take_table(2)  # None if there is no room, perhaps here only
        self.met = False  # whether the ranks have met for the solve that comes next
        box, mine = lines.extent.box, whole.extent.box
        self._start = tuple(
            0 if dim == lines.dim else mine.start[dim] - box.start[dim]
            for dim in lines.pencil.order
        )
        self._shape = tuple(mine.shape[dim] for dim in lines.pencil.order)

    @staticmethod
    def fits(lines: Lines, whole: Lines) -> bool:
        """Whether this rank can work so; local."""
        on_node = lines.pencil.topology.on_node
        near = all(lines.peer(part) in on_node for part in range(lines.split.parts))
        return near and not lines.spec.singletons and _is_inside(whole, lines)

    def reaches(self, u: PencilArray) -> bool:
        """Whether other ranks can read and write the own block of a field; local."""
        return not u.local.size or self._topology.is_shared(u.local)

    def bind(self, b: PencilArray, out: PencilArray) -> SharedSolve:
        """Prepare to publish where the blocks are."""
        return SharedSolve(self, [self._lines.block(b), self._lines.block(out)])

    def meet(
        self,
        b: PencilArray,
        out: PencilArray,
        bind: Callable[[Shared, PencilArray, PencilArray], Bound],
    ) -> Solve:
        """Publish where two fields are, if other ranks reach them. *Collective* over the group.

        `bind` keeps what it binds. Returns a function that prepares the solve, or raises what went
        wrong here; local.
        """
        assert self.table is not None
        bound: SharedSolve | None = None
        error = None
        try:
            if self.reaches(b) and self.reaches(out):
                found = bind(self, b, out)
                assert isinstance(found, SharedSolve)
                found.publish(self.table)
                bound = found
        except Exception as mistake:  # noqa: BLE001 - the other ranks wait for this one
            error = mistake
        if bound is None:  # other ranks may look there, but will not solve
            self.table.rows[self.group.comm.rank], self.table.writer = 0, None
        synchronize(self.group.comm)

        def prepare() -> None:
            if error is not None:
                raise error
            if bound is not None and self.table is not None:
                bound.prepare(self.table)

        return prepare

    def free(self) -> None:
        """Release the table of addresses."""
        self.table = None

    def rows(self, blocks: Sequence[Array]) -> Array:
        """Rows of the table of addresses for the own blocks."""
        found = []
        for block in blocks:
            place = self._topology.shared.find(block) if block.size else (0, 0)
            assert place is not None
            found.append((IN_PLACE, *place, *block.strides))
        return np.array(found, np.int64)

    def prepare(self, table: AddressTable) -> Solve:
        """Prepare to solve own lines in the blocks that the table lists."""
        if 0 in self._shape:
            return no_op
        sources, targets = (
            [
                self._segment(part, table.rows[self.group.ranks[peer], number].tolist())
                for part, peer in zip(self._parts, self._peers, strict=True)
            ]
            for number in range(2)
        )
        return self._solver.prepare(sources, targets, self._lines.axis)

    def _segment(self, part: int, row: Sequence[int]) -> Array:
        """View what a peer has of the own lines."""
        lines = self._lines
        start, stop = lines.split.bounds(part)
        lead = lines.spec.components
        shape = [*lead, *self._shape]
        shape[lines.axis] = stop - start
        if start == stop:
            return np.empty(shape, lines.spec.dtype)
        strides = row[STRIDES : STRIDES + len(shape)]
        offset = row[OFFSET] + sum(
            i * step for i, step in zip(self._start, strides[len(lead) :], strict=True)
        )
        memory = self._topology.shared.memory(
            self._topology.on_node[self._peers[part]], row[WINDOW]
        )
        return array_at(memory, shape, lines.spec.dtype, offset, strides)


class SharedSolve(AtOnce):
    """Solves lines in shared blocks: ranks meet before, and after.

    Attributes
    ----------
    ready : bool
        Whether it was ever prepared. It is prepared anew if blocks of other ranks lie elsewhere.
    """

    def __init__(self, method: Shared, blocks: Sequence[Array]) -> None:
        super().__init__(self._solve_together)
        self.ready = False
        self._method = method
        self._mine = method.rows(blocks)
        self._seen = b""
        self._solve: Solve = no_op

    def publish(self, table: AddressTable) -> None:
        """Write where the own blocks are; local."""
        if table.writer is not self:
            table.writer = self
            table.rows[self._method.group.comm.rank] = self._mine

    def prepare(self, table: AddressTable) -> None:
        """Prepare to solve own lines where the blocks are that the table lists; local."""
        seen = table.rows.tobytes()
        if seen != self._seen:
            self._solve = self._method.prepare(table)
            self._seen = seen
        self.ready = True

    def _solve_together(self) -> None:
        method, group, table = self._method, self._method.group, self._method.table
        assert table is not None
        if not method.met:
            self.publish(table)
            synchronize(group.comm)
        method.met = False
        try:
            self.prepare(table)
            self._solve()
        finally:  # the other ranks go on, even if this one has no memory
            synchronize(group.comm)


def is_ready(bound: Bound) -> bool:
    """Whether nothing of a solve is left to prepare after the agreement about it; local."""
    return not isinstance(bound, SharedSolve) or bound.ready


def _is_inside(whole: Lines, lines: Lines) -> bool:
    """Whether the own lines, where they are whole, are among those of the own block."""
    inner, outer = whole.extent.box, lines.extent.box
    return not inner.volume or all(
        outer.start[dim] <= inner.start[dim] and inner.stop[dim] <= outer.stop[dim]
        for dim in range(lines.pencil.ndim)
        if dim != lines.dim
    )
