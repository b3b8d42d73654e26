"""Fused functions that compute while ghosts travel: results and errors of the plain lines."""

import numpy as np
import pytest
from mpi_helpers import all_raise, everywhere, on_nodes, ranks_at_fault
from test_fused import check_random_function, equal, observed, step, two_fields
from tiers import up_to

import pencils
from pencils.comm.exchange import Handle
from pencils.comm.pack import no_op
from pencils.errors import RankDisagreementError
from pencils.graph import fuse

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])
several = pytest.mark.parallel([2, 3, 4, 6])


@pytest.fixture(name="comm", params=["real nodes", "one rank apart"], scope="module")
def _comm(request):
    return on_nodes(request.param)


@pytest.fixture(name="slow")
def _slow(monkeypatch):
    """Messages arrive no earlier than a rank waits for them."""
    monkeypatch.setattr(Handle, "test", lambda handle: handle._started is None)


def overlapped(function):
    return pencils.fused(overlap=True)(function)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("start", range(0, 200, up_to(20, 40)))
def test_random_functions_are_their_plain_lines(comm, start):
    for seed in range(start, start + 20):
        check_random_function(comm, seed, overlapped, [(0.25, 3), (0.1, 2)])


def with_corners(u, v):
    u.exchange_halo()
    return u.shift((1, 1)) - 2 * u.shift((-1, 1)), v * 2


def in_place(u, v):
    u.exchange_halo(corners=False)
    u += v * (u.shift((1, 0)) + u.shift((-1, 0)))  # by a block of its own
    v.exchange_halo()
    v[...] = v.shift((0, -1))


def same_points(u, v):
    u.exchange_halo()
    u *= 2  # nothing may be written while neighbours read it
    v.exchange_halo()
    u -= v.shift((0, 1))


def by_parts(u, v):
    u.exchange_halo()
    v.exchange_halo()
    u.exchange_halo(corners=False)
    w = u.copy()
    w[1:, 2:] = u[1:, 2:] - v.shift((-1, 0))[1:, 2:]
    return w


def without_values(u, v):
    u.exchange_halo()
    v.exchange_halo(corners=False)


def reduced(u, v):
    u.exchange_halo()
    w = u.shift((0, 1)) + v
    return w, w.sum(), v.shift((0, 0)).max()


def computed(u, v):
    u.exchange_halo()
    w = np.zeros_like(u)
    w[...] = u.shift((0, 1)) * v
    w.exchange_halo()
    return np.sin(w.shift((1, 0)) + w.shift((-1, 0)))


def filled(u, v):
    u.fill_boundary("edge")
    u.exchange_halo()
    v.exchange_halo()
    v.fill_boundary("constant", value=2)
    return u.shift((1, 0)) + v.shift((-1, 0)) * u.shift((-1, 1))


def one_sided(u, v):
    v.exchange_halo()
    return v.shift((1, 0)) - v.shift((0, 1)) + u


FUNCTIONS = [
    lambda u, v: step(u, v, 0.1),
    with_corners,
    in_place,
    same_points,
    by_parts,
    without_values,
    reduced,
    computed,
    filled,
    one_sided,
]


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("shape", "periodic"),
    [((12, 10), (False, True)), ((1, 3), True), ((2, 7), False), ((40, 30), True)],
)
def test_functions_are_their_plain_lines(comm, function, shape, periodic):
    pen = pencils.Pencil(shape, periodic=periodic, order=(1, 0), comm=comm)
    for kind in ({}, {"dtype": complex}, {"components": 2}):
        fused = overlapped(function)
        for call in range(2):
            found = []
            for way in (fused, function):
                rng = np.random.default_rng([comm.rank, call])
                fields = [pencils.zeros(pen, halo=1, **kind) for _ in range(2)]
                for u in fields:
                    u.padded[...] = 7  # also ghosts that have not arrived
                    u.local[...] = rng.standard_normal(u.local.shape)
                found.append(observed(way, fields, ()))
            assert everywhere(comm, found[0] == found[1] and type(found[1]) is tuple)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("dims", [1, 2])
def test_the_inside_is_computed_before_ghosts_arrive(comm, monkeypatch, dims):
    early = []
    monkeypatch.setattr(fuse, "poll", lambda: early.append(comm.rank))
    shape = (8 * comm.size, 8 * comm.size, 4)
    pen = pencils.Pencil(shape, decomp=range(dims), periodic=True, comm=comm)
    u = pencils.from_function(pen, lambda i, j, k: np.sin(i + 2 * j + k), halo=1)

    def laplacian(u):
        u.exchange_halo(corners=False)
        return u.shift((1, 0, 0)) + u.shift((0, -1, 0)) + u.shift((0, 0, 1)) - 3 * u

    expected, fused = laplacian(u), overlapped(laplacian)
    u.padded[...] = np.where(np.isin(u.padded, u.local), u.padded, np.nan)
    found = fused(u)
    assert equal(comm, [found], [expected])
    apart = comm.size > 1 and u.pencil.topology.nodes > 1
    assert everywhere(comm, early.count(comm.rank) == apart)
    assert everywhere(comm, ("while ghosts travel" in fused.explain()) == (comm.size > 1))


@pytest.mark.usefixtures("slow")
def test_staggered_fields_and_swapped_results(comm):
    pen = pencils.Pencil((3 * comm.size, 7), periodic=(False, True), comm=comm)
    faces = pen.staggered(0)
    p = pencils.from_function(pen, lambda i, j: np.sin(i + 2 * j), halo=1)
    q = pencils.from_function(faces, lambda i, j: np.cos(i - j), halo=[(2, 1), (0, 1)])

    def waves(p, q):
        p.exchange_halo()
        q.exchange_halo()
        return (
            p.shift((0, 0), onto=faces) - p.shift((-1, 0), onto=faces) + q.shift((-2, 1)),
            q.shift((1, 0), onto=pen) * p.shift((0, 1)),
        )

    assert equal(comm, overlapped(waves)(p, q), waves(p, q))
    u, v = two_fields(comm, (4 * comm.size, 9))
    expected = step(u, v, 0.1)
    overlapped(step)(u, v, 0.1, out=(v, u))  # by blocks of their own
    assert equal(comm, (v, u), expected)


@pytest.mark.usefixtures("slow")
def test_warnings_come_once(comm):
    u, v = two_fields(comm, (40, 40))
    u[...] = 0 * u

    def function(u, v):
        u.exchange_halo()
        return v / u.shift((1, 0))

    calls = []
    with np.errstate(all="call", call=lambda *call: calls.append(call)):
        overlapped(function)(u, v)
        found = calls.copy()
        calls.clear()
        function(u, v)
    assert everywhere(comm, found == calls)


@several
@pytest.mark.usefixtures("slow")
def test_an_error_on_one_rank_raises_on_all(comm, monkeypatch):
    u, v = two_fields(comm, (8 * comm.size, 10))
    expected = step(u, v, 0.2)

    def function(u, v, k):
        u.exchange_halo()
        w = v / (k * (2 + u.shift((1, 0))))
        return w, w.std()  # a sum would be added in the pass, which is not cut then

    def fail():
        raise MemoryError

    fused = overlapped(function)
    for rank in ranks_at_fault(comm):
        here = comm.rank == rank
        with np.errstate(all="raise"):
            all_raise(comm, FloatingPointError, "divide", fused, u, v, float(not here))
        assert everywhere(comm, not u.pencil.topology.under_way)
        all_raise(comm, TypeError, "", fused, u, v, "x" if here else 1.0)
        with monkeypatch.context() as patch:
            patch.setattr(fuse, "poll", fail if here else no_op)
            if u.pencil.topology.nodes > 1:
                all_raise(comm, MemoryError, "", fused, u, v, 1.0)
        assert everywhere(comm, not u.pencil.topology.under_way)
    assert equal(comm, overlapped(step)(u, v, 0.2), expected)
    mixed = pencils.fused(step, overlap=comm.rank == 0)
    all_raise(comm, RankDisagreementError, "start_halo_exchange", mixed, u, v, 0.2)
