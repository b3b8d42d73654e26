"""Index maps against dealing points one by one, and against looking at every buffer."""

import numpy as np
import pytest
from dap_cases import any_dims, buffer_of, cyclic_indices, versions, worlds
from hypothesis import given
from hypothesis import strategies as st

from pencils.dap import (
    BlockMap,
    CyclicMap,
    DAPError,
    GlobalDimMap,
    GlobalDist,
    UnstructuredMap,
    emit,
    num_owned_indices,
)
from pencils.errors import ArgumentError

dims = versions.flatmap(any_dims)


@given(st.integers(0, 60), st.integers(1, 8), st.integers(1, 12))
def test_cyclic_maps_deal_blocks_in_turn(size, nprocs, block_size):
    owned = cyclic_indices(size, nprocs, block_size)
    parts = [
        CyclicMap(size=size, nprocs=nprocs, rank=r, block_size=block_size) for r in range(nprocs)
    ]
    assert [list(part.owned) for part in parts] == owned
    assert [part.count for part in parts] == [len(indices) for indices in owned]
    for part, indices in zip(parts, owned, strict=True):
        assert part.local_to_global(np.arange(len(indices))).tolist() == indices
        assert part.global_to_local(indices).tolist() == list(range(len(indices)))
    whole = GlobalDimMap(parts)
    for rank, indices in enumerate(owned):
        for local, index in enumerate(indices):
            assert whole.owner(index) == (rank, local)


@given(versions.flatmap(lambda version: st.tuples(st.just(version), any_dims(version))))
def test_owned_points_are_counted_from_the_dictionaries(drawn):
    version, parts = drawn
    said = [emit([part], version)[0] for part in parts]
    counts = [num_owned_indices(dim, version) for dim in said]
    assert counts == [len(set(buffer_of(part)[part.owned_slice])) for part in parts]
    assert sum(counts) == parts[0].size


def test_what_has_no_owned_points_to_count():
    for wrong in ({}, {"dist_type": "n", "size": 3}, {"dist_type": "c", "size": 3}):
        with pytest.raises(DAPError):
            num_owned_indices(wrong)
    with pytest.raises(DAPError, match="E2"):
        num_owned_indices({"dist_type": "n", "size": 3}, "1.0")
    with pytest.raises(TypeError, match="dim_dict must be a Mapping"):
        num_owned_indices(3)
    assert num_owned_indices({"dist_type": "n", "size": 3}, "0.9.0") == 3


@given(dims)
def test_local_to_global_reads_the_buffer(parts):
    for part in parts:
        buffer, inner = buffer_of(part), part.owned_slice
        assert part.extent == len(buffer)
        assert buffer[inner] == list(part.owned)
        assert part.count == len(part.owned)
        every = np.arange(part.extent)
        assert part.local_to_global(every, ghosts=True).tolist() == buffer
        assert part.local_to_global(every[inner]).tolist() == buffer[inner]
        for local in set(range(-1, part.extent + 1)) - set(every[inner].tolist()):
            with pytest.raises(IndexError, match=f"local index {local} does not exist here"):
                part.local_to_global(local)


@given(dims)
def test_global_to_local_finds_owned_points_first_and_ghosts_if_asked(parts):
    for part in parts:
        buffer, inner = buffer_of(part), part.owned_slice
        lower, upper = range(inner.start)[::-1], range(inner.stop, part.extent)
        nearest = [*range(inner.start, inner.stop), *lower, *upper]
        for index in {-1, part.size, *range(part.size), *buffer}:
            places = [local for local in nearest if buffer[local] == index]
            own = [local for local in places if local in range(inner.start, inner.stop)]
            check_place(part, index, own, ghosts=False)
            check_place(part, index, places, ghosts=True)


def check_place(part, index, places, *, ghosts):
    if places:
        assert part.global_to_local(index, ghosts=ghosts) == places[0]
    else:
        with pytest.raises(IndexError, match=f"global index {index} does not exist here"):
            part.global_to_local(index, ghosts=ghosts)


@given(dims)
def test_global_maps_know_all_owners(parts):
    whole = GlobalDimMap(parts)
    assert (whole.size, whole.nprocs, whole.periodic) == (
        parts[0].size,
        len(parts),
        parts[0].periodic,
    )
    assert whole.counts.tolist() == [len(part.owned) for part in parts]
    points = sorted({int(index) for part in parts for index in part.owned})
    firsts = []
    for index in points:
        owners = [
            (rank, buffer_of(part).index(index, part.owned_slice.start))
            for rank, part in enumerate(parts)
            if index in part.owned
        ]
        assert whole.owners(index) == owners
        assert whole.owner(index) == owners[0]
        firsts.append(owners[0])
    ranks, local = whole.owner(np.array(points, int))
    assert list(zip(ranks.tolist(), local.tolist(), strict=True)) == firsts
    for index in {-1, -60, parts[0].size, 60} - set(points):
        assert whole.owners(index) == []
        with pytest.raises(IndexError, match=rf"global index {index} does not exist here"):
            whole.owner(index)


@given(dims.filter(lambda parts: parts[0].kind == "block"))
def test_bounds_are_where_blocks_begin_and_end(parts):
    bounds = GlobalDimMap(parts).bounds.tolist()
    assert bounds == [*(part.start for part in parts), parts[0].size]


@given(dims.filter(lambda parts: parts[0].kind == "unstructured"))
def test_distinct_and_shared_indices_are_counted(parts):
    whole = GlobalDimMap(parts)
    joined = [index for part in parts for index in part.owned.tolist()]
    shared = {index for index in joined if joined.count(index) > 1}
    assert whole.distinct == len(set(joined))
    assert whole.first_shared() == min(shared, default=None)


@given(worlds(3))
def test_the_whole_array_agrees_with_every_process(world):
    _, along = world
    dist = GlobalDist(tuple(map(GlobalDimMap, along)))
    grid = tuple(len(parts) for parts in along)
    assert dist.grid_shape == grid
    assert dist.global_shape == tuple(parts[0].size for parts in along)
    for rank, coords in enumerate(np.ndindex(*grid)):
        assert dist.rank_of(coords) == rank
        assert dist.coords_of(rank) == coords
        parts = [parts[c] for parts, c in zip(along, coords, strict=True)]
        owned = dist.owned(rank)
        assert [list(o) for o in owned] == [list(part.owned) for part in parts]
        if all(map(len, owned)):
            index = tuple(int(o[-1]) for o in owned)
            found, local = dist.owner(index)
            assert found <= rank  # the lowest of several owners
            there = zip(dist.dims, dist.coords_of(found), local, strict=True)
            assert index == tuple(dim.parts[c].local_to_global(i) for dim, c, i in there)


def test_owner_takes_arrays_for_many_elements():
    parts = [BlockMap(size=6, nprocs=2, rank=r, start=3 * r, stop=3 * r + 3) for r in range(2)]
    dist = GlobalDist((GlobalDimMap(parts), GlobalDimMap(parts)))
    i, j = np.indices((6, 6))
    rank, local = dist.owner((i, j))
    assert rank.tolist() == (i // 3 * 2 + j // 3).tolist()
    assert [part.tolist() for part in local] == [(i % 3).tolist(), (j % 3).tolist()]


def test_what_is_not_an_element_raises():
    dist = GlobalDist((GlobalDimMap([BlockMap(size=3, start=0, stop=3)]),))
    with pytest.raises(ArgumentError, match="one entry for each of 1 dimensions"):
        dist.owner((1, 2))
    with pytest.raises(ArgumentError, match=r"must lie in the process grid \(1,\)"):
        dist.rank_of((1,))
    with pytest.raises(ArgumentError, match="rank 1 must be one of the 1 processes"):
        dist.coords_of(1)
    for wrong in (1.0, True, [0.5], "1", 2**70):
        with pytest.raises(TypeError, match="must be integers"):
            dist.owner((wrong,))
    assert dist.dims[0].owner([])[0].tolist() == []


def test_unstructured_maps_are_equal_if_their_lists_are():
    one, same, other = (
        UnstructuredMap(size=3, indices=np.array(indices)) for indices in ([3, 1], [3, 1], [1, 3])
    )
    assert one == same != other
    assert hash(one) == hash(same)
    assert one != BlockMap(size=3, start=0, stop=3)
