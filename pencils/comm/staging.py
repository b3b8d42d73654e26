"""Where the ranks of a node put data for each other: blocks of all ranks, and tables of addresses.

A `Segment` has a block of each rank on a node, which all of them view for as long as they need it.
In a `SharedMemoryGroup`, ranks take a block for one exchange, and write its address to a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pencils.comm.memory import Bytes
from pencils.comm.mpi import MPI
from pencils.comm.shared_memory import Buffers, SharedPool
from pencils.comm.topology import Topology, split

# Divisions of a node into groups that are kept for each communicator; the number of communicators
# of MPI libraries is limited.
MOST_GROUPS = 16

# State of a source: it needs a staging block, can be read in place, or was packed in a staging
# block.
NEEDS_STAGING, IN_PLACE, STAGED = range(3)
# Columns of an address table; strides follow.
STATE, WINDOW, OFFSET, STRIDES = range(4)


class Segment:
    """A block of each rank on a node, in memory that all of them share; see `allocate`."""

    def __init__(self, topology: Topology, own: Bytes, places: list[list[int]]) -> None:
        self._topology = topology
        self._places = places  # of each rank on the node: window, first byte, and bytes
        self.own = own  # of this rank; keeps the memory

    @classmethod
    def allocate(cls, topology: Topology, nbytes: int) -> Segment | None:
        """Allocate `nbytes` of this rank. *Collective* over the node.

        None on every rank of the node, with a warning, if there is no room.
        """
        pool, node = topology.shared, topology.node
        own = pool.allocate(nbytes)
        if own is None:
            return None
        places = np.empty((node.size, 3), np.int64)
        node.Allgather(np.array([*(pool.find(own) or ()), own.nbytes], np.int64), places)
        return cls(topology, own, places.tolist())

    def of(self, rank: int) -> Bytes:
        """View the block of a rank on this node, by its number among all ranks; local."""
        place = self._topology.on_node[rank]
        window, start, nbytes = self._places[place]
        memory = self._topology.shared.memory(place, window)
        return np.frombuffer(memory[start : start + nbytes], np.uint8)


class AddressTable:
    """Where the sources of all ranks of a group are: a row for each rank and array.

    The rows are the same memory on all ranks, kept alive by `block`, in window number `window`.
    """

    __slots__ = ("arrays", "block", "rows", "staging", "window", "writer")

    def __init__(self, rows: NDArray[np.int64], block: Bytes, window: int) -> None:
        self.rows = rows
        self.arrays = rows.shape[1]
        self.block = block
        self.window = window
        self.staging: Bytes | None = None  # of this rank, for the exchange under way
        self.writer: object = None  # token of the contents of this rank's rows


class SharedMemoryGroup:
    """Ranks of a node that exchange blocks, with their address tables and staging blocks.

    It is the whole node, unless the node divides into groups in which every rank exchanges blocks
    with every other one: the rows, or columns, of a process grid. Then barriers are of the group.
    Making one is *Collective* over the node; `peers` are ranks on it that this rank sends to or
    receives from, `numbers` some numbers, as many on every rank. `comm` is the private communicator
    of the group, `pool` the memory that it shares, `ranks` the rank in the group of each member, by
    rank in the topology, and `most` the largest of each of the numbers in the group.
    """

    def __init__(
        self,
        topology: Topology,
        peers: Iterable[int],
        axes: int,
        buffers: Buffers,
        numbers: Sequence[int] = (),
    ) -> None:
        self.topology = topology
        self.comm, self.pool, self.ranks, self.most = find_group(topology, peers, numbers)
        self.stages = False  # whether ranks need staging blocks; equal on all ranks
        self._columns = STRIDES + axes
        self._buffers = buffers
        self._idle: dict[int, list[AddressTable]] = {}  # by number of arrays

    def take_table(self, arrays: int) -> AddressTable | None:
        """Return an idle address table. *Collective* over the group if there is none.

        None on every rank if there is no room for one.
        """
        idle = self._idle.get(arrays)
        if idle:
            return idle.pop()
        return self._table(arrays, self.pool.allocate_common(self._nbytes(arrays)))

    def give_table(self, table: AddressTable) -> None:
        """Take back an address table, and its staging block."""
        if table.staging is not None:
            self._buffers.give_shared(self.pool, table.staging)
            table.staging = None
        self._idle.setdefault(table.arrays, []).append(table)

    def take_staging(self, nbytes: int) -> Bytes | None:
        """Return a block of at least `nbytes`, the same number on all ranks. *Collective*."""
        return self._buffers.take_shared(self.pool, nbytes)

    def has_room(self) -> bool:
        """Whether all ranks of the topology have shared memory. *Collective*.

        To be called once, before any table is taken.
        """
        slot, made = self.pool.slot(self._columns, self._nbytes(1))
        table = self._table(1, slot)
        if table is not None:
            self.give_table(table)
        # On one node `made` is the same on all ranks.
        if self.topology.nodes == 1 and not made:
            return True
        room = not self.topology.any_of([table is None])[0]
        if not room:  # somewhere: all ask for it again the next time
            self.pool.forget_slots(self._columns)
        return room

    def _nbytes(self, arrays: int) -> int:
        return self.comm.size * arrays * self._columns * np.dtype(np.int64).itemsize

    def _table(self, arrays: int, made: tuple[Bytes, Bytes] | None) -> AddressTable | None:
        """Make a table in common memory, which is that of the first rank; local."""
        if made is None:
            return None
        block, common = made
        found = self.pool.find(block)
        assert found is not None
        rows = common.view(np.int64).reshape(self.comm.size, arrays, self._columns)
        return AddressTable(rows, block, found[0])


Group: TypeAlias = "tuple[MPI.Intracomm, SharedPool, dict[int, int], list[int]]"


def find_group(topology: Topology, peers: Iterable[int], numbers: Sequence[int]) -> Group:
    """Attributes of a `SharedMemoryGroup`. *Collective* over the node."""
    node = topology.node
    members = sorted({topology.rank, *peers})
    mine = np.array([members[0], _digest(members), *numbers], dtype=np.int64)
    table = np.empty((node.size, len(mine)), dtype=np.int64)
    node.Allgather(mine, table)
    first = table[:, 0]
    key = first.tobytes()
    room = key in topology.groups or len(topology.groups) < MOST_GROUPS
    divided = room and (first != first[0]).any() and _is_divided(table, topology.on_node)
    if divided and key not in topology.groups:
        count = len(np.unique(first))
        try:
            comm = split(node, members[0])
        except MemoryError:  # on this node: the others do not wait
            divided = False
        else:
            topology.groups[key] = comm, SharedPool(comm, count)
    if not divided:
        return node, topology.shared, topology.on_node, table[:, 2:].max(0).tolist()
    comm, pool = topology.groups[key]
    most = table[first == members[0], 2:].max(0).tolist()
    return comm, pool, {member: number for number, member in enumerate(members)}, most


def _is_divided(table: NDArray[np.int64], on_node: Iterable[int]) -> bool:
    """Whether the ranks with the same first member all have exactly each other as members."""
    ranks = np.array(list(on_node))
    for first in np.unique(table[:, 0]):
        together = table[:, 0] == first
        if (table[together, 1] != _digest(sorted(ranks[together].tolist()))).any():
            return False
    return True


def _digest(members: list[int]) -> int:
    return int.from_bytes(blake2b(np.array(members, np.int64).tobytes(), digest_size=7).digest())
