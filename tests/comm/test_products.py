"""Products in parts against NumPy: of small integers, which no order of additions rounds."""

import numpy as np
import pytest

from pencils.comm.reduce import dot, multiply


def whole_numbers(shape, dtype, seed=0):
    numbers = np.random.default_rng([seed, *shape]).integers(-3, 4, (2, *shape))
    numbers = numbers[0] + 1j * numbers[1] if np.dtype(dtype).kind == "c" else numbers[0]
    return numbers.astype(dtype)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i4", "?", "g", ">f8"])
@pytest.mark.parametrize("shape", [(0,), (3, 0, 5), (5000,), (3, 4, 1000), (2, 6200)])
def test_dot(shape, dtype):
    a, b = whole_numbers(shape, dtype), whole_numbers(shape, dtype, 1)
    exact = "f4" if dtype == "f2" else dtype  # half precision could not hold such sums
    parts = [(a[key], b[key]) for key in (..., (..., slice(1, -1)), (..., slice(None, None, -2)))]
    for left, right in (*parts, (a, np.broadcast_to(b[..., :1], shape))):
        assert dot(left, right) == np.vdot(left.astype(exact), right.astype(exact))


@pytest.mark.parametrize("dtype", ["f4", "c16"])
@pytest.mark.parametrize("columns", [0, 1, 40_000])
def test_multiply(columns, dtype):
    matrix, right = whole_numbers((4, 4), "f4"), whole_numbers((4, columns), dtype)
    found = np.empty_like(right)
    multiply(matrix, right, found)
    assert np.array_equal(found, matrix @ right)
