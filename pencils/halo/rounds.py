"""What a halo exchange does, step by step: local copies, then rounds between ranks; or backwards.

Dimensions that are not decomposed are wrapped around first, so that what travels afterwards takes
their ghosts along, in long runs of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pencils.comm.buffers import Buffers
from pencils.comm.exchange import Bound, Exchange, Handle, complete_all
from pencils.comm.methods import Cargo, Piece
from pencils.comm.methods import method as limits
from pencils.comm.pack import Additions, Copies
from pencils.comm.topology import Topology
from pencils.layout import Box, Layout, ghosts
from pencils.layout.ghosts import Ghosts, Round
from pencils.storage import Array, Widths, memory_axes

T = TypeVar("T")
Key = tuple[slice, ...]

# Bytes of a padded block that are wrapped around at once. The lines touched are much fewer.
SLAB = 2**20

ROUTES = {"direct": ghosts.direct, "sweeps": ghosts.sweeps}


class Kind(NamedTuple):
    """What fields have in common that one plan exchanges.

    Parameters
    ----------
    layout : Layout
        Of the pencil.
    singletons : frozenset of int
        Dimensions along which the fields have extent 1.
    halo : tuple of (int, int)
        Widths along each dimension.
    components : tuple of int
        Shape of the component axes.
    dtype : numpy.dtype
        Element type.
    """

    layout: Layout
    singletons: frozenset[int]
    halo: Widths
    components: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def arranged(self, padded: Array) -> Array:
        """View a padded block with its axes in memory order."""
        return padded.transpose(memory_axes(self.layout.order, len(self.components)))


class Itinerary(NamedTuple):
    """Rounds that stay on a rank, whatever its number, and those that follow between ranks."""

    local: list[Round]
    far: list[Round]


def plan_rounds(layout: Layout, route: str, *, corners: bool) -> Itinerary:
    """List the rounds for fields of a pencil; there is at least one between ranks."""
    slow_last = reversed(layout.order)  # so that others can be wrapped slab by slab
    local = [dim for dim in slow_last if layout.process_shape[dim] == 1]
    far = [dim for dim in range(layout.ndim) if dim not in local]
    if not corners:
        return Itinerary(ghosts.star(local), ghosts.star(far))
    return Itinerary(ghosts.sweeps(local), ROUTES[route](far, local) or [()])


class Rounds:
    """The steps for fields of some kinds. Making them is *Collective*.

    Parameters
    ----------
    topology : Topology
        The ranks.
    kinds : sequence of Kind
        Of each field.
    itinerary : Itinerary
        What comes after what.
    method : str
        How data travel between ranks.
    buffers : Buffers
        Where to take memory from.
    private : bool
        Whether some rank has some field in memory that other ranks cannot read.
    backwards : bool
        Whether ghosts are added to the points they are copies of, last round first.
    """

    def __init__(
        self,
        topology: Topology,
        kinds: Sequence[Kind],
        itinerary: Itinerary,
        method: str,
        buffers: Buffers,
        *,
        private: bool,
        backwards: bool,
    ) -> None:
        self._kinds = kinds
        self._backwards = backwards
        blocks = [_Block(kind, topology.rank, private=private) for kind in kinds]
        self._local = [[pair for r in itinerary.local for pair in b.pairs(r)] for b in blocks]
        self._ghosts = [
            [key for r in (*itinerary.local, *itinerary.far) for key in b.ghost_keys(r)]
            for b in blocks
        ]
        self.exchanges = [
            Exchange(
                topology,
                [block.cargo(faces, backwards=backwards) for block in blocks],
                axes=kinds[0].layout.ndim,
                method=method,
                buffers=buffers,
                arrive=Additions if backwards else Copies,
            )
            for faces in (reversed(itinerary.far) if backwards else itinerary.far)
        ]

    def bind(self, blocks: Sequence[Array]) -> BoundRounds:
        """Prepare the steps for padded blocks, in logical order; local."""
        arrays = [kind.arranged(block) for kind, block in zip(self._kinds, blocks, strict=True)]
        local = zip(self._kinds, arrays, self._local, strict=True)
        pairs = [
            (_part(array, into), _part(array, out))
            for kind, array, keys in local
            for into, out in by_slabs(keys, slab_rows(array, len(kind.components)))
        ]
        far = [exchange.bind(arrays, arrays, apart=True) for exchange in self.exchanges]
        if not self._backwards:
            return BoundRounds(far, before=Copies(pairs))
        filled = zip(arrays, self._ghosts, strict=True)
        cleared = [_part(a, key) for a, keys in filled for key in keys]
        add = Additions([(out, into) for into, out in reversed(pairs)])
        return BoundRounds(far, after=lambda: _settle(add, cleared))

    @property
    def method(self) -> str:
        """How data travel between ranks."""
        return self.exchanges[0].method

    def free(self) -> None:
        """Release what the exchanges hold. *Collective* if anything is under way."""
        for exchange in self.exchanges:
            exchange.free()


class BoundRounds:
    """The steps and the fields they work on."""

    def __init__(
        self,
        far: Sequence[Bound],
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self._before = before
        self._after = after
        self._first, *self._others = far

    def run(self) -> None:
        """Do all steps. *Collective*."""
        complete_all()
        if self._before is not None:
            self._before()
        self._first.move()
        self._finish()

    def start(self, result: T) -> Handle[T]:
        """Start; the fields may be read, not written, before ``wait`` is called. *Collective*."""
        if self._before is not None:
            self._before()
        return self._first.start(result, self._finish)

    def _finish(self) -> None:
        for bound in self._others:
            bound.move()
        if self._after is not None:
            self._after()


class _Block:
    """The padded block of a rank, axes in memory order, and what of it is exchanged."""

    def __init__(self, kind: Kind, rank: int, *, private: bool) -> None:
        self._private = private
        self._layout = kind.layout.with_singletons(kind.singletons)
        self._kind = kind
        self._rank = rank

    def pairs(self, faces: Round) -> list[tuple[Key, Key]]:
        """Where ghosts lie that are copies of own points, and where these points lie."""
        return [(self._here(g.box), self._here(g.box.shift(g.wrap))) for g in self._recvs(faces)]

    def ghost_keys(self, faces: Round) -> list[Key]:
        """Where the ghosts of a round lie."""
        return [self._here(g.box) for g in self._recvs(faces)]

    def cargo(self, faces: Round, *, backwards: bool) -> Cargo:
        """List what a round moves of this block."""
        sends, recvs = self._exchange(faces)
        owned = [self._piece(g.dest, g.box.shift(g.wrap), g.box) for g in sends]
        filled = [self._piece(g.source, g.box, g.box.shift(g.wrap)) for g in recvs]
        away, home = (filled, owned) if backwards else (owned, filled)
        return Cargo(away, home, self._kind.components, self._kind.dtype)

    def _exchange(self, faces: Round) -> tuple[list[Ghosts], list[Ghosts]]:
        return ghosts.exchange(self._layout, self._kind.halo, self._rank, faces)

    def _recvs(self, faces: Round) -> list[Ghosts]:
        return self._exchange(faces)[1]

    def _piece(self, peer: int, here: Box, there: Box) -> Piece:
        """Points that this rank and a peer know by different indices."""
        straight = self._private and all(
            self._is_straight(here.shape, rank) for rank in (self._rank, peer)
        )
        return Piece(peer, self._here(here), self._start(there, peer), straight=straight)

    def _is_straight(self, shape: Sequence[int], rank: int) -> bool:
        """Whether part of the block of a rank is one large run of memory."""
        kind, layout = self._kind, self._layout
        if kind.dtype.itemsize * prod(shape) < limits.ALONE or prod(kind.components) != 1:
            return False
        whole = layout.box(rank).grow(kind.halo).shape
        return is_run([shape[dim] for dim in layout.order], [whole[dim] for dim in layout.order])

    def _here(self, box: Box) -> Key:
        """Index the padded block of this rank for a box of global indices."""
        slices = self._within(box, self._rank)
        return tuple(slices[dim] for dim in self._layout.order)

    def _start(self, box: Box, rank: int) -> tuple[int, ...]:
        """Where a box begins in the padded block of another rank."""
        slices = self._within(box, rank)
        return tuple(slices[dim].start for dim in self._layout.order)

    def _within(self, box: Box, rank: int) -> tuple[slice, ...]:
        return box.slices(self._layout.box(rank).grow(self._kind.halo).start)


def is_run(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether part of a block is contiguous: whole along all axes faster than its first one.

    Examples
    --------
    >>> is_run((1, 2, 8), (4, 4, 8)), is_run((2, 2, 8), (4, 4, 8))
    (True, False)
    """
    full = True
    for points, every in zip(reversed(shape), reversed(whole), strict=True):
        if not full and points != 1:
            return False
        full = full and points == every
    return True


def slab_rows(array: Array, axis: int) -> int:
    """Points along the slowest dimension, axis number `axis`, that make a slab."""
    rows: int = SLAB * array.shape[axis] // max(1, array.nbytes)
    return max(1, rows)


def by_slabs(pairs: Sequence[tuple[Key, Key]], rows: int) -> list[tuple[Key, Key]]:
    """Cut copies along the slowest dimension: both ends of a line are copied while it is cached.

    Parameters
    ----------
    pairs : sequence of (key, key)
        Targets and sources. Those at the ends of the slowest dimension stay whole and come last.
    rows : int
        Points along the slowest dimension that make a slab.
    """
    along = [pair for pair in pairs if pair[0][0] == pair[1][0]]
    across = [pair for pair in pairs if pair[0][0] != pair[1][0]]
    if not along:
        return across
    whole = along[0][0][0]
    slabs = [slice(i, min(i + rows, whole.stop)) for i in range(whole.start, whole.stop, rows)]
    return [((slab, *into[1:]), (slab, *out[1:])) for slab in slabs for into, out in along] + list(
        across
    )


def _part(array: Array, key: Key) -> Array:
    """Index the last axes."""
    every: Any = (..., *key)
    part: Array = array[every]
    return part


def _settle(add: Additions, cleared: Sequence[Array]) -> None:
    """Add ghosts whose points are here, and leave none behind."""
    add()
    for ghost in cleared:
        ghost[...] = 0
