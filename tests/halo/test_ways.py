"""What plans choose by themselves, and several exchanges under way."""

import numpy as np
import pytest
from halos import check_exchange, fill, has_ghosts, random_field, random_grid, random_shape
from mpi4py import MPI
from mpi_helpers import everywhere, on_nodes, one_node

import pencils
from pencils import HaloExchange, Pencil, PencilArray
from pencils.comm import failure, memory
from pencils.comm.methods import messages
from pencils.comm.methods.pull import Pull
from pencils.comm.topology import Topology, topology_of
from pencils.plans import fastest_methods, kept_plans, set_fastest

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(name="comm", params=["real nodes", "two halves"], scope="module")
def _comm(request):
    return on_nodes(request.param)


@pytest.fixture(name="large")
def _large(monkeypatch):
    """Treat all exchanges as if they were too large to be pulled."""
    monkeypatch.setattr(Pull, "find", lambda *_: None)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("seed", range(6))
def test_large_contiguous_faces_of_private_fields_travel_by_messages(comm, monkeypatch, seed):
    monkeypatch.setattr(memory, "ALONE", 16)
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4))
    pencil = random_grid(rng, comm, random_shape(rng, ndim))
    fields = [random_field(rng, pencil, dtype) for dtype in ("f8", "i2")]
    with HaloExchange(fields) as plan:
        check_exchange(fields, lambda: plan(*fields))
    check_exchange(fields, lambda: pencils.halo.exchange_halos(fields))


@one_node
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("crowded", [False, True])
def test_the_method_depends_on_where_fields_lie_and_how_faces_run(monkeypatch, crowded):
    """Planes across the slowest axis are one run of memory; other faces are many."""
    comm = on_nodes("real nodes")
    monkeypatch.setattr(memory, "ALONE", 64)
    monkeypatch.setattr(Topology, "crowded", crowded)

    def chosen(shape, decomp, shared, **kind):
        pencil = Pencil(shape, comm, decomp=decomp, periodic=True)
        field = pencils.zeros(pencil, halo=1, shared=shared, **kind)
        with HaloExchange(field) as plan:
            return plan.method

    alone = comm.size == 1
    expected = {
        ((12, 12, 12), 0, True): "messages" if alone else "shared",
        ((12, 12, 12), 0, False): "messages",
        ((12, 12, 12), 1, True): "messages" if alone else "shared",
        ((12, 12, 12), 1, False): "messages" if alone or crowded else "shared",
    }
    for (shape, decomp, shared), method in expected.items():
        assert chosen(shape, decomp, shared) == method
    small = "messages" if alone or crowded else "shared"
    assert chosen((12, 2), 0, shared=False) == small
    assert chosen((12, 12), 0, shared=False, components=2) == small
    if comm.size > 3:
        pencil = Pencil((12, 12, 12), comm, periodic=True)
        assert min(pencil.grid) > 1
        with HaloExchange(pencils.zeros(pencil, halo=1)) as plan:
            assert plan.method == "hybrid"


@pytest.mark.parametrize("method", ["auto", "messages"])
def test_the_fastest_way_is_the_same_on_all_ranks(comm, method):
    pencil = Pencil((6, 7, 5), comm, periodic=True)
    fields = [pencils.zeros(pencil, halo=2), pencils.zeros(pencil, halo=1, shared=True)]
    with HaloExchange(fields, route="measure", method=method) as plan:
        assert plan.route in {"direct", "sweeps"}
        assert len(set(comm.allgather((plan.route, plan.method)))) == 1
        assert method in {"auto", plan.method}
        check_exchange(fields, lambda: plan(*fields))


def test_what_was_measured_is_used_from_then_on(comm):
    own = comm.Dup()
    u = pencils.zeros(Pencil((6, 7, 5), own, periodic=True), halo=1)
    u.exchange_halo()
    HaloExchange(u, route="measure").free()
    methods = fastest_methods(topology_of(own))
    (key,) = methods
    for way in (("sweeps", "messages"), ("direct", "hybrid")):
        set_fastest(topology_of(own), key, way)
        u.exchange_halo()
        (latest,) = list(kept_plans(topology_of(own)).values())[-1].plans.values()
        with HaloExchange(u) as plan:
            assert (plan.route, plan.method) == (latest.route, latest.method) == way
        with HaloExchange(u, route="direct", method="messages") as plan:
            assert (plan.route, plan.method) == ("direct", "messages")
        check_exchange([u], u.exchange_halo)
    own.Free()


def test_what_is_fastest_for_shared_fields_is_not_for_private_ones(comm):
    """Either kind goes the way that was measured for it, and the other one the usual way."""
    for measured in (True, False):
        own = comm.Dup()
        pencil = Pencil((6, 7, 5), own, periodic=True)
        fields = {kind: pencils.zeros(pencil, halo=1, shared=kind) for kind in (True, False)}
        HaloExchange(fields[measured], route="measure").free()
        methods = fastest_methods(topology_of(own))
        for key in methods:
            methods[key] = "sweeps", "messages"
        for kind, field in fields.items():
            with HaloExchange(field) as plan:
                expected = "sweeps" if kind == measured else "direct"
                assert everywhere(comm, plan.route == expected)
            field.exchange_halo()
            check_exchange([field], field.exchange_halo)
        own.Free()


def test_a_field_may_be_private_on_one_rank_only(comm):
    pencil = Pencil((6, 7, 5), comm, periodic=True)
    shared = pencils.zeros(pencil, halo=1, shared=True)
    mixed = pencils.zeros(pencil, halo=1, shared=True)
    if comm.rank == 0:
        mixed = PencilArray.from_block(pencil, mixed.padded.copy(), halo=mixed.halo)
    for field in (mixed, shared, mixed):
        check_exchange([field], field.exchange_halo)
        field.accumulate_halo()
        check_exchange([field], field.exchange_halo)
    # Staggered fields travel together.
    pencil = Pencil((7, 5), comm, periodic=(False, True))
    fields = [
        pencils.zeros(pen, halo=halo, dtype=dtype)
        for pen, halo, dtype in (
            (pencil, 1, "f8"),
            (pencil.staggered(0), 2, "f8"),
            (pencil.staggered((0, 1)), (1, 2), "c16"),
        )
    ]
    check_exchange(fields, lambda: pencils.halo.exchange_halos(fields))
    with HaloExchange(fields, corners=False) as plan:
        check_exchange(fields, lambda: plan(*fields), corners=False)


class Watch:
    """MPI, which counts requests that are started while they are active."""

    def __init__(self):
        self.active, self.again = set(), 0
        self.Prequest = self

    def Startall(self, requests):
        mine = set(map(id, requests))
        self.again += len(mine & self.active)
        self.active |= mine
        MPI.Prequest.Startall(requests)

    def wait_all(self, requests):
        self.active -= set(map(id, requests))
        failure.wait_all(requests)

    def __getattr__(self, name):
        return getattr(MPI, name)


@pytest.mark.parametrize("packed", [False, True], ids=["in place", "packed"])
@pytest.mark.mpiexec("receives the same ghosts several times at once, which MPI forbids")
def test_requests_under_way_are_not_started_again(comm, monkeypatch, packed):
    """A field may be under way several times; MPI forbids to start what is active."""
    watch = Watch()
    monkeypatch.setattr(messages, "MPI", watch)
    monkeypatch.setattr(messages, "wait_all", watch.wait_all)
    decomp = int(packed)  # faces across the fastest dimension are not contiguous
    shape = [4, 4]
    shape[decomp] *= comm.size
    pencil = Pencil(shape, comm, decomp=decomp, periodic=True)
    u = pencils.zeros(pencil, halo=[(int(dim == decomp),) * 2 for dim in range(2)])
    with HaloExchange(u, method="messages", check=False) as plan:
        for seed in range(3):
            data, before = fill(u, seed)
            handles = [plan.start(u) for _ in range(3)]
            for handle in handles[::-1] if comm.rank % 2 else handles:
                handle.wait()
            assert everywhere(comm, has_ghosts(u, data, before))
    assert everywhere(comm, watch.again == 0 and not watch.active)


def test_buffers_find_their_way_back_to_their_requests(comm):
    """Two exchanges under way take the buffers they had before, or requests would be made anew."""
    pencil = Pencil((8, 7), comm, decomp=1, periodic=True)
    u, v = (pencils.zeros(pencil, halo=1) for _ in range(2))
    with HaloExchange(u, method="messages", check=False) as plan:
        (method,) = plan._filling.exchanges[0]._methods
        counts = []
        for _ in range(4):
            handles = plan.start(u), plan.start(v)
            for handle in handles:
                handle.wait()
            counts.append(len(list(method.requests)))
            check_exchange([u], lambda: plan(u))
        assert everywhere(comm, len(set(counts)) == 1)


@one_node
@pytest.mark.parametrize(("n", "large"), [(32, False), (128, True)])
def test_large_faces_in_shared_memory_are_read_in_place(comm, n, large):
    """Small ones, and those of private fields, are packed: that takes one synchronization less."""
    pencil = Pencil((2 * comm.size, n, n), comm, decomp=0, periodic=True)
    if comm.size == 1 or pencil.topology.nodes > 1:
        return
    for common in (True, False):
        u = pencils.ones(pencil, halo=[(1, 1), (0, 0), (0, 0)], shared=common)
        with HaloExchange(u, corners=False) as plan:
            plan(u)
            assert plan.method == ("shared" if common and large else "pull")
        assert everywhere(comm, (u.padded == 1).all())
