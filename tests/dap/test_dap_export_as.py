"""Exports of fields in another distribution: as all ranks want it, and back again."""

import numpy as np
import pytest
from distributed_cases import at, lists, maps_of, random_dist
from mpi4py import MPI
from mpi_helpers import (
    DTYPES,
    all_raise,
    everywhere,
    holds,
    named,
    numbered,
    random_pencil,
    ranks_at_fault,
    same,
    spread,
)

import pencils
from pencils import Pencil, dap
from pencils.errors import ArgumentError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def cyclic(comm, size=6, **other):
    return dap.CyclicMap(**{"size": size, "nprocs": comm.size, "rank": comm.rank} | other)


def listed(comm, size, indices, **other):
    place = {"nprocs": comm.size, "rank": comm.rank}
    return dap.UnstructuredMap(size=size, indices=indices, **place, **other)


def refused(u, maps, kind, *texts, version="0.10.0"):
    all_raise(MPI.COMM_WORLD, kind, texts, dap.export_as, u, maps, version)


def view_of(comm, exported):
    """Take an export for what it is."""
    dist = dap.validate_on(comm, exported)
    return dap.DistributedView(comm, dist, dap.validate(exported).dims, exported["buffer"])


@pytest.mark.parametrize("seed", range(40))
def test_every_rank_gets_what_it_wants(comm, seed):
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4))
    pencil = random_pencil(rng, comm, rng.integers(int(seed % 8 > 0), 9, ndim).tolist())
    dims = [dim for dim in range(ndim) if rng.random() < 0.8]
    shape = [n if dim in dims else 1 for dim, n in enumerate(pencil.shape)]
    data = numbered(shape, DTYPES[:11][rng.integers(11)])
    u = spread(pencil, data, dims=dims, halo=[int(dim in dims) for dim in range(ndim)])
    dist = random_dist(rng, shape, comm.size)
    version = str(rng.choice(dap.VERSIONS))
    exported = dap.export_as(u, maps_of(dist, comm.rank), version)
    assert list(exported) == ["__version__", "buffer", "dim_data"]
    assert exported["__version__"] == version
    again = dap.validate_on(comm, exported)
    assert everywhere(comm, all(map(np.array_equal, again.owned(comm.rank), dist.owned(comm.rank))))
    assert everywhere(comm, same(exported["buffer"], data[at(dist, comm.rank)]))


@pytest.mark.parametrize("kinds", ["b", "c", "u", "bc", "cu", "bcu"])
@pytest.mark.parametrize("seed", range(6))
def test_there_and_back(comm, kinds, seed):
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 9, rng.integers(1, 4)).tolist()
    data = numbered(shape, DTYPES[rng.integers(12)])
    u = spread(random_pencil(rng, comm, shape), data)
    maps = maps_of(random_dist(rng, shape, comm.size, kinds), comm.rank)
    view = view_of(comm, dap.export_as(u, maps))
    other = random_pencil(rng, comm, shape)
    assert everywhere(comm, holds(view.to_pencil(other), data))
    assert everywhere(comm, holds(view.to_pencil(u.pencil, halo=1), data))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_elements(comm, dtype):
    data = numbered((9, 4), dtype)
    u = spread(Pencil((9, 4), comm), data)
    maps = maps_of(random_dist(np.random.default_rng(4), (9, 4), comm.size, "cu"), comm.rank)
    if dtype.kind == "M":
        refused(u, maps, dap.UnsupportedError, "no buffer")
        return
    view = view_of(comm, dap.export_as(u, maps))
    assert everywhere(comm, holds(view.to_pencil(u.pencil), data))


def test_components_stay_whole(comm):
    data = numbered((2, 3, 7, 5))
    u = spread(Pencil((7, 5), comm, order=(1, 0)), data, halo=1)
    dist = random_dist(np.random.default_rng(4), (7, 5), comm.size, "c")
    whole = [dap.BlockMap(size=n, start=0, stop=n) for n in (2, 3)]
    maps = (*whole, *maps_of(dist, comm.rank))
    exported = dap.export_as(u, maps)
    expected = data[(slice(None), slice(None), *at(dist, comm.rank))]
    assert everywhere(comm, same(exported["buffer"], expected))
    assert everywhere(comm, holds(view_of(comm, exported).to_pencil(u.pencil), data))
    cut = dap.BlockMap(
        size=2, nprocs=2, rank=min(comm.rank, 1), start=int(comm.rank > 0), stop=1 + (comm.rank > 0)
    )
    refused(u, (cut, *maps[1:]), dap.UnsupportedError, "components", "D3")


def test_fields_in_shared_memory_that_may_not_be_written(comm):
    pencil = Pencil((8, 6), comm)
    u = pencils.zeros(pencil, shared=True)
    u.local[...] = numbered((8, 6))[u.local_slices]
    u.local.flags.writeable = False
    dist = random_dist(np.random.default_rng(9), (8, 6), comm.size, "c")
    exported = dap.export_as(u, maps_of(dist, comm.rank))
    assert everywhere(comm, same(exported["buffer"], numbered((8, 6))[at(dist, comm.rank)]))
    comm.barrier()


def test_few_points_for_many_ranks(comm):
    u = spread(Pencil(1, comm), numbered((1,)))
    for size in (1, 5):
        exported = dap.export_as(u, [cyclic(comm, 1, block_size=size)])
        assert everywhere(comm, exported["buffer"].shape == (int(comm.rank == 0),))
        assert everywhere(comm, holds(view_of(comm, exported).to_pencil(u.pencil), numbered((1,))))


def test_sizes_of_shared_lists_count_points_or_copies(comm):
    u = spread(Pencil(5, comm), numbered((5,)))
    indices = np.array([4, 0, 2])
    for size in (3, 3 * comm.size):
        exported = dap.export_as(u, [listed(comm, size, indices)])
        assert everywhere(comm, exported["buffer"].tolist() == [5.0, 1.0, 3.0])
    refused(u, [listed(comm, 4, indices)], dap.CollectiveError, "G8")


def wrong_maps(rank, size):
    """Yield maps that no field of 6 points can have, and what is said about them."""
    place = {"nprocs": size, "rank": rank}
    start, stop = 6 * rank // size, 6 * (rank + 1) // size
    block = {"size": 6, **place, "start": start}
    yield dap.SemanticError, "B2", dap.BlockMap(**block, stop=start - 1)
    yield dap.SemanticError, "B2", dap.BlockMap(**block, stop=7)
    yield dap.SemanticError, "B2", dap.BlockMap(**block, stop=2**62)
    yield dap.UnsupportedError, "D2", dap.CyclicMap(size=7, **place)
    yield dap.UnsupportedError, "D2", dap.CyclicMap(size=2**62, **place)
    yield dap.SemanticError, "C2", dap.CyclicMap(size=6, **place, block_size=0)
    yield dap.StructureError, "D3", dap.CyclicMap(size=6, nprocs=0)
    yield dap.UnsupportedError, "B5", dap.BlockMap(**block, stop=stop, boundary=(1, 0))
    for kind, indices in (
        (dap.SemanticError, [1, 1]),
        (dap.UnsupportedError, [0, 6]),
        (dap.UnsupportedError, [0, -1]),
    ):
        part = dap.UnstructuredMap(size=2 * size, **place, indices=np.array(indices))
        yield kind, "U2", part
    yield dap.SemanticError, "U1", dap.UnstructuredMap(size=2, **place, indices=np.array([0.5, 2]))
    yield dap.StructureError, "D4", dap.CyclicMap(size=6, nprocs=size, rank=size)
    if size > 1:
        ghosts = (int(rank > 0), int(rank < size - 1))
        ghosted = dap.BlockMap(**block, stop=stop, ghosts=ghosts)
        yield dap.UnsupportedError, "B5", ghosted


def test_maps_that_are_wrong_on_one_rank_raise_on_all(comm):
    u = spread(Pencil(6, comm), numbered((6,)))
    good = cyclic(comm)
    for fault in ranks_at_fault(comm):
        here = comm.rank == fault
        for kind, code, wrong in wrong_maps(fault, comm.size):
            refused(u, [wrong if here else good], kind, f"rank {fault}", f"rule {code}")
        for bad, kind in (
            ([], ArgumentError),
            (3, ArgumentError),
            (["c"], TypeError),
            ([dap.CyclicMap(size=6, block_size=1.5)], TypeError),
            ([dap.CyclicMap(size=6, nprocs=None)], TypeError),
            ([dap.BlockMap(size=6, start=0.5, stop=6)], TypeError),
        ):
            refused(u, bad if here else [good], kind, named(comm, fault))
        refused(None if here else u, [good], TypeError, "PencilArray")
    exported = dap.export_as(u, [good])
    assert everywhere(comm, same(exported["buffer"], numbered((6,))[comm.rank :: comm.size]))


def test_maps_that_do_not_fit_together_raise_on_all_ranks(comm):
    u = spread(Pencil(6, comm), numbered((6,)))
    refused(u, [], dap.VersionError, "E2", version="0.10")
    refused(u, [dap.CyclicMap(size=6, nprocs=comm.size + 1)], dap.CollectiveError, "G2")
    if comm.size == 1:
        return
    for code, part in (
        ("G3", cyclic(comm, rank=comm.size - 1 - comm.rank)),
        ("G1", cyclic(comm, block_size=comm.rank + 1)),
        ("G9", listed(comm, comm.size, np.array([3]), one_to_one=True)),
    ):
        refused(u, [part], dap.CollectiveError, code)
    version = dap.VERSIONS[comm.rank == 0]
    refused(u, [cyclic(comm)], RankDisagreementError, "version", version=version)


def test_blocks_may_be_larger_than_memory(comm):
    data = numbered((6, 4))
    u = spread(Pencil((6, 4), comm), data)
    exported = dap.export_as(u, [cyclic(comm, block_size=2**59), dap.CyclicMap(size=4)])
    assert everywhere(comm, exported["buffer"].shape == (6 * (comm.rank == 0), 4))
    assert everywhere(comm, holds(view_of(comm, exported).to_pencil(u.pencil), data))


def test_lists_that_share_points_count_each_of_them(comm):
    u = spread(Pencil(6, comm), numbered((6,)))
    exported = dap.export_as(u, [listed(comm, 6, np.arange(6))])
    assert everywhere(comm, exported["dim_data"][0]["size"] == 6 * comm.size)
    assert everywhere(comm, holds(view_of(comm, exported).to_pencil(u.pencil), numbered((6,))))


def test_a_list_of_indices_is_as_good_as_an_array(comm):
    pen = pencils.Pencil((4 * comm.size,), comm)
    u = pencils.from_function(pen, lambda i: 10.0 * i)
    mine = [4 * comm.rank + i for i in (3, 1, 0, 2)]
    for indices in (mine, tuple(mine), np.array(mine)):
        exported = dap.export_as(u, [listed(comm, 4 * comm.size, indices)])
        assert exported["buffer"].tolist() == [10.0 * i for i in mine]
    assert dap.UnstructuredMap(size=4, indices=[]).count == 0
    with pytest.raises(TypeError, match="must be integers"):
        dap.UnstructuredMap(size=4, indices=[0.5])


@pytest.mark.parametrize("dtype", ["i1", "u1", ">i4", "u8"])
def test_lists_may_have_any_integer_type(comm, dtype):
    shuffled = np.random.default_rng(7).permutation(60)
    cut = [part.astype(dtype) for part in np.array_split(shuffled, comm.size)]
    parts = lists(cut, one_to_one=False)
    u = spread(Pencil(shuffled.shape, comm), numbered(shuffled.shape, "f8"))
    view = view_of(comm, dap.export_as(u, [parts[comm.rank]]))
    assert everywhere(comm, same(view.buffer, numbered(shuffled.shape, "f8")[view.owned[0]]))
    for reduce in (None, "sum"):
        assert everywhere(comm, same(view.to_pencil(u.pencil, reduce=reduce).local, u.local))
    assert hash(view.dist) == hash(dap.GlobalDist((dap.GlobalDimMap(view.dist.dims[0].parts),)))
