"""Communicators made of others: of the same ranks, of ranks with the same color, of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simmpi.collectives.slots import Slot
from simmpi.constants import UNDEFINED

if TYPE_CHECKING:
    from simmpi.world import Context


def duplicate(slot: Slot, number: int) -> Context:  # noqa: ARG001
    """Return a communicator of the same ranks."""
    context = slot.context
    made: Context = slot.once(
        lambda: context.world.context(context.ranks, f"a copy of {context.name}", context.topology)
    )
    return made


def divide(slot: Slot, number: int) -> Context | None:
    """Return the communicator of the color of a rank."""

    def compute() -> dict[int, Context]:
        ranks = slot.context.ranks
        members: dict[int, list[tuple[int, int]]] = {}
        for rank in range(len(ranks)):
            color, key = slot.given[rank]
            if color != UNDEFINED:
                members.setdefault(color, []).append((key, rank))
        return {
            color: slot.context.world.context([ranks[rank] for _, rank in sorted(each)])
            for color, each in members.items()
        }

    found: Context | None = slot.once(compute).get(slot.given[number][0])
    return found


def of_group(slot: Slot, number: int) -> Context | None:
    """Return the communicator of the group that a rank has passed."""
    ranks = slot.given[number]
    if slot.context.ranks[number] not in ranks:
        return None
    made = slot.once(dict)
    if ranks not in made:
        made[ranks] = slot.context.world.context(list(ranks))
    found: Context = made[ranks]
    return found
