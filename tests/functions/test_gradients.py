"""Gradients against NumPy: bit for bit, floats to rounding."""

import numpy as np
import pytest
from fields import both, draw, in_memory_order
from mpi_helpers import same

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


@pytest.mark.parametrize("components", [(), (3,)])
def test_several_axes(pencil, components):
    u, whole = both(pencil, draw((*components, *pencil.shape)))
    lead = len(components)
    axes = [lead + dim for dim in axes_with(pencil.shape, 2)]
    steps = [0.5 + axis for axis in axes]
    pairs = [(np.gradient(x, *steps, axis=axes) for x in (u, whole))]
    if len(axes) == pencil.ndim:  # by default along space
        pairs += [(np.gradient(u), np.gradient(whole, axis=axes))]
    for found, expected in pairs:
        if len(axes) == 1:
            assert holds(found, expected)
        else:
            assert isinstance(found, tuple)
            assert all(map(holds, found, expected))


def test_fields_without_points_elsewhere(comm):
    pencil = pencils.Pencil((0, 3), comm)
    found = np.gradient(pencils.zeros(pencil), axis=1)
    assert found.shape == (0, 3)
