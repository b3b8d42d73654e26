"""Row programs: parts of a block, allocations that fail, and formulas."""

import itertools
import random

import numpy as np
import pytest

from pencils.comm import pack
from pencils.comm.row_builder import RowBuilder, loop_of
from pencils.comm.row_compiler import RowCompiler
from pencils.comm.row_program import RowProgram
from pencils.comm.row_reduction import BlockReduction

implementations = pytest.mark.parametrize("name", dict.fromkeys([pack.available()[0], "numpy"]))


def shifted_rows(u, out, cut=(), width=1, shift=-1):
    """Return what computes ``where(u > 0, u, 2 * shifted u)`` within a halo, and the result."""
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
    return rows, np.where(u[inside] > 0, u[inside], 2 * u[aside])


def shifted_sum(*args):
    """Return the program of `shifted_rows`, and the result."""
    rows, expected = shifted_rows(*args)
    return RowProgram(rows), expected


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
    shape = tuple(chosen.choices([0, 1, 2, 3, 7, 40, 200], k=chosen.randint(1, 4)))
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
        program.run((u, out), [[(0, 4), (0, 3), (0, 6)]])


@pytest.mark.skipif(pack.compiled() is None, reason="for compiled programs")
def test_each_allocation_may_fail():
    failing = pytest.importorskip("_testcapi")
    u, out = np.linspace(-1, 1, 6000).reshape(10, 20, 30), np.zeros((8, 18, 28))
    rows, expected = shifted_rows(u, out)
    arguments = RowCompiler(rows).arguments()
    arrays = (u, out, *rows.constants)

    def fails(function, number):
        """Call a function while one of the allocations fails."""
        failing.set_nomemory(number, number + 1)
        try:
            return function()
        except MemoryError:
            return MemoryError
        finally:
            failing.remove_mem_hooks()

    made = [fails(lambda: pack.compiled().RowProgram(*arguments), i) for i in range(40)]
    assert made.count(MemoryError) > 4
    assert made[-1] is not MemoryError
    found = []
    for i in range(40):
        out[...] = 0
        run = pack.compiled().RowProgram(*arguments).run
        found.append(fails(lambda run=run: run(arrays), i))
        if found[-1] is MemoryError:
            assert run(arrays) is None
        np.testing.assert_array_equal(out, expected)
    assert MemoryError in found[:4]
    assert found[-1] is None


BINARY, UNARY = (np.add, np.subtract, np.multiply, np.divide), (np.negative, np.square)


def random_formulas(chosen, rows, values, known):
    """Add random operations on real numbers, and compute them by NumPy."""
    (dtype,) = {each.dtype for each in known}
    for _ in range(chosen.choice([1, 3, 10, 30, 100])):
        ufunc = chosen.choice([*BINARY, *BINARY, *UNARY])
        recent = range(max(0, len(values) - chosen.choice([2, 3, 40])), len(values))
        operands = chosen.choices(recent, k=ufunc.nin)
        if chosen.random() < 0.3:
            operands[0] = chosen.randrange(len(values))
        with np.errstate(all="ignore"):
            found = ufunc(*(known[one] for one in operands))
        if np.isfinite(found).all() and np.abs(found).max() < 1e9:
            _, loop = loop_of(ufunc, (dtype,) * ufunc.nin)
            values.append(rows.apply(ufunc, loop, dtype, [values[one] for one in operands]))
            known.append(found)


@pytest.mark.parametrize("name", pack.available())
@pytest.mark.parametrize("seed", range(60))
def test_formulas_round_as_numpy(name, seed):
    chosen, rng = random.Random(seed), np.random.default_rng(seed)
    shape = chosen.choice([1, 3, 8, 20]), chosen.randint(1, 40) * chosen.choice([1, 1, 7])
    dtype, rows = np.dtype(chosen.choice("fd")), RowBuilder(shape)
    given = [rng.uniform(0.5, 2, shape).astype(dtype) for _ in range(3)]
    padded = np.zeros((shape[0] + 1, shape[1] + 3), dtype)
    given[0] = padded[1:, 2:-1]
    given[0][...] = rng.uniform(0.5, 2, shape)
    given += [np.array(0.3, dtype), rng.random((shape[0], 1)).astype(dtype)]
    values = [rows.leaf(rows.array(each), each) for each in given]
    known = [np.broadcast_to(each, shape) for each in given]
    random_formulas(chosen, rows, values, known)
    outs = [np.zeros(shape, dtype) for _ in range(chosen.randint(1, 3))]
    for value, out in zip(values[::-1], outs, strict=False):
        rows.store(value, rows.leaf(rows.array(out), out))
    with pack.using(name):
        RowProgram(rows).run((*given, *outs))
    for expected, out in zip(known[::-1], outs, strict=False):
        assert out.tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.skipif(pack.compiled() is None, reason="for compiled programs")
def test_formulas_that_leave_their_operands_are_refused():
    u, make = np.zeros((2, 8)), pack.compiled().RowProgram

    def program(*code, strides=(0, 64, 8), item=8):
        slots = (0, -1, item, 0, (0, 0, 0)), (0, -1, item, 0, strides), (0, -1, item, 0, (0, 64, 8))
        steps = (3, bytes(code), (0, 1, 2))
        return make((1, 2, 2), (u,), slots, (steps,), (), 1, 2, 2, 2, 0, 0)

    program(1, 3, 2, 0, 0, 2, 1, 20, 2, 0)  # load the row, times the number
    program(1, 3, 3, 1, 0, 2, 1, 12, 3, 2, 0, 2, 3)  # load, keep, and load what was kept
    for wrong in (
        (1, 3),
        (1, 3, 2, 0, 0, 2, 1),
        (1, 2, 1, 0, 0, 2, 1),
        (1, 3, 1, 0, 13, 2, 1),
        (1, 3, 1, 0, 32, 2, 1),
        (1, 3, 1, 0, 0, 2, 11),
        (1, 3, 1, 0, 0, 11, 1),
        (1, 3, 1, 9, 0, 2, 1),
        (1, 3, 1, 0, 0, 2, 3),
        (1, 3, 1, 1, 12, 1, 2),  # to keep a value in an operand
        (1, 3, 1, 0, 0, 2, 0),  # a number as a row
        (1, 3, 1, 0, 16, 2, 1),
        (1, 3, 1, 0, 7, 0, 1),
        (0, 3, 1, 0, 0, 2, 1),  # of floats
    ):
        with pytest.raises(ValueError, match=r"formula|operands"):
            program(*wrong)
    for strides, item in (((0, 64, 16), 8), ((0, 64, 4), 8), ((0, 64, 8), 4)):
        with pytest.raises(ValueError, match="contiguous"):
            program(1, 3, 1, 0, 0, 2, 1, strides=strides, item=item)
    with pytest.raises(TypeError):
        make((1, 2, 2), (u,), (), ((3, 8, ()),), (), 1, 2, 2, 2, 0, 0)


SIZES = [1, 7, 8, 9, 127, 128, 129, 136, 1000, 4099]
BLOCKS = [
    *((n,) for n in SIZES),
    (300, 5),
    (12, 17, 19),
    (3, 1, 7000),
    (40, 130, 8),
    (5, 4, 3, 2, 6),
]


@implementations
@pytest.mark.parametrize("shape", [(n,) for n in SIZES] + BLOCKS)
@pytest.mark.parametrize("width", [0, 1])
def test_values_are_reduced(name, shape, width):
    rng, axes = np.random.default_rng(shape), tuple(range(len(shape)))
    padded = rng.standard_normal([n + 2 * width for n in shape])
    u = padded[tuple(slice(width, width + n) for n in shape)]
    v, out = rng.standard_normal(shape), np.empty(shape)
    double, boolean, whole = np.dtype(float), np.dtype(bool), np.dtype(np.int64)

    def inside(array):
        return array[tuple(slice(width, width + n) for n in shape)]

    with pack.using(name):
        rows = RowBuilder(shape)
        x = rows.leaf(rows.array(padded), u, inside)
        y = rows.leaf(rows.array(v), v)
        product = rows.apply(np.multiply, loop_of(np.multiply, (double, double))[1], double, [x, y])
        positive = rows.apply(np.greater, loop_of(np.greater, (double, double))[1], boolean, [x, y])
        for value, reduction in [
            (product, BlockReduction(np.add, double, 0.0, axes)),
            (product, BlockReduction(np.add, double, 0.0, axes[::-1])),
            (x, BlockReduction(np.add, double, 0.0, axes)),
            (product, BlockReduction(np.maximum, double, -np.inf, axes)),
            (product, BlockReduction(np.minimum, double, np.inf, axes)),
            (product, BlockReduction(np.logical_and, boolean, True, axes)),  # noqa: FBT003
            (positive, BlockReduction(np.add, whole, 0, axes)),
            (product, BlockReduction(np.multiply, double, 1.0, axes)),
        ]:
            rows.reduce(value, reduction)
        rows.store(product, rows.leaf(rows.array(out), out))
        program = RowProgram(rows)
        w = u * v
        turned = np.ascontiguousarray(w.transpose())
        expected = [w.sum(), turned.sum(), u.copy().sum(), w.max(), w.min(), w.all(), (u > v).sum()]
        for _ in range(2):
            found = program.run((padded, v, out))
            assert [one.tobytes() for one in found[:-1]] == [one.tobytes() for one in expected]
            np.testing.assert_allclose(found[-1], w.prod(), rtol=1e-10)
            np.testing.assert_array_equal(out, w)


def test_a_sum_needs_room():
    u, state = np.ones(5), np.zeros(8)
    kernels = pack.compiled()
    if kernels is None:
        pytest.skip("there are no kernels")
    for slots in [((0, -1, 8, 0, (0, 0, 8)), (1, -1, 8, 0, (0, 0, 0)))]:
        with pytest.raises(ValueError, match="no room"):
            kernels.RowProgram(
                (1, 1, 5), (u, state), slots, ((4, 0, (0, 1)),), (), 1, 1, 5, 5, 0, 1
            )


@pytest.mark.skipif(pack.compiled() is None, reason="for compiled programs")
def test_programs_that_would_leave_memory_are_refused():
    u, make = np.zeros((2, 8)), pack.compiled().RowProgram

    def program(*, shape=(1, 2, 8), item=8, offset=0, strides=(0, 64, 8), register=8, planes=1):
        slots = (0, -1, item, offset, strides), (-1, 0, item, 0, ())
        return make(shape, (u,), slots, ((1, item, (0, 1)),), (register,), planes, 2, 8, 8, 0, 0)

    program()
    program(register=16)
    for wrong in (
        {"shape": (1, -2, 8)},
        {"shape": (2**32, 2**32, 8), "strides": (0, 0, 8)},
        {"shape": (2**32, 2**31, 8), "strides": (0, 0, 8)},
        {"shape": (2**59, 2, 8), "strides": (32, 64, 8)},
        {"strides": (0, 2**62, 8)},
        {"offset": 8},
        {"offset": -8},
        {"offset": 2**62},
        {"item": 0},
        {"item": -8},
        {"item": 128},
        {"register": 4},
        {"register": 2**40},
        {"planes": 2**58},
    ):
        with pytest.raises(ValueError, match=r"slot|extent|register|tile"):
            program(**wrong)
