"""Groups of ranks on one node that exchange data among themselves and with nobody else there."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from pencils.comm.mpi import MPI
from pencils.comm.shared import SharedPool
from pencils.comm.topology import Topology

# Ways to divide a node that are kept for each communicator; MPI libraries run out of communicators.
MOST_GROUPS = 16


class Group(NamedTuple):
    """Ranks that wait for each other.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator of the group.
    shared : SharedPool
        Memory that it shares.
    ranks : dict
        Rank in the group of its members, by their rank on the communicator of the topology.
    """

    comm: MPI.Intracomm
    shared: SharedPool
    ranks: dict[int, int]


def group_with(topology: Topology, peers: Iterable[int]) -> Group:
    """Find the group of this rank and its peers. *Collective* over the node.

    That is the whole node, unless the node falls apart into groups in which everyone is a peer of
    everyone else: the rows, or columns, of a process grid.

    Parameters
    ----------
    topology : Topology
        Whose node to look at.
    peers : iterable of int
        Ranks on this node that this one sends to or receives from.
    """
    node = topology.node
    members = sorted({topology.rank, *peers})
    digest = blake2b(np.array(members).tobytes(), digest_size=7).digest()
    mine = np.array([members[0], int.from_bytes(digest)], dtype=np.int64)
    table = np.empty((node.size, 2), dtype=np.int64)
    node.Allgather(mine, table)
    here = [topology.on_node[member] for member in members]
    apart = np.array([(table[here] == mine).all()])
    node.Allreduce(MPI.IN_PLACE, apart, op=MPI.LAND)
    groups = set(table[:, 0].tolist())
    key = table[:, 0].tobytes()
    room = key in topology.groups or len(topology.groups) < MOST_GROUPS
    if not apart[0] or len(groups) == 1 or not room:
        return Group(node, topology.staging, topology.on_node)
    if key not in topology.groups:
        comm = Topology.kind(node.Split(members[0], node.rank))
        topology.groups[key] = comm, SharedPool(comm, len(groups))
    comm, pool = topology.groups[key]
    return Group(comm, pool, {member: number for number, member in enumerate(members)})
