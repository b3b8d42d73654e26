"""Partitions prepared for execution: numbered values, the steps that compute them, and messages.

A step is a node, or a part if the user passes a program for each part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from pencils.array.elementwise import fill
from pencils.array.operands import check_type
from pencils.comm import pool
from pencils.comm.mailbox import largest_tag
from pencils.comm.topology import attribute
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Call, DataWrapper, Placeholder
from pencils.graph.messages import CommunicationOpIdentifier
from pencils.graph.partition import (
    DistributedGraphPart,
    DistributedGraphPartition,
    PartitionInducedCycleError,
    check_names,
    in_turn,
)
from pencils.graph.rules import DType, Function, Shape

PartProgram = Callable[..., tuple[Any, Mapping[str, Any]]]
Step = tuple[Function, tuple[int, ...], int]  # values[out] = func(*(values[i] for i in args))


class SlotMessage(NamedTuple):
    """A message to or from another rank, and the value that it carries."""

    slot: int
    peer: int
    number: int  # tag for MPI
    name: Hashable  # tag of the user
    shape: Shape
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes of the value."""
        return prod(self.shape) * self.dtype.itemsize


class GraphProgram:
    """Steps in the order of their priority; each can be executed once its arguments are computed.

    ``add_steps(program, part)`` adds the steps of a part, and the slots of its outputs.
    """

    def __init__(
        self,
        partition: DistributedGraphPartition,
        rank: int,
        add_steps: Callable[[GraphProgram, DistributedGraphPart], None],
    ) -> None:
        check_names(partition)
        parts = in_turn(partition)
        if len(parts) < len(partition.parts):
            left = sorted(map(repr, partition.parts.keys() - {part.pid for part in parts}))
            raise PartitionInducedCycleError(f"parts need each other: {', '.join(left)}")
        # Not the partition itself: programs are kept as long as it lives.
        self._placeholders, self._numbers = partition.placeholders, partition.numbers
        self.values: list[Any] = []  # constants, by slot; None for all other values
        self.users: list[list[int]] = []  # steps that wait for each value
        self.uses: list[int] = []  # of each value, as an argument or a result of the graph
        self.steps: list[Step] = []  # the most urgent first
        self.waiting: list[int] = []  # number of values that each step waits for
        self.ready: list[int] = []  # steps that wait for nothing
        self.sends: dict[int, list[SlotMessage]] = {}  # messages that send each value
        self.recvs: list[list[SlotMessage]] = []  # receives of each part
        self.inputs: dict[str, tuple[int, Placeholder | None]] = {}  # slots of the user's values
        self.slots: dict[str, int] = {}  # of all values that have a name
        self._later: set[int] = set()  # slots that are filled during execution
        for part in parts:
            received: list[SlotMessage] = []
            for name, recv in part.name_to_recv_node.items():
                slot = self.slots[name] = self._later_slot()
                number = self._number(recv.identifier(rank))
                at = slot, recv.src_rank, number, recv.comm_tag
                received.append(SlotMessage(*at, recv.shape, recv.dtype))
            self.recvs.append(received)
            add_steps(self, part)
            for name, sends in part.name_to_send_nodes.items():
                for send in sends:
                    slot, number = self.slots[name], self._number(send.identifier(rank))
                    at = slot, send.dest_rank, number, send.comm_tag
                    message = SlotMessage(*at, send.data.shape, send.data.dtype)
                    self.sends.setdefault(slot, []).append(message)
        # Values that are sent, and known before the first step.
        self.early = [slot for slot in self.sends if slot not in self._later]
        self.outputs = {name: self.slots[name] for name in partition.overall_output_names}
        for slot in self.outputs.values():
            self.uses[slot] += 1
        # Receives are posted when those of all parts two steps earlier have completed, which bounds
        # the memory of long graphs: the number of these parts, and the parts two steps later.
        places = {part.pid: place for place, part in enumerate(parts)}
        needed = [{places[pid] for pid in part.needed_pids} for part in parts]
        earlier = [{lock for need in needs for lock in needed[need]} for needs in needed]
        self.locks = list(map(len, earlier))
        self.unlocks: list[list[int]] = [[] for _ in parts]
        for place, locks in enumerate(earlier):
            for lock in locks:
                self.unlocks[lock].append(place)

    def constant(self, value: Any) -> int:
        """Add a value; return its slot."""
        self.values.append(value)
        self.users.append([])
        self.uses.append(0)
        return len(self.values) - 1

    def step(self, func: Function, args: Iterable[int]) -> int:
        """Add a step; return the slot of its result."""
        slots = tuple(args)
        number = len(self.steps)
        waiting = [slot for slot in slots if slot in self._later]
        for slot in waiting:
            self.users[slot].append(number)
        for slot in slots:
            self.uses[slot] += 1
        if not waiting:
            self.ready.append(number)
        self.waiting.append(len(waiting))
        self.steps.append((func, slots, self._later_slot()))
        return self.steps[-1][-1]

    def slot_of(self, part: DistributedGraphPart, name: str) -> int:
        """Find the slot of an input of a part."""
        if name in part.user_input_names:
            if name not in self.inputs:
                self.inputs[name] = self.constant(None), self._placeholders.get(name)
            return self.inputs[name][0]
        if name not in self.slots:
            raise ArgumentError(f"part {part.pid!r} needs {name!r}, which is not among its inputs")
        return self.slots[name]

    def _later_slot(self) -> int:
        slot = self.constant(None)
        self._later.add(slot)
        return slot

    def _number(self, message: CommunicationOpIdentifier) -> int:
        """Return the tag of a message for MPI."""
        name = message.comm_tag
        number = self._numbers.get(message, name)
        if type(number) is int and number > largest_tag():
            raise ArgumentError(
                f"comm_tag {name!r}: MPI permits no tag {number} here, but 0..{largest_tag()}"
            )
        if type(number) is not int or number < 0:
            raise ArgumentError(
                f"comm_tag {name!r} of a partition that find_distributed_partition did not make "
                "must be a number: number_distributed_tags(comm, partition, base_tag) gives it one"
            )
        return number


def program_of_nodes(partition: DistributedGraphPartition, rank: int) -> GraphProgram:
    """Make a step of every node, in the order of the parts; nodes of sends come first."""
    data: dict[Array, int] = {}

    def add_nodes(program: GraphProgram, part: DistributedGraphPart) -> None:
        slots: dict[Array, int] = {}
        for node in partition.nodes_of(part):
            if isinstance(node, Placeholder):
                slots[node] = program.slot_of(part, node.name)
            elif isinstance(node, DataWrapper):
                slots[node] = data[node] if node in data else program.constant(node.data)
                data[node] = slots[node]
            elif isinstance(node, Call):
                slots[node] = _add_call(program, node, slots)
            else:
                raise ArgumentError(
                    f"{node!r} must not be inside a part: messages come before and after it"
                )
        for name in part.output_names:
            program.slots[name] = slots[partition.name_to_output[name]]

    return GraphProgram(partition, rank, add_nodes)


def _add_call(program: GraphProgram, node: Call, slots: Mapping[Array, int]) -> int:
    func: Function = partial(node.func, **node.options) if node.options else node.func
    if (
        isinstance(func, np.ufunc)
        and (func.nout, func.signature) == (1, None)
        and node.nbytes >= pool.LEAST
        and node.dtype.kind in "biufc"
        and all(x.shape in {(), node.shape} for x in node.inputs)
    ):
        func = partial(_filled, func=func, shape=node.shape, dtype=node.dtype)
    args = (slots[x] if isinstance(x, Array) else program.constant(x) for x in node.args)
    return program.step(func, args)


def _filled(*operands: Any, func: np.ufunc, shape: Shape, dtype: DType) -> Any:
    """Apply a ufunc in memory of the pool, in parts while messages are under way."""
    arrays = [x for x in operands if isinstance(x, np.ndarray) and x.ndim]
    if not all(type(x) is np.ndarray and x.flags.c_contiguous for x in arrays):
        return func(*operands)  # NumPy keeps the memory order
    return fill(func, operands, pool.empty(shape, dtype))


def program_of_parts(
    partition: DistributedGraphPartition,
    rank: int,
    programs: Mapping[Hashable, PartProgram],
    queue: Any,
    allocator: Any,
) -> GraphProgram:
    """Make a step of every part, and one of each of its outputs.

    Mistakes in `programs` raise when the steps are executed, so that other ranks are notified.
    """
    done: dict[Hashable, int] = {}

    def add_part(program: GraphProgram, part: DistributedGraphPart) -> None:
        names = sorted(part.all_input_names())

        def run(*values: Any) -> Mapping[str, Any]:
            """Call the user's program."""
            check_type("prg_per_partition", programs, Mapping)
            if part.pid not in programs:
                raise ArgumentError(f"prg_per_partition has no program for part {part.pid!r}")
            if "allocator" in names:
                raise ArgumentError(
                    "an input is called 'allocator', like an argument of all programs: rename it"
                )
            inputs = dict(zip(names, values, strict=False))
            _, results = programs[part.pid](queue, allocator=allocator, **inputs)
            missing = sorted(part.output_names - results.keys())
            if missing:
                raise ArgumentError(
                    f"the program of part {part.pid!r} does not return {', '.join(missing)}"
                )
            return results

        # The second ones are not used, but have to be computed before.
        args = [program.slot_of(part, name) for name in names]
        args += [done[pid] for pid in part.needed_pids]
        args += [program.slots[name] for name in part.name_to_recv_node]
        result = program.step(run, args)
        for name in sorted(part.output_names):
            program.slots[name] = program.step(itemgetter(name), [result])
        # If later parts waited for the results themselves, these would all be kept in memory.
        done[part.pid] = program.step(lambda _results: None, [result])

    return GraphProgram(partition, rank, add_part)


# Of each communicator: programs of partitions that were executed before.
programs = attribute(WeakKeyDictionary[DistributedGraphPartition, GraphProgram])
