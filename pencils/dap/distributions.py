"""Distributions of arrays: the maps of one process, or of all, along every dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pencils.dap.findings import UnsupportedError
from pencils.dap.maps import (
    BlockMap,
    CyclicMap,
    DimMap,
    Indices,
    MapKind,
    UnstructuredMap,
    as_given,
    as_indices,
    brief,
    check_present,
)
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid


@dataclass(frozen=True)
class GlobalDimMap:
    """All processes along one dimension, whose maps fit together.

    Parameters
    ----------
    parts : sequence of DimMap
        The map of every grid rank, in order; all of one type.

    Examples
    --------
    >>> lists = [np.array([4, -7]), np.array([4, 2, 0])]
    >>> maps = [UnstructuredMap(size=4, nprocs=2, rank=r, indices=i) for r, i in enumerate(lists)]
    >>> points = GlobalDimMap(maps)
    >>> points.kind, points.counts, points.owner(2), points.owners(4), points.distinct
    ('unstructured', array([2, 3]), (1, 1), [(0, 0), (1, 0)], 4)
    """

    parts: Sequence[DimMap]

    def __post_init__(self) -> None:
        """Make `parts` a tuple, so that maps have a hash."""
        object.__setattr__(self, "parts", tuple(self.parts))

    @property
    def kind(self) -> MapKind:
        """Distribution: "block", "cyclic" or "unstructured"."""
        return self.parts[0].kind

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

    @cached_property
    def bounds(self) -> Indices:
        """Of blocks: grid rank r owns ``bounds[r] .. bounds[r + 1] - 1``."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def distinct(self) -> int:
        """Number of different global indices that are owned."""
        return int(self.bounds[-1]) - len(self._shared)

    def first_shared(self) -> int | None:
        """Smallest global index that several grid ranks own, if there is one."""
        return int(self._shared[0]) if len(self._shared) else None

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
        absent = self._count_owners(given) == 0
        check_present("global", given, absent, f"none of {self.nprocs} processes owns it")
        ranks, local = self._find(given, 0)
        return as_given(given, ranks), as_given(given, local)

    def owners(self, index: int) -> list[tuple[int, int]]:
        """List all ``(grid rank, local index)`` of one global index; empty if it has no owner.

        Only unstructured dimensions can have several owners.
        """
        given = as_indices(index)
        found = (self._find(given, number) for number in range(int(self._count_owners(given))))
        return [(int(rank), int(local)) for rank, local in found]

    def owner_mask(self, rank: int, *, last: bool) -> NDArray[np.bool_]:
        """Whether a grid rank is the first, or the last, owner of each of its points."""
        owned = np.asarray(self.parts[rank].owned)
        found: NDArray[np.bool_] = self._find(owned, -1 if last else 0)[0] == rank
        return found

    def with_one_owner(self, *, last: bool) -> GlobalDimMap:
        """Return the map where only the first, or the last, of several owners has each point."""
        if self.first_shared() is None:
            return self
        lists = [cast("UnstructuredMap", part) for part in self.parts]
        masks = (self.owner_mask(rank, last=last) for rank in range(self.nprocs))
        kept = zip(lists, masks, strict=True)
        return GlobalDimMap([replace(part, indices=part.indices[mask]) for part, mask in kept])

    @property
    def _shared(self) -> Indices:
        """Rising indices with several owners, once for each owner but the first."""
        known = self._table[0] if self.kind == "unstructured" else np.empty(0, np.int64)
        shared: Indices = known[1:][known[1:] == known[:-1]]
        return shared

    def _count_owners(self, indices: Indices) -> Indices:
        """Count the owners of each index."""
        if self.kind != "unstructured":
            return np.asarray((indices >= 0) & (indices < self.size), np.int64)
        known = self._table[0]
        return np.searchsorted(known, indices, side="right") - np.searchsorted(known, indices)

    def _find(self, indices: Indices, number: int) -> tuple[Indices, Indices]:
        """Grid ranks and local indices of global ones that exist, at owner `number` of each."""
        match self.parts[0]:
            case BlockMap():
                ranks = np.searchsorted(self.bounds, indices, side="right") - 1
                return ranks, indices - self._origins[ranks]
            case CyclicMap(block_size=block_size):
                block, within = np.divmod(indices, block_size)
                cycle, ranks = np.divmod(block, self.nprocs)
                return ranks, cycle * block_size + within
        known, all_ranks, local = self._table
        place = np.searchsorted(known, indices, side="right" if number < 0 else "left") + number
        return all_ranks[place], local[place]

    @cached_property
    def _origins(self) -> Indices:
        """Global index of the first point of the buffer of each block, before wrapping around."""
        return self.bounds[:-1] - np.array([part.ghosts[0] for part in self.parts], np.int64)

    @cached_property
    def _table(self) -> tuple[Indices, Indices, Indices]:
        """All lists joined and sorted: global indices, grid ranks, local indices."""
        joined = np.concatenate([part.owned for part in self.parts])
        order = np.argsort(joined, kind="stable")
        ranks = np.repeat(np.arange(self.nprocs), self.counts)
        local = np.arange(len(joined)) - np.repeat(self.bounds[:-1], self.counts)
        return joined[order], ranks[order], local[order]


def check_points(part: DimMap, points: int, dim: int) -> None:
    """Check that a field has the points of a list along a dimension."""
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
class LocalDist:
    """The contents of a valid export of one process, but for the elements.

    Parameters
    ----------
    version : str
        Version of the protocol.
    dtype : numpy.dtype
        Type of the elements of the buffer.
    dims : tuple of DimMap
        The map of every dimension.
    dist_types : tuple of str
        Distribution types as in the export: "n" is a block on one process.
    padding_given : tuple of bool
        Whether the key "padding" is present, for each dimension.
    """

    version: str
    dtype: np.dtype[Any]
    dims: tuple[DimMap, ...]
    dist_types: tuple[str, ...]
    padding_given: tuple[bool, ...]

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
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

    def __str__(self) -> str:
        return "\n".join(_describe(self))


def _describe(dist: LocalDist) -> Iterator[str]:
    yield (
        f"Distributed Array Protocol {dist.version}: {dist.dtype}, "
        f"local shape {dist.local_shape} of global shape {dist.global_shape}"
    )
    for number, dim in enumerate(dist.dims):
        periodic = ", periodic" if dim.periodic else ""
        yield f"  dimension {number}: {_kind(dim)}{periodic}"
        sides = zip(("below", "above"), dim.boundary, dim.ghosts, strict=True)
        padding = [f"{side}: {_padding(b, g)}" for side, b, g in sides if b or g]
        if padding:
            yield f"    padding {'; '.join(padding)}"


def _kind(dim: DimMap) -> str:
    if dim.nprocs == 1 and isinstance(dim, BlockMap):
        return f"not distributed, {_count(dim.size, 'point')}"
    kind: str = dim.kind
    if isinstance(dim, CyclicMap) and dim.block_size > 1:
        kind = f"cyclic in blocks of {dim.block_size}"
    part = f"part {dim.rank}" if kind != "block" else str(dim.rank)
    return f"{kind} {part} of {dim.nprocs}, owns {brief(dim.owned)} of {_count(dim.size, 'point')}"


def _padding(boundary: int, ghosts: int) -> str:
    return f"{_count(boundary, 'boundary point')}, owned" if boundary else _count(ghosts, "ghost")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


@dataclass(frozen=True, slots=True)
class GlobalDist:
    """The distribution of a whole array: the maps of all processes.

    Parameters
    ----------
    dims : tuple of GlobalDimMap
        One for each dimension.

    Examples
    --------
    >>> bounds = (0, 2), (2, 4)
    >>> blocks = [
    ...     BlockMap(size=4, nprocs=2, rank=r, start=a, stop=b) for r, (a, b) in enumerate(bounds)
    ... ]
    >>> cyclic = [CyclicMap(size=7, nprocs=3, rank=r) for r in range(3)]
    >>> dist = GlobalDist((GlobalDimMap(blocks), GlobalDimMap(cyclic)))
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
        return tuple(dim.nprocs for dim in self.dims)

    def rank_of(self, coords: Sequence[int]) -> int:
        """Return the rank of the process at these coordinates, in C order."""
        shape = self.grid_shape
        inside = [0 <= c < n for c, n in zip(coords, shape, strict=False)]
        if len(coords) != len(shape) or not all(inside):
            raise ArgumentError(f"coordinates {tuple(coords)} must lie in the process grid {shape}")
        return ProcessGrid(shape).rank(coords)

    def coords_of(self, rank: int) -> tuple[int, ...]:
        """Return the coordinates of a process, in C order."""
        grid = ProcessGrid(self.grid_shape)
        if not 0 <= rank < grid.size:
            raise ArgumentError(f"rank {rank} must be one of the {grid.size} processes, 0 first")
        return grid.coords(rank)

    def owned(self, rank: int) -> tuple[range | Indices, ...]:
        """Return the global indices that a process owns along every dimension."""
        return tuple(
            dim.parts[c].owned for dim, c in zip(self.dims, self.coords_of(rank), strict=True)
        )

    def owner(self, index: Sequence[ArrayLike]) -> tuple[Any, tuple[Any, ...]]:
        """Return the process that owns an element, and its local index there.

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
            raise ArgumentError(
                f"index {index!r} must have one entry for each of {len(self.dims)} dimensions"
            )
        found = [dim.owner(i) for dim, i in zip(self.dims, index, strict=True)]
        strides = ProcessGrid(self.grid_shape).strides
        rank = sum(c * step for (c, _), step in zip(found, strides, strict=True))
        return rank, tuple(local for _, local in found)
