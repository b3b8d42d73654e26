"""Dimensions and exports to test with: any legal one by hypothesis, and small ones by hand."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from pencils.dap import BlockMap, CyclicMap, DAPError, UnstructuredMap, emit


def cyclic_indices(size, nprocs, block_size):
    """Assign the indices one after the other: a list for each process."""
    parts = [[] for _ in range(nprocs)]
    for index in range(size):
        parts[index // block_size % nprocs].append(index)
    return parts


def buffer_of(part):
    """Global index of every point in a buffer, ghosts included."""
    if part.kind != "block":
        return list(part.owned)
    lo, hi = part.ghosts
    indices = range(part.start - lo, part.stop + hi)
    return [index % part.size for index in indices] if part.periodic else list(indices)


@st.composite
def block_dims(draw, version):
    """Draw the map of every process along one dimension, legal in a version."""
    old = version == "0.9.0"
    nprocs, size = draw(st.integers(1, 5)), draw(st.integers(0, 20))
    inner = draw(st.lists(st.integers(0, size), min_size=nprocs - 1, max_size=nprocs - 1))
    bounds = list(pairwise([0, *sorted(inner), size]))
    counts = [stop - start for start, stop in bounds]
    periodic = draw(st.booleans())
    ghosts = [[0, 0] for _ in counts]
    boundary = [[0, 0] for _ in counts]
    for left, right in pairwise(range(nprocs)):
        widest = min(counts[left], counts[right])
        ghosts[left][1] = ghosts[right][0] = draw(st.integers(0, widest))
    for rank in range(nprocs) if old else ():
        if draw(st.booleans()):
            ghosts[rank][1] = draw(st.integers(0, counts[(rank + 1) % nprocs]))
        if draw(st.booleans()):
            ghosts[rank][0] = draw(st.integers(0, counts[rank - 1]))
        if bounds[rank][0] == size:
            ghosts[rank] = [0, 0]
    if not (old and periodic):
        ghosts[0][0] = ghosts[-1][1] = 0
        boundary[0][0] = draw(st.integers(0, counts[0]))
        boundary[-1][1] = draw(st.integers(0, counts[-1] - boundary[-1][0]))
    return [
        BlockMap(
            size=size,
            nprocs=nprocs,
            rank=rank,
            start=bounds[rank][0],
            stop=bounds[rank][1],
            periodic=periodic,
            ghosts=tuple(ghosts[rank]),
            boundary=tuple(boundary[rank]),
        )
        for rank in range(nprocs)
    ]


@st.composite
def cyclic_dims(draw, version):
    nprocs, size, block_size = (draw(st.integers(lo, hi)) for lo, hi in ((1, 5), (0, 30), (1, 7)))
    periodic = version == "0.9.0" and draw(st.booleans())
    return [
        CyclicMap(size=size, nprocs=nprocs, rank=rank, block_size=block_size, periodic=periodic)
        for rank in range(nprocs)
    ]


@st.composite
def unstructured_dims(draw, version):
    nprocs, one_to_one = draw(st.integers(1, 5)), draw(st.booleans())
    values = st.integers(-50, 50)
    if one_to_one:
        pool = draw(st.lists(values, unique=True, max_size=25))
        cuts = sorted(draw(st.integers(0, len(pool))) for _ in range(nprocs - 1))
        lists = [pool[lo:hi] for lo, hi in pairwise([0, *cuts, len(pool)])]
    else:
        lists = [draw(st.lists(values, unique=True, max_size=8)) for _ in range(nprocs)]
    periodic = version == "0.9.0" and draw(st.booleans())
    return [
        UnstructuredMap(
            size=sum(map(len, lists)),
            nprocs=nprocs,
            rank=rank,
            indices=np.array(indices, np.int64),
            one_to_one=one_to_one,
            periodic=periodic,
        )
        for rank, indices in enumerate(lists)
    ]


def any_dims(version):
    return st.one_of(kind(version) for kind in (block_dims, cyclic_dims, unstructured_dims))


versions = st.sampled_from(["0.9.0", "0.10.0"])


@st.composite
def worlds(draw, max_ndim=2):
    """Draw a version and, for every dimension, the maps of all its processes."""
    version = draw(versions)
    ndim = draw(st.integers(0, max_ndim))
    return version, [draw(any_dims(version)) for _ in range(ndim)]


def export(dims, version="0.10.0", **how):
    """Export zeros that are distributed like this."""
    buffer = np.zeros([dim.extent for dim in dims])
    return {"__version__": version, "buffer": buffer, "dim_data": emit(dims, version, **how)}


def exports(version, world):
    """Export the part of every process, in the order of their ranks."""
    grid = [len(parts) for parts in world]
    padded = [any(any(p.ghosts + p.boundary) for p in parts) for parts in world]
    return [
        export([parts[c] for parts, c in zip(world, coords, strict=True)], version, padded=padded)
        for coords in np.ndindex(*grid)
    ]


BASE = {"proc_grid_size": 2, "proc_grid_rank": 0, "size": 10}


def block(rank=0, start=0, stop=5, **other):
    """Build the dictionary of a block; the first of two halves of 10 points by default."""
    own = {"dist_type": "b", "proc_grid_rank": rank, "start": start, "stop": stop}
    return BASE | own | other


def cyclic(rank=0, **other):
    return BASE | {"dist_type": "c", "proc_grid_rank": rank, "start": rank} | other


def unstructured(indices, rank=0, **other):
    own = {"dist_type": "u", "proc_grid_rank": rank, "indices": np.array(indices, np.int64)}
    return BASE | own | other


def undistributed(**other):
    return {"dist_type": "n", "size": 5} | other


def without(mapping, key):
    return {k: v for k, v in mapping.items() if k != key}


def wrap(*dims, shape=(5,), version="0.10.0", dtype=float):
    """Make an export of dictionaries."""
    return {"__version__": version, "buffer": np.zeros(shape, dtype), "dim_data": dims}


def lent(buffer, *dims, version="0.10.0"):
    """Make an export of a buffer; without dictionaries, of one dimension on one process."""
    return {"__version__": version, "buffer": buffer, "dim_data": dims or ({},)}


def even(comm, points, **other):
    """Build the dictionary of a block of so many points on each rank."""
    start = points * comm.rank
    place = {"size": points * comm.size, "proc_grid_size": comm.size}
    return block(comm.rank, start, start + points) | place | other


def old(*dims, shape=(5,)):
    return wrap(*dims, shape=shape, version="0.9.0")


def errors(issues):
    return [issue for issue in issues if isinstance(issue, DAPError)]
