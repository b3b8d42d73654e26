"""The two ends of a transposition, as all of its processes know them, and the exchange between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from pencils.array.spec import FieldSpec
from pencils.comm.agree import agreed
from pencils.comm.buffers import Buffers
from pencils.comm.exchange import AUTO, Exchange
from pencils.comm.methods import Cargo, Piece
from pencils.comm.topology import Topology, congruent, meeting_place, topology_of, translate
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout import Box, Layout, redistribution
from pencils.pencil import Pencil
from pencils.transposition.options import PlanOptions, method_key

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


@dataclass(frozen=True, slots=True)
class End:
    """Where fields come from, or go to.

    Parameters
    ----------
    layout : Layout
        Of the pencil.
    rank : int or None
        Rank of this process in it; None if it has no part.
    members : tuple of int or None
        Rank on the communicator of the plan of every rank of the layout; None if it is the same.
    """

    layout: Layout
    rank: int | None
    members: tuple[int, ...] | None

    @property
    def box(self) -> Box:
        """Own block; empty if this process has no part."""
        if self.rank is None:
            return Box.of_shape((0,) * self.layout.ndim)
        return self.layout.box(self.rank)

    def peer(self, rank: int) -> int:
        """Rank on the communicator of the plan of a rank of the layout."""
        return rank if self.members is None else self.members[rank]

    def __str__(self) -> str:
        """Return the pencil, and where its processes are if that is not clear."""
        where = "" if self.members is None else f" on ranks {self.members}"
        return f"Pencil({self.layout}){where}"

    def with_singletons(self, dims: frozenset[int]) -> End:
        """Give some dimensions extent 1."""
        return replace(self, layout=self.layout.with_singletons(dims)) if dims else self


def widest(comm: MPI.Intracomm | None, *pencils: object) -> Topology:
    """Find the communicator of a plan: `comm`, or that of the pencil with the most processes.

    Raises
    ------
    ArgumentError, TypeError
        If `comm` is no communicator; on every rank of that of the pencils.
    """
    known = [pencil for pencil in pencils if isinstance(pencil, Pencil)]
    default = max(known, key=lambda pencil: pencil.size).topology if known else None
    if comm is None:
        return default or meeting_place()
    try:
        return topology_of(comm)
    except (TypeError, ArgumentError):
        with agreed((default or meeting_place()).comm, "Transposition"):
            raise


def read_ends(topology: Topology, source: object, target: object) -> tuple[End, End]:
    """Learn both ends from the processes that know them. *Collective*.

    Raises
    ------
    TypeError
        On every rank, if one passed no pencil though it has a part.
    PencilMismatchError
        On every rank, if the pencils do not fit each other or the communicator.
    RankDisagreementError
        On every rank, if ranks passed different pencils.
    """
    given = {"source": source, "target": target}
    with agreed(topology.comm, "Transposition"):
        mine = {name: _read_end(name, pencil, topology) for name, pencil in given.items()}
    partial = topology.any_of([end is None for end in mine.values()])
    with agreed(topology.comm, "Transposition") as agree:
        agree(
            **{
                name: str(end)
                for (name, end), some in zip(mine.items(), partial, strict=True)
                if not some
            }
        )
    here, there = (
        _tell_end(name, end, topology) if some or end is None else end
        for (name, end), some in zip(mine.items(), partial, strict=True)
    )
    if here.layout.shape != there.layout.shape:
        msg = f"both pencils must have the same global shape:\n{here}\n{there}"
        raise PencilMismatchError(msg)
    return here, there


def _read_end(name: str, pencil: object, topology: Topology) -> End | None:
    """Check what this process knows of one end; None if it has to learn it from others."""
    if pencil is None:
        return None
    if not isinstance(pencil, Pencil):
        msg = f"{name} must be a Pencil, not {type(pencil).__name__}"
        raise TypeError(msg)
    if pencil.topology is topology or congruent(pencil.topology.comm, topology.comm):
        return End(pencil.layout, pencil.rank, None)
    members = translate(pencil.topology.comm, topology.comm)
    if members is None:
        msg = (
            f"{name} lies over processes that are not among those of the plan; pass comm=, a "
            f"communicator that has the processes of both pencils:\n{pencil!r}"
        )
        raise PencilMismatchError(msg)
    return End(pencil.layout, pencil.rank, members)


def _tell_end(name: str, end: End | None, topology: Topology) -> End:
    """Tell processes that have no part in a pencil what it is. *Collective*."""
    comm = topology.comm
    first = topology.first_of(present=end is not None)
    if first is None:
        msg = f"{name} must be a Pencil on the processes that have a part in it, but is None on all"
        raise TypeError(msg)
    known = comm.bcast((end.layout, end.members) if end and comm.rank == first else None, first)
    layout: Layout = known[0]
    members: tuple[int, ...] | None = known[1]
    with agreed(comm, "Transposition"):
        if end is not None and (end.layout, end.members) != known:
            msg = f"{name} is Pencil({end.layout}), but Pencil({layout}) on rank {first}"
            raise PencilMismatchError(msg)
        if end is None and (members is None or comm.rank in members):
            msg = f"{name} must be a Pencil, not None, on a process that has a part in it"
            raise TypeError(msg)
    return End(layout, None, members) if end is None else end


def pieces(
    source: End, target: End, order: Sequence[int], turns: int
) -> tuple[list[Piece], list[Piece]]:
    """List what this process sends and what it receives.

    Parameters
    ----------
    source, target : End
        Ends of equal shape, singleton dimensions included.
    order : sequence of int
        Order of the axes of the arrays.
    turns : int
        Messages are cut into at least so many pieces, as equal as whole lines permit.
    """

    def cut(whole: Box, own: Box, other: Box, peer: int) -> Iterator[Piece]:
        for turn, box in enumerate(whole.pieces(max(1, whole.volume // turns))):
            here, there = box.slices(own.start), box.slices(other.start)
            start = tuple(there[dim].start for dim in order)
            yield Piece(peer, tuple(here[dim] for dim in order), start, turn)

    schedule = redistribution(source.layout, target.layout, source.rank, target.rank)
    leaving, arriving = source.box, target.box
    sends = [
        piece
        for _, dest, box in schedule.sends
        for piece in cut(box, leaving, target.layout.box(dest), target.peer(dest))
    ]
    recvs = [
        piece
        for origin, _, box in schedule.recvs
        for piece in cut(box, arriving, source.layout.box(origin), source.peer(origin))
    ]
    return sends, recvs


def make_exchange(
    ends: tuple[End, End],
    kind: FieldSpec,
    options: PlanOptions,
    topology: Topology,
    buffers: Buffers,
) -> Exchange:
    """Slice the own blocks for every message, axes in the memory order of the target."""
    method, order = options.method, ends[1].layout.order
    if method == AUTO:
        method = topology.methods.get(method_key(ends[0].layout, ends[1].layout, kind), AUTO)
    source, target = (end.with_singletons(kind.singletons) for end in ends)
    turns = 1
    if options.staging is not None:
        block = max(source.box.volume, target.box.volume) * prod(kind.components)
        turns = topology.most(max(1, -(-block * kind.dtype.itemsize // options.staging)))
    sends, recvs = pieces(source, target, order, turns)
    if turns > 1:
        turns = topology.most(1 + max((piece.turn for piece in (*sends, *recvs)), default=0))
    return Exchange(
        topology,
        [Cargo(sends, recvs, kind.components, kind.dtype)],
        axes=len(order),
        method=method,
        turns=turns,
        buffers=buffers,
    )
