"""Row programs: parts of a block."""

import itertools
import random

import numpy as np
import pytest

from pencils.comm import pack
from pencils.comm.row_program import RowBuilder, RowProgram, loop_of

implementations = pytest.mark.parametrize("name", dict.fromkeys([pack.available()[0], "numpy"]))


def shifted_sum(u, out, cut=(), width=1, shift=-1):
    """Return a program for ``out = where(u > 0, u, 2 * shifted u)`` within a halo."""
    inside = tuple(slice(width, n - width) for n in u.shape)
    aside = (slice(width + shift, u.shape[0] - width + shift), *inside[1:])
    rows = RowBuilder(out.shape, cut)
    given, target = rows.array(u), rows.array(out)
    here = rows.leaf(given, u[inside], lambda array: array[inside])
    there = rows.leaf(given, u[aside], lambda array: array[aside])
    (dtype, *_), product = loop_of(np.multiply, (u.dtype, u.dtype))
    _, larger = loop_of(np.greater, (u.dtype, u.dtype))
    zero, two = rows.constant(0, dtype), rows.constant(2, dtype)
    twice = rows.apply(np.multiply, product, dtype, (two, there))
    positive = rows.apply(np.greater, larger, np.dtype(bool), (here, zero))
    value = rows.where(positive, here, twice)
    rows.store(rows.cast(value, out.dtype), rows.leaf(target, out))
    return RowProgram(rows), np.where(u[inside] > 0, u[inside], 2 * u[aside])


def boxes_of(shape, cut, chosen):
    """Divide a block along some axes, at random indices."""
    parts = []
    for axis, points in enumerate(shape):
        cuts = sorted(chosen.choices(range(points + 1), k=2)) if axis in cut else []
        parts.append(list(itertools.pairwise([0, *cuts, points])))
    return list(itertools.product(*parts))


@implementations
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("seed", range(30))
def test_a_block_is_computed_in_parts(name, order, seed):
    chosen, rng = random.Random(seed), np.random.default_rng(seed)
    shape = tuple(chosen.choices([1, 2, 3, 7, 40, 200], k=chosen.randint(1, 4)))
    width = chosen.choice([0, 1])
    cut = chosen.sample(range(len(shape)), chosen.randint(1, len(shape)))
    u = rng.standard_normal([n + 2 * width for n in shape]).astype(chosen.choice("fd"), order=order)
    out = np.zeros(shape, chosen.choice(["d", "D"]), order=order)
    with pack.using(name):
        program, expected = shifted_sum(u, out, cut, width, -width)
        boxes = boxes_of(shape, cut, chosen)
        for box in chosen.sample(boxes, len(boxes)):
            key = tuple(slice(*pair) for pair in box)
            assert not out[key].any()
            program.run((u, out), [box])
            np.testing.assert_array_equal(out[key], expected[key])
    np.testing.assert_array_equal(out, expected)


@implementations
def test_parts_may_read_what_others_write(name):
    u = np.arange(48.0).reshape(6, 8) - 20
    with pack.using(name):
        program, expected = shifted_sum(u, u[1:-1, 1:-1])
    assert not program.written
    assert expected.shape == (4, 6)


@pytest.mark.skipif(pack.compiled() is None, reason="for compiled programs")
def test_other_boxes_raise():
    u, out = np.ones((4, 5, 6)), np.zeros((4, 5, 6))
    program, _ = shifted_sum(u, out, [1], 0, 0)
    with pytest.raises(ValueError, match="leaves the block"):
        program.run((u, out), [[(0, 4), (0, 6), (0, 6)]])
    program, _ = shifted_sum(u, out, [], 0, 0)
    with pytest.raises(ValueError, match="not cut along"):
        program.run((u, out), [[(0, 3), (0, 5), (0, 6)]])
