"""Differences and integrals along an axis against NumPy."""

import numpy as np
import pytest
from fields import assert_holds, both, draw, in_memory_order
from mpi_helpers import same

import pencils

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

DTYPES = ("f8", "f4", "f2", "g", "c16", "i1", "u4", "?", ">f8", "m8[s]", "M8[s]")


def data(shape, dtype):
    dtype = np.dtype(dtype)
    return draw(shape, "i8").astype(dtype) if dtype.kind in "mM" else draw(shape, dtype)


def along(ndim, axis, key):
    return tuple(key if each == axis % ndim else slice(None) for each in range(ndim))


@pytest.mark.parametrize("dtype", DTYPES)
def test_differences(pencil, dtype):
    u, whole = both(pencil, data(pencil.shape, dtype), halo=1)
    for axis in range(-1, pencil.ndim):
        for n in (0, 1, 2, 4):
            found, expected = np.diff(u, n, axis), np.diff(whole, n, axis)
            points = max(0, pencil.shape[axis] - n)
            assert found.pencil == u[along(pencil.ndim, axis, slice(points))].pencil
            assert found.shape == expected.shape
            assert found.dtype == expected.dtype
            assert same(found.local, expected[found.local_slices])
            assert in_memory_order(found)


def test_differences_mix_with_sections(pencil):
    u, whole = both(pencil, draw(pencil.shape))
    found = np.diff(u, axis=0) / u[:-1] + u[:-1].mean(axis=0)
    expected = np.diff(whole, axis=0) / whole[:-1]
    if len(expected):
        assert_holds(found, expected + whole[:-1].mean(axis=0, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES[:-1])
def test_integrals(pencil, dtype):
    u, whole = both(pencil, data(pencil.shape, dtype), halo=1)
    kind = np.trapezoid(whole.reshape(-1)).dtype
    rtol = 20 * float(np.finfo(kind).eps) if kind.kind in "fc" else 0
    for axis in range(-1, pencil.ndim):
        x = np.random.default_rng(3).random(pencil.shape[axis]).cumsum()
        for given in ({}, {"dx": 0.5}, {"dx": np.float64(2)}, {"x": x}, {"x": x.tolist()}):
            expected = np.expand_dims(np.trapezoid(whole, axis=axis, **given), axis)
            found = np.trapezoid(u, axis=axis, **given)
            assert found.singletons == {axis % pencil.ndim}
            assert_holds(found, expected, rtol=rtol)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_long_lines(comm, dtype):
    for axis, order in ((0, (0, 1, 2)), (1, (2, 0, 1)), (2, (0, 1, 2)), (2, (2, 1, 0))):
        shape = [3, 4, 5]
        shape[axis] = 150 * comm.size + 7
        pencil = pencils.Pencil(shape, comm, decomp=axis, order=order)
        u, whole = both(pencil, draw(shape, dtype) + np.dtype(dtype).type(9), halo=1)
        assert_holds(np.diff(u, axis=axis), np.diff(whole, axis=axis))
        for given in ({"dx": 0.3}, {"x": np.arange(shape[axis]) ** 1.5}):
            if dtype == "f8" or "dx" in given:
                expected = np.expand_dims(np.trapezoid(whole, axis=axis, **given), axis)
                rtol = 100 * float(np.finfo(dtype).eps)
                assert_holds(np.trapezoid(u, axis=axis, **given), expected, rtol=rtol)
