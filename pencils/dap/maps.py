"""Maps between the global and the local indices of one process along each dimension.

They are the same for all versions of the protocol; `emit` writes them in the words of one. A
*local* index counts from the start of the buffer, ghosts included; a *global* one is an index of
the whole array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pencils.dap.findings import UnsupportedError, VersionError

MapKind = Literal["block", "cyclic", "unstructured"]
Widths = tuple[int, int]
Indices = NDArray[np.int64]


def as_indices(values: object) -> Indices:
    """Convert integers of any shape to an array.

    Raises
    ------
    TypeError
        If they are not integers; booleans and floats are not accepted.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"indices of type {array.dtype} must be integers")
    return array.astype(np.int64, copy=False)


def check_present(name: str, indices: Indices, absent: NDArray[np.bool_], present: str) -> None:
    """Raise IndexError for the first index that is absent."""
    if absent.any():
        raise IndexError(f"{name} index {indices[absent][0]} does not exist here: {present}")


def as_given(given: Indices, result: Indices) -> Any:
    """Return an int if an int was given, else an array."""
    return result.item() if given.ndim == 0 else result


@dataclass(frozen=True, slots=True, kw_only=True)
class DimMap(ABC):
    """One dimension on one process: a `BlockMap`, a `CyclicMap` or an `UnstructuredMap`.

    Parameters
    ----------
    size : int
        Global number of points along the dimension.
    nprocs : int
        Number of processes along the dimension.
    rank : int
        Position of this process among them, the *grid rank*.
    periodic : bool
        Whether the dimension wraps around.
    ghosts : tuple of int
        Copies of points of other processes at both ends of the buffer; blocks only.
    boundary : tuple of int
        Number of owned points at both ends that are boundary points; blocks only.
    """

    kind: ClassVar[MapKind]
    size: int
    nprocs: int = 1
    rank: int = 0
    periodic: bool = False
    ghosts: Widths = (0, 0)
    boundary: Widths = (0, 0)

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of owned points."""

    @property
    @abstractmethod
    def owned(self) -> range | Indices:
        """Global indices of the owned points, in the order of the buffer."""

    @abstractmethod
    def _globals(self, local: Indices) -> Indices:
        """Convert local indices that exist."""

    @abstractmethod
    def _locals(self, indices: Indices, *, ghosts: bool) -> Indices:
        """Convert global indices; -1 for those that this process does not have."""

    @abstractmethod
    def count_below(self, bounds: Indices) -> Indices:
        """Count the owned points with a global index less than each of `bounds`."""

    def rising(self, first: int, last: int) -> Indices:
        """Positions, among the owned points, of number ``first .. last - 1`` by global index."""
        return np.arange(first, last)

    @property
    def extent(self) -> int:
        """Number of points in the buffer, ghosts included."""
        return self.ghosts[0] + self.count + self.ghosts[1]

    @property
    def padding(self) -> Widths:
        """Number of ghosts and boundary points at both ends of the buffer."""
        return self.ghosts[0] + self.boundary[0], self.ghosts[1] + self.boundary[1]

    @property
    def owned_slice(self) -> slice:
        """Slice of the owned points in the buffer."""
        return slice(self.ghosts[0], self.ghosts[0] + self.count)

    def local_to_global(self, local: ArrayLike, *, ghosts: bool = False) -> Any:
        """Return the global index of each local one.

        Parameters
        ----------
        local : int or array of int
            Positions in the buffer.
        ghosts : bool, optional
            Whether positions of ghosts are allowed.

        Returns
        -------
        int or array of int
            Of the same shape.

        Raises
        ------
        IndexError
            If a position is outside of the buffer, or that of a ghost.
        """
        given = as_indices(local)
        here = slice(0, self.extent) if ghosts else self.owned_slice
        absent = (given < here.start) | (given >= here.stop)
        check_present("local", given, absent, f"local indices are those of {here}")
        return as_given(given, self._globals(given))

    def global_to_local(self, indices: ArrayLike, *, ghosts: bool = False) -> Any:
        """Return the local index of each global one; the inverse of `local_to_global`.

        Parameters
        ----------
        indices : int or array of int
            Global indices; negative ones do not count from the end.
        ghosts : bool, optional
            Whether to find indices of ghosts, too.

        Returns
        -------
        int or array of int
            Positions in the buffer, of the same shape. If a point has several, the owned one is
            preferred, then the ghost at the lower end.

        Raises
        ------
        IndexError
            If this process does not have an index.
        """
        given = as_indices(indices)
        local = self._locals(given, ghosts=ghosts)
        check_present("global", given, local < 0, f"grid rank {self.rank} owns {brief(self.owned)}")
        return as_given(given, local)

    def agrees_with(self, other: DimMap) -> bool:
        """Whether both describe the same grid rank: equal but for the boundary points."""
        return self is other or replace(self, boundary=other.boundary) == other


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMap(DimMap):
    """The owned points are those of ``range(start, stop)``.

    Examples
    --------
    >>> block = BlockMap(size=10, nprocs=2, rank=1, start=5, stop=10, ghosts=(1, 0))
    >>> block.owned, block.extent, block.owned_slice
    (range(5, 10), 6, slice(1, 6, None))
    >>> block.global_to_local(5), block.global_to_local([4, 9], ghosts=True)
    (1, array([0, 5]))
    """

    kind: ClassVar[MapKind] = "block"
    start: int
    stop: int

    @property
    def count(self) -> int:
        """Number of owned points."""
        return self.stop - self.start

    @property
    def owned(self) -> range:
        """Global indices of the owned points."""
        return range(self.start, self.stop)

    def count_below(self, bounds: Indices) -> Indices:
        """Count the owned points with a global index less than each of `bounds`."""
        return np.clip(bounds - self.start, 0, self.count)

    def _globals(self, local: Indices) -> Indices:
        indices = local + (self.start - self.ghosts[0])
        return indices % max(self.size, 1) if self.periodic else indices

    def _locals(self, indices: Indices, *, ghosts: bool) -> Indices:
        lo, hi = self.ghosts
        inside = (indices >= 0) & (indices < self.size)
        own = below = above = indices - self.start  # counted from the first owned point
        if self.periodic:  # the images nearest to the owned points
            period = max(self.size, 1)
            below = own % period - period
            above = self.count + (own - self.count) % period
        local = np.full_like(indices, -1)
        if ghosts:
            local = np.where(inside & (self.count <= above) & (above < self.count + hi), above, -1)
            local = np.where(local < 0, local, local + lo)
            local = np.where(inside & (-lo <= below) & (below < 0), below + lo, local)
        return np.where((own >= 0) & (own < self.count), own + lo, local)


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclicMap(DimMap):
    """Blocks of `block_size` points are assigned to the processes in turn.

    Examples
    --------
    >>> part = CyclicMap(size=10, nprocs=2, rank=1, block_size=3)
    >>> part.owned, part.global_to_local(9), part.local_to_global([0, 3])
    (array([3, 4, 5, 9]), 3, array([3, 9]))
    """

    kind: ClassVar[MapKind] = "cyclic"
    block_size: int = 1

    @property
    def start(self) -> int:
        """First owned index; beyond the last index if nothing is owned."""
        return self.rank * self.block_size

    @property
    def count(self) -> int:
        """Number of owned points."""
        return int(self.count_below(np.array(self.size)))

    @property
    def owned(self) -> range | Indices:
        """Global indices of the owned points, in rising order."""
        if self.block_size == 1:
            return range(self.rank, self.size, self.nprocs)
        return self._globals(np.arange(self.count))

    def count_below(self, bounds: Indices) -> Indices:
        """Count the owned points with a global index less than each of `bounds`."""
        block, within = np.divmod(bounds, self.block_size)
        cycle, last = np.divmod(block, self.nprocs)
        in_last = np.where(last == self.rank, within, (last > self.rank) * self.block_size)
        return self.block_size * cycle + in_last

    def _globals(self, local: Indices) -> Indices:
        cycle, within = np.divmod(local, self.block_size)
        return (cycle * self.nprocs + self.rank) * self.block_size + within

    def _locals(self, indices: Indices, *, ghosts: bool) -> Indices:  # noqa: ARG002 - has none
        block, within = np.divmod(indices, self.block_size)
        mine = (indices >= 0) & (indices < self.size) & (block % self.nprocs == self.rank)
        return np.where(mine, block // self.nprocs * self.block_size + within, -1)


@dataclass(frozen=True, eq=False, kw_only=True)
class UnstructuredMap(DimMap):
    """The owned points are those of a list: any distinct integers in any order.

    Examples
    --------
    >>> points = UnstructuredMap(size=30, nprocs=3, rank=1, indices=np.array([6, 13, 3]))
    >>> points.owned, points.global_to_local(3)
    (array([ 6, 13,  3]), 2)
    """

    kind: ClassVar[MapKind] = "unstructured"
    indices: Indices
    one_to_one: bool = False

    def __post_init__(self) -> None:
        """Convert sequences; arrays are checked when they are exported."""
        given: object = self.indices
        if not isinstance(given, np.ndarray):
            object.__setattr__(self, "indices", as_indices(given))

    @property
    def count(self) -> int:
        """Number of owned points."""
        return len(self.indices)

    @property
    def owned(self) -> Indices:
        """Global indices of the owned points."""
        return self.indices

    @cached_property
    def _order(self) -> Indices:
        return np.argsort(self.indices)

    def count_below(self, bounds: Indices) -> Indices:
        """Count the owned points with a global index less than each of `bounds`."""
        return np.searchsorted(self.indices, bounds, sorter=self._order)

    def rising(self, first: int, last: int) -> Indices:
        """Positions, among the owned points, of number ``first .. last - 1`` by global index."""
        return self._order[first:last]

    def _globals(self, local: Indices) -> Indices:
        return self.indices[local]

    def _locals(self, indices: Indices, *, ghosts: bool) -> Indices:  # noqa: ARG002 - has none
        if not self.count:
            return np.full_like(indices, -1)
        position = np.searchsorted(self.indices, indices, sorter=self._order)
        local = self._order[np.minimum(position, self.count - 1)]
        return np.where(self.indices[local] == indices, local, -1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UnstructuredMap):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.size, self.nprocs, self.rank, self.count, self.one_to_one))


def brief(owned: range | Indices) -> str:
    """Format global indices for messages.

    Examples
    --------
    >>> brief(range(5, 10)), brief(range(0, 9, 4)), brief(range(0)), brief(np.array([7]))
    ('5..9', '0, 4, 8', 'nothing', '7')
    """
    if not len(owned):
        return "nothing"
    if isinstance(owned, range) and owned.step == 1:
        return f"{owned[0]}..{owned[-1]}" if len(owned) > 1 else str(owned[0])
    few = 8
    listed = ", ".join(str(index) for index in owned[:few])
    return listed if len(owned) <= few else f"{listed}, ... ({len(owned)} in all)"


# The dictionary of a dimension, in both versions of the protocol.

VERSIONS = ("0.9.0", "0.10.0")
Undistributed = Literal["n", "b"]


def is_old(version: str) -> bool:
    """Whether a version is 0.9, where start and stop leave out the ghosts."""
    return version.startswith("0.9.")


def split_padding(
    padding: Widths, rank: int, nprocs: int, *, wrapped: bool
) -> tuple[Widths, Widths]:
    """Divide padding into ghosts and boundary points, which are at the edges unless wrapped."""
    lo, hi = padding
    below = lo if rank == 0 and not wrapped else 0
    above = hi if rank == nprocs - 1 and not wrapped else 0
    return (lo - below, hi - above), (below, above)


def emit(
    dims: Sequence[DimMap],
    version: str = "0.10.0",
    *,
    padded: Sequence[bool] | None = None,
    undistributed: Undistributed | None = None,
) -> tuple[dict[str, Any], ...]:
    """Write the dimension dictionaries of one process: the ``dim_data`` of an export.

    Parameters
    ----------
    dims : sequence of DimMap
        The map of every dimension.
    version : {"0.10.0", "0.9.0"}
        Version of the protocol.
    padded : sequence of bool, optional
        For each dimension, whether any process has padding; then version 0.9 wants the key on all
        processes. Default: whether this process has padding.
    undistributed : {"n", "b"}, optional
        Distribution type in version 0.9 of a dimension on one process. Default "n".

    Returns
    -------
    tuple of dict
        Python integers, booleans and tuples, and arrays of indices; keys with default values are
        omitted.

    Raises
    ------
    VersionError
        If the version does not exist.
    UnsupportedError
        If the version cannot represent the map: wrapped ghosts in 0.10, periodic boundary points
        in 0.9.

    Examples
    --------
    >>> block = BlockMap(size=10, nprocs=2, rank=1, start=5, stop=10, ghosts=(1, 0))
    >>> written = emit([block])[0]
    >>> written["dist_type"], written["start"], written["stop"], written["padding"]
    ('b', 4, 10, (1, 0))
    >>> emit([BlockMap(size=7, start=0, stop=7)], "0.9.0")
    ({'dist_type': 'n', 'size': 7},)
    """
    check_version(version)
    flags = padded or [False] * len(dims)
    return tuple(
        _emit_dim(dim, version, number, padded=flag, alone=undistributed or "n")
        for number, (dim, flag) in enumerate(zip(dims, flags, strict=True))
    )


def check_version(version: str) -> None:
    """Raise VersionError unless exports can be written in a version."""
    if version not in VERSIONS:
        msg = f"got {version!r}, expected one of {VERSIONS}"
        raise VersionError(msg, code="E2", key="__version__")


def _emit_dim(
    dim: DimMap, version: str, number: int, *, padded: bool, alone: str
) -> dict[str, Any]:
    old = is_old(version)
    entry: dict[str, Any] = {"size": dim.size}
    entry |= {"proc_grid_size": dim.nprocs, "proc_grid_rank": dim.rank}
    match dim:
        case BlockMap() if old and dim.nprocs == 1 and alone == "n":
            entry = {"dist_type": "n", "size": dim.size}
        case BlockMap():
            lo, hi = (0, 0) if old else dim.ghosts
            entry |= {"dist_type": "b", "start": dim.start - lo, "stop": dim.stop + hi}
        case CyclicMap():
            entry |= {"dist_type": "c", "start": dim.start}
            entry |= {"block_size": dim.block_size} if dim.block_size > 1 else {}
        case UnstructuredMap():
            entry |= {"dist_type": "u", "indices": dim.indices}
            entry |= {"one_to_one": True} if dim.one_to_one else {}
    if isinstance(dim, BlockMap):
        wrapped = dim.periodic and old
        # A reader must be able to separate ghosts and boundary points again.
        found = split_padding(dim.padding, dim.rank, dim.nprocs, wrapped=wrapped)
        if found != (dim.ghosts, dim.boundary):
            msg = (
                f"ghosts {dim.ghosts} and boundary points {dim.boundary} on grid rank {dim.rank} "
                f"of {dim.nprocs} cannot be represented; expected ghosts "
                f"{'everywhere' if wrapped else 'inside'} and boundary points "
                f"{'nowhere' if wrapped else 'at the edges of the process grid'}: "
                "use the other version, or a view without the padding"
            )
            raise UnsupportedError(msg, code="K3", dim=number, key="padding", version=version)
        entry |= {"padding": dim.padding} if padded or any(dim.padding) else {}
    elif dim.periodic and not old:
        msg = f"a periodic {dim.kind} dimension cannot be represented; use version 0.9.0"
        raise UnsupportedError(msg, code="B7", dim=number, key="periodic", version=version)
    return entry | ({"periodic": True} if dim.periodic else {})
