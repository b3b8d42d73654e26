"""Partition the graphs of all ranks together."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pencils.comm.agree import agreed
from pencils.comm.mailbox import largest_tag
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Placeholder, in_order
from pencils.graph.messages import (
    CommunicationOpIdentifier,
    DistributedRecv,
    DistributedSend,
    DistributedSendRefHolder,
)
from pencils.graph.nodes import DictOfNamedArrays
from pencils.graph.partition import DistributedGraphPartition
from pencils.graph.parts import RankGraph, partition_graph
from pencils.graph.reports import Endpoint, MessageReport, endpoint, order_messages, to_bytes

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

START = 0  # the step of nodes that need no message


def find_distributed_partition(
    mpi_communicator: MPI.Intracomm, outputs: Mapping[str, Array]
) -> DistributedGraphPartition:
    """Split a graph into parts that communicate at their beginnings and ends only. *Collective*.

    No part depends on its own outputs, neither on this rank nor through messages. A value that is
    computed in one part and needed in a later one is an output of the first. Everything is computed
    once, in the last part that is early enough for all messages that depend on it.

    Parameters
    ----------
    mpi_communicator : mpi4py.MPI.Intracomm
        The ranks that build graphs together.
    outputs : DictOfNamedArrays or mapping of str to Array
        The results of this rank.

    Returns
    -------
    DistributedGraphPartition
        For `execute_distributed_partition`. It is the same in every run.

    Raises
    ------
    DistributedPartitionVerificationError
        On every rank the same of its subclasses, if sends and receives do not form pairs, or wait
        for each other.
    TypeError, ArgumentError
        On every rank, if the outputs of one are no graph.

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
    comm = topology_of(mpi_communicator).comm
    with agreed(comm, "find_distributed_partition"):
        graph = trace(outputs, comm.rank, comm.size)
        data = to_bytes(graph.report)
    every = comm.allgather(data)
    with agreed(comm, "find_distributed_partition"):
        reports = [pickle.loads(data) for data in every]  # noqa: S301 - from our own ranks
    batches, numbers = order_messages(reports)
    most, limit = 1 + max(numbers.values(), default=0), 1 + largest_tag()
    if most > limit:
        msg = f"there are {most} messages between two ranks; MPI_TAG_UB allows {limit} tags"
        raise ArgumentError(msg)
    return partition_graph(graph, comm.rank, batches, numbers)


def trace(outputs: Mapping[str, Array], rank: int, size: int) -> RankGraph:
    """List all nodes that outputs need on one rank, and which messages need which others.

    Steps of the report are sets of receives; ``step: steps`` is the union of others. There is at
    most one for each node, so that the report of a long chain of messages grows linearly.
    """
    named = DictOfNamedArrays(outputs)
    nodes = in_order(named.values())
    _check_inputs(nodes)
    steps = _Steps()
    received: defaultdict[CommunicationOpIdentifier, list[DistributedRecv]] = defaultdict(list)
    recvs: list[Endpoint] = []
    equal: dict[Array, Array] = {}
    sends: dict[DistributedSend, None] = {}
    for node in nodes:
        if isinstance(node, DistributedRecv):
            message = CommunicationOpIdentifier(node.src_rank, rank, node.comm_tag)
            _check_peer(node.src_rank, size, message)
            first = next(filter(node.equals, received[message]), None)
            if first is not None:
                equal[node], steps.of[node] = first, steps.of[first]
                continue
            received[message].append(node)
            recvs.append(endpoint(message, node, steps.new(node)))
        elif isinstance(node, DistributedSendRefHolder):
            sends[node.send] = None
            steps.of[node] = steps.of[node.passthrough_data]
        else:
            steps.of[node] = steps.union(node.inputs)
    ends = []
    for send in sends:
        message = CommunicationOpIdentifier(rank, send.dest_rank, send.comm_tag)
        _check_peer(send.dest_rank, size, message)
        ends.append(endpoint(message, send.data, steps.of[send.data]))
    by_message = {end.message: send for end, send in zip(ends, sends, strict=True)}
    return RankGraph(named, nodes, equal, by_message, MessageReport(ends, recvs, steps.needs))


class _Steps:
    """Sets of receives, numbered; each is one receive or the union of others."""

    def __init__(self) -> None:
        self.needs: dict[object, list[object]] = {START: []}
        self.of: dict[Array, int] = {}  # the receives that each node depends on
        self._unions: dict[tuple[int, ...], int] = {}

    def new(self, node: DistributedRecv) -> int:
        """Add the step of a receive."""
        self.of[node] = step = len(self.needs)
        self.needs[step] = []
        return step

    def union(self, inputs: Iterable[Array]) -> int:
        """Return the step of all receives that inputs depend on."""
        distinct = tuple(dict.fromkeys(self.of[x] for x in inputs if self.of[x] != START))
        if len(distinct) <= 1:
            return distinct[0] if distinct else START
        if distinct not in self._unions:
            self._unions[distinct] = len(self.needs)
            self.needs[len(self.needs)] = list(distinct)
        return self._unions[distinct]


def _check_peer(peer: int, size: int, message: CommunicationOpIdentifier) -> None:
    if not 0 <= peer < size:
        msg = f"message {message}: the communicator has ranks 0..{size - 1}"
        raise ArgumentError(msg)


def _check_inputs(nodes: Iterable[Array]) -> None:
    seen: dict[str, Placeholder] = {}
    for node in nodes:
        if isinstance(node, Placeholder):
            first = seen.setdefault(node.name, node)
            if (first.shape, first.dtype) != (node.shape, node.dtype):
                msg = f"there are two different inputs of the same name: {first!r} and {node!r}"
                raise ArgumentError(msg)
