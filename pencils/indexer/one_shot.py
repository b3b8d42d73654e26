"""Points of fields that are read or written once.

If all ranks are on one node they need no plan and no messages. Each rank leaves its request for the
others, see `pencils.indexer.staging`; then all agree on the call, so that all requests are there;
then each rank serves those for its block. Points of shared fields are read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import checks
from pencils.array.operands import check_writeable
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.memory import array_at, fence
from pencils.comm.pack import compiled
from pencils.comm.reduce import ReduceOp
from pencils.comm.rows import Ints, Points, fetch, locate, move, sort_to
from pencils.comm.shared_memory import synchronize
from pencils.indexer.arguments import as_coords, as_reduce, as_results, as_values
from pencils.indexer.points import PointIndexer, check_components
from pencils.indexer.requests import Block
from pencils.indexer.staging import Chunk, Form, Staging, stagings
from pencils.pencil import keep

T = TypeVar("T")
_FEW = 64  # points that cost less to move than to find out whether they are sorted


def take_once(u: PencilArray, coords: Sequence[Any] | Array, out: Array | None = None) -> Array:
    """Read points of a field; see `PointIndexer.take`. *Collective*."""
    return Once("PencilArray.take_points", u).take(lambda _: coords, out)


def put_once(
    u: PencilArray, coords: Sequence[Any] | Array, values: Any, reduce: ReduceOp | None = None
) -> None:
    """Write to points of a field; see `PointIndexer.put`. *Collective*."""
    Once("PencilArray.put_points", u).put(coords, values, reduce)


class Once:
    """A single call on points of a field `u`; `verb` names it.

    Ranks that lack memory in which they can request points make room together, and agree again. If
    there is none, or ranks are on several nodes, they make a plan for this call.
    """

    def __init__(self, verb: str, u: PencilArray) -> None:
        self._u = u
        self._topology = topology = u.pencil.topology
        kept: tuple[PreparedAgreement, Form, Staging] | None = u.pencil.kept.get((verb, u.kind))
        if kept is None or topology.freed:
            values = {"dims": u.singletons, "components": u.components}
            agreement = PreparedAgreement(topology.comm, verb, u.dtype, pencil=u.pencil, **values)
            try:
                kept = agreement, Form(u), stagings(topology)
            except Exception:
                with agreement.block():
                    raise
            keep(u.pencil, (verb, u.kind), kept)
        self._agreement, self._form, self._staging = kept
        self._coords: list[Ints] = []
        self._plan: PointIndexer | None = None

    def take(self, read: Callable[[agreed], Any], out: object) -> Array:
        """Read the points of which `read` returns the coordinates. *Collective*."""
        u, staging, topology = self._u, self._staging, self._topology
        direct = compiled() is not None and topology.is_shared(u.padded)

        def prepare(agree: agreed) -> Callable[[], Array]:
            nonlocal direct
            shape = self._read(read(agree))
            found = as_results(out, shape, u.dtype)
            if self._plan is not None:
                return self._plan.bind_take(u, found, starts=False).run
            points = self._points(self._form.nearest.first)
            # What is under way may change the block until this rank completes it.
            if direct and staging.ready and not topology.under_way:
                direct = False  # at the next attempt
                agree.defer(up=True)
                return self._read_shared(points, found)
            order = np.empty(points.number, np.int64)
            chunks = self._begin(agree, points)
            orders = [self._write(chunk, points, order[chunk.points]) for chunk in chunks]
            agree.flag(up=True)

            def complete() -> Array:
                self._serve(
                    topology.rank, lambda column, at, values: move(values, None, column, at)
                )
                synchronize(topology.comm)
                columns = found.reshape(self._form.columns, points.number)
                for chunk, order in zip(chunks, orders, strict=True):
                    for column, values in zip(columns, chunk.values, strict=True):
                        move(column[chunk.points], order, values, None)
                return found

            return complete

        return self._run(prepare, PointIndexer.plan_take)

    def put(self, coords: object, given: object, reduce: object) -> None:
        """Write values, which are combined with those that are there. *Collective*."""
        u = self._u

        def prepare(agree: agreed) -> Callable[[], None]:
            op = as_reduce(reduce)
            agree(reduce=op and op.name)
            shape = self._read(coords)
            values = as_values("values", given, shape, u.dtype)
            check_writeable(u)
            if op is not None:
                op.result(u.dtype)  # if there is any
            if self._plan is not None:
                return self._plan.bind_put(u, values, op, starts=False).run
            # All replicas of a point read the request to the first one.
            points = self._points(0)
            columns = values.reshape(self._form.columns, points.number)
            for chunk in self._begin(agree, points):
                order = self._write(chunk, points, self._staging.scratch[2, : chunk.size])
                for column, room in zip(columns, chunk.values, strict=True):
                    move(room, None, column[chunk.points], order)
            agree.flag(up=agree.deferred or points.number > self._form.most)

            def complete() -> None:
                home = self._topology.rank - self._form.nearest.first
                self._serve(home, _set if op is None else op.combine_column)
                if agree.flagged:
                    synchronize(self._topology.comm)
                if checks.on:
                    u.mark_written()

            return complete

        self._run(prepare, PointIndexer.plan_put)

    def _run(
        self, prepare: Callable[[agreed], Callable[[], T]], make: Callable[[PointIndexer], object]
    ) -> T:
        """Agree on what is prepared, and complete it; `make` is the plan where there is no room.

        `prepare` sets both flags if it has to be called again. All ranks that only read shared
        blocks set the second one.
        """
        try:
            while True:
                with self._agreement.block() as agree:
                    complete = prepare(agree)
                    fence()
                fence()
                self._staging.turn()
                if not (agree.flagged and agree.deferred):
                    return complete()
                if not (self._staging.usable and self._staging.grow(self._topology)):
                    singletons = self._u.singletons
                    self._plan = PointIndexer.of(self._u.pencil, singletons, self._coords)
                    make(self._plan)
        finally:
            if self._plan is not None:
                self._plan.free()

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

    def _begin(self, agree: agreed, points: Points) -> list[Chunk]:
        """Begin the request; defer it if there is no memory for it yet."""
        chunks = self._staging.begin(self._topology.rank, self._form, points.number)
        agree.defer(up=chunks is None)
        return chunks or []

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
        if self._topology.under_way:
            self._topology.complete()
        block = Block(self._u, self._form.order)
        for rank in range(self._form.ranks):
            for chunk in self._staging.request(rank, self._form):
                mine = chunk.of_rank(home)
                if mine is not None:
                    at = block.positions(chunk.numbers[mine], self._staging.scratch)
                    for column, values in zip(block.columns, chunk.values, strict=True):
                        move(column, at, values[mine])

    def _read_shared(self, points: Points, found: Array) -> Callable[[], Array]:
        """Tell where the own block is, in memory order; return what reads those of all ranks."""
        u, topology, staging = self._u, self._topology, self._staging
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


def _set(column: Array, positions: Ints, values: Array) -> None:
    """Write values; the last one stays."""
    move(column, positions, values, None)
