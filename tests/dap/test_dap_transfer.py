"""Boxes that are copied between blocks and parts, with the processes of all ranks in one."""

from itertools import product

import numpy as np
import pytest
from dap_cases import cyclic_indices
from distributed_cases import KINDS
from hypothesis import given
from hypothesis import strategies as st

from pencils.comm.reduce import ReduceOp, as_reduce_op
from pencils.dap import CyclicMap, GlobalDimMap
from pencils.dap.view import arrange
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid, build_layout


@st.composite
def parts(draw, points):
    """Draw what every process along a dimension owns."""
    draw_maps, seed = KINDS[draw(st.sampled_from("bcu"))], draw(st.integers(0, 2**32 - 1))
    return draw_maps(np.random.default_rng(seed), points, draw(st.integers(1, 4)))


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


def arranged(layout, dims):
    """Arrange the blocks of all ranks of a layout, and all parts."""
    grid = ProcessGrid(tuple(dim.nprocs for dim in dims))
    members = range(max(grid.size, layout.size))
    blocks = [arrange(layout, dims, members, rank, block=True) for rank in range(layout.size)]
    return blocks, [arrange(layout, dims, members, rank, block=False) for rank in range(grid.size)]


def make_blocks(layout, data):
    return [data[layout.box(rank).slices()].copy() for rank in range(layout.size)]


def make_parts(dims, data):
    """Index global data for every rank that has a part."""
    lists = product(*([np.asarray(part.owned, int) for part in dim.parts] for dim in dims))
    return [data[np.ix_(*along)] for along in lists]


def move(away, sources, home, targets):
    """Move what ranks share from one side to the other, and compare what both sides expect."""
    rooms = [one.room(array) for one, array in zip(home, targets, strict=True)]
    for here, there in product(range(len(away)), range(len(home))):
        sends = [box for box in away[here].boxes if box.peer == there]
        recvs = [box for box in home[there].boxes if box.peer == here]
        assert len(sends) == len(recvs) <= 1
        for send, recv in zip(sends, recvs, strict=True):
            assert send.start == tuple(part.start for part in recv.key)
            assert recv.start == tuple(part.start for part in send.key)
            values = away[here].gather(sources[here])[send.key]
            assert values.size
            rooms[there][recv.key] = values
    for one, room, array in zip(home, rooms, targets, strict=True):
        one.scatter(room, array)


@given(cases())
def test_parts_fill_blocks_and_blocks_fill_parts(case):
    layout, dims = case
    data = np.arange(1.0, 1 + np.prod(layout.shape)).reshape(layout.shape)
    of_blocks, of_parts = arranged(layout, dims)
    blocks, parts = make_blocks(layout, data), make_parts(dims, data)
    filled = [np.zeros_like(block) for block in blocks]
    move(of_parts, parts, of_blocks, filled)
    assert all(map(np.array_equal, filled, blocks))
    filled = [np.zeros_like(part) for part in parts]
    move(of_blocks, blocks, of_parts, filled)
    assert all(map(np.array_equal, filled, parts))


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 9), st.integers(1, 6))
def test_cyclic_parts_are_not_copied_to_arrange_them(points, nprocs, size, blocks):
    layout = build_layout((points,), blocks)
    maps = [CyclicMap(size=points, nprocs=nprocs, rank=r, block_size=size) for r in range(nprocs)]
    of_blocks, of_parts = arranged(layout, [GlobalDimMap(maps)])
    expected = cyclic_indices(points, nprocs, size)
    filled = [np.full(len(part), -1) for part in expected]
    move(of_blocks, make_blocks(layout, np.arange(points)), of_parts, filled)
    assert [part.tolist() for part in filled] == expected
    assert all(isinstance(along, slice) for one in of_parts for along in one.points)


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
