"""Weighted sums of arrays: every implementation against sums of products by NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_line_program import DTYPES, random_numbers, strided

from pencils.comm import pack
from pencils.comm.weighted_sum import weighted_sum

implementations = pytest.mark.parametrize("name", pack.available())


@implementations
@given(data=st.data(), seed=st.integers(0, 999))
def test_arrays_are_added_with_weights(name, data, seed):
    draw, rng = data.draw, np.random.default_rng(seed)
    dtype, ndim = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 4))
    shape = [
        draw(st.integers(0 if i == 2 else 1, [2000, 90, 20, 9][ndim - 1])) for i in range(ndim)
    ]
    count = draw(st.integers(0, 20))
    sources = [strided(draw, rng, shape, dtype) for _ in range(count)]
    weights = random_numbers(rng, count, "c16" if dtype in ("c8", "c16") else "f8")
    if draw(st.booleans()):
        weights = weights.real
    target = strided(draw, rng, shape, dtype)
    expected = sum((w * u.astype("c16") for w, u in zip(weights, sources, strict=True)), 0j)
    with pack.using(name):
        weighted_sum(target, sources, weights.tolist())
    tolerance = 1e-4 if dtype in ("f4", "c8") else 1e-12
    np.testing.assert_allclose(target, np.broadcast_to(expected, shape), atol=tolerance, rtol=0)


@implementations
@pytest.mark.parametrize("dtype", DTYPES)
def test_shifted_views_of_a_block_are_added(name, dtype):
    rng = np.random.default_rng(3)
    padded = random_numbers(rng, (9, 21, 135), dtype)
    views = [padded[i : i + 7, j : j + 19, k : k + 133] for i, j, k in np.ndindex(3, 3, 3)]
    weights = rng.uniform(-1, 1, 27).tolist()
    expected = sum(w * u.astype("c16") for w, u in zip(weights, views, strict=True))
    target = np.full((9, 21, 135), 7, dtype)
    for least in (8 << 20, 0):  # bytes from which targets are written past the cache
        with pack.using(name):
            before = pack.compiled() and pack.compiled().stream_from(least)
            weighted_sum(target[1:-1, 1:-1, 1:-1], views, weights)
            if pack.compiled():
                pack.compiled().stream_from(before)
        np.testing.assert_allclose(target[1:-1, 1:-1, 1:-1], expected, atol=1e-5)
    target[1:-1, 1:-1, 1:-1] = 7
    assert (target == 7).all()


@implementations
def test_what_does_not_fit_is_refused(name):
    one, two = np.ones(3), np.ones(4)
    read_only = np.ones(3)
    read_only.flags.writeable = False
    cases = [
        (one, [two], [1.0], "beside"),
        (one, [one.astype("f4")], [1.0], "beside"),
        (one, [one], [1j], "complex weights"),
        (one, [one], [1.0, 2.0], "zip"),
        (read_only, [one], [1.0], "read-only"),
    ]
    for target, sources, weights, text in cases:
        with pack.using(name), pytest.raises(ValueError, match=text):
            weighted_sum(target, sources, weights)
