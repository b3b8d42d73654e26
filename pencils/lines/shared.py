"""Lines that are cut, solved as whole ones in the memory that the ranks of a node share."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.comm.memory import array_at
from pencils.comm.pack import no_op
from pencils.comm.shared_group import (
    IN_PLACE,
    OFFSET,
    STRIDES,
    WINDOW,
    AddressTable,
    SharedMemoryGroup,
)
from pencils.comm.shared_memory import Buffers, synchronize
from pencils.lines.methods import AtOnce, LineMethod, Solve
from pencils.lines.system import WholeLines
from pencils.lines.task import Bound, Lines


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

    def bind(self, b: PencilArray, out: PencilArray) -> Bound:
        """Prepare to publish where the blocks are."""
        return AtOnce(_SharedSolve(self, [self._lines.block(b), self._lines.block(out)]))

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

    def room(self) -> Array | None:
        """Return memory for `prepare`, to be taken while ranks can still raise together."""
        shape = [*self._lines.spec.components, *self._shape]
        del shape[self._lines.axis]
        return self._solver.room(prod(shape))

    def prepare(self, table: AddressTable, room: Array | None) -> Solve:
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
        return self._solver.prepare(sources, targets, self._lines.axis, room)

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


class _SharedSolve:
    """Solves lines in shared blocks: ranks meet before, and after."""

    def __init__(self, method: Shared, blocks: Sequence[Array]) -> None:
        self._method = method
        self._mine = method.rows(blocks)
        self._room = method.room()
        self._seen = b""
        self._solve: Solve = no_op

    def __call__(self) -> None:
        group, table = self._method.group, self._method.table
        assert table is not None
        if table.writer is not self:
            table.writer = self
            table.rows[group.comm.rank] = self._mine
        synchronize(group.comm)
        try:
            seen = table.rows.tobytes()
            if seen != self._seen:
                self._solve = self._method.prepare(table, self._room)
                self._seen = seen
            self._solve()
        finally:  # the other ranks go on, even if this one has no memory
            synchronize(group.comm)


def _is_inside(whole: Lines, lines: Lines) -> bool:
    """Whether the own lines, where they are whole, are among those of the own block."""
    inner, outer = whole.extent.box, lines.extent.box
    return not inner.volume or all(
        outer.start[dim] <= inner.start[dim] and inner.stop[dim] <= outer.stop[dim]
        for dim in range(lines.pencil.ndim)
        if dim != lines.dim
    )
