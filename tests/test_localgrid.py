"""localgrid: the example of the specification, and coordinates as fields."""

import copy

import numpy as np
import pytest
from mpi_helpers import everywhere, same

import pencils
from pencils import Pencil, PencilArray, gather, localgrid
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def test_the_example_of_the_specification(comm):
    # Define global rectilinear grid
    nx, ny, nz = 65, 17, 21
    xs = np.linspace(0, 1, nx)
    ys = np.linspace(-1, 1, ny)
    zs = np.linspace(0, 2, nz)

    pen = Pencil((nx, ny, nz), comm)
    grid = localgrid(pen, (xs, ys, zs))

    u = pencils.empty(pen)
    u[...] = grid.x + 2 * grid.y + grid.z**2
    expected = xs[:, None, None] + 2 * ys[:, None] + zs**2
    assert everywhere(comm, same(u.local, expected[pen.local_slices]))

    # The grid can also be indexed
    x, y, z = grid[1, 2, 3]
    assert (x, y, z) == (xs[1], ys[2], zs[3])
    assert grid.coords((64, 0, 20)) == (1.0, -1.0, 2.0)  # whoever owns that point
    assert np.array_equal(gather(u, root=None), expected)


def test_coordinates_are_fields_that_vary_along_one_dimension(comm):
    pen = Pencil((5, 6, 4), comm, decomp=(2, 1), order=(1, 2, 0))
    axes = np.arange(5), np.linspace(0, 1, 6, dtype="f4"), np.exp(1j * np.arange(4))
    grid = localgrid(pen, axes)
    x, y, z = grid
    assert grid.x is x is grid[0]
    assert grid.z is z is grid[-1]
    assert len(grid) == 3
    assert grid.names == ("x", "y", "z")
    assert grid.pencil is pen
    shapes = [(5, 1, 1), (1, 6, 1), (1, 1, 4)]
    for dim, (coordinate, points) in enumerate(zip(grid, axes, strict=True)):
        assert isinstance(coordinate, PencilArray)
        assert coordinate.shape == shapes[dim]
        assert coordinate.dtype == points.dtype
        mine = points[pen.local_slices[dim]]
        assert everywhere(comm, np.array_equal(coordinate.local.ravel(), mine))
        assert np.shares_memory(coordinate.local, grid.axes[dim]) or mine.size == 0
        assert np.array_equal(gather(coordinate, None, dims=dim), points)
    assert (x * y * z).shape == (5, 6, 4)
    assert (x + y).shape == (5, 6, 1)


def test_ranges_and_lists_are_axes_too(comm):
    pen = Pencil((4, 3), comm)
    grid = localgrid(pen, (range(4), [0.5, 1.5, 2.5]))
    assert np.array_equal(
        gather(10 * grid.x + grid.y, None), [[10 * i + 0.5 + j for j in range(3)] for i in range(4)]
    )


@pytest.mark.parametrize("ndim", [1, 2, 3, 4, 5, 6])
def test_default_names(comm, ndim):
    pen = Pencil((2,) * ndim, comm)
    grid = localgrid(pen, [range(2)] * ndim)
    expected = tuple("xyzw"[:ndim]) if ndim <= 4 else tuple(f"x{dim}" for dim in range(ndim))
    assert grid.names == expected
    assert all(getattr(grid, name) is grid[dim] for dim, name in enumerate(expected))


def test_names_can_be_chosen(comm):
    pen = Pencil((3, 4), comm)
    grid = localgrid(pen, (range(3), range(4)), names=("radius", "θ"))
    assert grid.radius is grid[0]
    assert grid.θ is grid[1]
    assert {"radius", "θ", "coords"} <= set(dir(grid))
    with pytest.raises(AttributeError, match="radius, θ, but no 'x'"):
        _ = grid.x
    assert localgrid(pen, (range(3), range(4)), names="rz").r.shape == (3, 1)
    for wrong in ("a", "aa", ("coords", "b"), ("a", "2b"), ("axes", "b"), ("_a", "b"), (1, 2)):
        with pytest.raises(ArgumentError, match="identifiers"):
            localgrid(pen, (range(3), range(4)), names=wrong)


def test_axes_that_do_not_fit(comm):
    pen = Pencil((3, 4), comm)
    for wrong in ((range(3),), (range(3), range(3)), (range(3), np.ones((4, 1))), (3, 4), ()):
        with pytest.raises(ArgumentError, match="for each dimension, of 3, 4 coordinates"):
            localgrid(pen, wrong)
    with pytest.raises(TypeError, match="object"):
        localgrid(pen, (np.array([None] * 3), range(4)))
    grid = localgrid(pen, (range(3), range(4)))
    for outside in ((3, 0), (0, -1), (0,), (0, 0, 0)):
        with pytest.raises(IndexError, match="outside"):
            grid.coords(outside)
    with pytest.raises(IndexError):
        grid[2]


def test_repr_and_copies(comm):
    pen = Pencil((3, 4, 0), comm)
    days = np.arange("2026-01-01", "2026-01-05", dtype="M8[D]")
    grid = localgrid(pen, (np.linspace(0, 1 / 3, 3), days, ()))
    first, second = repr(grid).splitlines()
    assert "x [0 .. 0.333333], y [2026-01-01 .. 2026-01-04], z []" in first
    assert repr(pen) in second
    for twin in (copy.copy(grid), copy.deepcopy(grid)):
        assert twin.names == grid.names
        assert everywhere(comm, same(twin.x.local, grid.x.local))
