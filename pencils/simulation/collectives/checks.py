"""What simulated ranks check of collectives, beyond what they need: types of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pencils.errors import MismatchError
from pencils.simulation.messages.matching import same_types

if TYPE_CHECKING:
    from pencils.simulation.types.buffers import Buffer
    from pencils.simulation.world import Context


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
        scheduler = self._world.scheduler
        scheduler.fail(
            MismatchError(
                f"{self._text}: rank {source} sends {sent.datatype.name}, rank {number} receives "
                f"{part.datatype.name} by {self._call}; both must have the same types (seed="
                f"{scheduler.seed})",
                scheduler.seed,
            )
        )
