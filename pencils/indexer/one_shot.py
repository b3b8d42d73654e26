"""Points of fields that are read or written once, without a plan where memory is shared.

All ranks of one node may read each other's blocks of shared fields. Each of them writes the
address of its block to a table in shared memory. After a barrier all read the table, and the points
that they request; after another barrier, blocks may be written again. No messages are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array, memory_axes
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.memory import array_at
from pencils.comm.pack import compiled
from pencils.comm.rows import fetch
from pencils.comm.shared_memory import synchronize
from pencils.comm.topology import Attribute, Topology
from pencils.indexer.points import PointIndexer
from pencils.plan import Agreement

_STRIDES = 2  # columns of the table before the strides of a block: its window, and its offset there

# Of each communicator: the table for blocks of each number of axes.
_tables = Attribute(dict[int, tuple[Any, NDArray[np.int64] | None]])


class OneShotIndexer(PointIndexer):
    """A plan for a single call, during which the coordinates do not change.

    Reading a shared field without messages takes less time than making a plan, but more than using
    one. It is done if all ranks are on one node.
    """

    _copies = False

    def take(self, u: PencilArray, out: Any = None) -> Array:
        """Read the points of a field; see `PointIndexer.take`. *Collective*."""
        with self._agreement("take") as agree:
            found = self._as_results(u, out, agree)
            private = compiled() is None or not self._topology.is_shared(u.padded)
            room = found if private else self._room(u, found)
            agree.flag(up=private)
        table = None if agree.flagged else _table_for(self._topology, u.ndim)
        if table is None:
            self.plan_take()
            with self._agreement("take"):
                request = self._bind_take(u, found, starts=False)
            return request.run()
        self._read_shared(u, table, room)
        if room is not found:
            found[...] = room
        return found

    def _agreement(self, call: str) -> Agreement:
        """Return the agreement on a call; errors name the method of fields."""
        return agreed(self._topology.comm, f"PencilArray.{call}")

    def _room(self, u: PencilArray, found: Array) -> Array:
        """Return memory for the points: `found`, unless a rank may still read what it overlaps."""
        used = [u.padded, *self._points.coords]
        aliased = any(np.may_share_memory(array, found) for array in used)
        return np.empty_like(found) if aliased else found

    def _read_shared(self, u: PencilArray, table: NDArray[np.int64], room: Array) -> None:
        """Complete what is under way, and read the points of all components. *Collective*."""
        own = u.local.transpose(memory_axes(self._layout.order, len(u.components)))
        self._topology.complete()
        table[self._topology.rank] = self._row(own)
        synchronize(self._topology.comm)
        homes = self._homes(table.tolist(), own, u.components)
        columns = room.reshape(prod(u.components), prod(self.shape))
        for index, column in zip(np.ndindex(u.components), columns, strict=True):
            fetch(self._points, [(block[index], start) for block, start in homes], column)
        synchronize(self._topology.comm)

    def _row(self, own: Array) -> list[int]:
        """Return the row of the table for the own block, in memory order."""
        found = self._topology.shared.find(own) if own.size else (0, 0)
        assert found is not None  # an empty block may be anywhere: it is not read
        return [*found, *own.strides]

    def _homes(
        self, rows: Sequence[Sequence[int]], own: Array, components: tuple[int, ...]
    ) -> list[tuple[Array, Sequence[int]]]:
        """Return the block of every rank, and the coordinates of its first point."""
        order = self._layout.order
        homes: list[tuple[Array, Sequence[int]]] = []
        for rank, (window, offset, *strides) in enumerate(rows):
            box = self._layout.box(rank)
            shape = (*components, *(box.shape[dim] for dim in order))
            memory = self._topology.shared.memory(self._topology.on_node[rank], window)
            block = array_at(memory, shape, own.dtype, offset, strides)
            homes.append((block, [box.start[dim] for dim in order]))
        return homes


def _table_for(topology: Topology, axes: int) -> NDArray[np.int64] | None:
    """Return the table for ranks that are all on one node, and blocks of `axes` axes. *Collective*.

    It is the same memory on all ranks. None on every rank if they are on several nodes, or there is
    no room.
    """
    if topology.nodes > 1:
        return None
    tables = _tables(topology)
    if axes not in tables:
        shape = topology.comm.size, _STRIDES + axes
        nbytes = prod(shape) * np.dtype(np.int64).itemsize
        own, common = topology.shared.allocate_common(nbytes) or (None, None)
        tables[axes] = own, None if common is None else common.view(np.int64).reshape(shape)
    return tables[axes][1]
