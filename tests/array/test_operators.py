"""Operators that go straight to the blocks: as NumPy, in memory of the pool, nothing held."""

import operator
import warnings
from itertools import product

import numpy as np
import pytest
from fields import assert_holds, both, draw, in_memory_order, spread
from mpi4py import MPI

import pencils
from pencils.comm import pool

pytestmark = pytest.mark.parallel([1, 2, 3, 4])

LARGE = (12 * MPI.COMM_WORLD.size, 40, 44)  # blocks are in the pool, and not much larger
BINARY = [
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *("lt", "le", "gt", "ge", "eq", "ne", "and_", "or_", "xor", "lshift", "rshift"),
]
IN_PLACE = ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"]
DTYPES = ["?", "i2", "i8", "u1", "f4", "f8", "c8", ">f8", "f2"]
NUMBERS = [True, 2, 3, 0.5, 2.0, 1j, np.float32(2), np.int8(3), np.float64(-1), np.bool_(1)]
KINDS = [{}, {"order": (2, 0, 1)}, {"decomp": (1, 2)}]


def outcome(function, *operands):
    """Return what a function gives: the values, or the type of the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*operands), None
        except (TypeError, OverflowError, ValueError) as error:
            return None, type(error)


def assert_alike(result, expected):
    """Check a result of `outcome` for fields against the one for global arrays."""
    (found, error), (values, expected_error) = result, expected
    assert error == expected_error
    if values is not None:
        # Powers of NumPy 2.0 differ in the last bit between memory orders.
        last_bit = np.finfo(values.dtype).eps if values.dtype.kind in "fc" else 0
        np.testing.assert_allclose(found.local, values[found.local_slices], last_bit, atol=0)
        assert found.dtype == values.dtype
        assert in_memory_order(found)


@pytest.fixture(params=KINDS, ids=["C", "permuted", "pencils"])
def grid(request, comm):
    return pencils.Pencil(LARGE, comm, **request.param)


@pytest.mark.parametrize("name", BINARY)
def test_large_fields_and_numbers(grid, name):
    function = getattr(operator, name)
    for left in DTYPES:
        u, a = both(grid, draw(LARGE, left), halo=1 if left == "f4" else 0)
        for right in (left, "f8", "i2"):
            b = draw(LARGE, right, 1)
            assert_alike(outcome(function, u, spread(grid, b)), outcome(function, a, b))
    a = draw(LARGE, "f4")
    u, k, i = spread(grid, a), spread(grid, a.astype("i4")), a.astype("i4")
    for number in NUMBERS:
        for field, values in ((u, a), (k, i)):
            assert_alike(outcome(function, field, number), outcome(function, values, number))
            assert_alike(outcome(function, number, field), outcome(function, number, values))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i4"])
@pytest.mark.parametrize("extent", [40, 2**18])
def test_powers_of_small_and_large_blocks(comm, extent, dtype):
    some = [-np.inf, -0.0, 2, np.nan, 0, np.inf, -3.7]
    a = np.resize([1, 5, -3] if dtype == "i4" else some, extent).astype(dtype)
    if a.dtype.kind == "c":
        a.imag = np.resize(np.arange(5), extent)
    u = spread(pencils.Pencil(extent, comm), a)
    numbers = [-1, 0, 0.5, 1, 2, -1.0, 1.0, 2.0, 3, -0.5]
    with np.errstate(all="ignore"):
        for number in [*numbers, *map(np.float64, numbers), np.float32(0.5), np.int64(2), True]:
            assert_alike(outcome(operator.pow, u, number), outcome(operator.pow, a, number))
            found, expected = (outcome(operator.pow, x, number)[0] for x in (u, u.local))
            if found is not None:  # by the same function of NumPy: to the last bit
                np.testing.assert_array_equal(found.local, expected)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(grid, name):
    function = getattr(operator, name)
    for left in ("f8", "i4", "c8", "?"):
        for other in (draw(LARGE, left, 1), draw(LARGE, "i8", 2), 2, 2.5):
            values = draw(LARGE, left)
            field = same = spread(grid, values, halo=1)
            operand = spread(grid, other) if isinstance(other, np.ndarray) else other
            (found, error), (expected, expected_error) = (
                outcome(function, field, operand),
                outcome(function, values, other),
            )
            assert error == expected_error
            if error is not ValueError:  # negative powers are found half way
                np.testing.assert_array_equal(same.local, values[same.local_slices])
            if error is None:
                assert found is same
                assert found.dtype == expected.dtype


def test_unary(grid):
    for dtype in DTYPES:
        u, a = both(grid, draw(LARGE, dtype))
        for function in (operator.neg, operator.pos, abs, operator.invert, np.sin, np.sqrt):
            assert_alike(outcome(function, u), outcome(function, a))


@pytest.mark.parametrize("shape", [(4, 3, 6), LARGE], ids=["small", "large"])
def test_results_of_blocks_of_any_layout(comm, shape):
    """The second result of operands of a kind is made like the first, whatever their strides."""
    grid = pencils.Pencil(shape, comm)
    a, b = draw(shape, "f8"), draw(shape, "f8", 1)
    layouts = [
        lambda whole: spread(grid, whole),
        lambda whole: spread(grid, whole, halo=(0, 1, 2)),
        lambda whole: pencils.PencilArray(grid, np.asfortranarray(whole[grid.local_slices])),
        lambda whole: pencils.PencilArray(grid, whole[grid.local_slices][:, ::-1].copy()[:, ::-1]),
    ]
    for one, other in product(layouts, repeat=2):
        for _ in range(3):
            u, v = one(a), other(b)
            assert_alike((u - v, None), (a - b, None))
            assert_alike((2 - u, None), (2 - a, None))
            assert_alike((np.subtract(2, v), None), (2 - b, None))
            assert_alike((np.subtract(v, 2), None), (b - 2, None))
            assert_alike((-v < u, None), (-b < a, None))


def test_values_that_change_while_they_are_read(comm):
    pencil = pencils.Pencil(LARGE, comm)
    u = pencils.ones(pencil, halo=1)
    u.padded[...] = np.arange(u.padded.size).reshape(u.padded.shape)
    expected = u.local + u.shift((1, 0, 0)).local
    u += u.shift((1, 0, 0))
    np.testing.assert_array_equal(u.local, expected)
    expected = u.shift((0, -1, 0)).local.copy()
    u[...] = u.shift((0, -1, 0))
    np.testing.assert_array_equal(u.local, expected)


class Guest:
    """An operand that takes no part in ufuncs."""

    __array_ufunc__ = None

    def __radd__(self, other):
        return "mine"

    __rmul__ = __rpow__ = __req__ = __rmatmul__ = __rdivmod__ = __radd__
    __gt__ = __eq__ = __radd__
    __hash__ = None


def test_operands_that_take_no_part(grid):
    u = pencils.ones(grid)
    assert u + Guest() == u * Guest() == u ** Guest() == u @ Guest() == "mine"
    assert (u < Guest()) == (u == Guest()) == divmod(u, Guest()) == "mine"
    with pytest.raises(TypeError, match="does not take a PencilArray"):
        u @ u
    with pytest.raises(TypeError):
        u + object()


@pytest.mark.mpiexec("measures the memory of one process")
@pytest.mark.skipif(pool._kernels is None, reason="there are no compiled kernels")
def test_a_step_holds_its_fields_and_its_temporaries_only(grid):
    u = pencils.ones(grid, halo=1)
    v = pencils.ones(grid)
    pencils.memory().empty()

    def step(u):
        u[...] = u + 0.1 * (u.shift((1, 0, 0)) + u.shift((-1, 0, 0)) - 2 * u)
        return np.sqrt(u * u) - v

    for _ in range(2):
        step(u)
    first = pencils.memory()
    for _ in range(10):
        step(u)
    last = pencils.memory()
    assert last.live == first.live
    assert last.pooled == first.pooled
    assert last.made == first.made
    assert last.reused == first.reused + 10 * 8
    assert first.pooled <= 3 * v.local.nbytes * 9 / 8


@pytest.mark.skipif(pool._kernels is None, reason="there are no compiled kernels")
def test_results_that_live_share_no_memory(grid):
    u = pencils.ones(grid)
    results = [u * number for number in range(30)]
    for number, result in enumerate(results):
        assert (result.local == number).all()
    kept = results[7].local[2:]
    del results
    for _ in range(5):
        u = u + 1
    assert (kept == 7).all()


def test_shifts_are_kept_and_follow_the_field(comm):
    pencil = pencils.Pencil((6, 5), comm, periodic=True)
    u = pencils.zeros(pencil, halo=1)
    shifted = u.shift((1, 0))
    assert u.shift((1, 0)) is shifted
    assert u.shift((np.int64(1), 0)) is shifted
    v = pencils.ones(pencil, halo=1)
    assert v.shift((1, 0)).local.base is not shifted.local.base
    u.padded[...] = 3
    assert (shifted.local == 3).all()
    with pytest.raises(ValueError, match="leaves the halo"):
        u.shift((2, 0))
    for wrong in ("a", 1.0, True):  # the last two are equal to 1
        with pytest.raises(TypeError):
            u.shift((wrong, 0))


def test_whole_assignments(grid):
    a, b = draw(LARGE), draw(LARGE, seed=1)
    for halo in (0, 1):
        u = spread(grid, a, halo=halo)
        for key in (np.s_[...], np.s_[:], np.s_[:, :], np.s_[:, :, :], np.s_[:, ..., :]):
            u[key] = spread(grid, b, halo=1 - halo)
            assert_holds(u, b)
            u[key] = 2.5
            assert_holds(u, np.full(LARGE, 2.5))
            u[key] = spread(grid, a)
            u[key] += 1.0
            assert_holds(u, a + 1)
    whole = pencils.zeros(grid, dtype=int)
    whole[...] = 2.9
    assert_holds(whole, np.full(LARGE, 2))
    whole[...] = spread(grid, a)
    assert_holds(whole, a.astype(int))
    with pytest.raises(TypeError):
        u[...] = 1j
    wall = spread(grid, draw((1, 40, 44)), dims=(1, 2))
    u[...] = wall
    assert_holds(u, np.broadcast_to(draw((1, 40, 44)), LARGE))
    with pytest.raises(ValueError, match="replicated"):
        wall[...] = u
    u.local.flags.writeable = False
    for value in (u + 1, 2.0):
        with pytest.raises(ValueError, match="read-only"):
            u[...] = value


@pytest.mark.skipif(pool._kernels is None, reason="there are no compiled kernels")
def test_results_of_checked_operands_are_in_the_pool(grid):
    a, b = draw(LARGE), draw((1, 40, 44))
    u, wall = spread(grid, a), spread(grid, b, dims=(1, 2))
    before = pencils.memory().live
    results = [u * wall, wall - u, u + b, u * a, np.hypot(b, u), u / np.float32(3), u > wall]
    taken = pencils.memory().live - before
    pooled = u.local.nbytes >= pool.LEAST  # NumPy allocates small blocks
    assert taken >= pooled * (len(results) - 1) * u.local.nbytes
    for result, values in zip(
        results[:5], [a * b, b - a, a + b, a * a, np.hypot(b, a)], strict=True
    ):
        assert_holds(result, values)
        assert in_memory_order(result)
    tensor = spread(grid, draw((2, *LARGE)))
    assert_holds(tensor * wall, draw((2, *LARGE)) * b)
