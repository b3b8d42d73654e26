"""Private communicators: an attribute of a user's one, found by every pencil, and freed with it.

Messages of the library never match those of the user; the caches of higher layers are in it, too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial, reduce
from itertools import count
from operator import or_
from statistics import median
from time import perf_counter
from typing import Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.failure import Guarded
from pencils.comm.mpi import MPI, OTHER_MPI, PerProcess, is_foreign, is_simulated, values
from pencils.comm.shared_memory import SharedPool
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid

V = TypeVar("V")


def attribute(make: Callable[[], V]) -> Callable[[Topology], V]:
    """Return the function that finds a value of a topology, such as a cache, made on first use.

    Its method ``clear`` is called before the communicators are freed. All is local.

    Examples
    --------
    >>> sizes = attribute(dict[str, int])
    >>> sizes(topology_of(MPI.COMM_SELF))["step"] = 3
    >>> sizes(topology_of(MPI.COMM_SELF))
    {'step': 3}
    """

    def find(topology: Topology) -> V:
        found: V | None = topology.attributes.get(find)
        if found is None:
            found = topology.attributes[find] = make()
        return found

    return find


class Topology:
    """The private communicators of one communicator of the user, and what is kept with them.

    No topology in the sense of MPI. Making one is *Collective*.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        # Split, unlike Dup, leaves Cartesian structure, info and attributes of the user behind.
        self.comm = split(comm, 0)
        if not isinstance(self.comm, Guarded):
            self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank = self.comm.rank
        self.freed = False  # with the user's communicator
        self.attributes: dict[object, Any] = {}  # see `attribute`
        self.exchanges: WeakSet[Any] = WeakSet()  # what has to be freed before the communicators
        # Handles of exchanges that were started, oldest first. MPI writes to buffers until an
        # exchange completes, even if the user has dropped the handle.
        self.under_way = _queue(self.comm)
        # Numbers of plans, and of graphs: equal on all ranks, which draw them in the same order.
        self.plan_numbers = count()
        self.graph_numbers = count()
        self._shared: SharedPool | None = None
        self._found: dict[str, Any] = {}  # by ranks together, once
        self.groups: dict[bytes, tuple[MPI.Intracomm, SharedPool]] = {}
        self._made: dict[object, MPI.Intracomm] = {  # all other communicators, by use
            "node": made_together(
                self.comm, lambda: self.comm.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
            )
        }

    def along(self, grid: ProcessGrid, axes: Collection[int]) -> MPI.Intracomm:
        """Communicator of the ranks that differ from this one along `axes` of the grid only.

        *Collective* over the whole topology the first time; ranks keep their order.
        """
        if len(axes) == len(grid.shape):
            return self.comm
        key = "along", grid.shape, tuple(sorted(axes))
        return self._kept(key, lambda: self._split_along(grid, axes))

    def lent(self, grid: ProcessGrid) -> list[MPI.Intracomm]:
        """Communicators along each axis of a grid, and of this rank alone, for other libraries.

        Communicators that a library has freed are made again. *Collective* the first time.
        """
        return [
            self._kept(("lent", grid.shape, axis), partial(self._split_along, grid, [axis]))
            for axis in range(len(grid.shape) + 1)
        ]

    def _split_along(self, grid: ProcessGrid, axes: Collection[int]) -> MPI.Intracomm:
        coords = grid.coords(self.rank)
        fixed = tuple(0 if axis in axes else coord for axis, coord in enumerate(coords))
        return split(self.comm, grid.rank(fixed))

    def in_order(self, key: object, place: int) -> MPI.Intracomm:
        """Communicator of all ranks in another order, named `key`: this rank is at `place`.

        *Collective* the first time.
        """
        return self._kept(("order", key), lambda: split(self.comm, 0, place))

    def _kept(self, key: object, make: Callable[[], MPI.Intracomm]) -> MPI.Intracomm:
        """Return a communicator made before, unless it was freed."""
        found = self._made.get(key)
        if not found:  # COMM_NULL is false
            found = self._made[key] = make()
        return found

    @property
    def node(self) -> MPI.Intracomm:
        """Communicator of the ranks on this node."""
        return self._made["node"]

    def _once(self, name: str, find: Callable[[], V]) -> V:
        if name not in self._found:
            self._found[name] = find()
        found: V = self._found[name]
        return found

    @property
    def on_node(self) -> dict[int, int]:
        """Rank on this node of every rank that is on it."""
        ranks = partial(translate, self.node, self.comm)
        return self._once("on_node", lambda: {rank: i for i, rank in enumerate(ranks() or ())})

    @property
    def nodes(self) -> int:
        """Number of nodes. *Collective* the first time."""
        if self.node.size == self.comm.size:
            return 1
        first = int(self.node.rank == 0)
        return self._once("nodes", lambda: int(self.comm.allreduce(first, op=MPI.SUM)))

    @property
    def known_nodes(self) -> int | None:
        """Number of nodes; None on all ranks if it takes them all to count; local."""
        return 1 if self.node.size == self.comm.size else self._found.get("nodes")

    @property
    def node_of(self) -> NDArray[np.int64]:
        """Lowest rank on the node of each rank. *Collective* the first time."""
        lowest = min(self.on_node)
        return self._once("node_of", lambda: np.array(self.comm.allgather(lowest), np.int64))

    @property
    def by_node(self) -> MPI.Intracomm | None:
        """Communicator of all ranks on which those of each node follow each other.

        None if they do here. *Collective* the first time.
        """
        here = list(self.on_node)
        scattered = here[-1] - here[0] >= len(here)
        if not self._once("scattered", lambda: self.any_of([scattered])[0]):
            return None
        # Ranks that pass the same place keep their order.
        return self._kept("by node", lambda: split(self.comm, 0, here[0]))

    @property
    def crowded(self) -> bool:
        """Whether some node has more ranks than cores for them. *Collective* the first time.

        A barrier of many ranks then waits for each to get its turn on a core.
        """

        def find() -> bool:
            crowded = not is_simulated() and self.node.size > _cores(self.node)
            return self.any_of([crowded])[0]

        return self._once("crowded", find)

    @property
    def shared(self) -> SharedPool:
        """Memory that the ranks on this node share. *Collective* the first time."""
        if self._shared is None:
            self._shared = SharedPool(self.node)
        return self._shared

    def is_shared(self, array: NDArray[Any]) -> bool:
        """Whether other ranks of the node can read an array."""
        return self._shared is not None and self._shared.find(array) is not None

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """Whether each flag is set on any rank. *Collective*."""
        found = np.array(flags, dtype=bool)
        self.comm.Allreduce(MPI.IN_PLACE, found, op=MPI.LOR)
        return [bool(flag) for flag in found]

    def alike(self, number: int | None) -> bool:
        """Whether all ranks have the same number, and one at all. *Collective*."""
        here = number or 0
        most = np.array([number is None, here, -here], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, most, op=MPI.MAX)
        return not most[0] and bool(most[1] == -most[2])

    def most(self, number: int) -> int:
        """Largest of the numbers on all ranks. *Collective*."""
        largest: int = self.comm.allreduce(number, op=MPI.MAX)
        return largest

    def first_of(self, *, present: bool) -> int | None:
        """Lowest rank on which `present` is true; None if there is none. *Collective*."""
        size = self.comm.size
        first: int = self.comm.allreduce(self.rank if present else size, op=MPI.MIN)
        return first if first < size else None

    def complete(self) -> None:
        """Complete all exchanges that are under way. *Collective* if there are any."""
        while self.under_way:
            self.under_way.popleft().finish()

    def abandon(self) -> None:
        """Forget what is under way, because ranks have died; `free` is local then."""
        self.freed = True
        self.under_way.clear()

    @property
    def communicators(self) -> int:
        """Number of communicators held here."""
        return 1 + len(self._made) + len(self.groups)

    def free(self) -> None:
        """Complete what is under way and free all communicators. *Collective*.

        Runs when the user's communicator is freed.
        """
        self.freed = True
        self.complete()  # before any is freed: an exchange may complete others
        for exchange in list(self.exchanges):
            exchange.free()
        for value in self.attributes.values():
            value.clear()
        for group, pool in self.groups.values():
            pool.free()
            group.Free()
        self.groups.clear()
        if self._shared is not None:
            self._shared.free()
        for comm in (*self._made.values(), self.comm):
            if comm:
                comm.Free()
        self._made.clear()


def topology_of(comm: MPI.Intracomm | None) -> Topology:
    """Private communicators of `comm` (default: the world), made on first use.

    *Collective* the first time a communicator is seen; afterwards a local look-up.
    """
    user = user_comm(comm)
    found = user.Get_attr(_keyval())
    if isinstance(found, _Owner):
        return found.topology
    owner = _Owner(Topology(user))
    user.Set_attr(_keyval(), owner)
    return owner.topology


def abandon(comms: list[MPI.Comm]) -> None:
    """Free communicators of which ranks have died, private ones with their owners; local."""
    owners = [comm.Get_attr(_keyval()) for comm in comms]
    for owner in owners:
        if isinstance(owner, _Owner):
            owner.topology.abandon()
    # Those of users come first: they free their private ones.
    for number in sorted(range(len(comms)), key=lambda number: owners[number] is None):
        with suppress(MPI.Exception):
            comms[number].Free()


def default_topology() -> Topology:
    """Topology of the world if it has one, else of this rank alone; local.

    A rank whose arguments name no communicator agrees there that its call is wrong.
    """
    known = MPI.COMM_WORLD.Get_attr(_keyval()) is not None
    return topology_of(MPI.COMM_WORLD if known else MPI.COMM_SELF)


def user_comm(comm: MPI.Intracomm | None) -> MPI.Intracomm:
    """Check a communicator given by the user; None means the world."""
    given: object = MPI.COMM_WORLD if comm is None else comm
    if isinstance(given, MPI.Comm) and not given:
        raise ArgumentError(
            "comm is MPI.COMM_NULL: this process is not a member, or the communicator was freed"
        )
    if not isinstance(given, MPI.Intracomm):
        raise TypeError(
            f"comm is {given!r}, which belongs to {OTHER_MPI}"
            if is_foreign(given)
            else f"comm must be an intra-communicator of mpi4py, not {comm!r}"
        )
    return given


def as_comm(comm: MPI.Intracomm | None, call: str) -> MPI.Intracomm:
    """Check the communicator given to `call`; None means the world.

    An object that is no communicator raises on all ranks of the default topology.
    """
    try:
        return user_comm(comm)
    except ArgumentError:  # COMM_NULL, which ranks have that do not belong to a communicator
        raise
    except Exception:  # the text or the class of an object may raise anything
        with agreed(default_topology().comm, call):
            raise


def congruent(one: MPI.Intracomm, other: MPI.Intracomm) -> bool:
    """Whether both communicators hold the same processes in the same order; local.

    A communicator that was freed, or of another MPI, is congruent with itself only.
    """
    if one is other or not (one and other) or is_foreign(one) or is_foreign(other):
        return one is other
    return MPI.Comm.Compare(one, other) in (MPI.IDENT, MPI.CONGRUENT)


def translate(comm: MPI.Intracomm, other: MPI.Intracomm) -> tuple[int, ...] | None:
    """Rank on `other` of every rank of `comm`; None if some of them are not there. Local."""
    if not (comm and other):
        return None
    here, there = comm.Get_group(), other.Get_group()
    ranks = MPI.Group.Translate_ranks(here, None, there)
    here.Free()
    there.Free()
    return None if MPI.UNDEFINED in ranks else tuple(ranks)


def _cores(node: MPI.Intracomm) -> int:
    """Count the cores that ranks of a node may use. *Collective* over the node."""
    try:
        mine = sum(1 << core for core in os.sched_getaffinity(0))
    except Exception:  # noqa: BLE001 - not on this system; the other ranks wait
        mine = (1 << (os.cpu_count() or 1)) - 1
    masks: list[int] = node.allgather(mine)
    return reduce(or_, masks).bit_count()


# Exchanges under way, by the processes that take part.
_queues = PerProcess(WeakValueDictionary[bytes, deque[Any]])


def _queue(comm: MPI.Intracomm) -> deque[Any]:
    """Return the queue of exchanges under way among these processes; local.

    Communicators of the same processes have one: they may wait in any order of communicators.
    """
    ranks = translate(comm, MPI.COMM_WORLD)
    if ranks is None:  # processes that were started later
        return deque()
    return _queues().setdefault(np.sort(ranks).tobytes(), deque())


class _Owner:
    """The attribute of a user's communicator: frees the topology when MPI deletes the attribute.

    MPICH may crash in a callback of the attribute, for which mpi4py reads the attributes.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._made_by = values()

    def __del__(self) -> None:
        # At MPI_Finalize MPI cleans up by itself, and a collective here could not complete. Nor
        # could it if a simulation that has failed goes, whose ranks no longer run.
        if values() is self._made_by and not MPI.Is_finalized():
            self.topology.free()


_keyval = PerProcess(lambda: MPI.Comm.Create_keyval())  # noqa: PLW0108 - as MPI is then

# Bytes that MPI libraries allocate to make a communicator, and for each of its ranks: MPICH 2 MiB
# for the first one of a node.
_ROOM, _ROOM_OF_RANK = 2**22, 64

private_class = PerProcess(lambda: MPI.Intracomm)


def split(comm: MPI.Intracomm, color: int, place: int | None = None) -> MPI.Intracomm:
    """Communicator of the ranks that pass the same color, by place; default: as in `comm`.

    *Collective*.
    """
    return made_together(comm, lambda: comm.Split(color, comm.rank if place is None else place))


def made_together(comm: MPI.Intracomm, make: Callable[[], MPI.Comm]) -> MPI.Intracomm:
    """Make a private communicator on all ranks of `comm`, or raise on all. *Collective*.

    MPI is called when each rank has the memory for it. A rank on which MPI fails all the same may
    have left the other ranks in its call: MPI can end that no more than an agreement can.
    """
    with agreed(comm, "communicator"):
        np.empty(_ROOM + _ROOM_OF_RANK * comm.size, np.uint8)  # is free again
    with agreed(comm, "communicator"):
        made = make()
        assert isinstance(made, MPI.Intracomm)
        return made if isinstance(made, Guarded) else private_class()(made)


def time_in_turn(
    comm: MPI.Intracomm, calls: Sequence[Callable[[], object]], repeat: int
) -> list[float]:
    """Time calls in turn, so that a disturbance affects all of them. *Collective*.

    Each call runs once before, to allocate what it needs. Returns, for each call, the median over
    the repetitions of the time of the slowest rank, in seconds; the same on all ranks. On simulated
    ranks, where times mean nothing and a run must not depend on them, all are one second.
    """
    for call in calls:
        call()
    if is_simulated():
        return [1.0] * len(calls)
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(repeat):
        for call, seconds in zip(calls, samples, strict=True):
            comm.Barrier()
            start = perf_counter()
            call()
            seconds.append(comm.allreduce(perf_counter() - start, op=MPI.MAX))
    return [median(seconds) for seconds in samples]
