"""All dimensions between a pencil and an array that is dealt: who sends which box to whom.

Pure arithmetic, which answers for any rank of either side: a rank of the pencil has a *block*, one
of the other array a *hand*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.dap.global_maps import GlobalBlockMap, GlobalCyclicMap, GlobalDimMap
from pencils.dap.lanes import BlockLane, CyclicLane, Fold, Lane, Meeting, Slices
from pencils.dap.lists import Hand, ListLane
from pencils.dap.maps import Indices
from pencils.layout import Layout, ProcessGrid, Split


class Share(NamedTuple):
    """Points that this rank and a peer share: where they are here, and where they begin there."""

    peer: int
    key: Slices
    start: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """What one rank of either side has, and what of it ranks of the other side have, too.

    All sequences but `shares` have an entry for each dimension.

    Parameters
    ----------
    order : tuple of int
        Memory order of the pencil, in which views have their axes.
    folds : sequence of tuple of Fold
        The ways to see the axis.
    places : sequence of (array of int or None)
        Where in the array of this rank what travels belongs; None if it travels as it lies.
    shares : sequence of sequence of Share
        What is shared with any rank of the other side, for each view.
    """

    order: tuple[int, ...]
    folds: Sequence[tuple[Fold, ...]]
    places: Sequence[Indices | None]
    shares: Sequence[Sequence[Share]]

    def views(self, array: Array) -> list[Array]:
        """View what travels in all ways, components first."""
        lead = array.ndim - len(self.order)
        arranged = array.transpose(memory_axes(self.order, lead))
        views = []
        for chosen in product(*self.folds):
            along = [chosen[dim] for dim in self.order]
            key: tuple[Any, ...] = (..., *(fold.part for fold in along))
            # To split axes, NumPy never copies.
            shape = arranged.shape[:lead] + tuple(n for fold in along for n in fold.shape)
            views.append(arranged[key].reshape(shape))
        return views


@dataclass(frozen=True)
class Deal:
    """A pencil and an array whose dimensions are dealt in any way.

    What two ranks share consists of boxes of several views of the same memory, one view for each
    combination of folds of the dimensions.

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
    >>> (shares,) = deal.block(1).shares
    >>> shares[0]
    Share(peer=0, key=(slice(0, 3, None), slice(0, 3, None)), start=(0, 3))
    """

    layout: Layout
    lanes: Sequence[Lane]

    @property
    def hands(self) -> ProcessGrid:
        """Process grid of the hands."""
        return ProcessGrid(tuple(lane.hands for lane in self.lanes))

    @property
    def axes(self) -> int:
        """Number of axes of the views."""
        return sum(lane.axes for lane in self.lanes)

    def block(self, rank: int) -> Part:
        """Find what a rank of the pencil has."""
        along = list(zip(self.lanes, self.layout.parts(rank), strict=True))
        return Part(
            self.layout.order,
            [lane.block_folds(block) for lane, block in along],
            [lane.block_places(block) for lane, block in along],
            self._shares([lane.of_block(block) for lane, block in along], self.hands.rank),
        )

    def hand(self, rank: int) -> Part:
        """Find what a rank of the other array has."""
        along = list(zip(self.lanes, self.hands.coords(rank), strict=True))
        return Part(
            self.layout.order,
            [lane.hand_folds(hand) for lane, hand in along],
            [lane.hand_places(hand) for lane, hand in along],
            self._shares([lane.of_hand(hand) for lane, hand in along], self.layout.rank),
        )

    def _shares(
        self, met: Sequence[Iterable[Meeting]], rank_of: Callable[[Sequence[int]], int]
    ) -> list[list[Share]]:
        """Combine what meets along every dimension, for every view."""
        by_fold = [
            [[m for m in found if m.fold == fold] for fold in range(lane.folds)]
            for lane, found in zip(self.lanes, map(list, met), strict=True)
        ]
        return [[self._share(every, rank_of) for every in product(*v)] for v in product(*by_fold)]

    def _share(self, every: Sequence[Meeting], rank_of: Callable[[Sequence[int]], int]) -> Share:
        order = self.layout.order
        key = tuple(part for dim in order for part in every[dim].here)
        start = tuple(part.start for dim in order for part in every[dim].there)
        return Share(rank_of([m.peer for m in every]), key, start)


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
