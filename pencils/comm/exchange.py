"""The one executor of schedules on raw NumPy arrays.

An `Exchange` knows which slices of a source array go to which rank and which slices of a target
array come from whom. How the bytes travel is a method from the table `METHODS`; a new method is a
class in `pencils.comm.methods` and an entry in that table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import product
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.buffers import Buffers
from pencils.comm.methods import METHODS, Call, Flow, Method, Packing, Piece, Plan, nothing
from pencils.comm.pack import Copies
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError

Array = NDArray[Any]
T = TypeVar("T")

AUTO = "auto"

# MPI writes into buffers until an exchange completes, even if the user has dropped it.
UNDER_WAY: deque[Handle[Any]] = deque()


class Handle(Generic[T]):
    """An exchange under way; `wait` completes it and returns its result."""

    __slots__ = ("_complete", "_result", "exchange")

    def __init__(self, exchange: Exchange, complete: Callable[[], None], result: T) -> None:
        self.exchange = exchange
        self._complete: Callable[[], None] | None = complete
        self._result = result
        UNDER_WAY.append(self)

    def wait(self) -> T:
        """Complete the exchange; a second call returns at once. *Collective*.

        Exchanges complete in the order in which they were started, which must be the same on all
        ranks, so that ranks may wait for them in any.
        """
        while self._complete is not None:
            UNDER_WAY.popleft().finish()
        return self._result

    def finish(self) -> None:
        """Complete this exchange, which is the oldest one under way. *Collective*."""
        complete, self._complete = self._complete, None
        assert complete is not None
        complete()


class Exchange:
    """Reusable plan that moves slices of source arrays into slices of other ranks' targets.

    Parameters
    ----------
    topology : Topology
        Whose private communicator to use. Making, starting and waiting are *Collective* over it.
    sends, recvs : sequence of Piece
        What this rank sends and receives; pieces for itself stand in both, in the same order.
    axes : int
        Number of axes that pieces slice: the last ones of the arrays.
    lead : tuple of int
        Shape of the axes before the sliced ones; they travel whole.
    dtype : numpy.dtype
        Element type of all arrays; any of fixed size without Python objects.
    method : str
        A name from `METHODS`, or "auto": what is fastest as a rule, given where the ranks run.
    turns : int
        Pieces travel in so many turns, one after the other, the same number on all ranks.
    buffers : Buffers
        Where to take memory from; plans that are used in turn may share them.

    Raises
    ------
    ArgumentError
        On every rank, if there is no such method or it does not reach all ranks.
    """

    def __init__(
        self,
        topology: Topology,
        sends: Sequence[Piece],
        recvs: Sequence[Piece],
        *,
        axes: int,
        lead: tuple[int, ...],
        dtype: np.dtype[Any],
        method: str = AUTO,
        turns: int = 1,
        buffers: Buffers | None = None,
    ) -> None:
        rank, size = topology.comm.rank, topology.comm.size
        self.topology = topology
        self.buffers = Buffers() if buffers is None else buffers
        self._own: list[tuple[Any, Any]] = list(
            zip(
                [(..., *piece.key) for piece in sends if piece.peer == rank],
                [(..., *piece.key) for piece in recvs if piece.peer == rank],
                strict=True,
            )
        )
        # Everyone starts with another neighbour, so that no rank is flooded.
        away = [piece for piece in sends if piece.peer != rank]
        home = [piece for piece in recvs if piece.peer != rank]
        away.sort(key=lambda piece: (piece.peer - rank) % size)
        home.sort(key=lambda piece: (rank - piece.peer) % size)
        plans = [
            Plan(
                topology, Packing(out, lead, dtype), Packing(into, lead, dtype), axes, self.buffers
            )
            for out, into in zip(_by_turn(away, turns), _by_turn(home, turns), strict=True)
        ]
        self._methods = _make_methods(check_method(method), plans)
        self.method = self._methods[0].name
        self.turns = turns
        topology.exchanges.add(self)

    def bind(self, sources: Sequence[Array], targets: Sequence[Array]) -> Bound:
        """Prepare to move ``sources[i]`` to ``targets[i]``, all at once; local.

        Parameters
        ----------
        sources, targets : sequence of numpy.ndarray
            Arrays of any strides; a target may share memory with any source.

        Raises
        ------
        ArgumentError
            If they share memory and the exchange takes several turns.
        """
        aliased = any(np.may_share_memory(*pair) for pair in product(sources, targets))
        if aliased and len(self._methods) > 1:
            msg = (
                "source and target share memory, so all that leaves has to be packed before "
                "anything arrives; leave out staging= for this"
            )
            raise ArgumentError(msg)
        pairs = list(zip(sources, targets, strict=True))
        calls = [Call(sources, targets, aliased)]
        if len(self._methods) > 1:  # one array after the other, to stay within the bound
            calls = [Call([source], [target], aliased) for source, target in pairs] or calls
        flows = [method.bind(call) for call in calls for method in self._methods]
        own = [(target[into], source[key]) for source, target in pairs for key, into in self._own]
        return Bound(self, own, flows, aliased=aliased)

    def free(self) -> None:
        """Wait for what is under way and release buffers and MPI objects. *Collective*."""
        mine = [handle for handle in UNDER_WAY if handle.exchange is self]
        for handle in mine:
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
        *,
        aliased: bool,
    ) -> None:
        self._exchange = exchange
        # What stays on this rank must be saved if the target may be written before it is read.
        self._kept = [pair for pair in own if not _same_memory(*pair)] if aliased else []
        self._own = Copies([] if aliased else own)
        self._first, *self._others = flows

    def run(self) -> None:
        """Complete what is under way, and move the data. *Collective*."""
        while UNDER_WAY:
            UNDER_WAY[0].wait()
        saved = self._save() if self._kept else None
        self._first.run(self._own)
        for flow in self._others:
            flow.run(nothing)
        if saved is not None:
            saved()

    def start(self, result: T) -> Handle[T]:
        """Start; no array may be touched before ``wait`` of the returned handle. *Collective*.

        Parameters
        ----------
        result : object
            What ``wait`` returns.
        """
        saved = self._save()
        complete = self._first.start()
        self._own()

        def finish() -> None:
            complete()
            for flow in self._others:
                flow.run(nothing)
            saved()

        return Handle(self._exchange, finish, result)

    def _save(self) -> Copies:
        return Copies([(into, part.copy()) for into, part in self._kept])


def check_method(method: str) -> str:
    """Return `method` if it is a name from `METHODS` or "auto", or raise."""
    if method not in [AUTO, *METHODS]:  # a list takes what cannot be hashed for unknown, too
        msg = f"method {method!r} is unknown; methods are {', '.join((AUTO, *METHODS))}"
        raise ArgumentError(msg)
    return method


def _make_methods(name: str, plans: Sequence[Plan]) -> Sequence[Method]:
    """Make the method of every turn; without room for shared memory, messages. *Collective*."""
    topology = plans[0].topology
    on_node = topology.on_node
    with agreed(topology.comm, "Exchange"):
        if name == "shared":
            _check_reach(plans, on_node)
    methods = METHODS[_rule(plans) if name == AUTO else name].for_turns(plans)
    return methods if methods[0].has_room() else METHODS["messages"].for_turns(plans)


def _by_turn(pieces: Sequence[Piece], turns: int) -> list[list[Piece]]:
    found: list[list[Piece]] = [[] for _ in range(turns)]
    for piece in pieces:
        found[piece.turn].append(piece)
    return found


def _rule(plans: Sequence[Plan]) -> str:
    """Shared memory wherever there is any: it saves a copy even where packing is needed."""
    topology = plans[0].topology
    moves = topology.any_of([any(plan.away.pieces for plan in plans)])[0]
    if not moves or topology.nodes == topology.comm.size:
        return "messages"
    return "shared" if topology.nodes == 1 else "hybrid"


def _check_reach(plans: Sequence[Plan], on_node: Collection[int]) -> None:
    packings = [packing for plan in plans for packing in (plan.away, plan.home)]
    far = {peer for packing in packings for peer in packing.peers if peer not in on_node}
    if far:
        msg = f"method 'shared' does not reach rank {min(far)} on another node; use 'hybrid'"
        raise ArgumentError(msg)


def _same_memory(one: Array, other: Array) -> bool:
    """Whether two arrays of one shape are the same elements in the same places."""
    return one.strides == other.strides and one.ctypes.data == other.ctypes.data
