"""How a whole array is distributed: what one export says, and what all of them say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pencils.dap.global_maps import GlobalDimMap
from pencils.dap.maps import DimMap, Indices
from pencils.errors import ArgumentError
from pencils.layout.grid import ProcessGrid


@dataclass(frozen=True, slots=True)
class LocalDist:
    """What the export of one process says, read and found right.

    Parameters
    ----------
    version : str
        Version of the protocol that it claims.
    dtype : numpy.dtype
        Type of the elements of the buffer.
    dims : tuple of DimMap
        The map of every dimension.
    dist_types : tuple of str
        The kinds as they were spelled: "n" is a block along one process.
    padding_given : tuple of bool
        Where the key "padding" was present.
    """

    version: str
    dtype: np.dtype[Any]
    dims: tuple[DimMap, ...]
    dist_types: tuple[str, ...]
    padding_given: tuple[bool, ...]

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Shape of the array, were it not distributed."""
        return tuple(dim.size for dim in self.dims)

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of the buffer, ghosts included."""
        return tuple(dim.extent for dim in self.dims)

    @property
    def owned_slices(self) -> tuple[slice, ...]:
        """Where in the buffer the owned points are."""
        return tuple(dim.owned_slice for dim in self.dims)

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of processes along every dimension."""
        return tuple(dim.nprocs for dim in self.dims)

    @property
    def coords(self) -> tuple[int, ...]:
        """Grid rank along every dimension."""
        return tuple(dim.rank for dim in self.dims)


@dataclass(frozen=True, slots=True)
class GlobalDist:
    """What the exports of all processes say together.

    Parameters
    ----------
    dims : tuple of GlobalDimMap
        All processes along every dimension.

    Examples
    --------
    >>> from pencils.dap import BlockMap, CyclicMap, make_global
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
        """Shape of the array, were it not distributed."""
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
        """Find the process that owns an element, and where in its buffer.

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
