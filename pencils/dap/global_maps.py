"""Maps of all processes: which process owns which indices, along one dimension and of an array."""

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
    MapKind,
    UnstructuredMap,
    as_given,
    as_indices,
    check_present,
)
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid


@dataclass(frozen=True)
class GlobalDimMap(ABC):
    """All processes along one dimension.

    `make_global` builds the `GlobalBlockMap`, `GlobalCyclicMap` or `GlobalUnstructuredMap`.

    Parameters
    ----------
    parts : tuple of DimMap
        The map of every grid rank, in order; they fit together.
    """

    kind: ClassVar[MapKind]
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
        """Whether no process owns an index, for each."""
        return np.asarray((indices < 0) | (indices >= self.size))

    @overload
    def owner(self, indices: int) -> tuple[int, int]: ...
    @overload
    def owner(self, indices: ArrayLike) -> tuple[Indices, Indices]: ...
    def owner(self, indices: ArrayLike) -> tuple[Any, Any]:
        """Find the owners of global indices, and the local indices there.

        Parameters
        ----------
        indices : int or array of int
            Global indices.

        Returns
        -------
        grid_rank, local_index : int or array of int
            Of the same shape. Of several owners, the one with the lowest grid rank.

        Raises
        ------
        IndexError
            If an index does not exist.
        """
        given = as_indices(indices)
        check_present(
            "global", given, self._missing(given), f"none of {self.nprocs} processes owns it"
        )
        ranks, local = self._find(given)
        return as_given(given, ranks), as_given(given, local)

    def owners(self, index: int) -> list[tuple[int, int]]:
        """List all ``(grid rank, local index)`` of one global index; empty if it has no owner.

        Only unstructured dimensions can have several owners.
        """
        missing = self._missing(as_indices(index)).item()
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

    kind: ClassVar[MapKind] = "block"

    @cached_property
    def bounds(self) -> Indices:
        """Grid rank r owns ``bounds[r] .. bounds[r + 1] - 1``."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def _origins(self) -> Indices:
        """Global index of the first point of each buffer, before wrapping around."""
        return self.bounds[:-1] - np.array([part.ghosts[0] for part in self.parts], np.int64)

    def _find(self, indices: Indices) -> tuple[Indices, Indices]:
        ranks = np.searchsorted(self.bounds, indices, side="right") - 1
        return ranks, indices - self._origins[ranks]


class GlobalCyclicMap(GlobalDimMap):
    """Blocks of equal size, assigned to the processes in turn.

    Examples
    --------
    >>> cyclic = make_global([CyclicMap(size=9, nprocs=3, rank=r, block_size=2) for r in range(3)])
    >>> cyclic.counts, cyclic.owner([7, 8])
    (array([4, 3, 2]), (array([0, 1]), array([3, 2])))
    """

    kind: ClassVar[MapKind] = "cyclic"

    @property
    def block_size(self) -> int:
        """Number of points of a block."""
        return cast("CyclicMap", self.parts[0]).block_size

    def _find(self, indices: Indices) -> tuple[Indices, Indices]:
        block, within = np.divmod(indices, self.block_size)
        cycle, ranks = np.divmod(block, self.nprocs)
        return ranks, cycle * self.block_size + within


class GlobalUnstructuredMap(GlobalDimMap):
    """Lists of indices, which may have indices in common.

    Examples
    --------
    >>> lists = [np.array([4, -7]), np.array([4, 2, 0])]
    >>> maps = [UnstructuredMap(size=4, nprocs=2, rank=r, indices=i) for r, i in enumerate(lists)]
    >>> points = make_global(maps)
    >>> points.owner(2), points.owners(4), points.distinct
    ((1, 1), [(0, 0), (1, 0)], 4)
    """

    kind: ClassVar[MapKind] = "unstructured"

    @cached_property
    def _table(self) -> tuple[Indices, Indices, Indices]:
        """All lists joined and sorted: global indices, grid ranks, local indices."""
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
        """List all ``(grid rank, local index)`` of one global index; empty if it has no owner."""
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
            f"got {outside[0]}, expected indices of at least 0 and less than {points}, "
            "the extent of the field"
        )
        raise UnsupportedError(msg, code="U2", dim=dim, key="indices")


@dataclass(frozen=True, slots=True)
class GlobalDist:
    """The distribution of a whole array: the maps of all processes.

    Parameters
    ----------
    dims : tuple of GlobalDimMap
        One for each dimension.

    Examples
    --------
    >>> dist = GlobalDist(
    ...     (
    ...         make_global(
    ...             [
    ...                 BlockMap(size=4, nprocs=2, rank=r, start=2 * r, stop=2 * r + 2)
    ...                 for r in range(2)
    ...             ]
    ...         ),
    ...         make_global([CyclicMap(size=7, nprocs=3, rank=r) for r in range(3)]),
    ...     )
    ... )
    >>> dist.global_shape, dist.grid_shape, dist.owner((3, 4)), dist.owned(4)
    ((4, 7), (2, 3), (4, (1, 1)), (range(2, 4), range(1, 7, 3)))
    """

    dims: tuple[GlobalDimMap, ...]

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return tuple(dim.size for dim in self.dims)

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of processes along every dimension."""
        return self._grid.shape

    @property
    def _grid(self) -> ProcessGrid:
        return ProcessGrid(tuple(dim.nprocs for dim in self.dims))

    def rank_of(self, coords: Sequence[int]) -> int:
        """Rank of the process at these coordinates, in C order."""
        if len(coords) != len(self.dims) or not all(
            0 <= c < n for c, n in zip(coords, self.grid_shape, strict=True)
        ):
            msg = f"coordinates {tuple(coords)} must lie in the process grid {self.grid_shape}"
            raise ArgumentError(msg)
        return self._grid.rank(coords)

    def coords_of(self, rank: int) -> tuple[int, ...]:
        """Coordinates of a process, in C order."""
        if not 0 <= rank < self._grid.size:
            msg = f"rank {rank} must be one of the {self._grid.size} processes, 0 first"
            raise ArgumentError(msg)
        return self._grid.coords(rank)

    def owned(self, rank: int) -> tuple[range | Indices, ...]:
        """Global indices that a process owns along every dimension."""
        return tuple(
            dim.parts[c].owned for dim, c in zip(self.dims, self.coords_of(rank), strict=True)
        )

    def owner(self, index: Sequence[ArrayLike]) -> tuple[Any, tuple[Any, ...]]:
        """Find the process that owns an element, and its local index there.

        Parameters
        ----------
        index : sequence of int or of arrays of int
            Global index along every dimension; arrays for many elements at once.

        Returns
        -------
        rank : int or array of int
            Of several owners, the lowest rank.
        local_index : tuple of int or of arrays of int
            Position in the buffer.

        Raises
        ------
        ArgumentError
            If there is not one entry per dimension.
        IndexError
            If there is no such element.
        """
        if len(index) != len(self.dims):
            msg = f"index {index!r} must have one entry for each of {len(self.dims)} dimensions"
            raise ArgumentError(msg)
        found = [dim.owner(i) for dim, i in zip(self.dims, index, strict=True)]
        rank = sum(c * step for (c, _), step in zip(found, self._grid.strides, strict=True))
        return rank, tuple(local for _, local in found)
