"""Compact interpolation to midpoints, compared with solves by SciPy with weights from papers."""

import numpy as np
import pytest
from dense import near, random_data, random_lines
from mpi_helpers import holds, spread
from scipy import linalg
from tiers import up_to

from pencils import Pencil, derivative, zeros
from pencils.lines import midpoints

SIZES = pytest.mark.parallel([1, 2, 3, 4, 6])
SHAPE = (24, 9, 5)
# Weights of the midpoints before and after, and of points by offset: Lele (1992), (C.1.4) with
# (C.1.5) and (C.1.7); Deng and Zhang (2000). That of third order solves its three conditions.
PAPERS = {
    (0, 4): ((1 / 6, 1 / 6), {0: 2 / 3, 1: 2 / 3}),
    (0, 6): ((3 / 10, 3 / 10), {-1: 1 / 20, 0: 3 / 4, 1: 3 / 4, 2: 1 / 20}),
    (1, 3): ((1 / 3, 0), {0: 1, 1: 1 / 3}),
    (1, 5): ((1 / 2, 1 / 10), {-1: 1 / 10, 0: 1, 1: 1 / 2}),
    (-1, 3): ((0, 1 / 3), {0: 1 / 3, 1: 1}),
    (-1, 5): ((1 / 10, 1 / 2), {0: 1 / 2, 1: 1, 2: 1 / 10}),
}
SCHEMES = pytest.mark.parametrize(("wind", "order"), PAPERS)
ENDS = pytest.mark.parametrize("periodic", [False, True])


def interpolated_ring(u, wind, order):
    """Interpolate along the first axis of a ring, by circulant matrices."""
    (before, after), weights = PAPERS[wind, order]
    first = np.zeros(len(u))
    first[[0, 1, -1]] = 1, before, after  # the first column
    side = sum(weight * np.roll(u, -offset, 0) for offset, weight in weights.items())
    return linalg.solve_circulant(first, side)


def interpolated(u, wind, order):
    """Interpolate along the first axis, between walls."""
    points = len(u)
    (before, after), weights = PAPERS[wind, order]
    bands, side = np.zeros((3, points - 1)), np.empty((points - 1, u.shape[1]), u.dtype)
    bands[1] = 1
    for j in range(points - 1):
        around = [j + offset for offset in weights]
        near = [j - 1] * (before > 0) + [j + 1] * (after > 0)
        if min(around + near) >= 0 and max(around) < points and max(near) < points - 1:
            if j:
                bands[2, j - 1] = before
            if j < points - 2:
                bands[0, j + 1] = after
            side[j] = np.tensordot(list(weights.values()), u[around], 1)
        else:
            ends = slice(0, order) if j < points // 2 - 1 else slice(points - order, points)
            places = np.arange(points)[ends] - (j + 0.5)
            side[j] = np.tensordot(np.linalg.inv(np.vander(places))[-1], u[ends], 1)
    return linalg.solve_banded((1, 1), bands, side)


def expected_of(data, axis, wind, order, *, periodic):
    """Interpolate global data along an axis."""
    lines = np.moveaxis(data, axis, 0)
    flat = lines.reshape(len(lines), -1)
    found = (interpolated_ring if periodic else interpolated)(flat, wind, order)
    return np.moveaxis(found.reshape(-1, *lines.shape[1:]), 0, axis)


@SCHEMES
def test_orders_of_accuracy(wind, order):
    for periodic in (True, False):
        errors = []
        for points in (24, 48, 96):
            x = np.arange(points) * 2 * np.pi / points if periodic else np.linspace(0, 1.5, points)
            function = (lambda x: np.exp(np.sin(x))) if periodic else (lambda x: np.sin(3 * x))
            u = spread(Pencil((points,), periodic=periodic), function(x))
            found = midpoints(u, 0, wind=wind, order=order).local
            errors.append(np.abs(found - function(x + x[1] / 2)[: len(found)]).max())
        assert np.all(np.log2(np.divide(errors[:-1], errors[1:])) > order - 0.3), errors


@SCHEMES
def test_polynomials_are_exact_on_any_points(wind, order):
    rng = np.random.default_rng(0)
    for points in (order, order + 1, 15):
        x = np.cumsum(rng.uniform(0.7, 1.3, points)) / points * rng.choice([-1, 1])
        function = np.polynomial.Polynomial(rng.standard_normal(order))
        u = spread(Pencil((points,)), function(x))
        found = midpoints(u, 0, wind=wind, order=order, coordinates=x)
        np.testing.assert_allclose(found.local, function((x[1:] + x[:-1]) / 2), atol=1e-9)


@SCHEMES
def test_wind_damps_short_waves(wind, order):
    """Advection with a wind takes from all waves but constants; without one, from none."""
    u = spread(Pencil((16, 16), periodic=(True, False)), np.eye(16))
    at_faces = midpoints(u, 0, wind=wind, order=order).local
    rates = np.linalg.eigvals((wind or 1) * (np.roll(at_faces, 1, 0) - at_faces))
    if wind:
        assert np.sort(rates.real)[-2] < 0
        assert rates.real.min() < -1
    assert np.sort(rates.real)[-1] < 1e-12
    assert wind or rates.real.min() > -1e-12


@SIZES
@SCHEMES
@ENDS
def test_midpoints_of_any_pencil(comm, wind, order, periodic):
    rng = np.random.default_rng(order)
    for pencil, axis in random_lines(rng, comm, (1, 2, 3), up_to(4, 1), (6, 40)):
        data = rng.standard_normal(pencil.shape)
        expected = expected_of(data, axis, wind, order, periodic=periodic)
        options = {"wind": wind, "order": order, "periodic": periodic}
        for shared in (False, True):
            u = zeros(pencil, halo=int(rng.integers(2)), shared=shared)
            u[...] = data
            found = midpoints(u, axis, **options)
            assert near(found, expected)
            assert found.pencil == (pencil if periodic else np.diff(u, axis=axis).pencil)
            out = zeros(found.pencil, halo=1)
            assert midpoints(u, axis, out=out, **options) is out
            assert near(out, expected)
            assert holds(u, data)


@SIZES
@ENDS
def test_short_blocks_of_midpoints(comm, periodic):
    for points in range(6, up_to(30, 14)):
        data = np.random.default_rng(points).standard_normal((points, 3))
        u = spread(Pencil((points, 3), comm, decomp=0, periodic=periodic), data)
        for wind, order in ((0, 6), (1, 5)):
            found = midpoints(u, 0, wind=wind, order=order)
            assert near(found, expected_of(data, 0, wind, order, periodic=periodic))


@SIZES
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_midpoints_of_element_types_and_components(comm, dtype):
    rng = np.random.default_rng(4)
    data = random_data(rng, (2, *SHAPE), dtype)
    pencil = Pencil(SHAPE, comm, order=(2, 0, 1), periodic=(False, True, False))
    u = spread(pencil, data, halo=1)
    tolerance = 1e-5 if dtype in {"f4", "c8"} else 1e-12
    for axis, periodic in ((1, False), (2, True)):
        wide = data.astype("c16" if data.dtype.kind == "c" else "f8")
        expected = expected_of(wide, axis, 0, 6, periodic=periodic)
        for number in (axis, axis - 4):
            found = midpoints(u, number)
            assert found.dtype == dtype
            assert near(found, expected, tolerance)
    again = spread(pencil, data)
    assert midpoints(again, 2, out=again) is again
    assert near(again, expected, tolerance)


@SIZES
def test_midpoints_of_singletons_and_coordinates(comm):
    pencil = Pencil((40, 4), comm)
    x = np.sinh(np.linspace(-1, 1.5, 40))
    u = zeros(pencil, dims=0)
    u[...] = (x**3)[:, np.newaxis]
    middle = (x[1:] + x[:-1]) / 2
    for places in (x, x.tolist()):
        found = midpoints(u, 0, wind=1, coordinates=places)
        assert found.singletons == {1}
        assert near(found, (middle**3)[:, np.newaxis])


@SIZES
def test_conservation_by_midpoints_of_fluxes(comm):
    """What midpoints and differences of neighbours make of a field sums to what its ends have."""
    pencil = Pencil((48, 6), comm, decomp=0, periodic=True)
    angles = np.arange(48)[:, np.newaxis] * 2 * np.pi / 48
    u = spread(pencil, np.sin(angles) + np.zeros((48, 6)))
    at_faces = midpoints(u, 0)
    slope = (at_faces - np.roll(at_faces, 1, 0)) / angles[1, 0]
    assert abs(slope.sum()) < 1e-10
    assert abs(slope - derivative(u, 0, spacing=angles[1, 0])).max() < 1e-2
