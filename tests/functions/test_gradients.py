"""Gradients against NumPy: bit for bit, floats to rounding."""

import numpy as np
import pytest
from fields import both, draw, in_memory_order
from mpi_helpers import random_pencil, same

import pencils

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

DTYPES = ("f8", "f4", "f2", "g", "c16", "i1", "u4", ">f8", "m8[s]", "M8[s]")


def holds(found, expected):
    """Whether the own part is that of global data: all bits, or what rounding leaves of them."""
    part = expected[found.local_slices]
    if expected.dtype.char not in "fdFD":
        return found.dtype == expected.dtype and same(found.local, part)
    most = 64 * np.finfo(expected.dtype).eps * np.abs(expected).max(initial=0)
    return found.dtype == expected.dtype and np.allclose(found.local, part, rtol=0, atol=most)


def test_differences_of_equal_numbers_and_by_powers_of_two_are_exact(pencil):
    u, whole = both(pencil, draw(pencil.shape))
    for axis in axes_with(pencil.shape, 2):
        found, expected = np.gradient(u, 0.25, axis=axis), np.gradient(whole, 0.25, axis=axis)
        assert same(found.local, expected[found.local_slices])
        assert not np.gradient(pencils.full(pencil, 0.1), 0.3, axis=axis).local.any()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_long_lines(comm, order):
    for axis in range(3):
        shape = [3, 4, 5]
        shape[axis] = 300 * comm.size + 7
        pencil = pencils.Pencil(shape, comm, decomp=axis, order=order)
        u, whole = both(pencil, draw(pencil.shape))
        for spacing in (0.3, np.linspace(1, 2, shape[axis]) ** 2):
            given = {"axis": axis, "edge_order": 2}
            assert holds(np.gradient(u, spacing, **given), np.gradient(whole, spacing, **given))


def data(shape, dtype):
    dtype = np.dtype(dtype)
    return draw(shape, "i8").astype(dtype) if dtype.kind in "mM" else draw(shape, dtype)


def spacings(points):
    """Numbers of several types, and coordinates: equidistant, only partly so, and not at all."""
    partly = np.arange(points) * 0.5
    partly[points // 2 :] += 1
    free = np.random.default_rng(1).random(points).cumsum() + 0.1
    yield from (0.3, np.float64(0.7), partly, free.astype("f4"))
    yield from (np.arange(points) * 0.25, (np.arange(points) ** 2 + 1).tolist())


def axes_with(shape, points):
    return [axis for axis, extent in enumerate(shape) if extent >= points]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [1, 2])
def test_each_axis(pencil, dtype, order):
    u, whole = both(pencil, data(pencil.shape, dtype), halo=1)
    for axis in axes_with(pencil.shape, order + 1):
        for spacing in spacings(pencil.shape[axis]):
            if np.dtype(dtype).kind in "mM" and not isinstance(spacing, float):
                continue
            given = {"axis": axis, "edge_order": order}
            found = np.gradient(u, spacing, **given)
            assert found.pencil is pencil
            assert in_memory_order(found)
            assert holds(found, np.gradient(whole, spacing, **given)), (axis, spacing)


def test_several_axes(pencil):
    u, whole = both(pencil, draw(pencil.shape))
    axes = axes_with(pencil.shape, 2)
    steps = [0.5 + axis for axis in axes]
    expected = np.gradient(whole, *steps, axis=axes)
    found = np.gradient(u, *steps, axis=axes)
    if len(axes) == 1:
        found, expected = [found], [expected]
    assert isinstance(found, tuple if len(axes) > 1 else list)
    assert all(map(holds, found, expected))
    if len(axes) == pencil.ndim:
        found, expected = np.gradient(u), np.gradient(whole)
        if len(axes) == 1:
            found, expected = [found], [expected]
        assert all(map(holds, found, expected))


def test_components_and_singletons(pencil):
    u, vector = both(pencil, draw((3, *pencil.shape)))
    assert holds(np.gradient(u, axis=0), np.gradient(vector, axis=0))
    dims = axes_with(pencil.shape, 2)
    found = np.gradient(u, axis=[1 + dim for dim in dims])
    for dim, each in zip(dims, found if len(dims) > 1 else [found], strict=True):
        assert holds(each, np.gradient(vector, axis=1 + dim))
    for dim in dims:
        shape = tuple(1 if d != dim else n for d, n in enumerate(pencil.shape))
        u, line = both(pencil, draw(shape), dims=dim)
        found = np.gradient(u, axis=dim)
        assert found.singletons == u.singletons
        assert holds(found, np.gradient(line, axis=dim))


def test_random_layouts(comm):
    rng = np.random.default_rng(11)
    for _ in range(10):
        shape = tuple(rng.integers(3, 9, rng.integers(1, 4)).tolist())
        pencil = random_pencil(rng, comm, shape)
        u, whole = both(pencil, draw(shape))
        spacing = [rng.random(extent).cumsum() for extent in shape]
        for order in (1, 2):
            found = np.gradient(u, *spacing, edge_order=order)
            expected = np.gradient(whole, *spacing, edge_order=order)
            if len(shape) == 1:
                found, expected = [found], [expected]
            assert all(map(holds, found, expected))


def test_fields_without_points_elsewhere(comm):
    pencil = pencils.Pencil((0, 3), comm)
    found = np.gradient(pencils.zeros(pencil), axis=1)
    assert found.shape == (0, 3)
