"""Points of fields that are read or written once.

If all ranks are on one node they need no plan and no messages. Each rank writes the numbers of its
points to memory that all of them read: its *request*; then all agree on the call, so that all
requests are there; then each rank serves those for its block. For a put the values follow the
request; for a take, the owners write them there. Points of shared fields are read where they lie.

A request is cut into *chunks* of a few thousand points in the order of the call, each sorted by
owner: they fit into the cache, and an owner that reads one chunk after the other meets its points
in the order of the call. A small request lies in one of two *slots* in turn: when a rank writes to
a slot again, the agreement on the call between has shown that no rank still reads it. A call in
which other ranks read larger ones ends with a barrier.

If ranks are on several nodes, they make a plan. It is kept for the next call with the same points,
in which the ranks only agree and exchange values.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import prod
from types import NoneType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import checks
from pencils.array.operands import check_writeable
from pencils.array.pencil_array import PencilArray
from pencils.comm.memory import aligned_empty, array_at, fence
from pencils.comm.pack import compiled
from pencils.comm.reduce import ReduceOp
from pencils.comm.rows import Ints, Points, fetch, locate, move, sort_to
from pencils.comm.shared_memory import synchronize
from pencils.comm.topology import Topology, attribute
from pencils.indexer.arguments import as_coords, as_reduce, as_results, as_values
from pencils.indexer.gather_scatter import GatherScatter, Requests, requests_of
from pencils.indexer.points import PointIndexer, check_components
from pencils.indexer.requests import PointColumns, locate_replicas, points_on
from pencils.plans import Agreement, LocalVerb, PlanKey

T = TypeVar("T")
# Records values on which ranks must agree.
Record = Callable[..., None]
_MOST_KEPT = 2**18  # points of a plan, own ones and those that other ranks request
_FEW = 64  # points that cost less to move than to find out whether they are sorted
CHUNK = 8192  # points
WORD = 8  # bytes
# In words: a cache line, a slot, and the longest request, whose memory is kept.
LINE, SLOT, MOST = 8, 2048, 2**23


def take_once(u: PencilArray, coords: Sequence[Any] | Array, out: Array | None = None) -> Array:
    """Read points of a field; see `PointIndexer.take`. *Collective*."""
    return TakeOnce("PencilArray.take_points", u, lambda _: coords, out).run()


def put_once(
    u: PencilArray, coords: Sequence[Any] | Array, values: Any, reduce: ReduceOp | None = None
) -> None:
    """Write to points of a field; see `PointIndexer.put`. *Collective*."""
    PutOnce(u, coords, values, reduce).run()


class Once(LocalVerb["Form", Callable[[], T]]):
    """A single call on points of a field.

    A rank that reads shared blocks directly sets the flag for setup, one with a request that others
    must wait for the other flag, and one that lacks memory for its request both. If both are set,
    by whatever ranks, they make room together, and agree again. If there is none, or ranks are on
    several nodes, they make a plan.
    """

    # Returns what the call needs of a plan; *Collective* at first.
    plan_for: Callable[[PointIndexer, Requests | None], GatherScatter]

    def __init__(self, name: str, u: PencilArray, key: PlanKey | None) -> None:
        super().__init__(name, u.pencil.topology, u.pencil, key)
        self._u = u
        self._coords: list[Ints] = []
        self._indexer: PointIndexer | None = None
        self._requests: Requests | None = None

    def signature(self, agree: Agreement) -> PlanKey:
        """Record what ranks must agree on about the field."""
        u = self._u
        agree(pencil=u.pencil, dims=u.singletons, components=u.components)
        agree.dtype(u.dtype)
        return (u.kind,)

    def make(self) -> Form:
        """Describe the requests."""
        return Form(self._u)

    def bind(self, plan: Form) -> Callable[[], T]:
        """Write the request of this rank, or tell where its block is."""
        self._form, self._staging = plan, stagings(self.topology)
        complete = self.begin()
        fence()
        return complete

    @abstractmethod
    def begin(self) -> Callable[[], T]:
        """Check the arguments, and request the points; return what completes the call."""

    def settled(self) -> bool:
        """Whether all ranks do the same, and have memory for it."""
        fence()
        self._staging.turn()
        return not (self.agree.flagged and self.agree.deferred)

    @abstractmethod
    def locate(self) -> tuple[Ints, Ints]:
        """Find the owners of the points, and their numbers there."""

    def set_up(self, plan: Form) -> None:
        """Make room for requests; if there is none, a plan. *Collective*."""
        self.agree.flag(up=False)
        if self._staging.usable:
            if self._staging.grow(self.topology) or not self._staging.usable:
                return
        elif plan.indexer is not None:
            plan.indexer.free()
            plan.indexer = None
        self._indexer = PointIndexer.of(self._u.pencil, self._u.singletons, self._coords)
        moves = self.plan_for(self._indexer, self._requests)
        if self._requests is not None and len(moves.order) + len(moves.requested) <= _MOST_KEPT:
            plan.indexer = self._indexer

    def run(self) -> T:
        """Agree on the call, and complete it. *Collective*."""
        try:
            return self.prepare()()
        finally:
            if self._indexer is not None and self._indexer is not self._form.indexer:
                self._indexer.free()

    def _planned(self) -> PointIndexer | None:
        """Find the plan for the points; None if all ranks have to make it, or need none."""
        if self._indexer is None and not self._staging.usable:
            kept = self._form.indexer
            if kept is not None and kept.is_for(self._coords):
                self._indexer = kept
                self._requests = self.plan_for(kept, None).requests
            else:
                self._coords = [each.copy() for each in self._coords]
                self._requests = requests_of(self.locate, self._form.ranks)
        return self._indexer

    def _read(self, coords: object) -> tuple[int, ...]:
        """Check the coordinates; return the shape of the values."""
        if not self._form.columns:
            check_components(self._u)
        shape, self._coords = as_coords(coords, self._form.shape, copy=False)
        return self._u.components + shape

    def _points(self, first: int) -> Points:
        """Describe the points on replicas of which `first` is the first owner."""
        form = self._form
        along = tuple([self._coords[dim] for dim in form.order])
        return Points(along, form.nearest.cuts, form.nearest.steps, first)

    def _write(self, chunk: Chunk, points: Points, room: Ints) -> Ints | None:
        """Write the numbers of the points of a chunk, sorted.

        Returns `room` with the order in which they were; None if they were sorted.
        """
        (owners, unsorted), numbers = self._staging.scratch[:2, : chunk.size], chunk.numbers
        locate(points if chunk.is_whole else points.part(chunk.points), (owners, numbers))
        bounds = chunk.bounds
        bounds[0] = 0
        sort_to(owners, bounds[1:], room)
        if chunk.size > _FEW and chunk.is_sorted:
            return None
        unsorted[:] = numbers
        move(numbers, None, unsorted, room)
        return room

    def _serve(self, home: int, move: Callable[[Array, Ints, Array], None]) -> None:
        """Move the values of all requests to the owner `home`, in the order of ranks and points.

        `move` gets a column of the block, positions there, and the values. *Collective* if
        exchanges are under way, which are completed first.
        """
        if self.topology.under_way:
            self.topology.complete()
        block = PointColumns(self._u, self._form.order)
        for rank in range(self._form.ranks):
            for chunk in self._staging.request(rank, self._form):
                mine = chunk.of_rank(home)
                if mine is not None:
                    at = block.positions(chunk.numbers[mine], self._staging.scratch)
                    for column, values in zip(block.columns, chunk.values, strict=True):
                        move(column, at, values[mine])


class TakeOnce(Once[Array]):
    """A call that reads the points of which `read` returns the coordinates."""

    plan_for = staticmethod(PointIndexer.plan_take)

    def __init__(self, name: str, u: PencilArray, read: Callable[[Record], Any], out: Any) -> None:
        super().__init__(name, u, (u.kind,))
        self._given = read, out
        self._direct = compiled() is not None and self.topology.is_shared(u.padded)

    def locate(self) -> tuple[Ints, Ints]:
        """Find the nearest replicas of the points."""
        return locate(self._points(self._form.nearest.first))

    def begin(self) -> Callable[[], Array]:
        """Request the points, or tell where the own block is."""
        read, out = self._given
        u, staging, rank = self._u, self._staging, self.topology.rank
        shape = self._read(read(self.agree))
        found = as_results(out, shape, u.dtype)
        indexer = self._planned()
        if indexer is not None:
            return indexer.bind_take(u, found, starts=False).run
        points = self._points(self._form.nearest.first)
        # What is under way may change the block until this rank completes it.
        if self._direct and staging.ready and not self.topology.under_way:
            self._direct = False  # at the next attempt
            self.agree.defer(up=True)
            return self._read_shared(points, found)
        order = np.empty(points.number, np.int64)
        chunks = staging.begin(rank, self._form, points.number)
        self.agree.flag(up=True)
        self.agree.defer(up=chunks is None)
        chunks = chunks or []
        orders = [self._write(chunk, points, order[chunk.points]) for chunk in chunks]

        def complete() -> Array:
            self._serve(rank, _get)
            synchronize(self.topology.comm)
            columns = found.reshape(self._form.columns, points.number)
            for chunk, order in zip(chunks, orders, strict=True):
                for column, values in zip(columns, chunk.values, strict=True):
                    move(column[chunk.points], order, values, None)
            return found

        return complete

    def _read_shared(self, points: Points, found: Array) -> Callable[[], Array]:
        """Tell where the own block is, in memory order; return what reads those of all ranks."""
        u, topology, staging = self._u, self.topology, self._staging
        layout, shared = u.extent.layout, topology.shared
        own = u.local.transpose(memory_axes(layout.order, len(u.components)))
        place = shared.find(own) if own.size else (0, 0)
        assert place is not None  # an empty block may be anywhere: it is not read
        staging.publish(topology.rank, [*place, *own.strides])
        # Memory for the points, unless a rank may still read what `found` overlaps.
        used = u.padded, *points.coords
        aliased = any(np.may_share_memory(array, found) for array in used)
        room = np.empty_like(found) if aliased else found

        def home(rank: int) -> tuple[Array, Sequence[int]]:
            """Return the block of a rank, and the coordinates of its first point."""
            box = layout.box(rank)
            window, offset, *strides = staging.slot(rank)[: 2 + own.ndim].tolist()
            shape = (*u.components, *(box.shape[dim] for dim in layout.order))
            memory = shared.memory(topology.on_node[rank], window)
            block = array_at(memory, shape, own.dtype, offset, strides)
            return block, [box.start[dim] for dim in layout.order]

        def complete() -> Array:
            homes = [home(rank) for rank in range(layout.size)]
            columns = room.reshape(self._form.columns, points.number)
            for index, column in zip(np.ndindex(u.components), columns, strict=True):
                fetch(points, [(block[index], start) for block, start in homes], column)
            synchronize(topology.comm)
            if room is not found:
                found[...] = room
            return found

        return complete


class PutOnce(Once[None]):
    """A call that writes values, which are combined with those that are there."""

    plan_for = staticmethod(PointIndexer.plan_put)

    def __init__(self, u: PencilArray, coords: object, values: object, reduce: object) -> None:
        known = type(reduce) in (ReduceOp, NoneType)  # else an error
        super().__init__("PencilArray.put_points", u, (u.kind, reduce) if known else None)
        self._given = coords, values, reduce

    def signature(self, agree: Agreement) -> PlanKey:
        """Record how values are combined, too."""
        op = as_reduce(self._given[2])
        agree(reduce=op)
        return *super().signature(agree), op

    def locate(self) -> tuple[Ints, Ints]:
        """Find all replicas of the points."""
        return locate_replicas(self._u.extent.layout, self._coords)

    def begin(self) -> Callable[[], None]:
        """Request the points, with the values."""
        u, rank, (coords, given, reduce) = self._u, self.topology.rank, self._given
        op = as_reduce(reduce)
        shape = self._read(coords)
        values = as_values("values", given, shape, u.dtype)
        check_writeable(u)
        if op is not None:
            op.result(u.dtype)  # if there is any
        indexer = self._planned()
        if indexer is not None:
            return indexer.bind_put(u, values, op, starts=False).run
        # All replicas of a point read the request to the first one.
        points = self._points(0)
        columns = values.reshape(self._form.columns, points.number)
        chunks = self._staging.begin(rank, self._form, points.number)
        for chunk in chunks or ():
            order = self._write(chunk, points, self._staging.scratch[2, : chunk.size])
            for column, room in zip(columns, chunk.values, strict=True):
                move(room, None, column[chunk.points], order)
        self.agree.flag(up=chunks is None or points.number > self._form.most)
        self.agree.defer(up=chunks is None)

        def complete() -> None:
            self._serve(rank - self._form.nearest.first, _set if op is None else op.combine_column)
            if self.agree.flagged:
                synchronize(self.topology.comm)
            if checks.on:
                u.mark_written()

        return complete


def _get(column: Array, positions: Ints, values: Array) -> None:
    """Read values."""
    move(values, None, column, positions)


def _set(column: Array, positions: Ints, values: Array) -> None:
    """Write values; the last one stays."""
    move(column, positions, values, None)


# ---- requests in memory that all ranks read ----


class Form:
    """What all ranks know of the requests for fields like `u`; `most` points fit into a slot."""

    def __init__(self, u: PencilArray) -> None:
        layout = u.extent.layout
        self.shape, self.order = layout.shape, layout.order
        self.ranks, self.dtype, self.columns = layout.size, u.dtype, prod(u.components)
        self.most = bisect_right(range(SLOT), SLOT - LINE, key=self.words) - 1
        none = [np.empty(0, np.int64)] * layout.ndim
        # Of the nearest replicas; without coordinates, which would stay in memory.
        self.nearest = points_on(layout, none, layout.parts(u.pencil.rank))
        self.indexer: PointIndexer | None = None  # of the last call between nodes

    def words(self, points: int) -> int:
        """Words of a request, by its number of points."""
        chunks, rest = divmod(points, CHUNK)
        return chunks * self._words(CHUNK) + (self._words(rest) if rest else 0)

    def chunks(self, words: Ints, points: int) -> list[Chunk]:
        """View the chunks of a request, by its number of points."""
        found, ahead = [], self.ranks + 1
        for number, start in enumerate(range(0, points, CHUNK)):
            own, size = words[number * self._words(CHUNK) :], min(points - start, CHUNK)
            place = WORD * _lines(ahead + size)
            values = array_at(own, (self.columns, size), self.dtype, place)
            parts = own[:ahead], own[ahead : ahead + size], values
            found.append(Chunk(slice(start, start + size), size, *parts))
        return found

    def _words(self, points: int) -> int:
        nbytes = points * self.columns * self.dtype.itemsize
        return _lines(self.ranks + 1 + points) + _lines(-(-nbytes // WORD))


class Chunk(NamedTuple):
    """Some points of a request, sorted by owner."""

    points: slice  # their numbers in the call
    size: int
    bounds: Ints  # where the points of each owner begin, and where those of the last one end
    numbers: Ints  # of the points among those of their owner
    values: Array  # a row for each component

    @property
    def is_whole(self) -> bool:
        """Whether these are all points of the call."""
        return self.size < CHUNK and self.points.start == 0

    @property
    def is_sorted(self) -> bool:
        """Whether all points have one owner, so that they are in the order of the call."""
        bounds = self.bounds
        return bool(bounds[bounds.searchsorted(1)] == self.size)

    def of_rank(self, rank: int) -> slice | None:
        """Which points belong to an owner; None if there are none."""
        start, stop = self.bounds[rank : rank + 2].tolist()
        return slice(start, stop) if start < stop else None


class Staging:
    """Memory for the requests of all ranks of a communicator, if all are on one node."""

    def __init__(self) -> None:
        self.usable = True  # as far as is known; equal on all ranks, as is `ready`
        # Memory of every rank: the slot to write to next, the one that is read, and that for
        # larger requests.
        self._slots: list[list[Ints]] = []
        self._large: list[Ints] = []
        self._turn = self._needed = 0
        # The views of the last request in each slot, which the next may need again.
        self._views: dict[tuple[int, int], tuple[Form, int, list[Chunk]]] = {}
        self._scratch: Ints | None = None

    @property
    def ready(self) -> bool:
        """Whether there are slots."""
        return bool(self._slots)

    @property
    def scratch(self) -> Ints:
        """Three lists of numbers, one for each point of a chunk; allocated on first use."""
        if self._scratch is None:
            self._scratch = np.empty((3, CHUNK), np.int64)
        return self._scratch

    def begin(self, rank: int, form: Form, points: int) -> list[Chunk] | None:
        """Begin the request of this rank; None if there is no memory for it yet."""
        self._needed = 0 if points <= form.most else form.words(points)
        self.scratch  # noqa: B018 - allocated before ranks go on together
        room = len(self._large[rank]) if self._large else 0
        if not self._slots or self._needed > room:
            return None
        self._slots[self._turn][rank][0] = points
        return self._chunks(self._turn, rank, form, points)

    def publish(self, rank: int, words: list[int]) -> None:
        """Write a few words instead of a request."""
        self._slots[self._turn][rank][: len(words)] = words

    def turn(self) -> None:
        """Read what was written before the last agreement, and write to the other slot."""
        self._turn = 1 - self._turn

    def request(self, rank: int, form: Form) -> list[Chunk]:
        """View the request of a rank."""
        return self._chunks(1 - self._turn, rank, form, int(self.slot(rank)[0]))

    def slot(self, rank: int) -> Ints:
        """View what a rank has written."""
        return self._slots[1 - self._turn][rank]

    def grow(self, topology: Topology) -> bool:
        """Make room for what this rank needs; tell whether all ranks have it. *Collective*."""
        if not self._slots:
            both = _allocate(topology, 2 * SLOT) if topology.nodes == 1 else []
            self.usable = bool(both)
            if both:
                self._slots = [[words[part : part + SLOT] for words in both] for part in (0, SLOT)]
        room = len(self._large[topology.rank]) if self._large else SLOT - LINE
        lacking, long = topology.any_of([self._needed > room, self._needed > MOST])
        if self.usable and lacking and not long:
            self._large = []  # before the new memory, so that it may be the same
            self._large = _allocate(topology, max(room, self._needed + self._needed // 4))
            self.usable = bool(self._large)
        return self.usable and not long

    def clear(self) -> None:
        """Drop the memory."""
        self._slots, self._large, self._views = [], [], {}

    def _chunks(self, turn: int, rank: int, form: Form, points: int) -> list[Chunk]:
        if points > form.most:
            return form.chunks(self._large[rank], points)
        last = self._views.get((turn, rank))
        if last is None or last[0] is not form or last[1] != points:
            chunks = form.chunks(self._slots[turn][rank][LINE:], points)
            last = self._views[turn, rank] = form, points, chunks
        return last[2]


stagings = attribute(Staging)


def _allocate(topology: Topology, words: int) -> list[Ints]:
    """Allocate words for every rank of a node, and view those of all. *Collective*.

    Returns nothing on every rank if there is no room.
    """
    if topology.comm.size == 1:
        return [aligned_empty(WORD * words).view(np.int64)]
    blocks = topology.shared.allocate_each(WORD * words)
    return [block.view(np.int64) for block in blocks or ()]


def _lines(words: int) -> int:
    """Round up to whole cache lines."""
    return -(-words // LINE) * LINE
