"""Parts of a graph, between which messages are sent and received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pencils.errors import ArgumentError
from pencils.graph.array import Array, Placeholder, in_order
from pencils.graph.messages import CommunicationOpIdentifier, DistributedRecv, DistributedSend


@dataclass(frozen=True, slots=True, eq=False)
class DistributedGraphPart:
    """What one part of a graph needs and gives.

    It can be executed once the parts it needs are, and all it receives has arrived. Then what it
    sends can leave.

    Parameters
    ----------
    pid : hashable
        Names this part.
    needed_pids : frozenset
        Names of the parts that have to be executed before.
    user_input_names : frozenset of str
        Inputs given by the user.
    partition_input_names : frozenset of str
        Inputs that are received, or outputs of other parts.
    output_names : frozenset of str
        What the part computes for other parts, for messages or as a result.
    name_to_recv_node : mapping
        What is received before, by the name of the input.
    name_to_send_nodes : mapping
        What is sent afterwards, by the name of the output.
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
        """Names that other parts can use: what is received, and all outputs."""
        return [*self.name_to_recv_node, *self.output_names]


@dataclass(frozen=True, eq=False, repr=False)
class DistributedGraphPartition:
    """The parts of a graph on this rank, as `find_distributed_partition` makes them.

    Parameters
    ----------
    parts : mapping
        The parts by their names.
    name_to_output : mapping
        The expression of every output of every part. What a part gets from others, or by a message,
        is a `Placeholder` in there.
    overall_output_names : sequence of str
        Names in `name_to_output` that are results of the whole graph.
    numbers : mapping, optional
        The tag by which MPI knows each message. Without it, tags must be integers: see
        `number_distributed_tags`.
    """

    parts: Mapping[Hashable, DistributedGraphPart]
    name_to_output: Mapping[str, Array]
    overall_output_names: Sequence[str]
    numbers: Mapping[CommunicationOpIdentifier, int] = field(default_factory=dict)

    @cached_property
    def placeholders(self) -> dict[str, Placeholder]:
        """What stands for the inputs of parts, by name."""
        nodes = in_order(self.name_to_output.values())
        return {node.name: node for node in nodes if isinstance(node, Placeholder)}

    def nodes_of(self, part: DistributedGraphPart) -> list[Array]:
        """List what a part computes, in order; what it sends comes first."""
        names = [*part.name_to_send_nodes, *sorted(part.output_names)]
        return in_order(self.name_to_output[name] for name in names)

    def __str__(self) -> str:
        from pencils.graph.pictures import to_text

        return to_text(self)

    __repr__ = __str__


def in_turn(partition: DistributedGraphPartition) -> list[DistributedGraphPart]:
    """List the parts, each after those it needs, as far as there is such an order."""
    needs = needs_of(partition)
    done: dict[Hashable, DistributedGraphPart] = {}
    left = list(partition.parts.values())
    while left:
        waiting = []
        for part in left:
            if needs[part.pid] <= done.keys():
                done[part.pid] = part
            else:
                waiting.append(part)
        if len(waiting) == len(left):
            break
        left = waiting
    return list(done.values())


def needs_of(partition: DistributedGraphPartition) -> dict[Hashable, set[Hashable]]:
    """Tell which parts each part needs: those it names, and those that give its inputs."""
    givers = {name: pid for pid, part in partition.parts.items() for name in part.given_names()}
    return {
        pid: {
            *part.needed_pids,
            *(
                givers[name]
                for name in part.partition_input_names - part.name_to_recv_node.keys()
                if name in givers
            ),
        }
        for pid, part in partition.parts.items()
    }


def check_names(partition: DistributedGraphPartition) -> None:
    """Check that all that parts, messages and results refer to is there, and only once.

    Raises
    ------
    ArgumentError
        If it is not.
    """
    parts = partition.parts
    given = Counter(name for part in parts.values() for name in part.given_names())
    for pid, part in parts.items():
        missing = [*map(repr, part.needed_pids - parts.keys())]
        missing += part.partition_input_names - given.keys()
        _complain(f"part {pid!r} needs what does not exist", missing)
        unsent = part.name_to_send_nodes.keys() - part.output_names
        _complain(f"part {pid!r} sends what is none of its outputs", unsent)
        unknown = part.output_names - partition.name_to_output.keys()
        _complain(f"part {pid!r} has outputs without an expression", unknown)
    twice = [name for name, count in given.items() if count > 1]
    _complain("there are several outputs or messages of the same name", twice)
    absent = set(partition.overall_output_names) - given.keys()
    _complain("no part gives what is wanted as a result", absent)


def _complain(what: str, names: Iterable[str]) -> None:
    listed = ", ".join(sorted(names))
    if listed:
        msg = f"{what}: {listed}"
        raise ArgumentError(msg)
