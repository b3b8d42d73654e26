"""A way between ranks on which rows of any size travel again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pencils.comm.exchange import Bound, Exchange, Handle
from pencils.comm.methods import Cargo, Piece
from pencils.comm.topology import Topology
from pencils.indexer.grouping import Ints, Segments
from pencils.indexer.ragged import Ragged
from pencils.plans import Freeable
from pencils.storage import Array

T = TypeVar("T")
R = TypeVar("R")


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
        # By type of row, and used in turn: as many lanes as were ever under way at once.
        self._exchanges: dict[np.dtype[Any], Exchange] = {}
        self._idle: dict[np.dtype[Any], list[Lane]] = {}

    def take_lane(self, row: np.dtype[Any]) -> Lane:
        """Return idle buffers for rows of that type; `give_lane` back. *Collective* at first."""
        idle = self._idle.setdefault(row, [])
        return idle.pop() if idle else self._lane(np.empty(self.leaving.total, row))

    def give_lane(self, lane: Lane) -> None:
        """Take back buffers."""
        self._idle[lane.source.dtype].append(lane)

    def move(self, source: Array) -> Array:
        """Move rows of any type once, and return those that arrive. *Collective*."""
        lane = self._lane(as_rows(source, row_type(source.dtype, 1)))
        lane.bound.run()
        return lane.target.view(source.dtype)

    def move_ragged(self, source: Ragged) -> Ragged:
        """Move rows that differ in length, and return those that arrive. *Collective*."""
        counts: Ints = self.move(source.counts)
        leaving, arriving = self.leaving.widened(source.counts), self.arriving.widened(counts)
        with Route(self._topology, leaving, arriving) as values:
            return Ragged(counts, values.move(source.values))

    def free(self) -> None:
        """Complete what is under way, and release memory and MPI objects.

        *Collective* if anything is under way.
        """
        for exchange in self._exchanges.values():
            exchange.free()
        self._exchanges.clear()
        self._idle.clear()

    def _lane(self, source: Array) -> Lane:
        target = np.empty(self.arriving.total, source.dtype)
        exchange = self._exchanges.get(source.dtype) or self._exchange(source.dtype)
        return Lane(source, target, exchange.bind([source], [target], disjoint=True))

    def _exchange(self, row: np.dtype[Any]) -> Exchange:
        cargo = Cargo(_pieces(self.leaving), _pieces(self.arriving), (), row)
        made = Exchange(self._topology, [cargo], axes=1, method="messages")
        self._exchanges[row] = made
        return made


class Transfer(Generic[T]):
    """Rows packed into a lane, and what becomes of those that arrive.

    Parameters
    ----------
    route : Route
        Where the lane belongs.
    lane : Lane
        Its source is filled.
    unpack : callable
        Takes the rows that have arrived to where they belong.
    result : object
        What the user gets in the end.
    """

    __slots__ = ("_lane", "_result", "_route", "_unpack")

    def __init__(
        self, route: Route, lane: Lane, unpack: Callable[[Array], None], result: T
    ) -> None:
        self._route = route
        self._lane = lane
        self._unpack = unpack
        self._result = result

    def only(self: Transfer[list[R]]) -> Transfer[R]:
        """Return the transfer whose result is the only entry of that of this one."""
        return Transfer(self._route, self._lane, self._unpack, self._result[0])

    def run(self) -> T:
        """Move the rows. *Collective*."""
        self._lane.bound.run()
        self._finish()
        return self._result

    def start(self) -> Handle[T]:
        """Start moving the rows; `wait` of the handle returns the result. *Collective*."""
        return self._lane.bound.start(self._result, self._finish)

    def _finish(self) -> None:
        self._unpack(self._lane.target)
        self._route.give_lane(self._lane)


def row_type(dtype: np.dtype[Any], count: int) -> np.dtype[Any]:
    """Type of rows of `count` values, for which it only matters how long they are."""
    return np.dtype((np.void, dtype.itemsize * count))


def as_rows(array: Array, row: np.dtype[Any]) -> Array:
    """View a contiguous array as rows; one without values may be of any type."""
    return array.reshape(-1).view(row) if array.size else np.empty(0, row)


def _pieces(segments: Segments) -> list[Piece]:
    """Segments as an exchange knows them.

    They are straight, so that nobody looks where they begin on the other side.
    """
    return [Piece(peer, (rows,), (), straight=True) for peer, rows in segments.ranges]
