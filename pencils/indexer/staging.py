"""What the ranks of a node request of each other, in memory that all of them read.

Each rank writes the numbers of its points to its own memory: its *request*. For a put the values
follow; for a take, the owners write them there. A request is cut into *chunks* of a few thousand
points in the order of the call, each sorted by owner: they fit into the cache, and an owner that
reads one chunk after the other meets its points in the order of the call.

A small request lies in one of two *slots* in turn: when a rank writes to a slot again, the
agreement on the call between has shown that no rank still reads it. A call in which other ranks
read larger ones ends with a barrier.
"""

from __future__ import annotations

from bisect import bisect_right
from math import prod
from typing import NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.comm.memory import aligned_empty, array_at
from pencils.comm.rows import Ints
from pencils.comm.staging import Segment
from pencils.comm.topology import Attribute, Topology
from pencils.indexer.requests import points_on

CHUNK = 8192  # points
WORD = 8  # bytes
# In words: a cache line, a slot, and the longest request, whose memory is kept.
LINE, SLOT, MOST = 8, 2048, 2**23


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

    def words(self, points: int) -> int:
        """Words of a request for so many points."""
        chunks, rest = divmod(points, CHUNK)
        return chunks * self._words(CHUNK) + (self._words(rest) if rest else 0)

    def chunks(self, words: Ints, points: int) -> list[Chunk]:
        """View the chunks of a request for so many points."""
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


stagings = Attribute(Staging)


def _allocate(topology: Topology, words: int) -> list[Ints]:
    """Allocate words for every rank of a node, and view those of all. *Collective*.

    Returns nothing on every rank if there is no room.
    """
    if topology.comm.size == 1:
        return [aligned_empty(WORD * words).view(np.int64)]
    segment = Segment.allocate(topology, WORD * words)
    if segment is None:
        return []
    found = [segment.of(rank).view(np.int64) for rank in range(topology.comm.size)]
    found[topology.rank] = segment.own.view(np.int64)  # it holds the memory
    return found


def _lines(words: int) -> int:
    """Round up to whole cache lines."""
    return -(-words // LINE) * LINE
