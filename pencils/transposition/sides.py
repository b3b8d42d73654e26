"""The two sides of a transposition, the messages between them, and what moves these.

A pencil may include some of the processes only. All processes agree on both sides; then each lists
the boxes that it sends and receives, and makes the exchange.

What is prepared for blocks borrows their views: it keeps no field of the user alive, and suits any
blocks at the same places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import FieldSpec, pencils_among
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Exchange, PreparedExchange
from pencils.comm.memory import borrowed, place
from pencils.comm.methods.pull import MOST_STAGED, PreparedPull, Pull
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import (
    Topology,
    congruent,
    default_topology,
    topology_of,
    translate,
    user_comm,
)
from pencils.errors import PencilMismatchError
from pencils.layout import Box, Layout, redistribution
from pencils.pencil import Pencil
from pencils.plans import Agreement, fastest_methods

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


# A transpose of given blocks, prepared.
Move: TypeAlias = PreparedPull | PreparedExchange

# Places of blocks for which a plan has something prepared.
_MOST_PLACES = 64


class PlanOptions(NamedTuple):
    """How a plan works."""

    method: str
    max_buffer_bytes: int | None
    check: bool
    meets: bool  # whether a start may wait for all ranks


class Side(NamedTuple):
    """The pencil of the source or of the target, seen from the communicator of the plan."""

    layout: Layout
    rank: int | None  # of this process in the pencil, if it includes this process
    members: tuple[int, ...] | None = None  # ranks in the communicator of the plan, if they differ
    pencil: Pencil | None = None  # where it includes this process

    @classmethod
    def of(cls, pencil: Pencil, members: tuple[int, ...] | None = None) -> Side:
        """Return the side of a pencil that includes this process."""
        return cls(pencil.layout, pencil.rank, members, pencil)

    @property
    def box(self) -> Box:
        """Own block; empty if the pencil does not include this process."""
        if self.rank is None:
            return Box.of_shape((0,) * self.layout.ndim)
        return self.layout.box(self.rank)

    def peer(self, rank: int) -> int:
        """Return the rank in the communicator of the plan of a rank of the pencil."""
        return rank if self.members is None else self.members[rank]

    def __str__(self) -> str:
        """Return the pencil, and the ranks of its processes if they are not all ranks in order."""
        where = "" if self.members is None else f" on ranks {self.members}"
        return f"Pencil({self.layout}){where}"

    def with_singletons(self, dims: frozenset[int]) -> Side:
        """Return the same side with extent 1 along some dimensions."""
        return self._replace(layout=self.layout.with_singletons(dims)) if dims else self


def find_sides(
    comm: MPI.Intracomm | None, source: object, target: object
) -> tuple[Topology, tuple[Side, Side]]:
    """Return the communicator of a plan, and both sides, also where None was passed. *Collective*.

    It raises on every rank if one passed None for a pencil that includes it, or if a pencil does
    not fit the communicator. Ranks have not agreed yet that their pencils are equal.
    """
    topology = _plan_communicator(comm, source, target)
    with agreed(topology.comm, "Transposition") as agree:
        here, there = (
            _as_side(name, pencil, topology)
            for name, pencil in (("source", source), ("target", target))
        )
        agree.flag(up=here is None)
        agree.defer(up=there is None)
    if here is None or agree.flagged:
        here = _share_side("source", here, topology)
    if there is None or agree.deferred:
        there = _share_side("target", there, topology)
    return topology, (here, there)


def check_sides(agree: Agreement, here: Side, there: Side) -> None:
    """Check that both sides have the same shape, and have all ranks agree on them."""
    agree(source=str(here), target=str(there))
    if here.layout.shape != there.layout.shape:
        raise PencilMismatchError(f"both pencils must have the same global shape:\n{here}\n{there}")


def _plan_communicator(comm: MPI.Intracomm | None, *pencils: object) -> Topology:
    """Return the communicator `comm`, or that of the pencil with the most processes."""
    known = pencils_among(*pencils, search=False)
    default = max(known, key=lambda pencil: pencil.size).topology if known else None
    if comm is None:
        return default or default_topology()
    try:
        user = user_comm(comm)
    except Exception:  # the text or the class of an object may raise anything
        with agreed((default or default_topology()).comm, "Transposition"):
            raise
    return topology_of(user)


def check_pair(source: Pencil, target: Pencil) -> None:
    """Check pencils for `transpose`: of one shape, over the same processes."""
    if source.shape != target.shape or not source.same_ranks(target):
        what = "shape" if source.shape != target.shape else "processes in the same order"
        hint = "" if source.shape != target.shape else "; a Transposition can move between others"
        raise PencilMismatchError(
            f"both pencils must have the same global {what}{hint}:\n{source!r}\n{target!r}"
        )


def _as_side(name: str, pencil: object, topology: Topology) -> Side | None:
    """Check the pencil given for one side; None if this process was given None."""
    if pencil is None:
        return None
    if not isinstance(pencil, Pencil):
        raise TypeError(f"{name} must be a Pencil, not {type(pencil).__name__}")
    if pencil.topology is topology or congruent(pencil.topology.comm, topology.comm):
        return Side.of(pencil)
    members = translate(pencil.topology.comm, topology.comm)
    if members is None:
        raise PencilMismatchError(
            f"{name} has processes that are not among those of the plan; pass comm=, a "
            f"communicator that has the processes of both pencils:\n{pencil!r}"
        )
    return Side.of(pencil, members)


def _share_side(name: str, side: Side | None, topology: Topology) -> Side:
    """Broadcast a side to the processes that passed None. *Collective*."""
    comm = topology.comm
    first = topology.first_of(present=side is not None)
    if first is None:
        raise TypeError(
            f"{name} must be a Pencil on the processes that have a part in it, but is None on all"
        )
    layout: Layout
    members: tuple[int, ...] | None
    mine = None if side is None else (side.layout, side.members)
    layout, members = comm.bcast(mine, first)
    with agreed(comm, "Transposition"):
        if side is not None and mine != (layout, members):
            raise PencilMismatchError(
                f"{name} is Pencil({side.layout}), but Pencil({layout}) on rank {first}"
            )
        if side is None and (members is None or comm.rank in members):
            raise TypeError(
                f"{name} must be a Pencil, not None, on a process that has a part in it"
            )
    return Side(layout, None, members) if side is None else side


def _message_blocks(
    source: Side, target: Side, order: Sequence[int], chunks: int
) -> tuple[list[MessageBlock], list[MessageBlock]]:
    """List what this process sends and receives: `chunks` blocks of each box, of whole lines."""

    def cut(whole: Box, own: Box, other: Box, peer: int) -> Iterator[MessageBlock]:
        for chunk, box in enumerate(whole.pieces(max(1, whole.volume // chunks))):
            here, there = box.slices(own.start), box.slices(other.start)
            start = tuple(there[dim].start for dim in order)
            yield MessageBlock(peer, tuple(here[dim] for dim in order), start, chunk)

    here, there = source.layout, target.layout
    left, arrived = source.box, target.box
    leaving, arriving = redistribution(here, there, source.rank, target.rank)
    sends = [
        block
        for _, dest, box in leaving
        for block in cut(box, left, there.box(dest), target.peer(dest))
    ]
    recvs = [
        block
        for origin, _, box in arriving
        for block in cut(box, arrived, here.box(origin), source.peer(origin))
    ]
    return sends, recvs


def _chosen_method(
    sides: tuple[Side, Side], spec: FieldSpec, options: PlanOptions, topology: Topology
) -> str:
    """Return the method that was named, or measured as the fastest one, or "auto"."""
    if options.method != AUTO:
        return options.method
    key = method_key(sides[0].layout, sides[1].layout, spec)
    found: str = fastest_methods(topology).get(key, AUTO)
    return found


def _find_pull(
    sides: tuple[Side, Side], spec: FieldSpec, options: PlanOptions, topology: Topology
) -> Pull | None:
    """Make the plan to pull small blocks.

    None if they are too large or too far, or another method was named or measured. *Collective*.
    """
    if _chosen_method(sides, spec, options, topology) != AUTO:
        return None
    layout = sides[0].layout.with_singletons(spec.singletons)
    nbytes = prod((*layout.shape, *spec.components)) * spec.dtype.itemsize
    if nbytes > MOST_STAGED * (topology.comm.size + 1):
        return None  # some rank sends too much, unless most of it stays
    source, target = (side.with_singletons(spec.singletons) for side in sides)
    sends, recvs = _message_blocks(source, target, sides[1].layout.order, 1)
    pull = Pull.find(topology, [MessageSpec(sends, recvs, spec.components, spec.dtype)])
    return pull if pull is not None and pull.sends_any else None


def _make_exchange(
    sides: tuple[Side, Side],
    spec: FieldSpec,
    options: PlanOptions,
    topology: Topology,
    buffers: Buffers,
) -> Exchange:
    """Slice the own blocks for every message, axes in the memory order of the target."""
    method, order = _chosen_method(sides, spec, options, topology), sides[1].layout.order
    source, target = (side.with_singletons(spec.singletons) for side in sides)
    chunks = 1
    if options.max_buffer_bytes is not None:
        block = max(source.box.volume, target.box.volume) * prod(spec.components)
        chunks = topology.most(max(1, -(-block * spec.dtype.itemsize // options.max_buffer_bytes)))
    sends, recvs = _message_blocks(source, target, order, chunks)
    if chunks > 1:
        chunks = topology.most(1 + max((block.chunk for block in (*sends, *recvs)), default=0))
    return Exchange(
        topology,
        [MessageSpec(sends, recvs, spec.components, spec.dtype)],
        axes=len(order),
        method=method,
        chunks=chunks,
        buffers=buffers,
    )


def method_key(source: Layout, target: Layout, spec: FieldSpec) -> tuple[str, str, FieldSpec]:
    """Return what the fastest method depends on, on a given communicator."""
    return str(source), str(target), spec


class Moves:
    """What a plan moves blocks by, and what is prepared for blocks. Making it is *Collective*."""

    def __init__(
        self,
        sides: tuple[Side, Side],
        spec: FieldSpec,
        options: PlanOptions,
        topology: Topology,
        buffers: Buffers,
    ) -> None:
        self._topology = topology
        self._bound: dict[tuple[Any, ...], Move] = {}  # by way, and by the places of blocks
        self._make = partial(_make_exchange, sides, spec, options, topology, buffers)
        self._exchange: Exchange | None = None
        self._meets = options.meets
        self.pull: Pull | None = None
        if options.max_buffer_bytes is None:
            self.pull = _find_pull(sides, spec, options, topology)
        if self.pull is None or not self._meets:
            self.exchange()
        self.method = self.exchange().method if self.pull is None else Pull.name

    def exchange(self) -> Exchange:
        """Return the exchange for large blocks. *Collective* the first time."""
        if self._exchange is None:
            self._exchange = self._make()
        return self._exchange

    def pull_for(self, fields: int, *, started: bool = False) -> Pull | None:
        """Return what so many fields are pulled by, if they are.

        Where a start must not wait for all ranks, fields are not pulled by one.
        """
        pull = self.pull
        if pull is None or not pull.fits(fields) or (started and not self._meets):
            return None
        return pull

    def needs_setup(self, fields: int, *, started: bool = False) -> bool:
        """Whether ranks have to make something before they move so many fields."""
        if self.pull_for(fields, started=started) is None:
            return self._exchange is None
        return bool(self._topology.under_way)  # it may still write what would be packed

    def set_up(self, fields: int) -> None:
        """Complete older exchanges, and make what moves many fields at once. *Collective*."""
        self._topology.complete()
        if self.pull_for(fields) is None:
            self.exchange()

    def bound(self, sources: list[Array], targets: list[Array], *, started: bool = False) -> Move:
        """Prepare to move blocks that were checked; local."""
        pull = self.pull_for(len(sources), started=started)
        key = (pull is None, *[place(block) for block in (*sources, *targets)])
        found = self._bound.get(key)
        if found is None:
            views = list(map(borrowed, sources)), list(map(borrowed, targets))
            if pull is not None:
                every = product(sources, targets)
                aliased = any(np.may_share_memory(*pair) for pair in every)
                found = pull.prepare(*views, aliased=aliased)
            else:
                assert self._exchange is not None
                found = self._exchange.prepare(*views)
            if len(self._bound) >= _MOST_PLACES:
                self._bound.clear()
            self._bound[key] = found
        return found

    def free(self) -> None:
        """Complete what is under way and release MPI objects. *Collective* if anything is."""
        self._bound.clear()
        del self._make  # a freed plan that is still referenced keeps no memory
        if self._exchange is not None:
            self._exchange.free()
