"""solve_banded on fields that are cut in any way, compared with SciPy and dense systems."""

import numpy as np
import pytest
from dense import near, random_lines
from mpi_helpers import spread
from tiers import up_to

import pencils
from pencils import Pencil
from pencils.lines import solve_banded
from pencils.plans import MOST_PLANS, kept_plans

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

COUNTS = [(1, 1), (2, 2), (0, 1), (1, 0), (0, 0), (1, 2), (3, 1)]


def bands(rng, counts, points, kind=float):
    """Draw a well conditioned matrix; what lies outside is NaN, except in corners."""
    ab = rng.uniform(-1, 1, (sum(counts) + 1, points)).astype(kind)
    ab[counts[1]] += 2 + 2 * sum(counts)
    return ab if kind is float else ab + 1j * rng.uniform(-1, 1, ab.shape)


def dense(counts, ab, *, periodic):
    points = ab.shape[1]
    matrix = np.zeros((points, points), ab.dtype)
    for k in range(len(ab)):
        for j in range(points):
            i = j + k - counts[1]
            if periodic or 0 <= i < points:
                matrix[i % points, j] += ab[k, j]
    return matrix


def solved(matrix, data, axis):
    lines = np.moveaxis(data, axis, 0)
    found = np.linalg.solve(matrix, lines.reshape(len(matrix), -1)).reshape(lines.shape)
    return np.moveaxis(found, 0, axis)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("counts", COUNTS)
def test_any_pencil(comm, counts, periodic):
    rng = np.random.default_rng(sum(counts))
    points = sum(counts) + 1, 30
    for pencil, axis in random_lines(rng, comm, (1, 2, 3), up_to(4, 2), points):
        data = rng.standard_normal((2, *pencil.shape))
        ab = bands(rng, counts, pencil.shape[axis])
        expected = solved(dense(counts, ab, periodic=periodic), data, axis + 1)
        b = spread(pencil, data)
        found = solve_banded(counts, ab, b, axis=axis + 1, periodic=periodic)
        assert found.pencil is pencil
        assert near(found, expected)
        assert near(b, data)
        given = {"axis": axis - pencil.ndim, "periodic": periodic, "out": b}
        assert solve_banded(counts, ab.tolist(), b, **given) is b
        assert near(b, expected)


@pytest.mark.parametrize("counts", COUNTS)
def test_as_scipy_does(comm, counts):
    linalg = pytest.importorskip("scipy.linalg")
    rng = np.random.default_rng(7)
    data = rng.standard_normal((40, 6))
    ab = bands(rng, counts, 40)
    b = spread(Pencil(data.shape, comm, decomp=0), data)
    expected = linalg.solve_banded(counts, ab, data)
    assert near(solve_banded(counts, ab, b, axis=0), expected)
    for k, j in np.ndindex(*ab.shape):
        if not 0 <= j + k - counts[1] < 40:
            ab[k, j] = np.nan  # not read, as in SciPy
    assert near(solve_banded(counts, ab, b, axis=0), expected)


@pytest.mark.parametrize("dtype", ["<f4", "<c8", "<c16"])
def test_types(comm, dtype):
    rng = np.random.default_rng(3)
    kind = complex if np.dtype(dtype).kind == "c" else float
    data = (rng.standard_normal((17, 3)) + (1j if kind is complex else 0)).astype(dtype)
    ab = bands(rng, (1, 1), 17, kind)
    b = spread(Pencil(data.shape, comm, decomp=0), data)
    found = solve_banded((1, 1), ab, b, axis=0)
    assert found.dtype == dtype
    matrix = dense((1, 1), ab, periodic=False)
    assert near(found, solved(matrix, data, 0), 1e-12 if dtype == "<c16" else 1e-5)


def test_plans_are_kept_by_matrix(comm):
    rng = np.random.default_rng(4)
    pencil = Pencil((12, 3), comm, decomp=0)
    b = pencils.ones(pencil)
    plans = kept_plans(pencil.topology)
    ab = bands(rng, (1, 1), 12)
    for _ in range(3):
        solve_banded((1, 1), ab, b, axis=0)
        last = next(reversed(plans.values()))
        assert "1 + 1 + 1 diagonals" in repr(last)
        solve_banded((1, 1), ab.copy(), pencils.zeros(pencil), axis=0)
        assert next(reversed(plans.values())) is last
    ab[1, 5] += 1
    for changed in (ab, ab + 0.1):
        found = solve_banded((1, 1), changed, b, axis=0)
        assert next(reversed(plans.values())) is not last
        assert near(found, solved(dense((1, 1), changed, periodic=False), np.ones((12, 3)), 0))
    for number in range(MOST_PLANS + 2):
        solve_banded((0, 0), np.full((1, 12), 1.0 + number), b, axis=0)
    assert len(plans) <= MOST_PLANS
