"""Running sums along an axis: every implementation against NumPy, bit by bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_line_program import DTYPES, random_numbers, strided

from pencils.comm import pack
from pencils.functions.scans import prepare_scan

implementations = pytest.mark.parametrize("name", pack.available())
SHARED_CACHE = 2**40  # bytes that would not stay in any cache


def run(values, sums, axis, **options):
    for part in prepare_scan(np.add, values, sums, axis, **options):
        part()


@implementations
@given(data=st.data(), seed=st.integers(0, 999))
def test_values_are_added_up_as_by_numpy(name, data, seed):
    draw, rng = data.draw, np.random.default_rng(seed)
    dtype, ndim = draw(st.sampled_from(DTYPES)), draw(st.integers(1, 4))
    shape = [draw(st.integers(0 if i else 1, [2000, 90, 20, 9][ndim - 1])) for i in range(ndim)]
    axis = draw(st.integers(0, ndim - 1))
    plane = [1 if i == axis else n for i, n in enumerate(shape)]
    values, sums = (strided(draw, rng, shape, dtype) for _ in range(2))
    before, after = (
        strided(draw, rng, plane, dtype) if draw(st.booleans()) else None for _ in range(2)
    )
    known = [values] if before is None else [before, values]
    expected = np.cumsum(np.concatenate(known, axis), axis)
    expected = np.take(expected, range(len(known) - 1, expected.shape[axis]), axis)
    besides = draw(st.sampled_from([0, SHARED_CACHE]))
    with pack.using(name):
        run(values, sums, axis, before=before, after=after, besides=besides)
    np.testing.assert_array_equal(sums, expected)
    if after is not None and sums.size:
        np.testing.assert_array_equal(after, np.take(sums, [-1], axis))


@implementations
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("points", [7, 256, 300, 1031])
def test_long_lines_side_by_side(name, dtype, points):
    values = random_numbers(np.random.default_rng(4), (3, 13, points), dtype)
    room = np.full((3, 13, points + 2), 7, dtype)
    for besides in 0, SHARED_CACHE:
        with pack.using(name):
            run(values, room[..., 1:-1], 2, besides=besides)
        np.testing.assert_array_equal(room[..., 1:-1], np.cumsum(values, 2))
    assert (room[..., [0, -1]] == 7).all()


@implementations
@pytest.mark.parametrize("axis", [0, 1])
def test_signs_of_zeros_and_nan_are_those_of_numpy(name, axis):
    values = np.full((9, 9), -0.0)
    values[3, 3], values[5], values[:, 7] = np.nan, np.inf, -np.inf
    sums = np.empty_like(values)
    with pack.using(name), np.errstate(all="ignore"):
        run(values, sums, axis)
        expected = np.cumsum(values, axis)
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(np.signbit(sums[:3, :3]), np.signbit(expected[:3, :3]))


@pytest.mark.skipif(len(pack.available()) < 2, reason="there are no compiled kernels")
def test_the_kernel_refuses_what_does_not_fit():
    kernels, one, plane = pack.compiled(), np.ones((2, 3)), np.ones((2, 1))
    kernels.running_sums(one, np.ones((2, 3)), plane, None, 0)
    np.testing.assert_array_equal(one, [[2, 3, 4]] * 2)
    for arrays in (
        (one, np.ones((3, 3)), None, None),
        (one, np.ones((2, 4)), None, None),
        (one, np.ones((2, 3), "f4"), None, None),
        (one, np.ones((2, 3, 1)), None, None),
        (one, np.ones((3, 2)).T, None, None),
        (np.ones((3, 2)).T, one, None, None),
        (one.astype(int), one.astype(int), None, None),
        (one, one, np.ones((2, 2)), None),
        (one, one, None, np.ones((1, 1))),
        (np.ones(()), np.ones(()), None, None),
    ):
        with pytest.raises(ValueError, match="do not fit each other"):
            kernels.running_sums(*arrays, 0)
    with pytest.raises(TypeError, match="takes sums, values"):
        kernels.running_sums(one, None, None, None, 0)
    with pytest.raises(TypeError, match="takes sums, values"):
        kernels.running_sums(one, one)
    read_only = np.ones((2, 3))
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernels.running_sums(read_only, one, None, None, 0)
