"""What of a padded block is exchanged: as slices of arrays with their axes in memory order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from pencils.array.allocation import Array, Widths, memory_axes
from pencils.comm import limits
from pencils.comm.methods import Cargo, Piece
from pencils.layout import Box, Layout, halo_room
from pencils.layout import halo as layout_halo
from pencils.layout.halo import HaloMessage, Round

Key = tuple[slice, ...]

# Bytes of a padded block that are wrapped around at once. The lines touched are much fewer.
SLAB = 2**20


class HaloKind(NamedTuple):
    """What fields have in common that one plan exchanges.

    Parameters
    ----------
    layout : Layout
        Of the pencil.
    singletons : frozenset of int
        Dimensions along which the fields have extent 1.
    halo : tuple of (int, int)
        Widths along each dimension.
    trimmed : frozenset of int
        Dimensions along which padded blocks end where the domain ends.
    components : tuple of int
        Shape of the component axes.
    dtype : numpy.dtype
        Element type.
    """

    layout: Layout
    singletons: frozenset[int]
    halo: Widths
    trimmed: frozenset[int]
    components: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def arranged(self, padded: Array) -> Array:
        """View a padded block with its axes in memory order."""
        return padded.transpose(memory_axes(self.layout.order, len(self.components)))


class Block:
    """The padded block of a rank, axes in memory order, and what of it is exchanged."""

    def __init__(self, kind: HaloKind, rank: int, *, straight: bool) -> None:
        self._large_straight = straight
        # Without room beyond the ends there are no ghosts that wrap around.
        self._layout = kind.layout.with_singletons(kind.singletons).without_wrapping(kind.trimmed)
        self._kind = kind
        self._rank = rank
        self._found: dict[Round, tuple[list[HaloMessage], list[HaloMessage]]] = {}

    def local_rounds(self, *, corners: bool) -> list[Round]:
        """List the rounds that stay on a rank, whatever its number.

        The slowest dimension comes last, so that the others can be wrapped around slab by slab.
        """
        dims = [d for d in reversed(self._layout.order) if self._layout.process_shape[d] == 1]
        return layout_halo.sweeps(dims) if corners else layout_halo.star(dims)

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

    def _exchange(self, faces: Round) -> tuple[list[HaloMessage], list[HaloMessage]]:
        if faces not in self._found:
            found = layout_halo.exchange(self._layout, self._kind.halo, self._rank, faces)
            self._found[faces] = found
        return self._found[faces]

    def _recvs(self, faces: Round) -> list[HaloMessage]:
        return self._exchange(faces)[1]

    def _piece(self, peer: int, here: Box, there: Box) -> Piece:
        """Points that this rank and a peer know by different indices."""
        straight = self._large_straight and all(
            self._is_straight(here.shape, rank) for rank in (self._rank, peer)
        )
        return Piece(peer, self._here(here), self._start(there, peer), straight=straight)

    def _is_straight(self, shape: Sequence[int], rank: int) -> bool:
        """Whether part of the block of a rank is one large run of memory."""
        kind, layout = self._kind, self._layout
        if kind.dtype.itemsize * prod(shape) < limits.ALONE or prod(kind.components) != 1:
            return False
        whole = self._padded(rank).shape
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
        return box.slices(self._padded(rank).start)

    def _padded(self, rank: int) -> Box:
        """Find the padded block of a rank, in global indices."""
        own, kind = self._layout.box(rank), self._kind
        return own.grow(halo_room(own, self._layout.shape, kind.halo, kind.trimmed))


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

    Where no line is wrapped around, nothing is cut.

    Parameters
    ----------
    pairs : sequence of (key, key)
        Targets and sources. Those at the ends of the slowest dimension stay whole and come last.
    rows : int
        Points along the slowest dimension that make a slab.
    """
    along = [pair for pair in pairs if pair[0][0] == pair[1][0]]
    if all(into[-1] == out[-1] for into, out in along):
        return list(pairs)
    across = [pair for pair in pairs if pair[0][0] != pair[1][0]]
    whole = along[0][0][0]
    slabs = [slice(i, min(i + rows, whole.stop)) for i in range(whole.start, whole.stop, rows)]
    return [((slab, *into[1:]), (slab, *out[1:])) for slab in slabs for into, out in along] + list(
        across
    )
