"""Points read where they lie, in memory that the ranks of a node share: no plan, no messages.

Every rank says in a table, which lies in shared memory as well, where its block is. A barrier
later all read the table, and the points they want; after another one blocks may be written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.comm.memory import array_at, fence
from pencils.comm.rows import Home, Points, fetcher
from pencils.comm.shared import Place
from pencils.comm.topology import Topology
from pencils.layout import Layout
from pencils.plan import Freeable, kept_plan

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

    def read(self, table: NDArray[np.int64], points: Points, columns: Sequence[Array]) -> None:
        """Complete what is under way, and read points of all components. *Collective*.

        Parameters
        ----------
        table : numpy.ndarray
            What `table_for` returns.
        points : Points
            What this rank asks for.
        columns : sequence of numpy.ndarray
            To be filled, for each component.
        """
        self.topology.complete()
        table[self.topology.rank] = self._row
        self._meet()
        homes = self._homes(table.tolist())
        # What is still read, here or by others, must not be overwritten meanwhile.
        used = [self.own, *points.coords]
        aliased = any(np.may_share_memory(*pair) for pair in product(used, columns))
        found = [np.empty_like(column) for column in columns] if aliased else columns
        for index, column in zip(np.ndindex(self.lead), found, strict=True):
            fetcher(points, [Home(block[index], start) for block, start in homes], column)()
        self._meet()
        for column, values in zip(columns, found, strict=True):
            if column is not values:
                column[:] = values

    @property
    def _row(self) -> list[int]:
        """Where the own block is."""
        place = self.topology.shared.place(self.own) if self.own.size else Place(0, 0)
        assert place is not None  # an empty block may be anywhere: nobody looks
        return [*place, *self.own.strides]

    def _homes(self, rows: Sequence[Sequence[int]]) -> list[Home]:
        """Find the block of every rank, and where it starts, in memory order."""
        found = []
        for rank, (window, offset, *strides) in enumerate(rows):
            box = self.layout.box(rank)
            shape = [box.shape[dim] for dim in self.layout.order]
            memory = self.topology.shared.memory(self.topology.on_node[rank], window)
            block = array_at(memory, (*self.lead, *shape), self.own.dtype, offset, strides)
            found.append(Home(block, [box.start[dim] for dim in self.layout.order]))
        return found

    def _meet(self) -> None:
        """Wait for the others; what was stored before it is seen after it."""
        fence()
        self.topology.comm.Barrier()
        fence()
