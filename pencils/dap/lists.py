"""One dimension between a pencil and lists of points: see `pencils.dap.lanes`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pencils.dap.errors import UnsupportedError
from pencils.dap.lanes import Common, Fold, Lane, whole
from pencils.dap.maps import DimMap, Indices, UnstructuredMap
from pencils.layout import Split


class Hand(NamedTuple):
    """Points of a list: rising global indices, and their places in the buffer."""

    indices: Indices
    places: Indices


@dataclass(frozen=True, eq=False)
class ListLane(Lane):
    """Hands are lists of points in any order, sorted to travel.

    What arrives in a block is laid out hand after hand, each rising; `block_places` tells where it
    belongs.

    Parameters
    ----------
    split : Split
        How the pencil cuts the dimension.
    lists : tuple of Hand
        Points of every hand, all in the dimension.

    Examples
    --------
    >>> lane = ListLane(Split(6, 2), every_point([np.array([5, 1]), np.array([1, 4, 2])]))
    >>> lane.hand_places(0), lane.block_places(0), lane.block_places(1)
    (array([1, 0]), array([1, 1, 2]), array([2, 1]))
    >>> for m in lane.of_block(1):
    ...     print(m.peer, m.here, m.there)
    0 (slice(0, 1, None),) (slice(1, 2, None),)
    1 (slice(1, 2, None),) (slice(2, 3, None),)
    """

    split: Split
    lists: tuple[Hand, ...]

    @property
    def hands(self) -> int:
        """Number of hands."""
        return len(self.lists)

    def block_folds(self, block: int) -> tuple[Fold, ...]:
        """See what arrives in a block as it is."""
        return (whole(self._arriving(block)),)

    def hand_folds(self, hand: int) -> tuple[Fold, ...]:
        """See a sorted list as it is."""
        return (whole((0, len(self.lists[hand].indices))),)

    def reach(self, hand: int) -> tuple[int, int]:
        """Smallest and largest point of a list."""
        indices = self.lists[hand].indices
        return (int(indices[0]), int(indices[-1]) + 1) if len(indices) else (0, 0)

    def common(self, block: int, hand: int) -> Iterator[Common]:
        """Find the part of a sorted list that lies in a block."""
        lo, hi = np.searchsorted(self.lists[hand].indices, self.split.bounds(block)).tolist()
        if lo < hi:
            start = self._place(block, hand) - self._place(block, 0)
            here, there = slice(start, start + hi - lo), slice(lo, hi)
            yield Common(0, (here,), (there,))

    def block_places(self, block: int) -> Indices | None:
        """Where in a block the points of all hands belong, hand after hand."""
        return self._table[1][slice(*self._arriving(block))] - self.split.bounds(block)[0]

    def hand_places(self, hand: int) -> Indices | None:
        """Where in the buffer the sorted points are; None if it is sorted itself."""
        places = self.lists[hand].places
        return None if np.array_equal(places, np.arange(len(places))) else places

    @cached_property
    def _table(self) -> tuple[Indices, Indices]:
        """All points by block, then by hand: the number of that pair, and the global index."""
        joined = np.concatenate([hand.indices for hand in self.lists])
        owners = np.repeat(np.arange(self.hands), [len(hand.indices) for hand in self.lists])
        cuts = [self.split.bounds(part)[1] for part in range(self.split.parts)]
        pairs = np.searchsorted(cuts, joined, side="right") * self.hands + owners
        order = np.argsort(pairs, kind="stable")
        return pairs[order], joined[order]

    def _place(self, block: int, hand: int) -> int:
        return int(np.searchsorted(self._table[0], block * self.hands + hand))

    def _arriving(self, block: int) -> tuple[int, int]:
        return self._place(block, 0), self._place(block + 1, 0)


def every_point(lists: Sequence[Indices]) -> tuple[Hand, ...]:
    """Sort lists of points; what is in several stays in all of them."""
    orders = [np.argsort(indices) for indices in lists]
    return tuple(Hand(indices[o], o) for indices, o in zip(lists, orders, strict=True))


def last_holders(lists: Sequence[Indices]) -> tuple[Hand, ...]:
    """Sort lists of points; what is in several stays in the last of them.

    Examples
    --------
    >>> last_holders([np.array([5, 1]), np.array([2, 1])])[0]
    Hand(indices=array([5]), places=array([0]))
    """
    owners = np.repeat(np.arange(len(lists)), list(map(len, lists)))
    known, last = np.unique(np.concatenate(lists)[::-1], return_index=True)
    holders = owners[::-1][last]
    kept = []
    for number, (indices, places) in enumerate(every_point(lists)):
        own = holders[np.searchsorted(known, indices)] == number
        kept.append(Hand(indices[own], places[own]))
    return tuple(kept)


def check_points(part: DimMap, points: int, dim: int) -> None:
    """Check that a field has the points of a list along a dimension.

    Raises
    ------
    UnsupportedError
        If it does not.
    """
    if not isinstance(part, UnstructuredMap):
        return
    outside = part.indices[(part.indices < 0) | (part.indices >= points)]
    if len(outside):
        msg = (
            f"{outside[0]} is given, required are indices of at least 0 and less than {points}, "
            "the extent of the field"
        )
        raise UnsupportedError(msg, code="U2", dim=dim, key="indices")
