"""From partitions to programs: node by node, or part by part with programs of the user."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

from pencils.array.operands import check_type
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
from pencils.graph.program import Batch, Builder, Parcel, Program, check_number

PartProgram = Callable[..., tuple[Any, Mapping[str, Any]]]


def compile_nodes(partition: DistributedGraphPartition, rank: int) -> Program:
    """Make a step of every node; what messages need comes first, in the order of the parts."""
    wiring = _Wiring(partition, rank)
    for part in wiring.parts:
        wiring.receive(part)
        slots: dict[Array, int] = {}
        for node in partition.nodes_of(part):
            slots[node] = wiring.node(part, node, slots)
        for name in part.output_names:
            wiring.named[name] = slots[partition.name_to_output[name]]
        wiring.send(part)
    return wiring.program()


def compile_parts(
    partition: DistributedGraphPartition,
    rank: int,
    programs: Mapping[Hashable, PartProgram],
    **options: Any,
) -> Program:
    """Make a step of every part, and one of each of its outputs.

    What is wrong with `programs` is found out by the steps, where other ranks learn of it.

    Parameters
    ----------
    partition : DistributedGraphPartition
        The parts.
    rank : int
        Where it will be executed.
    programs : mapping
        By the name of the part, what gives all its outputs, given its inputs.
    **options
        Handed to all programs.
    """
    wiring = _Wiring(partition, rank)
    done: dict[Hashable, int] = {}
    for part in wiring.parts:
        wiring.receive(part)
        names = sorted(part.all_input_names())
        # Nobody reads these, but they come first.
        before = [done[pid] for pid in part.needed_pids]
        before += [wiring.named[name] for name in part.name_to_recv_node]
        func = _Part(programs, part, names, options)
        result = wiring.builder.step(func, [*(wiring.name(part, name) for name in names), *before])
        for name in sorted(part.output_names):
            wiring.named[name] = wiring.builder.step(partial(_pick, name), [result])
        # Whoever waited for the results themselves would keep all of them alive.
        done[part.pid] = wiring.builder.step(_forget, [result])
        wiring.send(part)
    return wiring.program()


class _Part:
    """A program of the user for one part."""

    def __init__(
        self,
        programs: Mapping[Hashable, PartProgram],
        part: DistributedGraphPart,
        names: list[str],
        options: dict[str, Any],
    ) -> None:
        self._programs = programs
        self._part = part
        self._names = names
        self._options = options

    def __call__(self, *values: Any) -> Mapping[str, Any]:
        program = self._program()
        inputs = dict(zip(self._names, values, strict=False))
        _, results = program(self._options["queue"], allocator=self._options["allocator"], **inputs)
        missing = sorted(self._part.output_names - results.keys())
        if missing:
            msg = f"the program of part {self._part.pid!r} does not return {', '.join(missing)}"
            raise ArgumentError(msg)
        return results

    def _program(self) -> PartProgram:
        check_type("prg_per_partition", self._programs, Mapping)
        if self._part.pid not in self._programs:
            msg = f"prg_per_partition has no program for part {self._part.pid!r}"
            raise ArgumentError(msg)
        if "allocator" in self._names:
            msg = "an input is called 'allocator', which programs get from elsewhere: rename it"
            raise ArgumentError(msg)
        return self._programs[self._part.pid]


def _forget(_results: Mapping[str, Any]) -> None:
    """Say that results are there."""


def _pick(name: str, results: Mapping[str, Any]) -> Any:
    return results[name]


class _Wiring:
    """Slots of everything that has a name, while a program is put together."""

    def __init__(self, partition: DistributedGraphPartition, rank: int) -> None:
        check_names(partition)
        self._partition = partition
        self._rank = rank
        self.parts = in_turn(partition)
        if len(self.parts) < len(partition.parts):
            left = sorted(map(repr, set(partition.parts) - {part.pid for part in self.parts}))
            msg = f"parts need each other: {', '.join(left)}"
            raise PartitionInducedCycleError(msg)
        self.builder = Builder()
        self.named: dict[str, int] = {}
        self._data: dict[DataWrapper, int] = {}
        self._recvs: dict[Hashable, list[Parcel]] = {}

    def receive(self, part: DistributedGraphPart) -> None:
        """Make room for what a part receives."""
        self._recvs[part.pid] = []
        for name, recv in part.name_to_recv_node.items():
            tag = recv.comm_tag
            number = self._number(recv.src_rank, self._rank, tag)
            slot = self.named[name] = self.builder.arriving()
            parcel = Parcel(slot, recv.src_rank, number, tag, recv.shape, recv.dtype)
            self._recvs[part.pid].append(parcel)

    def send(self, part: DistributedGraphPart) -> None:
        """Send what a part sends."""
        for name, sends in part.name_to_send_nodes.items():
            for send in sends:
                tag = send.comm_tag
                number = self._number(self._rank, send.dest_rank, tag)
                self.builder.send(self.named[name], send.dest_rank, number, tag, send.data)

    def _number(self, source: int, dest: int, tag: Hashable) -> int:
        message = CommunicationOpIdentifier(source, dest, tag)
        return check_number(self._partition.numbers.get(message, tag), tag)

    def node(self, part: DistributedGraphPart, node: Array, slots: Mapping[Array, int]) -> int:
        """Find or make the slot of a node whose inputs have theirs."""
        if isinstance(node, Placeholder):
            return self.name(part, node.name)
        if isinstance(node, DataWrapper):
            if node not in self._data:
                self._data[node] = self.builder.constant(node.data)
            return self._data[node]
        if not isinstance(node, Call):
            msg = f"{node!r} must not be inside a part: messages come before and after it"
            raise ArgumentError(msg)
        func = partial(node.func, **node.options) if node.options else node.func
        args = (
            slots[arg] if isinstance(arg, Array) else self.builder.constant(arg)
            for arg in node.args
        )
        return self.builder.step(func, args)

    def name(self, part: DistributedGraphPart, name: str) -> int:
        """Find the slot of an input of a part."""
        if name in part.user_input_names:
            return self.builder.input(name, self._partition.placeholders.get(name))
        if name not in self.named:
            msg = f"part {part.pid!r} needs {name!r}, which is not among its inputs"
            raise ArgumentError(msg)
        return self.named[name]

    def program(self) -> Program:
        """Put it all together."""
        outputs = {name: self.named[name] for name in self._partition.overall_output_names}
        return self.builder.program(outputs, self._batches())

    def _batches(self) -> list[Batch]:
        number = {part.pid: position for position, part in enumerate(self.parts)}
        earlier = [
            {
                number[pid]
                for need in part.needed_pids
                for pid in self._partition.parts[need].needed_pids
            }
            for part in self.parts
        ]
        opens: list[list[int]] = [[] for _ in self.parts]
        for position, locks in enumerate(earlier):
            for lock in locks:
                opens[lock].append(position)
        return [
            Batch(tuple(self._recvs[part.pid]), len(locks), tuple(opened))
            for part, locks, opened in zip(self.parts, earlier, opens, strict=True)
        ]
