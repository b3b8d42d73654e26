"""Moving blocks of a pencil to hands that are dealt in any way, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange
from pencils.comm.methods import Cargo, Piece
from pencils.comm.topology import Topology
from pencils.dap.dealing import Deal, Part
from pencils.dap.maps import Indices


class Side(NamedTuple):
    """What this process stores of one of the arrays, and how that travels.

    Parameters
    ----------
    array : numpy.ndarray
        Own block, or what is dealt to this process; components first.
    places : sequence of (array of int or None)
        Positions of what travels along each dimension; None for all points as they are.
    """

    array: Array
    places: Sequence[Indices | None]

    def leaving(self) -> Array:
        """Array itself if it travels as it is, else a copy of what does."""
        return self.array if self._straight else self.array[self._key]

    def arriving(self) -> Array:
        """Array itself if it travels as it is, else memory for what does."""
        return self.array if self._straight else np.empty(self._shape, self.array.dtype)

    def store(self, values: Array) -> None:
        """Put what has arrived in its places."""
        if not self._straight:
            self.array[self._key] = values

    @property
    def _straight(self) -> bool:
        return all(along is None for along in self.places)

    @property
    def _shape(self) -> tuple[int, ...]:
        lead = self.array.ndim - len(self.places)
        along = zip(self.array.shape[lead:], self.places, strict=True)
        return self.array.shape[:lead] + tuple(n if at is None else len(at) for n, at in along)

    @property
    def _key(self) -> tuple[Any, ...]:
        # Dimensions before the first list and after the last one are not indexed: that is faster.
        first, *others = [dim for dim, at in enumerate(self.places) if at is not None]
        last = max(others, default=first)
        lead = self.array.ndim - len(self.places)
        along = zip(self.array.shape[lead:], self.places, strict=True)
        lists = [np.arange(n) if at is None else at for n, at in along][first : last + 1]
        return (..., *np.ix_(*lists), *[slice(None)] * (len(self.places) - last - 1))


@dataclass(frozen=True)
class Redistribution:
    """A deal, and the processes that take part.

    Parameters
    ----------
    topology : Topology
        Whose ranks are those of the pencil.
    deal : Deal
        Who shares what with whom.
    members : sequence of int
        Rank on the topology of every hand.
    """

    topology: Topology
    deal: Deal
    members: Sequence[int]

    def to_blocks(self, hand: Array, block: Array, combine: np.ufunc | None) -> None:
        """Fill the blocks of a pencil from hands. *Collective*.

        Parameters
        ----------
        hand, block : numpy.ndarray
            What this process has of both arrays, components first.
        combine : numpy.ufunc or None
            What is made of the values of a point that is in several hands; None if no point is.
        """
        with self._together():
            here, there = Side(block, self._block.places), Side(hand, self._hand.places)
            arriving = here.arriving()
            ends = self._hand_end(there.leaving()), self._block_end(arriving)
        self._move(*ends)
        with self._together():
            if combine is not None:
                arriving, places = combined(arriving, here.places, combine)
                here = Side(block, places)
            here.store(arriving)

    def to_hands(self, block: Array, hand: Array) -> None:
        """Fill hands from the blocks of a pencil. *Collective*.

        Parameters
        ----------
        block, hand : numpy.ndarray
            What this process has of both arrays, components first.
        """
        with self._together():
            here, there = Side(block, self._block.places), Side(hand, self._hand.places)
            arriving = there.arriving()
            ends = self._block_end(here.leaving()), self._hand_end(arriving)
        self._move(*ends)
        with self._together():
            there.store(arriving)

    def _together(self) -> agreed:
        """All ranks leave this together, or none: one may have no memory for its data."""
        return agreed(self.topology.comm, "redistribution of distributed arrays")

    @cached_property
    def _block(self) -> Part:
        return self.deal.block(self.topology.rank)

    @cached_property
    def _hand(self) -> Part:
        return self.deal.hand(self.members.index(self.topology.rank))

    def _block_end(self, array: Array) -> _End:
        return _End.of(self._block, array, self.members)

    def _hand_end(self, array: Array) -> _End:
        return _End.of(self._hand, array, range(self.topology.comm.size))

    def _move(self, source: _End, target: _End) -> None:
        """Move the pieces of every view of one side to those of the other. *Collective*."""
        axes = self.deal.axes
        cargoes = [
            Cargo(away, home, view.shape[: view.ndim - axes], view.dtype)
            for away, home, view in zip(source.pieces, target.pieces, target.views, strict=True)
        ]
        exchange = Exchange(self.topology, cargoes, axes=axes)
        try:
            with self._together():
                bound = exchange.bind(source.views, target.views, disjoint=True)
                bound.reserve()
            bound.run()
        finally:
            exchange.free()


class _End(NamedTuple):
    """Where data leave or arrive: for each view, what is exchanged of it."""

    pieces: list[list[Piece]]
    views: list[Array]

    @classmethod
    def of(cls, part: Part, array: Array, ranks: Sequence[int]) -> _End:
        """Look at what a process has; `ranks` are those of the other side on the topology."""
        pieces = [
            [Piece(ranks[share.peer], share.key, share.start) for share in shares]
            for shares in part.shares
        ]
        return cls(pieces, part.views(array))


def combined(
    values: Array, places: Sequence[Indices | None], ufunc: np.ufunc
) -> tuple[Array, list[Indices | None]]:
    """Make one value of those that have the same place, in the order in which they lie.

    A value that is alone stays as it is.

    Parameters
    ----------
    values : numpy.ndarray
        The values, components first.
    places : sequence of (array of int or None)
        Places along each dimension; None if all differ.
    ufunc : numpy.ufunc
        What is made of two values.

    Returns
    -------
    values, places
        With places that rise.

    Examples
    --------
    >>> combined(np.array([1, 2, 5]), [np.array([3, 0, 3])], np.add)
    (array([2, 6]), [array([0, 3])])
    """
    left = list(places)
    lead = values.ndim - len(left)
    for dim, along in reversed(list(enumerate(left))):  # ranks are in C order: the last dim first
        if along is not None:
            values, left[dim] = _combined_along(lead + dim, values, along, ufunc)
    return values, left


def _combined_along(
    axis: int, values: Array, places: Indices, ufunc: np.ufunc
) -> tuple[Array, Indices]:
    order = np.argsort(places, kind="stable")
    distinct, starts, counts = np.unique(places[order], return_index=True, return_counts=True)
    result = values.take(order[starts], axis)
    for number in range(1, counts.max(initial=1)):
        more = np.flatnonzero(counts > number)
        key: tuple[Any, ...] = (*[slice(None)] * axis, more)
        result[key] = ufunc(result[key], values.take(order[starts[more] + number], axis))
    return result, distinct
