"""LineSolver on systems of all kinds, and with calls that overlap, compared with dense systems."""

import warnings

import numpy as np
import pytest
from dense import diagonals_of, matrix_of, near, shared_field, solved
from mpi_helpers import all_raise, everywhere, random_pencil, spread
from tiers import up_to

from pencils import Pencil, zeros
from pencils.errors import ArgumentError
from pencils.lines import LineSolver
from pencils.lines.plan import METHODS

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (24, 9, 5)


def possible(pencil, axis, diagonals, **options):
    """Make solvers by all methods that are possible."""
    for method in METHODS:
        try:
            yield LineSolver(pencil, axis, diagonals, method=method, **options)
        except ArgumentError as error:
            assert "use method='auto'" in str(error)  # noqa: PT017 - the same on all ranks


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("width", [0, 1, 3])
@pytest.mark.parametrize("points", [1, 2, 3, 8, 40])
def test_few_points_and_any_number_of_diagonals(comm, points, width, periodic):
    rng = np.random.default_rng(points)
    diagonals = diagonals_of(rng, points, width, dominant=4)
    if width == 0:
        diagonals[0] += 3
    data = rng.standard_normal((points, 3))
    expected = solved(diagonals, data, 0, periodic=periodic)
    pencil = Pencil((points, 3), comm, decomp=0)
    for solve in possible(pencil, 0, diagonals, periodic=periodic):
        assert near(solve(shared_field(pencil, data)), expected)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("which", [(0,), (1,), (2,), (4,), (1, 3), (0, 1, 2, 3, 4)])
def test_some_diagonals_are_fields(comm, which, dtype):
    rng = np.random.default_rng(1)
    values = [1.0, -1.0, 8.0, 1.0, rng.uniform(-1, 1, SHAPE[0])]
    for shape in (SHAPE, (24, 1, 1)):  # more ranks than lines
        pencil = Pencil(shape, comm, decomp=0)
        fields = list(values)
        whole = [np.reshape(each, (-1, 1, 1)) for each in values]
        for number in which:
            whole[number] = rng.uniform(-1, 1, shape) + (8 if number == 2 else 0)
            fields[number] = spread(pencil, whole[number])
        data = rng.standard_normal(shape).astype(dtype)
        tolerance = 1e-5 if np.dtype(dtype).char in "fF" else 1e-12
        with LineSolver(pencil, 0, fields, dtype=dtype) as solve:
            assert near(solve(spread(pencil, data)), solved(whole, data, 0), tolerance)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("largest", [6, 12])
def test_equations_may_be_of_very_different_size(comm, largest, periodic):
    rng = np.random.default_rng(2)
    for sizes in (10.0 ** rng.integers(0, largest + 1, 240), np.repeat([1, 10.0**largest], 120)):
        diagonals = [sizes * each for each in (1, 4, 1)]
        x = rng.standard_normal((240, 3))
        data = matrix_of(diagonals, 240, periodic=periodic) @ x
        pencil = Pencil((240, 3), comm, decomp=0)
        for solve in possible(pencil, 0, diagonals, periodic=periodic):
            assert near(solve(shared_field(pencil, data)), x)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_matrices_that_are_not_finite_are_refused(comm, value):
    pencil = Pencil(SHAPE, comm, decomp=0)
    for number in range(3):
        diagonals = [np.full(SHAPE[0], each) for each in (1.0, 4.0, 1.0)]
        diagonals[number][7] = value
        all_raise(comm, ArgumentError, "not finite in row 7", LineSolver, pencil, 0, diagonals)
    whole = np.full(SHAPE, 4.0)
    whole[7, 3, 2] = value
    diagonals, text = (1, spread(pencil, whole), 1), "not finite in row 7 in line [:, 3, 2]"
    all_raise(comm, ArgumentError, text, LineSolver, pencil, 0, diagonals)


def test_what_lies_outside_the_matrix_is_not_read(comm):
    lower, main, upper = np.ones(24), np.full(24, 4.0), np.ones(24)
    lower[0] = upper[-1] = np.nan
    data = np.random.default_rng(3).standard_normal(SHAPE)
    pencil = Pencil(SHAPE, comm, decomp=0)
    for solve in possible(pencil, 0, (lower, main, upper)):
        assert near(solve(shared_field(pencil, data)), solved((1, 4, 1), data, 0))


@pytest.mark.parametrize("main", [2.1, 9.0])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_other_lines_do_not_see_what_is_not_finite(comm, value, main):
    data = np.random.default_rng(4).standard_normal(SHAPE)
    expected = solved((1, main, 1), data, 0)
    expected[:, 3, 2] = 0
    data[13, 3, 2] = value
    pencil = Pencil(SHAPE, comm, decomp=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for solve in possible(pencil, 0, (1, main, 1)):
            x = solve(shared_field(pencil, data))
            bad = ~np.isfinite(x.local[:, 3, 2])
            assert any(comm.allgather(bad.any()))
            x[:, 3, 2] = 0
            assert near(x, expected)


def test_a_diagonal_must_not_vary_where_fields_do_not(comm):
    pencil = Pencil(SHAPE, comm, decomp=0)
    main = spread(pencil, np.full(SHAPE, 4.0))
    texts = "diagonals[1] varies along dimensions [1, 2]", "dims="
    all_raise(comm, ArgumentError, texts, LineSolver, pencil, 0, (1, main, 1), dims=0)
    column = spread(pencil, np.full((24, 1, 1), 4.0), dims=0)
    b = spread(pencil, np.ones((24, 1, 1)), dims=0)
    with LineSolver(pencil, 0, (1, column, 1), dims=0) as solve:
        assert near(solve(b), solved((1, 4, 1), np.ones((24, 1, 1)), 0))


def test_equal_numbers_are_the_same_on_all_ranks(comm):
    pencil = Pencil(SHAPE, comm, decomp=0)
    four = [4, 4.0, np.float32(4), np.array(4)][comm.rank % 4]
    data = np.ones(SHAPE)
    with LineSolver(pencil, 0, (1, four, 1)) as solve:
        assert near(solve(spread(pencil, data)), solved((1, 4, 1), data, 0))


@pytest.mark.parametrize("periodic", [False, True])
def test_sections_are_solved_as_pencils(comm, periodic):
    rng = np.random.default_rng(5)
    for _ in range(up_to(8, 3)):
        whole = random_pencil(rng, comm, (26, 9, 7))
        u = shared_field(whole, rng.standard_normal((26, 9, 7)))
        main = shared_field(whole, 5 + rng.uniform(0, 1, (26, 9, 7)))
        key = np.s_[2:-1, ::2, 1:5]
        b = u[key]
        expected = solved((1, whole_of(main, key), 1), whole_of(u, key), 0, periodic=periodic)
        for diagonal in (main[key], main[key].copy()):
            with LineSolver(b.pencil, 0, (1, diagonal, 1), periodic=periodic) as solve:
                assert near(solve(b), expected)
        values = solved((1, 5, 1), whole_of(u, key), 0, periodic=periodic)
        for solve in possible(b.pencil, 0, (1, 5, 1), periodic=periodic):
            assert near(solve(b, out=zeros(b.pencil, shared=True)), values)
        with LineSolver(b.pencil, 0, (1, 5, 1), periodic=periodic) as solve:
            assert solve(b, out=b) is b
            assert near(b, values)


def whole_of(field, key):
    """Return global data of a section."""
    found = np.zeros(field.shape)
    found[field.local_slices] = field.local
    return field.pencil.comm.allreduce(found)[key]


@pytest.mark.parametrize("method", ["reduced", "transposed"])
def test_large_solves_are_under_way_at_once(comm, method):
    """They are not copied when they start, as small ones may be."""
    shape = (480, 400)
    rng = np.random.default_rng(6)
    pencil = Pencil(shape, comm, decomp=0)
    fields = [rng.standard_normal(shape) for _ in range(3)]
    inverse = np.linalg.inv(matrix_of((1, 4, 1), 480))
    options = {"method": method} if comm.size > 1 else {}
    with LineSolver(pencil, 0, (1, 4, 1), **options) as solve:
        handles = [solve.start(spread(pencil, data)) for data in fields]
        between = solve(spread(pencil, fields[0]))
        last = solve.start(spread(pencil, fields[1]))
        for data, handle in reversed(list(zip(fields, handles, strict=True))):
            assert near(handle.wait(), inverse @ data, 1e-11)
        assert near(between, inverse @ fields[0], 1e-11)
    assert near(last.wait(), inverse @ fields[1], 1e-11)  # free() has completed it


@pytest.mark.parametrize("check", [False, True])
def test_private_and_shared_fields_where_some_ranks_have_no_points(comm, check):
    pencil = Pencil((3, 2), comm, decomp=0, splits=[[0] + [1] * (comm.size - 1) + [3], "first"])
    data = np.arange(6.0).reshape(3, 2)
    expected = solved((1, 4, 1), data, 0)
    with LineSolver(pencil, 0, (1, 4, 1), check=check) as solve:
        for b in (spread(pencil, data), shared_field(pencil, data), spread(pencil, data)):
            assert near(solve(b), expected)
            assert near(solve(b, out=b), expected)


def test_methods_leave_out_the_same_equation(comm):
    """Right sides that do not fit show it: the last equation is not fulfilled."""
    pencil = Pencil((60, 3), comm, decomp=0)
    main = np.full(60, -2.0)
    main[[0, -1]] = -1
    data = np.random.default_rng(7).standard_normal((60, 3))
    matrix = matrix_of((1, main, 1), 60)
    for solve in possible(pencil, 0, (1, main, 1), singular="pin"):
        x = solve(shared_field(pencil, data))
        found = matrix @ whole_of(x, np.s_[:, :])
        assert everywhere(comm, np.allclose(found[:-1], data[:-1], rtol=0, atol=1e-9))


def test_an_interchange_of_rows_may_leave_out_another_equation(comm):
    end = [[1, 2, 2, -2, -1, 1], [-2, 0, -2, 0, -1, 1], [1, 2, 1, -1, 2, 0]]  # of rank 5
    diagonals = [
        np.array([each] * 60 + last, float) for each, last in zip((1, 4, 1), end, strict=True)
    ]
    diagonals[0][60] = diagonals[2][59] = 0
    data = np.random.default_rng(8).standard_normal((66, 3))
    pencil = Pencil((66, 3), comm, decomp=0)
    for solve in possible(pencil, 0, diagonals, singular="pin"):
        x = whole_of(solve(shared_field(pencil, data)), np.s_[:, :])
        error = np.abs(matrix_of(diagonals, 66) @ x - data).max(1)
        assert everywhere(comm, np.flatnonzero(error > 1e-9).tolist() == [63])
        assert everywhere(comm, not x[-1].any())


@pytest.mark.parametrize("comm", ["even and odd"], indirect=True)
def test_nodes_and_no_checks(comm):
    pencil = Pencil(SHAPE, comm, decomp=0)
    data = np.random.default_rng(8).standard_normal(SHAPE)
    for solve in possible(pencil, 0, (1, 4, 1), check=False):
        assert near(solve(shared_field(pencil, data)), solved((1, 4, 1), data, 0))


def test_plans_come_and_go(comm):
    """Also those that are neither freed nor used: nothing of MPI is left."""
    private = comm.Dup()
    pencil = Pencil(SHAPE, private, decomp=0)
    topology = pencil.topology
    b = shared_field(pencil, np.ones(SHAPE))
    expected = solved((1, 4, 1), np.ones(SHAPE), 0)
    held = None
    for number in range(up_to(400, 30)):
        for solve in possible(pencil, 0, (1, 4, 1)):
            if number % 3:
                assert near(solve(b), expected)
            if number % 2:
                solve.free()
        if number == 12:
            held = topology.communicators, topology.shared.windows
    assert (topology.communicators, topology.shared.windows) == held
    private.Free()
