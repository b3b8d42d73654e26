"""The two sides of a transposition, and the messages between them.

A pencil may be known to some of the processes only. All of them first agree on both sides; then
each lists the boxes it sends and receives, and makes the exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from pencils.array.operands import FieldSpec
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Exchange
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology, congruent, default_topology, topology_of, translate
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout import Box, Layout, redistribution
from pencils.pencil import Pencil
from pencils.plan import fastest_methods

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class PlanOptions(NamedTuple):
    """How a plan works."""

    method: str
    max_buffer_bytes: int | None
    check: bool


class Side(NamedTuple):
    """The pencil of the source or of the target, seen from the communicator of the plan.

    Parameters
    ----------
    layout : Layout
        Of the pencil.
    rank : int or None
        Rank of this process in the pencil; None if the pencil does not include this process.
    members : tuple of int or None
        Rank in the communicator of the plan of every rank of the pencil; None if the two are equal.
    """

    layout: Layout
    rank: int | None
    members: tuple[int, ...] | None = None

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


def plan_communicator(comm: MPI.Intracomm | None, *pencils: object) -> Topology:
    """Return the communicator of a plan: `comm`, or that of the pencil with the most processes.

    Raises
    ------
    ArgumentError, TypeError
        If `comm` is not a communicator; on every rank of the communicator of the pencils.
    """
    known = [pencil for pencil in pencils if isinstance(pencil, Pencil)]
    default = max(known, key=lambda pencil: pencil.size).topology if known else None
    if comm is None:
        return default or default_topology()
    try:
        return topology_of(comm)
    except (TypeError, ArgumentError):
        with agreed((default or default_topology()).comm, "Transposition"):
            raise


def agree_on_sides(topology: Topology, source: object, target: object) -> tuple[Side, Side]:
    """Return both sides, also on processes that passed None. *Collective*.

    Raises
    ------
    TypeError
        On every rank, if one passed None for a pencil that includes it.
    PencilMismatchError
        On every rank, if the pencils do not fit each other or the communicator.
    RankDisagreementError
        On every rank, if ranks passed different pencils.
    """
    given = {"source": source, "target": target}
    with agreed(topology.comm, "Transposition"):
        mine = {name: _as_side(name, pencil, topology) for name, pencil in given.items()}
    partial = topology.any_of([side is None for side in mine.values()])
    with agreed(topology.comm, "Transposition") as agree:
        agree(
            **{
                name: str(side)
                for (name, side), some in zip(mine.items(), partial, strict=True)
                if not some
            }
        )
    here, there = (
        _share_side(name, side, topology) if some or side is None else side
        for (name, side), some in zip(mine.items(), partial, strict=True)
    )
    if here.layout.shape != there.layout.shape:
        msg = f"both pencils must have the same global shape:\n{here}\n{there}"
        raise PencilMismatchError(msg)
    return here, there


def _as_side(name: str, pencil: object, topology: Topology) -> Side | None:
    """Check the pencil given for one side; None if this process was given None."""
    if pencil is None:
        return None
    if not isinstance(pencil, Pencil):
        msg = f"{name} must be a Pencil, not {type(pencil).__name__}"
        raise TypeError(msg)
    if pencil.topology is topology or congruent(pencil.topology.comm, topology.comm):
        return Side(pencil.layout, pencil.rank)
    members = translate(pencil.topology.comm, topology.comm)
    if members is None:
        msg = (
            f"{name} has processes that are not among those of the plan; pass comm=, a "
            f"communicator that has the processes of both pencils:\n{pencil!r}"
        )
        raise PencilMismatchError(msg)
    return Side(pencil.layout, pencil.rank, members)


def _share_side(name: str, side: Side | None, topology: Topology) -> Side:
    """Broadcast a side to the processes that passed None. *Collective*."""
    comm = topology.comm
    first = topology.first_of(present=side is not None)
    if first is None:
        msg = f"{name} must be a Pencil on the processes that have a part in it, but is None on all"
        raise TypeError(msg)
    known = comm.bcast((side.layout, side.members) if side and comm.rank == first else None, first)
    layout: Layout = known[0]
    members: tuple[int, ...] | None = known[1]
    with agreed(comm, "Transposition"):
        if side is not None and (side.layout, side.members) != known:
            msg = f"{name} is Pencil({side.layout}), but Pencil({layout}) on rank {first}"
            raise PencilMismatchError(msg)
        if side is None and (members is None or comm.rank in members):
            msg = f"{name} must be a Pencil, not None, on a process that has a part in it"
            raise TypeError(msg)
    return Side(layout, None, members) if side is None else side


def _pieces(
    source: Side, target: Side, order: Sequence[int], chunks: int
) -> tuple[list[MessageBlock], list[MessageBlock]]:
    """List what this process sends and what it receives.

    Parameters
    ----------
    source, target : Side
        Sides of equal shape, singleton dimensions included.
    order : sequence of int
        Order of the axes of the arrays.
    chunks : int
        Number of pieces, at least, into which messages are cut; pieces consist of whole lines.
    """

    def cut(whole: Box, own: Box, other: Box, peer: int) -> Iterator[MessageBlock]:
        for chunk, box in enumerate(whole.pieces(max(1, whole.volume // chunks))):
            here, there = box.slices(own.start), box.slices(other.start)
            start = tuple(there[dim].start for dim in order)
            yield MessageBlock(peer, tuple(here[dim] for dim in order), start, chunk)

    leaving, arriving = redistribution(source.layout, target.layout, source.rank, target.rank)
    sends = [
        piece
        for _, dest, box in leaving
        for piece in cut(box, source.box, target.layout.box(dest), target.peer(dest))
    ]
    recvs = [
        piece
        for origin, _, box in arriving
        for piece in cut(box, target.box, source.layout.box(origin), source.peer(origin))
    ]
    return sends, recvs


def make_exchange(
    sides: tuple[Side, Side],
    spec: FieldSpec,
    options: PlanOptions,
    topology: Topology,
    buffers: Buffers,
) -> Exchange:
    """Slice the own blocks for every message, axes in the memory order of the target."""
    method, order = options.method, sides[1].layout.order
    if method == AUTO:
        method = fastest_methods(topology).get(
            method_key(sides[0].layout, sides[1].layout, spec), AUTO
        )
    source, target = (side.with_singletons(spec.singletons) for side in sides)
    chunks = 1
    if options.max_buffer_bytes is not None:
        block = max(source.box.volume, target.box.volume) * prod(spec.components)
        chunks = topology.most(max(1, -(-block * spec.dtype.itemsize // options.max_buffer_bytes)))
    sends, recvs = _pieces(source, target, order, chunks)
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
