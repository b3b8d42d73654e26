"""All dimensions between a pencil and an array that is dealt: who sends which box to whom.

Pure arithmetic, which answers for any rank of either side: a rank of the pencil has a *block*, one
of the other array a *hand*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from pencils.dap.global_maps import GlobalBlockMap, GlobalCyclicMap, GlobalDimMap
from pencils.dap.lanes import BlockLane, CyclicLane, Fold, Lane, Meeting, Slices
from pencils.dap.lists import Hand, ListLane
from pencils.dap.maps import Indices
from pencils.layout import Layout, ProcessGrid, Split
from pencils.storage import Array, memory_axes


class Share(NamedTuple):
    """Points that this rank and a peer share: where they are here, and where they begin there."""

    peer: int
    key: Slices
    start: tuple[int, ...]


@dataclass(frozen=True)
class Deal:
    """A pencil and an array whose dimensions are dealt in any way.

    What two ranks share consists of boxes of several views of the same memory, one view for each
    combination of folds of the dimensions. Views have their axes in the memory order of the pencil.

    Parameters
    ----------
    layout : Layout
        Of the pencil.
    lanes : sequence of Lane
        The dimensions, in logical order. Ranks of the hands lie in C order on their numbers.

    Examples
    --------
    >>> from pencils.dap.lanes import BlockLane
    >>> from pencils.layout import make_layout
    >>> layout = make_layout((4, 6), 2, decomp=1)
    >>> deal = Deal(layout, [BlockLane(s, b) for s, b in zip(layout.splits, [(0, 3, 4), (0, 6)])])
    >>> (shares,) = deal.of_block(1)
    >>> shares[0]
    Share(peer=0, key=(slice(0, 3, None), slice(0, 3, None)), start=(0, 3))
    """

    layout: Layout
    lanes: Sequence[Lane]

    @cached_property
    def hands(self) -> ProcessGrid:
        """Process grid of the hands."""
        return ProcessGrid(tuple(lane.hands for lane in self.lanes))

    @property
    def axes(self) -> int:
        """Number of axes of the views."""
        return sum(lane.axes for lane in self.lanes)

    def of_block(self, rank: int) -> list[list[Share]]:
        """List what the block of a rank of the pencil shares with hands, for every view."""
        parts = self.layout.parts(rank)
        met = [lane.of_block(part) for lane, part in zip(self.lanes, parts, strict=True)]
        return [
            [
                Share(
                    self.hands.rank([m.hand for m in along]),
                    self._key(m.in_block for m in along),
                    self._start(m.in_hand for m in along),
                )
                for along in every
            ]
            for every in self._by_view(met)
        ]

    def of_hand(self, rank: int) -> list[list[Share]]:
        """List what a hand shares with blocks, for every view."""
        coords = self.hands.coords(rank)
        met = [lane.of_hand(coord) for lane, coord in zip(self.lanes, coords, strict=True)]
        return [
            [
                Share(
                    self.layout.rank([m.block for m in along]),
                    self._key(m.in_hand for m in along),
                    self._start(m.in_block for m in along),
                )
                for along in every
            ]
            for every in self._by_view(met)
        ]

    def block_views(self, array: Array, rank: int) -> list[Array]:
        """View in all ways what the block of a rank sends or receives."""
        parts = self.layout.parts(rank)
        return self._views(
            array, [lane.block_folds(p) for lane, p in zip(self.lanes, parts, strict=True)]
        )

    def hand_views(self, array: Array, rank: int) -> list[Array]:
        """View in all ways what a hand sends or receives."""
        coords = self.hands.coords(rank)
        return self._views(
            array, [lane.hand_folds(c) for lane, c in zip(self.lanes, coords, strict=True)]
        )

    def block_places(self, rank: int) -> list[Indices | None]:
        """Where in a block what arrives belongs along each dimension; None if it lies there."""
        parts = self.layout.parts(rank)
        return [lane.block_places(part) for lane, part in zip(self.lanes, parts, strict=True)]

    def hand_places(self, rank: int) -> list[Indices | None]:
        """Where in a buffer what a hand sends is along each dimension; None if it lies so."""
        coords = self.hands.coords(rank)
        return [lane.hand_places(coord) for lane, coord in zip(self.lanes, coords, strict=True)]

    def _folds(self) -> Iterator[tuple[int, ...]]:
        """Yield the combinations of folds, one for each view."""
        return product(*(range(lane.folds) for lane in self.lanes))

    def _by_view(self, met: Iterable[Iterable[Meeting]]) -> Iterator[Iterator[tuple[Meeting, ...]]]:
        """Combine what meets along every dimension, for every view."""
        found = [list(along) for along in met]
        for folds in self._folds():
            yield product(
                *(
                    [meeting for meeting in along if meeting.fold == fold]
                    for along, fold in zip(found, folds, strict=True)
                )
            )

    def _key(self, slices: Iterable[Slices]) -> Slices:
        along = list(slices)
        return tuple(part for dim in self.layout.order for part in along[dim])

    def _start(self, slices: Iterable[Slices]) -> tuple[int, ...]:
        return tuple(part.start for part in self._key(slices))

    def _views(self, array: Array, every: Sequence[tuple[Fold, ...]]) -> list[Array]:
        order = self.layout.order
        lead = array.ndim - len(order)
        arranged = array.transpose(memory_axes(order, lead))
        views = []
        for folds in self._folds():
            along = [every[dim][folds[dim]] for dim in order]
            key: tuple[Any, ...] = (..., *(fold.part for fold in along))
            # To split axes, NumPy never copies.
            shape = arranged.shape[:lead] + tuple(n for fold in along for n in fold.shape)
            views.append(arranged[key].reshape(shape))
        return views


def make_deal(
    layout: Layout,
    dealt: Sequence[GlobalDimMap],
    holders: Callable[[Sequence[Indices]], tuple[Hand, ...]],
) -> Deal:
    """Make the deal between a pencil and all processes of another array.

    Parameters
    ----------
    layout : Layout
        Of the pencil; no dimension is replicated.
    dealt : sequence of GlobalDimMap
        What the processes of the other array own; of lists, every point must exist.
    holders : callable
        `every_point` or `last_holders`.
    """
    lanes = [_make_lane(*both, holders) for both in zip(layout.splits, dealt, strict=True)]
    return Deal(layout, lanes)


def _make_lane(
    split: Split, dealt: GlobalDimMap, holders: Callable[[Sequence[Indices]], tuple[Hand, ...]]
) -> Lane:
    if isinstance(dealt, GlobalBlockMap):
        return BlockLane(split, tuple(dealt.bounds.tolist()))
    if isinstance(dealt, GlobalCyclicMap):
        return CyclicLane(split, dealt)
    return ListLane(split, holders([np.asarray(part.owned) for part in dealt.parts]))
