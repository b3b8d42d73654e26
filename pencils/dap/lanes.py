"""One dimension between a pencil and an array that is dealt: who has what of whom.

A pencil cuts a dimension into *blocks*, and the other array deals it to *hands*: one block and one
hand for each process along the dimension. A `Lane` says for any block and any hand which points
they share, as slices of what either stores. Nothing here communicates.

Where hands are dealt in turn, what a block and a hand share is no slice of either. It becomes one
if the axis is folded: seen as two axes, turns and the points of a turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pencils.dap.global_maps import GlobalCyclicMap
from pencils.dap.maps import Indices
from pencils.layout import Split

Slices = tuple[slice, ...]


class Fold(NamedTuple):
    """Part of an axis, and the shape of the axes that it is seen as."""

    part: slice
    shape: tuple[int, ...]


class Common(NamedTuple):
    """Points that a block and a hand share, by number of the fold in which both are sliced."""

    fold: int
    in_block: Slices
    in_hand: Slices


class Meeting(NamedTuple):
    """The same as one of both sees it, and the number of the other."""

    peer: int
    fold: int
    here: Slices
    there: Slices


class Lane(ABC):
    """One dimension that a pencil cuts into blocks and that is dealt to hands.

    Parameters
    ----------
    split : Split
        How the pencil cuts it; not replicated.
    """

    folds: ClassVar[int] = 1  # ways to see the axis, the same for all blocks and hands
    axes: ClassVar[int] = 1  # of each fold
    split: Split

    @property
    @abstractmethod
    def hands(self) -> int:
        """Number of hands."""

    @abstractmethod
    def block_folds(self, block: int) -> tuple[Fold, ...]:
        """See what a block stores in every way."""

    @abstractmethod
    def hand_folds(self, hand: int) -> tuple[Fold, ...]:
        """See what a hand stores in every way."""

    @abstractmethod
    def reach(self, hand: int) -> tuple[int, int]:
        """First point of a hand and the one after its last, as if all between were in it."""

    @abstractmethod
    def common(self, block: int, hand: int) -> Iterator[Common]:
        """Yield what a block and a hand share."""

    def of_block(self, block: int) -> Iterator[Meeting]:
        """Yield what a block shares with any hand."""
        for hand in range(self.hands):
            for fold, in_block, in_hand in self.common(block, hand):
                yield Meeting(hand, fold, in_block, in_hand)

    def of_hand(self, hand: int) -> Iterator[Meeting]:
        """Yield what a hand shares with any block."""
        for block, _, _ in self.split.meeting(*self.reach(hand)):
            for fold, in_block, in_hand in self.common(block, hand):
                yield Meeting(block, fold, in_hand, in_block)

    def block_places(self, block: int) -> Indices | None:  # noqa: ARG002 - most have all in place
        """Where in a block its points belong as they arrive; None if they lie as they belong."""
        return None

    def hand_places(self, hand: int) -> Indices | None:  # noqa: ARG002
        """Where in a buffer the points of a hand are; None if they lie as they travel."""
        return None


@dataclass(frozen=True)
class BlockLane(Lane):
    """Hands are consecutive blocks, too.

    Parameters
    ----------
    split : Split
        How the pencil cuts the dimension.
    bounds : tuple of int
        Hand h holds ``bounds[h] .. bounds[h + 1] - 1``.

    Examples
    --------
    >>> lane = BlockLane(Split(10, 2), (0, 3, 10))
    >>> for m in lane.of_block(0):
    ...     print(m.peer, m.here, m.there)
    0 (slice(0, 3, None),) (slice(0, 3, None),)
    1 (slice(3, 5, None),) (slice(0, 2, None),)
    """

    split: Split
    bounds: tuple[int, ...]

    @property
    def hands(self) -> int:
        """Number of hands."""
        return len(self.bounds) - 1

    def block_folds(self, block: int) -> tuple[Fold, ...]:
        """See a block as it is."""
        return (whole(self.split.bounds(block)),)

    def hand_folds(self, hand: int) -> tuple[Fold, ...]:
        """See a hand as it is."""
        return (whole(self.reach(hand)),)

    def reach(self, hand: int) -> tuple[int, int]:
        """Bounds of a hand."""
        return self.bounds[hand], self.bounds[hand + 1]

    def common(self, block: int, hand: int) -> Iterator[Common]:
        """Intersect a block and a hand."""
        (start, stop), (first, last) = self.split.bounds(block), self.reach(hand)
        lo, hi = max(start, first), min(stop, last)
        if lo < hi:
            here, there = slice(lo - start, hi - start), slice(lo - first, hi - first)
            yield Common(0, (here,), (there,))


@dataclass(frozen=True)
class CyclicLane(Lane):
    """Hands are dealt `block_size` points each, turn by turn.

    Turns that are whole inside a block are folded. What is left of a block, less than a turn at
    either end, holds one run of each hand at most: it is sliced in another fold, which has as many
    axes.

    Parameters
    ----------
    split : Split
        How the pencil cuts the dimension.
    dealt : GlobalCyclicMap
        How it is dealt.

    Examples
    --------
    >>> from pencils.dap import CyclicMap, make_global
    >>> hands = [CyclicMap(size=14, nprocs=2, rank=hand, block_size=3) for hand in range(2)]
    >>> lane = CyclicLane(Split(14, 1), make_global(hands))  # 2 turns of 6, and 2 points more
    >>> lane.block_folds(0)
    (Fold(part=slice(0, 12, None), shape=(2, 6)), Fold(part=slice(0, 14, None), shape=(1, 14)))
    >>> for m in lane.of_hand(0):
    ...     print(m.fold, m.here, m.there)
    0 (slice(0, 2, None), slice(0, 3, None)) (slice(0, 2, None), slice(0, 3, None))
    1 (slice(0, 1, None), slice(6, 8, None)) (slice(0, 1, None), slice(12, 14, None))
    """

    folds: ClassVar[int] = 2
    axes: ClassVar[int] = 2
    split: Split
    dealt: GlobalCyclicMap

    @property
    def hands(self) -> int:
        """Number of hands."""
        return self.dealt.nprocs

    @property
    def block_size(self) -> int:
        """Points dealt together; not more than there are, so that a turn can be counted."""
        return min(self.dealt.block_size, max(1, self.split.points))

    @property
    def turn(self) -> int:
        """Number of points in a whole turn."""
        return self.hands * self.block_size

    def block_folds(self, block: int) -> tuple[Fold, ...]:
        """See the whole turns of a block, and all of it in one row."""
        start, stop = self.split.bounds(block)
        first, last = self._whole_turns(block)
        part = slice(first * self.turn - start, last * self.turn - start)
        return Fold(part, (last - first, self.turn)), row(stop - start)

    def hand_folds(self, hand: int) -> tuple[Fold, ...]:
        """See what a hand was dealt in full, and all of it in one row."""
        size, count = self.block_size, int(self.dealt.counts[hand])
        full = count // size
        return Fold(slice(0, full * size), (full, size)), row(count)

    def reach(self, hand: int) -> tuple[int, int]:
        """First point of a hand, and the end of the dimension."""
        return min(hand * self.block_size, self.split.points), self.split.points

    def common(self, block: int, hand: int) -> Iterator[Common]:
        """Find the share of a hand in the whole turns of a block, then in what is left."""
        size, (start, stop) = self.block_size, self.split.bounds(block)
        first, last = self._whole_turns(block)
        if first < last:
            in_block = slice(0, last - first), slice(hand * size, (hand + 1) * size)
            in_hand = slice(first, last), slice(0, size)
            yield Common(0, in_block, in_hand)
        before, after = (start, min(stop, first * self.turn)), (last * self.turn, stop)
        for number, (lo, hi) in ((first - 1, before), (last, after)):
            dealt = number * self.turn + hand * size
            lo, hi = max(lo, dealt), min(hi, dealt + size)  # noqa: PLW2901
            if lo < hi:
                shift = number * size - dealt
                here, there = slice(lo - start, hi - start), slice(lo + shift, hi + shift)
                yield Common(1, (slice(0, 1), here), (slice(0, 1), there))

    def _whole_turns(self, block: int) -> tuple[int, int]:
        """First turn that is whole inside a block, and the one after the last."""
        start, stop = self.split.bounds(block)
        first = -(-start // self.turn)
        return first, max(first, stop // self.turn)


def whole(bounds: tuple[int, int]) -> Fold:
    """See all points between bounds as they are."""
    start, stop = bounds
    return Fold(slice(0, stop - start), (stop - start,))


def row(points: int) -> Fold:
    """See all points as one row."""
    return Fold(slice(0, points), (1, points))
