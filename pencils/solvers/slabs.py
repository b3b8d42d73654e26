"""How one rank computes its block of a field on another grid level.

Each rank computes the points of the target whose source points are all its own directly from its
block. The others lie in slabs at the ends of the block: for each slab, an array is fetched with all
source points that it needs, all of them in one exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.exchange import PreparedExchange
from pencils.comm.memory import borrowed, place
from pencils.comm.methods.pull import PreparedPull
from pencils.comm.pack import MessageSpec
from pencils.comm.products import Matrix, Op, Room, prepare_product
from pencils.functions.moves import MovePlan, boxes, prepare_move
from pencils.layout.split import Split
from pencils.pencil import Bounded, Pencil
from pencils.solvers.weights import Weights


class Line(NamedTuple):
    """One dimension: its matrix, or None if points are the same, and source and target of it."""

    matrix: Weights | None
    source: Split
    target: Split
    strides: tuple[int, int]  # steps in rank, in the source and in the target
    follows: bool  # whether blocks of the target follow those of the source

    def ends(self, part: int) -> tuple[int, int, int, int]:
        """Rows of a part: the first one, those of which all points are own, the one after all."""
        start, stop = self.target.bounds(part)
        matrix = self.matrix
        if matrix is None or self.source.parts == 1:
            return start, start, stop, stop
        own = range(*self.source.bounds(part))
        # Rows that are far enough from the ends, then those beside them.
        low = max(start, -(-(own.start + matrix.reach) // matrix.down) * matrix.up)
        high = min(stop, (own.stop - matrix.reach) // matrix.down * matrix.up)
        if low >= high:
            inside = [row for row in range(start, stop) if matrix.uses(row, own)]
            low = high = inside[len(inside) // 2] if inside else start
        while low > start and matrix.uses(low - 1, own):
            low -= 1
        while high < stop and matrix.uses(high, own):
            high += 1
        return start, low, high, stop

    def rows(self, kind: str, part: int) -> tuple[int, int]:
        """Rows of a part: "all", or those within its "inner" points, or "before", or "after"."""
        if kind == "all":
            return self.target.bounds(part)
        ends, number = self.ends(part), ("before", "inner", "after").index(kind)
        return ends[number], ends[number + 1]

    def needed(self, kind: str, part: int) -> list[range]:
        """Points of the source that these rows need, in the order of an array that has them."""
        rows = range(*self.rows(kind, part))
        if self.matrix is not None:
            return self.matrix.needed(rows)
        return [rows] if rows else []

    def pieces(self, kind: str, part: int) -> list[tuple[int, int, int, int]]:
        """Pieces of that array: owner, place in the array, place at the owner, and points."""
        if self.source.replicated:
            return [(part if self.follows else 0, 0, 0, 1)]
        found, place = [], 0
        for each in self.needed(kind, part):
            for owner, lo, hi in self.source.overlaps(each.start, each.stop):
                start, _ = self.source.bounds(owner)
                found.append((owner, place + lo - each.start, lo - start, hi - lo))
            place += len(each)
        return found

    def sends(self, kind: str, own: int) -> list[tuple[int, int, int, int]]:
        """Pieces of the own block: part that gets it, place here, place there, and points."""
        return [
            (part, here, there, count)
            for part in self._receivers(own)
            for owner, there, here, count in self.pieces(kind, part)
            if owner == own
        ]

    def _receivers(self, own: int) -> list[int]:
        if self.source.replicated:
            return [own] if self.follows else list(range(self.target.parts)) if own == 0 else []
        start, stop = self.source.bounds(own)
        if start == stop or not self.target.points:
            return []
        if self.matrix is None:
            return [part for part, *_ in self.target.overlaps(start, stop)]
        matrix, points = self.matrix, self.target.points
        low = (start - matrix.reach) // matrix.down * matrix.up
        high = ((stop + matrix.reach) // matrix.down + 1) * matrix.up
        shifts = (-points, 0, points) if matrix.outside == "wrap" else (0,)
        ranges = [(max(0, low + shift), min(high + shift, points)) for shift in shifts]
        pairs = [(start, stop) for start, stop in ranges if start < stop]
        return sorted({part for pair in pairs for part, *_ in self.target.overlaps(*pair)})


class Slab(NamedTuple):
    """Some rows of the target: along each dimension all, or those of one kind."""

    kinds: tuple[str, ...]
    fetched: bool  # whether its points must be fetched; else they are own ones


class Ready(NamedTuple):
    """A call that is prepared for blocks at given places."""

    pack: Op  # what comes before the agreement; no field changes
    exchange: PreparedPull | PreparedExchange
    ops: Sequence[Op]

    def run(self) -> None:
        """Move what is needed, and compute, after all ranks have agreed. *Collective*."""
        self.exchange.run_agreed()
        with np.errstate(all="ignore"):
            for op in self.ops:
                op()


# A call that is ready, the field it fills, and the pencil to which that moves on, if it does.
Found: TypeAlias = tuple[Ready, PencilArray, Pencil | None]


class Way:
    """How one rank computes its block of the target, once the arguments are known; local.

    The target is a field on `pencil`, or one that moves on `onto` another; `add` to what it has.
    """

    def __init__(
        self,
        u: PencilArray,
        pencil: Pencil,
        matrices: Sequence[Weights | None],
        *,
        onto: Pencil | None,
        add: bool,
    ) -> None:
        self.spec = FieldSpec.of(u)
        self._onto, self._add = onto, add
        self._new = PencilArray.maker(pencil, *self.spec)
        self._ready = Bounded()  # by the places of blocks
        self.order = u.pencil.order  # of all arrays here
        source, target = u.extent.layout, pencil.extent(self.spec.singletons).layout
        follows = source.strides == target.strides and source.process_shape == target.process_shape
        strides = zip(source.strides, target.strides, strict=True)
        along = zip(matrices, source.splits, target.splits, strides, strict=True)
        lines = [Line(*given, follows) for given in along]
        self.lines = [lines[dim] for dim in self.order]
        parts = [layout.parts(u.pencil.rank) for layout in (source, target)]
        self.parts = [[each[dim] for dim in self.order] for each in parts]
        # Where equal dimensions are cut alike, their points need not be fetched.
        alike = all(line.source == line.target for line in self.lines if line.matrix is None)
        self.slabs = self._slabs(follows=follows and alike)
        self.scale = prod(matrix.scale for matrix in matrices if matrix is not None)
        self.room: Room = {}
        self.known: dict[Slab, dict[str, Any]] = {slab: {} for slab in self.slabs}

    def _slabs(self, *, follows: bool) -> list[Slab]:
        whole = ["all"] * len(self.lines)
        if not follows:
            return [Slab(tuple(whole), fetched=True)]
        slabs = []
        for number, line in enumerate(self.lines):
            if line.matrix is not None and line.source.parts > 1:
                for kind in ("before", "after"):
                    kinds = [*whole[:number], kind, *whole[number + 1 :]]
                    slabs.append(Slab(tuple(kinds), fetched=True))
                whole[number] = "inner"
        return [*slabs, Slab(tuple(whole), fetched=False)]

    def specs(self) -> list[MessageSpec]:
        """List what this rank sends and receives for each slab; nothing if there is none."""
        dtype, lead = self.spec.dtype, self.spec.components
        specs = []
        for kinds, fetched in self.slabs:
            if fetched:
                every = list(zip(self.lines, kinds, *self.parts, strict=True))
                sends = [line.sends(kind, own) for line, kind, own, _ in every]
                gets = [line.pieces(kind, part) for line, kind, _, part in every]
                near, far = zip(*(line.strides for line in self.lines), strict=True)
                both = boxes(0, far, sends), boxes(0, near, gets)
                specs.append(MessageSpec(*both, lead, dtype))
        return specs or [MessageSpec([], [], lead, dtype)]

    def bind(self, plan: MovePlan, u: PencilArray, out: PencilArray | None) -> Found:
        """Find or prepare what suits the places of the blocks, and pack; local."""
        target = self._new() if out is None or self._onto is not None else out
        key = place(u.local), place(target.local)
        ready: Ready | None = self._ready.get(key)
        if ready is None:
            ready = self._prepared(plan, u, target)
            self._ready.add(key, ready)
        ready.pack()
        return ready, target, self._onto

    def _prepared(self, plan: MovePlan, u: PencilArray, out: PencilArray) -> Ready:
        """Prepare the exchange and the computation for fields, whose memory is borrowed."""
        axes = memory_axes(self.order, len(self.spec.components))
        source, target = (borrowed(each.local).transpose(axes) for each in (u, out))
        fetched: list[Array] = []
        ops: list[Op] = []
        for slab in self.slabs:
            part = self._fetched(slab, len(fetched)) if slab.fetched else source
            fetched += [part] if slab.fetched else []
            key: list[Any] = [Ellipsis]
            for line, kind, own in zip(self.lines, slab.kinds, self.parts[1], strict=True):
                start, _ = line.target.bounds(own)
                key.append(slice(*(row - start for row in line.rows(kind, own))))
            matrices = partial(self._matrices, slab)
            arrays = target[tuple(key)], part, matrices, self.room, self.known[slab]
            ops += prepare_product(*arrays, scale=self.scale, add=self._add)
        if not fetched:
            fetched = [np.empty((*self.spec.components, *[0] * len(self.lines)), u.dtype)]
        return Ready(*prepare_move(plan, [source] * len(fetched), fetched), ops)

    def _fetched(self, slab: Slab, number: int) -> Array:
        key = "fetched", number
        if key not in self.room:
            shape = list(self.spec.components)
            for line, kind, part in zip(self.lines, slab.kinds, self.parts[1], strict=True):
                shape.append(sum(count for *_, count in line.pieces(kind, part)))
            self.room[key] = np.empty(shape, self.spec.dtype)
        return self.room[key]

    def _matrices(self, slab: Slab) -> list[Matrix | None]:
        matrices: list[Matrix | None] = [None] * len(self.spec.components)
        for line, kind, own, part in zip(self.lines, slab.kinds, *self.parts, strict=True):
            if line.matrix is None:
                matrices.append(None)
                continue
            own_points = [range(*line.source.bounds(own))]
            points = line.needed(kind, part) if slab.fetched else own_points
            matrices.append(line.matrix.among(points, range(*line.rows(kind, part))))
        return matrices
