"""Copies between the blocks of a pencil and the parts of a block or cyclic distribution.

A pencil divides an array into *blocks*, the other distribution divides it into *parts*: one block
and one part for each process. Up to the point where data move, this is arithmetic that answers for
any rank of either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from pencils.array.allocation import Array, memory_axes
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.topology import Topology
from pencils.dap.global_maps import GlobalBlockMap, GlobalCyclicMap, GlobalDimMap
from pencils.layout import Layout, ProcessGrid, Split

Slices = tuple[slice, slice]
# A slice of an axis, and the shape of the two axes that it is reshaped to.
AxisView = tuple[slice, tuple[int, int]]
Common = tuple[int, Slices, Slices]  # view, slices in the block, slices in the part
ROUNDS, ROW = range(2)  # the two views of an axis
_FIRST_ROW = slice(0, 1)


class Overlap(NamedTuple):
    """Points of one dimension that this rank (`here`) shares with a peer (`there`)."""

    peer: int
    view: int
    here: Slices
    there: Slices


@dataclass(frozen=True)
class DimTransfer:
    """One dimension: the blocks of a pencil, and the parts of a block or cyclic distribution.

    The dimension is a sequence of rounds of equal length, the last of which may be incomplete, and
    every round is cut at `cuts`. A block distribution is one round. What a block and a part share
    of several rounds is not contiguous in the block, but it is one box if the axis is reshaped to
    two: rounds, and the points of a round. The rounds that lie completely in a block are copied in
    this view; what remains of the block at either end, in the view of all its points as one row.

    Parameters
    ----------
    split : Split
        The blocks; not replicated.
    cuts : tuple of int
        Part p has the points ``cuts[p] .. cuts[p + 1] - 1`` of every round.

    Examples
    --------
    >>> dim = DimTransfer(Split(14, 1), (0, 3, 6))  # 2 rounds, and 2 points more
    >>> dim.block_views(0)
    ((slice(0, 12, None), (2, 6)), (slice(0, 14, None), (1, 14)))
    >>> for overlap in dim.of_part(0):
    ...     print(overlap.view, overlap.here, overlap.there)
    0 (slice(0, 2, None), slice(0, 3, None)) (slice(0, 2, None), slice(0, 3, None))
    1 (slice(0, 1, None), slice(6, 8, None)) (slice(0, 1, None), slice(12, 14, None))
    """

    split: Split
    cuts: tuple[int, ...]

    @classmethod
    def of(cls, split: Split, whole: GlobalDimMap) -> DimTransfer:
        """Make one from the blocks of a pencil and the map of all processes."""
        if isinstance(whole, GlobalBlockMap):
            return cls(split, tuple(whole.bounds.tolist()))
        assert isinstance(whole, GlobalCyclicMap)
        block_size = min(whole.block_size, max(1, whole.size))  # so that a round can be counted
        return cls(split, tuple(block_size * part for part in range(whole.nprocs + 1)))

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.cuts) - 1

    @property
    def length(self) -> int:
        """Number of points in a complete round."""
        return max(1, self.cuts[-1])

    @cached_property
    def views(self) -> tuple[int, ...]:
        """The views that any block needs: the same on all ranks."""
        used = set()
        for block in range(self.split.parts):
            (start, stop), (first, last) = self.split.bounds(block), self._rounds(block)
            used |= {ROUNDS} if first < last else set()
            used |= {ROW} if stop - start > (last - first) * self.length else set()
        return tuple(sorted(used))

    def block_views(self, block: int) -> tuple[AxisView, AxisView]:
        """View the axis of a block as rounds, and as one row."""
        start, stop = self.split.bounds(block)
        first, last = self._rounds(block)
        part = slice(first * self.length - start, last * self.length - start)
        return (part, (last - first, self.length)), _row(stop - start)

    def part_views(self, part: int) -> tuple[AxisView, AxisView]:
        """View the axis of a part as rounds, and as one row."""
        low, high = self.cuts[part : part + 2]
        rounds, rest = divmod(self.split.points, self.length)
        complete = rounds * (high - low)
        count = complete + min(max(rest - low, 0), high - low)
        return (slice(0, complete), (rounds, high - low)), _row(count)

    def of_block(self, block: int) -> Iterator[Overlap]:
        """Yield what a block shares with any part."""
        for part in range(self.parts):
            for view, in_block, in_part in self._common(block, part):
                yield Overlap(part, view, in_block, in_part)

    def of_part(self, part: int) -> Iterator[Overlap]:
        """Yield what a part shares with any block."""
        for block in range(self.split.parts):
            for view, in_block, in_part in self._common(block, part):
                yield Overlap(block, view, in_part, in_block)

    def _common(self, block: int, part: int) -> Iterator[Common]:
        start, stop = self.split.bounds(block)
        (low, high), length = self.cuts[part : part + 2], self.length
        width, (first, last) = high - low, self._rounds(block)
        if width and first < last:
            in_block = slice(0, last - first), slice(low, high)
            yield ROUNDS, in_block, (slice(first, last), slice(0, width))
        before, after = (start, min(stop, first * length)), (last * length, stop)
        for number, (lo, hi) in ((first - 1, before), (last, after)):
            begin, end = max(lo, number * length + low), min(hi, number * length + high)
            if begin < end:
                shift = number * (length - width) + low  # of this round in the part
                here, there = slice(begin - start, end - start), slice(begin - shift, end - shift)
                yield ROW, (_FIRST_ROW, here), (_FIRST_ROW, there)

    def _rounds(self, block: int) -> tuple[int, int]:
        """First round that lies completely in a block, and the one after the last."""
        start, stop = self.split.bounds(block)
        first = -(-start // self.length)
        return first, max(first, stop // self.length)


def _row(points: int) -> AxisView:
    return slice(0, points), (1, points)


class TransferSide(NamedTuple):
    """One rank of either side: how to view its array, and what to exchange of every view.

    Parameters
    ----------
    order : tuple of int
        Memory order of the pencil; the views have their axes in it.
    views : sequence of tuple of AxisView
        One for each dimension, in logical order.
    pieces : sequence of list of MessageBlock
        For each view, the boxes to exchange.
    """

    order: tuple[int, ...]
    views: Sequence[tuple[AxisView, ...]]
    pieces: Sequence[list[MessageBlock]]

    def arrays(self, array: Array) -> list[Array]:
        """Make the views of an array with leading component axes; nothing is copied."""
        lead = array.ndim - len(self.order)
        arranged = array.transpose(memory_axes(self.order, lead))
        arrays = []
        for views in self.views:
            along = [views[dim] for dim in self.order]
            key: tuple[Any, ...] = (..., *(part for part, _ in along))
            # NumPy never copies to split axes.
            shape = arranged.shape[:lead] + tuple(n for _, axes in along for n in axes)
            arrays.append(arranged[key].reshape(shape))
        return arrays


@dataclass(frozen=True)
class ArrayTransfer:
    """All dimensions of a transfer between the blocks of a pencil and the parts of an array.

    Parameters
    ----------
    layout : Layout
        Of the pencil.
    dims : sequence of DimTransfer
        The dimensions, in logical order.
    members : sequence of int
        Rank on the pencil of every rank of the other array, whose ranks are in C order.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> layout = build_layout((4, 6), 2, decomp=1)
    >>> cuts = (0, 3, 4), (0, 6)
    >>> transfer = ArrayTransfer(layout, [*map(DimTransfer, layout.splits, cuts)], range(2))
    >>> [(piece.peer, piece.start) for piece in transfer.block(1).pieces[0]]
    [(0, (0, 0, 0, 3)), (1, (0, 0, 0, 3))]
    """

    layout: Layout
    dims: Sequence[DimTransfer]
    members: Sequence[int]

    @property
    def grid(self) -> ProcessGrid:
        """Process grid of the parts."""
        return ProcessGrid(tuple(dim.parts for dim in self.dims))

    def block(self, rank: int) -> TransferSide:
        """Return the side of a rank that has a block."""
        along = list(zip(self.dims, self.layout.parts(rank), strict=True))
        views = [dim.block_views(block) for dim, block in along]
        overlaps = [dim.of_block(block) for dim, block in along]
        return self._side(views, overlaps, lambda parts: self.members[self.grid.rank(parts)])

    def part(self, rank: int) -> TransferSide:
        """Return the side of a rank that has a part, by its number in the other array."""
        along = list(zip(self.dims, self.grid.coords(rank), strict=True))
        views = [dim.part_views(part) for dim, part in along]
        overlaps = [dim.of_part(part) for dim, part in along]
        return self._side(views, overlaps, self.layout.rank)

    def to_blocks(self, topology: Topology, part: Array, block: Array) -> None:
        """Fill the blocks from the parts. *Collective* over the ranks of the pencil.

        Parameters
        ----------
        topology : Topology
            Of the pencil.
        part, block : numpy.ndarray
            The arrays of this process, components first.
        """
        self._move(topology, (part, block), back=False)

    def to_parts(self, topology: Topology, block: Array, part: Array) -> None:
        """Fill the parts from the blocks; see `to_blocks`. *Collective*."""
        self._move(topology, (part, block), back=True)

    def _move(self, topology: Topology, arrays: tuple[Array, Array], *, back: bool) -> None:
        if not all(dim.views for dim in self.dims):  # no points
            return
        sides = self.part(self.members.index(topology.rank)), self.block(topology.rank)
        with agreed(topology.comm, "redistribution"):  # one rank may have no memory for it
            views = [side.arrays(array) for side, array in zip(sides, arrays, strict=True)]
        of_part, of_block = zip((side.pieces for side in sides), views, strict=True)
        (sends, sources), (recvs, targets) = (of_block, of_part) if back else (of_part, of_block)
        axes = 2 * len(self.dims)
        specs = [
            MessageSpec(away, home, view.shape[: view.ndim - axes], view.dtype)
            for away, home, view in zip(sends, recvs, targets, strict=True)
        ]
        exchange = Exchange(topology, specs, axes=axes)
        try:
            with agreed(topology.comm, "redistribution"):
                bound = exchange.prepare(sources, targets, disjoint=True)
                bound.reserve()
            bound.run()
        finally:
            exchange.free()

    def _side(
        self,
        views: Sequence[tuple[AxisView, AxisView]],
        overlaps: Sequence[Iterable[Overlap]],
        rank_of: Callable[[Sequence[int]], int],
    ) -> TransferSide:
        """Combine what was found along every dimension, for every combination of views."""
        found = [list(along) for along in overlaps]
        chosen = list(product(*(dim.views for dim in self.dims)))
        pieces = []
        for numbers in chosen:
            along = [
                [overlap for overlap in every if overlap.view == view]
                for every, view in zip(found, numbers, strict=True)
            ]
            pieces.append([self._piece(combined, rank_of) for combined in product(*along)])
        by_view = [tuple(v[n] for v, n in zip(views, numbers, strict=True)) for numbers in chosen]
        return TransferSide(self.layout.order, by_view, pieces)

    def _piece(
        self, overlaps: Sequence[Overlap], rank_of: Callable[[Sequence[int]], int]
    ) -> MessageBlock:
        order = self.layout.order
        key = tuple(part for dim in order for part in overlaps[dim].here)
        start = tuple(part.start for dim in order for part in overlaps[dim].there)
        return MessageBlock(rank_of([overlap.peer for overlap in overlaps]), key, start)
