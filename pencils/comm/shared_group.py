"""Groups of ranks on one node that read each other's arrays, and the tables of their addresses."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from math import prod

import numpy as np
from numpy.typing import NDArray

from pencils.comm.memory import Bytes
from pencils.comm.mpi import MPI
from pencils.comm.shared_memory import Buffers, SharedPool
from pencils.comm.topology import Topology, private_class

# Divisions of a node into groups that are kept for each communicator; the number of communicators
# of MPI libraries is limited.
MOST_GROUPS = 16

# State of a source: it needs a staging block, can be read in place, or was packed in a staging
# block.
NEEDS_STAGING, IN_PLACE, STAGED = range(3)
# Columns of an address table; strides follow.
STATE, WINDOW, OFFSET, STRIDES = range(4)


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
    receives from. `comm` is the private communicator of the group, `pool` the memory that it
    shares, `ranks` the rank in the group of each member, by rank in the topology.
    """

    def __init__(
        self, topology: Topology, peers: Iterable[int], axes: int, buffers: Buffers
    ) -> None:
        self.topology = topology
        self.comm, self.pool, self.ranks = find_group(topology, peers)
        self.stages = False  # whether ranks need staging blocks; equal on all ranks
        self._columns = STRIDES + axes
        self._buffers = buffers
        self._idle: dict[int, list[AddressTable]] = {}  # by number of arrays

    def take_table(self, arrays: int) -> AddressTable | None:
        """Return an idle address table. *Collective* over the group if there is none.

        None on every rank if there is no room for one.
        """
        idle = self._idle.get(arrays)
        return idle.pop() if idle else self._make_table(arrays)

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
        """Whether all ranks of the topology have shared memory. *Collective*."""
        table = self.take_table(1)
        if table is not None:
            self.give_table(table)
        return not self.topology.any_of([table is None])[0]

    def _make_table(self, arrays: int) -> AddressTable | None:
        """Allocate a table in the memory of the first rank. *Collective* over the group."""
        shape = self.comm.size, arrays, self._columns
        nbytes = prod(shape) * np.dtype(np.int64).itemsize
        made = self.pool.allocate_common(nbytes)
        if made is None:
            return None
        block, common = made
        found = self.pool.find(block)
        assert found is not None
        return AddressTable(common.view(np.int64).reshape(shape), block, found[0])


def find_group(
    topology: Topology, peers: Iterable[int]
) -> tuple[MPI.Intracomm, SharedPool, dict[int, int]]:
    """Communicator, memory and ranks of a `SharedMemoryGroup`. *Collective* over the node."""
    node = topology.node
    members = sorted({topology.rank, *peers})
    digest = blake2b(np.array(members).tobytes(), digest_size=7).digest()
    mine = np.array([members[0], int.from_bytes(digest)], dtype=np.int64)
    table = np.empty((node.size, 2), dtype=np.int64)
    node.Allgather(mine, table)
    here = [topology.on_node[member] for member in members]
    separate = np.array([(table[here] == mine).all()])
    node.Allreduce(MPI.IN_PLACE, separate, op=MPI.LAND)
    first = table[:, 0]
    key = first.tobytes()
    room = key in topology.groups or len(topology.groups) < MOST_GROUPS
    if not separate[0] or not room or (first == first[0]).all():
        return node, topology.shared, topology.on_node
    if key not in topology.groups:
        comm = private_class()(node.Split(members[0], node.rank))
        topology.groups[key] = comm, SharedPool(comm, len(np.unique(first)))
    comm, pool = topology.groups[key]
    return comm, pool, {member: number for number, member in enumerate(members)}
