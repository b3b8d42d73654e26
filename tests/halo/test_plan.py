"""HaloExchange as a plan: reuse, life time, other communicators, mistakes."""

import gc
import tracemalloc
import weakref
from functools import partial

import numpy as np
import pytest
from halos import METHODS, check_exchange, exchanged, few_ways, fill, has_ghosts, routes
from mpi4py import MPI
from mpi_helpers import (
    ON_ONE_NODE,
    all_raise,
    everywhere,
    on_nodes,
    other_blocks,
    same,
)
from tiers import up_to

import pencils
from pencils import HaloExchange, Pencil, PencilArray
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError
from pencils.halo import exchange_halos
from pencils.plans import MOST_PLANS, MOST_REMEMBERED, kept_plans, plan_buffers

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)


@pytest.fixture(name="pen")
def _pen(comm):
    return Pencil(SHAPE, comm, decomp=(0, 1), periodic=(True, False, True))


@few_ways
@routes
@pytest.mark.parametrize("check", [True, False])
def test_other_fields_of_the_same_kind(comm, pen, method, route, check):
    """More than are remembered, new and old ones in turn, in any memory."""
    pattern = pencils.zeros(pen, halo=2)
    with HaloExchange(pattern, route=route, method=method, check=check) as plan:
        fields = [pencils.zeros(pen, halo=2, shared=bool(n % 2)) for n in range(4)]
        fields.append(PencilArray(pen, np.asfortranarray(pattern.padded), halo=2))
        fields += [PencilArray(pen, np.zeros_like(pattern.padded), halo=2) for _ in range(3)]
        for _ in range(2):
            for field in fields:
                check_exchange([field], lambda f=field: plan(f))
        many = [pencils.zeros(pen, halo=2) for _ in range(MOST_REMEMBERED + 3)]
        for field in (*many, *many[:2]):
            plan(field)
        check_exchange([fields[0]], lambda: plan(fields[0]))
        assert everywhere(comm, len(plan._remembered) <= MOST_REMEMBERED)


def test_a_field_that_takes_the_place_of_another_is_not_mistaken_for_it(comm, pen):
    """Its id may be the same, and its memory."""
    with HaloExchange(pencils.zeros(pen, halo=1), check=False) as plan:
        for _ in range(up_to(30, 8)):
            field = pencils.zeros(pen, halo=1)
            check_exchange([field], lambda f=field: plan(f))
            del field
        assert everywhere(comm, not plan._remembered)


@routes
@pytest.mark.parametrize("method", METHODS)
def test_what_a_plan_tells(comm, pen, route, method):
    u = pencils.zeros(pen, halo=((1, 0), (2, 2), (0, 0)))
    v = pencils.zeros(pen, dtype="f4", components=(2, 3), dims=(0, 2), halo=((1, 1), 0, (1, 1)))
    with HaloExchange([u, v], route=route, method=method) as plan:
        assert (plan.route, plan.method) == (route, method)
        text = repr(plan)
        assert text == str(plan)
        assert text.startswith("<HaloExchange of float64 halo ((1, 0), (2, 2), (0, 0)), float32 ")
        assert "components (2, 3) singleton along [1] halo ((1, 1), (0, 0), (1, 1))" in text
        assert f"by {method}, {route}\n  on {pen!r}>" in text
    assert repr(plan) == text
    with HaloExchange(u, corners=False) as plan:
        assert "without corners" in repr(plan)
        assert plan.route == "direct"
        assert plan.method in (*METHODS, "pull")
    assert everywhere(comm, len(set(comm.allgather(repr(plan)))) == 1)


@pytest.mark.parametrize("nodes", ["even and odd", "two halves", "one rank apart", "three nodes"])
def test_the_rule_uses_shared_memory_as_far_as_it_reaches(nodes):
    comm = on_nodes(nodes)
    field = pencils.zeros(Pencil((12, 12), comm, periodic=True), halo=1)
    apart = field.pencil.topology.nodes
    with HaloExchange(field) as plan:
        methods = {"pull"} if apart == 1 else {"messages"} if comm.size == apart else set()
        # Where all neighbours are on other nodes, nothing is left for shared memory.
        assert plan.method in (methods or {"hybrid", "messages"})
        halves = nodes == "two halves" and apart == 2 and comm.size >= 4
        assert not halves or plan.method == "hybrid"
        check_exchange([field], lambda: plan(field))


def test_memory_that_is_kept(comm, pen):
    """Only what is packed for messages."""
    field, shared = pencils.zeros(pen, halo=2), pencils.zeros(pen, halo=2, shared=True)
    with HaloExchange(field, method="messages") as plan:
        assert plan.memory == 0
        plan(field)
        held = plan.memory
        assert everywhere(comm, held <= 64 * 64 + 4 * field.padded.nbytes)
        for _ in range(5):
            plan(field)
            assert plan.memory == held
        assert any(comm.allgather(held > 0)) == (comm.size > 1)
    if ON_ONE_NODE:
        with HaloExchange(shared, method="shared") as plan:
            plan(shared)
            assert everywhere(comm, plan.memory == 0)


def test_plans_and_fields_that_are_dropped_are_gone(comm, pen):
    """Plans at once: their memory would be missed before Python looks for cycles."""
    field = pencils.zeros(pen, halo=1)
    gc.disable()
    try:
        plan = HaloExchange(field, check=False)
        plan(field)
        plan.accumulate(field)
        schedules = [weakref.ref(schedule) for schedule in plan._schedules.values()]
        del plan
        assert everywhere(comm, schedules and not any(ref() for ref in schedules))
    finally:
        gc.enable()
    with HaloExchange(field) as plan:
        plan(field)
        plan.accumulate(field)
        block = weakref.ref(field.padded)
        del field
        gc.collect()
        assert everywhere(comm, block() is None)


def uses(plan, field):
    return [partial(call, field) for call in (plan, plan.start, plan.accumulate)]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("used", [True, False])
def test_freed_plans_and_communicators(comm, check, used):
    private = comm.Dup()
    field = pencils.zeros(Pencil(SHAPE, private, periodic=True), halo=1)
    freed, plan = HaloExchange(field, check=check), HaloExchange(field, check=check)
    for each in (freed, plan) if used else ():
        each(field)
        each.accumulate(field)
    freed.free()
    for use in uses(freed, field):
        all_raise(comm, ArgumentError, ("freed", "make a new one"), use)
    freed.free()
    private.Free()
    calls = [*uses(plan, field), field.exchange_halo, field.start_halo_exchange]
    for use in (*calls, field.accumulate_halo, lambda: exchange_halos([field])):
        all_raise(comm, ArgumentError, "freed", use)
    all_raise(comm, ArgumentError, "freed", HaloExchange, field)
    plan.free()


@routes
@pytest.mark.parametrize("method", METHODS)
def test_freeing_the_communicator_completes_what_is_under_way(comm, pen, method, route):
    private = comm.Dup()
    fields = [pencils.zeros(Pencil(SHAPE, private, decomp=(0, 1), periodic=True), halo=1)
              for _ in range(3)]  # fmt: skip
    # Told before: pencils without communicator tell less.
    known = [exchanged(field, *fill(field, n)) for n, field in enumerate(fields)]
    plan = HaloExchange(fields[0], method=method, route=route)
    for field, expected in zip(fields[:2], known, strict=False):
        plan(field)  # so that requests are there to be freed
        field.padded[...] = expected
    handles = [plan.start(field) for field in fields[:2]]
    handles.append(fields[2].start_halo_exchange())
    private.Free()
    other = pencils.zeros(pen, halo=1)
    check_exchange([other], other.exchange_halo)
    for handle in handles:
        handle.wait()
    ok = [
        same(field.padded.copy(), expected) for field, expected in zip(fields, known, strict=True)
    ]
    assert everywhere(comm, all(ok))
    plan.free()


def test_plans_are_kept_and_the_oldest_go(comm):
    private = comm.Dup()
    pen = Pencil(SHAPE, private, decomp=(0, 1), periodic=True)
    plans = kept_plans(pen.topology)
    for _ in range(3):
        field = pencils.zeros(pen, halo=1)
        check_exchange([field], field.exchange_halo)
        field.start_halo_exchange().wait()
        field.accumulate_halo()
    assert len(plans) == 1
    for corners in (False, True, False):  # by plans of their own
        check_exchange([field], lambda c=corners: field.exchange_halo(corners=c), corners=corners)
    assert len(plans) == 2
    before = None
    for turn in range(up_to(3, 2)):
        for n in range(1, MOST_PLANS + 5):
            field = pencils.zeros(pen, components=n, halo=1)
            check_exchange([field], field.exchange_halo)
            handle = field.start_halo_exchange(corners=False)
            field.accumulate_halo()
            handle.wait()
        count = pen.topology.communicators, pen.topology.shared.windows
        before = before or count
        assert count == before, turn
        assert len(plans) == MOST_PLANS
    # A plan that has to go completes what is under way.
    fields = [pencils.zeros(pen, components=n, halo=1) for n in range(1, MOST_PLANS + 4)]
    known = [fill(field, n) for n, field in enumerate(fields)]
    handles = [field.start_halo_exchange() for field in fields]
    for n in np.random.default_rng(comm.rank).permutation(len(handles)):
        handles[n].wait()
    ok = [has_ghosts(field, *both) for field, both in zip(fields, known, strict=True)]
    assert everywhere(comm, all(ok))
    private.Free()


@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.parametrize("fill_ghosts", [PencilArray.exchange_halo, lambda u: exchange_halos([u])])
def test_a_field_that_is_private_on_some_ranks(comm, fill_ghosts):
    """Other ranks have found the plan for shared fields before that for private ones is made."""
    private = comm.Dup()
    pen = Pencil((4 * comm.size, 300, 300), private, decomp=0, periodic=True)
    width = ((1, 1), (0, 0), (0, 0))
    shared = [pencils.zeros(pen, halo=width, shared=True) for _ in range(2)]
    fill_ghosts(shared[0])
    block = shared[1].padded
    mixed = PencilArray(pen, block if comm.rank == 0 else np.zeros(block.shape), halo=width)
    for turn in range(4):
        mixed.local[...] = comm.rank + 10 * turn
        fill_ghosts(mixed)
        before, after = ((comm.rank + by) % comm.size + 10 * turn for by in (-1, 1))
        ok = np.all(mixed.padded[0] == before) and np.all(mixed.padded[-1] == after)
        assert everywhere(comm, ok), turn
    private.Free()


@pytest.mark.mpiexec("measures the memory of one process")
def test_thousands_of_fields_leak_nothing(comm):
    """Nor does it take longer and longer, and MPI has as many communicators and windows."""
    pen = Pencil((4, 4), comm, decomp=(0, 1), periodic=True)
    topology = pen.topology

    def work(turns):
        for turn in range(turns):
            field = pencils.ones(pen, halo=1)
            field.exchange_halo(corners=bool(turn % 2))
            if turn % 8 == 0:
                field.start_halo_exchange().wait()
                field.accumulate_halo()
                exchange_halos([field, pencils.ones(pen, dtype="f4", halo=1)])
        gc.collect()

    work(up_to(60, 24))
    held = topology.communicators, topology.shared.windows, plan_buffers(topology).nbytes
    tracemalloc.start()
    work(up_to(40, 16))
    before = tracemalloc.get_traced_memory()[0]
    work(up_to(150, 32))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert everywhere(comm, grown < 20_000), comm.allgather(grown)
    work(up_to(700, 200))
    now = topology.communicators, topology.shared.windows, plan_buffers(topology).nbytes
    assert everywhere(comm, now == held)


def test_hundreds_of_plans_leak_nothing(comm):
    private = comm.Dup()
    pen = Pencil((4, 4), private, decomp=(0, 1), periodic=True)
    fields = [pencils.ones(pen, halo=1, shared=shared) for shared in (False, True)]
    held = None
    for n in range(up_to(90, 50)):
        route, method = ("direct", "sweeps")[n % 2], METHODS[n % len(METHODS)]
        plan = HaloExchange(fields, route=route, method=method)
        if n % 4:
            plan(*fields)
            plan.start(*fields)
        if n % 4 == 1:
            plan.accumulate(*fields)
        if n % 8 < 6:
            plan.free()
        del plan
        if n == 40:
            gc.collect()
            held = pen.topology.communicators, pen.topology.shared.windows
    gc.collect()
    assert everywhere(comm, held == (pen.topology.communicators, pen.topology.shared.windows))
    private.Free()


@routes
def test_communicators_of_any_kind(comm, route):
    half = comm.Split(comm.rank % 2, comm.rank)
    reverse = comm.Split(0, -comm.rank)
    cartesian = comm.Create_cart(MPI.Compute_dims(comm.size, 2), periods=[True, False])
    for each in (half, reverse, cartesian, MPI.COMM_SELF):
        pen = Pencil(SHAPE, each, decomp=(0, 1), periodic=(True, True, False))
        fields = [pencils.zeros(pen, halo=(2, 1, 1)), pencils.zeros(pen, dtype="i2", halo=1)]
        for method in METHODS:
            with HaloExchange(fields, route=route, method=method) as plan:
                check_exchange(fields, lambda p=plan, f=fields: p(*f))
        check_exchange(fields[:1], fields[0].exchange_halo)
    # Halves of the ranks exchange at their own pace.
    u = pencils.zeros(Pencil(SHAPE, half, periodic=True), halo=1)
    for _ in range(1 + 3 * (comm.rank % 2)):
        check_exchange([u], u.exchange_halo)
    v = pencils.zeros(Pencil(SHAPE, comm, periodic=True), halo=1)
    handle = u.start_halo_exchange() if comm.rank % 2 else None
    check_exchange([v], v.exchange_halo)
    if handle is not None:
        handle.wait()
    for each in (half, reverse, cartesian):
        each.Free()


def locked(field):
    """Make the same field read-only."""
    block = field.padded.copy()
    block.flags.writeable = False
    return PencilArray(field.pencil, block, halo=field.halo)


# Mistakes of one rank are those of `test_one_rank_wrong`; these are their texts.


def test_wrong_fields(comm, pen):
    u, v = (pencils.zeros(pen, halo=1) for _ in range(2))
    w = pencils.zeros(pen, halo=1, components=2)
    again = PencilArray(w.pencil, w.padded, halo=1)
    other = pencils.zeros(other_blocks(pen), halo=1)
    before = [fill(field)[1] for field in (u, v)]
    for wrong, kind, text in (
        ([], ArgumentError, "at least one"),
        ([u, None], TypeError, "fields[1] must be a PencilArray, not NoneType"),
        ([u.local, v], TypeError, "fields[0] must be a PencilArray, not ndarray"),
        # Ghosts of views of one field would be added twice.
        *((each, ArgumentError, "share memory") for each in ([u, u], [w, again])),
        ([w.component(0), w], ArgumentError, "share memory"),
        ([u, locked(v)], ArgumentError, "read-only"),
        ([u, other], PencilMismatchError, "transpose"),
        (None, TypeError, "PencilArray or a sequence of them, not NoneType"),
        (u.local, TypeError, "not ndarray"),
        ({"u": u}, TypeError, "not dict"),
    ):
        for call in (exchange_halos, HaloExchange):
            all_raise(comm, kind, text, call, wrong)
    for wrong, kind, text in (
        (None, TypeError, "must be a PencilArray, not NoneType"),
        (u.local, TypeError, "must be a PencilArray, not ndarray"),
        (locked(u), ArgumentError, "read-only"),
    ):
        for name in ("exchange_halo", "accumulate_halo", "start_halo_exchange"):
            all_raise(comm, kind, text, getattr(PencilArray, name), wrong)
    for name, known in (
        ("route", "auto, direct, sweeps"),
        ("method", "auto, shared, hybrid, gathered, messages"),
    ):
        for value in ("pigeons", None, [], "alltoallw"):
            texts = f"unknown {name} {value!r}", known
            all_raise(comm, ArgumentError, texts, HaloExchange, u, **{name: value})
    assert everywhere(comm, all(map(same, (u.padded, v.padded), before)))
    check_exchange([u, v], lambda: exchange_halos([u, v]))
    parts = w.unstack()
    check_exchange(parts, lambda: exchange_halos(parts))


def test_wrong_fields_for_a_plan(comm, pen):
    good = [pencils.zeros(pen, halo=1), pencils.zeros(pen, dtype="i4", components=2, halo=2)]
    one, two = good
    walled = [
        pencils.zeros(
            pen.with_(periodic=False), dtype=f.dtype, halo=f.halo, components=f.components
        )
        for f in good
    ]
    mistakes = [
        ([], ArgumentError, "for 2 fields, but got 0"),
        ([one], ArgumentError, "for 2 fields, but got 1"),
        ([one, two, one], ArgumentError, "for 2 fields, but got 3"),
        ([two, one], ArgumentError, "field 0 has "),
        ([one, None], TypeError, "must be a PencilArray"),
        ([one, one], ArgumentError, "share memory"),
        ([locked(one), two], ArgumentError, "read-only"),
        ([pencils.zeros(pen, halo=2), two], ArgumentError, "halo ((2, 2), (2, 2), (2, 2))"),
        ([pencils.zeros(pen, dtype=">f8", halo=1), two], ArgumentError, "dtype >f8"),
        ([pencils.zeros(pen, dims=(0, 1), halo=(1, 1, 0)), two], ArgumentError, "singletons"),
        ([one, pencils.zeros(pen, dtype="i4", halo=2)], ArgumentError, "components ()"),
        ([walled[0], two], PencilMismatchError, "periodic="),
        (walled, PencilMismatchError, "plan is for"),
        ([pencils.zeros(other_blocks(pen), halo=1), two], PencilMismatchError, "transpose"),
    ]  # fmt: skip
    turned = [pencils.zeros(pen.with_(order=(1, 0, 2)), halo=1), two]
    for check in (True, False):
        with HaloExchange(good, check=check) as plan:
            check_exchange(turned, lambda p=plan: p(*turned))
            for used in (False, True):
                before = [field.padded.copy() for field in good]
                for wrong, kind, text in mistakes:
                    for call in (plan, plan.start, plan.accumulate):
                        all_raise(comm, kind, text, call, *wrong)
                assert everywhere(comm, all(map(same, (f.padded for f in good), before)))
                if not used:
                    plan(*good)
                    plan.accumulate(*good)
            check_exchange(good, lambda p=plan: p(*good))
    larger = pencils.zeros(pen.with_(shape=(9, 6, 5)), halo=1)
    with HaloExchange(one) as plan:
        all_raise(comm, PencilMismatchError, ("(9, 6, 5)", "plan is for"), plan, larger)


@pytest.mark.parallel([2, 3, 4, 6])
def test_what_ranks_disagree_on_is_named(comm, pen):
    """It may be another communicator that has as many ranks and gives this one the same block."""
    u, odd = pencils.zeros(pen, halo=1), comm.rank == comm.size - 1
    before = fill(u)[1]
    calls = {
        "halos": ([pencils.zeros(pen, halo=2)], {}),
        "dtypes": ([pencils.zeros(pen, dtype="f4", halo=1)], {}),
        "components": ([pencils.zeros(pen, components=1, halo=1)], {}),
        "singletons": ([pencils.zeros(pen, dims=(0, 1), halo=(1, 1, 0))], {}),
        "pencils": ([pencils.zeros(pen.with_(order=(2, 1, 0)), halo=1)], {}),
        "fields": ([u, pencils.zeros(pen, halo=1)], {}),
        "corners": ([u], {"corners": False}),
        "route": ([u], {"route": "sweeps"}),
        "method": ([u], {"method": "messages"}),
        "check": ([u], {"check": False}),
    }
    for name, mine in calls.items():
        given, options = mine if odd else ([u], {})
        text = f"disagree on {name}"
        all_raise(comm, RankDisagreementError, text, HaloExchange, given, **options)
        if name == "corners" or not mine[1]:
            all_raise(comm, RankDisagreementError, text, exchange_halos, given, **options)
        for verb in ("exchange_halo", "start_halo_exchange", "accumulate_halo"):
            if name in ("halos", "corners"):
                call = getattr(given[0], verb)
                all_raise(comm, RankDisagreementError, text.rstrip("s"), call, **options)
    with HaloExchange(u) as one, HaloExchange(u, corners=False) as other:
        plan = other if odd else one
        for call in (plan, plan.start, plan.accumulate):
            texts = "disagree on plan", "without corners"
            all_raise(comm, RankDisagreementError, texts, call, u)
        turned = comm.Split(0, -comm.rank)
        v, w = (pencils.zeros(Pencil((5, 3), c, periodic=True), halo=1) for c in (comm, turned))
        with HaloExchange(v) as plan:
            all_raise(comm, PencilMismatchError, "other processes", plan, w)
        turned.Free()
    call = u.exchange_halo if odd else u.accumulate_halo
    all_raise(comm, RankDisagreementError, "disagree on call", call)
    assert everywhere(comm, same(u.padded, before))


def test_a_field_alone_will_do_on_any_rank(comm, pen):
    """As it does for plans; some ranks may write it as a list of one."""
    u = pencils.zeros(pen, halo=1)
    for fields in (u if comm.rank == 0 else [u], u):
        check_exchange([u], lambda f=fields: exchange_halos(f))
        with HaloExchange(fields) as plan:
            check_exchange([u], lambda p=plan: p(u))


@pytest.mark.parametrize("dtype", ["?", "S3", "M8[s]", "m8[s]", [("a", "f8")]], ids=str)
def test_only_numbers_add_up(comm, pen, dtype):
    u = pencils.zeros(pen, halo=1)
    wrong = pencils.zeros(pen, dtype=dtype, halo=1)
    before = fill(wrong)[1] if wrong.dtype.kind != "m" else wrong.padded.copy()
    text = f"dtype {wrong.dtype} cannot be added"
    all_raise(comm, TypeError, text, wrong.accumulate_halo)
    with HaloExchange([u, wrong]) as plan:
        all_raise(comm, TypeError, text, plan.accumulate, u, wrong)
    assert everywhere(comm, same(wrong.padded, before))


@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.parametrize("nodes", ["even and odd", "two halves", "one rank apart", "three nodes"])
def test_shared_memory_does_not_reach_another_node(nodes):
    comm = on_nodes(nodes)
    u = pencils.zeros(Pencil((max(12, comm.size), 12), comm, periodic=True), halo=1)
    texts = "'shared' does not reach rank", "use 'hybrid'"
    for route in ("direct", "sweeps"):
        all_raise(comm, ArgumentError, texts, HaloExchange, u, method="shared", route=route)
    # Where nothing leaves a node, it does as well as anywhere.
    v = pencils.zeros(Pencil((12, 12), comm, periodic=True), halo=(0, 3))
    with HaloExchange(v, method="shared") as plan:
        check_exchange([v], lambda: plan(v))
