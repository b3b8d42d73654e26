"""LineSolver on fields that are cut in any way, compared with dense systems."""

import gc

import numpy as np
import pytest
from dense import (
    check_calls,
    diagonals_of,
    make,
    near,
    random_data,
    random_lines,
    shared_field,
    solved,
)
from mpi4py import MPI
from mpi_helpers import (
    all_raise,
    collectives,
    everywhere,
    holds,
    numbered,
    one_node,
    reaching,
    spread,
)
from tiers import up_to

from pencils import Pencil, PencilArray, transpose, zeros
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.lines import LineSolver, plan
from pencils.lines.methods import SharedLines
from pencils.lines.plan import METHODS

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (23, 9, 5)
KINDS = ["<f4", "<f8", "<c8", "<c16"]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_any_pencil(comm, method, periodic, width, shared):
    rng = np.random.default_rng(width)
    points = 2 * width + 1, 40
    for pencil, axis in random_lines(rng, comm, (1, 2, 3, 4), up_to(6, 2), points):
        diagonals = diagonals_of(rng, pencil.shape[axis], width)
        data = random_data(rng, pencil.shape)
        b = shared_field(pencil, data, shared=shared, halo=int(rng.integers(2)))
        expected = solved(diagonals, data, axis, periodic=periodic)
        with make(pencil, axis, diagonals, method=method, periodic=periodic) as solve:
            check_calls(solve, b, data, expected, shared=shared, refused="shared=True")


def test_methods_are_chosen_by_what_is_there(comm):
    pencil = Pencil((24, 20, 6), comm, decomp=0)
    assert LineSolver(pencil, 1, (1, 4, 1)).method == "local"
    whole = comm.size == 1
    cut = reaching(METHODS[2:])
    names = {method: LineSolver(pencil, 0, (1, 4, 1), method=method).method for method in cut}
    assert names == {name: "local" if whole else name for name in cut}
    field = zeros(pencil)
    field[...] = 4.0
    assert LineSolver(pencil, 0, (1, 4, 1)).method == ("local" if whole else "reduced")
    by_field = LineSolver(pencil, 0, (1, field, 1))
    assert by_field.method == ("local" if whole else "transposed")
    assert by_field.method in METHODS
    if not whole:
        for method, main, text in (
            ("local", 4, "'local' takes lines that are whole"),
            ("reduced", field, "'reduced' takes equations that are the same"),
        ):
            all_raise(comm, ArgumentError, text, LineSolver, pencil, 0, (1, main, 1), method=method)


@pytest.mark.parametrize("comm", ["even and odd", "one rank apart"], indirect=True)
def test_nodes_do_not_share_memory(comm):
    rng = np.random.default_rng(3)
    pencil = Pencil(SHAPE, comm, decomp=0)
    diagonals = diagonals_of(rng, SHAPE[0], 1)
    data = random_data(rng, SHAPE)
    b = shared_field(pencil, data, shared=True)
    with LineSolver(pencil, 0, diagonals) as solve:
        assert near(solve(b), solved(diagonals, data, 0))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("method", ["reduced", "transposed", "shared"])
def test_element_types_and_components(comm, method, dtype):
    rng = np.random.default_rng(4)
    kind = complex if np.dtype(dtype).kind == "c" else float
    diagonals = diagonals_of(rng, SHAPE[0], 1, kind=kind)
    pencil = Pencil(SHAPE, comm, decomp=0, order=(2, 0, 1))
    data = random_data(rng, (2, 3, *SHAPE), np.dtype(dtype))
    b = shared_field(pencil, data, shared=True, halo=1)
    tolerance = 1e-5 if np.dtype(dtype).name in {"float32", "complex64"} else 1e-12
    with make(pencil, 0, diagonals, method=method, dtype=dtype, components=(2, 3)) as solve:
        out = solve(b, out=b if method == "shared" else None)
        assert out.dtype == dtype
        assert near(out, solved(diagonals, data, 2), tolerance)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_diagonals_of_each_line(comm, axis, periodic, shared):
    rng = np.random.default_rng(5)
    for pencil in (Pencil(SHAPE, comm), Pencil(SHAPE, comm, decomp=axis, order=(1, 2, 0))):
        lower, main, upper = (rng.uniform(-1, 1, SHAPE) for _ in range(3))
        main += 4
        data = random_data(rng, (2, *SHAPE))
        b = shared_field(pencil, data, shared=shared)
        fields = [spread(pencil, each) for each in (lower, main, upper)]
        expected = solved((lower[None], main[None], upper[None]), data, axis + 1, periodic=periodic)
        with LineSolver(pencil, axis, fields, periodic=periodic, components=2) as solve:
            assert near(solve(b), expected)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_shifts_of_the_main_diagonal(comm, axis, dtype):
    rng = np.random.default_rng(6)
    shape = [1 if dim == axis else n for dim, n in enumerate(SHAPE)]
    values = rng.uniform(0, 5, shape)
    data = random_data(rng, SHAPE, np.dtype(dtype))
    for shared in (False, True):
        pencil = Pencil(SHAPE, comm)
        shift = zeros(pencil, dims=[dim for dim in range(3) if dim != axis])
        shift[...] = values
        b = shared_field(pencil, data, shared=shared)
        with LineSolver(pencil, axis, (-1, 2, -1), shift=shift, dtype=dtype) as solve:
            assert near(solve(b), solved((-1.0, 2 + values, -1.0), data, axis))


def test_a_number_as_shift(comm):
    pencil = Pencil(SHAPE, comm)
    data = numbered(SHAPE)
    with LineSolver(pencil, 0, (-1, 2, -1), shift=0.5) as solve:
        assert near(solve(spread(pencil, data)), solved((-1.0, 2.5, -1.0), data, 0))


@pytest.mark.parametrize("dims", [0, (0, 2), (0, 1)])
def test_fields_with_singletons(comm, dims):
    rng = np.random.default_rng(7)
    kept = [dims] if isinstance(dims, int) else dims
    shape = [n if dim in kept else 1 for dim, n in enumerate(SHAPE)]
    data = random_data(rng, shape)
    diagonals = diagonals_of(rng, SHAPE[0], 1)
    for pencil in (Pencil(SHAPE, comm), Pencil(SHAPE, comm, decomp=(1, 0))):
        b = zeros(pencil, dims=dims)
        b[...] = data
        for method in METHODS:
            with make(pencil, 0, diagonals, method=method, dims=dims) as solve:
                assert near(solve(b), solved(diagonals, data, 0))


def test_the_constant_of_neumann_problems_is_pinned(comm):
    points, shape = 40, (40, 3, 4)
    main = np.full(points, -2.0)
    main[[0, -1]] = -1
    wavenumbers = np.arange(12.0).reshape(1, 3, 4)
    rng = np.random.default_rng(8)
    known = random_data(rng, shape)
    known -= known[-1:]  # the line that is pinned ends with 0
    matrix = np.diag(main) + np.eye(points, k=1) + np.eye(points, k=-1)
    data = np.einsum("ij,jkl->ikl", matrix, known) - wavenumbers * known
    for shared in (False, True):
        pencil = Pencil(shape, comm, decomp=0)
        b = shared_field(pencil, data, shared=shared)
        shift = zeros(pencil, dims=(1, 2))
        shift[...] = -wavenumbers
        options = {"shift": shift, "singular": "pin"}
        with LineSolver(pencil, 0, (1, main, 1), **options) as solve:
            assert near(solve(b), known, 1e-10)
        texts = "row 39 vanishes in line [:, 0, 0]", "singular='pin'"
        all_raise(comm, ArgumentError, texts, LineSolver, pencil, 0, (1, main, 1), shift=shift)
    flat = np.einsum("ij,jkl->ikl", matrix, known)
    for method in METHODS:
        b = shared_field(pencil, flat, shared=True)
        with make(pencil, 0, (1, main, 1), method=method, singular="pin") as solve:
            assert near(solve(b), known, 1e-10)


def test_several_solves_are_under_way(comm):
    rng = np.random.default_rng(9)
    pencil = Pencil((24, 20), comm, decomp=0)
    diagonals = diagonals_of(rng, 24, 1)
    fields = [random_data(rng, (24, 20)) for _ in range(3)]
    for method in ("reduced", "transposed"):
        with make(pencil, 0, diagonals, method=method) as solve:
            handles = [solve.start(spread(pencil, data)) for data in fields]
            for data, handle in reversed(list(zip(fields, handles, strict=True))):
                assert near(handle.wait(), solved(diagonals, data, 0))


def test_the_same_fields_again_and_others(comm):
    rng = np.random.default_rng(10)
    pencil = Pencil((24, 20), comm, decomp=0)
    diagonals = diagonals_of(rng, 24, 1)
    data = random_data(rng, (24, 20))
    expected = solved(diagonals, data, 0)
    for check in (True, False):
        with LineSolver(pencil, 0, diagonals, check=check) as solve:
            private, shared = (shared_field(pencil, data, shared=each) for each in (False, True))
            out = zeros(pencil, shared=True)
            for b in (private, shared, shared, private):
                out.fill(np.nan)
                assert near(solve(b, out), expected)
            del private, shared
            gc.collect()
            assert near(solve(spread(pencil, data), out), expected)


@pytest.mark.mpiexec("counts calls of the MPI library")
def test_shared_fields_on_some_ranks_and_private_ones_on_others(comm):
    """From the second call on they meet as often as with private fields on all ranks."""
    rng = np.random.default_rng(10)
    diagonals = diagonals_of(rng, 24, 1)
    data = random_data(rng, (24, 20))
    expected = solved(diagonals, data, 0)
    with collectives() as made:
        own = comm.Dup()
        pencil = Pencil((24, 20), own, decomp=0)
        shared, private = (
            [shared_field(pencil, data, shared=each), zeros(pencil, shared=each)]
            for each in (True, False)
        )
        mixed = private if comm.rank == 0 else shared
        counts = []
        with LineSolver(pencil, 0, diagonals) as solve:
            for fields in (private, mixed, shared, mixed, shared):
                for _ in range(3):
                    made.clear()
                    out = solve(*fields)
                    counts.append(len(made))
                    assert near(out, expected)
        assert everywhere(comm, counts[1:3] == counts[4:6] == counts[10:12])
        assert everywhere(comm, counts[7:9] == counts[13:15])
        own.Free()


def test_ranks_in_another_order_and_some_of_them(comm):
    rng = np.random.default_rng(11)
    diagonals = diagonals_of(rng, 24, 1)
    data = random_data(rng, (24, 20))
    turned = comm.Split(0, -comm.rank)
    some = comm.Split(comm.rank % 2, comm.rank)
    for other in (turned, some):
        pencil = Pencil((24, 20), other, decomp=0)
        for shared in (False, True):
            b = shared_field(pencil, data, shared=shared)
            with LineSolver(pencil, 0, diagonals) as solve:
                assert near(solve(b), solved(diagonals, data, 0))
        other.Free()


def test_grids_without_points(comm):
    for empty in (Pencil((0, 4), comm), Pencil((4, 0), comm)):
        with LineSolver(empty, 0, (1, 4, 1)) as solve:
            assert solve(zeros(empty)).shape == empty.shape


def test_elimination_that_is_not_stable_is_refused(comm):
    pencil = Pencil((40, 3), comm)
    tiny = spread(pencil, np.where(np.arange(120).reshape(40, 3) == 1, 1e-12, 3.0))
    all_raise(comm, ArgumentError, "not stable in line [:, 1]", LineSolver, pencil, 0, (1, tiny, 1))


def test_wrong_fields_raise_and_change_nothing(comm):
    pencil = Pencil(SHAPE, comm, decomp=0)
    across = pencil.with_(decomp=1)
    good, data = spread(pencil, numbered(SHAPE)), numbered(SHAPE)
    long = zeros(pencil, components=2)
    readonly = zeros(pencil)
    readonly.local.flags.writeable = False
    last = comm.rank == comm.size - 1
    with LineSolver(pencil, 0, (1, 4, 1)) as solve:
        for wrong, kind in (
            (zeros(across), PencilMismatchError if comm.size > 1 else None),
            (zeros(pencil, dtype="f4"), ArgumentError),
            (long, ArgumentError),
            (np.zeros(SHAPE), TypeError),
            (None, TypeError),
        ):
            if kind is None:
                continue
            for b in (wrong, wrong if last else good):
                all_raise(comm, kind, "", solve, b)
        all_raise(comm, ArgumentError, "read-only", solve, good, readonly)
        assert holds(good, data)
        assert near(solve(good), solved((1, 4, 1), data, 0))
    all_raise(comm, ArgumentError, "was freed", solve, good)


@one_node
def test_a_plan_that_one_rank_cannot_make_leaves_no_shared_memory(comm, monkeypatch):
    class Failing(SharedLines):
        @property
        def table(self):
            if self._topology.rank == comm.size - 1:
                raise MemoryError
            return self._table

        @table.setter
        def table(self, table):
            self._table = table

    monkeypatch.setattr(plan, "SharedLines", Failing)
    private = comm.Dup()
    pencil = Pencil(SHAPE, private, decomp=0)
    error = None
    try:
        LineSolver(pencil, 0, (1, 4, 1))
    except MemoryError as raised:
        error = raised  # it keeps what was there when it was raised
    gc.collect()
    topology = pencil.topology
    pools = [topology.shared, *(pool for _, pool in topology.groups.values())]
    idle = all(window.idle for pool in pools for window in pool._windows)
    assert everywhere(comm, idle and (error is None) == (comm.size == 1))
    comm.Barrier()
    private.Free()


def test_out_that_overlaps_is_refused():
    pencil = Pencil((8, 3), MPI.COMM_SELF)
    memory = np.zeros(27)
    one, two = (PencilArray(pencil, memory[i : i + 24].reshape(8, 3)) for i in (0, 3))
    with LineSolver(pencil, 0, (1, 4, 1)) as solve, pytest.raises(ArgumentError, match="out=b"):
        solve(one, two)


def test_plans_show_what_they_do(comm):
    pencil = Pencil(SHAPE, comm, decomp=0)
    with LineSolver(pencil, 0, (1, 4, 1), periodic=True, components=2) as solve:
        text = repr(solve)
        assert "LineSolver of float64, components=(2,) along dimension 0, periodic" in text
        assert solve.method in text
    others = [LineSolver(pencil, 0, each) for each in ((1, 5, 1), (1, np.full(23, 4.0), 1))]
    assert len({text, *map(repr, others)}) == 3


def test_a_field_of_another_pencil_as_diagonal(comm):
    pencil = Pencil(SHAPE, comm, decomp=0)
    other = transpose(spread(pencil, np.full(SHAPE, 4.0)), pencil.with_(decomp=1))
    if comm.size > 1:
        all_raise(
            comm, PencilMismatchError, "diagonals[1] lies on", LineSolver, pencil, 0, (1, other, 1)
        )
