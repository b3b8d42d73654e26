"""Points read where they lie, in memory that the ranks of a node share: no plan, no messages.

Every rank says in a table, which lies in shared memory as well, where its block is. A barrier
later all read the table, and the points they want; after another one blocks may be written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm.exchange import UNDER_WAY, complete_all
from pencils.comm.rows import Home, Points, fetcher
from pencils.comm.shared import Place
from pencils.comm.topology import Topology
from pencils.layout import Layout
from pencils.plans import Freeable, kept_plan
from pencils.storage import Array

# Columns of the table; strides follow.
WINDOW, OFFSET, STRIDES = range(3)


class Table(Freeable):
    """A row for each rank, which says where its block is. Making one is *Collective*.

    Parameters
    ----------
    topology : Topology
        The ranks, all of which are on one node.
    axes : int
        Number of axes of blocks.

    Attributes
    ----------
    rows : numpy.ndarray or None
        The same memory on all ranks; None if there is no room for it.
    """

    def __init__(self, topology: Topology, axes: int) -> None:
        size, columns = topology.comm.size, STRIDES + axes
        nbytes = size * columns * np.dtype(np.int64).itemsize
        self._block = topology.shared.allocate(nbytes if topology.rank == 0 else 0)
        self.rows: NDArray[np.int64] | None = None
        if self._block is not None:
            peers = topology.shared.peers(self._block)
            assert peers is not None
            self.rows = peers[0].view(np.int64).reshape(size, columns)

    def free(self) -> None:
        """Give the memory back."""
        self._block = self.rows = None


def table_for(topology: Topology, axes: int) -> NDArray[np.int64] | None:
    """Return the table of ranks that are all on one node. *Collective*.

    None on every rank if they are not, or have no room for it.
    """
    if topology.nodes > 1:
        return None
    table: Table = kept_plan(topology, ("table", axes), lambda: Table(topology, axes))
    return table.rows


class Blocks(NamedTuple):
    """A field whose blocks can be read by all ranks.

    Parameters
    ----------
    topology : Topology
        The ranks.
    layout : Layout
        Says which points each of them owns.
    own : numpy.ndarray
        The own block in memory order, components first.
    lead : tuple of int
        Shape of the components.
    """

    topology: Topology
    layout: Layout
    own: Array
    lead: tuple[int, ...]

    @property
    def row(self) -> list[int]:
        """Where the own block is."""
        place = self.topology.shared.place(self.own) if self.own.size else Place(0, 0)
        assert place is not None  # an empty block may be anywhere: nobody looks
        return [*place, *self.own.strides]

    def homes(self, rows: Sequence[Sequence[int]]) -> list[tuple[Array, tuple[int, ...]]]:
        """Find the block of every rank, and where it starts, in memory order."""
        found = []
        for rank, (window, offset, *strides) in enumerate(rows):
            box = self.layout.box(rank)
            shape = [box.shape[dim] for dim in self.layout.order]
            memory = self.topology.shared.memory(self.topology.on_node[rank], window)
            block = np.ndarray((*self.lead, *shape), self.own.dtype, memory, offset, strides)
            found.append((block, tuple(box.start[dim] for dim in self.layout.order)))
        return found


class Reading:
    """Points to be read where they lie, as often as wanted.

    Parameters
    ----------
    blocks : Blocks
        The field.
    rows : numpy.ndarray
        The table of its ranks.
    points : Points
        What this rank asks for.
    columns : sequence of numpy.ndarray
        To be filled, for each component.
    result : numpy.ndarray
        What the user gets in the end.
    """

    def __init__(
        self,
        blocks: Blocks,
        rows: NDArray[np.int64],
        points: Points,
        columns: Sequence[Array],
        result: Array,
    ) -> None:
        self._blocks = blocks
        self._rows = rows
        self._row = np.array(blocks.row)
        self._points = points
        self._columns = columns
        self._result = result
        # What others still read must not be overwritten meanwhile.
        aliased = np.may_share_memory(blocks.own, result)
        self._found = [np.empty_like(column) for column in columns] if aliased else columns
        self._barrier = blocks.topology.comm.Barrier
        # Valid as long as the table says what it said when they were made.
        self._seen = b""
        self._syncs = blocks.topology.shared.syncs
        self._fetch: list[Callable[[], None]] = []

    def transfer(self) -> Reading:
        """Return itself: it may run again and again."""
        return self

    def run(self) -> Array:
        """Complete what is under way, and read the points. *Collective*."""
        if UNDER_WAY:
            complete_all()
        self._rows[self._blocks.topology.rank] = self._row
        self._meet()
        if self._rows.tobytes() != self._seen:
            self._prepare()
        for fetch in self._fetch:
            fetch()
        self._meet()
        if self._found is not self._columns:
            for column, found in zip(self._columns, self._found, strict=True):
                column[:] = found
        return self._result

    def _prepare(self) -> None:
        """Find the blocks of all ranks, after a change."""
        homes = self._blocks.homes(self._rows.tolist())
        self._fetch = [
            fetcher(self._points, [Home(block[index], start) for block, start in homes], column)
            for index, column in zip(np.ndindex(self._blocks.lead), self._found, strict=True)
        ]
        self._seen = self._rows.tobytes()

    def _meet(self) -> None:
        """Wait for the others; what was stored before it is seen after it."""
        for sync in self._syncs:
            sync()
        self._barrier()
        for sync in self._syncs:
            sync()
