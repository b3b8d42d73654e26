"""A graph prepared for execution: numbered steps and values, and the messages between ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from pencils.comm.mailbox import largest_tag
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Placeholder
from pencils.graph.rules import DType, Shape

Function = Callable[..., Any]


class Step(NamedTuple):
    """``values[out] = func(*(values[i] for i in args))``."""

    func: Function
    args: tuple[int, ...]
    out: int


class Parcel(NamedTuple):
    """A message to or from another rank.

    Parameters
    ----------
    slot : int
        Where its values are, or go.
    peer : int
        The other rank.
    number : int
        Tag for MPI.
    name : hashable
        Tag of the user.
    shape, dtype
        Of the values.
    """

    slot: int
    peer: int
    number: int
    name: Hashable
    shape: Shape
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return prod(self.shape) * self.dtype.itemsize


class Batch(NamedTuple):
    """What one part receives.

    Memory for it is not needed before messages of two parts earlier have all arrived, which
    bounds the memory of long graphs: a batch is opened when `locks` others are complete, and opens
    some in turn.
    """

    recvs: tuple[Parcel, ...]
    locks: int
    opens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in the order in which they are wanted; each can be done once its values are there.

    Parameters
    ----------
    values : list
        What is known beforehand, by slot.
    steps : list of Step
        All steps, the most urgent ones first.
    waiting : list of int
        How many values each step waits for.
    users : list of list of int
        Steps that wait for each value.
    uses : list of int
        How often each value is used, as a result of the whole too.
    ready : list of int
        Steps that wait for nothing.
    sends : dict
        Messages that take each value away.
    early : list of int
        Values among these that are there before the first step.
    batches : list of Batch
        Messages that bring values.
    inputs, outputs : dict
        Slots of what the user gives and gets, by name.
    """

    values: list[Any]
    steps: list[Step]
    waiting: list[int]
    users: list[list[int]]
    uses: list[int]
    ready: list[int]
    sends: dict[int, list[Parcel]]
    early: list[int]
    batches: list[Batch]
    inputs: dict[str, tuple[int, Placeholder | None]]
    outputs: dict[str, int]


@dataclass(slots=True)
class Builder:
    """Puts a program together."""

    values: list[Any] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    sends: defaultdict[int, list[Parcel]] = field(default_factory=lambda: defaultdict(list))
    inputs: dict[str, tuple[int, Placeholder | None]] = field(default_factory=dict)
    _later: set[int] = field(default_factory=set)  # slots that are filled during execution

    def constant(self, value: Any) -> int:
        """Make room for a value that is known."""
        self.values.append(value)
        return len(self.values) - 1

    def arriving(self) -> int:
        """Make room for a value that a message brings."""
        slot = self.constant(None)
        self._later.add(slot)
        return slot

    def input(self, name: str, kind: Placeholder | None) -> int:
        """Make room for a value that the user gives, of that kind if it is known."""
        if name not in self.inputs:
            self.inputs[name] = self.constant(None), kind
        return self.inputs[name][0]

    def step(self, func: Function, args: Iterable[int]) -> int:
        """Add a step; return where its result will be."""
        slot = self.arriving()
        self.steps.append(Step(func, tuple(args), slot))
        return slot

    def send(self, slot: int, peer: int, number: int, name: Hashable, value: Array) -> None:
        """Send a value as soon as it is there."""
        self.sends[slot].append(Parcel(slot, peer, number, name, value.shape, value.dtype))

    def program(self, outputs: dict[str, int], batches: Sequence[Batch]) -> Program:
        """Count who waits for what."""
        users: list[list[int]] = [[] for _ in self.values]
        uses = [0] * len(self.values)
        waiting = [0] * len(self.steps)
        for number, step in enumerate(self.steps):
            for slot in step.args:
                uses[slot] += 1
                if slot in self._later:
                    users[slot].append(number)
                    waiting[number] += 1
        for slot in outputs.values():
            uses[slot] += 1
        ready = [number for number, count in enumerate(waiting) if count == 0]
        return Program(
            self.values,
            self.steps,
            waiting,
            users,
            uses,
            ready,
            dict(self.sends),
            [slot for slot in self.sends if slot not in self._later],
            list(batches),
            self.inputs,
            outputs,
        )


def check_number(number: object, name: Hashable) -> int:
    """Check that a message has a number that all ranks know, and MPI permits.

    Raises
    ------
    ArgumentError
        If it has none.
    """
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
