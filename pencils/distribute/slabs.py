"""How blocks are cut into slabs on their way between the array of one rank and the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeVar

from pencils.array.allocation import Array
from pencils.comm import stream
from pencils.comm.stream import WINDOW, Room
from pencils.layout import Box, Layout

T = TypeVar("T")

# Root's array is sent from, or received in, without packing if blocks are runs of as many bytes.
LONG_RUN = 2**18
# Shared memory is used for as many bytes in all.
MUCH = 2**20


@dataclass(frozen=True, slots=True)
class Slabs:
    """Slabs of the blocks of all ranks, as boxes of the global array; equal on all ranks.

    Parameters
    ----------
    lead : tuple of int
        Shape of the component axes, which come first.
    layout : Layout
        The layout of the other axes.
    itemsize : int
        Bytes of an element.
    contiguous : bool
        Whether the array of root is C-contiguous.
    """

    lead: tuple[int, ...]
    layout: Layout
    itemsize: int
    contiguous: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the global array."""
        return self.lead + self.layout.shape

    @property
    def prefix(self) -> int:
        """Number of axes before the last one that is decomposed.

        The parts of the array of root that belong to one rank, and have one index along each of
        them, are contiguous.
        """
        splits = self.layout.splits
        cut = [dim for dim, split in enumerate(splits) if split.parts > 1 and not split.replicated]
        return len(self.lead) + cut[-1] if cut else 0

    @property
    def in_runs(self) -> bool:
        """Whether slabs are contiguous in the array of root, and long."""
        parts = (1,) * len(self.lead) + self.layout.process_shape
        run = self.itemsize * prod(self.shape[self.prefix :]) // parts[self.prefix]
        return self.contiguous and (run >= LONG_RUN or prod(self.shape[: self.prefix]) == 1)

    @property
    def through_slots(self) -> bool:
        """Whether slabs go through slots in shared memory, where there is some."""
        much = self.itemsize * prod(self.shape) >= MUCH
        return much and not self.in_runs and self.itemsize <= stream.SLOT_BYTES

    @property
    def most(self) -> int:
        """Number of elements of a slab."""
        limit = stream.SLAB_BYTES if self.in_runs else min(stream.SLAB_BYTES, stream.SLOT_BYTES)
        return max(1, limit // self.itemsize)

    @property
    def most_at_once(self) -> int:
        """Number of elements of a piece."""
        return max(1, stream.SLAB_BYTES // self.itemsize)

    def box(self, rank: int) -> Box:
        """Block of a rank."""
        box = self.layout.box(rank)
        return Box((0,) * len(self.lead) + box.start, self.lead + box.stop)

    def of(self, rank: int) -> Iterator[Box]:
        """Yield the slabs of a rank."""
        for piece in self.pieces(rank):
            yield from self.within(piece)

    def labelled(self, rank: int) -> Iterator[tuple[int, Box]]:
        """Yield the slabs of a rank, each with the rank."""
        for slab in self.of(rank):
            yield rank, slab

    def pieces(self, rank: int) -> Iterator[Box]:
        """Yield boxes for which slabs are cut separately: what root reads at once."""
        return self.box(rank).pieces(self.most_at_once)

    def within(self, piece: Box) -> Iterator[Box]:
        """Cut a piece into slabs."""
        if not self.in_runs:
            yield from piece.pieces(self.most, self._axes())
            return
        after = piece.start[self.prefix :], piece.stop[self.prefix :]
        for index in product(*map(range, piece.start[: self.prefix], piece.stop[: self.prefix])):
            run = Box((*index, *after[0]), (*(i + 1 for i in index), *after[1]))
            yield from run.pieces(self.most)

    def room(
        self,
        array: Array | None,
        boxes: Iterable[Box],
        origin: Sequence[int] | None = None,
    ) -> Room:
        """Allocate memory to pack those slabs of boxes that are not contiguous in `array`.

        `origin` is the global index of its first element. Only the first slab of each box is
        checked, because there may be many: it is the largest, and contiguous only if all are.
        Without an array there is memory for all of them.
        """
        nbytes = count = 0
        for box in boxes:
            first = next(self.within(box), None)
            if first is None:
                continue
            if array is None or not array[first.slices(origin)].flags.c_contiguous:
                nbytes = max(nbytes, self.itemsize * first.volume)
                count += 1 if first.volume == box.volume else WINDOW + 1
        return Room(nbytes, count)

    def _axes(self) -> list[int]:
        """Axes in the order in which they are cut: rows in memory of either side stay long."""
        ndim, lead = len(self.shape), len(self.lead)
        last = {ndim - 1, lead + self.layout.order[-1]}
        return sorted(range(ndim), key=lambda axis: axis in last)


def in_turn(sequences: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the first items of all sequences, then the second ones, and so on."""
    queue = deque(map(iter, sequences))
    while queue:
        items = queue.popleft()
        for item in items:
            yield item
            queue.append(items)
            break


def after(root: int, ranks: Sequence[int]) -> list[int]:
    """Sort ranks so that root, if it is among them, is the last one."""
    return sorted(ranks, key=lambda rank: (rank <= root, rank))
