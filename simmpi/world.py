"""What simulated ranks share: the scheduler, the world communicator, and what was not freed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from simmpi.errors import UsageError
from simmpi.exceptions import ERR_RANK, ERR_ROOT, MPIError
from simmpi.ranks import Waiting
from simmpi.report import numbered, place

if TYPE_CHECKING:
    from simmpi.ranks import Rank
    from simmpi.scheduler import Scheduler


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
        self.place = place()  # where the program made it
        self.mailboxes: dict[int, Any] = {}  # by rank
        self.slots: dict[int, Any] = {}  # collectives under way, by number
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

    def wake(self, number: int) -> None:
        """Have rank `number` look again whether it can continue."""
        self.world.scheduler.wake(self.ranks[number])

    def number_of(self, rank: Rank) -> int:
        """Number here of a rank of the world."""
        return self.numbers[rank.number]


class _Meeting:
    """Ranks that have called `Create_group` with the same arguments, and what was made."""

    def __init__(self) -> None:
        self.arrived: set[int] = set()
        self.made: Context | None = None


class World:
    """The ranks of one simulation; `nodes` has the number of the node of each."""

    def __init__(self, scheduler: Scheduler, nodes: Sequence[int], *, strict: bool) -> None:
        self.scheduler = scheduler
        self.nodes = nodes
        self.strict = strict
        self.finalized = False
        # Not freed by all their ranks, or with messages that no rank has received.
        self.contexts: dict[Context, None] = {}
        self.windows: dict[Any, None] = {}  # not freed
        self.window_numbers = count(1)
        self.attached: dict[int, Any] = {}  # by rank, buffers of buffered sends
        self._numbers = count(1)
        self.all = self.context(range(scheduler.size), "COMM_WORLD")
        self._meetings: dict[Any, _Meeting] = {}
        self._alone: dict[int, Context] = {}

    def context(self, ranks: Sequence[int], name: str = "", topology: Any = None) -> Context:
        """Make a communicator of these ranks of the world."""
        name = name or f"communicator {next(self._numbers)} of {numbered(ranks)}"
        context = Context(self, ranks, name, topology)
        self.contexts[context] = None
        return context

    def drop(self, context: Context) -> None:
        """Forget a communicator that all its ranks have freed."""
        if not any(mailbox.unread() for mailbox in context.mailboxes.values()):
            self.contexts.pop(context, None)

    def alone(self, rank: Rank) -> Context:
        """Return COMM_SELF of a rank."""
        found = self._alone.get(rank.number)
        if found is None:
            found = self._alone[rank.number] = self.context([rank.number], "COMM_SELF")
        return found

    @property
    def rank(self) -> Rank:
        """Return the running rank; outside of simulated ranks, the first one."""
        scheduler = self.scheduler
        return scheduler.ranks[0] if scheduler.current is None else scheduler.running("MPI")

    def of_members(self, context: Context, ranks: tuple[int, ...], tag: int) -> Context:
        """Wait until all members have called `Create_group`; return their communicator."""
        key = context, ranks, tag
        meeting = self._meetings.setdefault(key, _Meeting())
        meeting.arrived.add(self.rank.number)
        if len(meeting.arrived) == len(ranks):
            del self._meetings[key]
            meeting.made = self.context(ranks)
            for rank in ranks:
                self.scheduler.wake(rank)
        waiting = Waiting(
            "Create_group",
            lambda: f"on {context.name}",
            lambda: [rank for rank in ranks if rank not in meeting.arrived],
        )
        self.scheduler.wait(lambda: meeting.made is not None, waiting)
        assert meeting.made is not None
        return meeting.made

    def permanent(self, context: Context) -> bool:
        """Whether a communicator exists as long as the simulation."""
        return context is self.all or context in self._alone.values()


_active: list[World] = []


def active() -> World | None:
    """Return the simulation whose names are installed."""
    return _active[-1] if _active else None


def running_world() -> World:
    """Return the simulation whose names are installed, or raise."""
    world = active()
    if world is None:
        raise UsageError("no simulation is running")
    return world


def activate(world: World) -> None:
    """Make a simulation the one that COMM_WORLD refers to."""
    _active.append(world)


def deactivate(world: World) -> None:
    """Undo `activate`."""
    _active.remove(world)
