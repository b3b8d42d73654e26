"""Arrays that are distributed in any way, and fields made of them."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from distributed_cases import at, lists, maps_of, random_dist, view_of
from mpi4py import MPI
from mpi_helpers import (
    DTYPES,
    NODES,
    all_raise,
    everywhere,
    holds,
    numbered,
    on_nodes,
    random_pencil,
    same,
)

import pencils
from pencils import Pencil, dap
from pencils.comm.reduce import ReduceOp
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

FOLD = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "land": np.logical_and,
    "lor": np.logical_or,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
}


def shape_of(rng, ndim=None):
    ndim = int(rng.integers(1, 4)) if ndim is None else ndim
    return rng.integers(0 if rng.random() < 0.1 else 1, 9, ndim).tolist()


def held(dist, shape):
    """Tell which points anybody owns."""
    found = np.zeros(shape, bool)
    for rank in range(int(np.prod(dist.grid_shape))):
        found[at(dist, rank)] = True
    return found


@pytest.fixture(scope="module")
def turned(comm):
    """All ranks in another order."""
    other = comm.Split(0, (comm.rank * 5 + 3) % 7)
    yield other
    other.Free()


@pytest.mark.parametrize("seed", range(40))
def test_any_distribution_becomes_a_field(comm, turned, seed):
    rng = np.random.default_rng(seed)
    shape = shape_of(rng)
    over, under = (comm, turned)[:: rng.choice([-1, 1])]
    pencil = random_pencil(rng, over if rng.random() < 0.7 else under, shape)
    dist = random_dist(rng, shape, comm.size)
    dtype = DTYPES[rng.integers(len(DTYPES))]
    data = numbered(shape, dtype)
    field = view_of(under, dist, data).to_pencil(pencil, halo=int(rng.integers(2)))
    expected = np.zeros(shape, dtype)
    expected[held(dist, shape)] = data[held(dist, shape)]
    assert everywhere(comm, field.pencil is pencil)
    assert everywhere(comm, holds(field, expected))


@pytest.mark.parametrize("seed", range(20))
def test_the_pencil_that_fits(comm, turned, seed):
    """It has the process grid, the blocks, the order of ranks, and the points of the array."""
    rng = np.random.default_rng(seed)
    shape = shape_of(rng)
    dist = random_dist(rng, shape, comm.size)
    for number, dim in enumerate(dist.dims):
        if dim.kind == "unstructured":
            owned = [int(points.max()) for part in dim.parts if len(points := part.owned)]
            shape[number] = max(owned, default=-1) + 1
    data = numbered(shape)
    field = view_of(turned, dist, data).to_pencil(halo=1)
    expected = np.where(held(dist, shape), data, 0.0)
    assert everywhere(comm, field.shape == tuple(shape) and holds(field, expected))
    pencil = field.pencil
    assert pencil.process_shape == dist.grid_shape
    assert pencil.comm == turned
    for dim, split in zip(dist.dims, pencil.layout.splits, strict=True):
        bounds = [split.bounds(part)[0] for part in range(split.parts)]
        assert dim.kind != "block" or bounds == dim.bounds[:-1].tolist()
    again = view_of(turned, dist, data).to_pencil()
    assert (field + again).pencil == pencil


def test_negative_indices_fit_no_pencil(comm):
    parts = lists([np.array([-1, 3])] * comm.size, one_to_one=False)
    dist = dap.GlobalDist((dap.GlobalDimMap(parts),))
    view = dap.DistributedView(comm, dist, (parts[comm.rank],), np.zeros(2))
    all_raise(comm, dap.UnsupportedError, ("got -1", "U2"), view.to_pencil)


@pytest.mark.parametrize("nodes", NODES)
def test_ranks_on_several_nodes(nodes):
    comm = on_nodes(nodes)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shape = [9, 8, 5][: seed + 1]
        data = numbered(shape)
        view = view_of(comm, random_dist(rng, shape, comm.size, "bcu"), data)
        field = view.to_pencil(random_pencil(rng, comm, shape))
        assert everywhere(comm, holds(field, data))
        exported = dap.export_as(field, view.maps)
        assert everywhere(comm, same(exported["buffer"], view.local))


@pytest.mark.parametrize("kinds", ["b", "c", "u", "bc", "cu"])
def test_buffers_of_any_strides_that_may_not_be_written(comm, kinds):
    rng = np.random.default_rng(11)
    shape = (7, 8, 5)
    data = numbered(shape)
    dist = random_dist(rng, shape, comm.size, kinds)
    mine = data[at(dist, comm.rank)]
    block = np.zeros([2 * n for n in mine.shape[::-1]])[::2, ::-2, ::2].transpose()
    block[...] = mine
    block.flags.writeable = False
    view = dap.DistributedView(comm, dist, maps_of(dist, comm.rank), block)
    pencil = random_pencil(rng, comm, shape)
    assert everywhere(comm, holds(view.to_pencil(pencil), data))
    flat = np.broadcast_to(np.float64(3), block.shape)
    flat = dap.DistributedView(comm, dist, maps_of(dist, comm.rank), flat)
    assert everywhere(comm, (flat.to_pencil(pencil).local == 3).all())


def test_ghosts_stay_behind(comm):
    points = 4 * comm.size
    parts = []
    for r in range(comm.size):
        ghosts = int(r > 0), int(r < comm.size - 1)
        place = {"size": points, "nprocs": comm.size, "rank": r}
        parts.append(dap.BlockMap(**place, start=4 * r, stop=4 * r + 4, ghosts=ghosts))
    dist = dap.GlobalDist((dap.GlobalDimMap(parts),))
    mine = parts[comm.rank]
    buffer = np.full(mine.extent, -1.0)
    buffer[mine.owned_slice] = mine.owned
    view = dap.DistributedView(comm, dist, (mine,), buffer)
    assert np.shares_memory(view.local, buffer)
    assert view.local_shape == view.local.shape == (4,)
    assert everywhere(comm, holds(view.to_pencil(Pencil(points, comm)), np.arange(1.0 * points)))
    again = dap.validate_on(comm, view.__distarray__())
    assert again.dims[0].bounds.tolist() == list(range(0, points + 1, 4))


@pytest.mark.parametrize("seed", range(20))
def test_the_last_of_several_owners_wins(comm, seed):
    rng = np.random.default_rng(seed)
    shape = shape_of(rng)
    dist = random_dist(rng, shape, comm.size, "ss" if seed % 2 else "bcs")
    expected = np.zeros(shape)
    for rank in range(comm.size):
        expected[at(dist, rank)] = rank + 1
    mine = np.full(np.empty(shape)[at(dist, comm.rank)].shape, comm.rank + 1.0)
    view = dap.DistributedView(comm, dist, maps_of(dist, comm.rank), mine)
    assert everywhere(comm, holds(view.to_pencil(random_pencil(rng, comm, shape)), expected))


@pytest.mark.parametrize("name", [op.value for op in ReduceOp])
@pytest.mark.parametrize("seed", range(4))
def test_values_of_several_owners_are_combined(comm, name, seed):
    rng = np.random.default_rng(seed)
    shape = shape_of(rng, 1 + seed % 3)
    dist = random_dist(rng, shape, comm.size, "s" if seed < 2 else "bcs")
    if not any(dim.kind == "unstructured" for dim in dist.dims):
        dist = random_dist(rng, shape, comm.size, "s")
    dtype = [">f8", "i1", "?", "c16"][seed]
    if name in ("band", "bor") or (name in ("min", "max") and dtype == "c16"):
        dtype = "i2"
    expected, first = np.zeros(shape, dtype), np.ones(shape, bool)
    for rank in range(comm.size):
        here = at(dist, rank)
        values = (numbered(expected[here].shape) % (rank + 3)).astype(dtype)
        if rank == comm.rank:
            view = dap.DistributedView(comm, dist, maps_of(dist, rank), values)
        combined = FOLD[name](expected[here], values).astype(dtype)
        expected[here] = np.where(first[here], values, combined)
        first[here] = False
    field = view.to_pencil(random_pencil(rng, comm, shape), reduce=name)
    assert everywhere(comm, holds(field, expected))
    field = view.to_pencil(field.pencil, reduce=ReduceOp(name))
    assert everywhere(comm, holds(field, expected))


def test_a_replicated_singleton_counts_like_other_owners(comm):
    parts = lists([np.zeros(1, np.int64)] * comm.size, one_to_one=False)
    whole = dap.BlockMap(size=4, start=0, stop=4)
    dist = dap.GlobalDist((dap.GlobalDimMap(parts), dap.GlobalDimMap([whole])))
    maps = (parts[comm.rank], whole)
    view = dap.DistributedView(comm, dist, maps, np.full((1, 4), comm.rank + 1.0))
    pencil = Pencil((1, 4), comm, decomp=1)
    assert everywhere(comm, (view.to_pencil(pencil).local == comm.size).all())
    total = comm.size * (comm.size + 1) / 2
    assert everywhere(comm, (view.to_pencil(pencil, reduce="sum").local == total).all())
    assert view.to_pencil(Pencil((3, 4), comm)).sum() == 4 * comm.size


def test_leading_dimensions_are_components(comm):
    dist = random_dist(np.random.default_rng(3), (7, 6), comm.size, "c")
    whole = dap.BlockMap(size=3, start=0, stop=3)
    dist = dap.GlobalDist((dap.GlobalDimMap([whole]), *dist.dims))
    data = numbered((3, 7, 6))
    field = view_of(comm, dist, data).to_pencil(Pencil((7, 6), comm, order=(1, 0)), halo=1)
    assert field.components == (3,)
    assert everywhere(comm, holds(field, data))


@pytest.mark.parametrize("kinds", ["b", "c", "bc", "cu"])
def test_arrays_without_points_have_nothing_to_copy(comm, kinds):
    dist = random_dist(np.random.default_rng(1), (0, 4), comm.size, kinds)
    data = np.zeros((0, 4))
    view = view_of(comm, dist, data)
    field = view.to_pencil(Pencil((0, 4), comm))
    assert everywhere(comm, holds(field, data))
    assert everywhere(comm, same(dap.export_as(field, view.maps)["buffer"], view.local))


def test_it_describes_itself(comm):
    dist = random_dist(np.random.default_rng(5), (6, 5), comm.size, "cu")
    data = numbered((6, 5))
    view = view_of(comm, dist, data)
    assert view.shape == dist.global_shape
    assert view.ndim == 2
    assert view.comm is comm
    assert all(map(np.array_equal, view.owned, dist.owned(comm.rank)))
    owner, place = view.owner((2, 3))
    assert everywhere(comm, owner != comm.rank or view.buffer[place] == data[2, 3])
    assert f"on rank {comm.rank} of {comm.size}" in repr(view)
    assert "dimension 1: " in repr(view)
    with pytest.raises(FrozenInstanceError):
        view.comm = None
    assert not hasattr(view, "__dict__")


@pytest.mark.parametrize("seed", range(10))
def test_it_exports_itself_without_a_copy(comm, seed):
    rng = np.random.default_rng(seed)
    shape = [n + 1 for n in shape_of(rng)]
    dist = random_dist(rng, shape, comm.size, "bcu")
    view = view_of(comm, dist, numbered(shape))
    exported = view.__distarray__()
    again = dap.validate_on(comm, exported)
    assert everywhere(comm, all(map(np.array_equal, again.owned(comm.rank), view.owned)))
    assert everywhere(
        comm, np.shares_memory(exported["buffer"], view.buffer) or not view.local.size
    )


def test_periodic_lists_of_the_old_version_are_not_periodic_in_the_new_one(comm):
    dist = random_dist(np.random.default_rng(0), (6,), comm.size, "c")
    maps = tuple(replace(part, periodic=True) for part in maps_of(dist, comm.rank))
    view = dap.DistributedView(comm, dist, maps, np.zeros([part.count for part in maps]))
    assert dap.validate_on(comm, view.__distarray__()).dims[0].periodic is False


def test_what_does_not_fit_raises_on_all_ranks(comm):
    rng = np.random.default_rng(2)
    view = view_of(comm, random_dist(rng, (6, 5), comm.size, "c"), numbered((6, 5)))
    pencil = Pencil((6, 5), comm)
    for other in (Pencil((6, 4), comm), Pencil((30,), comm), Pencil((2, 6, 5), comm)):
        all_raise(comm, PencilMismatchError, "shape", view.to_pencil, other)
    if comm.size > 1:
        alone = Pencil((6, 5), MPI.COMM_SELF)
        all_raise(comm, PencilMismatchError, "processes", view.to_pencil, alone)
    for how, kind in (
        ({"reduce": "mean"}, ArgumentError),
        ({"reduce": "band"}, ArgumentError),
        ({"halo": -1}, ArgumentError),
        ({"pencil": 3}, TypeError),
    ):
        all_raise(comm, kind, "", view.to_pencil, **{"pencil": pencil, **how})
    cells = view_of(comm, random_dist(rng, (6,), comm.size, "u"), numbered((6,)))
    all_raise(comm, dap.UnsupportedError, ("got 5", "U2"), cells.to_pencil, Pencil(5, comm))
    deep = dap.GlobalDist((*cells.dist.dims, *view.dist.dims))
    if comm.size == 1:
        deep_view = dap.DistributedView(comm, deep, maps_of(deep, 0), np.zeros(deep.global_shape))
        with pytest.raises(PencilMismatchError, match="components"):
            deep_view.to_pencil(pencil)
    assert everywhere(comm, holds(view.to_pencil(pencil), numbered((6, 5))))


def test_many_redistributions_leave_nothing_behind(comm):
    dist = random_dist(np.random.default_rng(2), (6,), comm.size, "c")
    view, pencil = view_of(comm, dist, numbered((6,))), Pencil((6,), comm)
    view.to_pencil(pencil)
    before = pencil.topology.communicators
    for _ in range(20):
        assert same(pencils.gather(view.to_pencil(pencil), None), numbered((6,)))
    assert pencil.topology.communicators == before
