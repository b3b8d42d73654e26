"""From partitions to programs: node by node, or part by part with programs of the user."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

from pencils.errors import ArgumentError
from pencils.graph.array import Array, Call, DataWrapper, Placeholder
from pencils.graph.errors import PartitionInducedCycleError
from pencils.graph.partition import DistributedGraphPart, DistributedGraphPartition, in_turn
from pencils.graph.program import Batch, Builder, Parcel, Program, check_number

PartProgram = Callable[..., tuple[Any, Mapping[str, Any]]]


def compile_nodes(partition: DistributedGraphPartition) -> Program:
    """Make a step of every node; what messages need comes first, in the order of the parts."""
    wiring = _Wiring(partition)
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
    partition: DistributedGraphPartition, programs: Mapping[Hashable, PartProgram], **options: Any
) -> Program:
    """Make a step of every part, and one of each of its outputs.

    Parameters
    ----------
    partition : DistributedGraphPartition
        The parts.
    programs : mapping
        By the name of the part, what gives all its outputs, given its inputs.
    **options
        Handed to all programs.
    """
    wiring = _Wiring(partition)
    done: dict[Hashable, int] = {}
    for part in wiring.parts:
        wiring.receive(part)
        names = sorted(part.all_input_names())
        before = [done[pid] for pid in part.needed_pids]  # nobody reads them, but they come first
        func = _Part(programs.get(part.pid), part, names, options)
        done[part.pid] = result = wiring.builder.step(
            func, [*(wiring.name(part, name) for name in names), *before]
        )
        for name in sorted(part.output_names):
            wiring.named[name] = wiring.builder.step(partial(_pick, name), [result])
        wiring.send(part)
    return wiring.program()


class _Part:
    """A program of the user for one part."""

    def __init__(
        self,
        program: PartProgram | None,
        part: DistributedGraphPart,
        names: list[str],
        options: dict[str, Any],
    ) -> None:
        self._program = program
        self._part = part
        self._names = names
        self._options = options

    def __call__(self, *values: Any) -> Mapping[str, Any]:
        if self._program is None:  # found out here, where other ranks learn of it
            msg = f"prg_per_partition has no program for part {self._part.pid!r}"
            raise ArgumentError(msg)
        inputs = dict(zip(self._names, values, strict=False))
        queue = self._options["queue"]
        _, results = self._program(queue, allocator=self._options["allocator"], **inputs)
        missing = sorted(self._part.output_names - results.keys())
        if missing:
            msg = f"the program of part {self._part.pid!r} does not return {', '.join(missing)}"
            raise ArgumentError(msg)
        return results


def _pick(name: str, results: Mapping[str, Any]) -> Any:
    return results[name]


class _Wiring:
    """Slots of everything that has a name, while a program is put together."""

    def __init__(self, partition: DistributedGraphPartition) -> None:
        self._partition = partition
        self.parts = in_turn(partition)
        if len(self.parts) < len(partition.parts):
            left = sorted(map(repr, set(partition.parts) - {part.pid for part in self.parts}))
            msg = f"parts need each other, or some that do not exist: {', '.join(left)}"
            raise PartitionInducedCycleError(msg)
        self.builder = Builder()
        self.named: dict[str, int] = {}
        self._data: dict[DataWrapper, int] = {}
        self._recvs: dict[Hashable, list[Parcel]] = {}
        # A message is known here by its peer and tag: one end of it is this rank.
        numbers = partition.numbers
        self._sent = {(to, tag): number for (_, to, tag), number in numbers.items()}
        self._received = {(source, tag): number for (source, _, tag), number in numbers.items()}

    def receive(self, part: DistributedGraphPart) -> None:
        """Make room for what a part receives."""
        self._recvs[part.pid] = []
        for name, recv in part.name_to_recv_node.items():
            tag = recv.comm_tag
            number = check_number(self._received.get((recv.src_rank, tag), tag), tag)
            slot = self.named[name] = self.builder.arriving()
            parcel = Parcel(slot, recv.src_rank, number, tag, recv.shape, recv.dtype)
            self._recvs[part.pid].append(parcel)

    def send(self, part: DistributedGraphPart) -> None:
        """Send what a part sends."""
        for name, sends in part.name_to_send_nodes.items():
            for send in sends:
                tag = send.comm_tag
                number = check_number(self._sent.get((send.dest_rank, tag), tag), tag)
                self.builder.send(self.named[name], send.dest_rank, number, tag, send.data)

    def node(self, part: DistributedGraphPart, node: Array, slots: Mapping[Array, int]) -> int:
        """Find or make the slot of a node whose inputs have theirs."""
        if isinstance(node, Placeholder):
            return self.name(part, node.name, node)
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

    def name(self, part: DistributedGraphPart, name: str, kind: Placeholder | None = None) -> int:
        """Find the slot of an input of a part."""
        if name in part.user_input_names:
            return self.builder.input(name, kind)
        if name not in self.named:
            msg = f"part {part.pid!r} needs {name!r}, which no part before it gives or receives"
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
