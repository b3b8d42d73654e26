"""Copies between the blocks of a pencil and the parts of any other distribution.

A pencil divides an array into *blocks*, the other distribution divides it into *parts*: one block
and one part for each process. Along every dimension, each process arranges its points: those of a
part in rising order, which is block by block; those of a block part by part. Then a block and a
part share one box of the arranged arrays. Arranging copies only where points are not consecutive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.topology import Topology
from pencils.dap.distributions import GlobalDimMap
from pencils.dap.maps import CyclicMap, Indices
from pencils.layout import Layout, ProcessGrid, Split

Points = slice | Indices
AxisView = tuple[slice, tuple[int, int]]  # part of an axis, and the two axes that it is reshaped to
Slices = tuple[slice, slice]
_CALL = "redistribution"
_ROUNDS, _ROW = range(2)


class Axis(NamedTuple):
    """One dimension of an array on one process, as it is exchanged."""

    points: Points  # positions in the array, arranged
    views: Sequence[AxisView]  # of the arranged axis; as many on all processes
    boxes: Sequence[list[MessageBlock]]  # for each view, with peers along this dimension


def block_axis(split: Split, whole: GlobalDimMap, block: int) -> Axis:
    """Arrange the points of a block along one dimension, part by part."""
    start, stop = split.bounds(block)
    if whole.kind == "cyclic":
        (first, last), length = _rounds(split, whole, block), _round_length(whole)
        rounds = slice(first * length - start, last * length - start), (last - first, length)
        overlaps = [
            (view, MessageBlock(part, here, (there[0].start, there[1].start)))
            for part in range(whole.nprocs)
            for view, here, there in _cyclic_overlaps(split, whole, block, part)
        ]
        return _cyclic_axis(split, whole, slice(0, stop - start), rounds, overlaps)
    bounds = np.array([start, stop])
    points, row, begin = [np.empty(0, np.int64)], [], 0
    for peer, part in enumerate(whole.parts):
        low, high = part.count_below(bounds).tolist()
        if low < high:
            points.append(part.local_to_global(part.rising(low, high) + part.ghosts[0]) - start)
            end = begin + high - low
            row.append(MessageBlock(peer, (slice(0, 1), slice(begin, end)), (0, low)))
            begin = end
    joined = np.concatenate(points, dtype=np.int64)  # with unsigned lists it would be of floats
    return Axis(_consecutive(joined), [_row(begin)], [row])


def part_axis(split: Split, whole: GlobalDimMap, number: int) -> Axis:
    """Arrange the points of a part along one dimension, block by block."""
    part = whole.parts[number]
    if whole.kind == "cyclic":
        count, width = split.points // _round_length(whole), _round_length(whole) // whole.nprocs
        overlaps = [
            (view, MessageBlock(block, here, (there[0].start, there[1].start)))
            for block in range(split.parts)
            for view, there, here in _cyclic_overlaps(split, whole, block, number)
        ]
        rounds = slice(0, count * width), (count, width)
        return _cyclic_axis(split, whole, slice(0, part.count), rounds, overlaps)
    bounds = np.array([*(split.bounds(block)[0] for block in range(split.parts)), split.points])
    ends = part.count_below(bounds).tolist()
    before = (np.diff(other.count_below(bounds)) for other in whole.parts[:number])
    begins = sum(before, np.zeros(split.parts, np.int64)).tolist()
    row = [
        MessageBlock(block, (slice(0, 1), slice(*ends[block : block + 2])), (0, begin))
        for block, begin in enumerate(begins)
        if ends[block] < ends[block + 1]
    ]
    return Axis(_consecutive(part.rising(0, part.count)), [_row(part.count)], [row])


def _cyclic_axis(
    split: Split,
    whole: GlobalDimMap,
    points: slice,
    rounds: AxisView,
    overlaps: Sequence[tuple[int, MessageBlock]],
) -> Axis:
    """Have the views of an axis that any block needs: the same ones on all ranks."""
    used = set()
    for block in range(split.parts):
        (start, stop), (first, last) = split.bounds(block), _rounds(split, whole, block)
        used |= {_ROUNDS} if first < last else set()
        used |= {_ROW} if stop - start > (last - first) * _round_length(whole) else set()
    views = rounds, _row(points.stop)
    boxes = [[box for view, box in overlaps if view == one] for one in sorted(used)]
    return Axis(points, [views[view] for view in sorted(used)], boxes)


def _consecutive(points: Indices) -> Points:
    """Convert consecutive positions to a slice."""
    if not len(points):
        return slice(0, 0)
    consecutive = (np.diff(points) == 1).all()
    return slice(int(points[0]), int(points[-1]) + 1) if consecutive else points


def _row(points: int) -> AxisView:
    return slice(0, points), (1, points)


def _round_length(whole: GlobalDimMap) -> int:
    """Points of a round: of one block of a cyclic distribution for every process."""
    part = cast("CyclicMap", whole.parts[0])
    return whole.nprocs * min(part.block_size, max(1, whole.size))


def _rounds(split: Split, whole: GlobalDimMap, block: int) -> tuple[int, int]:
    """First round that lies completely in a block of a pencil, and the one after the last."""
    start, stop = split.bounds(block)
    first = -(-start // _round_length(whole))
    return first, max(first, stop // _round_length(whole))


def _cyclic_overlaps(
    split: Split, whole: GlobalDimMap, block: int, part: int
) -> Iterator[tuple[int, Slices, Slices]]:
    """Yield boxes that a block of a pencil and a part share: view, box in block, box in part.

    The part has points of every round, which are not consecutive in the block. They are one box
    where an axis is viewed as two: rounds, and the points of a round. What remains at both ends of
    the block, outside of complete rounds, is viewed as one row.
    """
    (start, stop), (first, last) = split.bounds(block), _rounds(split, whole, block)
    length = _round_length(whole)
    width = length // whole.nprocs
    low, high = width * part, width * (part + 1)
    if first < last:
        in_block = slice(0, last - first), slice(low, high)
        yield _ROUNDS, in_block, (slice(first, last), slice(0, width))
    before, after = (start, min(stop, first * length)), (last * length, stop)
    for number, (lo, hi) in ((first - 1, before), (last, after)):
        begin, end = max(lo, number * length + low), min(hi, number * length + high)
        if begin < end:
            shift = number * (length - width) + low  # of this round in the part
            here, there = slice(begin - start, end - start), slice(begin - shift, end - shift)
            yield _ROW, (slice(0, 1), here), (slice(0, 1), there)


class Arrangement(NamedTuple):
    """One process: how its array is arranged, and what is exchanged of it."""

    order: tuple[int, ...]  # of the memory of the pencil; arranged arrays have their axes in it
    axes: tuple[Axis, ...]  # in that order
    boxes: list[list[MessageBlock]]  # for each combination of views of the axes

    def gather(self, array: Array) -> Array:
        """Arrange an array, which is copied unless all points are consecutive."""
        found = self._slice(array)
        for axis, points in self._lists():
            found = found.take(points, axis)
        return found

    def room(self, array: Array) -> Array:
        """Return what receives the points of an array, arranged: a view of it if possible."""
        found = self._slice(array)
        for axis, points in self._lists():
            shape = list(found.shape)
            shape[axis] = len(points)
            found = np.empty(shape, found.dtype)
        return found

    def scatter(self, arranged: Array, array: Array) -> None:
        """Copy what `room` returned to the array, where it is not a view of it."""
        lists = dict(self._lists())
        if lists:
            first = range(len(lists))
            target = np.moveaxis(self._slice(array), [*lists], first)
            target[np.ix_(*lists.values())] = np.moveaxis(arranged, [*lists], first)

    def views(self, arranged: Array) -> list[Array]:
        """View an arranged array in all combinations of views of its axes."""
        lead = arranged.shape[: arranged.ndim - len(self.order)]
        found = []
        for views in product(*(axis.views for axis in self.axes)):
            key: tuple[Any, ...] = (..., *(part for part, _ in views))
            # NumPy never copies to split axes.
            found.append(arranged[key].reshape(lead + tuple(n for _, two in views for n in two)))
        return found

    def _slice(self, array: Array) -> Array:
        """View an array with leading component axes: axes and consecutive points arranged."""
        along = (a.points if isinstance(a.points, slice) else slice(None) for a in self.axes)
        key: tuple[Any, ...] = (..., *along)
        view: Array = array.transpose(memory_axes(self.order, array.ndim - len(self.order)))[key]
        return view

    def _lists(self) -> Iterator[tuple[int, Indices]]:
        """Yield axes, counted from the end, along which points are not consecutive."""
        for number, axis in enumerate(self.axes, -len(self.axes)):
            if not isinstance(axis.points, slice):
                yield number, axis.points


@dataclass(frozen=True)
class ArrayTransfer:
    """All dimensions of a transfer between the blocks of a pencil and the parts of an array.

    `members` are the ranks on the pencil of the ranks of the other array, which are in C order.
    """

    layout: Layout
    dims: Sequence[GlobalDimMap]
    members: Sequence[int]

    @property
    def grid(self) -> ProcessGrid:
        """Process grid of the parts."""
        return ProcessGrid(tuple(dim.nprocs for dim in self.dims))

    def block(self, rank: int) -> Arrangement:
        """Arrange the block of a rank."""
        coords = self.layout.parts(rank)
        return self._arrange(block_axis, coords, lambda parts: self.members[self.grid.rank(parts)])

    def part(self, rank: int) -> Arrangement:
        """Arrange the part of a rank, given by its number in the other array."""
        return self._arrange(part_axis, self.grid.coords(rank), self.layout.rank)

    def to_blocks(self, topology: Topology, part: Array, block: Array) -> None:
        """Fill the blocks from the parts. *Collective* over the topology of the pencil."""
        self._move(topology, part, block, back=False)

    def to_parts(self, topology: Topology, block: Array, part: Array) -> None:
        """Fill the parts from the blocks; see `to_blocks`. *Collective*."""
        self._move(topology, part, block, back=True)

    def _move(self, topology: Topology, part: Array, block: Array, *, back: bool) -> None:
        if 0 in self.layout.shape:
            return
        with agreed(topology.comm, _CALL):  # one rank may have no memory for it
            parts = self.part(self.members.index(topology.rank)), part
            blocks = self.block(topology.rank), block
            (away, source), (home, target) = (blocks, parts) if back else (parts, blocks)
            received = home.room(target)
            sources, targets = away.views(away.gather(source)), home.views(received)
        axes = 2 * len(self.dims)
        specs = [
            MessageSpec(sends, recvs, view.shape[: view.ndim - axes], view.dtype)
            for sends, recvs, view in zip(away.boxes, home.boxes, targets, strict=True)
        ]
        exchange = Exchange(topology, specs, axes=axes)
        try:
            with agreed(topology.comm, _CALL):
                bound = exchange.prepare(sources, targets, disjoint=True)
                bound.reserve()
            bound.run()
        finally:
            exchange.free()
        home.scatter(received, target)

    def _arrange(
        self,
        axis_of: Callable[[Split, GlobalDimMap, int], Axis],
        coords: Sequence[int],
        rank_of: Callable[[Sequence[int]], int],
    ) -> Arrangement:
        """Arrange all dimensions of a process, and combine what it shares along each."""
        order = self.layout.order
        along = list(map(axis_of, self.layout.splits, self.dims, coords))
        axes = tuple(along[dim] for dim in order)
        boxes = [
            [self._box(found, rank_of) for found in product(*chosen)]
            for chosen in product(*(axis.boxes for axis in axes))
        ]
        return Arrangement(order, axes, boxes)

    def _box(
        self, along: Sequence[MessageBlock], rank_of: Callable[[Sequence[int]], int]
    ) -> MessageBlock:
        """Combine what is shared along every dimension, in memory order."""
        peers = dict(zip(self.layout.order, (box.peer for box in along), strict=True))
        key = tuple(part for box in along for part in box.key)
        start = tuple(begin for box in along for begin in box.start)
        return MessageBlock(rank_of([peers[dim] for dim in range(len(along))]), key, start)
