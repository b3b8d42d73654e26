"""What the exports of all processes must have in common, and how they must fit together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from pencils.dap.dist import LocalDist
from pencils.dap.errors import CollectiveError, DAPWarning, Finding
from pencils.dap.global_maps import GlobalDimMap, GlobalUnstructuredMap, make_global
from pencils.dap.maps import BlockMap, DimMap, brief
from pencils.dap.parse import is_old
from pencils.layout.grid import ProcessGrid

# The keys that must be the same on all processes, and the attributes of a map that hold them.
_SAME = {
    "size": "size",
    "proc_grid_size": "nprocs",
    "block_size": "block_size",
    "periodic": "periodic",
    "one_to_one": "one_to_one",
}


def same_everywhere(dists: Sequence[LocalDist]) -> Iterator[Finding]:
    """Compare with rank 0 what all ranks must say alike (rule G1)."""
    yield from _differing(dists, "__version__", [dist.version for dist in dists])
    lengths = [len(dist.dims) for dist in dists]
    yield from _differing(dists, "dim_data", lengths, what="length ")
    for dim in range(min(lengths)):
        kinds = [dist.dist_types[dim] for dist in dists]
        yield from _differing(dists, "dist_type", kinds, dim=dim)
        keys = _SAME if len(set(kinds)) == 1 else {}
        for key, name in keys.items():
            values = [getattr(dist.dims[dim], name, None) for dist in dists]
            yield from _differing(dists, key, values, dim=dim)


def same_dtype(dists: Sequence[LocalDist]) -> Iterator[DAPWarning]:
    """Warn of the first rank whose elements are of another type than those of rank 0."""
    for error in _differing(dists, "buffer", [dist.dtype for dist in dists]):
        yield DAPWarning(
            error.text, code="G1", rank=error.rank, key="buffer", version=error.version
        )


def _differing(
    dists: Sequence[LocalDist],
    key: str,
    values: Sequence[object],
    *,
    what: str = "",
    dim: int | None = None,
) -> Iterator[CollectiveError]:
    """Yield an error for the first rank that says something else than rank 0."""
    rank = next((rank for rank, value in enumerate(values) if value != values[0]), None)
    if rank is not None:
        text = f"{what}{values[rank]!r} is given, required is {values[0]!r} as on rank 0"
        version = dists[rank].version
        yield CollectiveError(text, code="G1", dim=dim, rank=rank, key=key, version=version)


def on_the_grid(dists: Sequence[LocalDist]) -> Iterator[CollectiveError]:
    """Check the number of processes and their order (rules G2 and G3)."""
    grid, version = dists[0].grid_shape, dists[0].version
    if prod(grid) != len(dists):
        text = (
            f"the process grid {grid} has {prod(grid)} processes, required are the {len(dists)} "
            "that export"
        )
        yield CollectiveError(text, code="G2", key="proc_grid_size", version=version)
        return
    order = ProcessGrid(grid)
    wrong = (rank for rank, dist in enumerate(dists) if order.rank(dist.coords) != rank)
    for rank in islice(wrong, 1):
        text = (
            f"coordinates {dists[rank].coords} are given, required are {order.coords(rank)}: "
            f"ranks lie on the grid {grid} in C order; reorder the communicator"
        )
        yield CollectiveError(text, code="G3", rank=rank, key="proc_grid_rank", version=version)


def along(dists: Sequence[LocalDist], dim: int) -> list[DimMap]:
    """Map of every grid rank of a dimension, taken from the first process that has it."""
    grid = dists[0].grid_shape
    step = prod(grid[dim + 1 :])
    return [dists[coord * step].dims[dim] for coord in range(grid[dim])]


def join(dists: Sequence[LocalDist], dim: int) -> GlobalDimMap:
    """Map of all processes along a dimension."""
    return make_global(along(dists, dim))


def dimension(dists: Sequence[LocalDist], dim: int) -> Iterator[CollectiveError]:
    """Check how the processes along one dimension fit together (rules G4 to G10)."""
    version = dists[0].version
    found = [*_alike(dists, dim), *_padding_everywhere(dists, dim)]
    if not found:
        found += fitting(join(dists, dim), old=is_old(version))
    for error in sorted(found, key=lambda error: int(error.code[1:])):
        error.dim, error.version = dim, version
        yield error


def fitting(whole: GlobalDimMap, *, old: bool) -> Iterator[CollectiveError]:
    """Check the maps of one dimension against each other (rules G5 to G9)."""
    blocks = [part for part in whole.parts if isinstance(part, BlockMap)]
    if blocks:
        yield from _neighbours(blocks, old=old)
    yield from _all_points(whole)


def _alike(dists: Sequence[LocalDist], dim: int) -> Iterator[CollectiveError]:
    parts = along(dists, dim)
    for rank, dist in enumerate(dists):
        mine, first = dist.dims[dim], parts[dist.dims[dim].rank]
        if not mine.agrees_with(first):
            text = (
                f"{brief(mine.owned)} is owned, with ghosts {mine.ghosts}; required is "
                f"{brief(first.owned)} with ghosts {first.ghosts}, in the same order, as on the "
                "first process of this grid rank: only boundary padding may differ"
            )
            yield CollectiveError(text, code="G4", rank=rank)
            return


def _padding_everywhere(dists: Sequence[LocalDist], dim: int) -> Iterator[CollectiveError]:
    given = [dist.padding_given[dim] for dist in dists]
    if is_old(dists[0].version) and any(given) and not all(given):
        text = "the key is missing, required is that all processes have it; (0, 0) is no padding"
        yield CollectiveError(text, code="G10", rank=given.index(False), key="padding")


def _neighbours(blocks: Sequence[BlockMap], *, old: bool) -> Iterator[CollectiveError]:
    """Compare neighbouring blocks and the ghosts between them (rules G5, G6 and G7)."""
    owned = np.array([(block.start, block.stop) for block in blocks])
    ghosts = np.array([block.ghosts for block in blocks])
    lower, upper = ghosts[1:, 0], ghosts[:-1, 1]
    for left in np.nonzero(owned[:-1, 1] != owned[1:, 0])[0][:1].tolist():
        text = (
            f"without ghosts, grid rank {left} ends at {owned[left, 1]} and the next one starts at "
            f"{owned[left + 1, 0]}; required is the same"
            f"{'' if old else ', so that stop - start is the ghosts on both sides'}"
        )
        yield CollectiveError(text, code="G5", key="start")
    for left in [] if old else np.nonzero(lower != upper)[0][:1].tolist():
        text = (
            f"grid rank {left} has {upper[left]} ghosts above and the next one {lower[left]} "
            "below; required are equal widths"
        )
        yield CollectiveError(text, code="G6", key="padding")
    yield from _too_wide(owned[:, 1] - owned[:, 0], ghosts)


def _too_wide(counts: np.ndarray[Any, Any], ghosts: np.ndarray[Any, Any]) -> Iterator[Any]:
    """Yield an error for the first ghosts that are more than the neighbour owns (rule G7)."""
    available = np.stack([np.roll(counts, 1), np.roll(counts, -1)], axis=1)
    for rank, side in np.argwhere(ghosts > available)[:1].tolist():
        text = (
            f"grid rank {rank} has {ghosts[rank, side]} ghosts {('below', 'above')[side]}, "
            f"required are at most {available[rank, side]}: what the neighbour there owns"
        )
        yield CollectiveError(text, code="G7", key="padding")


def _all_points(whole: GlobalDimMap) -> Iterator[CollectiveError]:
    """Count the owned points, and look for shared ones (rules G8 and G9)."""
    total, counted = int(whole.counts.sum()), {int(whole.counts.sum())}
    shared = None
    if isinstance(whole, GlobalUnstructuredMap):
        if getattr(whole.parts[0], "one_to_one", False):
            shared = whole.first_shared()
        else:
            counted.add(whole.distinct)
    if whole.size not in counted:
        text = f"{whole.size} is given, required is the {total} points that the processes own"
        yield CollectiveError(text, code="G8", key="size")
    if shared is not None:
        ranks = [rank for rank, _ in whole.owners(shared)]
        text = f"index {shared} is on grid ranks {ranks}; required is one, or one_to_one False"
        yield CollectiveError(text, code="G9", key="indices")
