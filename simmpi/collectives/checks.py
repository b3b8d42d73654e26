"""What simulated ranks check of collectives: types, and buffers in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simmpi.errors import MismatchError, UsageError
from simmpi.messages.matching import same_types

if TYPE_CHECKING:
    from simmpi.types.buffers import Buffer
    from simmpi.types.memory import Bytes
    from simmpi.world import Context, World


class Sent:
    """The buffers that ranks send in one collective, of which types are compared."""

    def __init__(self, context: Context, text: str) -> None:
        self._world = context.world
        self._text = text
        self._by_rank: dict[int, Sequence[Buffer]] = {}
        self._types: list[tuple[int, Buffer]] | None = None
        self._call = ""

    def add(self, rank: int, call: str, sends: Sequence[Buffer]) -> None:
        """Add the buffers of a rank: one for all ranks, or one for each."""
        if sends and self._world.strict:
            self._call = call
            self._by_rank[rank] = sends

    def check(self, part: Buffer, source: int, number: int, at: int) -> None:
        """Raise if buffer `at` of a rank has other basic types than another one receives."""
        sends = self._by_rank.get(source)
        if sends:
            self._compare(sends[at if len(sends) > 1 else 0], part, source, number)

    def check_all(self, whole: Buffer, number: int) -> None:
        """Do the same for all ranks, each of which sends one buffer."""
        if self._types is None:
            each = {
                id(sends[0].datatype): (rank, sends[0]) for rank, sends in self._by_rank.items()
            }
            self._types = list(each.values())
        for source, sent in self._types:
            self._compare(sent, whole, source, number)

    def _compare(self, sent: Buffer, part: Buffer, source: int, number: int) -> None:
        if sent.datatype is part.datatype or not (sent.nbytes and part.nbytes):
            return
        if same_types(sent, part):
            return
        self._world.scheduler.fail_with(
            MismatchError,
            f"{self._text}: rank {source} sends {sent.datatype.name}, rank {number} receives "
            f"{part.datatype.name} by {self._call}; both must have the same types",
        )


class Watch:
    """Buffers of a collective that the program may not touch before it is complete.

    The buffers that receive are filled with the byte 0xFF meanwhile.
    """

    def __init__(
        self, world: World, text: str, sends: Sequence[Buffer], receives: Sequence[Buffer | None]
    ) -> None:
        self._world = world
        self._text = text
        self._sent = [(buffer, buffer.pack()) for buffer in sends if buffer.nbytes]
        self._before: list[tuple[Buffer, Bytes]] = [
            (buffer, buffer.pack()) for buffer in receives if buffer is not None and buffer.nbytes
        ]
        for buffer, _ in self._before:
            buffer.poison()
        if not self._is_unchanged():
            self._fail(
                "the buffers that send and receive overlap; pass others, or MPI.IN_PLACE where MPI "
                "allows it"
            )

    def end(self) -> None:
        """Raise if the program has changed a buffer; restore those that receive."""
        if not self._is_unchanged():
            self._fail(
                "the program changed the buffer before the send was complete; wait for it first, "
                "or send a copy"
            )
        if not all(buffer.is_poisoned() for buffer, _ in self._before):
            self._fail(
                "the program changed the buffer before the receive was complete; wait for it first"
            )
        for buffer, data in self._before:
            buffer.unpack(data)

    def _is_unchanged(self) -> bool:
        return all(np.array_equal(buffer.pack(), data) for buffer, data in self._sent)

    def _fail(self, problem: str) -> None:
        self._world.scheduler.fail_with(UsageError, f"{self._text}: {problem}")
