"""Collectives: what each rank contributes, when a rank can continue, and what it gets.

Collective number k of a rank on a communicator belongs to number k of the other ranks. All must be
the same call with the same root and the same types, else the simulation ends with an error.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from simmpi.collectives.checks import Sent, Watch
from simmpi.errors import MismatchError
from simmpi.exceptions import ERR_REQUEST, MPIError
from simmpi.messages.operation import Operation, Status
from simmpi.ranks import Waiting
from simmpi.report import numbered, place

if TYPE_CHECKING:
    from simmpi.types.buffers import Buffer
    from simmpi.types.memory import Bytes
    from simmpi.types.operations import Op
    from simmpi.world import Context

T = TypeVar("T")

EARLY = 0.5  # with a seed, probability that no rank waits longer than its data require


class Caller(Protocol):
    """What collectives need of a communicator of one rank."""

    @property
    def _me(self) -> int: ...

    def _enter(self, call: str) -> Context: ...

    def allgather(self, sendobj: Any) -> Any:
        """Return the objects of all ranks."""


class Call(NamedTuple):
    """One rank's part of a collective.

    `name` and `same` must be equal on all ranks. `needs`: the ranks whose contributions this rank
    waits for, None for all. `finish` writes the results of a complete slot and returns them.
    `sends`: the buffers that were packed, to compare types: one for all ranks, or one for each.
    `receives`: those that `finish` writes, and that are apart from `sends`.
    """

    name: str
    finish: Callable[[Slot, int], Any]
    contribution: Any = None
    needs: Iterable[int] | None = None
    same: tuple[Any, ...] = ()
    sends: Sequence[Buffer] = ()
    receives: Sequence[Buffer | None] = ()
    in_place: bool = False  # `sends` are in the buffers that receive, too


class Slot:
    """One collective of a communicator, while ranks take part in it."""

    def __init__(self, context: Context, number: int) -> None:
        scheduler = context.world.scheduler
        self.context = context
        self.number = number
        self.given: dict[int, Any] = {}  # contributions by rank
        self.sent = Sent(context, f"collective {number} on {context.name}")
        self.shared: Any = None  # result that is computed once
        self.left = context.size  # ranks that have not completed it
        self.early = scheduler.random is None or scheduler.random.random() < EARLY
        # If `early`: ranks that wait for the contribution of a rank, and how many each waits for.
        self._waiting_for: dict[int, list[int]] = {}
        self._lacking: dict[int, int] = {}
        self._first: tuple[int, str, tuple[Any, ...]] | None = None
        self._place = ""  # in the program, of the first call

    def arrive(self, number: int, call: Call) -> None:
        """Add the contribution of a rank, and wake those that can continue with it."""
        self._check(number, call)
        self.given[number] = call.contribution
        self.sent.add(number, call.name, call.sends)
        if len(self.given) == self.context.size:
            for other in self.given:
                self.context.wake(other)
        elif self.early:
            for other in self._waiting_for.pop(number, ()):
                self._lacking[other] -= 1
                if not self._lacking[other]:
                    self.context.wake(other)
            if call.needs is not None:
                lacking = [rank for rank in call.needs if rank not in self.given]
                self._lacking[number] = len(lacking)
                for rank in lacking:
                    self._waiting_for.setdefault(rank, []).append(number)

    def ready(self, number: int) -> bool:
        """Whether the contributions that a rank needs are there."""
        return len(self.given) == self.context.size or self._lacking.get(number) == 0

    def missing(self) -> list[int]:
        """Ranks of the world that have not arrived."""
        ranks = self.context.ranks
        return [ranks[number] for number in range(len(ranks)) if number not in self.given]

    def once(self, compute: Callable[[], T]) -> T:
        """Compute a result that all ranks share."""
        if self.shared is None:
            self.shared = compute()
        shared: T = self.shared
        return shared

    def _check(self, number: int, call: Call) -> None:
        mine = number, call.name, call.same
        if self._first is None:
            self._first = mine
            self._place = place()
        if self._first[1:] == mine[1:]:
            return
        first, name, same = self._first
        others = [rank for rank in self.given if rank != first]
        also = f" (as {numbered(others)})" if others else ""
        self.context.world.scheduler.fail_with(
            MismatchError,
            f"collective {self.number} on {self.context.name}: rank {first} calls "
            f"{_shown(name, same)} at {self._place}{also}, rank {number} calls "
            f"{_shown(call.name, call.same)} at {place()}; all ranks must make the same call, "
            "with the same root, counts and types",
        )


def _shown(name: str, same: tuple[Any, ...]) -> str:
    return f"{name}({', '.join(map(str, same))})"


class Collective(Operation):
    """The part of one rank in a collective."""

    def __init__(self, context: Context, call: Call, *, starts: bool = False) -> None:
        super().__init__(context.world, call.name)
        self.context = context
        self.part = call
        self.number = context.number_of(self.rank)
        place = context.collectives[self.number]
        context.collectives[self.number] += 1
        slot = context.slots.get(place)
        if slot is None:
            slot = context.slots[place] = Slot(context, place)
        self.slot = slot
        self.watch: Watch | None = None
        if starts and context.world.strict and not call.in_place:
            text = f"{call.name} ({self.text()})"
            self.watch = Watch(context.world, text, call.sends, call.receives)
        slot.arrive(self.number, call)

    def done(self) -> bool:
        """Whether all that this rank needs is there."""
        return self.slot.ready(self.number)

    def waiting(self) -> Waiting:
        """Describe what is waited for."""
        return Waiting(self.call, self.text, self.slot.missing)

    def detach(self) -> None:
        """Raise: a collective has to be completed."""
        raise MPIError(ERR_REQUEST, f"{self.call}: collectives cannot be freed; complete them")

    def text(self) -> str:
        """Describe the collective."""
        return f"collective {self.slot.number} on {self.context.name}"

    def finish(self, status: Status | None) -> None:  # noqa: ARG002
        """Take the results."""
        slot = self.slot
        if self.watch is not None:
            self.watch.end()
        slot.left -= 1
        if slot.left == 0:
            del self.context.slots[slot.number]
        self.result = self.part.finish(slot, self.number)


# ---- what ranks get; the contributions are packed bytes, pickled bytes, or lists of them ----


def nothing(slot: Slot, number: int) -> None:
    """Finish a collective without results."""


def unpack(slot: Slot, number: int, *, parts: Mapping[int, Buffer | None]) -> None:
    """Write what ranks have contributed, each to its part."""
    for source, part in parts.items():
        if part is not None:
            put(slot, part, slot.given[source], source, number)


def unpack_mine(slot: Slot, number: int, *, parts: Mapping[int, Buffer | None]) -> None:
    """Write what ranks have contributed for this one, each to its part."""
    for source, part in parts.items():
        if part is not None:
            put(slot, part, slot.given[source][number], source, number, number)


def unpack_column(slot: Slot, number: int, *, whole: Buffer) -> None:
    """Write parts of equal size, as `unpack_mine` does, in one copy."""
    table = slot.once(lambda: _table(slot))
    if table is None or table.shape[0] * table.shape[2] != whole.nbytes:
        _fail_sizes(slot, number)
    slot.sent.check_all(whole, number)
    whole.unpack(np.ascontiguousarray(table[:, number]).reshape(-1))


def _table(slot: Slot) -> Any:
    rows = [slot.given[rank] for rank in range(slot.context.size)]
    if len({len(row) for row in rows}) > 1 or len(rows[0]) % len(rows):
        return None
    return np.stack(rows).reshape(len(rows), len(rows), -1)


def unpack_row(slot: Slot, number: int, *, whole: Buffer) -> None:
    """Write contributions of equal size, as `unpack` does, in one copy."""
    row = slot.once(lambda: _row(slot))
    if row is None or len(row) != whole.nbytes:
        _fail_sizes(slot, number)
    slot.sent.check_all(whole, number)
    whole.unpack(row)


def _row(slot: Slot) -> Any:
    parts = [slot.given[rank] for rank in range(slot.context.size)]
    return None if len({len(part) for part in parts}) > 1 else np.concatenate(parts)


def put(slot: Slot, part: Buffer, data: Bytes, source: int, number: int, at: int = 0) -> None:
    """Write the data of a rank, its part `at`; as many bytes are needed as were sent."""
    if len(data) != part.nbytes:
        slot.context.world.scheduler.fail_with(
            MismatchError,
            f"collective {slot.number} on {slot.context.name}: rank {source} sends "
            f"{len(data)} bytes, rank {number} receives {part.nbytes}; both must be equal",
        )
    slot.sent.check(part, source, number, at)
    part.unpack(data)


def _fail_sizes(slot: Slot, number: int) -> None:
    sizes = sorted({len(part) for part in slot.given.values()})
    slot.context.world.scheduler.fail_with(
        MismatchError,
        f"collective {slot.number} on {slot.context.name}: ranks send {sizes} bytes, which "
        f"rank {number} does not receive; both must be equal",
    )


# ---- reductions ----


def reduced(slot: Slot, op: Op, buffer: Buffer, ranks: Iterable[int]) -> Bytes:
    """Reduce packed contributions in the order of the ranks."""
    first, *others = [slot.given[rank] for rank in ranks]
    total: Bytes = first
    for other in others:
        total = op.reduce(total, other, buffer)
    return total


def unpack_reduced(slot: Slot, number: int, *, op: Op, buffer: Buffer | None) -> None:  # noqa: ARG001
    """Write the reduction of all contributions."""
    if buffer is not None:
        total = slot.once(partial(reduced, slot, op, buffer, range(slot.context.size)))
        buffer.unpack(total)


def unpack_scanned(slot: Slot, number: int, *, op: Op, buffer: Buffer, stop: int) -> None:  # noqa: ARG001
    """Write the reduction of the contributions of the ranks before `stop`."""
    if stop:
        buffer.unpack(reduced(slot, op, buffer, range(stop)))


def unpack_scattered(
    slot: Slot, number: int, *, op: Op, whole: Buffer, mine: Buffer, ends: Sequence[int]
) -> None:
    """Write this rank's part of the reduction; `ends` are where the parts end, in bytes."""
    total = slot.once(partial(reduced, slot, op, whole, range(slot.context.size)))
    mine.unpack(total[ends[number] - mine.nbytes : ends[number]])


# ---- of Python objects ----


def pickled(value: object) -> bytes:
    """Pickle, so that ranks share no objects."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def loads(data: Any) -> Any:
    """Unpickle."""
    return pickle.loads(data)  # noqa: S301 - from a rank of the same program


def load_from(slot: Slot, number: int, *, source: int) -> Any:  # noqa: ARG001
    """Return the object of one rank."""
    return loads(slot.given[source])


def load_each(slot: Slot, number: int) -> list[Any]:  # noqa: ARG001
    """Return the objects of all ranks."""
    return [loads(slot.given[rank]) for rank in range(slot.context.size)]


def load_mine(slot: Slot, number: int, *, source: int) -> Any:
    """Return the object that one rank has contributed for this one."""
    return loads(slot.given[source][number])


def load_all_mine(slot: Slot, number: int) -> list[Any]:
    """Return the objects that all ranks have contributed for this one."""
    return [loads(slot.given[rank][number]) for rank in range(slot.context.size)]


def load_reduced(slot: Slot, number: int, *, op: Callable[[Any, Any], Any], stop: int) -> Any:  # noqa: ARG001
    """Return the reduction of the objects of the ranks before `stop`; None if there are none."""

    def compute() -> bytes:
        total = None
        for rank in range(stop):
            value = loads(slot.given[rank])
            total = op(total, value) if rank else value
        return pickled(total)

    return loads(slot.once(compute) if stop == slot.context.size else compute())
