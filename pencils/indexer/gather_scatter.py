"""Move rows between the ranks that own them and the ranks that request them.

`GatherScatter` is the plan: which rows travel between which ranks. Each of its two directions is a
`RowExchange`; a `Request` is one call on it, prepared. A plan holds no data; of a row only its
size in bytes matters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange, Handle, PreparedExchange
from pencils.comm.mailbox import sparse_exchange
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.rows import Ints, mover
from pencils.comm.topology import Topology
from pencils.indexer.requests import (
    PointColumns,
    Segments,
    as_rows,
    bounds_of,
    group,
    inverse,
    last_of_each,
    row_type,
)
from pencils.plans import Freeable

T = TypeVar("T")
# Prepared requests that an indexer keeps; they hold the arrays of the call.
MOST_HELD = 4
Call = Callable[[], None]
# What is done before and after the rows of other ranks travel.
Steps = tuple[list[Call], list[Call]]
# Rows that leave this rank and rows that arrive, grouped by rank, and the exchange between them.
Buffers = tuple[Array, Array, PreparedExchange]


class RowExchange(Freeable):
    """Segments of rows that leave this rank and arrive here. Using one is *Collective*.

    The buffers also have room for own rows, which stay on this rank; the caller copies them.
    """

    def __init__(self, topology: Topology, leaving: Segments, arriving: Segments) -> None:
        self.leaving = leaving
        self.arriving = arriving
        self._topology = topology
        # By type of row, and for buffers by whether calls are nonblocking.
        self._exchanges: dict[np.dtype[Any], Exchange] = {}
        self._idle: dict[tuple[np.dtype[Any], bool], list[Buffers]] = {}

    def buffers(self, row: np.dtype[Any], *, starts: bool) -> Buffers:
        """Return buffers for rows of that type; local.

        All blocking calls use the same ones. A call that `starts` the exchange gives its own ones
        back when it is complete.
        """
        idle = self._idle.setdefault((row, starts), [])
        if not idle:
            idle.append(self._prepare(np.empty(self.leaving.total, row)))
        found = idle.pop() if starts else idle[0]
        found[2].reserve()
        return found

    def give_back(self, buffers: Buffers) -> None:
        """Keep the buffers of a nonblocking call for the next one."""
        self._idle[buffers[0].dtype, True].append(buffers)

    def prepare(self, source: Array) -> Callable[[], Array]:
        """Allocate what a single exchange of rows needs; local.

        Returns a function that moves the rows, and returns those that arrive. *Collective*.
        """
        leaving, arriving, exchange = self._prepare(as_rows(source, row_type(source.dtype, 1)))
        exchange.reserve()
        rank = self._topology.rank
        own, there = self.leaving.of_rank(rank), self.arriving.of_rank(rank)

        def move() -> Array:
            exchange.run()
            arriving[there] = leaving[own]
            return arriving.view(source.dtype)

        return move

    def free(self) -> None:
        """Complete what is under way and release memory. *Collective* if anything is."""
        for exchange in self._exchanges.values():
            exchange.free()
        self._exchanges.clear()
        self._idle.clear()

    def _prepare(self, source: Array) -> Buffers:
        target, row = np.empty(self.arriving.total, source.dtype), source.dtype
        exchange = self._exchanges.get(row)
        if exchange is None:
            # Segments are contiguous, so that their place on the other rank does not matter.
            leaving, arriving = [
                [
                    MessageBlock(peer, (rows,), (), contiguous=True)
                    for peer, rows in segments.ranges
                    if peer != self._topology.rank
                ]
                for segments in (self.leaving, self.arriving)
            ]
            spec = MessageSpec(leaving, arriving, (), row)
            exchange = Exchange(self._topology, [spec], axes=1, method="messages")
            self._exchanges[row] = exchange
        return source, target, exchange.prepare([source], [target], disjoint=True)


class Request(Generic[T]):
    """A prepared call: rows are packed into buffers, exchanged and unpacked, once or many times.

    It allocates no memory. Several requests that are started may be under way at once.
    """

    __slots__ = ("_buffers", "_exchange", "_pack", "_result", "_rows", "_unpack")

    def __init__(self, rows: RowExchange, buffers: Buffers, steps: Steps, result: T) -> None:
        self._rows = rows
        self._result = result
        self._buffers = buffers
        self._exchange = buffers[2]
        self._pack, self._unpack = steps

    def run(self) -> T:
        """Complete what is under way, and move the rows. *Collective*."""
        exchange = self._exchange
        exchange.exchange.topology.complete()
        for step in self._pack:
            step()
        exchange.move()
        for step in self._unpack:
            step()
        return self._result

    def start(self) -> Handle[T]:
        """Start moving the rows; `wait` of the handle returns the result. *Collective*."""
        for step in self._pack:
            step()

        def finish() -> None:
            for step in self._unpack:
                step()
            self._rows.give_back(self._buffers)

        return self._exchange.start(self._result, finish)


# Numbers of this rank's requests, sorted by owner; how many each owner gets; and the numbers of the
# requested rows among those of their owners, in this order.
Requests = tuple[Ints, Segments, Ints]


def requests_of(locate: Callable[[], tuple[Ints, Ints]], size: int) -> Requests:
    """Group the rows that this rank requests by owner, one of `size` ranks; local.

    `locate` returns the rank that owns each row, and the number of the row there.
    """
    owners, numbers = locate()
    order, sent = group(owners, size)
    if len(sent.peers) <= 1:
        return order, sent, numbers
    offsets = np.empty_like(numbers)
    mover(offsets, None, numbers, order)()
    return order, sent, offsets


class GatherScatter:
    """Rows that this rank requests of their owners, and rows that other ranks request of it.

    Making one is *Collective*, after all ranks have agreed that each has its `requests`; this rank
    owns `rows` rows. The exchange `to_requesters` is a take, or gather, and `to_owners` a put, or
    scatter.
    """

    def __init__(self, topology: Topology, requests: Requests, rows: int) -> None:
        self.rows = rows
        self._rank = topology.rank
        # Numbers of the own requests in the order in which they travel: by owner.
        self.order, self._sent, offsets = self.requests = requests
        self._is_sorted = len(self._sent.peers) <= 1  # `order` is that of the requests
        peers, counts = sparse_exchange(topology.comm, self._sent.peers, self._sent.counts)
        self._received = Segments(peers, bounds_of(counts))
        self.to_requesters = RowExchange(topology, self._received, self._sent)
        self.to_owners = RowExchange(topology, self._sent, self._received)
        with agreed(topology.comm, "indexer"):  # one rank may have no memory for it
            move = self.to_owners.prepare(offsets)
        # Own rows that are requested, in write order: by requesting rank, then in its own order.
        self.requested: Ints = move()
        self._positions: dict[object, Ints] = {}

    @classmethod
    def locating(
        cls, topology: Topology, locate: Callable[[], tuple[Ints, Ints]], rows: int
    ) -> GatherScatter:
        """Make one where ranks have not agreed yet that each has its requests. *Collective*."""
        with agreed(topology.comm, "indexer"):  # one rank may have no memory for it
            requests = requests_of(locate, topology.comm.size)
        return cls(topology, requests, rows)

    def take_steps(
        self,
        source: Array,
        numbers: Ints,
        leaving: Array,
        arriving: Array,
        out: Array,
        *,
        aliased: bool,
    ) -> Steps:
        """Prepare to take ``source[numbers]`` on every owner, and to fill `out` for each request.

        If they are `aliased`, writing to `out` may change a source that is read in the same call.
        """
        own, here = self._sent.of_rank(self._rank), self._received.of_rank(self._rank)
        parts = self._received.of_others(self._rank)
        pack = [mover(leaving[part], None, source, numbers[part]) for part in parts]
        parts = self._sent.of_others(self._rank)
        unpack = [self._to_requests(out, part, arriving[part], None) for part in parts]
        if aliased:  # all is read before anything is written
            pack.append(mover(arriving[own], None, source, numbers[here]))
            return pack, [*unpack, self._to_requests(out, own, arriving[own], None)]
        return pack, [self._to_requests(out, own, source, numbers[here]), *unpack]

    def put_steps(self, source: Array, leaving: Array, arriving: Array) -> list[Call]:
        """Prepare to pack rows, one for each request, and to copy those that stay on this rank."""
        own, here = self._sent.of_rank(self._rank), self._received.of_rank(self._rank)
        parts = self._sent.of_others(self._rank)
        packed = [self._of_requests(source, part, leaving[part]) for part in parts]
        return [self._of_requests(source, own, arriving[here]), *packed]

    def positions(self, block: PointColumns) -> Ints:
        """Return where the `requested` rows are in a block, computed once for each layout."""
        if block.layout not in self._positions:
            self._positions[block.layout] = block.positions(self.requested)
        return self._positions[block.layout]

    @cached_property
    def last_writers(self) -> tuple[Ints, Ints]:
        """Own rows that are requested, and the number in `requested` of the last one of each."""
        return last_of_each(self.requested, self.rows)

    @property
    def places(self) -> Ints:
        """For each own request, its position in `order`."""
        return inverse(self.order)

    def free(self) -> None:
        """Complete what is under way and release memory. *Collective* if anything is."""
        self.to_requesters.free()
        self.to_owners.free()

    def _to_requests(self, out: Array, part: slice, source: Array, rows: Ints | None) -> Call:
        if self._is_sorted:
            return mover(out[part], None, source, rows)
        return mover(out, self.order[part], source, rows)

    def _of_requests(self, source: Array, part: slice, out: Array) -> Call:
        if self._is_sorted:
            return mover(out, None, source[part], None)
        return mover(out, None, source, self.order[part])
