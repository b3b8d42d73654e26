"""A way between ranks on which rows of any size travel again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.exchange import Bound, Exchange, Handle
from pencils.comm.methods import Cargo, Piece
from pencils.comm.pack_numpy import MOVES
from pencils.comm.rows import Ints
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.indexer.grouping import Segments
from pencils.indexer.ragged import Ragged
from pencils.plan import Freeable

T = TypeVar("T")
R = TypeVar("R")
# Calls that an indexer remembers as prepared; unlike plans for fields, it holds their arrays.
MOST_HELD = 4
Calls = list[Callable[[], None]]
Steps = tuple[Calls, Calls]


class Lane(NamedTuple):
    """Buffers for the rows of one transfer, and what moves the rows between ranks.

    Parameters
    ----------
    source : numpy.ndarray
        Rows that leave this rank, grouped by rank.
    target : numpy.ndarray
        Rows that arrive, grouped by rank.
    bound : Bound
        Moves the source to the targets of other ranks.
    """

    source: Array
    target: Array
    bound: Bound


class Route(Freeable):
    """Segments of rows that leave this rank and arrive here. Using one is *Collective*.

    Own rows, which stay on this rank, have their place in the buffers, but are left to the user.

    Parameters
    ----------
    topology : Topology
        The ranks.
    leaving, arriving : Segments
        Rows for every rank, and rows from every rank.
    """

    def __init__(self, topology: Topology, leaving: Segments, arriving: Segments) -> None:
        self._topology = topology
        self.leaving = leaving
        self.arriving = arriving
        # By type of row. One lane serves all calls that wait; those that start something use others
        # in turn: as many as were ever under way at once.
        self._exchanges: dict[np.dtype[Any], Exchange] = {}
        self._waiting: dict[np.dtype[Any], Lane] = {}
        self._idle: dict[np.dtype[Any], list[Lane]] = {}

    def lane(self, row: np.dtype[Any]) -> Lane:
        """Return buffers for rows of that type, of a call that waits; local."""
        if row not in self._waiting:
            self._waiting[row] = self._lane(np.empty(self.leaving.total, row))
        return self._waiting[row]

    def take_lane(self, row: np.dtype[Any]) -> Lane:
        """Return idle buffers for rows of that type; `give_lane` back; local."""
        idle = self._idle.setdefault(row, [])
        return idle.pop() if idle else self._lane(np.empty(self.leaving.total, row))

    def give_lane(self, lane: Lane) -> None:
        """Take back buffers."""
        self._idle[lane.source.dtype].append(lane)

    def ready(self, source: Array) -> Callable[[], Array]:
        """Allocate what it takes to move rows of any type once; local.

        Returns
        -------
        callable
            Moves the rows, and returns those that arrive. *Collective*.
        """
        lane = self._lane(as_rows(source, row_type(source.dtype, 1)))
        lane.bound.reserve()
        rank = self._topology.rank
        own, there = self.leaving.of_rank(rank), self.arriving.of_rank(rank)

        def move() -> Array:
            lane.bound.run()
            lane.target[there] = lane.source[own]
            return lane.target.view(source.dtype)

        return move

    def ready_ragged(
        self, source: Ragged, together: Callable[[], AbstractContextManager[object]]
    ) -> Callable[[], Ragged]:
        """Allocate what it takes to move rows that differ in length; local.

        Parameters
        ----------
        source : Ragged
            The rows.
        together : callable
            Makes what all ranks leave together, or none of them; see `agreed`.

        Returns
        -------
        callable
            Moves the rows, and returns those that arrive. *Collective*.
        """
        move_counts = self.ready(source.counts)

        def move() -> Ragged:
            counts: Ints = move_counts()
            with together():
                leaving = self.leaving.widened(source.counts)
                values = Route(self._topology, leaving, self.arriving.widened(counts))
                move_values = values.ready(source.values)
            with values:
                return Ragged(counts, move_values())

        return move

    def free(self) -> None:
        """Complete what is under way, and release memory and MPI objects.

        *Collective* if anything is under way.
        """
        for exchange in self._exchanges.values():
            exchange.free()
        self._exchanges.clear()
        self._waiting.clear()
        self._idle.clear()

    def _lane(self, source: Array) -> Lane:
        target = np.empty(self.arriving.total, source.dtype)
        exchange = self._exchanges.get(source.dtype) or self._exchange(source.dtype)
        return Lane(source, target, exchange.bind([source], [target], disjoint=True))

    def _exchange(self, row: np.dtype[Any]) -> Exchange:
        rank = self._topology.rank
        cargo = Cargo(_pieces(self.leaving, rank), _pieces(self.arriving, rank), (), row)
        made = Exchange(self._topology, [cargo], axes=1, method="messages")
        self._exchanges[row] = made
        return made


class Transfer(Generic[T]):
    """A call on one lane, prepared: rows are packed, travel, and are unpacked.

    Parameters
    ----------
    lane : Lane
        Where they travel.
    pack, unpack : callable
        What is done before and afterwards.
    result : object
        What the user gets in the end.
    """

    __slots__ = ("lane", "pack", "result", "unpack")

    def __init__(
        self, lane: Lane, pack: Callable[[], None], unpack: Callable[[], None], result: T
    ) -> None:
        self.lane = lane
        self.pack = pack
        self.unpack = unpack
        self.result = result

    def run(self) -> T:
        """Complete what is under way, and move the rows. *Collective*."""
        self.lane.bound.exchange.topology.complete()
        self.pack()
        self.lane.bound.move()
        self.unpack()
        return self.result


class Errand(Generic[T]):
    """Rows to be moved, and all the memory it takes. Making one is local.

    Parameters
    ----------
    route : Route
        Where they travel.
    row : numpy.dtype
        Their type.
    prepare : callable
        Makes what packs them into a lane, and what unpacks them from it.
    result : object
        What the user gets in the end.
    starts : bool
        Whether it is started, perhaps while others are under way.
    """

    __slots__ = ("_route", "_transfer")

    def __init__(
        self,
        route: Route,
        row: np.dtype[Any],
        prepare: Callable[[Lane], Steps],
        result: T,
        *,
        starts: bool,
    ) -> None:
        self._route = route
        lane = route.take_lane(row) if starts else route.lane(row)
        lane.bound.reserve()
        pack, unpack = prepare(lane)
        self._transfer = Transfer(lane, in_turn(pack), in_turn(unpack), result)

    def only(self: Errand[list[R]]) -> Errand[R]:
        """Return the errand whose result is the only entry of that of this one."""
        one: Errand[R] = object.__new__(Errand)
        lane, pack, unpack = self._transfer.lane, self._transfer.pack, self._transfer.unpack
        one._route = self._route
        one._transfer = Transfer(lane, pack, unpack, self._transfer.result[0])
        return one

    def transfer(self) -> Transfer[T]:
        """Return the transfer, which may run again and again."""
        return self._transfer

    def run(self) -> T:
        """Move the rows. *Collective*."""
        return self._transfer.run()

    def start(self) -> Handle[T]:
        """Start moving the rows; `wait` of the handle returns the result. *Collective*."""
        transfer = self._transfer
        transfer.pack()

        def finish() -> None:
            transfer.unpack()
            self._route.give_lane(transfer.lane)

        return transfer.lane.bound.start(transfer.result, finish)


def in_turn(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Make one call of several."""
    if len(calls) == 1:
        return calls[0]

    def every() -> None:
        for call in calls:
            call()

    return every


def row_type(dtype: np.dtype[Any], count: int) -> np.dtype[Any]:
    """Type of rows of `count` values, for which it only matters how long they are."""
    size = dtype.itemsize * count
    if size > np.iinfo(np.int32).max:
        msg = f"{count} values of type {dtype} are more than one index can stand for"
        raise ArgumentError(msg)
    return np.dtype(MOVES.get(size, f"V{size}"))


def as_rows(array: Array, row: np.dtype[Any]) -> Array:
    """View a contiguous array as rows; one without values may be of any type."""
    return array.reshape(-1).view(row) if array.size else np.empty(0, row)


def _pieces(segments: Segments, rank: int) -> list[Piece]:
    """Segments of other ranks as an exchange knows them.

    They are straight, so that nobody looks where they begin on the other side.
    """
    return [
        Piece(peer, (rows,), (), straight=True) for peer, rows in segments.ranges if peer != rank
    ]
