"""Compact differences on fields that are cut in any way, compared with dense matrices."""

import gc
from functools import partial

import numpy as np
import pytest
from dense import check_calls, make, near, random_data, random_lines
from lele import differentiated, matrix_of
from mpi_helpers import all_raise, everywhere, numbered, spread
from tiers import up_to

import pencils
from pencils import Pencil, PencilArray, derivative, zeros
from pencils.errors import ArgumentError
from pencils.lines import CompactDerivative
from pencils.lines.compact import SCHEMES, equations, taylor_weights
from pencils.lines.plan import METHODS

SIZES = pytest.mark.parallel([1, 2, 3, 4, 6])
SHAPE = (40, 9, 5)
schemes = pytest.mark.parametrize(("which", "order"), SCHEMES)
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)
ends = pytest.mark.parametrize("periodic", [False, True])


def dense(points, which, order, spacing=1.0, *, periodic=False):
    """Build the matrix that the equations of a scheme mean."""
    scheme = SCHEMES[which, order]
    stencils = partial(scheme.at, points=points, periodic=periodic)
    system = equations(which, points, spacing, stencils)
    left, right = np.zeros((2, points, points))
    for row, (entries, side) in enumerate(zip(*system, strict=True)):
        for column, entry in entries.items():
            left[row, column] = entry
        for column, weight in side:
            right[row, column] += weight
    return np.linalg.solve(left, right)


@schemes
@ends
def test_schemes_are_those_of_lele(which, order, periodic):
    for points in (6, 7, 12, 31):
        expected = matrix_of(points, which, order, spacing=0.5, periodic=periodic)
        found = dense(points, which, order, 0.5, periodic=periodic)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@schemes
def test_orders_of_accuracy_on_rings(which, order):
    errors = []
    for points in (16, 32, 64):
        x = np.arange(points) * 2 * np.pi / points
        u = np.exp(np.sin(x))
        exact = np.cos(x) * u if which == 1 else (np.cos(x) ** 2 - np.sin(x)) * u
        found = dense(points, which, order, x[1], periodic=True) @ u
        errors.append(np.abs(found - exact).max())
    assert np.all(np.log2(np.divide(errors[:-1], errors[1:])) > order - 0.35), errors


def errors_between_walls(which, order, grid, counts):
    """Return errors at the walls, and far from them."""
    errors = []
    for points in counts:
        x = grid(points)
        uniform = np.allclose(np.diff(x), x[1] - x[0])
        spacing = x[1] - x[0] if uniform else x
        found = dense(points, which, order, spacing) @ np.sin(4 * x)
        error = np.abs(found - (4 * np.cos(4 * x) if which == 1 else -16 * np.sin(4 * x)))
        errors.append((error.max(), error[points // 3 : -(points // 3)].max()))
    return np.log2(np.divide(errors[:-1], errors[1:]))


@schemes
def test_orders_of_accuracy_between_walls(which, order):
    counts = (24, 48, 96) if order == 6 else (40, 80, 160)
    orders = errors_between_walls(which, order, lambda n: np.linspace(0, 1, n), counts)
    assert np.all(orders[:, 0] > (2.9 if which == 1 else 3.7)), orders
    assert np.all(orders[:, 1] > order - 0.3), orders


@schemes
def test_orders_of_accuracy_on_stretched_grids(which, order):
    def grid(points):
        return np.tanh(1.5 * np.linspace(-1, 1, points))

    orders = errors_between_walls(which, order, grid, (40, 80, 160))
    assert np.all(orders[:, 0] > (2.9 if which == 1 else 3.4)), orders
    assert np.all(orders[:, 1] > order - 0.6), orders


@schemes
def test_polynomials_are_exact_on_any_points(which, order):
    rng = np.random.default_rng(0)
    degree = 3 if which == 1 else 4  # what the points at walls allow
    for _ in range(20):
        x = np.cumsum(rng.uniform(0.7, 1.3, 15)) / 15 * rng.choice([-1, 1])
        polynomial = np.polynomial.Polynomial(rng.standard_normal(degree + 1))
        found = dense(15, which, order, x) @ polynomial(x)
        np.testing.assert_allclose(found, polynomial.deriv(which)(x), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("order", [4, 6])
@pytest.mark.parametrize("points", [8, 20, 51, 100])
def test_advection_and_diffusion_are_stable_between_walls(points, order):
    for beta in (0.0, 1.0, 2.0):
        x = np.linspace(0, 1, points)
        if beta:
            x = 0.5 + np.tanh(beta * (x - 0.5)) / (2 * np.tanh(beta / 2))
        spacing = x if beta else x[1]
        advection = -dense(points, 1, order, spacing)[1:, 1:]
        diffusion = dense(points, 2, order, spacing)[1:-1, 1:-1]
        assert beta or np.linalg.eigvals(advection).real.max() < 0
        assert np.linalg.eigvals(diffusion).real.max() < -9


def test_taylor_weights_of_staggered_points():
    derivatives, values = taylor_weights([-1.0, 0.0, 1.0], [-0.5, 0.5, -1.5, 1.5], 1)
    np.testing.assert_allclose(derivatives, [9 / 62, 1, 9 / 62])
    np.testing.assert_allclose(values, [-63 / 62, 63 / 62, -17 / 186, 17 / 186])


@SIZES
@pytest.mark.parametrize("shared", [False, True])
@ends
@pytest.mark.parametrize("method", METHODS)
@each_scheme
def test_any_pencil(comm, scheme, method, periodic, shared):
    which, order = scheme
    rng = np.random.default_rng(order)
    for pencil, axis in random_lines(rng, comm, (1, 2, 3), up_to(4, 1), (6, 40)):
        data = rng.standard_normal(pencil.shape)
        u = zeros(pencil, halo=int(rng.integers(2)), shared=shared)
        u[...] = data
        options = {"spacing": 0.5, "periodic": periodic}
        expected = differentiated(data, axis, which, order, **options)
        options |= {"derivative": which, "order": order}
        with make(pencil, axis, method=method, plan=CompactDerivative, **options) as differentiate:
            check_calls(differentiate, u, data, expected, shared=shared, refused="for u and")


@SIZES
@ends
def test_short_blocks(comm, periodic):
    for points in range(6, up_to(30, 16)):
        data = np.random.default_rng(points).standard_normal((points, 3))
        u = spread(Pencil((points, 3), comm, decomp=0, periodic=periodic), data)
        for which, order in SCHEMES:
            found = derivative(u, 0, derivative=which, order=order)
            assert near(found, differentiated(data, 0, which, order, periodic=periodic))


@SIZES
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@schemes
def test_element_types_components_and_axes(comm, dtype, which, order):
    rng = np.random.default_rng(4)
    data = random_data(rng, (2, *SHAPE), dtype)
    pencil = Pencil(SHAPE, comm, order=(2, 0, 1), periodic=(False, True, False))
    u = spread(pencil, data, halo=1)
    tolerance = 1e-5 if dtype in {"f4", "c8"} else 1e-12
    for axis, periodic in ((1, False), (2, True)):
        options = {"order": order, "derivative": which}
        expected = differentiated(data.astype("c16"), axis, which, order, periodic=periodic)
        for number in (axis, axis - 4):
            found = derivative(u, number, **options)
            assert found.dtype == dtype
            assert near(found, expected, tolerance)
        out = zeros(pencil, dtype=dtype, components=2, halo=2)
        assert derivative(u, axis, out=out, periodic=periodic, **options) is out
        assert near(out, expected, tolerance)
    if which == 1:
        again = spread(pencil, data)
        assert derivative(again, 2, order=order, out=again) is again
        assert near(again, differentiated(data, 2, 1, order, periodic=True), tolerance)


@SIZES
@schemes
def test_coordinates(comm, which, order):
    x = np.sinh(np.linspace(-1, 1.5, 40))
    pencil = Pencil((40, 3), comm, decomp=0)
    data = numbered((40, 3)) / 50.0
    u = spread(pencil, data)
    for coordinates in (x, x[::-1], np.arange(40), x.tolist()):
        places = np.array(coordinates, float)
        expected = dense(40, which, order, places) @ data
        options = {"derivative": which, "order": order}
        assert near(derivative(u, 0, spacing=coordinates, **options), expected, 1e-11)
        assert near(derivative(u, 0, spacing=coordinates, **options), expected, 1e-11)


@SIZES
def test_singletons(comm):
    pencil = Pencil(SHAPE, comm)
    data = np.sin(np.arange(40.0)).reshape(40, 1, 1)
    u = zeros(pencil, dims=0)
    u[...] = data
    found = derivative(u, 0)
    assert found.singletons == {1, 2}
    assert near(found, differentiated(data, 0, 1, 6))
    all_raise(comm, ArgumentError, "do not vary along axis 1", derivative, u, 1)


@SIZES
def test_kept_plans_are_found_again(comm):
    private = comm.Dup()
    pencil = Pencil((48, 5), private, decomp=0, periodic=True)
    data = np.random.default_rng(3).standard_normal((48, 5))
    for spacing in (1.0, 0.5, 0.25) * 2:
        found = derivative(spread(pencil, data), 0, spacing=spacing)
        assert near(found, differentiated(data, 0, 1, 6, spacing=spacing, periodic=True))
        gc.collect()
    for number in range(40):  # more than are kept
        found = derivative(spread(pencil, data), 0, spacing=1.0 + number)
    assert near(found, differentiated(data, 0, 1, 6, spacing=40.0, periodic=True))
    private.Free()


@SIZES
def test_ghosts_of_results_are_not_valid(comm):
    pencil = Pencil((24, 4), comm, decomp=0, periodic=True)
    u, out = zeros(pencil), zeros(pencil, halo=1)
    with pencils.debug.ghosts():
        out.exchange_halo()
        assert everywhere(comm, np.isfinite(out.shift((1, 0)).local).all())
        derivative(u, 0, out=out)
        assert everywhere(comm, np.isnan(out.padded[0]).all())


@SIZES
def test_plans_show_what_they_do(comm):
    pencil = Pencil(SHAPE, comm, decomp=0)
    with CompactDerivative(pencil, 0, spacing=0.5, periodic=True) as plan:
        assert "periodic, derivative=1, order=6, spacing=0.5" in repr(plan)
    with CompactDerivative(pencil, 0, spacing=np.arange(40.0)) as plan:
        assert "spacing=coordinates " in repr(plan)


@SIZES
def test_fields_of_classes_of_the_user(comm):
    class Own(PencilArray):
        pass

    pencil = Pencil((12, 6), comm)
    u = pencils.random.uniform(pencil, rng=1)
    found = derivative(Own(pencil, u.local), 0)
    assert everywhere(comm, np.array_equal(found.local, derivative(u, 0).local))
