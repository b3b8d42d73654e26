"""Owners and places of points, computed for all ranks in one process."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pencils.comm.rows import locate
from pencils.indexer.requests import locate_replicas, points_on
from pencils.layout import build_layout


@st.composite
def layouts(draw):
    """Draw a layout, some of whose dimensions may be singletons."""
    ndim = draw(st.integers(1, 3))
    shape = draw(st.lists(st.integers(1, 6), min_size=ndim, max_size=ndim))
    decomp = draw(st.permutations(range(ndim)))[: draw(st.integers(1, ndim))]
    grid = draw(st.lists(st.integers(1, 4), min_size=len(decomp), max_size=len(decomp)))
    splits = draw(
        st.lists(st.sampled_from(["first", "last", "floor", "ceil"]), min_size=ndim, max_size=ndim)
    )
    order = draw(st.permutations(range(ndim)))
    layout = build_layout(
        shape, int(np.prod(grid)), decomp=decomp, grid=grid, order=order, splits=splits
    )
    return layout.with_singletons(draw(st.sets(st.integers(0, ndim - 1))))


def blocks(layout):
    """Count the points of every block in memory order, as a logical array."""
    found = []
    for rank in range(layout.size):
        shape = layout.box(rank).shape
        axes = layout.order
        numbers = np.arange(np.prod(shape, dtype=int)).reshape([shape[dim] for dim in axes])
        found.append(numbers.transpose(np.argsort(axes)))
    return found


@given(layouts(), st.data())
def test_every_point_is_found(layout, data):
    near = data.draw(st.integers(0, layout.size - 1))
    coords = np.indices(layout.shape).reshape(layout.ndim, -1)
    owners, offsets = locate(points_on(layout, coords, layout.parts(near)))
    numbers = blocks(layout)
    for point, owner, offset in zip(coords.T, owners, offsets, strict=True):
        box = layout.box(int(owner))
        assert tuple(point) in box
        assert numbers[owner][tuple(point - box.start)] == offset
        away = [a != b for a, b in zip(layout.parts(int(owner)), layout.parts(near), strict=True)]
        assert not any(a and layout.splits[dim].replicated for dim, a in enumerate(away))


@given(layouts())
def test_all_replicas_are_found(layout):
    coords = np.indices(layout.shape).reshape(layout.ndim, -1)
    owners, offsets = locate_replicas(layout, coords)
    replicas = len(owners) // coords.shape[1]
    holders = [
        (rank, point)
        for rank in range(layout.size)
        for point in map(tuple, coords.T)
        if point in layout.box(rank)
    ]
    numbers = blocks(layout)
    found = [
        (int(owner), tuple(point))
        for owner, point in zip(owners, np.tile(coords.T, (replicas, 1)), strict=True)
    ]
    assert sorted(found) == sorted(holders)
    for (owner, point), offset in zip(found, offsets, strict=True):
        assert numbers[owner][tuple(np.subtract(point, layout.box(owner).start))] == offset


def test_a_million_ranks_cost_nothing():
    layout = build_layout((4096, 4096, 4096), 10**6, decomp=(0, 1), grid=(1000, 1000))
    coords = [np.array([0, 4095])] * 3
    owners, offsets = locate(points_on(layout, coords, (0, 0, 0)))
    assert owners.tolist() == [0, 999_999]
    assert offsets[1] == layout.box(999_999).volume - 1
