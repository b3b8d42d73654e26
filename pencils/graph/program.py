"""Partitions prepared for execution: numbered values, the steps that compute them, and messages.

A step is a node, or several ones that one pass over memory computes, or a part if the user passes a
program for each part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from pencils.array.operands import check_type
from pencils.comm import pool
from pencils.comm.mailbox import largest_tag
from pencils.comm.topology import attribute
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Call, DataWrapper, Placeholder
from pencils.graph.fuse import BlockView, Store, is_fused, is_view, make_program
from pencils.graph.messages import CommunicationOpIdentifier
from pencils.graph.partition import (
    DistributedGraphPart,
    DistributedGraphPartition,
    PartitionInducedCycleError,
    check_names,
    in_turn,
)
from pencils.graph.rules import DType, Function, Padding, Shape, name_of
from pencils.pencil import Bounded

PartProgram = Callable[..., tuple[Any, Mapping[str, Any]]]
Place = tuple[bool, bool, int]  # of a node: it is not sent, it waits for messages, its level
Step = tuple[Function, tuple[int, ...], int]  # values[out] = func(*(values[i] for i in args))


_LEAST = pool.LEAST  # bytes that one pass computes: NumPy is faster for fewer
_MOST_NODES = 256  # of one pass
_FEW = 4  # operations that are not worth memory for their result


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
                f"comm_tag {name!r} must be a number, as find_distributed_partition makes it: call "
                "number_distributed_tags(comm, partition, base_tag)"
            )
        return number


def program_of_nodes(partition: DistributedGraphPartition, rank: int) -> GraphProgram:
    """Make the steps of all nodes: of single ones, and of those that one pass computes."""
    data: dict[Array, int] = {}

    def add_nodes(program: GraphProgram, part: DistributedGraphPart) -> None:
        slots: dict[Array, int] = {}
        nodes = partition.nodes_of(part)
        outputs = {name: partition.name_to_output[name] for name in part.output_names}
        needed = set(outputs.values())
        for node in nodes:
            if isinstance(node, Placeholder):
                slots[node] = program.slot_of(part, node.name)
            elif isinstance(node, DataWrapper):
                slots[node] = data[node] if node in data else program.constant(node.data)
                data[node] = slots[node]
            elif not isinstance(node, Call):
                raise ArgumentError(
                    f"{node!r} must not be inside a part: messages are received before and sent "
                    "after it"
                )
        groups = list(_groups_of(nodes, part, outputs))
        for group in groups:
            needed.update(_inputs_of(group))
        for group in groups:
            _add_group(program, group, [node for node in group if node in needed], slots)
        program.slots |= {name: slots[node] for name, node in outputs.items()}

    return GraphProgram(partition, rank, add_nodes)


def _groups_of(
    nodes: Sequence[Array], part: DistributedGraphPart, outputs: Mapping[str, Array]
) -> Iterator[list[Call]]:
    """Yield the nodes of a part in the order of their places, those together that are one pass."""
    places = _places_of(nodes, part, {outputs[name] for name in part.name_to_send_nodes})
    _postpone(nodes, places, set(outputs.values()))
    calls = sorted((node for node in nodes if isinstance(node, Call)), key=places.__getitem__)
    for (*_, level), found in groupby(calls, places.__getitem__):
        group, most = list(found), 1 if level % 2 else _MOST_NODES
        yield from (group[start : start + most] for start in range(0, len(group), most))


def _places_of(
    nodes: Sequence[Array], part: DistributedGraphPart, sent: Collection[Array]
) -> dict[Array, Place]:
    """Find out whether no send needs a node, and whether it waits for messages; and its level.

    Levels of elementwise operations and views are even; those of other functions are between them.
    """
    urgent = set(sent)
    for node in reversed(nodes):
        urgent.update(node.inputs if node in urgent else ())
    places: dict[Array, Place] = {}
    for node in nodes:
        before = [places[other] for other in node.inputs]
        waits = isinstance(node, Placeholder) and node.name in part.name_to_recv_node
        level = max((level for *_, level in before), default=0)
        level += level % 2 == is_fused(node)
        places[node] = node not in urgent, waits or any(late for _, late, _ in before), level
    return places


def _postpone(
    nodes: Sequence[Array], places: dict[Array, Place], outputs: Collection[Array]
) -> None:
    """Let few operations wait with those that use their results; more are computed meanwhile."""
    costs: dict[Array, int] = {}
    users: dict[Array, list[Array]] = {node: [] for node in nodes}
    for node in nodes:
        costs[node] = sum(costs[x] for x in node.inputs if _is_early(places[x]))
        costs[node] += isinstance(node, Call) and not is_view(node)
        for other in node.inputs:
            users[other].append(node)
    for node in reversed(nodes):
        later = [places[user] for user in users[node]]
        cheap = _is_early(places[node]) and costs[node] <= _FEW and node not in outputs
        if later and cheap and all(waits and level % 2 == 0 for _, waits, level in later):
            places[node] = min(later)


def _is_early(place: Place) -> bool:
    """Whether elementwise operations wait for no message."""
    _, waits, level = place
    return not waits and level % 2 == 0


def _inputs_of(group: Sequence[Call]) -> list[Array]:
    """List the nodes that a group takes from outside."""
    known = set(group)
    return list(dict.fromkeys(x for node in group for x in node.inputs if x not in known))


def _add_group(
    program: GraphProgram, group: Sequence[Call], kept: Sequence[Call], slots: dict[Array, int]
) -> None:
    """Add a step that computes nodes in one pass, or one of each; `kept` are needed later."""
    if sum(node.nbytes for node in group if is_fused(node) and not is_view(node)) < _LEAST:
        for node in group:
            func = partial(node.func, **node.options) if node.options else node.func
            args = (slots[x] if isinstance(x, Array) else program.constant(x) for x in node.args)
            slots[node] = program.step(func, args)
        return
    given = _inputs_of(group)
    results = program.step(_one_pass(group, given, kept), [slots[node] for node in given])
    for number, node in enumerate(kept):
        slots[node] = program.step(itemgetter(number), [results])


def _one_pass(
    group: Sequence[Call], given: Sequence[Array], kept: Sequence[Array]
) -> Callable[..., Sequence[Any]]:
    """Return a function that computes nodes by a program for each order of memory it is given."""
    programs = Bounded()
    places = {node: number for number, node in enumerate(given)}
    paddings = {node: node.func for node in group if isinstance(node.func, Padding)}
    parts = [
        (block, node, key)
        for node, padding in paddings.items()
        for block, key in zip(node.args, padding.own, strict=True)
    ]
    padded = {block: (node, key) for block, node, key in parts if block.dtype == node.dtype}
    others = [node for node in kept if node not in padded and node not in paddings]

    def compute(*values: Any) -> Sequence[Any]:
        arrays = [np.asarray(x) if isinstance(x, np.generic) else x for x in values]
        if not all(
            type(x) is np.ndarray and (x.shape, x.dtype) == (node.shape, node.dtype)
            for x, node in zip(arrays, given, strict=True)
        ):  # calls of the user may return anything
            known = dict(zip(given, values, strict=True))
            evaluate([x for node in group for x in (*node.inputs, node)], known)
            return [known[node] for node in kept]
        key = tuple([x.strides for x in arrays])
        found: dict[Array, Any] = {node: each.new(node.dtype) for node, each in paddings.items()}
        arrays += [found[node][key] for _, node, key in parts]
        program = programs.get(key)
        if program is None:
            stores = [
                Store(block, BlockView(slot, arrays[slot]))
                for slot, (block, _, _) in enumerate(parts, len(given))
            ]
            program, _ = make_program(stores, others, arrays, places)
            programs.add(key, program)
        found |= zip(others, program.run(arrays), strict=True)
        found |= {block: found[node][key] for block, (node, key) in padded.items()}
        return [found[node] for node in kept]

    named = [node for node in group if not is_view(node) and node not in paddings]
    compute.__name__ = ", ".join(dict.fromkeys(name_of(node.func) for node in named))
    return compute


def evaluate(nodes: Iterable[Array], values: dict[Array, Any]) -> None:
    """Compute nodes one after the other, each from values that are known."""
    for node in nodes:
        if isinstance(node, DataWrapper):
            values[node] = node.data
        elif isinstance(node, Call) and node not in values:
            args = [values[arg] if isinstance(arg, Array) else arg for arg in node.args]
            values[node] = node.func(*args, **node.options)


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
