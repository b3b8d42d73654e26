"""Split the graphs of all ranks into parts, between which messages are sent and received."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from operator import is_
from typing import TYPE_CHECKING

from pencils.comm.mailbox import largest_tag
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Call, DataWrapper, Placeholder, in_order
from pencils.graph.messages import (
    CommunicationOpIdentifier,
    DictOfNamedArrays,
    DistributedRecv,
    DistributedSend,
    DistributedSendRefHolder,
)
from pencils.graph.partition import DistributedGraphPart, DistributedGraphPartition
from pencils.graph.verify import Endpoint, MessageReport, gather_reports, order_messages

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

PartOf = dict[CommunicationOpIdentifier, int]
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
    traced: list[RankGraph] = []

    def report() -> MessageReport:
        traced.append(RankGraph(outputs, comm.rank, comm.size))
        return traced[0].report

    reports = gather_reports(comm, "find_distributed_partition", report)
    batches, numbers = order_messages(reports)
    most, limit = 1 + max(numbers.values(), default=0), 1 + largest_tag()
    if most > limit:
        raise ArgumentError(
            f"there are {most} messages between two ranks; MPI_TAG_UB allows {limit} tags"
        )
    return partition_graph(traced[0], batches, numbers)


class RankGraph:
    """The graph of one rank: all nodes that its outputs need, and a report of its messages.

    Steps of the report are sets of receives: one receive, or the union of other steps. There is at
    most one step for each node, so that the report of a long chain of messages grows linearly.
    """

    def __init__(self, outputs: Mapping[str, Array], rank: int, size: int) -> None:
        self.outputs = DictOfNamedArrays(outputs)
        self.rank, self._size = rank, size
        self.nodes = in_order(self.outputs.values())
        self.inputs: dict[str, Placeholder] = {}
        self.equal: dict[Array, Array] = {}  # receives that equal an earlier one, and that one
        self.report = MessageReport(rank, [], [], {START: []})
        received: defaultdict[CommunicationOpIdentifier, list[DistributedRecv]] = defaultdict(list)
        steps: dict[Array, int] = {}
        unions: dict[tuple[int, ...], int] = {}
        sends: dict[DistributedSend, None] = {}
        for node in self.nodes:
            if isinstance(node, DistributedSendRefHolder):
                sends[node.send] = None
                steps[node] = steps[node.passthrough_data]
            elif isinstance(node, DistributedRecv):
                known = received[self._message(node, node.src_rank)]
                first = next(filter(node.equals, known), None)
                if first is None:
                    known.append(node)
                    steps[node] = self._new_step([])
                    message = node.identifier(rank)
                    self.report.recvs.append(Endpoint.of(message, node, steps[node]))
                else:
                    self.equal[node] = first
                    steps[node] = steps[first]
            else:  # the step of all receives that inputs depend on
                needs = tuple(dict.fromkeys(steps[x] for x in node.inputs if steps[x] != START))
                if len(needs) > 1 and needs not in unions:
                    unions[needs] = self._new_step(needs)
                steps[node] = unions[needs] if len(needs) > 1 else needs[0] if needs else START
            if isinstance(node, Placeholder):
                other = self.inputs.setdefault(node.name, node)
                if (other.shape, other.dtype) != (node.shape, node.dtype):
                    raise ArgumentError(
                        f"there are two different inputs of the same name: {other!r} and {node!r}"
                    )
        self.sends = {self._message(send, send.dest_rank): send for send in sends}
        self.report.sends[:] = [
            Endpoint.of(send.identifier(rank), send.data, steps[send.data]) for send in sends
        ]

    def _message(
        self, node: DistributedSend | DistributedRecv, peer: int
    ) -> CommunicationOpIdentifier:
        """Identify the message of a node; its other rank must exist."""
        message = node.identifier(self.rank)
        if not 0 <= peer < self._size:
            raise ArgumentError(
                f"message {message}: the communicator has ranks 0..{self._size - 1}"
            )
        return message

    def _new_step(self, needs: Iterable[int]) -> int:
        step = len(self.report.needs)
        self.report.needs[step] = list(needs)
        return step


# The parts of one rank.


def partition_graph(
    graph: RankGraph,
    batches: Mapping[CommunicationOpIdentifier, int],
    numbers: Mapping[CommunicationOpIdentifier, int],
) -> DistributedGraphPartition:
    """Split the graph of one rank into parts, given the batch and the tag of each message.

    Between two batches of messages is one part, unless it would neither need the first batch nor
    compute values for the second.
    """
    recvs = {end.message: batches[end.message] + 1 for end in graph.report.recvs}
    sends = {end.message: batches[end.message] for end in graph.report.sends}
    pids = {batch: pid for pid, batch in enumerate(sorted({*recvs.values(), *sends.values()}))}
    last = max(0, len(pids) - 1)
    # The part that computes each node is the last one that all its users permit.
    parts = dict.fromkeys(graph.nodes, last)
    for message, send in graph.sends.items():
        parts[send.data] = min(parts[send.data], pids[sends[message]])
    for node in reversed(graph.nodes):
        needed = node.inputs
        if isinstance(node, DistributedSendRefHolder):
            needed = (node.passthrough_data,)
        for other in (*needed, graph.equal.get(node, node)):
            parts[other] = min(parts[other], parts[node])
    parts |= {node: parts[first] for node, first in graph.equal.items()}
    rewriter = _Rewriter(graph, {message: pids[batch] for message, batch in recvs.items()}, parts)
    return DistributedGraphPartition(
        {pid: rewriter.part(pid) for pid in range(last + 1)},
        rewriter.outputs,
        tuple(graph.outputs),
        {message: numbers[message] for message in (*recvs, *sends)},
    )


class _Rewriter:
    """Rewrites a graph so that its parts refer to each other by names only.

    `first` is the part that begins with each receive, and `parts` that which computes each node.
    """

    def __init__(self, graph: RankGraph, first: PartOf, parts: Mapping[Array, int]) -> None:
        self._graph, self._parts = graph, parts
        self.outputs: dict[str, Array] = {}
        self._names_of: defaultdict[int, list[str]] = defaultdict(list)  # outputs of each part
        self._recvs: defaultdict[int, dict[str, DistributedRecv]] = defaultdict(dict)
        self._sends: defaultdict[int, dict[str, list[DistributedSend]]] = defaultdict(dict)
        self._new: dict[Array, Array] = {}
        self._names: dict[Array, str] = {}  # of values that several parts use, or that are sent
        self._placeholders: dict[str, Placeholder] = {}
        taken = {*graph.inputs, *graph.outputs}
        self._fresh = (name for number in count() if (name := f"_{number}") not in taken)
        for node in graph.nodes:
            if node in graph.equal:
                self._names[node] = self._names[graph.equal[node]]
            elif isinstance(node, DistributedRecv):
                name = self._names[node] = next(self._fresh)
                self._recvs[first[node.identifier(graph.rank)]][name] = node
            elif isinstance(node, Call):
                args = tuple(
                    self._seen_from(arg, parts[node]) if isinstance(arg, Array) else arg
                    for arg in node.args
                )
                same = all(map(is_, args, node.args))
                self._new[node] = node if same else replace(node, args=args)
        for send in graph.sends.values():
            node = _value(send.data)
            # Inputs and receives have another name already.
            named = isinstance(node, Call)
            name = self._output_name(node) if named else self._add_output(next(self._fresh), node)
            copy = replace(send, data=self.outputs[name])
            self._sends[parts[node]].setdefault(name, []).append(copy)
        for name, node in graph.outputs.items():
            self._add_output(name, _value(node))

    def part(self, pid: int) -> DistributedGraphPart:
        """Collect what belongs to a part."""
        names = self._names_of[pid]
        nodes = in_order(self.outputs[name] for name in names)
        inputs = {node.name for node in nodes if isinstance(node, Placeholder)}
        return DistributedGraphPart(
            pid,
            frozenset({pid - 1} if pid else ()),
            frozenset(inputs & self._graph.inputs.keys()),
            frozenset(inputs - self._graph.inputs.keys()),
            frozenset(names),
            self._recvs[pid],
            self._sends[pid],
        )

    def _output_name(self, node: Array) -> str:
        """Make a node an output of the part that computes it."""
        if node not in self._names:
            self._names[node] = self._add_output(next(self._fresh), node)
        return self._names[node]

    def _add_output(self, name: str, node: Array) -> str:
        pid = self._parts[node]
        self.outputs[name] = self._seen_from(node, pid)
        self._names_of[pid].append(name)
        return name

    def _seen_from(self, node: Array, pid: int) -> Array:
        """Return a node as it appears in the expressions of a part."""
        node = _value(node)
        if isinstance(node, DataWrapper | Placeholder):
            return node
        if isinstance(node, Call) and self._parts[node] == pid:
            return self._new[node]
        name = self._names[node] if isinstance(node, DistributedRecv) else self._output_name(node)
        return self._placeholders.setdefault(name, Placeholder(name, node.shape, node.dtype))


def _value(node: Array) -> Array:
    """Return the node that computes the value of a node."""
    while isinstance(node, DistributedSendRefHolder):
        node = node.passthrough_data
    return node
