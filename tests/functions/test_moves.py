"""Rolled and flipped fields against NumPy."""

import numpy as np
import pytest
from fields import assert_holds, in_memory_order, spread
from mpi_helpers import DTYPES, numbered, same

import pencils
from pencils.functions.arguments import Line
from pencils.functions.moves import Mapping
from pencils.layout.split import Split

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("step", [0, 1, -2, 3, 17])
def test_roll_along_each_axis(pencil, step):
    whole = numbered((2, *pencil.shape))
    u = spread(pencil, whole, halo=1)
    for axis in range(whole.ndim):
        rolled = np.roll(u, step, axis)
        assert_holds(rolled, np.roll(whole, step, axis))
        assert in_memory_order(rolled)
        assert rolled.pencil is pencil
    for shift in (step, (step, 5)):
        rolled = np.roll(u, shift)
        assert_holds(rolled, np.roll(whole, shift))
        assert in_memory_order(rolled)
    assert_holds(np.roll(u[:, 1:], step), np.roll(whole[:, 1:], step))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_several_axes_and_all_types(pencil, dtype):
    whole = numbered(pencil.shape, dtype)
    u = spread(pencil, whole)
    axes = tuple(range(pencil.ndim))
    for found, expected in (
        (np.roll(u, 1, axes), np.roll(whole, 1, axes)),
        (np.roll(u, (1, -3), (0, -1)), np.roll(whole, (1, -3), (0, -1))),
        (np.roll(u, (1, 3), 0), np.roll(whole, (1, 3), 0)),
        (np.flip(u), np.flip(whole)),
        (np.flip(u, 0), np.flip(whole, 0)),
        (np.flip(u, (-1,)), np.flip(whole, -1)),
        (np.flipud(u), np.flipud(whole)),
    ):
        assert same(found.local, expected[found.local_slices])


def test_flip_components_and_singletons(pencil):
    vector = numbered((2, 3, *pencil.shape), int)
    for axis in (0, 1, -1, None, (1, 2)):
        assert_holds(np.flip(spread(pencil, vector), axis), np.flip(vector, axis))
    if pencil.ndim > 1:
        plane = numbered((*pencil.shape[:-1], 1), int)
        u = spread(pencil, plane, dims=range(pencil.ndim - 1))
        for found, expected in (
            (np.flip(u), np.flip(plane)),
            (np.roll(u, (1, 2), (0, -1)), np.roll(plane, (1, 2), (0, -1))),
            (np.roll(u, 3), np.roll(plane, 3)),
            (np.fliplr(u), np.fliplr(plane)),
        ):
            assert found.singletons == u.singletons
            assert_holds(found, expected)


def test_shared_memory_is_a_source(comm):
    pencil = pencils.Pencil((7, 6), comm)
    u = pencils.empty(pencil, shared=True)
    whole = numbered(pencil.shape)
    u.local[...] = whole[u.local_slices]
    for _ in range(3):
        assert_holds(np.flip(u), np.flip(whole))
        assert_holds(np.roll(u, 2, 0), np.roll(whole, 2, 0))


SPLITS = [
    Split(7, 3),
    Split(2, 5, "last"),
    Split(1, 3),
    Split(0, 3),
    Split.from_bounds((0, 0, 1, 2, 2, 2, 5, 6)),
    Split(5, 1),
]
MAPPINGS = [
    *map(Mapping, (0, 1, -1, 3, 12)),
    Mapping(reverse=True),
    *(Mapping(window=sides) for sides in ((1, 1), (2, 2), (0, 1), (3, 0), (9, 9))),
]


@pytest.mark.parallel([1])
@pytest.mark.parametrize("mapping", MAPPINGS, ids=str)
def test_all_parts_of_a_mapping_agree(mapping):
    for split in SPLITS:
        points = np.arange(split.points)
        moved = points[::-1] if mapping.reverse else np.roll(points, mapping.shift)
        lines = [Line(split, part, 1) for part in range(split.parts)]
        step = -1 if mapping.reverse else 1
        blocks = [points[slice(*line.bounds)][::step] for line in lines]
        sent = {}
        for line in lines:
            for part, here, there, count in mapping.sends(line):
                sent.setdefault((line.part, part), []).append((here, there, count))
        for line in lines:
            found = np.full(mapping.extent(line), -1)
            for owner, here, there, count in mapping.pieces(split, line.part):
                assert sent[owner, line.part].pop(0) == (there, here, count)
                assert (found[here : here + count] == -1).all()
                found[here : here + count] = blocks[owner][there : there + count]
            start, stop = line.bounds
            expected = moved[start:stop]
            if mapping.window is not None and start < stop:
                before, after = mapping.window
                expected = [*points[max(0, start - before) : start], *points[stop : stop + after]]
            np.testing.assert_array_equal(found, expected)
        assert not any(sent.values())
