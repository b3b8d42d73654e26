"""The two sides of a transposition, and the messages between them.

A pencil may include some of the processes only. All processes agree on both sides; then each lists
the boxes that it sends and receives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from pencils.array.operands import pencils_among
from pencils.comm.agree import agreed
from pencils.comm.pack import MessageBlock
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
from pencils.plans import Agreement

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")


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


def agree_on_sides(
    comm: MPI.Intracomm | None, source: object, target: object, read: Callable[[agreed, int], T]
) -> tuple[Topology, tuple[Side, Side], T]:
    """Agree on both sides, also where None was passed, and on what `read` returns. *Collective*.

    Returns the communicator of the plan, too. `read` checks other arguments, and records them. All
    is known after one agreement if all ranks have both pencils and equal arguments.
    """
    topology = _plan_communicator(comm, source, target)
    number, found = -1, None
    with agreed(topology.comm, "Transposition") as agree:
        here, there = (
            _as_side(name, pencil, topology)
            for name, pencil in (("source", source), ("target", target))
        )
        agree.flag(up=here is None)
        agree.defer(up=there is None)
        if here is not None and there is not None:
            values = agreed(topology.comm, "Transposition")
            with suppress(Exception):  # which is raised below, on all ranks
                _check_sides(values, here, there)
                found = read(values, here.layout.ndim)
                number = values.number()
        agree.carry(np.array([number]))
    same = agree.carried is not None and bool((agree.carried == number).all())
    if same and found is not None and here is not None and there is not None:
        return topology, (here, there), found
    if here is None or agree.flagged:
        here = _share_side("source", here, topology)
    if there is None or agree.deferred:
        there = _share_side("target", there, topology)
    with agreed(topology.comm, "Transposition") as agree:
        _check_sides(agree, here, there)
        found = read(agree, here.layout.ndim)
    return topology, (here, there), found


def _check_sides(agree: Agreement, here: Side, there: Side) -> None:
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


def message_blocks(
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
