"""Multigrid, compared with sparse matrices that SciPy solves."""

from functools import reduce
from itertools import product
from math import prod

import numpy as np
import pytest
from fields import draw
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere
from scipy import sparse
from scipy.optimize import brentq
from scipy.sparse.linalg import splu

import pencils
from pencils import Pencil, partition
from pencils.errors import ArgumentError, ConvergenceError, PencilMismatchError
from pencils.solvers import Multigrid, cg

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SMOOTHERS = ["red-black", "jacobi", "chebyshev", "line"]
D, N, P = "dirichlet", "neumann", "periodic"
C, V = "cell", "vertex"
# Extents; where points are, and what is given at the walls; spacing, None for random coordinates.
GRIDS = {
    "line": ((1024,), [(C, (D, N))], [0.1]),
    "plane": ((48, 20), [(C, D), (C, P)], [0.5, 0.7]),
    "odd": ((24, 15, 4), [(C, (N, D)), (C, N), (C, P)], [1.0, 2.0, 0.7]),
    "flat": ((16, 16, 16), [(C, N), (C, D), (C, (D, N))], [1.0, 1.0, 0.1]),
    "closed": ((16, 12, 8), [(C, N), (C, P), (C, N)], [1.0, 1.0, 1.0]),
    "small vertices": ((1, 5, 3), [(V, D), (V, N), (V, (D, N))], [1.0, None, 1.0]),
    "small": ((5, 1, 3), [(C, D), (C, N), (C, D)], [1.0, 1.0, 1.0]),
    "vertices": ((15, 8, 9), [(V, D), (V, (D, N)), (V, N)], [1.0, 1.5, 1.0]),
    "stretched": ((12, 9, 8), [(C, (D, N)), (V, N), (C, P)], [None, None, None]),
    "stretched vertices": ((31, 48), [(V, D), (V, (N, D))], [None, None]),
    "closed vertices": ((33, 32), [(V, N), (V, P)], [None, 2.0]),
}


def pair(walls):
    return (walls, walls) if isinstance(walls, str) else walls


def make(comm, shape, walls):
    return Pencil(shape, comm, periodic=[each == P for each in walls])


def edges_of(n, kind, spacing):
    """Return coordinates of faces, or of vertices with walls and the next period."""
    where, walls = kind
    count = n if where == C or walls == P else n - 1 + pair(walls).count(D)
    steps = np.random.default_rng(n).uniform(0.6, 1.4, count) if spacing is None else spacing
    return np.append(0, np.cumsum(np.broadcast_to(steps, count)))


def line_of(n, kind, x):
    """Return differences over low faces, and the high wall; distances; volumes; parts behind."""
    (where, walls), wraps = kind, kind[1] == P
    low, high = (end == D for end in pair(walls))
    points = (x[1:] + x[:-1]) / 2 if where == C else x[int(low) :][:n]
    before, after = (points[-1] - x[-1], points[0] + x[-1]) if wraps else (x[0], x[-1])
    gaps = np.diff([before, *points, after])
    volumes = np.diff(x) if where == C else (gaps[1:] + gaps[:-1]) / 2
    shares = (points - x[:-1]) / gaps[:-1] if where == C else np.full(n, 0.5)
    shares = np.append(shares, shares[0] if wraps else 0)
    shares[0] = shares[0] if wraps else 1
    into = np.eye(n + 1, n) - np.eye(n + 1, n, -1)  # from fluxes, the transpose of differences
    steps = into.copy()
    steps[0, 0], steps[n, n - 1] = low or wraps, -(high or wraps)
    steps[0, n - 1], steps[n, 0] = (-wraps, wraps) if wraps else (steps[0, n - 1], steps[n, 0])
    return (
        steps / np.where(gaps == 0, 1, gaps)[:, None],
        -into.T / volumes[:, None],
        volumes,
        shares,
    )


def faces(a, axis, shares):
    """Return the coefficient on all faces along an axis, which comes first."""
    a, shape = np.moveaxis(a, axis, 0), (-1, *[1] * (a.ndim - 1))
    before, behind = np.concatenate([a[-1:], a]), np.concatenate([a, a[:1]])
    shares = shares.reshape(shape)
    return 1 / (shares / behind + (1 - shares) / before)


def matrix(a, c, lines):
    """Assemble the operator; `a` is given on points, or on the faces of each axis."""
    found = sparse.diags_array(np.ravel(c))
    for axis, (steps, into, _, shares) in enumerate(lines):
        k = faces(a, axis, shares) if isinstance(a, np.ndarray) else np.moveaxis(a[axis], axis, 0)
        every = [[sparse.eye_array(len(line[2])) for line in lines] for _ in range(2)]
        every[0][axis], every[1][axis] = sparse.csr_array(steps), sparse.csr_array(into)
        gradient, divergence = (reduce(sparse.kron, each) for each in every)
        found = found + divergence @ sparse.diags_array(np.moveaxis(k, 0, axis).ravel()) @ gradient
    return found


def solution(operator, data, volumes, *, closed):
    """Solve, with mean zero where that is free, for each component."""
    if closed:
        n = len(volumes)
        border = [[operator, np.ones((n, 1))], [volumes[None], None]]
        operator = sparse.block_array(border)
    inverse = splu(sparse.csc_array(operator))
    rows = data.reshape(-1, len(volumes))
    found = inverse.solve(np.pad(rows, ((0, 0), (0, int(closed)))).T).T
    return found[:, : len(volumes)].reshape(data.shape)


def coefficient(shape, jump=1e3):
    """Return 1, and another value in a ball."""
    x = np.indices(shape) + 0.5
    distance = sum((each / n - 0.47) ** 2 for each, n in zip(x, shape, strict=True))
    return np.where(distance < 0.09, jump, 1.0)


def close(comm, u, expected, rtol=1e-6):
    scale = abs(expected).max()
    assert everywhere(comm, abs(u.local - expected[u.local_slices]).max(initial=0) < rtol * scale)


def same(here, alone, rtol=1e-6):
    """Check that residuals are equal up to rounding, which the first one measures."""
    rounding = 1e-13 * alone.residuals[0]
    np.testing.assert_allclose(here.residuals, alone.residuals, rtol=rtol, atol=rounding)


@pytest.mark.parametrize("c", [0.0, "field"])
@pytest.mark.parametrize("a", ["number", "field", "faces"])
@pytest.mark.parametrize("name", GRIDS)
def test_solutions_are_those_of_sparse_matrices(comm, name, a, c):
    shape, kinds, spacings = GRIDS[name]
    places, walls = zip(*kinds, strict=True)
    pen = make(comm, shape, walls)
    every = [edges_of(*each) for each in zip(shape, kinds, spacings, strict=True)]
    lines = [line_of(*each) for each in zip(shape, kinds, every, strict=True)]
    volumes = reduce(np.multiply.outer, [each for _, _, each, _ in lines])
    values = np.full(shape, 2.5) if a == "number" else coefficient(shape, 20.0)
    shift = -(draw(shape, seed=1) ** 2) if c == "field" else np.zeros(shape)
    data = draw(shape, seed=2)
    given = partition(pen, values) if a == "field" else 2.5
    if a == "faces":
        means = [faces(values, axis, shares) for axis, (*_, shares) in enumerate(lines)]
        values = [np.moveaxis(each, 0, axis) for axis, each in enumerate(means)]
        at = [pen.staggered(axis) for axis in range(pen.ndim)]
        cut = [np.take(each, range(at[d].shape[d]), d) for d, each in enumerate(values)]
        given = [partition(*each) for each in zip(at, cut, strict=True)]
    closed = name.startswith("closed") and c == 0.0
    data -= (data * volumes).sum() / volumes.sum() if closed else 0
    expected = solution(matrix(values, shift, lines), data, volumes.ravel(), closed=closed)
    field = partition(pen, shift) if c == "field" else c
    spacing = [x if h is None else h for x, h in zip(every, spacings, strict=True)]
    with Multigrid(pen, given, field, spacing=spacing, boundary=walls, centred=places) as mg:
        out = pencils.zeros(pen, halo=1)
        result = mg.solve(partition(pen, data), out, rtol=1e-10)
        assert result.converged
        assert result.solution is out
        close(comm, out, expected)


@pytest.mark.parametrize("smoother", SMOOTHERS)
@pytest.mark.parametrize("jump", [1.0, 1e5])
def test_single_precision_is_as_good_as_double(comm, smoother, jump):
    """Of numbers whose squares single precision has not, nor their inverses."""
    shape, axis = (32, 31, 8), 1 if smoother == "line" else None
    pen, found = make(comm, shape, [P, N, D]), []
    a = partition(pen, 1e25 * coefficient(shape, jump))
    for precision in ("double", "single"):
        options = {"boundary": [P, N, D], "centred": [C, V, C], "axis": axis}
        with Multigrid(pen, a, smoother=smoother, precision=precision, **options) as mg:
            assert ("in single precision" in repr(mg)) == (precision == "single")
            grids = mg._cycles._grids
            every = {u.dtype for grid in grids for u in [grid.u, grid.r, *grid._weights]}
            assert every == {np.dtype("f4" if precision == "single" else "f8")}
            found.append(mg.solve(partition(pen, 1e-25 * draw(shape)), rtol=1e-10, full=jump > 1))
    expected, result = found
    assert result.converged
    assert result.iterations <= expected.iterations + 1
    assert abs(result.solution - expected.solution).max() < 1e-8 * abs(expected.solution).max()


@pytest.mark.parametrize("c", [0.0, -1e-7, -0.1])
def test_small_numbers_that_hold_solutions_are_not_rounded(comm, c):
    pen = Pencil((32, 32), comm, periodic=True)
    f = partition(pen, draw(pen.shape))
    f -= f.mean() * (c == 0)
    with Multigrid(pen, 1.0, c, cycle="W") as mg:
        assert ("in single precision" in repr(mg)) == (c != -1e-7)
        assert mg.solve(f, rtol=1e-9).check().mean() * (c or 1) == pytest.approx(f.mean())


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
            options = {"spacing": spacing, "boundary": walls, "axis": axis, "precision": "double"}
            with Multigrid(pen, partition(pen, a), smoother=smoother, **options) as mg:
                found.append(mg.solve(partition(pen, data)))
        here, alone = found
        assert here.converged
        assert here.iterations == alone.iterations <= most
        same(here, alone)


def stretched(n, ratio=50):
    """Return coordinates of n intervals by a hyperbolic tangent; the ratio is that of extremes."""
    x = np.linspace(-1, 1, n + 1)

    def over(strength):
        steps = np.diff(np.tanh(strength * x))
        return steps.max() / steps.min() - ratio

    return np.tanh(brentq(over, 0.1, 9) * x)


@pytest.mark.parametrize(
    ("where", "axes", "jump"),
    [*product([C, V], [(), (2,), (0, 2)], [1.0]), (V, (), 1e3)],
)
def test_rates(comm, where, axes, jump):
    """Each cycle has its rate, and ranks change results by no more than rounding."""
    n = 32 >> (len(axes) > 1)
    walls = [D, P, N] if jump == 1 else [N, N, D]
    shape = [n + (where == V) * {D: -1, P: 0, N: 1}[each] for each in walls]
    spacing = [stretched(n) if dim in axes else 2 / n for dim in range(3)]
    options, found = {"spacing": spacing, "boundary": walls, "centred": where}, []
    for pen in (make(comm, shape, walls), make(MPI.COMM_SELF, shape, walls)):
        a = 1.0
        if jump != 1:  # in double precision, or cycles are equal to three digits only
            a, options["precision"] = partition(pen, coefficient(shape, jump)), "double"
        with Multigrid(pen, a, **options) as mg:
            assert ("line" if axes else "red-black") in repr(mg)
            found.append(mg.solve(partition(pen, draw(shape))))
    here, alone = found
    assert here.converged
    rate = (here.residuals[-1] / here.residuals[0]) ** (1 / here.iterations)
    assert rate <= (0.25 if axes else 0.12 if jump == 1 else 0.2)
    same(here, alone, rtol=1e-4 if jump == 1 else 1e-6)
    close(comm, here.solution, alone.solution.local, 1e-9)


def test_corners_of_a_checkerboard(comm):
    """Cycles are definite there, on cells and vertices, with as many cycles on any ranks."""
    shape, walls, found = (32, 33, 32), [D, N, D], []
    a = np.where((np.indices(shape) // 4).sum(axis=0) % 2, 1e3, 1.0)
    for pen in (Pencil(shape, comm), Pencil(shape, MPI.COMM_SELF)):
        options = {"boundary": walls, "centred": [C, V, C], "precision": "double"}
        with Multigrid(pen, partition(pen, a), cycle="W", **options) as mg:
            found.append(mg.solve(partition(pen, draw(shape))))
    here, alone = found
    assert here.converged
    assert here.iterations == alone.iterations <= 25
    same(here, alone, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["f", "F", "d", "D"])
def test_numbers_and_components(comm, dtype):
    """Each component has the result that it has alone, however small it is."""
    shape, spacing = (63, 65), [0.1, stretched(64, 4)]
    pen, data = Pencil(shape, comm), draw((3, *shape), dtype)
    a = partition(pen, coefficient(shape, 100))
    data[1] *= np.dtype(dtype).type(1e-4)
    data[2] = 0
    rtol = 1e-3 if dtype in "fF" else 1e-8
    options = {"boundary": [D, N], "centred": V, "spacing": spacing, "dtype": dtype}
    with Multigrid(pen, a, components=3, **options) as mg, Multigrid(pen, a, **options) as one:
        f = partition(pen, data)
        result = mg.solve(f, rtol=rtol)
        alone = [one.solve(partition(pen, each), rtol=rtol) for each in data]
        again = mg.solve(f, start=result.solution + data[1, 0, 0], rtol=rtol).check()
        assert abs(again.unstack()[2]).max() == 0
        assert mg.solve(f, start=again, rtol=2 * rtol).iterations == 0
        assert result.check().dtype == dtype
        assert result.iterations == max(each.iterations for each in alone)
        for number, each in enumerate(alone):
            size = max(float(abs(each.solution).max()), 1e-30)
            assert abs(result.solution[number] - each.solution).max() <= 10 * rtol * size
        level = mg.levels[0]
        u = pencils.zeros(pen, halo=1, components=3, dtype=dtype)
        u[...] = result.solution
        for left, right in zip((level.apply(u) - f).unstack(), f.unstack(), strict=True):
            norms = [np.sqrt((abs(each) ** 2 * level.weights).sum()) for each in (left, right)]
            assert norms[0] <= 1.01 * rtol * norms[1]


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_precision(comm, dtype):
    """Residuals that rounding does not allow are no success, though recurrences have them."""
    pen = Pencil((64, 64), comm)
    f = pencils.ones(pen, dtype=dtype)
    with Multigrid(pen, dtype=dtype) as mg:
        result = mg.solve(f, rtol=1e-20, maxiter=99)
        text = f"{np.dtype(dtype)} allows no smaller residual than rounding"
        all_raise(comm, ConvergenceError, text, result.check)
        assert result.residuals[-1] < 3e3 * np.finfo(dtype).eps * result.residuals[0]
        assert result.iterations < 30


def test_weighted_equations(comm):
    """Cycles are symmetric; operators and smoothers of the user see equations without weights."""
    shape, options = (64, 63), {"boundary": [(N, D), D], "centred": V}
    options["spacing"] = [stretched(64, 4), stretched(64, 4)]
    pen = Pencil(shape, comm)
    a = partition(pen, coefficient(shape, 10))
    r, s = (partition(pen, draw(shape, seed=seed)) for seed in range(2))

    def smoother(level, u, f, _reverse):
        u += 0.8 * (f - level.apply(u)) / level.diagonal

    for axis, kind in ((None, "chebyshev"), ((0, 1), "line"), (None, smoother)):
        with Multigrid(pen, a, -0.5, smoother=kind, axis=axis, **options) as mg:
            weights, expected = mg.levels[0].weights, mg.solve(r, rtol=1e-10).check()
            u, v = mg(r / weights), mg(s / weights)
            assert np.isclose((u * s).sum(), (v * r).sum(), rtol=1e-10)
            level, b = mg.levels[0], pencils.zeros(pen, halo=1)
            b[...] = -weights * r
            again = cg(
                lambda u, out, level=level: np.multiply(level.apply(u), -level.weights, out=out),
                b,
                preconditioner=lambda r, out, mg=mg: np.negative(
                    mg(r / mg.levels[0].weights), out=out
                ),
                rtol=1e-10,
            )
            assert again.iterations < 25
            assert abs(again.check() - expected).max() < 1e-8 * abs(expected).max()
            full = mg.solve(r, full=True, rtol=1e-10).check()
            assert abs(full - expected).max() < 1e-8 * abs(expected).max()
            own = {"operator": lambda level, u, mg=mg: mg.levels[level.number].apply(u)}
            with Multigrid(pen, a, -0.5, smoother="jacobi", **own, **options) as other:
                found = other.solve(r, rtol=1e-10).check()
            assert abs(found - expected).max() < 1e-8 * abs(expected).max()


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
@pytest.mark.parametrize(("cycle", "where"), [("V", C), ("W", V)])
def test_cycles_are_linear_and_symmetric(comm, smoother, cycle, where):
    walls = [P, (D, N) if where == C else D]  # all volumes are equal
    pen = make(comm, (64, 36 - (where == V)), walls)
    a, r, s = (partition(pen, draw(pen.shape, seed=seed)) for seed in range(3))
    axis = 1 if smoother == "line" else None
    options = {"boundary": walls, "smoother": smoother, "axis": axis, "cycle": cycle}
    a = partition(pen, coefficient(pen.shape)) * (1 + abs(a))
    with Multigrid(pen, a, -0.1, centred=where, **options) as mg:
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


def test_own_operator_that_fails_on_one_rank(comm):
    def operator(_level, u):
        if comm.rank == comm.size - 1:
            raise ZeroDivisionError
        return -1.0 * u

    all_raise(comm, ZeroDivisionError, "", Multigrid, Pencil((8, 8), comm), operator=operator)


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_own_operator_that_fails_later(comm, calls):
    """On one rank, when the function of some level is traced: in the constructor or in a solve."""
    left = [calls]

    def operator(_level, u):
        left[0] -= 1
        if comm.rank == comm.size - 1 and left[0] < 0:
            raise ZeroDivisionError
        u.exchange_halo()
        return u.shift((1, 0)) + u.shift((-1, 0)) - 3 * u

    def solve():
        with Multigrid(Pencil((64, 32), comm), operator=operator) as mg:
            mg.solve(pencils.ones(mg.pencil))

    all_raise(comm, ZeroDivisionError, "", solve)


@pytest.mark.parametrize("boundary", [N, P])
def test_closed_grid_of_one_point(comm, boundary):
    pen = make(comm, (1, 1), [boundary] * 2)
    with Multigrid(pen, boundary=boundary) as mg:
        assert mg.solve(pencils.zeros(pen)).check().max() == 0
        all_raise(comm, ConvergenceError, "the mean of f", mg.solve, pencils.ones(pen))
    all_raise(comm, ArgumentError, "c is so large", Multigrid, pen, 1.0, 9.0, boundary=boundary)


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
    filled = comm.allreduce(prod(mg.levels[-1].pencil.local_shape) > 0)
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
    bad("no points", pencil=Pencil((0, 4), comm))
    bad("boundary of dimension 1", boundary=[P, [["x"], D]])
    a[3, 4] = -1
    bad("values from -1.0 to 1.0; they must be positive", a)
    a[3, 4] = 1
    bad("they must be finite", 1.0, a * np.nan)
    bad("they must be positive", a * np.nan)
    bad("must be positive", spacing=0)
    bad("spacing has 3 entries", spacing=[1.0, 2.0, 3.0])
    bad("coordinates of 33 faces", spacing=[1.0, np.arange(31.0)])
    bad("'cell' or 'vertex'", centred=["cell", "face"])
    bad("the pencil is periodic in", boundary=[D, D])
    bad("the pencil is periodic in", boundary=[P, P])
    bad("one of V, W, F", cycle="X")
    bad("red-black", smoother="sor")
    bad("dimension of lines", smoother="line")
    bad("dimension of lines", axis=0, smoother="jacobi")
    bad("c is so large", 1.0, 5.0)
    bad("pre", pre=-1)
    bad("'single', 'double', or None", precision=["half"])
    bad("dtype='float32'", precision="single", operator=lambda _level, u: -u)
    bad("must be at least 1", pre=0, post=0)
    bad("complex", a * 1j, error=TypeError)
    bad(
        "lies on",
        pencils.ones(pen.with_(periodic=False, shape=(32, 16))),
        error=PencilMismatchError,
    )
    bad("such as (1024, 32)", pencil=Pencil((997, 33), comm))
    bad("minus one, such as (1023, 33)", pencil=Pencil((997, 35), comm), centred=V, boundary=[D, N])
    bad("float32, float64", dtype=int, error=TypeError)
    bad("levels=1 must be larger", pencil=Pencil((96, 32), comm), levels=1)
    bad("what the operator returns", operator=lambda _level, u: (u * 1).astype(complex))
    one = comm.size - 1  # the rank on which the operator returns something else
    bad("returns", operator=lambda _, u: u.astype(complex) if comm.rank == one else 2 * u)
    with Multigrid(pen, smoother="chebyshev") as mg:
        other = pencils.zeros(Pencil((32, 16), comm))
        all_raise(comm, PencilMismatchError, "lies on", mg, other)
        all_raise(comm, ArgumentError, "float64", mg.solve, pencils.zeros(pen, dtype=int))
        all_raise(comm, ArgumentError, "rtol", mg.solve, a, rtol=-1)
        all_raise(comm, ConvergenceError, "first residual is nan", mg.solve, a, start=a * np.nan)
        all_raise(comm, ArgumentError, "takes no start", mg.solve, a, start=a, full=True)
        all_raise(comm, ArgumentError, "start has dtype", mg.solve, a, start=a * 1j)
        few = mg.solve(a, maxiter=2, rtol=1e-12)
        all_raise(comm, ConvergenceError, "maxiter=2", few.check)
        for factor, text in ((np.nan, "nan"), (1e-200, "underflow"), (1e200, "overflow")):
            all_raise(comm, ConvergenceError, text, mg.solve, a * factor)
        assert mg.solve(a).converged


def test_divergence(comm):
    pen = Pencil((64, 64), comm)
    f = partition(pen, draw(pen.shape))
    with Multigrid(pen, 1.0, smoother=lambda _level, u, f, _reverse: np.add(u, f, out=u)) as mg:
        all_raise(comm, ConvergenceError, "grown", mg.solve, f, accelerate=False)
