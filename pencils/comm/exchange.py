"""The one executor of schedules on raw NumPy arrays.

An `Exchange` knows which slices of a source array go to which rank and which slices of a target
array come from whom. How the bytes travel is a method from the table `METHODS`; a new method is a
class in `pencils.comm.methods` and an entry in that table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.buffers import Buffers
from pencils.comm.memory import same_view
from pencils.comm.methods import (
    METHODS,
    Arrival,
    Call,
    Cargo,
    Flow,
    Method,
    Packing,
    Piece,
    Plan,
    each_of,
    is_near,
    nothing,
)
from pencils.comm.pack import Copies
from pencils.comm.topology import Topology
from pencils.comm.uncopied import Uncopied
from pencils.errors import ArgumentError

Array = NDArray[Any]
T = TypeVar("T")

AUTO = "auto"


class Handle(Uncopied, Generic[T]):
    """An exchange under way; `wait` completes it and returns its result."""

    __slots__ = ("_complete", "_result", "exchange")

    def __init__(self, exchange: Exchange, complete: Callable[[], None], result: T) -> None:
        self.exchange = exchange
        self._complete: Callable[[], None] | None = complete
        self._result = result
        exchange.topology.under_way.append(self)

    def wait(self) -> T:
        """Complete the exchange; a second call returns at once. *Collective*.

        Exchanges among the same processes complete in the order in which they were started, which
        must be the same on all of them, so that ranks may wait for them in any order. Those among
        other processes are left alone, even if some take part in both.
        """
        under_way = self.exchange.topology.under_way
        while self._complete is not None:
            under_way.popleft().finish()
        return self._result

    def finish(self) -> None:
        """Complete this exchange, the oldest one on its communicator. *Collective*."""
        complete, self._complete = self._complete, None
        assert complete is not None
        complete()


class Exchange:
    """Reusable plan that moves slices of source arrays into slices of other ranks' targets.

    Parameters
    ----------
    topology : Topology
        Whose private communicator to use. Making, starting and waiting are *Collective* over it.
    cargoes : sequence of Cargo
        What is moved of each array. One alone serves any number of arrays that are alike.
    axes : int
        Number of axes that pieces slice: the last ones of the arrays.
    method : str
        A name from `METHODS`, or "auto": what is fastest as a rule, given where the ranks run.
    turns : int
        Pieces travel in so many turns, one after the other, the same number on all ranks; with one
        cargo only.
    buffers : Buffers
        Where to take memory from; plans that are used in turn may share them.
    arrive : Arrival
        What is made of pieces that arrive: they are copied, or `Additions`.

    Raises
    ------
    ArgumentError
        On every rank, if there is no such method or it does not reach all ranks.
    """

    def __init__(
        self,
        topology: Topology,
        cargoes: Sequence[Cargo],
        *,
        axes: int,
        method: str = AUTO,
        turns: int = 1,
        buffers: Buffers | None = None,
        arrive: Arrival = Copies,
    ) -> None:
        rank = topology.comm.rank
        self.topology = topology
        self.buffers = Buffers() if buffers is None else buffers
        self._arrive = arrive
        self._own = [_pairs_on(rank, cargo) for cargo in cargoes]
        columns = axes + max(len(cargo.lead) for cargo in cargoes)
        away, home = zip(*(_packings(topology, cargo, turns) for cargo in cargoes), strict=True)
        plans = [
            Plan(topology, leaving, arriving, columns, self.buffers, arrive)
            for leaving, arriving in zip(
                zip(*away, strict=True), zip(*home, strict=True), strict=True
            )
        ]
        self._methods = _make_methods(check_method(method), plans)
        self.method = self._methods[0].name
        self.turns = turns
        topology.exchanges.add(self)

    def bind(
        self, sources: Sequence[Array], targets: Sequence[Array], *, disjoint: bool = False
    ) -> Bound:
        """Prepare to move ``sources[i]`` to ``targets[i]``, all at once; local.

        Parameters
        ----------
        sources, targets : sequence of numpy.ndarray
            Arrays of any strides; a target may share memory with any source.
        disjoint : bool
            Whether nothing that is read is written, even if arrays share memory.

        Raises
        ------
        ArgumentError
            If they share memory and the exchange takes several turns.
        """
        every = product(sources, targets)
        aliased = not disjoint and any(np.may_share_memory(*pair) for pair in every)
        if aliased and len(self._methods) > 1:
            msg = (
                "source and target share memory, so all that leaves has to be packed before "
                "anything arrives; leave out max_buffer_bytes= for this"
            )
            raise ArgumentError(msg)
        pairs = list(zip(sources, targets, strict=True))
        calls = [Call(sources, targets, aliased)]
        if len(self._methods) > 1:  # one array after the other, to stay within the bound
            calls = [Call([source], [target], aliased) for source, target in pairs] or calls
        flows = [method.bind(call) for call in calls for method in self._methods]
        own = [
            (target[into], source[key])
            for (source, target), keys in zip(pairs, each_of(self._own, targets), strict=True)
            for key, into in keys
        ]
        return Bound(self, own, flows, self._arrive, aliased=aliased)

    def free(self) -> None:
        """Complete what was started here, and release MPI objects. *Collective* if anything was."""
        for handle in [each for each in self.topology.under_way if each.exchange is self]:
            handle.wait()
        for method in self._methods:
            method.free()
        self._methods = []


class Bound:
    """An exchange and the arrays it moves: as often as wanted, and at little cost each time."""

    def __init__(
        self,
        exchange: Exchange,
        own: Sequence[tuple[Array, Array]],
        flows: Sequence[Flow],
        arrive: Arrival,
        *,
        aliased: bool,
    ) -> None:
        self.exchange = exchange
        # What stays on this rank must be saved if the target may be written before it is read.
        self._kept = [pair for pair in own if not same_view(*pair)] if aliased else []
        self._room: list[Array] | None = None  # for what is saved
        self._own = arrive([] if aliased else own)
        self._first, *self._others = flows

    @property
    def nbytes(self) -> int:
        """Bytes of the larger one of two buffers that messages take."""
        return max(flow.nbytes for flow in (self._first, *self._others))

    def reserve(self) -> None:
        """Allocate what the next call needs, while ranks can still give up together; local."""
        if self._kept and self._room is None:
            self._room = self._room_for_kept()
        self._first.reserve()
        for flow in self._others:
            flow.reserve()

    def run(self) -> None:
        """Complete what is under way, and move the data. *Collective*."""
        self.exchange.topology.complete()
        self.move()

    def move(self) -> None:
        """Move the data; nothing is under way, or it does not matter. *Collective*."""
        saved = self._save() if self._kept else None
        self._first.run(self._own)
        for flow in self._others:
            flow.run(nothing)
        if saved is not None:
            saved()

    def start(self, result: T, after: Callable[[], None] = nothing) -> Handle[T]:
        """Start; no array may be touched before ``wait`` of the returned handle. *Collective*.

        Parameters
        ----------
        result : object
            What ``wait`` returns.
        after : callable
            What ``wait`` does in the end.
        """
        saved = self._save() if self._kept else nothing
        complete = self._first.start()
        self._own()

        def finish() -> None:
            complete()
            for flow in self._others:
                flow.run(nothing)
            saved()
            after()

        return Handle(self.exchange, finish, result)

    def _save(self) -> Copies:
        room, self._room = self._room or self._room_for_kept(), None
        for saved, (_, part) in zip(room, self._kept, strict=True):
            saved[...] = part
        return Copies([(into, saved) for saved, (into, _) in zip(room, self._kept, strict=True)])

    def _room_for_kept(self) -> list[Array]:
        return [np.empty(part.shape, part.dtype) for _, part in self._kept]


def check_method(method: str) -> str:
    """Return `method` if it is a name from `METHODS` or "auto", or raise."""
    if method not in [AUTO, *METHODS]:  # a list takes what cannot be hashed for unknown, too
        msg = f"method {method!r} is unknown; methods are {', '.join((AUTO, *METHODS))}"
        raise ArgumentError(msg)
    return method


def _make_methods(name: str, plans: Sequence[Plan]) -> Sequence[Method]:
    """Make the method of every turn; without room for shared memory, messages. *Collective*."""
    if name == "messages":  # nothing is asked of the others
        return METHODS[name].for_turns(plans)
    topology = plans[0].topology
    on_node = topology.on_node
    with agreed(topology.comm, "Exchange"):
        if name == "shared":
            _check_reach(plans, on_node)
        if name != AUTO and not METHODS[name].versatile:
            _check_simple(name, plans)
    methods = METHODS[_rule(plans) if name == AUTO else name].for_turns(plans)
    return methods if methods[0].has_room() else METHODS["messages"].for_turns(plans)


def _pairs_on(rank: int, cargo: Cargo) -> list[tuple[Any, Any]]:
    """List what stays on this rank: where it is read, and where it is written."""
    sends = [(..., *piece.key) for piece in cargo.sends if piece.peer == rank]
    recvs = [(..., *piece.key) for piece in cargo.recvs if piece.peer == rank]
    return list(zip(sends, recvs, strict=True))


def _packings(topology: Topology, cargo: Cargo, turns: int) -> tuple[list[Packing], list[Packing]]:
    """Divide what leaves this rank, and what arrives, by turn."""
    rank, size = topology.rank, topology.comm.size
    away = [piece for piece in cargo.sends if piece.peer != rank]
    home = [piece for piece in cargo.recvs if piece.peer != rank]
    # Everyone starts with another neighbour, so that no rank is flooded.
    away.sort(key=lambda piece: (piece.peer - rank) % size)
    home.sort(key=lambda piece: (rank - piece.peer) % size)
    leaving, arriving = (
        [Packing(pieces, cargo.lead, cargo.dtype) for pieces in _by_turn(direction, turns)]
        for direction in (away, home)
    )
    return leaving, arriving


def _by_turn(pieces: Sequence[Piece], turns: int) -> list[list[Piece]]:
    found: list[list[Piece]] = [[] for _ in range(turns)]
    for piece in pieces:
        found[piece.turn].append(piece)
    return found


def _rule(plans: Sequence[Plan]) -> str:
    """Shared memory wherever there is any: it saves a copy even where packing is needed."""
    topology = plans[0].topology
    on_node = topology.on_node
    leaving = [piece for plan in plans for away in plan.away for piece in away.pieces]
    near = [is_near(piece, on_node) for piece in leaving]
    some_near, some_far = topology.any_of([any(near), not all(near)])
    if not some_near:
        return "messages"
    return "hybrid" if some_far or topology.nodes > 1 else "shared"


def _check_reach(plans: Sequence[Plan], on_node: Collection[int]) -> None:
    packings = [packing for plan in plans for packing in (*plan.away, *plan.home)]
    far = {peer for packing in packings for peer in packing.peers if peer not in on_node}
    if far:
        msg = f"method 'shared' does not reach rank {min(far)} on another node; use 'hybrid'"
        raise ArgumentError(msg)


def _check_simple(name: str, plans: Sequence[Plan]) -> None:
    if any(len(plan.away) != 1 or plan.arrive is not Copies for plan in plans):
        msg = f"method {name!r} copies, and treats all arrays alike; use another one"
        raise ArgumentError(msg)
