"""Split the graph of one rank into parts, given the order of all messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from pencils.graph.array import Array, Call, DataWrapper, Placeholder
from pencils.graph.messages import (
    CommunicationOpIdentifier,
    DistributedRecv,
    DistributedSend,
    DistributedSendRefHolder,
)
from pencils.graph.nodes import DictOfNamedArrays
from pencils.graph.partition import DistributedGraphPart, DistributedGraphPartition
from pencils.graph.reports import MessageReport

PartOf = dict[CommunicationOpIdentifier, int]


@dataclass(frozen=True, slots=True)
class RankGraph:
    """The graph of one rank.

    Parameters
    ----------
    outputs : DictOfNamedArrays
        Its results.
    nodes : sequence of Array
        All nodes, each after its inputs.
    equal : mapping
        Receives that are equal to an earlier one, and that one.
    sends : mapping
        All sends, by their messages.
    report : MessageReport
        Its messages, for the other ranks.
    """

    outputs: DictOfNamedArrays
    nodes: Sequence[Array]
    equal: Mapping[Array, Array]
    sends: Mapping[CommunicationOpIdentifier, DistributedSend]
    report: MessageReport


def partition_graph(
    graph: RankGraph,
    rank: int,
    batches: Mapping[CommunicationOpIdentifier, int],
    numbers: Mapping[CommunicationOpIdentifier, int],
) -> DistributedGraphPartition:
    """Split the graph of one rank into parts.

    Parameters
    ----------
    graph : RankGraph
        The graph.
    rank : int
        The rank.
    batches : mapping
        The batch in which each message is sent.
    numbers : mapping
        The tag of each message for MPI.
    """
    first, last = _parts_of_messages(graph.report, batches)
    parts = 1 + max((*first.values(), *last.values()), default=0)
    rewriter = _Rewriter(graph, rank, first, _parts_of_nodes(graph, last, parts - 1))
    rewriter.rewrite()
    return DistributedGraphPartition(
        {pid: rewriter.part(pid) for pid in range(parts)},
        rewriter.outputs,
        tuple(graph.outputs),
        {message: numbers[message] for message in (*first, *last)},
    )


def _parts_of_messages(
    report: MessageReport, batches: Mapping[CommunicationOpIdentifier, int]
) -> tuple[PartOf, PartOf]:
    """Find the part that begins with each receive, and the part that ends with each send.

    Between two batches of messages is one part, unless it would neither need the first batch nor
    compute values for the second.
    """
    slots = sorted(
        {batches[end.message] + 1 for end in report.recvs}
        | {batches[end.message] for end in report.sends}
    )
    number = {slot: pid for pid, slot in enumerate(slots)}
    first = {end.message: number[batches[end.message] + 1] for end in report.recvs}
    last = {end.message: number[batches[end.message]] for end in report.sends}
    return first, last


def _parts_of_nodes(graph: RankGraph, sent_after: PartOf, last: int) -> dict[Array, int]:
    """Find the part that computes each node: the last one that all its users permit."""
    parts = dict.fromkeys(graph.nodes, last)
    for message, send in graph.sends.items():
        parts[send.data] = min(parts[send.data], sent_after[message])
    for node in reversed(graph.nodes):
        needed = (
            [node.passthrough_data] if isinstance(node, DistributedSendRefHolder) else node.inputs
        )
        for other in (*needed, graph.equal.get(node, node)):
            parts[other] = min(parts[other], parts[node])
    return parts | {node: parts[first] for node, first in graph.equal.items()}


@dataclass
class _PartContents:
    """The names that are found to belong to one part."""

    user_inputs: dict[str, None] = field(default_factory=dict)
    partition_inputs: dict[str, None] = field(default_factory=dict)
    outputs: dict[str, None] = field(default_factory=dict)
    recvs: dict[str, DistributedRecv] = field(default_factory=dict)
    sends: defaultdict[str, list[DistributedSend]] = field(
        default_factory=lambda: defaultdict(list)
    )


class _Rewriter:
    """Rewrites a graph so that its parts refer to each other by names only."""

    def __init__(
        self, graph: RankGraph, rank: int, first: PartOf, parts: Mapping[Array, int]
    ) -> None:
        self._graph = graph
        self._rank = rank
        self._first = first
        self._parts = parts
        self.outputs: dict[str, Array] = {}
        self._contents: defaultdict[int, _PartContents] = defaultdict(_PartContents)
        self._new: dict[Array, Array] = {}
        self._names: dict[Array, str] = {}  # of values that several parts use, or that are sent
        self._placeholders: dict[str, Placeholder] = {}
        taken = {node.name for node in graph.nodes if isinstance(node, Placeholder)}
        self._fresh = _fresh_names(taken | set(graph.outputs))

    def rewrite(self) -> None:
        """Rewrite all nodes, then name all values that are sent, and all results."""
        for node in self._graph.nodes:
            if isinstance(node, DistributedRecv):
                self._name_recv(node)
            elif isinstance(node, Call):
                self._new[node] = self._rewritten(node, self._parts[node])
        for send in self._graph.sends.values():
            self._name_send(send)
        for name, node in self._graph.outputs.items():
            self._add_output(name, node, self._parts[_value(node)])

    def part(self, pid: int) -> DistributedGraphPart:
        """Make a part of its contents."""
        found = self._contents[pid]
        return DistributedGraphPart(
            pid,
            frozenset({pid - 1} if pid else ()),
            frozenset(found.user_inputs),
            frozenset(found.partition_inputs),
            frozenset(found.outputs),
            found.recvs,
            dict(found.sends),
        )

    def _name_recv(self, node: DistributedRecv) -> None:
        if node in self._graph.equal:
            self._names[node] = self._names[self._graph.equal[node]]
            return
        message = CommunicationOpIdentifier(node.src_rank, self._rank, node.comm_tag)
        name = self._names[node] = next(self._fresh)
        self._contents[self._first[message]].recvs[name] = node

    def _name_send(self, send: DistributedSend) -> None:
        node = _value(send.data)
        pid = self._parts[node]
        if isinstance(node, Call):
            name = self._output_name(node)
        else:  # inputs and receives have another name already
            name = next(self._fresh)
            self._add_output(name, node, pid)
        data = self.outputs[name]
        copy = DistributedSend(data, send.dest_rank, send.comm_tag, tags=send.tags)
        self._contents[pid].sends[name].append(copy)

    def _add_output(self, name: str, node: Array, pid: int) -> None:
        self.outputs[name] = self._seen_from(node, pid)
        self._contents[pid].outputs[name] = None

    def _rewritten(self, node: Call, pid: int) -> Call:
        args = tuple(
            self._seen_from(arg, pid) if isinstance(arg, Array) else arg for arg in node.args
        )
        if all(one is other for one, other in zip(args, node.args, strict=True)):
            return node
        return Call(node.func, args, node.options, node.shape, node.dtype, node.tags)

    def _seen_from(self, node: Array, pid: int) -> Array:
        """Return a node as it appears in the expressions of a part."""
        node = _value(node)
        found = self._contents[pid]
        if isinstance(node, DataWrapper):
            return node
        if isinstance(node, Placeholder):
            found.user_inputs[node.name] = None
            return node
        if isinstance(node, Call) and self._parts[node] == pid:
            return self._new[node]
        name = self._names[node] if isinstance(node, DistributedRecv) else self._output_name(node)
        found.partition_inputs[name] = None
        if name not in self._placeholders:
            self._placeholders[name] = Placeholder(name, node.shape, node.dtype)
        return self._placeholders[name]

    def _output_name(self, node: Array) -> str:
        """Make a node an output of the part that computes it."""
        if node not in self._names:
            name = self._names[node] = next(self._fresh)
            self.outputs[name] = self._new[node]
            self._contents[self._parts[node]].outputs[name] = None
        return self._names[node]


def _value(node: Array) -> Array:
    """Return the node that computes the value of a node."""
    while isinstance(node, DistributedSendRefHolder):
        node = node.passthrough_data
    return node


def _fresh_names(taken: set[str]) -> Iterator[str]:
    return (name for number in count() if (name := f"_{number}") not in taken)
