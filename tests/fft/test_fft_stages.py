"""Stages of transforms, planned without any process: possible, complete and few."""

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pencils.fft.execute import chunk_keys, chunk_shape
from pencils.layout import stages
from pencils.layout.stages import Stage, plan_stages


@st.composite
def tasks(draw):
    ndim = draw(st.integers(1, 5))
    dims = list(range(ndim))
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=ndim, max_size=ndim)))
    decomp = tuple(draw(st.permutations(dims)))[: draw(st.integers(1, ndim))]
    grid = tuple(draw(st.integers(1, 4)) for _ in decomp)
    axes = tuple(draw(st.permutations(dims)))[: draw(st.integers(0, ndim))]
    first = draw(st.sampled_from([None, *axes]))
    free = [axis for axis in axes if axis != first and draw(st.booleans())]
    return shape, decomp, grid, axes, first, free


def is_whole(stage, dim):
    return all(d != dim or p == 1 for d, p in zip(stage.decomp, stage.grid, strict=True))


@given(tasks())
def test_every_axis_is_transformed_once_where_it_is_whole(task):
    shape, decomp, grid, axes, first, free = task
    stages = plan_stages(shape, decomp, grid, axes, first=first, free=free)
    done = [axis for stage in stages for axis in stage.axes]
    assert sorted(done) == sorted(axes)
    assert stages[0][:2] == (decomp, grid)
    assert all(stage.axes for stage in stages[1:])
    if first is not None:
        assert set(done[: done.index(first)]) <= set(free)
    for stage in stages:
        assert len(set(stage.decomp)) == len(stage.decomp)
        assert prod(stage.grid) == prod(grid)
        assert len(shape) == 1 or all(is_whole(stage, axis) for axis in stage.axes)
    if len(decomp) < len(shape):
        assert {stage.grid for stage in stages} == {grid}


@given(tasks())
def test_there_are_no_more_transposes_than_needed(task):
    """With k of n dimensions cut, n - k are whole each time, and all must have their turn."""
    shape, decomp, grid, axes, first, free = task
    stages = plan_stages(shape, decomp, grid, axes, first=first, free=free)
    cut = sum(parts > 1 for parts in grid)
    if not all(is_whole(stages[0], axis) for axis in axes):
        whole = max(1, len(shape) - cut)
        most = 1 + -(-len(axes) // whole) if first is None else 2 + -(-len(axes) // whole)
        assert 2 <= len(stages) <= 1 + most
    else:
        assert len(stages) == 1


@given(tasks())
def test_an_axis_that_comes_last_is_whole_at_the_end(task):
    shape, decomp, grid, axes, first, free = task
    last = next((dim for dim in range(len(shape)) if dim not in axes), None)
    if last is not None and len(shape) > 1:
        stages = plan_stages(shape, decomp, grid, (last, *axes), first=first, free=free, last=last)
        done = [axis for stage in stages for axis in stage.axes]
        assert sorted(done[:-1]) == sorted(axes)
        assert done[-1] == last
        assert is_whole(stages[-1], last)


def test_slabs_take_one_transpose_and_pencils_two():
    assert plan_stages((8, 8, 8), (0,), (4,), (2, 1, 0), first=2) == [
        Stage((0,), (4,), (2, 1)),
        Stage((1,), (4,), (0,)),
    ]
    assert plan_stages((8, 8, 8), (0,), (4,), (2, 0, 1), first=2, last=1) == [
        Stage((0,), (4,), (2,)),
        Stage((2,), (4,), (0, 1)),
    ]
    assert plan_stages((8, 8, 8), (0, 1), (2, 2), (2, 1, 0), first=2) == [
        Stage((0, 1), (2, 2), (2,)),
        Stage((0, 2), (2, 2), (1,)),
        Stage((1, 2), (2, 2), (0,)),
    ]


def test_few_ways_are_tried(monkeypatch):
    """What cuts a dimension that does not wait is not moved: there are ten times as many ways."""
    tried = []

    def look(*args):
        tried.append(args)
        return possible(*args)

    possible = stages._possible
    monkeypatch.setattr(stages, "_possible", look)
    assert len(plan_stages((9,) * 7, (0, 1, 2, 3), (2,) * 4, range(7)[::-1], first=6)) == 3
    assert len(tried) < 10_000


def test_two_cuts_move_at_once_where_there_is_room():
    stages = plan_stages((8, 8, 8, 8), (0, 1), (2, 2), (3, 2, 1, 0))
    assert [set(stage.axes) for stage in stages] == [{3, 2}, {1, 0}]


def test_the_order_given_breaks_ties():
    for order in ((2, 1, 0), (2, 0, 1)):
        stages = plan_stages((8, 8, 8), (0, 1), (2, 2), order)
        assert [stage.axes for stage in stages] == [(axis,) for axis in order]


def test_processes_are_not_left_without_points():
    """Two points cannot be cut in four, so the cut goes where there are more."""
    stages = plan_stages((8, 2, 8), (0,), (4,), (2, 1, 0))
    assert stages[1].decomp == (2,)


def test_when_all_dimensions_are_cut_two_cuts_become_one():
    stages = plan_stages((8, 8), (0, 1), (2, 3), (1, 0))
    assert [stage.grid for stage in stages] == [(2, 3), (6,), (6,)]
    assert [stage.axes for stage in stages] == [(), (1,), (0,)]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.sets(st.integers(0, 3)),
    st.integers(1, 200),
)
def test_pieces_cover_a_block_once(shape, whole, most):
    whole = {axis for axis in whole if axis < len(shape)}
    size = chunk_shape(shape, whole, most)
    seen = [0] * prod(shape)
    for key in chunk_keys(shape, size, whole):
        ranges = [range(n)[part] for n, part in zip(shape, key, strict=True)]
        points = [()]
        for along in ranges:
            points = [(*point, i) for point in points for i in along]
        assert len(points) <= max(most, prod(shape[axis] for axis in whole))
        for point in points:
            place = 0
            for n, i in zip(shape, point, strict=True):
                place = place * n + i
            seen[place] += 1
    assert set(seen) <= {1}


@pytest.mark.parametrize("ndim", [2, 3, 4, 5])
def test_all_grids_lead_through_all_axes(ndim):
    dims = tuple(range(ndim))
    for k in range(1, ndim):
        stages = plan_stages((9,) * ndim, dims[:k], (2,) * k, dims[::-1])
        assert len(stages) == -(-ndim // (ndim - k))
        for one, other in pairwise(stages):
            assert one.decomp != other.decomp
