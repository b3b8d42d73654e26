"""Validate the exports of all processes compared with each other (rules G1 to G10).

`validate_collective` has all exports at hand, `validate_on` exchanges their metadata first; `show`
chooses the padding of exports that keep these rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed, token
from pencils.comm.topology import Topology, as_comm, topology_of
from pencils.dap.distributions import GlobalDimMap, GlobalDist, LocalDist
from pencils.dap.findings import CollectiveError, DAPWarning, Finding, UnsupportedError, raise_first
from pencils.dap.maps import BlockMap, DimMap, Undistributed, Widths, brief, emit, is_old
from pencils.dap.validate import Metadata, metadata
from pencils.layout import ProcessGrid

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# Attributes of maps that must be the same on all processes; keys have these names, but for one.
_SAME = "size", "nprocs", "block_size", "periodic", "one_to_one"


def validate_on(
    comm: MPI.Intracomm | None, exported: object, *, lenient: bool = False
) -> GlobalDist:
    """Validate the exports of all processes, over a communicator. *Collective*.

    Metadata only are communicated, not the elements, and only among the processes that differ in
    one coordinate of the process grid.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        All processes of the array, in the order of the protocol; None for the world.
    exported : dict
        What ``__distarray__()`` returned on this process.
    lenient : bool, optional
        As in `metadata`.

    Returns
    -------
    GlobalDist
        The maps of all processes; the same on every rank.

    Raises
    ------
    DAPError
        The same on every rank: the first broken rule, with the rank at fault.
    ArgumentError, TypeError
        If `comm` is not a communicator.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(pencils.Pencil((4, 6)))
    >>> validate_on(u.pencil.comm, u.__distarray__()).global_shape
    (4, 6)
    """
    topology = topology_of(as_comm(comm, "dap.validate_on"))
    with agreed(topology.comm, "dap.validate_on") as agree:
        agree(lenient=bool(lenient))
        found = metadata(exported, lenient=bool(lenient))
    return exchange_metadata(topology, found)


def exchange_metadata(topology: Topology, found: Metadata) -> GlobalDist:
    """Exchange the metadata of all exports and validate them: same errors on all. *Collective*.

    Each process gathers the maps of the lines of the process grid through it, one line for every
    dimension, and all processes compare hashes of the lines. Only if an export is not valid, all
    gather the metadata of all, to raise the same error.
    """
    mine, same = found.dist, None
    if mine is not None:
        grid, padding = mine.grid_shape, mine.padding_given if is_old(mine.version) else ()
        # Ranks on a grid of all (rules G2 and G3) compare what all must have (G1 and G10).
        if (
            prod(grid) == topology.comm.size
            and ProcessGrid(grid).rank(mine.coords) == topology.rank
        ):
            shapes = mine.global_shape, grid
            same = token((mine.version, repr(mine.dtype), mine.dist_types, shapes, padding))
    if topology.alike(same):
        assert mine is not None
        lines = _lines(topology, mine)
        dist = GlobalDist(tuple(map(GlobalDimMap, lines)))
        fit = not any(list(_check_maps(whole, old=is_old(mine.version))) for whole in dist.dims)
        if topology.alike(token(lines)) and fit:
            raise_first(found.findings)
            return dist
    return validate_collective(topology.comm.allgather(found))


def _lines(topology: Topology, dist: LocalDist) -> list[Sequence[DimMap]]:
    """Gather, for each dimension, the maps of the line through this process. *Collective*."""
    divided = [dim for dim, count in enumerate(dist.grid_shape) if count > 1]
    grid = ProcessGrid(tuple(dist.grid_shape[dim] for dim in divided))
    lines: list[Sequence[DimMap]] = [(here,) for here in dist.dims]
    for axis, dim in enumerate(divided):
        lines[dim] = topology.along(grid, [axis]).allgather(dist.dims[dim])
    return lines


def iter_collective_issues(exports: Iterable[Any], *, lenient: bool = False) -> Iterator[Finding]:
    """Yield all issues of the exports of all processes, in the order of ranks.

    The exports are compared only if each of them is valid, and blocks only if all processes have
    the same array and process grid. An issue that many ranks have is listed once.

    Parameters
    ----------
    exports : iterable of dict or of Metadata
        One for each process.
    lenient : bool, optional
        As in `metadata`; of no effect on a `Metadata`.

    Yields
    ------
    Finding
        A `DAPError` for every broken rule, a `DAPWarning` for every irregularity that is accepted.
    """
    yield from _issues([_as_metadata(one, lenient=lenient) for one in exports])


def validate_collective(exports: Iterable[Any], *, lenient: bool = False) -> GlobalDist:
    """Validate the exports of all processes, each by itself and compared with each other.

    Nothing is communicated: the argument is the exports, or their `metadata`, of all processes.

    Parameters
    ----------
    exports : iterable of dict or of Metadata
        One for each process, in the order of their ranks.
    lenient : bool, optional
        As in `metadata`; of no effect on a `Metadata`.

    Returns
    -------
    GlobalDist
        The maps of all processes.

    Raises
    ------
    DAPError
        The first broken rule; its attribute `rank` is the process at fault.

    Examples
    --------
    >>> def export(rank):
    ...     block = {"dist_type": "b", "size": 6, "proc_grid_size": 2, "proc_grid_rank": rank}
    ...     block |= {"start": 3 * rank, "stop": 3 * rank + 3}
    ...     return {"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": (block,)}
    >>> validate_collective([export(0), export(1)]).owner((4,))
    (1, (1,))
    """
    found = [_as_metadata(one, lenient=lenient) for one in exports]
    raise_first(_issues(found))
    dists = [one.dist for one in found if one.dist]
    return GlobalDist(tuple(_join(dists, dim) for dim in range(len(dists[0].dims))))


def _as_metadata(export: Any, *, lenient: bool) -> Metadata:
    return export if isinstance(export, Metadata) else metadata(export, lenient=lenient)


def _issues(found: Sequence[Metadata]) -> Iterator[Finding]:
    if not found:
        yield CollectiveError("got no exports, expected one per process", code="G2")
        return
    first: dict[tuple[str, int | None, str | None], int] = {}  # rank with each issue
    for rank, one in enumerate(found):
        for issue in one.findings:
            if first.setdefault((issue.code, issue.dim, issue.key), rank) == rank:
                here = copy(issue)
                here.rank = rank
                yield here
    dists = [one.dist for one in found if one.dist]
    if len(dists) < len(found):
        return
    for error in _first_difference(dists, "buffer", [dist.dtype for dist in dists]):
        yield DAPWarning(
            error.text, code="G1", rank=error.rank, key="buffer", version=error.version
        )
    for stage in (_check_same, _check_grid):
        issues = list(stage(dists))
        yield from issues
        if issues:
            return
    for dim in range(len(dists[0].dims)):
        yield from _check_dim(dists, dim)


def _check_same(dists: Sequence[LocalDist]) -> Iterator[Finding]:
    """Compare values that must be the same on all ranks with rank 0 (rule G1)."""
    yield from _first_difference(dists, "__version__", [dist.version for dist in dists])
    lengths = [len(dist.dims) for dist in dists]
    yield from _first_difference(dists, "dim_data", lengths, what="length ")
    for dim in range(min(lengths)):
        types = [dist.dist_types[dim] for dist in dists]
        yield from _first_difference(dists, "dist_type", types, dim=dim)
        for name in _SAME if len(set(types)) == 1 else ():
            values = [getattr(dist.dims[dim], name, None) for dist in dists]
            key = "proc_grid_size" if name == "nprocs" else name
            yield from _first_difference(dists, key, values, dim=dim)


def _first_difference(
    dists: Sequence[LocalDist],
    key: str,
    values: Sequence[object],
    *,
    what: str = "",
    dim: int | None = None,
) -> Iterator[CollectiveError]:
    """Yield an error for the first rank whose value differs from that of rank 0."""
    rank = next((rank for rank, value in enumerate(values) if value != values[0]), None)
    if rank is not None:
        text = f"got {what}{values[rank]!r}, expected {values[0]!r} as on rank 0"
        version = dists[rank].version
        yield CollectiveError(text, code="G1", dim=dim, rank=rank, key=key, version=version)


def _check_grid(dists: Sequence[LocalDist]) -> Iterator[CollectiveError]:
    """Check the number of processes and their order (rules G2 and G3)."""
    grid, version = dists[0].grid_shape, dists[0].version
    if prod(grid) != len(dists):
        text = (
            f"the process grid {grid} has {prod(grid)} processes, expected the {len(dists)} "
            "that export"
        )
        yield CollectiveError(text, code="G2", key="proc_grid_size", version=version)
        return
    order = ProcessGrid(grid)
    wrong = (rank for rank, dist in enumerate(dists) if order.rank(dist.coords) != rank)
    for rank in islice(wrong, 1):
        text = (
            f"got coordinates {dists[rank].coords}, expected {order.coords(rank)}: "
            f"ranks are on the grid {grid} in C order; reorder the communicator"
        )
        yield CollectiveError(text, code="G3", rank=rank, key="proc_grid_rank", version=version)


def _join(dists: Sequence[LocalDist], dim: int) -> GlobalDimMap:
    """Map of a dimension, from the first process with each grid rank."""
    grid = dists[0].grid_shape
    step = prod(grid[dim + 1 :])
    return GlobalDimMap([dists[coord * step].dims[dim] for coord in range(grid[dim])])


def _check_dim(dists: Sequence[LocalDist], dim: int) -> Iterator[CollectiveError]:
    """Compare the processes along one dimension (rules G4 to G10)."""
    version, whole = dists[0].version, _join(dists, dim)
    found: list[CollectiveError] = []
    pairs = [(dist.dims[dim], whole.parts[dist.dims[dim].rank]) for dist in dists]
    for rank, (mine, first) in enumerate(pairs):
        if not (found or mine.agrees_with(first)):
            text = (
                f"{brief(mine.owned)} is owned, with ghosts {mine.ghosts}; expected "
                f"{brief(first.owned)} with ghosts {first.ghosts}, in the same order, as on the "
                "first process of this grid rank: only boundary padding may differ"
            )
            found.append(CollectiveError(text, code="G4", rank=rank))
    given = [dist.padding_given[dim] for dist in dists]
    if is_old(version) and any(given) and not all(given):
        text = "the key is missing, expected that all processes have it; (0, 0) is no padding"
        found.append(CollectiveError(text, code="G10", rank=given.index(False), key="padding"))
    found = found or list(_check_maps(whole, old=is_old(version)))
    for error in sorted(found, key=lambda error: int(error.code[1:])):
        error.dim, error.version = dim, version
        yield error


def _check_maps(whole: GlobalDimMap, *, old: bool) -> Iterator[CollectiveError]:
    """Compare the maps of one dimension, and count its points (rules G5 to G9)."""
    blocks = [part for part in whole.parts if isinstance(part, BlockMap)]
    yield from check_neighbours(blocks, old=old) if blocks else ()
    total, shared = int(whole.counts.sum()), None
    counted = {total}
    if getattr(whole.parts[0], "one_to_one", False):
        shared = whole.first_shared()
    elif whole.kind == "unstructured":
        counted.add(whole.distinct)
    if whole.size not in counted:
        text = f"got {whole.size}, expected the {total} points that the processes own"
        yield CollectiveError(text, code="G8", key="size")
    if shared is not None:
        ranks = [rank for rank, _ in whole.owners(shared)]
        text = f"index {shared} is on grid ranks {ranks}; expected one, or one_to_one False"
        yield CollectiveError(text, code="G9", key="indices")


def check_neighbours(blocks: Sequence[BlockMap], *, old: bool) -> Iterator[CollectiveError]:
    """Compare neighbouring blocks and the ghosts between them (rules G5, G6 and G7)."""
    owned = np.array([(block.start, block.stop) for block in blocks])
    ghosts = np.array([block.ghosts for block in blocks])
    lower, upper = ghosts[1:, 0], ghosts[:-1, 1]
    for left in np.nonzero(owned[:-1, 1] != owned[1:, 0])[0][:1].tolist():
        text = (
            f"without ghosts, grid rank {left} ends at {owned[left, 1]} and the next one starts at "
            f"{owned[left + 1, 0]}; expected the same"
            f"{'' if old else ', so that stop - start is the ghosts on both sides'}"
        )
        yield CollectiveError(text, code="G5", key="start")
    for left in [] if old else np.nonzero(lower != upper)[0][:1].tolist():
        text = (
            f"grid rank {left} has {upper[left]} ghosts above and the next one {lower[left]} "
            "below; expected equal widths"
        )
        yield CollectiveError(text, code="G6", key="padding")
    counts = owned[:, 1] - owned[:, 0]
    available = np.stack([np.roll(counts, 1), np.roll(counts, -1)], axis=1)
    for rank, side in np.argwhere(ghosts > available)[:1].tolist():
        text = (
            f"grid rank {rank} has {ghosts[rank, side]} ghosts {('below', 'above')[side]}, "
            f"expected at most {available[rank, side]}: the points of the neighbour there"
        )
        yield CollectiveError(text, code="G7", key="padding")


# The padding of an export, which must keep these rules.

ExportHalo = Literal["none", "comm", "all"]
# Maps of what is exported, its slices of the buffer, and where any process has padding.
Shown = tuple[tuple[DimMap, ...], tuple[Any, ...], tuple[bool, ...]]


def write(
    shown: Shown, buffer: Array, version: str, undistributed: Undistributed | None = None
) -> dict[str, Any]:
    """Write the export of a buffer."""
    maps, key, padded = shown
    dims = emit(maps, version, padded=padded, undistributed=undistributed)
    return {"__version__": version, "buffer": buffer[key], "dim_data": dims}


def show(
    lines: Sequence[Sequence[DimMap]], mine: Sequence[DimMap], version: str, halo: ExportHalo
) -> Shown:
    """Choose the padding to export, of that which the buffers of all processes have.

    `lines` has the maps of all processes along each dimension; their ghosts may be beyond its ends,
    too: of one that is periodic, or points that can become boundary points. `mine` are the maps of
    this process, whose boundary points may differ. All processes raise UnsupportedError alike if
    the version cannot represent ghosts that are shown.
    """
    maps: list[DimMap] = []
    key: list[slice] = []
    padded: list[bool] = []
    for dim, (line, own) in enumerate(zip(lines, mine, strict=True)):
        if not isinstance(own, BlockMap):
            maps.append(own)
            key.append(slice(None))
            padded.append(False)
            continue
        blocks = [part for part in line if isinstance(part, BlockMap)]
        beyond = blocks[0].ghosts[0], blocks[-1].ghosts[1]
        shown = [_show_block(block, beyond, version, halo) for block in blocks]
        _check_ghosts(shown, version, dim)
        padded.append(is_old(version) and any(any(block.padding) for block in shown))
        if is_old(version):  # whose key is on all processes or on none, which `line` tells
            own = next(block for block in blocks if block.rank == own.rank)  # noqa: PLW2901
        part = _show_block(own, beyond, version, halo)
        below = own.ghosts[0] - part.ghosts[0] - max(0, part.boundary[0] - own.boundary[0])
        maps.append(part)
        key.append(slice(below, below + part.extent))
    return tuple(maps), (..., *key), tuple(padded)


def _show_block(own: BlockMap, beyond: Widths, version: str, halo: ExportHalo) -> BlockMap:
    """Show the padding of a block; `beyond` is the width of that beyond the ends of the array."""
    if halo == "none":
        return replace(own, ghosts=(0, 0), boundary=(0, 0))
    if own.periodic and is_old(version):  # all padding is ghosts
        return replace(own, boundary=(0, 0))
    lo, hi = beyond if halo == "all" else (0, 0)
    first, last = own.rank == 0, own.rank == own.nprocs - 1
    return replace(
        own,
        size=own.size + lo + hi,
        start=own.start + lo * (not first),
        stop=own.stop + lo + hi * last,
        ghosts=(own.ghosts[0] * (not first), own.ghosts[1] * (not last)),
        boundary=(own.boundary[0] + lo * first, own.boundary[1] + hi * last),
    )


def _check_ghosts(blocks: Sequence[BlockMap], version: str, dim: int) -> None:
    """Check the ghosts between the processes along a dimension (rules B6, G6 and G7)."""
    for error in check_neighbours(blocks, old=is_old(version)):
        hint = "version 0.9.0" if error.code == "G6" else "fewer processes along the dimension"
        msg = f"{error.text}; use {hint}, or halo='none'"
        raise UnsupportedError(msg, code=error.code, dim=dim, key="padding", version=version)
    for block in blocks if is_old(version) else ():
        if block.start == block.size and any(block.ghosts):
            msg = (
                f"grid rank {block.rank} has no points, expected no ghosts there; use version "
                "0.10.0, fewer processes along the dimension, or halo='none'"
            )
            raise UnsupportedError(msg, code="B6", dim=dim, key="padding", version=version)


def check_elements(dtype: np.dtype[Any], version: str) -> None:
    """Raise UnsupportedError unless elements of a type have a buffer."""
    if dtype.kind in "mM":
        msg = f"elements of type {dtype} have no buffer; export a view as integers"
        raise UnsupportedError(msg, code="E3", key="buffer", version=version)
