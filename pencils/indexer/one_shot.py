"""Points of fields that are read or written once.

If all ranks are on one node they need no plan and no messages. Each rank leaves its request for the
others, see `pencils.indexer.staging`; then all agree on the call, so that all requests are there;
then each rank serves those for its block. Points of shared fields are read where they lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Self

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import checks
from pencils.array.operands import check_writeable
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import DEFERRED, FLAGGED, PreparedAgreement, agreed
from pencils.comm.memory import array_at, fence
from pencils.comm.pack import compiled
from pencils.comm.reduce import ReduceOp
from pencils.comm.rows import Ints, Points, fetch, locate, move, sort_to
from pencils.comm.shared_memory import synchronize
from pencils.indexer.arguments import as_coords, as_reduce, as_results, as_values
from pencils.indexer.points import PointIndexer, check_components
from pencils.indexer.requests import Block, points_on
from pencils.indexer.staging import Chunk, Form, stagings
from pencils.pencil import keep

_FEW = 64  # points that cost less to move than to find out whether they are sorted
_STRIDES = 2  # words of a slot that tells where a block is, before its strides: window and offset


def take_once(u: PencilArray, coords: Sequence[Any] | Array, out: Array | None = None) -> Array:
    """Read points of a field; see `PointIndexer.take`. *Collective*."""
    call = Take.of(u, coords, out)
    if call.run():
        return call.found
    with _Plan(u.pencil, coords, dims=_dims(u)) as plan:
        return plan.take(u, out)


def put_once(
    u: PencilArray, coords: Sequence[Any] | Array, values: Any, reduce: ReduceOp | None = None
) -> None:
    """Write to points of a field; see `PointIndexer.put`. *Collective*."""
    if not _Put.of(u, coords, values, reduce).run():
        with _Plan(u.pencil, coords, dims=_dims(u)) as plan:
            plan.put(u, values, reduce=reduce)


class _Plan(PointIndexer):
    """A plan for a single call, during which the coordinates do not change."""

    _copies = False

    def _agreement(self, call: str) -> agreed:
        """Return the agreement on a call; errors name the method of fields."""
        return agreed(self._topology.comm, f"PencilArray.{call}")


class _Kind:
    """What calls on fields of one pencil, type and shape have in common."""

    def __init__(self, u: PencilArray) -> None:
        pencil, layout = u.pencil, u.extent.layout
        self.topology = pencil.topology
        self.staging = stagings(self.topology)
        self.form = Form(layout.size, u.dtype, prod(u.components))
        self.order = layout.order
        self.shape = layout.shape
        self.components = u.components
        self._rows: dict[object, PreparedAgreement] = {}
        self._values = {"pencil": pencil, "dims": u.singletons, "components": self.components}
        none = [np.empty(0, np.int64)] * layout.ndim
        # Of the nearest replicas; without coordinates, which would stay in memory.
        self.nearest = points_on(layout, none, layout.parts(pencil.rank))

    def row(self, name: str, **values: object) -> PreparedAgreement:
        """Return the agreement of that name, prepared."""
        key = name, *values.values()
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = self.new_row(name, **values)
        return found

    def new_row(self, name: str, **values: object) -> PreparedAgreement:
        """Return an agreement that is not kept."""
        return PreparedAgreement(
            self.topology.comm, name, self.form.dtype, **self._values, **values
        )

    def points(self, coords: list[Ints], first: int) -> Points:
        """Describe points on replicas of which `first` is the first owner."""
        along = tuple([coords[dim] for dim in self.order])
        return Points(along, self.nearest.cuts, self.nearest.steps, first)


def _kind_of(u: PencilArray) -> _Kind:
    key = "points", u.kind
    found: _Kind | None = u.pencil.kept.get(key)
    if found is None:
        found = _Kind(u)
        keep(u.pencil, key, found)
    return found


class _Call(ABC):
    """A call of ranks that are all on one node."""

    name: str

    def __init__(self, u: PencilArray, coords: Sequence[Any] | Array) -> None:
        self._u = u
        self._coords = coords
        self._kind = kind = _kind_of(u)
        self._topology = kind.topology
        self._staging = kind.staging
        self._form = kind.form
        self._row = kind.row(self.name)

    @classmethod
    def of(cls, u: PencilArray, *args: Any) -> Self:
        """Return a call; an error on one rank raises on all of them."""
        try:
            return cls(u, *args)
        except Exception:
            with agreed(u.pencil.topology.comm, cls.name):  # where the others agree on the call
                raise

    def run(self) -> bool:
        """Agree, and complete the call; False if ranks cannot do so together. *Collective*."""
        staging = self._staging
        while staging.usable:
            flags, error = 0, None
            try:
                flags = self.prepare()
                fence()
            except Exception as mistake:  # noqa: BLE001 - raised on all ranks
                error = mistake
            flags = self._row.meet(error, flags)
            fence()
            staging.turn()
            if self.complete(flags):
                return True
            if not staging.grow(self._topology):
                break
        return False

    @abstractmethod
    def prepare(self) -> int:
        """Check all arguments and write the request; return flags: deferred if it has no memory."""

    @abstractmethod
    def complete(self, flags: int) -> bool:
        """Serve the requests, unless one of them is missing. *Collective*."""

    def find(self) -> tuple[tuple[int, ...], list[Ints]]:
        """Check the coordinates; return the shape of the values, and those of each dimension."""
        kind = self._kind
        if not kind.form.columns:
            check_components(self._u)
        shape, along = as_coords(self._coords, kind.shape, copy=False)
        return kind.components + shape, along

    def begin(self, points: Points) -> list[Chunk] | None:
        """Begin the request; None if there is no memory for it yet."""
        return self._staging.begin(self._topology.rank, self._form, points.number)

    def write(self, chunk: Chunk, points: Points, room: Ints) -> Ints | None:
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

    def serve(self, home: int, move: Callable[[Array, Ints, Array], None]) -> None:
        """Move the values of all requests to the owner `home`, in the order of ranks and points.

        `move` gets a column of the block, positions there, and the values. *Collective* if
        exchanges are under way, which are completed first.
        """
        if self._topology.under_way:
            self._topology.complete()
        block = Block(self._u, self._u.pencil.order)
        scratch = self._staging.scratch
        for rank in range(self._form.ranks):
            for chunk in self._staging.request(rank, self._form):
                mine = chunk.of_rank(home)
                if mine is not None:
                    at = block.positions(chunk.numbers[mine], scratch)
                    for column, values in zip(block.columns, chunk.values, strict=True):
                        move(column, at, values[mine])


class Take(_Call):
    """Reads points."""

    name = "PencilArray.take_points"

    def __init__(self, u: PencilArray, coords: Sequence[Any] | Array, out: Any) -> None:
        super().__init__(u, coords)
        self._out = out
        self._shared = compiled() is not None and self._topology.is_shared(u.padded)

    def prepare(self) -> int:
        """Check the arguments; tell where the own block is, or request the points."""
        u, staging = self._u, self._staging
        shape, along = self.find()
        self._points = self._kind.points(along, self._kind.nearest.first)
        self.found = as_results(self._out, shape, u.dtype)
        # What is under way may change the block until this rank completes it.
        direct = self._shared and staging.ready and not self._topology.under_way
        if direct:
            self._shared = False  # at the next attempt
            self._publish()
            return DEFERRED
        order = np.empty(self._points.number, np.int64)
        chunks = self.begin(self._points)
        self._chunks = [
            (chunk, self.write(chunk, self._points, order[chunk.points])) for chunk in chunks or ()
        ]
        return FLAGGED if chunks is not None else FLAGGED | DEFERRED

    def complete(self, flags: int) -> bool:
        """Read the points, or have them read by their owners."""
        if not flags & FLAGGED:
            self._read_shared()
            return True
        if flags & DEFERRED:
            return False
        self.serve(self._topology.rank, _get)
        synchronize(self._topology.comm)
        columns = self.found.reshape(self._form.columns, self._points.number)
        for chunk, order in self._chunks:
            for column, values in zip(columns, chunk.values, strict=True):
                move(column[chunk.points], order, values, None)
        return True

    # Blocks in shared memory.

    def _publish(self) -> None:
        """Tell in the slot where the own block is, in memory order."""
        u = self._u
        self._own = u.local.transpose(memory_axes(u.extent.layout.order, len(u.components)))
        place = self._topology.shared.find(self._own) if self._own.size else (0, 0)
        assert place is not None  # an empty block may be anywhere: it is not read
        self._staging.tell(self._topology.rank, [*place, *self._own.strides])
        # Memory for the points, unless a rank may still read what `found` overlaps.
        used = u.padded, *self._points.coords
        aliased = any(np.may_share_memory(array, self.found) for array in used)
        self._room = np.empty_like(self.found) if aliased else self.found

    def _read_shared(self) -> None:
        """Read the points of all components. *Collective*."""
        homes = [self._home(rank) for rank in range(self._form.ranks)]
        columns = self._room.reshape(self._form.columns, self._points.number)
        for index, column in zip(np.ndindex(self._u.components), columns, strict=True):
            fetch(self._points, [(block[index], start) for block, start in homes], column)
        synchronize(self._topology.comm)
        if self._room is not self.found:
            self.found[...] = self._room

    def _home(self, rank: int) -> tuple[Array, Sequence[int]]:
        """Return the block of a rank, and the coordinates of its first point."""
        layout, shared = self._u.extent.layout, self._topology.shared
        box = layout.box(rank)
        words = self._staging.slot(rank)[: _STRIDES + self._own.ndim]
        window, offset, *strides = words.tolist()
        shape = (*self._u.components, *(box.shape[dim] for dim in layout.order))
        memory = shared.memory(self._topology.on_node[rank], window)
        block = array_at(memory, shape, self._own.dtype, offset, strides)
        return block, [box.start[dim] for dim in layout.order]


class _Put(_Call):
    name = "PencilArray.put_points"

    def __init__(
        self, u: PencilArray, coords: Sequence[Any] | Array, values: Any, reduce: object
    ) -> None:
        super().__init__(u, coords)
        self._values = values
        self._reduce = reduce

    def prepare(self) -> int:
        """Check the arguments; request to write the values."""
        u, kind = self._u, self._kind
        self._op = op = as_reduce(self._reduce)
        self._row = kind.row(self.name, reduce=op)
        shape, along = self.find()
        given = as_values("values", self._values, shape, u.dtype)
        check_writeable(u)
        if op is not None:
            op.result(u.dtype)  # if there is any
        # All replicas of a point read the request to the first one.
        self._home = self._topology.rank - kind.nearest.first
        points = kind.points(along, 0)
        columns = given.reshape(self._form.columns, points.number)
        flags = FLAGGED if points.number > self._form.most else 0
        chunks = self.begin(points)
        for chunk in chunks or ():
            order = self.write(chunk, points, self._staging.scratch[2, : chunk.size])
            for column, room in zip(columns, chunk.values, strict=True):
                move(room, None, column[chunk.points], order)
        return flags if chunks is not None else flags | DEFERRED

    def complete(self, flags: int) -> bool:
        """Write the values that all ranks have for this one."""
        if flags & DEFERRED:
            return False
        op = self._op
        self.serve(self._home, _set if op is None else op.combine_column)
        if flags & FLAGGED:
            synchronize(self._topology.comm)
        if checks.on:
            self._u.mark_written()
        return True


def _get(column: Array, positions: Ints, values: Array) -> None:
    """Read values."""
    move(values, None, column, positions)


def _set(column: Array, positions: Ints, values: Array) -> None:
    """Write values; the last one stays."""
    move(column, positions, values, None)


def _dims(u: PencilArray) -> list[int]:
    """Dimensions along which a field varies."""
    return [dim for dim in range(u.pencil.ndim) if dim not in u.singletons]
