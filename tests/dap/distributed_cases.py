"""Random maps of all processes along every dimension, the same on every rank, and views of data."""

import numpy as np
from mpi_helpers import random_grid

from pencils.dap import (
    BlockMap,
    CyclicMap,
    DistributedView,
    GlobalDimMap,
    GlobalDist,
    UnstructuredMap,
)


def blocks(rng, points, nprocs):
    bounds = [0, *np.sort(rng.integers(0, points + 1, nprocs - 1)).tolist(), points]
    return [
        BlockMap(size=points, nprocs=nprocs, rank=r, start=bounds[r], stop=bounds[r + 1])
        for r in range(nprocs)
    ]


def cyclic(rng, points, nprocs):
    size = int(rng.integers(1, 4)) if rng.random() < 0.8 else points + 1
    return [CyclicMap(size=points, nprocs=nprocs, rank=r, block_size=size) for r in range(nprocs)]


def permuted(rng, points, nprocs):
    """Give every point to one process, in any order."""
    cuts = np.sort(rng.integers(0, points + 1, nprocs - 1))
    return lists(np.split(rng.permutation(points), cuts), one_to_one=True)


def shared(rng, points, nprocs):
    """Give some points to some processes."""
    return lists(
        [rng.permutation(points)[: rng.integers(0, points + 1)] for _ in range(nprocs)],
        one_to_one=False,
    )


def lists(indices, *, one_to_one):
    size = sum(map(len, indices))
    return [
        UnstructuredMap(size=size, nprocs=len(indices), rank=r, indices=one, one_to_one=one_to_one)
        for r, one in enumerate(indices)
    ]


KINDS = {"b": blocks, "c": cyclic, "u": permuted, "s": shared}


def random_dist(rng, shape, size, kinds="bcus"):
    """Draw the maps of all processes."""
    return GlobalDist(
        tuple(
            GlobalDimMap(KINDS[str(rng.choice(list(kinds)))](rng, points, nprocs))
            for points, nprocs in zip(shape, random_grid(rng, size, len(shape)), strict=True)
        )
    )


def maps_of(dist, rank):
    """Pick the maps of one process."""
    coords = dist.coords_of(rank)
    return tuple(dim.parts[c] for dim, c in zip(dist.dims, coords, strict=True))


def view_of(comm, dist, data):
    """Make the view of this process of global data that may have points without an owner."""
    maps = maps_of(dist, comm.rank)
    return DistributedView(comm, dist, maps, data[at(dist, comm.rank)])


def at(dist, rank):
    """Index global data for what a process owns."""
    return np.ix_(*(np.asarray(owned, int) for owned in dist.owned(rank)))
