"""What the ranks of a communicator share: their numbers, messages and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pencils.simulation.exceptions import ERR_RANK, ERR_ROOT, MPIError
from pencils.simulation.messages import Mailbox

if TYPE_CHECKING:
    from pencils.simulation.collectives import Slot
    from pencils.simulation.scheduler import Rank
    from pencils.simulation.world import World


class Context:
    """A communicator as all its ranks see it; each rank has its own handle of it.

    `ranks` are the numbers in the world. `topology` describes a grid or graph, if there is one.
    """

    def __init__(self, world: World, ranks: Sequence[int], name: str, topology: Any = None) -> None:
        self.world = world
        self.ranks = ranks
        self.numbers = {rank: number for number, rank in enumerate(ranks)}
        self.name = name
        self.topology = topology
        self.mailboxes: dict[int, Mailbox] = {}
        self.slots: dict[int, Slot] = {}
        self.collectives = [0] * len(ranks)  # number of collectives that each rank has called
        self.left = set(range(len(ranks)))  # ranks that have not freed it

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def check_rank(self, number: int, what: str) -> int:
        """Return a rank that is given to a call, if there is such a one."""
        if 0 <= number < self.size:
            return number
        error = ERR_ROOT if what == "root" else ERR_RANK
        raise MPIError(error, f"{what}={number}; {self.name} has ranks 0 to {self.size - 1}")

    def mailbox(self, number: int) -> Mailbox:
        """Messages to rank `number`."""
        found = self.mailboxes.get(number)
        if found is None:
            found = self.mailboxes[number] = Mailbox(self.world.scheduler)
        return found

    def wake(self, number: int) -> None:
        """Have rank `number` look again whether it can continue."""
        self.world.scheduler.wake(self.ranks[number])

    def number_of(self, rank: Rank) -> int:
        """Number here of a rank of the world."""
        return self.numbers[rank.number]
