"""Communicators: handles that each rank has of what it shares with other ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from simmpi.attributes import Attributes
from simmpi.collectives.calls import Collectives
from simmpi.collectives.grids import adjacent, cart, distributed, divide, duplicate, graph, of_group
from simmpi.collectives.slots import Call, Collective, Slot
from simmpi.constants import COMM_TYPE_SHARED, CONGRUENT, IDENT, SIMILAR, UNDEFINED, UNEQUAL
from simmpi.exceptions import ERR_COMM, MPIError
from simmpi.groups import Group
from simmpi.handles import Info
from simmpi.messages.point_to_point import PointToPoint
from simmpi.messages.requests import Request
from simmpi.world import active

if TYPE_CHECKING:
    from simmpi.world import Context


class Comm(PointToPoint, Collectives, Attributes):
    """A communicator as one rank sees it; null if the rank has freed it."""

    def __init__(self, comm: Comm | None = None) -> None:
        self._context: Context | None = None if comm is None else comm._context
        self._number: int = -1 if comm is None else comm._number
        self._name: str | None = None

    @classmethod
    def of(cls, context: Context) -> Self:
        """Make the handle of the running rank."""
        comm = cls()
        comm._context = context
        comm._number = context.number_of(context.world.rank)
        return comm

    # ---- whether it can be used ----

    def __bool__(self) -> bool:
        context = self._context
        return (
            context is not None
            and not context.world.scheduler.ended
            and self._number in context.left
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Comm):
            return NotImplemented
        if not (self and other):
            return bool(self) == bool(other)
        return self._context is other._context

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        raise TypeError("a communicator cannot be pickled")

    @property
    def _me(self) -> int:
        """Number of the running rank here."""
        return self._number

    def _alive(self) -> Context:
        context = self._context
        if context is None and isinstance(self, Predefined):
            raise MPIError(ERR_COMM, "no simulation is running")
        if context is None or self._me not in context.left:
            raise MPIError(ERR_COMM, "the communicator is null, or this rank has freed it")
        if context.world.scheduler.ended:
            context.world.scheduler.unwind_rank()
            raise MPIError(ERR_COMM, "the simulation of this communicator has ended")
        return context

    def _enter(self, call: str) -> Context:
        """Begin a call that communicates."""
        context = self._alive()
        rank = context.world.scheduler.step(call)
        if context.ranks[self._me] != rank.number:
            raise MPIError(
                ERR_COMM,
                f"{call}: rank {rank.number} uses the handle that rank {context.ranks[self._me]} "
                f"has of {context.name}; each rank needs its own",
            )
        return context

    def _collective(self, name: str, finish: Callable[[Slot, int], Any], **parts: Any) -> Any:
        return Collective(self._enter(name), Call(name, finish, **parts)).wait()

    # ---- properties ----

    def Get_rank(self) -> int:
        """Number of this rank."""
        self._alive_or_ended()
        return self._me

    def Get_size(self) -> int:
        """Number of ranks."""
        return self._alive_or_ended().size

    def _alive_or_ended(self) -> Context:
        """Return the context; results of a simulation still show their rank after its end."""
        if self._context is None:
            raise MPIError(ERR_COMM, "the communicator is null")
        return self._context

    rank = property(Get_rank)
    size = property(Get_size)

    def Get_name(self) -> str:
        """Name of the communicator."""
        context = self._alive()
        if self._name is not None:
            return self._name
        permanent = context.world.permanent(context)
        return f"MPI_{context.name}" if permanent else ""

    def Set_name(self, name: str) -> None:
        """Name the communicator; errors show the name."""
        self._name = name
        context = self._alive()
        if not context.world.permanent(context):
            context.name = name

    name = property(Get_name, Set_name)

    def Get_topology(self) -> int:
        """Kind of the grid or graph of the ranks; UNDEFINED if there is none."""
        topology = self._alive().topology
        return UNDEFINED if topology is None else int(topology.kind)

    topology = property(Get_topology)
    is_topo = property(lambda self: self.Get_topology() != UNDEFINED)
    is_intra = property(lambda self: self is not None)
    is_inter = property(lambda self: self is None)

    def Is_intra(self) -> bool:
        """Whether it has one group: always."""
        return True

    def Is_inter(self) -> bool:
        """Whether it has two groups: never."""
        return False

    @classmethod
    def Compare(cls, comm1: Comm, comm2: Comm) -> int:
        """Compare the ranks of two communicators, and their order."""
        one, other = comm1._alive(), comm2._alive()
        if one is other:
            return IDENT
        if list(one.ranks) == list(other.ranks):
            return CONGRUENT
        return SIMILAR if set(one.ranks) == set(other.ranks) else UNEQUAL

    def Abort(self, errorcode: int = 0) -> None:
        """End the simulation."""
        context = self._alive()
        scheduler = context.world.scheduler
        scheduler.step("Abort")
        error = SystemExit(errorcode)
        error.add_note(f"rank {context.world.rank.number} called Abort({errorcode})")
        scheduler.fail(error)

    # ---- making and freeing ----

    def Dup(self, info: Info | None = None) -> Comm:
        """Make a communicator of the same ranks, with copies of the attributes."""
        comm, request = self.Idup(info)
        request.Wait()
        return comm

    Clone = Dup_with_info = Dup

    def Idup(self, info: Info | None = None) -> tuple[Comm, Request]:  # noqa: ARG002
        """Start to make a communicator of the same ranks."""
        comm = self._unset()

        def finish(slot: Slot, number: int) -> None:
            comm._context, comm._number = duplicate(slot, number), number
            self._copy_attributes(comm)

        return comm, Request.of(Collective(self._enter("Dup"), Call("Dup", finish)))

    Idup_with_info = Idup

    @classmethod
    def Get_parent(cls) -> Comm:
        """Return no communicator: no other program has started this one."""
        return COMM_NULL

    def _unset(self) -> Comm:
        """Return a null handle of the class that duplicates have."""
        return type(self)()

    def Split(self, color: int = 0, key: int = 0) -> Intracomm:
        """Make a communicator of the ranks with the same color, ordered by key."""
        made = self._collective("Split", divide, contribution=(color, key))
        return COMM_NULL if made is None else Intracomm.of(made)

    def Split_type(self, split_type: int, key: int = 0, info: Info | None = None) -> Intracomm:  # noqa: ARG002
        """Make a communicator of the ranks on this node."""
        context = self._alive()
        color = UNDEFINED
        if split_type == COMM_TYPE_SHARED:
            color = context.world.nodes[context.ranks[self._me]]
        made = self._collective("Split_type", divide, contribution=(color, key))
        return COMM_NULL if made is None else Intracomm.of(made)

    def Create(self, group: Group) -> Intracomm:
        """Make a communicator of a group; all ranks take part."""
        made = self._collective("Create", of_group, contribution=group._members)
        return COMM_NULL if made is None else Intracomm.of(made)

    def Free(self) -> None:
        """Drop attributes, and make this handle null."""
        context = self._context
        if not self:
            if context is None:
                raise MPIError(ERR_COMM, "the communicator is null")
            return
        assert context is not None
        if context.world.permanent(context):
            raise MPIError(ERR_COMM, f"{context.name} cannot be freed")
        self._drop_attributes()
        context.left.discard(self._me)
        if not context.left:
            context.world.drop(context)
        self._context = None

    free = Disconnect = Free


class Intracomm(Comm):
    """A communicator of one group of ranks."""

    _classes: ClassVar[dict[str, type[Intracomm]]] = {}  # with a grid or graph, by name

    def _make(self, name: str, call: Call) -> Any:
        made = Collective(self._enter(call.name), call).wait()
        return COMM_NULL if made is None else self._classes[name].of(made)

    def Create_cart(
        self,
        dims: Sequence[int],
        periods: Sequence[bool] | None = None,
        reorder: bool = False,  # noqa: ARG002 - as in mpi4py
    ) -> Any:
        """Make a communicator with a Cartesian grid of ranks."""
        return self._make("Cartcomm", cart(self.size, dims, periods))

    def Create_graph(
        self,
        index: Sequence[int],
        edges: Sequence[int],
        reorder: bool = False,  # noqa: ARG002
    ) -> Any:
        """Make a communicator with a graph of ranks, which all ranks pass whole."""
        return self._make("Graphcomm", graph(index, edges))

    def Create_dist_graph_adjacent(
        self,
        sources: Sequence[int],
        destinations: Sequence[int],
        sourceweights: Sequence[int] | None = None,
        destweights: Sequence[int] | None = None,
        info: Info | None = None,  # noqa: ARG002
        reorder: bool = False,  # noqa: ARG002
    ) -> Any:
        """Make a communicator with a graph, of which each rank passes its neighbours."""
        call = adjacent(sources, destinations, sourceweights, destweights)
        return self._make("Distgraphcomm", call)

    def Create_dist_graph(
        self,
        sources: Sequence[int],
        degrees: Sequence[int],
        destinations: Sequence[int],
        weights: Sequence[int] | None = None,
        info: Info | None = None,  # noqa: ARG002
        reorder: bool = False,  # noqa: ARG002
    ) -> Any:
        """Make a communicator with a graph, of which ranks pass any edges."""
        return self._make("Distgraphcomm", distributed(sources, degrees, destinations, weights))

    def Create_group(self, group: Group, tag: int = 0) -> Intracomm:
        """Make a communicator of a group; only its members take part."""
        context, ranks = self._enter("Create_group"), group._members
        if context.ranks[self._me] not in ranks:
            return COMM_NULL
        return Intracomm.of(context.world.of_members(context, ranks, tag))


class Predefined(Intracomm):
    """A communicator that has the same name on all ranks; `find` returns that of the running."""

    def __init__(self, find: Callable[[], Context | None]) -> None:
        self._locate = find
        super().__init__()

    @property
    def _context(self) -> Context | None:
        return self._locate()

    @_context.setter
    def _context(self, context: Context | None) -> None:
        """Set nothing: it is found for each call."""

    @property
    def _number(self) -> int:
        context = self._locate()
        return -1 if context is None else context.number_of(context.world.rank)

    @_number.setter
    def _number(self, number: int) -> None:
        """Set nothing: it is found for each call."""

    def _unset(self) -> Intracomm:
        return Intracomm()


def _world() -> Context | None:
    world = active()
    return None if world is None else world.all


def _self() -> Context | None:
    world = active()
    return None if world is None else world.alone(world.rank)


COMM_NULL = Intracomm()
COMM_WORLD = Predefined(_world)
COMM_SELF = Predefined(_self)
