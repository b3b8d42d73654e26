"""Boxes that are copied between blocks and parts, with the processes of all ranks in one."""

from itertools import product

import numpy as np
import pytest
from dap_cases import cyclic_indices
from hypothesis import given
from hypothesis import strategies as st

from pencils.comm.reduce import ReduceOp, as_reduce_op
from pencils.dap import BlockMap, CyclicMap, GlobalDimMap, UnstructuredMap
from pencils.dap.transfer import ArrayTransfer
from pencils.errors import ArgumentError
from pencils.layout import build_layout


@st.composite
def parts(draw, points):
    """Draw what every process along a dimension owns."""
    nprocs = draw(st.integers(1, 4))
    kind = draw(st.sampled_from("bcu"))
    if kind == "c":
        size = draw(st.integers(1, 5))
        return [
            CyclicMap(size=points, nprocs=nprocs, rank=r, block_size=size) for r in range(nprocs)
        ]
    inner = draw(st.lists(st.integers(0, points), min_size=nprocs - 1, max_size=nprocs - 1))
    bounds = [0, *sorted(inner), points]
    if kind == "u":
        lists = np.split(np.array(draw(st.permutations(range(points))), int), bounds[1:-1])
        return [
            UnstructuredMap(size=points, nprocs=nprocs, rank=r, indices=one)
            for r, one in enumerate(lists)
        ]
    return [
        BlockMap(size=points, nprocs=nprocs, rank=r, start=bounds[r], stop=bounds[r + 1])
        for r in range(nprocs)
    ]


@st.composite
def layouts(draw, ndim):
    shape = [draw(st.integers(0, 30 if ndim == 1 else 9)) for _ in range(ndim)]
    decomp = draw(st.permutations(range(ndim)))[: draw(st.integers(1, ndim))]
    grid = [draw(st.integers(1, 4)) for _ in decomp]
    parts = dict(zip(decomp, grid, strict=True))
    splits = [
        [0, *sorted(draw(st.integers(0, n)) for _ in range(parts.get(dim, 1) - 1)), n]
        for dim, n in enumerate(shape)
    ]
    order = draw(st.permutations(range(ndim)))
    size = int(np.prod(grid))
    return build_layout(shape, size, decomp=decomp, grid=grid, order=order, splits=splits)


@st.composite
def cases(draw):
    layout = draw(layouts(draw(st.integers(1, 3))))
    return layout, [GlobalDimMap(draw(parts(points))) for points in layout.shape]


def make_transfer(layout, dims):
    size = int(np.prod([dim.nprocs for dim in dims]))
    return ArrayTransfer(layout, dims, range(max(size, layout.size)))


def make_parts(transfer, dims, data):
    """Index global data for every rank that has a part."""
    owned = [
        [dim.parts[c].owned for dim, c in zip(dims, transfer.grid.coords(rank), strict=True)]
        for rank in range(transfer.grid.size)
    ]
    return [data[np.ix_(*(np.asarray(along, int) for along in one))] for one in owned]


def make_blocks(layout, data):
    return [data[layout.box(rank).slices()].copy() for rank in range(layout.size)]


def move(sources, targets):
    """Move what ranks share from one side to the other, and compare what both sides expect."""
    rooms = [home.room(other) for home, other in targets]
    for (here, (away, array)), (there, (home, _)) in product(
        enumerate(sources), enumerate(targets)
    ):
        views = zip(away.views(away.gather(array)), home.views(rooms[there]), strict=True)
        for number, (source, target) in enumerate(views):
            assert np.shares_memory(target, rooms[there]) or not target.size
            sends = [box for box in away.boxes[number] if box.peer == there]
            recvs = [box for box in home.boxes[number] if box.peer == here]
            assert len(sends) == len(recvs)
            for send, recv in zip(sends, recvs, strict=True):
                assert send.start == tuple(part.start for part in recv.key)
                assert recv.start == tuple(part.start for part in send.key)
                assert source[send.key].size
                target[recv.key] = source[send.key]
    for room, (home, other) in zip(rooms, targets, strict=True):
        home.scatter(room, other)


def sides(transfer, blocks, parts):
    """Pair what every rank exchanges with its array, for either side."""
    return (
        [(transfer.block(rank), block) for rank, block in enumerate(blocks)],
        [(transfer.part(rank), part) for rank, part in enumerate(parts)],
    )


@given(cases())
def test_parts_fill_blocks_and_blocks_fill_parts(case):
    layout, dims = case
    data = np.arange(1.0, 1 + np.prod(layout.shape)).reshape(layout.shape)
    transfer = make_transfer(layout, dims)
    blocks, parts = make_blocks(layout, data), make_parts(transfer, dims, data)
    filled = [np.zeros_like(block) for block in blocks]
    of_blocks, of_parts = sides(transfer, filled, parts)
    move(of_parts, of_blocks)
    assert all(map(np.array_equal, filled, blocks))
    filled = [np.zeros_like(part) for part in parts]
    of_blocks, of_parts = sides(transfer, blocks, filled)
    move(of_blocks, of_parts)
    assert all(map(np.array_equal, filled, parts))


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 9), st.integers(1, 6))
def test_a_cyclic_dimension_takes_few_boxes(points, nprocs, size, blocks):
    """At most one box of complete rounds and two of one row for each pair of ranks."""
    layout = build_layout((points,), blocks)
    maps = [CyclicMap(size=points, nprocs=nprocs, rank=r, block_size=size) for r in range(nprocs)]
    transfer = make_transfer(layout, [GlobalDimMap(maps)])
    for rank, part in product(range(blocks), range(nprocs)):
        boxes = transfer.block(rank).boxes
        shared = sorted(sum(box.peer == part for box in view) for view in boxes)
        assert shared in ([], [0], [1], [2], [0, 0], [0, 1], [0, 2], [1, 1], [1, 2])
    expected = cyclic_indices(points, nprocs, size)
    filled = [np.full(len(part), -1) for part in expected]
    of_blocks, of_parts = sides(transfer, make_blocks(layout, np.arange(points)), filled)
    move(of_blocks, of_parts)
    assert [part.tolist() for part in filled] == expected


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 9))
def test_cyclic_dimensions_are_not_copied_to_arrange_them(points, nprocs, size):
    layout = build_layout((points,), nprocs)
    maps = [CyclicMap(size=points, nprocs=nprocs, rank=r, block_size=size) for r in range(nprocs)]
    transfer = make_transfer(layout, [GlobalDimMap(maps)])
    for rank, block in enumerate(make_blocks(layout, np.arange(points))):
        part = np.zeros(maps[rank].count)
        assert np.shares_memory(transfer.part(rank).room(part), part) or not len(part)
        assert np.shares_memory(transfer.block(rank).room(block), block) or not len(block)


def test_no_rank_copies_views_that_no_block_needs():
    whole = GlobalDimMap([BlockMap(size=8, nprocs=1, rank=0, start=0, stop=8)])
    cyclic = GlobalDimMap([CyclicMap(size=8, nprocs=2, rank=r, block_size=2) for r in range(2)])
    transfer = make_transfer(build_layout((8, 8), 2), [cyclic, whole])
    assert [len(transfer.block(rank).boxes) for rank in range(2)] == [1, 1]


def test_combinings_have_names_and_types():
    with pytest.raises(ArgumentError, match="'land'"):
        as_reduce_op("mean", np.dtype(float))
    with pytest.raises(ArgumentError, match="or one of"):
        as_reduce_op([], np.dtype(float))
    assert as_reduce_op("sum", np.dtype(float)) is ReduceOp.SUM
    assert as_reduce_op(ReduceOp.BOR, np.dtype(bool)) is ReduceOp.BOR
    for name, dtype in (("band", "f8"), ("sum", "S3"), ("min", "i4, f8"), ("prod", "m8[s]")):
        with pytest.raises(ArgumentError, match="does not combine"):
            as_reduce_op(name, np.dtype(dtype))
