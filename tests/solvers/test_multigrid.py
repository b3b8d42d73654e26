"""Multigrid, compared with sparse matrices that SciPy solves."""

from itertools import product

import numpy as np
import pytest
from fields import draw
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere
from scipy import sparse
from scipy.sparse.linalg import spsolve

import pencils
from pencils import Pencil, partition
from pencils.errors import ArgumentError, ConvergenceError, PencilMismatchError
from pencils.solvers import Multigrid, cg

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SMOOTHERS = ["red-black", "jacobi", "chebyshev", "line"]
D, N, P = "dirichlet", "neumann", "periodic"
# Extents, spacing, and what is given at the walls.
GRIDS = {
    "line": ((1024,), 0.1, [(D, N)]),
    "plane": ((48, 20), (0.5, 0.7), [D, P]),
    "odd": ((24, 15, 4), (1.0, 2.0, 0.7), [(N, D), N, P]),
    "flat": ((16, 16, 16), (1.0, 1.0, 0.1), [N, D, (D, N)]),
    "closed": ((16, 12, 8), 1.0, [N, P, N]),
    "small": ((5, 1, 3), 1.0, [D, N, D]),
}


def make(comm, shape, walls):
    return Pencil(shape, comm, periodic=[each == P for each in walls])


def faces(a, axis, wraps):
    """Return the coefficient on all faces along an axis, which comes first."""
    a = np.moveaxis(a, axis, 0)
    ends = (a[-1:], a[:1]) if wraps else (a[:1], a[-1:])
    a = np.concatenate([ends[0], a, ends[1]])
    return 2 / (1 / a[1:] + 1 / a[:-1])


def matrix(a, c, spacing, walls):
    """Assemble the operator: for each axis, fluxes through the low and the high faces."""
    numbers = np.arange(a.size).reshape(a.shape)
    found = sparse.diags(np.ravel(c))
    for axis, (h, wall) in enumerate(zip(np.broadcast_to(spacing, a.ndim), walls, strict=True)):
        here, k = np.moveaxis(numbers, axis, 0), faces(a, axis, wall == P) / h**2
        pair = (wall, wall) if isinstance(wall, str) else wall
        for end, side in ((0, k[:-1].copy()), (-1, k[1:].copy())):
            there, inside = np.roll(here, 2 * end + 1, 0), np.ones(here.shape, bool)
            inside[end] = pair[end] == P
            side[end] *= {P: 1, D: 2, N: 0}[pair[end]]
            for columns, values in ((here, -side), (there, side * inside)):
                index = here.ravel(), columns.ravel()
                found = found + sparse.csr_matrix((values.ravel(), index), found.shape)
    return found


def coefficient(shape, jump=1e3):
    """Return 1, and another value in a ball."""
    x = np.indices(shape) + 0.5
    distance = sum((each / n - 0.47) ** 2 for each, n in zip(x, shape, strict=True))
    return np.where(distance < 0.09, jump, 1.0)


def close(comm, u, expected, rtol=1e-6):
    scale = abs(expected).max()
    assert everywhere(comm, abs(u.local - expected[u.local_slices]).max(initial=0) < rtol * scale)


@pytest.mark.parametrize("c", [0.0, "field"])
@pytest.mark.parametrize("a", ["number", "field", "faces"])
@pytest.mark.parametrize("name", GRIDS)
def test_solutions_are_those_of_sparse_matrices(comm, name, a, c):
    shape, spacing, walls = GRIDS[name]
    pen = make(comm, shape, walls)
    values = np.full(shape, 2.5) if a == "number" else coefficient(shape, 20.0)
    shift = -(draw(shape, seed=1) ** 2) if c == "field" else np.zeros(shape)
    data = draw(shape, seed=2)
    given = partition(pen, values) if a == "field" else 2.5
    if a == "faces":
        given = []
        for axis, wall in enumerate(walls):
            every = np.moveaxis(faces(values, axis, wall == P), 0, axis)
            places = pen.staggered(axis)
            given.append(partition(places, np.take(every, range(places.shape[axis]), axis)))
    closed = name == "closed" and c == 0.0
    data -= data.mean() if closed else 0
    operator = matrix(values, shift.ravel(), spacing, walls)
    if closed:
        operator = operator + np.full((data.size, data.size), 1 / data.size)
    expected = np.reshape(spsolve(sparse.csc_matrix(operator), data.ravel()), shape)
    field = partition(pen, shift) if c == "field" else c
    with Multigrid(pen, given, field, spacing=spacing, boundary=walls) as mg:
        out = pencils.zeros(pen, halo=1)
        result = mg.solve(partition(pen, data), out, rtol=1e-10)
        assert result.converged
        assert result.solution is out
        close(comm, out, expected)


@pytest.mark.parametrize("smoother", SMOOTHERS)
def test_convergence(comm, smoother):
    """The number of cycles hardly depends on the extents, and not on the ranks."""
    axis = 2 if smoother == "line" else None
    most = {"red-black": 11, "jacobi": 16, "chebyshev": 13, "line": 11}[smoother]
    for n, jump, height in [(16, 1e3, 1), (32, 1e3, 0.1)]:
        walls, spacing = [P, N, (D, N)], (1 / n, 1 / n, height / n)
        data, a = draw((n, n, n)), coefficient((n, n, n), jump)
        found = []
        for pen in (make(comm, (n, n, n), walls), make(MPI.COMM_SELF, (n, n, n), walls)):
            options = {"spacing": spacing, "boundary": walls, "axis": axis}
            with Multigrid(pen, partition(pen, a), smoother=smoother, **options) as mg:
                found.append(mg.solve(partition(pen, data)))
        here, alone = found
        assert here.converged
        assert here.iterations == alone.iterations <= most
        np.testing.assert_allclose(here.residuals, alone.residuals, rtol=1e-6)


def test_second_order(comm):
    errors = []
    for n in (32, 64):
        pen = Pencil((n, n), comm, periodic=(True, False))
        x, y = pencils.localgrid(pen, [(np.arange(n) + 0.5) / n] * 2)
        a = 2 + np.sin(2 * np.pi * x) * y
        exact = np.cos(2 * np.pi * x) * np.sin(np.pi * y)
        slopes = (
            -np.sin(2 * np.pi * x) * np.sin(np.pi * y),
            np.cos(2 * np.pi * x) * np.cos(np.pi * y),
        )
        f = -5 * np.pi**2 * a * exact
        f = f + 4 * np.pi**2 * np.cos(2 * np.pi * x) * y * slopes[0]
        f = f + np.pi * np.sin(2 * np.pi * x) * slopes[1]
        with Multigrid(pen, a, spacing=1 / n) as mg:
            errors.append(abs(mg.solve(f).solution - exact).max())
    assert errors[1] < 0.28 * errors[0] < 0.01


@pytest.mark.parametrize("smoother", SMOOTHERS)
@pytest.mark.parametrize("cycle", ["V", "W"])
def test_cycles_are_linear_and_symmetric(comm, smoother, cycle):
    walls = [P, (D, N)]
    pen = make(comm, (64, 36), walls)
    a, r, s = (partition(pen, draw(pen.shape, seed=seed)) for seed in range(3))
    axis = 1 if smoother == "line" else None
    options = {"boundary": walls, "smoother": smoother, "axis": axis, "cycle": cycle}
    with Multigrid(pen, 1 + abs(a), -0.1, **options) as mg:
        u, v = mg(r), mg.apply(s, pencils.empty(pen, halo=1))
        assert np.isclose((u * s).sum(), (v * r).sum(), rtol=1e-10)
        assert everywhere(comm, np.allclose(mg(r - 2 * s).local, (u - 2 * v).local, atol=1e-9))
        assert mg(r, out=r) is r
        assert everywhere(comm, np.allclose(r.local, u.local))


@pytest.mark.parametrize(("cycle", "accelerate"), list(product("VWF", [True, False])))
def test_kinds_of_cycles(comm, cycle, accelerate):
    pen = Pencil((64, 32), comm)
    f, seen = partition(pen, draw(pen.shape)), []
    with Multigrid(pen, cycle=cycle) as mg:
        result = mg.solve(f, accelerate=accelerate, callback=lambda *args: seen.append(args))
        assert [each.number for each in mg.levels] == list(range(len(mg.levels)))
    assert result.iterations <= 10
    assert seen == list(enumerate(result.residuals))[1:]


def test_full_multigrid_begins_near_the_solution(comm):
    """The error of the first guess is not much more than that of the differences."""
    errors = []
    for n in (16, 32):
        pencil = Pencil((n, n, 4 * n), comm)
        x, y, z = pencils.localgrid(pencil, [(np.arange(m) + 0.5) / n for m in pencil.shape])
        exact = np.sin(np.pi * x) * np.cos(2 * np.pi * y) * np.sin(np.pi * z)
        with Multigrid(pencil, spacing=1 / n, boundary=[D, N, D]) as mg:
            for full in (True, False):
                result = mg.solve(-6 * np.pi**2 * exact, full=full, maxiter=0)
                errors.append(float(abs(result.solution - exact).max()))
            best = mg.solve(-6 * np.pi**2 * exact, full=True).check()
            assert abs(best - mg.solve(-6 * np.pi**2 * exact).check()).max() < 1e-6
            assert errors[-2] < 3 * abs(best - exact).max()
            assert errors[-1] > 0.9  # from zero
    assert errors[2] < errors[0] / 3


def test_own_operator_and_smoother(comm):
    """A compact operator of nine points, which has no checkerboard."""
    pen = Pencil((48, 48), comm, periodic=True)

    def operator(level, u):
        u.exchange_halo()
        sides = sum(u.shift(each) for each in ((1, 0), (-1, 0), (0, 1), (0, -1)))
        corners = sum(u.shift(each) for each in product((-1, 1), repeat=2))
        return (4 * sides + corners - 20 * u) / (6 * level.spacing[0] ** 2) - u

    def smoother(level, u, f, _reverse):
        u += 0.8 * (f - level.apply(u)) / level.diagonal

    f = partition(pen, draw(pen.shape))
    for own in ("jacobi", smoother):
        with Multigrid(pen, 1.0, -1.0, operator=operator, smoother=own) as mg:
            u = pencils.zeros(pen, halo=1)
            assert mg.solve(f, u).iterations <= 14
            assert abs(mg.levels[0].apply(u) - f).max() < 1e-6


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("at", ["smoother", "callback"])
def test_functions_that_fail_on_one_rank(comm, at, late):
    """Before or after they communicate; later calls work, also if other ranks have no callback."""
    pen, wrong, calls = Pencil((32, 32), comm), [comm.size - 1], []

    def function(name, work):
        for after in (False, True):
            calls.append(name)
            if comm.rank in wrong and (name, late) == (at, after) and len(calls) > 4:
                raise ZeroDivisionError
            if not after:
                work()

    def smoother(level, u, f, _reverse):
        function("smoother", lambda: u.__iadd__(0.8 * (f - level.apply(u)) / level.diagonal))

    def callback(_number, _residual):
        function("callback", f.max)

    f = pencils.ones(pen)
    with Multigrid(pen, smoother=smoother) as mg:
        all_raise(comm, ZeroDivisionError, [], mg.solve, f, callback=callback)
        wrong.clear()
        assert mg.solve(f, callback=None if comm.rank else lambda *_: None).converged


def test_preconditioner(comm):
    """The operator of `cg` is positive, that of cycles is negative."""
    pen = Pencil((64, 32), comm)
    a, b = partition(pen, coefficient(pen.shape)), partition(pen, draw(pen.shape), halo=1)
    with Multigrid(pen, a) as mg:
        level = mg.levels[0]
        result = cg(
            lambda u, out: np.negative(level.apply(u), out=out),
            b,
            preconditioner=lambda r, out: np.negative(mg(r, out), out=out),
        )
        expected = mg.solve(b)
    assert result.iterations == expected.iterations
    assert abs(result.solution + expected.solution).max() < 1e-6


def test_closed_domains(comm):
    pen = Pencil((32, 32), comm)
    f = partition(pen, draw(pen.shape))
    with Multigrid(pen, boundary=N) as mg:
        u = mg.solve(f - f.mean()).solution
        assert abs(u.mean()) < 1e-12
        shifted = mg.solve(f - f.mean() + 0.001).solution
        assert abs(u - shifted).max() < 1e-5
        all_raise(comm, ConvergenceError, "subtract f.mean", mg.solve, f + 1)


def test_own_operator_that_is_singular(comm):
    pen = Pencil((48, 48), comm, periodic=True)

    def operator(level, u):
        u.exchange_halo()
        corners = sum(u.shift(each) for each in product((-1, 1), repeat=2))
        sides = sum(u.shift(each) for each in ((1, 0), (-1, 0), (0, 1), (0, -1)))
        return (corners + 2 * sides - 12 * u) / (4 * level.spacing[0] ** 2)

    f = partition(pen, draw(pen.shape))
    with Multigrid(pen, operator=operator, smoother="jacobi") as mg:
        result = mg.solve(f - f.mean())
        assert result.iterations <= 14
        assert abs(result.solution.mean()) < 1e-12


def test_lines_of_a_closed_dimension(comm):
    pen = Pencil(1144, comm)
    f = partition(pen, draw(pen.shape))
    f -= f.mean()
    with Multigrid(pen, boundary=N, smoother="line", axis=0) as mg:
        u = mg.solve(f).check()
        v = pencils.zeros(pen, halo=1)
        v[...] = u
        assert abs(mg.levels[0].apply(v) - f).max() < 1e-6
        assert abs(u.mean()) < 1e-9 * abs(u).max()


def test_small_grids_move_to_fewer_ranks(comm):
    pen = Pencil((64, 64), comm)
    mg = Multigrid(pen)
    assert "11 passes" in repr(mg)
    filled = comm.allreduce(mg.levels[-1].u.local.size > 0)
    assert filled == 1
    assert len(Multigrid(pen, levels=2).levels) == 2
    mg.free()
    all_raise(comm, ArgumentError, "was freed", mg, pencils.zeros(pen))


def test_bad_arguments(comm):
    pen = Pencil((32, 32), comm, periodic=(True, False))
    a = pencils.ones(pen)

    def bad(text, *args, error=ArgumentError, pencil=pen, **options):
        all_raise(comm, error, text, Multigrid, pencil, *args, **options)

    bad("must be a positive number", -1.0)
    bad("must be a number or a field", 1.0, np.inf)
    bad("a field on the faces", [1.0, 2.0])
    bad("no cells", pencil=Pencil((0, 4), comm))
    bad("periodic in the pencil", boundary=[P, [["x"], D]])
    a[3, 4] = -1
    bad("values from -1.0 to 1.0; they must be positive", a)
    a[3, 4] = 1
    bad("they must be finite", 1.0, a * np.nan)
    bad("they must be positive", a * np.nan)
    bad("spacing", spacing=0)
    bad("periodic in the pencil", boundary=[D, D])
    bad("periodic in the pencil", boundary=[P, P])
    bad("one of V, W, F", cycle="X")
    bad("red-black", smoother="sor")
    bad("dimension of lines", smoother="line")
    bad("dimension of lines", axis=0)
    bad("c is so large", 1.0, 5.0)
    bad("pre", pre=-1)
    bad("must be at least 1", pre=0, post=0)
    bad("complex", a * 1j, error=TypeError)
    bad(
        "lies on",
        pencils.ones(pen.with_(periodic=False, shape=(32, 16))),
        error=PencilMismatchError,
    )
    bad("such as (1024, 32)", pencil=Pencil((997, 33), comm))
    bad("levels=1 must be larger", pencil=Pencil((96, 32), comm), levels=1)
    bad("what the operator returns", operator=lambda _level, u: (u * 1).astype(complex))
    one = comm.size - 1  # the rank on which the operator returns something else
    bad("returns", operator=lambda _, u: u.astype(complex) if comm.rank == one else 2 * u)
    with Multigrid(pen, smoother="chebyshev") as mg:
        other = pencils.zeros(Pencil((32, 16), comm))
        all_raise(comm, PencilMismatchError, "lies on", mg, other)
        all_raise(comm, ArgumentError, "float64", mg.solve, pencils.zeros(pen, dtype=int))
        all_raise(comm, ArgumentError, "rtol", mg.solve, a, rtol=-1)
        few = mg.solve(a, maxiter=2, rtol=1e-12)
        all_raise(comm, ConvergenceError, "maxiter=2", few.check)
        all_raise(comm, ConvergenceError, "nan", mg.solve, a * np.nan)
        all_raise(comm, ConvergenceError, "underflow", mg.solve, a * 1e-200)
        assert mg.solve(a).converged


def test_divergence(comm):
    pen = Pencil((64, 64), comm)
    f = partition(pen, draw(pen.shape))
    with Multigrid(pen, 1.0, smoother=lambda _level, u, f, _reverse: np.add(u, f, out=u)) as mg:
        all_raise(comm, ConvergenceError, "grown", mg.solve, f, accelerate=False)
