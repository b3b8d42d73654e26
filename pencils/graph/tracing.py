"""What one rank wants to know, and which of its messages need which others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pencils.errors import ArgumentError
from pencils.graph.array import Array, Placeholder, in_order
from pencils.graph.making import DictOfNamedArrays
from pencils.graph.messages import (
    CommunicationOpIdentifier,
    DistributedRecv,
    DistributedSend,
    DistributedSendRefHolder,
)
from pencils.graph.reports import End, Report, end_of

START = 0  # the step of what needs no message


@dataclass(frozen=True, slots=True)
class Traced:
    """The graph of one rank.

    Parameters
    ----------
    outputs : DictOfNamedArrays
        What is wanted.
    nodes : sequence of Array
        All nodes, in an order in which they can be computed.
    same : mapping
        Receives that are equal to one before them, and that one.
    sends : mapping
        All sends, by their messages.
    report : Report
        What other ranks have to know.
    """

    outputs: DictOfNamedArrays
    nodes: Sequence[Array]
    same: Mapping[Array, Array]
    sends: Mapping[CommunicationOpIdentifier, DistributedSend]
    report: Report


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
    received: defaultdict[CommunicationOpIdentifier, list[DistributedRecv]] = defaultdict(list)
    same: dict[Array, Array] = {}

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
            first = next(filter(node.equals, received[message]), None)
            if first is not None:
                same[node], steps[node] = first, steps[first]
                continue
            received[message].append(node)
            recvs.append(end_of(message, node, len(needs)))
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
        ends.append(end_of(message, send.data, steps[send.data]))
    by_message = {end.message: send for end, send in zip(ends, sends, strict=True)}
    return Traced(named, nodes, same, by_message, Report(ends, recvs, needs))


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
