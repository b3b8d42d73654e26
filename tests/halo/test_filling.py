"""Ghosts are what numpy.pad makes of the global array, and nothing else changes."""

import gc

import numpy as np
import pytest
from halos import (
    check_exchange,
    check_sums,
    few_ways,
    fill,
    has_ghosts,
    origins,
    random_field,
    random_grid,
    random_shape,
    replica,
    routes,
    spies_on,
    ways,
)
from mpi4py import MPI
from mpi_helpers import DTYPES, everywhere, holds, numbered, spread
from tiers import up_to

import pencils
from pencils import HaloExchange, Pencil, PencilArray, Transposition, transpose
from pencils.comm import memory
from pencils.comm.topology import topology_of
from pencils.halo import exchange_halos

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)


@ways
@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_any_group_on_any_pencil(comm, method, ndim):
    """Fields that differ in everything but their blocks, memory order included; also one alone."""
    rng = np.random.default_rng(ndim)
    for turn in range(up_to(12, 6)):
        pen = random_grid(rng, comm, random_shape(rng, ndim))
        pens = [pen, pen.with_(order=rng.permutation(ndim).tolist())]
        fields = [
            random_field(rng, pens[n % 2], rng.choice(np.array(DTYPES, object)))
            for n in range(rng.integers(1, 5))
        ]
        corners, route = bool(rng.random() < 0.7), ("direct", "sweeps")[turn % 2]
        with HaloExchange(fields, corners=corners, route=route, method=method) as plan:
            check_exchange(fields, lambda p=plan, f=fields: p(*f), corners=corners)
            check_exchange(fields, lambda p=plan, f=fields: p.start(*f).wait(), corners=corners)


@few_ways
@routes
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("verb", ["fill", "accumulate"])
def test_every_element_type_at_once(comm, method, route, shared, verb):
    pen = Pencil(SHAPE, comm, decomp=(0, 2), periodic=(True, False, True))
    dtypes = DTYPES if verb == "fill" else [dtype for dtype in DTYPES if dtype.kind in "iufc"]
    halo = (1, 2), (0, 1), (2, 2)
    fields = [pencils.zeros(pen, dtype=dtype, halo=halo, shared=shared) for dtype in dtypes]
    with HaloExchange(fields, route=route, method=method) as plan:
        if verb == "fill":
            check_exchange(fields, lambda: plan(*fields))
        else:
            check_sums(fields, lambda: plan.accumulate(*fields))


@pytest.mark.parametrize("comm", ["real nodes", "two halves", "three nodes"], indirect=True)
@pytest.mark.parametrize("corners", [True, False])
def test_the_verbs_do_the_same(comm, corners):
    """By plans that are kept."""
    rng = np.random.default_rng(3)
    for turn in range(5):
        pen = random_grid(rng, comm, random_shape(rng, turn % 3 + 1))
        one, two = (random_field(rng, pen, dtype) for dtype in ("f8", "i2"))
        check_exchange([one], lambda u=one: u.exchange_halo(corners=corners), corners=corners)
        check_exchange(
            [two], lambda u=two: u.start_halo_exchange(corners=corners).wait(), corners=corners
        )
        check_sums([one], lambda u=one: u.accumulate_halo(corners=corners), corners=corners)
        both = [one, two]
        check_exchange(both, lambda f=both: exchange_halos(f, corners=corners), corners=corners)


@few_ways
@routes
@pytest.mark.parametrize("periodic", [False, True])
def test_more_ranks_than_points(comm, method, route, periodic):
    """Rings of a few blocks among empty ones, and widths of several periods."""
    for shape in ((1,), (2,), (1, 2)):
        decomp = range(len(shape))
        pen = Pencil(shape, comm, decomp=tuple(decomp), periodic=periodic)
        for width in (1, 2, 5):
            field = pencils.zeros(pen, halo=width)
            with HaloExchange(field, route=route, method=method) as plan:
                check_exchange([field], lambda p=plan, f=field: p(f))
                check_sums([field], lambda p=plan, f=field: p.accumulate(f))


@few_ways
@routes
def test_points_on_one_rank_only(comm, method, route):
    """The last rank has all of them, and wraps around by itself in a decomposed dimension."""
    pen = Pencil((5, 3), comm, splits=((*[0] * comm.size, 5), None), periodic=True)
    field = pencils.zeros(pen, halo=((7, 1), (1, 4)), shared=True)
    with HaloExchange(field, route=route, method=method) as plan:
        check_exchange([field], lambda: plan(field))
        if method == "messages":
            spies = spies_on(plan)
            plan(pencils.zeros_like(field))
            assert everywhere(comm, not any(spy.sent for spy in spies))
    # Replicas that differ, as they should not, are told apart.
    pen = Pencil(SHAPE, comm, decomp=(0, 1), periodic=True)
    for dims in (0, (1, 2)):
        field = pencils.zeros(pen, halo=2, dims=dims)
        data, before = fill(field)
        own = sum(1000 * coord for coord in replica(field))
        field.local[...] += own
        with HaloExchange(field, route=route, method=method) as plan:
            plan(field)
        assert everywhere(comm, has_ghosts(field, data + own, before))


def partners(fields):
    """Tell to which other ranks this one owes points, by the oracle. Collective."""
    pen = fields[0].pencil
    found = set()
    for field in fields:
        if 0 in field.components:  # without data
            continue
        at = origins(field)
        mine = set()
        shape = field.shape[len(field.components) :]
        if field.extent.box.volume:
            world = np.arange(np.prod(shape, dtype=int)).reshape(shape)
            mine = set(world[field.extent.box.slices()].reshape(-1).tolist())
        wanted = pen.comm.allgather((replica(field), set(at[at >= 0].tolist())))
        found |= {
            rank
            for rank, (other, points) in enumerate(wanted)
            if rank != pen.rank and other == replica(field) and points & mine
        }
    return sorted(found)


def test_one_message_goes_to_each_rank_that_shares_points(comm):
    rng = np.random.default_rng(4)
    for turn in range(9):
        ndim = turn % 3 + 1
        pen = random_grid(rng, comm, random_shape(rng, ndim))
        dtypes = rng.choice(["f8", "i1", "c16"], turn % 4 + 1)
        fields = [random_field(rng, pen, dtype) for dtype in dtypes]
        with HaloExchange(fields, method="messages") as plan:
            (spy,) = spies_on(plan)
            check_exchange(fields, lambda p=plan, f=fields: p(*f))
        assert everywhere(comm, sorted(dest for dest, _ in spy.sent) == partners(fields))
        with HaloExchange(fields, method="messages", route="sweeps") as plan:
            spies = spies_on(plan)
            check_exchange(fields, lambda p=plan, f=fields: p(*f))
        for spy in spies:
            dests = [dest for dest, _ in spy.sent]
            assert everywhere(comm, len(dests) == len(set(dests)))
            assert everywhere(comm, comm.rank not in dests)


def test_sweeps_send_fewer_messages(comm):
    """Two neighbours for each dimension instead of all around."""
    pen = Pencil((12, 12), comm, decomp=(0, 1), periodic=True)
    field = pencils.zeros(pen, halo=1)
    count = {}
    for route in ("direct", "sweeps"):
        with HaloExchange(field, route=route, method="messages") as plan:
            spies = spies_on(plan)
            check_exchange([field], lambda p=plan: p(field))
            count[route] = sum(len(spy.sent) for spy in spies)
    assert everywhere(comm, count["sweeps"] <= count["direct"])
    if comm.size == 6:  # 3 x 2: the rows have one neighbour, all others are around the corner
        assert everywhere(comm, (count["direct"], count["sweeps"]) == (5, 3))
    # Without checks a call sends nothing but the data.
    field = pencils.zeros(Pencil(SHAPE, comm, periodic=True), halo=1)
    with HaloExchange(field, check=False, method="messages") as plan:
        (spy,) = spies_on(plan)
        for _ in range(3):
            check_exchange([field], lambda: plan(field))
    assert set(spy.calls) <= {"Send_init", "Recv_init"}


@few_ways
@routes
@pytest.mark.parametrize("alone", [1, 100])
def test_large_pieces_travel_alone(comm, method, route, alone, monkeypatch):
    """As if pieces were large, all of them or some, and MPI moved no more than 70 bytes at once."""
    rng = np.random.default_rng(5)
    monkeypatch.setattr(memory, "ALONE", alone)
    for most in (2**30, 70):
        monkeypatch.setattr(memory, "MOST_BYTES", most)
        for turn in range(up_to(4, 3)):
            pen = random_grid(rng, comm, random_shape(rng, turn % 3 + 1))
            fields = [random_field(rng, pen, dtype) for dtype in ("f8", "i1", "c16")]
            with HaloExchange(fields, route=route, method=method) as plan:
                check_exchange(fields, lambda p=plan, f=fields: p(*f))
                check_sums(fields, lambda p=plan, f=fields: p.accumulate(*f))


def test_only_small_pieces_travel_together(comm, monkeypatch):
    monkeypatch.setattr(memory, "ALONE", 64)
    pen = Pencil((2 * comm.size, 16), comm, decomp=0, periodic=True)
    # To each side: 8 bytes, 16 bytes, and 128 bytes that are large.
    fields = [pencils.zeros(pen, dtype=dtype, halo=(1, 0)) for dtype in ("i1", "f8")]
    small = pencils.zeros(pen, dtype="i1", components=2, halo=((1, 0), (0, 0)))
    group = [fields[0], fields[1], small]
    with HaloExchange(group, method="messages") as plan:
        (spy,) = spies_on(plan)
        check_exchange(group, lambda: plan(*group))
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sent = {dest: sorted(n for d, n in spy.sent if d == dest) for dest, _ in spy.sent}
    # The first and the third field go right together, and the first goes left with nobody.
    if comm.size > 2:
        expected = {right: [64 + 32, 128], left: [16, 128]}
    elif comm.size == 2:
        expected = {right: [128, 128, 128 + 32]}  # i1, i1 and then what goes one way only
    else:
        expected = {}
    assert everywhere(comm, sent == expected), comm.allgather(sent)


@few_ways
@routes
def test_own_points_may_be_read_meanwhile(comm, method, route):
    pen = Pencil(SHAPE, comm, decomp=(0, 1), periodic=True)
    for shared in (False, True):
        field = pencils.zeros(pen, halo=2, shared=shared)
        with HaloExchange(field, route=route, method=method) as plan:
            data, before = fill(field)
            handle = plan.start(field)
            assert everywhere(comm, holds(field, data))
            total = field.sum()
            assert handle.wait() is None
            assert handle.wait() is None
            assert everywhere(comm, has_ghosts(field, data, before))
            assert total == data.sum()
    assert not topology_of(comm).under_way


@few_ways
@routes
def test_many_under_way_and_waited_for_in_another_order(comm, method, route):
    """Exchanges of several plans and fields, and transposes."""
    rng = np.random.default_rng(6)
    pen = Pencil(SHAPE, comm, decomp=(0, 1), periodic=True)
    fields = [random_field(rng, pen, "f8") for _ in range(6)]
    other = pen.with_(decomp=(2, 0))
    values = numbered(SHAPE)
    known = [fill(field, n) for n, field in enumerate(fields)]
    handles, plans = [], []
    with Transposition(pen, other, method=method) as swap:
        moved = []
        for n, field in enumerate(fields):
            plans.append(HaloExchange(field, route=route, method=method, check=bool(n % 2)))
            handles.append(plans[-1].start(field))
            moved.append(swap.start(spread(pen, (n + 1) * values)))
        mixed = [*handles, *moved]
        order = np.random.default_rng(7 + comm.rank).permutation(len(mixed))
        for n in order:
            mixed[n].wait()
        ok = [has_ghosts(f, d, b) for f, (d, b) in zip(fields, known, strict=True)]
        ok += [holds(h.wait(), (n + 1) * values) for n, h in enumerate(moved)]
        assert everywhere(comm, all(ok))
        assert not topology_of(comm).under_way
    for plan in plans:
        plan.free()


@few_ways
@routes
@pytest.mark.mpiexec("receives the same ghosts several times at once, which MPI forbids")
def test_the_same_fields_started_twice(comm, method, route):
    pen = Pencil(SHAPE, comm, decomp=(0, 1), periodic=True)
    fields = [pencils.zeros(pen, halo=2, shared=shared) for shared in (False, True)]
    with HaloExchange(fields[0], route=route, method=method) as plan:
        for field in fields * 2:  # the second time they are known
            data, before = fill(field)
            handles = [plan.start(field) for _ in range(3)]
            for n in np.random.default_rng(comm.rank).permutation(3):
                handles[n].wait()
            assert everywhere(comm, has_ghosts(field, data, before))


@few_ways
@routes
def test_a_call_completes_what_is_under_way(comm, method, route):
    pen = Pencil(SHAPE, comm, decomp=(0, 1), periodic=True)
    one, two, three = (pencils.zeros(pen, halo=1) for _ in range(3))
    known = [fill(field, n) for n, field in enumerate((one, two, three))]
    plan = HaloExchange(one, route=route, method=method)
    plan.start(one)
    plan.start(two)
    gc.collect()
    plan(three)
    assert not topology_of(comm).under_way
    ok = [has_ghosts(f, *k) for f, k in zip((one, two, three), known, strict=True)]
    assert everywhere(comm, all(ok))
    plan.start(one)
    v = transpose(one, pen.with_(decomp=(1, 2)))
    assert not topology_of(comm).under_way
    assert everywhere(comm, holds(v, known[0][0]))
    known = [fill(field, n) for n, field in enumerate((one, two))]
    handle = plan.start(one)
    plan.start(two)
    plan.free()  # which completes them, too
    ok = [has_ghosts(f, *k) for f, k in zip((one, two), known, strict=True)]
    assert everywhere(comm, all(ok))
    handle.wait()
    plan.free()


@few_ways
@routes
def test_what_is_dropped_under_way_arrives_all_the_same(comm, method, route):
    """Neither plan nor handle nor field is held by anyone."""
    pen = Pencil(SHAPE, comm, decomp=(0, 1), periodic=True)
    field = pencils.zeros(pen, halo=2)
    data, before = fill(field)
    view = PencilArray(pen, field.padded, halo=2)
    HaloExchange(field, route=route, method=method).start(field)
    del field
    gc.collect()
    last = pencils.zeros(pen, halo=1)
    check_exchange([last], last.exchange_halo)
    assert everywhere(comm, has_ghosts(view, data, before))
    # One rank has something under way that the others have not.
    field = pencils.zeros(pen, halo=1)
    alone = pencils.zeros(Pencil(SHAPE, MPI.COMM_SELF, periodic=True), halo=1)
    with HaloExchange(field, method=method) as plan:
        known = fill(alone)
        handles = [alone.start_halo_exchange()] if comm.rank == 0 else []
        check_exchange([field], lambda: plan(field))
        for handle in handles:
            handle.wait()
        assert everywhere(comm, not handles or has_ghosts(alone, *known))
