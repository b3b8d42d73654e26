"""Poisson between walls: against sparse matrices of the whole grid, and exact solutions."""

from functools import reduce
from itertools import cycle, product

import numpy as np
import pytest
from fields import LAYOUTS, draw, lay, spread
from mpi_helpers import all_raise, everywhere, one_is_wrong
from scipy import sparse
from scipy.sparse.linalg import spsolve

from pencils import Pencil, from_function, full, gather, localgrid, zeros
from pencils.errors import (
    ArgumentError,
    ConvergenceError,
    PencilMismatchError,
    RankDisagreementError,
)
from pencils.solvers import Poisson
from pencils.transposition.plan import Transposition

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

WALLS = ["periodic", "dirichlet", "neumann", ("dirichlet", "neumann"), ("neumann", "dirichlet")]
KINDS = list(product(["cell", "vertex"], WALLS))


def pair(walls):
    return (walls, walls) if isinstance(walls, str) else walls


def edges_of(n, where, walls, spacing):
    """Return coordinates of edges; from a number, or drawn at random."""
    low, high = pair(walls)
    intervals = n
    if where == "vertex" and low != "periodic":
        intervals += (low == "dirichlet") + (high == "dirichlet") - 1
    if np.ndim(spacing) == 0 and spacing is not None:
        return spacing * np.arange(intervals + 1)
    return np.cumsum(np.random.default_rng(n).uniform(0.5, 1.5, intervals + 1))


def operator(n, where, walls, x):
    """Return the matrix along a line, point by point, and the volumes of points."""
    (low, high), matrix = pair(walls), np.zeros((n, n))
    if where == "cell":
        volumes, points = np.diff(x), list((x[1:] + x[:-1]) / 2)
        walls_at = x[0], x[-1]
    else:
        points = list(x[int(low == "dirichlet") :][:n])
        walls_at = x[0], x[-1]
        outer = [
            *([points[-1] - (x[-1] - x[0])] if low == "periodic" else [2 * x[0] - x[1]]),
            *points,
            *([x[-1]] if high == "periodic" else [2 * x[-1] - x[-2]]),
        ]
        if low == "dirichlet":
            outer[0] = x[0]
        if high == "dirichlet":
            outer[-1] = x[-1]
        volumes = (np.array(outer[2:]) - outer[:-2]) / 2
        volumes[0] /= 2 if low == "neumann" else 1
        volumes[-1] /= 2 if high == "neumann" else 1
    for i in range(n):
        for j, end, at in ((i - 1, low, walls_at[0]), (i + 1, high, walls_at[1])):
            if 0 <= j < n:
                gap, other = abs(points[i] - points[j]), j
            elif end == "periodic":
                gap, other = (x[-1] - x[0]) - abs(points[j % n] - points[i]), j % n
            elif end == "dirichlet":
                gap, other = abs(points[i] - at), None
            else:
                continue
            matrix[i, i] -= 1 / gap / volumes[i]
            if other is not None:
                matrix[i, other] += 1 / gap / volumes[i]
    return sparse.csr_array(matrix), volumes


def solved(f, shift, lines):
    """Solve by a sparse matrix, with mean zero where that is free; for components, too."""
    shape = f.shape[f.ndim - len(lines) :]
    total = shift * sparse.eye_array(int(np.prod(shape)))
    for dim, (matrix, _) in enumerate(lines):
        factors = [matrix if d == dim else sparse.eye_array(n) for d, n in enumerate(shape)]
        total = total + reduce(sparse.kron, factors)
    weights = reduce(np.multiply.outer, [volumes for _, volumes in lines]).ravel()
    free = abs(total @ np.ones(len(weights))).max() < 1e-9
    if free:
        total = sparse.block_array([[total, np.ones((len(weights), 1))], [[weights], None]])
    rows = []
    for each in f.reshape(-1, len(weights)):
        right = np.append(each, 0) if free else each
        rows.append(spsolve(sparse.csc_array(total), right)[: len(weights)])
    return np.reshape(rows, f.shape)


def check(pencil, kinds, spacings, *, shift=0.0, dtype=float, components=(), **options):
    """Solve on a pencil as the sparse matrix does."""
    shape = pencil.shape
    edges = [edges_of(n, *kind, h) for n, kind, h in zip(shape, kinds, spacings, strict=True)]
    lines = [operator(n, *kind, x) for n, kind, x in zip(shape, kinds, edges, strict=True)]
    data = draw((*components, *shape), dtype)
    f = spread(pencil, data, **options)
    given = [x if h is None else h for x, h in zip(edges, spacings, strict=True)]
    places, walls = zip(*kinds, strict=True)
    how = {"boundary": walls, "centred": places, "shift": shift, "null": "project"}
    with Poisson(pencil, given, dtype=dtype, components=components, **how) as plan:
        u = plan(f)
    expected = solved(data, shift, lines)[u.local_slices]
    size = abs(expected).max(initial=1e-3)
    rounding = 1e4 * np.finfo(dtype).eps * size * (10 if shift else 1)
    good = np.allclose(u.local, expected, rtol=0, atol=rounding) and u.dtype == dtype
    assert everywhere(pencil.comm, good), (kinds, spacings, shift)
    assert everywhere(pencil.comm, np.array_equal(f.local, data[f.local_slices]))


@pytest.mark.parametrize("first", KINDS, ids=str)
def test_all_walls_of_planes(comm, first):
    for number, second in enumerate(KINDS):
        pencil = Pencil((5, 4 + number % 2), comm, decomp=number % 2)
        dtype = [float, complex][number % 2]
        check(pencil, (first, second), (0.5, 1.5), dtype=dtype)
        if number % 3 == 0:
            check(pencil, (first, second), [(None, 0.7), (0.7, None)][number % 2], dtype=dtype)


@pytest.mark.parametrize("name", LAYOUTS)
def test_all_layouts(comm, name):
    """From one to four dimensions; all dimensions cut in the last one, too."""
    pencil = lay(comm, name)
    rng = np.random.default_rng(pencil.ndim)
    ways = cycle(
        [
            {"shift": -2.0, "components": (2,), "halo": 1, "dtype": np.float32},
            {"shift": -1 + 2j, "dtype": np.complex128},
            {},
        ]
    )
    for stretched in (None, *range(pencil.ndim), None):
        kinds = [KINDS[k] for k in rng.integers(len(KINDS), size=pencil.ndim)]
        kinds = [
            ("cell", w) if n == 1 else (p, w) for n, (p, w) in zip(pencil.shape, kinds, strict=True)
        ]
        spacings = [None if dim == stretched else 0.5 + dim for dim in range(pencil.ndim)]
        check(pencil, kinds, spacings, **next(ways))


def test_every_place_of_unequal_distances_in_space(comm):
    for dim, kind in product(range(3), KINDS[::3]):
        kinds = [kind if d == dim else KINDS[d + dim] for d in range(3)]
        check(Pencil((4, 5, 3), comm), kinds, [None if d == dim else 1.0 for d in range(3)])


def test_out_and_right_side_in_one_place(comm):
    pencil = Pencil((6, 5), comm)
    f = spread(pencil, draw((6, 5)), halo=2)
    with Poisson(pencil, 0.5, boundary="dirichlet") as plan:
        expected, out = plan(f), zeros(pencil, halo=1)
        assert plan(f, out=out) is out
        assert plan(f, out=f) is f
    for found in (out, f):
        assert everywhere(comm, np.array_equal(found.local, expected.local))


def error_of(comm, n, eigenvalues, *, stretched):
    """Return the largest error for a smooth solution in a box with different walls."""
    s = (1 + np.tanh(np.linspace(-1, 1, n + 1)) / np.tanh(1)) / 2
    z = s if stretched else np.arange(n + 1) / n
    pencil = Pencil((n, n, n), comm)
    x, y = np.arange(n) / n, (np.arange(n) + 0.5) / n
    x, y, z = localgrid(pencil, (x, y, (z[1:] + z[:-1]) / 2))
    u = np.sin(2 * np.pi * x) * np.cos(np.pi * y) * np.sin(np.pi * z)
    with Poisson(
        pencil,
        (1 / n, 1 / n, s if stretched else 1 / n),
        boundary=("periodic", "neumann", "dirichlet"),
        eigenvalues=eigenvalues,
        shift=-1.0,
    ) as plan:
        return abs(plan(-(6 * np.pi**2 + 1) * u) - u).max()


def test_order_of_accuracy(comm):
    for stretched in (False, True):
        coarse, fine = (error_of(comm, n, "difference", stretched=stretched) for n in (12, 24))
        assert 3.5 < coarse / fine < 4.6
    assert error_of(comm, 12, "derivative", stretched=False) < 1e-13


def test_right_sides_without_solution(comm):
    pencil = Pencil((6, 5), comm)
    out = full(pencil, 7.0)
    for spacing, centred in product((0.5, (0.5, [0, 1, 3, 4, 6.0])), ("vertex",)):
        args = {"boundary": ("periodic", "neumann"), "centred": centred}
        with Poisson(pencil, spacing, **args) as plan:
            text = ("has mean 3,", "null='project'")
            all_raise(comm, ConvergenceError, text, plan, full(pencil, 3.0), out)
            assert abs(out - 7).max() == 0
            all_raise(comm, ConvergenceError, "mean nan", plan, full(pencil, np.nan))
            ramp = from_function(pencil, lambda i, _: i - 2.5)
            mean = plan(ramp)
        with Poisson(pencil, spacing, null="pin", **args) as plan:
            pinned = plan(ramp)
        assert abs(gather(pinned, root=None)[0, 0]) == 0
        assert abs((pinned - mean) - (pinned - mean).mean()).max() < 1e-13


WRONG = [
    ({"boundary": "wet"}, ArgumentError, "boundary of dimension 0 is 'wet'"),
    ({"boundary": ("periodic", ("periodic", "neumann"))}, ArgumentError, "dimension 1 is ('per"),
    ({"boundary": ("periodic",) * 3}, ArgumentError, "boundary has 3 entries"),
    ({"centred": ("cell", "face")}, ArgumentError, "centred of dimension 1 is 'face'"),
    ({"spacing": 0}, ArgumentError, "must be positive"),
    ({"spacing": (1, "far")}, TypeError, "real numbers"),
    ({"spacing": (1, [0, 1, 3, 4])}, ArgumentError, "coordinates of 6 faces of cells"),
    ({"spacing": (1, [0, 1, 3, 2, 5, 6])}, ArgumentError, "number 2 is 3.0 and number 3 is 2.0"),
    ({"spacing": (1, [0, 1, np.nan, 4, 5, 6])}, ArgumentError, "not finite"),
    ({"spacing": ([0, 1, 3, 4, 5], [0, 1, 3, 4, 5, 6])}, ArgumentError, "at most one dimension"),
    ({"spacing": (1, (np.arange(6), np.arange(5)))}, ArgumentError, "5 centres of cells"),
    ({"shift": np.ones(4)}, TypeError, "shift must be a number"),
    ({"shift": 1j}, TypeError, "shift=1j is complex"),
    ({"shift": np.inf}, ArgumentError, "finite"),
    ({"shift": 2.0, "boundary": "periodic"}, ArgumentError, "minus an eigenvalue"),
    ({"dtype": int}, TypeError, "float32, float64"),
    ({"eigenvalues": "exact"}, ArgumentError, "'difference' or 'derivative'"),
    ({"null": "hope"}, ArgumentError, "'project'"),
    ({"null": ["pin"]}, ArgumentError, "'project'"),
    ({"eigenvalues": ["derivative"]}, ArgumentError, "'difference' or 'derivative'"),
    ({"centred": ("cell", ["cell"])}, ArgumentError, "'cell' or 'vertex'"),
    ({"pencil": 3}, TypeError, "pencil must be a Pencil"),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), WRONG, ids=lambda each: str(each)[:40])
def test_wrong_arguments(comm, wrong, kind, text):
    pencil = Pencil((4, 5), comm)
    given = {"pencil": pencil, "spacing": 1.0, "boundary": "dirichlet"} | wrong
    all_raise(comm, kind, text, Poisson, **given)


def test_ranks_that_disagree(comm):
    pencil = Pencil((4, 5), comm)
    for bad in ({"spacing": 2.0}, {"boundary": "neumann"}, {"shift": -1.0}, {"null": "pin"}):
        given = {"spacing": 1.0, "boundary": "dirichlet"} | (bad if comm.rank == 0 else {})
        if comm.size > 1:
            all_raise(comm, RankDisagreementError, "disagree on", Poisson, pencil, **given)


def test_too_few_points(comm):
    args = {"boundary": "neumann", "centred": "vertex"}
    all_raise(comm, ArgumentError, "at least 2", Poisson, Pencil((1, 4), comm), 1.0, **args)


def test_wrong_calls(comm):
    pencil = Pencil((4, 5), comm)
    f = zeros(pencil)
    plan = Poisson(pencil, 1.0, boundary="dirichlet")
    one_is_wrong(
        comm, ArgumentError, "f has dtype", call=plan, bad=zeros(pencil, dtype=int), good=f
    )
    other = zeros(Pencil((5, 4), comm))
    one_is_wrong(comm, PencilMismatchError, "lies on", call=plan, bad=other, good=f)
    plan.free()
    all_raise(comm, ArgumentError, "was freed", plan, f)


def test_there_are_no_transposes_that_are_not_needed(comm):
    """Slabs are transposed once on the way to waves; lines add none."""
    parts = comm.size > 1
    for decomp, dim in product((0, 1), (None, 0, 1, 2)):
        pencil = Pencil((6, 6, 8), comm, decomp=decomp)
        spacing = [n**1.5 for n in range(pencil.shape[dim or 0] + 1)]
        with Poisson(
            pencil, [spacing if d == dim else 1.0 for d in range(3)], boundary="periodic"
        ) as plan:
            steps = [step.function for step in plan._fft._forward._steps]
            assert sum(isinstance(step, Transposition) for step in steps) == parts
            assert dim is None or plan._lines.method == "local"
