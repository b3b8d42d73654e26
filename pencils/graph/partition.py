"""The parts of a graph, between which messages are sent and received: data, text, errors."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from pencils.errors import ArgumentError, PencilsError
from pencils.graph.array import Array, Call, Placeholder, in_order
from pencils.graph.messages import CommunicationOpIdentifier, DistributedRecv, DistributedSend

T = TypeVar("T", bound=Hashable)


class DistributedPartitionVerificationError(PencilsError, ValueError):
    """The messages in the graphs of all ranks do not match."""


class DuplicateSendError(DistributedPartitionVerificationError):
    """Several sends have the same source, destination and tag."""


class DuplicateRecvError(DistributedPartitionVerificationError):
    """Several receives that differ otherwise have the same source, destination and tag."""


class MissingSendError(DistributedPartitionVerificationError):
    """A receive has no matching send."""


class MissingRecvError(DistributedPartitionVerificationError):
    """A send has no matching receive."""


class MessageMismatchError(DistributedPartitionVerificationError):
    """A send and its receive have different shapes or types."""


class CycleError(DistributedPartitionVerificationError):
    """Messages wait for each other, so that none of them can be sent."""


class PartitionInducedCycleError(CycleError, AssertionError):
    """Parts wait for each other, so that none of them can be executed."""


class ExecutionError(PencilsError, RuntimeError):
    """A rank could not finish, because another one failed or its own graph makes no progress."""


@dataclass(frozen=True, slots=True, eq=False)
class DistributedGraphPart:
    """The inputs, outputs and messages of one part of a graph.

    It can be executed once all parts that it needs have been executed, and all its receives have
    completed. Then its sends can start.

    Parameters
    ----------
    pid : hashable
        Identifies this part.
    needed_pids : frozenset
        Parts that have to be executed before.
    user_input_names : frozenset of str
        Inputs given by the user.
    partition_input_names : frozenset of str
        Inputs that are received, or outputs of other parts.
    output_names : frozenset of str
        Values that the part computes for other parts, for messages or as results.
    name_to_recv_node : mapping
        Receives that complete before, by the names of the inputs.
    name_to_send_nodes : mapping
        Sends that start afterwards, by the names of the outputs.
    """

    pid: Hashable
    needed_pids: frozenset[Hashable]
    user_input_names: frozenset[str]
    partition_input_names: frozenset[str]
    output_names: frozenset[str]
    name_to_recv_node: Mapping[str, DistributedRecv]
    name_to_send_nodes: Mapping[str, Sequence[DistributedSend]]

    def all_input_names(self) -> frozenset[str]:
        """Names of all inputs."""
        return self.user_input_names | self.partition_input_names

    def given_names(self) -> list[str]:
        """Names that other parts can use: those of receives, and of all outputs."""
        return [*self.name_to_recv_node, *self.output_names]


@dataclass(frozen=True, eq=False, repr=False)
class DistributedGraphPartition:
    """The parts of a graph on this rank, as `find_distributed_partition` makes them.

    Parameters
    ----------
    parts : mapping
        The parts by their names.
    name_to_output : mapping
        The expression of every output of every part. In it, outputs of other parts and received
        values are `Placeholder` nodes.
    overall_output_names : sequence of str
        Names in `name_to_output` that are results of the whole graph.
    numbers : mapping, optional
        The tag of each message for MPI. Without it, tags must be integers: see
        `number_distributed_tags`.
    """

    parts: Mapping[Hashable, DistributedGraphPart]
    name_to_output: Mapping[str, Array]
    overall_output_names: Sequence[str]
    numbers: Mapping[CommunicationOpIdentifier, int] = field(default_factory=dict)

    @cached_property
    def placeholders(self) -> dict[str, Placeholder]:
        """The inputs of parts, by name."""
        nodes = in_order(self.name_to_output.values())
        return {node.name: node for node in nodes if isinstance(node, Placeholder)}

    def nodes_of(self, part: DistributedGraphPart) -> list[Array]:
        """List the nodes of a part, each after its inputs; those of its sends come first."""
        names = [*part.name_to_send_nodes, *sorted(part.output_names)]
        return in_order(self.name_to_output[name] for name in names)

    def __repr__(self) -> str:
        parts = _every_part(self)
        recvs = sum(len(part.name_to_recv_node) for part in parts)
        sends = sum(len(sends_of(part)) for part in parts)
        traffic = f"{_count_of(recvs, 'message')} received, {sends} sent"
        outputs = ", ".join(self.overall_output_names)
        number = _count_of(len(parts), "part")
        lines = [f"<DistributedGraphPartition: {number}, {traffic}, outputs {outputs}"]
        for part in parts:
            lines.append(f"  part {part.pid!r}: computes {_count_calls(self, part)}")
            lines += [
                f"    receives {recv.comm_tag!r} from rank {recv.src_rank}: {_size_of(recv)}"
                for recv in part.name_to_recv_node.values()
            ]
            lines += [
                f"    sends {send.comm_tag!r} to rank {send.dest_rank}: {_size_of(send.data)}"
                for send in sends_of(part)
            ]
        return "\n".join(lines) + ">"


# The order of parts.


def sort_steps(needs: Mapping[T, Iterable[T]]) -> list[T]:
    """List steps, each after those it needs; steps on or behind a cycle are left out."""
    sorter: graphlib.TopologicalSorter[T] = graphlib.TopologicalSorter()
    for step in needs:  # in this order, so that it does not depend on the order of sets
        sorter.add(step)
    for step, needed in needs.items():
        sorter.add(step, *needed)
    with suppress(graphlib.CycleError):  # all other steps can still be sorted
        sorter.prepare()
    found: list[T] = []
    while ready := sorter.get_ready():
        found += ready
        sorter.done(*ready)
    return found


def in_turn(partition: DistributedGraphPartition) -> list[DistributedGraphPart]:
    """List the parts, each after those it needs; parts on or behind a cycle are left out."""
    pids = sort_steps(needs_of(partition))
    return [partition.parts[pid] for pid in pids if pid in partition.parts]


def _every_part(partition: DistributedGraphPartition) -> list[DistributedGraphPart]:
    """List all parts, first those that can be executed, in that order."""
    parts = {part.pid: part for part in in_turn(partition)} | dict(partition.parts)
    return list(parts.values())


def needs_of(partition: DistributedGraphPartition) -> dict[Hashable, set[Hashable]]:
    """List the parts that each part needs: those it names, and those that compute its inputs."""
    origins = {name: pid for pid, part in partition.parts.items() for name in part.given_names()}
    needs = {}
    for pid, part in partition.parts.items():
        names = part.partition_input_names - part.name_to_recv_node.keys()
        needs[pid] = {*part.needed_pids, *(origins[name] for name in names & origins.keys())}
    return needs


def check_names(partition: DistributedGraphPartition) -> None:
    """Check that each name that parts, messages and results refer to exists exactly once."""
    parts = partition.parts
    given = Counter(name for part in parts.values() for name in part.given_names())
    for pid, part in parts.items():
        missing = [repr(need) for need in part.needed_pids if need not in parts]
        missing += [name for name in part.partition_input_names if name not in given]
        _check_none(f"part {pid!r} needs parts or values that do not exist", missing)
        unsent = part.name_to_send_nodes.keys() - part.output_names
        _check_none(f"part {pid!r} sends values that are none of its outputs", unsent)
        unknown = [name for name in part.output_names if name not in partition.name_to_output]
        _check_none(f"part {pid!r} has outputs without an expression", unknown)
    twice = [name for name, count in given.items() if count > 1]
    _check_none("there are several outputs or messages of the same name", twice)
    absent = set(partition.overall_output_names) - given.keys()
    _check_none("no part computes the result", absent)


def _check_none(what: str, names: Iterable[str]) -> None:
    listed = ", ".join(sorted(names))
    if listed:
        raise ArgumentError(f"{what}: {listed}")


# As text and as a drawing.

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def sends_of(part: DistributedGraphPart) -> list[DistributedSend]:
    """List the sends of a part."""
    return [send for sends in part.name_to_send_nodes.values() for send in sends]


def _count_calls(partition: DistributedGraphPartition, part: DistributedGraphPart) -> str:
    return _count_of(sum(isinstance(node, Call) for node in partition.nodes_of(part)), "node")


def _count_of(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)


def _size_of(node: Array) -> str:
    unit = min(max(node.nbytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{node.shape} {node.dtype}, {node.nbytes / 1024**unit:.3g} {_UNITS[unit]}"


def to_dot(partition: DistributedGraphPartition) -> str:
    r"""Draw the parts of this rank and their messages, in the language of Graphviz.

    Parameters
    ----------
    partition : DistributedGraphPartition
        The parts to draw.

    Returns
    -------
    str
        Input for ``dot -Tsvg``.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from pencils.graph import find_distributed_partition, make_placeholder
    >>> x = make_placeholder("x", (3,))
    >>> print(to_dot(find_distributed_partition(MPI.COMM_SELF, {"y": 2 * x})))
    digraph partition {
      node [shape=plain];
      "part 0" [shape=box, label="part 0: 1 node"];
      "input x" -> "part 0" [label="(3,) float64, 24 B"];
      "part 0" -> "output y" [label="(3,) float64, 24 B"];
    }
    """
    lines = ["digraph partition {", "  node [shape=plain];"]
    origins: dict[str, str] = {}  # of values that come from other parts or ranks

    def draw(tail: str, head: str, node: Array) -> None:
        label = _quoted(_size_of(node))
        lines.append(f"  {_quoted(tail)} -> {_quoted(head)} [label={label}];")

    for part in _every_part(partition):
        here = f"part {part.pid}"
        label = _quoted(f"{here}: {_count_calls(partition, part)}")
        lines.append(f"  {_quoted(here)} [shape=box, label={label}];")
        for name, recv in part.name_to_recv_node.items():
            origins[name] = f"{recv.comm_tag!r} from rank {recv.src_rank}"
        for node in partition.nodes_of(part):
            if isinstance(node, Placeholder):
                given = node.name in part.user_input_names
                origin = f"input {node.name}" if given else origins.get(node.name, node.name)
                draw(origin, here, node)
        origins |= dict.fromkeys(part.output_names, here)
        for send in sends_of(part):
            draw(here, f"{send.comm_tag!r} to rank {send.dest_rank}", send.data)
        for name in sorted(part.output_names.intersection(partition.overall_output_names)):
            draw(here, f"output {name}", partition.name_to_output[name])
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
