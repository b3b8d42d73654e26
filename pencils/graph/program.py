"""Partitions prepared for execution: numbered values, the steps that compute them, and messages.

A step is a node, or a part if the user passes a program for each part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pencils.array.operands import check_type
from pencils.comm.mailbox import largest_tag
from pencils.comm.topology import Attribute
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Call, DataWrapper, Placeholder
from pencils.graph.errors import PartitionInducedCycleError
from pencils.graph.messages import CommunicationOpIdentifier
from pencils.graph.partition import (
    DistributedGraphPart,
    DistributedGraphPartition,
    check_names,
    in_turn,
)
from pencils.graph.rules import DType, Function, Shape

PartProgram = Callable[..., tuple[Any, Mapping[str, Any]]]
Step = tuple[Function, tuple[int, ...], int]  # values[out] = func(*(values[i] for i in args))


class SlotMessage(NamedTuple):
    """A message to or from another rank, and the value that it carries.

    Parameters
    ----------
    slot : int
        Number of the value.
    peer : int
        The other rank.
    number : int
        Tag for MPI.
    name : hashable
        Tag of the user.
    shape, dtype
        Of the value.
    """

    slot: int
    peer: int
    number: int
    name: Hashable
    shape: Shape
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes of the value."""
        return prod(self.shape) * self.dtype.itemsize


class ReceiveBatch(NamedTuple):
    """The receives of one part.

    They are posted when those of all parts two steps earlier have completed, which bounds the
    memory of long graphs: when `locks` other batches are complete. This one unlocks some in turn.
    """

    recvs: tuple[SlotMessage, ...]
    locks: int
    unlocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GraphProgram:
    """Steps in the order of their priority; each can be executed once its arguments are computed.

    Parameters
    ----------
    values : list
        Constants, by slot; None for all other values.
    steps : list of tuple
        Function, slots of the arguments and slot of the result; the most urgent step first.
    waiting : list of int
        Number of values that each step waits for.
    users : list of list of int
        Steps that wait for each value.
    uses : list of int
        Number of uses of each value, as an argument or a result of the graph.
    ready : list of int
        Steps that wait for nothing.
    sends : dict
        Messages that send each value.
    early : list of int
        Values among these that are known before the first step.
    batches : list of ReceiveBatch
        Messages that are received.
    inputs : dict
        Slots of the values that the user passes, by name.
    outputs : dict
        Slots of the results of the graph, by name.
    """

    values: list[Any]
    steps: list[Step]
    waiting: list[int]
    users: list[list[int]]
    uses: list[int]
    ready: list[int]
    sends: dict[int, list[SlotMessage]]
    early: list[int]
    batches: list[ReceiveBatch]
    inputs: dict[str, tuple[int, Placeholder | None]]
    outputs: dict[str, int]


def program_of_nodes(partition: DistributedGraphPartition, rank: int) -> GraphProgram:
    """Make a step of every node, in the order of the parts; nodes of sends come first."""
    builder = _ProgramBuilder(partition, rank)
    for part in builder.parts:
        builder.receive(part)
        slots: dict[Array, int] = {}
        for node in partition.nodes_of(part):
            slots[node] = builder.node(part, node, slots)
        for name in part.output_names:
            builder.slots[name] = slots[partition.name_to_output[name]]
        builder.send(part)
    return builder.program()


def program_of_parts(
    partition: DistributedGraphPartition,
    rank: int,
    programs: Mapping[Hashable, PartProgram],
    **options: Any,
) -> GraphProgram:
    """Make a step of every part, and one of each of its outputs.

    Mistakes in `programs` raise when the steps are executed, so that other ranks are notified.

    Parameters
    ----------
    partition : DistributedGraphPartition
        The parts.
    rank : int
        The rank that will execute it.
    programs : mapping
        For each part, a function of all its inputs that returns all its outputs.
    **options
        Passed to all programs.
    """
    builder = _ProgramBuilder(partition, rank)
    done: dict[Hashable, int] = {}
    for part in builder.parts:
        builder.receive(part)
        names = sorted(part.all_input_names())
        # These arguments are not used, but have to be there before.
        before = [done[pid] for pid in part.needed_pids]
        before += [builder.slots[name] for name in part.name_to_recv_node]
        func = partial(_run_part, programs, part, names, options)
        result = builder.step(func, [*(builder.slot_of(part, name) for name in names), *before])
        for name in sorted(part.output_names):
            builder.slots[name] = builder.step(partial(_pick, name), [result])
        # If later parts waited for the results themselves, these would all be kept in memory.
        done[part.pid] = builder.step(_no_value, [result])
        builder.send(part)
    return builder.program()


def _run_part(
    programs: Mapping[Hashable, PartProgram],
    part: DistributedGraphPart,
    names: list[str],
    options: dict[str, Any],
    *values: Any,
) -> Mapping[str, Any]:
    """Call the user's program for a part."""
    check_type("prg_per_partition", programs, Mapping)
    if part.pid not in programs:
        msg = f"prg_per_partition has no program for part {part.pid!r}"
        raise ArgumentError(msg)
    if "allocator" in names:
        msg = "an input is called 'allocator', like an argument of all programs: rename it"
        raise ArgumentError(msg)
    inputs = dict(zip(names, values, strict=False))
    _, results = programs[part.pid](options["queue"], allocator=options["allocator"], **inputs)
    missing = sorted(part.output_names - results.keys())
    if missing:
        msg = f"the program of part {part.pid!r} does not return {', '.join(missing)}"
        raise ArgumentError(msg)
    return results


def _no_value(_results: Mapping[str, Any]) -> None:
    """Return None once there are results."""


def _pick(name: str, results: Mapping[str, Any]) -> Any:
    return results[name]


class _ProgramBuilder:
    """Assigns slots to values, and collects steps and messages."""

    def __init__(self, partition: DistributedGraphPartition, rank: int) -> None:
        check_names(partition)
        self._partition = partition
        self._rank = rank
        self.parts = in_turn(partition)
        if len(self.parts) < len(partition.parts):
            left = sorted(map(repr, set(partition.parts) - {part.pid for part in self.parts}))
            msg = f"parts need each other: {', '.join(left)}"
            raise PartitionInducedCycleError(msg)
        self.slots: dict[str, int] = {}  # of values that have a name
        self._values: list[Any] = []
        self._later: set[int] = set()  # slots that are filled during execution
        self._steps: list[Step] = []
        self._inputs: dict[str, tuple[int, Placeholder | None]] = {}
        self._data: dict[DataWrapper, int] = {}
        self._sends: defaultdict[int, list[SlotMessage]] = defaultdict(list)
        self._recvs: dict[Hashable, tuple[SlotMessage, ...]] = {}

    def step(self, func: Function, args: Iterable[int]) -> int:
        """Add a step; return the slot of its result."""
        slots = tuple(args)
        slot = self._later_slot()
        self._steps.append((func, slots, slot))
        return slot

    def receive(self, part: DistributedGraphPart) -> None:
        """Add the receives of a part."""
        recvs = []
        for name, recv in part.name_to_recv_node.items():
            slot = self.slots[name] = self._later_slot()
            message = CommunicationOpIdentifier(recv.src_rank, self._rank, recv.comm_tag)
            recvs.append(self._message(slot, recv.src_rank, message, recv))
        self._recvs[part.pid] = tuple(recvs)

    def send(self, part: DistributedGraphPart) -> None:
        """Add the sends of a part."""
        for name, sends in part.name_to_send_nodes.items():
            slot = self.slots[name]
            for send in sends:
                message = CommunicationOpIdentifier(self._rank, send.dest_rank, send.comm_tag)
                self._sends[slot].append(self._message(slot, send.dest_rank, message, send.data))

    def node(self, part: DistributedGraphPart, node: Array, slots: Mapping[Array, int]) -> int:
        """Find or make the slot of a node, given those of its inputs."""
        if isinstance(node, Placeholder):
            return self.slot_of(part, node.name)
        if isinstance(node, DataWrapper):
            if node not in self._data:
                self._data[node] = self._constant(node.data)
            return self._data[node]
        if not isinstance(node, Call):
            msg = f"{node!r} must not be inside a part: messages come before and after it"
            raise ArgumentError(msg)
        func = partial(node.func, **node.options) if node.options else node.func
        return self.step(
            func,
            (slots[arg] if isinstance(arg, Array) else self._constant(arg) for arg in node.args),
        )

    def slot_of(self, part: DistributedGraphPart, name: str) -> int:
        """Find the slot of an input of a part."""
        if name in part.user_input_names:
            if name not in self._inputs:
                placeholder = self._partition.placeholders.get(name)
                self._inputs[name] = self._constant(None), placeholder
            return self._inputs[name][0]
        if name not in self.slots:
            msg = f"part {part.pid!r} needs {name!r}, which is not among its inputs"
            raise ArgumentError(msg)
        return self.slots[name]

    def program(self) -> GraphProgram:
        """Count which steps wait for which values."""
        outputs = {name: self.slots[name] for name in self._partition.overall_output_names}
        users: list[list[int]] = [[] for _ in self._values]
        uses = [0] * len(self._values)
        waiting = [0] * len(self._steps)
        for number, (_, args, _) in enumerate(self._steps):
            for slot in args:
                uses[slot] += 1
                if slot in self._later:
                    users[slot].append(number)
                    waiting[number] += 1
        for slot in outputs.values():
            uses[slot] += 1
        return GraphProgram(
            self._values,
            self._steps,
            waiting,
            users,
            uses,
            [number for number, count in enumerate(waiting) if count == 0],
            dict(self._sends),
            [slot for slot in self._sends if slot not in self._later],
            self._batches(),
            self._inputs,
            outputs,
        )

    def _constant(self, value: Any) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _later_slot(self) -> int:
        slot = self._constant(None)
        self._later.add(slot)
        return slot

    def _message(
        self, slot: int, peer: int, message: CommunicationOpIdentifier, array: Array
    ) -> SlotMessage:
        tag = message.comm_tag
        number = _check_number(self._partition.numbers.get(message, tag), tag)
        return SlotMessage(slot, peer, number, tag, array.shape, array.dtype)

    def _batches(self) -> list[ReceiveBatch]:
        number = {part.pid: position for position, part in enumerate(self.parts)}
        earlier = [
            {
                number[pid]
                for need in part.needed_pids
                for pid in self._partition.parts[need].needed_pids
            }
            for part in self.parts
        ]
        unlocks: list[list[int]] = [[] for _ in self.parts]
        for position, locks in enumerate(earlier):
            for lock in locks:
                unlocks[lock].append(position)
        return [
            ReceiveBatch(self._recvs[part.pid], len(locks), tuple(unlocked))
            for part, locks, unlocked in zip(self.parts, earlier, unlocks, strict=True)
        ]


def _check_number(number: object, name: Hashable) -> int:
    """Check that a message has a number that MPI permits."""
    if type(number) is int and number > largest_tag():
        msg = f"comm_tag {name!r}: MPI permits no tag {number} here, but 0..{largest_tag()}"
        raise ArgumentError(msg)
    if type(number) is not int or number < 0:
        msg = (
            f"comm_tag {name!r} of a partition that find_distributed_partition did not make must "
            "be a number: number_distributed_tags(comm, partition, base_tag) gives it one"
        )
        raise ArgumentError(msg)
    return number


# Of each communicator: programs of partitions that were executed before.
programs = Attribute(WeakKeyDictionary[DistributedGraphPartition, GraphProgram])
