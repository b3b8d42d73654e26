"""How blocks are cut into slabs on their way between the array of one rank and the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, product
from math import prod
from typing import NamedTuple, TypeVar

from pencils.array.allocation import Array
from pencils.comm import stream
from pencils.comm.stream import WINDOW
from pencils.layout import Box, Layout

T = TypeVar("T")

# Root's array is sent from, or received in, without packing if blocks are runs of as many bytes.
LONG_RUN = 2**18
# Shared memory is used for as many bytes in all.
MUCH = 2**20
# Steps that are listed once; others are computed for each call.
FEW = 2**10


class Step(NamedTuple):
    """A slab that this rank sends or receives."""

    peer: int  # the other rank
    key: tuple[slice, ...]  # in the array of this rank: root's is global, others have their block


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

    Attributes
    ----------
    in_runs : bool
        Whether slabs are contiguous in the array of root, and long.
    through_slots : bool
        Whether slabs go through slots in shared memory, where there is some.
    most, most_at_once : int
        Numbers of elements of a slab, and of what root reads at once.
    """

    def __init__(
        self, lead: tuple[int, ...], layout: Layout, itemsize: int, *, contiguous: bool
    ) -> None:
        self.layout, self.itemsize = layout, itemsize
        self._lead = lead
        shape = lead + layout.shape
        self._nbytes = itemsize * prod(shape)
        # What belongs to one rank, and has one index along each of the axes before the last one
        # that is decomposed, is contiguous in the array of root.
        splits = layout.splits
        cut = [dim for dim, split in enumerate(splits) if split.parts > 1 and not split.replicated]
        self._before = before = len(lead) + cut[-1] if cut else 0
        run = itemsize * prod(shape[before:]) // (splits[cut[-1]].parts if cut else 1)
        self.in_runs = contiguous and (run >= LONG_RUN or prod(shape[:before]) == 1)
        fits = itemsize <= stream.SLOT_BYTES
        self.through_slots = fits and self._nbytes >= MUCH and not self.in_runs
        limit = stream.SLAB_BYTES if self.in_runs else min(stream.SLAB_BYTES, stream.SLOT_BYTES)
        self.most = max(1, limit // itemsize)
        self.most_at_once = max(1, stream.SLAB_BYTES // itemsize)
        # Axes are cut in this order, so that rows in memory of either side stay long.
        rows = {len(shape) - 1, len(lead) + layout.order[-1]}
        self._axes = sorted(range(len(shape)), key=lambda axis: axis in rows)

    def box(self, rank: int) -> Box:
        """Block of a rank."""
        box = self.layout.box(rank)
        return Box((0,) * len(self._lead) + box.start, self._lead + box.stop)

    def start(self, rank: int) -> int:
        """Bytes of the array of root before the first element of the block of a rank."""
        place = 0
        for extent, at in zip(self._lead + self.layout.shape, self.box(rank).start, strict=True):
            place = place * extent + at
        return place * self.itemsize

    def pieces(self, rank: int) -> Iterator[Box]:
        """Yield what root reads at once of the block of a rank."""
        return self.box(rank).pieces(self.most_at_once)

    def within(self, piece: Box) -> Iterator[Box]:
        """Cut a piece into slabs."""
        if not self.in_runs:
            yield from piece.pieces(self.most, self._axes)
            return
        start, stop = piece.start[self._before :], piece.stop[self._before :]
        for index in product(*map(range, piece.start[: self._before], piece.stop[: self._before])):
            run = Box((*index, *start), (*(i + 1 for i in index), *stop))
            yield from run.pieces(self.most)

    def steps(self, rank: int, root: int, others: Sequence[int]) -> Iterable[Step]:
        """List what a rank sends or receives; `others` exchange slabs with root."""

        def on_root() -> Iterator[Step]:
            # The first slabs of all ranks, then the second ones: ranks work at the same time.
            first = sorted(others, key=lambda other: (other <= root, other))
            return in_turn(self._steps(other, other, None) for other in first)

        def elsewhere() -> Iterator[Step]:
            return self._steps(rank, root, self.box(rank).start)

        make = on_root if rank == root else elsewhere
        few = self._nbytes // (self.itemsize * self.most) + len(others) <= FEW
        return list(make()) if few else _Anew(make)

    def _steps(self, rank: int, peer: int, origin: tuple[int, ...] | None) -> Iterator[Step]:
        for piece in self.pieces(rank):
            for slab in self.within(piece):
                yield Step(peer, slab.slices(origin))

    def room(
        self, array: Array | None, ranks: Iterable[int], origin: tuple[int, ...] | None = None
    ) -> tuple[int, int]:
        """Arguments of `SlabRoom` to pack those slabs of ranks that are not contiguous in `array`.

        `origin` is the global index of its first element. Only the first slab of each rank is
        checked, because there may be many. Without an array there is room for all of them.
        """
        nbytes = count = 0
        for rank in ranks:
            first = list(islice(self._steps(rank, rank, origin), WINDOW + 1))
            if first and (array is None or not array[first[0].key].flags.c_contiguous):
                nbytes = max(nbytes, self.itemsize * min(self.box(rank).volume, self.most))
                count += len(first)
        return nbytes, count


class _Anew:
    """Steps that are computed whenever they are needed."""

    def __init__(self, make: Callable[[], Iterator[Step]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Step]:
        return self._make()


def in_turn(sequences: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the first items of all sequences, then the second ones, and so on.

    Examples
    --------
    >>> "".join(in_turn(["adf", "be", "c"]))
    'abcdef'
    """
    queue = deque(map(iter, sequences))
    while queue:
        items = queue.popleft()
        for item in items:
            yield item
            queue.append(items)
            break
