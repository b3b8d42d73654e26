"""From a graph to its parts: what depends on which messages decides what is computed when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from pencils.graph.array import Array, Call, DataWrapper, Placeholder
from pencils.graph.messages import (
    CommunicationOpIdentifier,
    DistributedRecv,
    DistributedSend,
    DistributedSendRefHolder,
)
from pencils.graph.partition import DistributedGraphPart, DistributedGraphPartition
from pencils.graph.planning import Plan
from pencils.graph.reports import Report
from pencils.graph.tracing import Traced


def cut(traced: Traced, rank: int, plan: Plan) -> DistributedGraphPartition:
    """Cut the graph of one rank into parts, given when its messages travel."""
    early, late = _parts_of_messages(traced.report, plan.batches)
    count_of_parts = 1 + max((*early.values(), *late.values()), default=0)
    cutter = _Cutter(traced, rank, early, _parts_of_nodes(traced, late, count_of_parts - 1))
    cutter.rewrite()
    mine = (*early, *late)
    return DistributedGraphPartition(
        {pid: cutter.part(pid) for pid in range(count_of_parts)},
        cutter.outputs,
        tuple(traced.outputs),
        {message: plan.numbers[message] for message in mine},
    )


Parts = dict[CommunicationOpIdentifier, int]


def _parts_of_messages(
    report: Report, batches: Mapping[CommunicationOpIdentifier, int]
) -> tuple[Parts, Parts]:
    """Tell before which part each receive is complete, and after which part each send starts.

    Between two batches of messages lies one part, unless it would neither need the one nor feed
    the other.
    """
    slots = sorted(
        {batches[end.message] + 1 for end in report.recvs}
        | {batches[end.message] for end in report.sends}
    )
    number = {slot: pid for pid, slot in enumerate(slots)}
    early = {end.message: number[batches[end.message] + 1] for end in report.recvs}
    late = {end.message: number[batches[end.message]] for end in report.sends}
    return early, late


def _parts_of_nodes(traced: Traced, late: Parts, last: int) -> dict[Array, int]:
    """Tell in which part each node is computed: as late as what depends on it permits."""
    parts = dict.fromkeys(traced.nodes, last)
    for message, send in traced.sends.items():
        parts[send.data] = min(parts[send.data], late[message])
    for node in reversed(traced.nodes):
        needed = (
            [node.passthrough_data] if isinstance(node, DistributedSendRefHolder) else node.inputs
        )
        for other in (*needed, traced.same.get(node, node)):
            parts[other] = min(parts[other], parts[node])
    return parts | {node: parts[first] for node, first in traced.same.items()}


@dataclass
class _Contents:
    """What is found to belong to one part."""

    user_inputs: dict[str, None] = field(default_factory=dict)
    partition_inputs: dict[str, None] = field(default_factory=dict)
    outputs: dict[str, None] = field(default_factory=dict)
    recvs: dict[str, DistributedRecv] = field(default_factory=dict)
    sends: defaultdict[str, list[DistributedSend]] = field(
        default_factory=lambda: defaultdict(list)
    )


class _Cutter:
    """Rewrites a graph so that its parts know each other by names only."""

    def __init__(self, traced: Traced, rank: int, early: Parts, parts: dict[Array, int]) -> None:
        self._traced = traced
        self._rank = rank
        self._early = early
        self._parts = parts
        self.outputs: dict[str, Array] = {}
        self._contents: defaultdict[int, _Contents] = defaultdict(_Contents)
        self._new: dict[Array, Array] = {}
        self._names: dict[Array, str] = {}  # of what goes from one part to another, or is sent
        self._stand_ins: dict[str, Placeholder] = {}
        taken = {node.name for node in traced.nodes if isinstance(node, Placeholder)}
        self._fresh = _fresh_names(taken | set(traced.outputs))

    def rewrite(self) -> None:
        """Rewrite all nodes, then name what is sent and what is wanted."""
        for node in self._traced.nodes:
            if isinstance(node, DistributedRecv):
                self._name_recv(node)
            elif isinstance(node, Call):
                self._new[node] = self._rewritten(node, self._parts[node])
        for send in self._traced.sends.values():
            self._name_send(send)
        for name, node in self._traced.outputs.items():
            pid = self._parts[_value(node)]
            self.outputs[name] = self._seen_from(node, pid)
            self._contents[pid].outputs[name] = None

    def part(self, pid: int) -> DistributedGraphPart:
        """Make a part of what has been found."""
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
        if node in self._traced.same:
            self._names[node] = self._names[self._traced.same[node]]
            return
        message = CommunicationOpIdentifier(node.src_rank, self._rank, node.comm_tag)
        name = self._names[node] = next(self._fresh)
        found = self._contents[self._early[message]]
        found.recvs[name] = node

    def _name_send(self, send: DistributedSend) -> None:
        node = _value(send.data)
        pid = self._parts[node]
        if isinstance(node, Call):
            name = self._output_name(node)
        else:  # what is not computed here has another name already
            name = next(self._fresh)
            self.outputs[name] = self._seen_from(node, pid)
            self._contents[pid].outputs[name] = None
        data = self.outputs[name]
        copy = DistributedSend(data, send.dest_rank, send.comm_tag, tags=send.tags)
        self._contents[pid].sends[name].append(copy)

    def _rewritten(self, node: Call, pid: int) -> Call:
        args = tuple(
            self._seen_from(arg, pid) if isinstance(arg, Array) else arg for arg in node.args
        )
        if all(one is other for one, other in zip(args, node.args, strict=True)):
            return node
        return Call(node.func, args, node.options, node.shape, node.dtype, node.tags)

    def _seen_from(self, node: Array, pid: int) -> Array:
        """Return what stands for a node in the expressions of a part."""
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
        if name not in self._stand_ins:
            self._stand_ins[name] = Placeholder(name, node.shape, node.dtype)
        return self._stand_ins[name]

    def _output_name(self, node: Array) -> str:
        """Make a node an output of the part in which it is computed."""
        if node not in self._names:
            name = self._names[node] = next(self._fresh)
            self.outputs[name] = self._new[node]
            self._contents[self._parts[node]].outputs[name] = None
        return self._names[node]


def _value(node: Array) -> Array:
    """Return the node whose value this one has."""
    while isinstance(node, DistributedSendRefHolder):
        node = node.passthrough_data
    return node


def _fresh_names(taken: set[str]) -> Iterator[str]:
    return (name for number in count() if (name := f"_{number}") not in taken)
