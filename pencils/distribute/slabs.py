"""How blocks are cut into slabs on their way between the array of one rank and the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from math import prod
from typing import TypeVar

from pencils.array.allocation import Array
from pencils.comm import stream
from pencils.comm.failure import wait_all
from pencils.comm.stream import WIDE_WINDOW, WINDOW, SlabRoom, SlabStream, copy_now, start_messages
from pencils.comm.topology import Topology
from pencils.layout import Box, Layout

T = TypeVar("T")
# The other rank, and a slab in the array of this rank: root's is global, others have their block.
Step = tuple[int, tuple[slice, ...]]

# Root's array is sent from, or received in, without packing if blocks are runs of as many bytes.
LONG_RUN = 2**18
# Shared memory is used for as many bytes in all.
MUCH = 2**20
# Steps that are listed once; others are computed for each call.
FEW = 2**10


class RootSlabs:
    """Slabs of the blocks of `ranks`, as boxes of the array of `root`; equal on all ranks.

    `lead` is the shape of the component axes, which come before those of `layout`, and `contiguous`
    whether the array of root is C-contiguous. Slabs are `in_runs` if they are contiguous in it, and
    long; root reads `most_at_once` elements at once.
    """

    def __init__(
        self,
        topology: Topology,
        root: int,
        ranks: Sequence[int],
        *,
        lead: tuple[int, ...],
        layout: Layout,
        itemsize: int,
        contiguous: bool,
    ) -> None:
        self.topology, self.root = topology, root
        self.on_root = topology.rank == root
        self._takes_part = topology.rank in ranks
        self.others = [rank for rank in ranks if rank != root]
        self._lead, self._layout, self._itemsize = lead, layout, itemsize
        self._shape = shape = lead + layout.shape
        self.own = self.box(topology.rank)
        self._here = self.own.slices()  # in the array of root
        # What belongs to one rank, and has one index along each of the axes before the last one
        # that is decomposed, is contiguous in the array of root.
        splits = layout.splits
        cut = [dim for dim, split in enumerate(splits) if split.parts > 1 and not split.replicated]
        self._before = before = len(lead) + cut[-1] if cut else 0
        run = itemsize * prod(shape[before:]) // (splits[cut[-1]].parts if cut else 1)
        self.in_runs = contiguous and (run >= LONG_RUN or prod(shape[:before]) == 1)
        much = itemsize * prod(shape) >= MUCH and itemsize <= stream.SLOT_BYTES
        self._through_slots = much and not self.in_runs
        limit = stream.SLAB_BYTES if self.in_runs else min(stream.SLAB_BYTES, stream.SLOT_BYTES)
        self._most = max(1, limit // itemsize)
        self.most_at_once = max(1, stream.SLAB_BYTES // itemsize)
        # Axes are cut in this order, so that rows in memory of either side stay long.
        rows = {len(shape) - 1, len(lead) + layout.order[-1]}
        self._axes = sorted(range(len(shape)), key=lambda axis: axis in rows)
        few = prod(shape) // self._most + len(self.others) <= FEW
        self._steps = list(self._all_steps()) if few else []
        peers = len(self.others) if self.on_root else int(self._takes_part)
        one_each = len(self._steps) == peers <= WIDE_WINDOW and itemsize <= stream.SLAB_BYTES
        self._one_each = one_each and not self._through_slots  # messages, if no slab needs packing
        # Bytes and number of the slabs that are packed, by the strides of the array.
        self._rooms: dict[tuple[int, ...], tuple[int, int]] = {}

    def box(self, rank: int) -> Box:
        """Block of a rank."""
        box = self._layout.box(rank)
        return Box((0,) * len(self._lead) + box.start, self._lead + box.stop)

    def start(self, rank: int) -> int:
        """Bytes of the array of root before the first element of the block of a rank."""
        place = 0
        for extent, at in zip(self._shape, self.box(rank).start, strict=True):
            place = place * extent + at
        return place * self._itemsize

    def pieces(self, rank: int) -> Iterator[Box]:
        """Yield what root reads at once of the block of a rank."""
        return self.box(rank).pieces(self.most_at_once)

    def within(self, piece: Box) -> Iterator[Box]:
        """Cut a piece into slabs."""
        if not self.in_runs:
            yield from piece.pieces(self._most, self._axes)
            return
        start, stop = piece.start[self._before :], piece.stop[self._before :]
        for index in product(*map(range, piece.start[: self._before], piece.stop[: self._before])):
            run = Box((*index, *start), (*(i + 1 for i in index), *stop))
            yield from run.pieces(self._most)

    def room(
        self, array: Array | None, ranks: Iterable[int], origin: tuple[int, ...] | None = None
    ) -> tuple[int, int]:
        """Arguments of `SlabRoom` to pack those slabs of ranks that are not contiguous in `array`.

        `origin` is the global index of its first element. Only the first slab of each rank is
        checked, because there may be many. Without an array there is room for all of them.
        """
        nbytes = count = 0
        for rank in ranks:
            first = list(islice(self._steps_of(rank, rank, origin), WINDOW + 1))
            if first and (array is None or not array[first[0][1]].flags.c_contiguous):
                nbytes = max(nbytes, self._itemsize * min(self.box(rank).volume, self._most))
                count += len(first)
        return nbytes, count

    def stream(self, room: SlabRoom | None) -> SlabStream:
        """Begin to move slabs. *Collective*."""
        return SlabStream(self.topology, self.root, room, through_slots=self._through_slots)

    def mover(self, block: Array, whole: Array | None, *, to_root: bool) -> Callable[[], None]:
        """Allocate what moving the block of this rank takes; the result is *Collective*.

        `whole` is the array of root, None on the other ranks.
        """
        on_root = self.on_root
        array = block if whole is None else whole
        found = self._rooms.get(array.strides)
        if found is None:
            mine = [self.topology.rank] if self._takes_part else []
            place = (array, self.others) if on_root else (array, mine, self.own.start)
            found = self._rooms[array.strides] = self.room(*place)
        room = SlabRoom(*found) if found[1] else None
        sends, at_once = to_root != on_root, self._one_each and room is None

        def move() -> None:
            if at_once:
                pairs = [(peer, array[key]) for peer, key in self._steps]
                requests = start_messages(self.topology.comm, pairs, sends=sends)
                finish: Callable[[], None] = partial(wait_all, requests)
            else:
                slabs = self.stream(room)
                finish = slabs.finish
                for peer, key in self._steps or self._all_steps():
                    if sends:
                        slabs.send(peer, array[key])
                    else:
                        slabs.recv(peer, array[key], array.nbytes)
            if whole is not None and self._takes_part:
                here = whole[self._here]
                target, source = (here, block) if to_root else (block, here)
                copy_now(target, source, array.nbytes if to_root else block.nbytes)
            finish()

        return move

    def _all_steps(self) -> Iterator[Step]:
        """Yield what this rank sends or receives."""
        rank, root = self.topology.rank, self.root
        if rank == root:
            # The first slabs of all ranks, then the second ones: ranks work at the same time.
            first = sorted(self.others, key=lambda other: (other <= root, other))
            yield from in_turn(self._steps_of(other, other, None) for other in first)
        elif self._takes_part:
            yield from self._steps_of(rank, root, self.own.start)

    def _steps_of(self, rank: int, peer: int, origin: tuple[int, ...] | None) -> Iterator[Step]:
        for piece in self.pieces(rank):
            for slab in self.within(piece):
                yield peer, slab.slices(origin)


def in_turn(sequences: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the first items of all sequences, then the second ones, and so on."""
    queue = deque(map(iter, sequences))
    while queue:
        items = queue.popleft()
        for item in items:
            yield item
            queue.append(items)
            break
