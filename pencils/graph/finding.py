"""From outputs to parts: what depends on which messages decides what is computed when."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from pencils.comm.agree import agreed
from pencils.comm.mailbox import largest_tag
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Call, DataWrapper, DictOfNamedArrays, Placeholder
from pencils.graph.errors import CycleError
from pencils.graph.messages import (
    CommunicationOpIdentifier,
    DistributedRecv,
    DistributedSend,
    DistributedSendRefHolder,
)
from pencils.graph.partition import DistributedGraphPart, DistributedGraphPartition
from pencils.graph.reports import End, Report, check_messages, levels, numbered
from pencils.graph.walk import in_order

if TYPE_CHECKING:
    from mpi4py import MPI

START = 0  # the step of what needs no message


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
        text = _pickled(traced.report)
    texts = comm.allgather(text)
    with agreed(comm, "find_distributed_partition"):
        reports = [pickle.loads(text) for text in texts]  # noqa: S301 - from our own ranks
    found = plan(reports)
    most, limit = 1 + max(found.numbers.values(), default=0), 1 + largest_tag(comm)
    if most > limit:
        msg = f"there are {most} messages between two ranks; MPI tells {limit} apart here"
        raise ArgumentError(msg)
    return cut(traced, comm.rank, found)


@dataclass(frozen=True, slots=True)
class Traced:
    """The graph of one rank.

    Parameters
    ----------
    outputs : DictOfNamedArrays
        What is wanted.
    nodes : sequence of Array
        All nodes, in an order in which they can be computed.
    sends : mapping
        All sends, by their messages.
    report : Report
        What other ranks have to know.
    """

    outputs: DictOfNamedArrays
    nodes: Sequence[Array]
    sends: Mapping[CommunicationOpIdentifier, DistributedSend]
    report: Report


@dataclass(frozen=True, slots=True)
class Plan:
    """When each message travels, counted in batches; and the tag by which MPI knows it."""

    batches: Mapping[CommunicationOpIdentifier, int]
    numbers: Mapping[CommunicationOpIdentifier, int]


def trace(outputs: Mapping[str, Array], rank: int, size: int) -> Traced:
    """Find all that outputs need on one rank, and which messages need which others.

    Steps of the report stand for sets of receives; ``step: steps`` is the union of others. There
    is at most one for each node, so that long chains of messages cost no more than short ones.
    """
    named = DictOfNamedArrays(outputs)
    nodes = in_order(named.values())
    _check_inputs(nodes)
    sends: dict[DistributedSend, None] = {}
    recvs: list[End] = []
    needs: dict[object, list[object]] = {START: []}
    unions: dict[tuple[int, ...], int] = {}
    steps: dict[Array, int] = {}

    def union(inputs: Iterable[Array]) -> int:
        distinct = tuple(dict.fromkeys(steps[x] for x in inputs if steps[x] != START))
        if len(distinct) <= 1:
            return distinct[0] if distinct else START
        if distinct not in unions:
            unions[distinct] = len(needs)
            needs[len(needs)] = list(distinct)
        return unions[distinct]

    for node in nodes:
        if isinstance(node, DistributedRecv):
            message = CommunicationOpIdentifier(node.src_rank, rank, node.comm_tag)
            _check_peer(node.src_rank, size, message)
            recvs.append(End(message, node.shape, node.dtype, len(needs)))
            steps[node] = len(needs)
            needs[len(needs)] = []
        elif isinstance(node, DistributedSendRefHolder):
            sends[node.send] = None
            steps[node] = steps[node.passthrough_data]
        else:
            steps[node] = union(node.inputs)
    ends = []
    for send in sends:
        message = CommunicationOpIdentifier(rank, send.dest_rank, send.comm_tag)
        _check_peer(send.dest_rank, size, message)
        ends.append(End(message, send.data.shape, send.data.dtype, steps[send.data]))
    by_message = {end.message: send for end, send in zip(ends, sends, strict=True)}
    return Traced(named, nodes, by_message, Report(ends, recvs, needs))


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


def _pickled(report: Report) -> bytes:
    try:
        return pickle.dumps(report)
    except Exception as error:
        msg = f"a comm_tag of this graph cannot be pickled: {error}"
        raise TypeError(msg) from error


def plan(reports: Sequence[Report]) -> Plan:
    """Check the messages of all ranks and put them in order.

    Raises
    ------
    DistributedPartitionVerificationError
        If they do not make pairs, or wait for each other.
    """
    check_messages(reports)
    found, stuck = levels(reports)
    if stuck:
        circle = set(stuck)
        messages = [
            end.message
            for rank, report in enumerate(reports)
            for end in report.recvs
            if (rank, end.step) in circle
        ]
        msg = "messages wait for each other:" + "".join(f"\n  {message}" for message in messages)
        raise CycleError(msg)
    batches = {
        end.message: found[rank, end.step]
        for rank, report in enumerate(reports)
        for end in report.sends
    }
    return Plan(batches, numbered(reports, lambda message: message[:2]))


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
        for other in needed:
            parts[other] = min(parts[other], parts[node])
    return parts


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
