"""Which process owns what along one dimension: the maps of all its processes together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pencils.dap.errors import UnsupportedError
from pencils.dap.maps import (
    BlockMap,
    CyclicMap,
    DimMap,
    Indices,
    Kind,
    UnstructuredMap,
    like,
    read_indices,
    refuse,
)


@dataclass(frozen=True)
class GlobalDimMap(ABC):
    """All processes along one dimension.

    `make_global` builds the `GlobalBlockMap`, `GlobalCyclicMap` or `GlobalUnstructuredMap`.

    Parameters
    ----------
    parts : tuple of DimMap
        The map of every grid rank, in order; they fit together.
    """

    kind: ClassVar[Kind]
    parts: tuple[DimMap, ...]

    @property
    def size(self) -> int:
        """Global number of points."""
        return self.parts[0].size

    @property
    def nprocs(self) -> int:
        """Number of processes along the dimension."""
        return len(self.parts)

    @property
    def periodic(self) -> bool:
        """Whether the dimension wraps around."""
        return self.parts[0].periodic

    @cached_property
    def counts(self) -> Indices:
        """Number of points that each grid rank owns."""
        return np.array([part.count for part in self.parts], np.int64)

    @abstractmethod
    def _find(self, indices: Indices) -> tuple[Indices, Indices]:
        """Grid ranks and local indices of global ones that exist."""

    def _missing(self, indices: Indices) -> NDArray[np.bool_]:
        """Tell which indices nobody owns."""
        return np.asarray((indices < 0) | (indices >= self.size))

    @overload
    def owner(self, indices: int) -> tuple[int, int]: ...
    @overload
    def owner(self, indices: ArrayLike) -> tuple[Indices, Indices]: ...
    def owner(self, indices: ArrayLike) -> tuple[Any, Any]:
        """Find who owns global indices, and where.

        Parameters
        ----------
        indices : int or array of int
            Global indices.

        Returns
        -------
        grid_rank, local_index : int or array of int
            As many as were given. Of several owners, the one with the lowest grid rank.

        Raises
        ------
        IndexError
            If an index does not exist.
        """
        given = read_indices(indices)
        refuse("global", given, self._missing(given), f"none of {self.nprocs} processes owns it")
        ranks, local = self._find(given)
        return like(given, ranks), like(given, local)

    def owners(self, index: int) -> list[tuple[int, int]]:
        """List all ``(grid rank, local index)`` that own one global index; empty if nobody does.

        Only unstructured dimensions can have several owners.
        """
        missing = self._missing(read_indices(index)).item()
        return [] if missing else [self.owner(index)]

    def last_owner(self, indices: Indices) -> Indices:
        """Highest grid rank that owns each of some global indices that exist."""
        return self._find(indices)[0]

    def first_shared(self) -> int | None:
        """Smallest global index that several grid ranks own, if there is one."""
        return None


class GlobalBlockMap(GlobalDimMap):
    """Consecutive blocks.

    Examples
    --------
    >>> cut = make_global(
    ...     [BlockMap(size=5, nprocs=2, rank=r, start=3 * r, stop=3 + 2 * r) for r in range(2)]
    ... )
    >>> cut.owner(4), cut.bounds
    ((1, 1), array([0, 3, 5]))
    """

    kind: ClassVar[Kind] = "block"

    @cached_property
    def bounds(self) -> Indices:
        """Grid rank r owns ``bounds[r] .. bounds[r + 1] - 1``."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def _origins(self) -> Indices:
        """Global index of the first point of each buffer, were it not wrapped around."""
        return self.bounds[:-1] - np.array([part.ghosts[0] for part in self.parts], np.int64)

    def _find(self, indices: Indices) -> tuple[Indices, Indices]:
        ranks = np.searchsorted(self.bounds, indices, side="right") - 1
        return ranks, indices - self._origins[ranks]


class GlobalCyclicMap(GlobalDimMap):
    """Blocks of equal size, dealt in turn.

    Examples
    --------
    >>> dealt = make_global([CyclicMap(size=9, nprocs=3, rank=r, block_size=2) for r in range(3)])
    >>> dealt.counts, dealt.owner([7, 8])
    (array([4, 3, 2]), (array([0, 1]), array([3, 2])))
    """

    kind: ClassVar[Kind] = "cyclic"

    @property
    def block_size(self) -> int:
        """Number of points that are dealt together."""
        return cast("CyclicMap", self.parts[0]).block_size

    def _find(self, indices: Indices) -> tuple[Indices, Indices]:
        block, within = np.divmod(indices, self.block_size)
        turn, ranks = np.divmod(block, self.nprocs)
        return ranks, turn * self.block_size + within


class GlobalUnstructuredMap(GlobalDimMap):
    """Lists of indices, which may share some.

    Examples
    --------
    >>> lists = [np.array([4, -7]), np.array([4, 2, 0])]
    >>> maps = [UnstructuredMap(size=4, nprocs=2, rank=r, indices=i) for r, i in enumerate(lists)]
    >>> points = make_global(maps)
    >>> points.owner(2), points.owners(4), points.distinct
    ((1, 1), [(0, 0), (1, 0)], 4)
    """

    kind: ClassVar[Kind] = "unstructured"

    @cached_property
    def _table(self) -> tuple[Indices, Indices, Indices]:
        """Every list joined and sorted: global indices, grid ranks, local indices."""
        joined = np.concatenate([part.owned for part in self.parts])
        order = np.argsort(joined, kind="stable")
        starts = np.cumsum(self.counts) - self.counts
        ranks = np.repeat(np.arange(self.nprocs), self.counts)
        local = np.arange(len(joined)) - np.repeat(starts, self.counts)
        return joined[order], ranks[order], local[order]

    @property
    def distinct(self) -> int:
        """Number of different global indices."""
        known = self._table[0]
        return int(np.count_nonzero(known[1:] != known[:-1])) + min(1, len(known))

    def last_owner(self, indices: Indices) -> Indices:
        """Highest grid rank that owns each of some global indices that exist."""
        known, ranks, _ = self._table
        return ranks[np.searchsorted(known, indices, side="right") - 1]

    def first_shared(self) -> int | None:
        """Smallest global index that several grid ranks own, if there is one."""
        known = self._table[0]
        shared = known[1:][known[1:] == known[:-1]]
        return int(shared[0]) if len(shared) else None

    def _missing(self, indices: Indices) -> NDArray[np.bool_]:
        known = self._table[0]
        ends = (np.searchsorted(known, indices, side=side) for side in ("left", "right"))
        return np.equal(*ends)

    def _find(self, indices: Indices) -> tuple[Indices, Indices]:
        known, ranks, local = self._table
        first = np.searchsorted(known, indices)
        return ranks[first], local[first]

    def owners(self, index: int) -> list[tuple[int, int]]:
        """List all ``(grid rank, local index)`` that own one global index; empty if nobody does."""
        known, ranks, local = self._table
        first, last = (np.searchsorted(known, index, side=side) for side in ("left", "right"))
        return list(zip(ranks[first:last].tolist(), local[first:last].tolist(), strict=True))


_GLOBAL: dict[type[DimMap], type[GlobalDimMap]] = {
    BlockMap: GlobalBlockMap,
    CyclicMap: GlobalCyclicMap,
    UnstructuredMap: GlobalUnstructuredMap,
}


def make_global(parts: Sequence[DimMap]) -> GlobalDimMap:
    """Join the maps of all processes along one dimension, in the order of their grid ranks."""
    return _GLOBAL[type(parts[0])](tuple(parts))


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
