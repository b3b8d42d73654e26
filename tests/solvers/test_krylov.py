"""Krylov methods against SciPy and dense solves of the gathered equations."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from mpi_helpers import all_raise, collectives, everywhere, named, ranks_at_fault, spread

import pencils
from pencils.errors import ArgumentError, ConvergenceError, PencilMismatchError
from pencils.solvers import bicgstab, cg, minres
from pencils.solvers.result import History

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 7, 5)
SOLVERS = [cg, minres, bicgstab]
STEPS = [tuple(sign * row) for row in np.eye(3, dtype=int) for sign in (1, -1)]


def laplacian(shift=6.0, wind=0.0):
    """Make an operator: minus the Laplacian of seven points, and perhaps convection."""

    def function(u, out):
        u.exchange_halo(corners=False)
        out[...] = shift * u + wind * (u.shift((1, 0, 0)) - u.shift((-1, 0, 0)))
        out[...] -= sum(u.shift(step) for step in STEPS)

    return function


def matrix_of(shift=6.0, wind=0.0, *, periodic=False):
    """Make the matrix of the same operator."""
    total = shift * sp.identity(np.prod(SHAPE))
    for dim, points in enumerate(SHAPE):
        up = np.eye(points, k=1)
        if periodic:
            up[-1, 0] = 1
        line = -up - up.T + (wind * (up - up.T) if dim == 0 else 0)
        before, after = (int(np.prod(part)) for part in (SHAPE[:dim], SHAPE[dim + 1 :]))
        total = total + sp.kron(sp.kron(sp.identity(before), line), sp.identity(after))
    return total.tocsr()


def draw(dtype=float, shape=SHAPE):
    rng = np.random.default_rng(3)
    values = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (values if np.dtype(dtype).kind == "c" else values.real).astype(dtype)


def right_side(comm, dtype=float, *, shape=SHAPE, **options):
    data = draw(dtype, shape)
    return spread(pencils.Pencil(SHAPE, comm, **options), data, halo=1), data


def matches(result, expected, rtol):
    found = pencils.gather(result.solution, root=None)
    return np.allclose(found, expected, rtol=0, atol=rtol * abs(expected).max())


@pytest.mark.parametrize("dtype", [float, complex, np.float32])
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("solve", SOLVERS)
def test_solutions_and_counts_of_scipy(comm, solve, preconditioned, dtype):
    given = {"wind": 0.3} if solve is bicgstab else {"shift": 4.7} if solve is minres else {}
    b, data = right_side(comm, dtype, order=(1, 2, 0))
    weights = 1 / (1 + np.arange(SHAPE[0]) / 3)[:, None, None] * np.ones(SHAPE)
    single = dtype is np.float32
    options, named_ones = {"rtol": 1e-4 if single else 1e-9}, {}
    if preconditioned:
        options["preconditioner"] = lambda r, out: np.multiply(r, weights, out=out)
        named_ones["M"] = sp.diags(weights.ravel())
    result = solve(laplacian(**given), b, **options)
    assert result.converged
    assert everywhere(comm, result.residuals.tolist() == comm.bcast(result.residuals.tolist()))
    matrix = matrix_of(**given)
    expected = sla.spsolve(matrix.tocsc(), data.ravel()).reshape(SHAPE)
    assert matches(result, expected, 1e-2 if single else 1e-7)
    if solve is minres:  # SciPy has other tolerances
        return
    count = []
    function = getattr(sla, solve.__name__)
    function(matrix, data.ravel(), rtol=options["rtol"], callback=count.append, **named_ones)
    assert abs(result.iterations - len(count)) <= 1


@pytest.mark.parametrize("solve", SOLVERS)
def test_components_singletons_and_guesses(comm, solve):
    pencil = pencils.Pencil((7, 6), comm, decomp=(0, 1))
    data = draw(shape=(2, 7, 1))
    b = spread(pencil, data, halo=(1, 0), dims=(0,))

    def operator(u, out):
        u.exchange_halo()
        out[...] = 3 * u - u.shift((1, 0)) - u.shift((-1, 0))

    matrix = 3 * np.eye(7) - np.eye(7, k=1) - np.eye(7, k=-1)
    expected = np.linalg.solve(matrix, data[..., 0].T).T[..., None]
    result = solve(operator, b)
    assert matches(result, expected, 1e-7)
    assert not any(map(any, (result.solution.halo[1],)))
    guess = spread(pencil, expected, dims=(0,))
    again = solve(operator, b, guess)
    assert again.solution is guess
    assert again.iterations == 0
    b.fill(0)
    assert solve(operator, b, guess).converged
    assert everywhere(comm, not guess.local.any())


@pytest.mark.parametrize("solve", SOLVERS)
def test_points_that_are_switched_off_keep_their_values(comm, solve):
    b, data = right_side(comm)
    mask = (np.arange(np.prod(SHAPE)) % 7 != 3).reshape(SHAPE)
    values = draw() ** 2
    out = spread(b.pencil, values)

    def operator(u, out):
        laplacian()(u, out)
        out.local[~mask[out.local_slices] & (u.local == 0)] = np.nan  # nobody looks there

    result = solve(operator, b, out, mask=spread(b.pencil, mask), rtol=1e-10)
    on, matrix = mask.ravel(), matrix_of().toarray()
    known = matrix[np.ix_(on, ~on)] @ values[~mask]
    expected = values.copy()
    expected[mask] = np.linalg.solve(matrix[np.ix_(on, on)], data[mask] - known)
    assert result.converged
    assert matches(result, expected, 1e-8)
    without = solve(laplacian(), b, mask=mask).solution
    assert everywhere(comm, not without.local[~mask[b.local_slices]].any())


def test_forms_of_operators(comm):
    b, data = right_side(comm)
    expected = sla.spsolve(matrix_of().tocsc(), data.ravel()).reshape(SHAPE)

    class Laplacian:
        def apply(self, u, out):
            laplacian()(u, out)
            return out

    @pencils.fused
    def lines(u):
        u.exchange_halo()
        return 6 * u - sum(u.shift(step) for step in STEPS)

    count = b.local.size
    half = sla.LinearOperator((count, count), lambda x: x / 2, dtype=float)
    with pencils.lines.LineSolver(b.pencil, 0, (-1, 6, -1)) as inverse:
        for operator in (Laplacian(), lines):
            for preconditioner in (None, half, inverse):
                result = cg(operator, b, preconditioner=preconditioner)
                assert matches(result, expected, 1e-7)
    assert matches(cg(half, b, progress=False), 2 * data, 1e-7)


@pytest.mark.parametrize(
    ("solve", "dtype", "most"),
    [(cg, complex, 1), (minres, complex, 1), (bicgstab, float, 2), (bicgstab, complex, 3)],
)
def test_meetings_of_each_iteration(comm, solve, dtype, most):
    scale = 1 + np.arange(SHAPE[0])[:, None, None]
    with collectives() as calls:
        own = comm.Dup()
        b, _ = right_side(own, dtype)
        counts = []
        for maxiter in (3, 5):
            calls.clear()
            result = solve(lambda u, out: np.multiply(u, scale, out=out), b, maxiter=maxiter)
            assert result.iterations == maxiter
            counts.append(len(calls))
        own.Free()
    assert counts[1] - counts[0] == (2 * most if comm.size > 1 else 0)


def test_results_that_have_not_converged(comm):
    b, _ = right_side(comm)
    seen = []
    result = cg(laplacian(), b, maxiter=4, callback=lambda *given: seen.append(given))
    assert not result.converged
    assert seen == list(enumerate(result.residuals))[1:]
    assert len(seen) == result.iterations == 4
    assert "maxiter=4, while the residual still decreased" in result.reason
    all_raise(comm, ConvergenceError, "not converged after 4 iterations", result.check)
    assert cg(laplacian(), b, result.solution).check() is result.solution
    loose = cg(laplacian(), b, rtol=0, atol=result.residuals[2])
    assert loose.iterations == 2


@pytest.mark.parametrize(
    ("solve", "operator", "text"),
    [
        (cg, laplacian(4.7), "not positive definite: (p, A p) = -"),
        (cg, laplacian(wind=0.9), "the operator is not symmetric"),
        (minres, laplacian(wind=0.3), "the operator is not symmetric"),
        (bicgstab, lambda _u, out: out.fill(0), "if there is a solution"),
    ],
)
def test_operators_that_do_not_suit(comm, solve, operator, text):
    b, _ = right_side(comm)
    all_raise(comm, ConvergenceError, (f"{solve.__name__}, iteration ", text), solve, operator, b)


@pytest.mark.parametrize("solve", [cg, minres])
def test_preconditioners_that_do_not_suit(comm, solve):
    b, _ = right_side(comm)
    options = {"preconditioner": lambda r, out: np.negative(r, out=out)}
    text = "the preconditioner is not definite: (r, M r) = -"
    all_raise(comm, ConvergenceError, text, solve, laplacian(), b, **options)


@pytest.mark.parametrize("dtype", [float, np.float32])
def test_equations_without_solution(comm, dtype):
    b, data = right_side(comm, dtype, periodic=True)
    text = "singular and have no solution, and the residual has stagnated at"
    all_raise(comm, ConvergenceError, text, cg, laplacian(), b)
    result = minres(laplacian(), b)
    assert not result.converged
    assert text in result.reason
    least = abs(data.mean(dtype=float)) * data.size**0.5  # what lies in the null space
    assert np.isclose(result.residuals[-1], least, rtol=1e-2)
    b -= b.mean()
    rtol = 1e-3 if dtype is np.float32 else 1e-8
    assert all(solve(laplacian(), b, rtol=rtol).converged for solve in SOLVERS)


@pytest.mark.parametrize("solve", SOLVERS)
def test_nan_is_blamed_on_its_source(comm, solve):
    b, _ = right_side(comm)
    calls = []

    def spoilt(u, out):
        laplacian()(u, out)
        calls.append(None)
        if len(calls) == 4 and out.local.size:
            out.local[0, 0, 0] = np.nan

    def spoilt_inverse(u, out):
        spoilt(u, out)
        out[...] = u if len(calls) != 4 else out

    text = f"{solve.__name__}, iteration "
    all_raise(comm, ConvergenceError, (text, "the operator gave NaN"), solve, spoilt, b)
    calls.clear()
    given = solve, laplacian(), b
    texts = text, "the preconditioner gave NaN"
    all_raise(comm, ConvergenceError, texts, *given, preconditioner=spoilt_inverse)
    all_raise(comm, ConvergenceError, "underflow", solve, laplacian(), b * 1e-200)
    b[0, 0, 0] = np.nan
    all_raise(comm, ConvergenceError, "b has NaN", solve, laplacian(), b)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("solve", SOLVERS)
def test_errors_of_one_rank_are_those_of_all(comm, solve, after):
    b, _ = right_side(comm)
    for rank in ranks_at_fault(comm):
        calls = []

        def operator(u, out, rank=rank, calls=calls):
            calls.append(None)
            if after:
                laplacian()(u, out)
            if len(calls) == 3 and comm.rank == rank:
                raise KeyError("lost")
            laplacian()(u, out)

        all_raise(comm, KeyError, (named(comm, rank), "lost"), solve, operator, b)

        def callback(iteration, _, rank=rank):
            if iteration == 2 and comm.rank == rank:
                raise OSError("no room")

        options = {"callback": callback}
        all_raise(comm, OSError, (named(comm, rank), "no room"), solve, laplacian(), b, **options)
    assert solve(laplacian(), b).converged


def test_arguments_that_do_not_fit(comm):
    b, _ = right_side(comm)
    other = pencils.zeros(pencils.Pencil((5, 4), comm))
    wrong = sla.LinearOperator((2, 2), lambda x: x, dtype=float)
    twisted = sla.LinearOperator((b.local.size,) * 2, lambda x: x, dtype=complex)
    for kind, text, operator, options in (
        (TypeError, "operator must be a function f(u, out)", 5, {}),
        (ArgumentError, "it works on the own block, flattened", wrong, {}),
        (TypeError, "operator is complex, but b is of float64", twisted, {}),
        (PencilMismatchError, "what the operator returns lies on", lambda _u, _out: other, {}),
        (ArgumentError, "it must fill that", lambda u, _out: u.copy(), {}),
        (PencilMismatchError, "out lies on", laplacian(), {"out": other}),
        (ArgumentError, "rtol=-1 must be a number", laplacian(), {"rtol": -1}),
        (ArgumentError, "maxiter=-2", laplacian(), {"maxiter": -2}),
        (ArgumentError, "mask must be 0 where", laplacian(), {"mask": b}),
        (TypeError, "callback must be a function", laplacian(), {"callback": 3}),
    ):
        all_raise(comm, kind, text, cg, operator, b, **options)
    all_raise(comm, TypeError, "b must be of float32", cg, laplacian(), b.astype(int))
    all_raise(comm, TypeError, "b must be a PencilArray", cg, laplacian(), b.local)


def test_progress_is_the_part_of_the_decimals(comm):
    shown = []
    history = History("cg", 1e-4, 9, shown.append)
    assert not any(history.add(each) for each in (1.0, 0.09, 1.0, 9e-4))
    assert history.add(1e-5)
    assert everywhere(comm, [each for each in shown if each] == [26, 50, 24])


@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_last_residual_of_minres_is_that_of_the_solution(comm, dtype):
    b, data = right_side(comm, dtype)
    weights = np.linspace(1, 20, data.size).reshape(SHAPE).astype("f4")
    weights[:, ::3] *= -1
    own, calls = spread(b.pencil, weights), []

    def operator(u, out):
        calls.append(None)
        np.multiply(own, u, out=out)

    result = minres(operator, b, rtol=1e-6)
    found = pencils.gather(result.solution, root=None)
    norm = np.linalg.norm(data - weights * found)
    assert result.converged
    assert norm <= 1.01e-6 * np.linalg.norm(data)
    assert np.isclose(result.residuals[-1], norm, rtol=0.05)
    assert len(calls) - result.iterations in {2, 4}  # 2 more if it has begun again
