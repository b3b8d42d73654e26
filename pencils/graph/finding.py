"""Graphs of all ranks are cut into parts together."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pencils.comm.agree import agreed
from pencils.comm.mailbox import largest_tag
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.graph.array import Array
from pencils.graph.cutting import cut
from pencils.graph.partition import DistributedGraphPartition
from pencils.graph.planning import plan
from pencils.graph.reports import pack
from pencils.graph.tracing import trace

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


def find_distributed_partition(
    mpi_communicator: MPI.Intracomm, outputs: Mapping[str, Array]
) -> DistributedGraphPartition:
    """Cut a graph into parts that communicate at their beginnings and ends only. *Collective*.

    No part depends on its own outputs, neither on this rank nor by way of others. What is computed
    in one part and needed in a later one is an output of the first. Everything is computed once,
    in the last part that is early enough for all messages that depend on it.

    Parameters
    ----------
    mpi_communicator : mpi4py.MPI.Intracomm
        The ranks whose graphs belong together.
    outputs : DictOfNamedArrays or mapping of str to Array
        What this rank wants to know.

    Returns
    -------
    DistributedGraphPartition
        For `execute_distributed_partition`. It is the same in every run.

    Raises
    ------
    DistributedPartitionVerificationError
        On every rank the same of its children, if sends and receives do not make pairs, or wait
        for each other.
    TypeError, ArgumentError
        On every rank, if one of them passes something that is no graph.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from pencils.graph import make_distributed_recv, make_placeholder, staple_distributed_send
    >>> x = make_placeholder("x", (2,))
    >>> y = staple_distributed_send(2 * x, 0, "there", x)
    >>> z = y + make_distributed_recv(0, "there", (2,), float)
    >>> partition = find_distributed_partition(MPI.COMM_SELF, {"z": z})
    >>> len(partition.parts), sorted(partition.parts[1].user_input_names)
    (2, ['x'])
    """
    topology = topology_of(mpi_communicator)
    comm = topology.comm
    with agreed(comm, "find_distributed_partition"):
        traced = trace(outputs, comm.rank, comm.size)
        text = pack(traced.report)
    texts = comm.allgather(text)
    with agreed(comm, "find_distributed_partition"):
        reports = [pickle.loads(text) for text in texts]  # noqa: S301 - from our own ranks
    found = plan(reports)
    most, limit = 1 + max(found.numbers.values(), default=0), 1 + largest_tag()
    if most > limit:
        msg = f"there are {most} messages between two ranks; MPI tells {limit} apart here"
        raise ArgumentError(msg)
    return cut(traced, comm.rank, found)
