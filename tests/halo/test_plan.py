"""HaloExchange as a plan: reuse, life time, other communicators, mistakes."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest
from halos import METHODS, check_exchange, exchanged, few_ways, fill, has_ghosts, routes
from mpi4py import MPI
from mpi_helpers import (
    all_raise,
    everywhere,
    named,
    numbered,
    on_nodes,
    one_node,
    other_blocks,
    ranks_at_fault,
    same,
    spread,
)
from tiers import up_to

import pencils
from pencils import HaloExchange, Pencil, PencilArray
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError
from pencils.halo import exchange_halos
from pencils.plans import MOST_PLANS, MOST_REMEMBERED, kept_plans, plan_buffers

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)


@pytest.fixture(name="comm", scope="module")
def _comm(request):
    return on_nodes(getattr(request, "param", "real nodes"))


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
    """What is packed for messages."""
    field = pencils.zeros(pen, halo=2)
    with HaloExchange(field, method="messages") as plan:
        assert plan.memory == 0
        plan(field)
        held = plan.memory
        assert everywhere(comm, held <= 64 * 64 + 4 * field.padded.nbytes)
        for _ in range(5):
            plan(field)
            assert plan.memory == held
        assert any(comm.allgather(held > 0)) == (comm.size > 1)


@one_node
def test_no_memory_is_kept_for_fields_in_shared_memory(comm, pen):
    shared = pencils.zeros(pen, halo=2, shared=True)
    with HaloExchange(shared, method="shared") as plan:
        plan(shared)
        assert everywhere(comm, plan.memory == 0)


def test_a_plan_that_is_dropped_is_gone_at_once(comm, pen):
    """Its memory would be missed before Python looks for cycles."""
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


def test_fields_may_die_before_their_plan(comm, pen):
    with HaloExchange(pencils.zeros(pen, halo=1)) as plan:
        field = pencils.zeros(pen, halo=1)
        plan(field)
        plan.accumulate(field)
        block = weakref.ref(field.padded)
        del field
        gc.collect()
        assert everywhere(comm, block() is None)


def uses(plan, field):
    return [
        lambda: plan(field),
        lambda: plan.start(field),
        lambda: plan.accumulate(field),
    ]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("used", [True, False])
def test_a_freed_plan_raises(comm, pen, check, used):
    field = pencils.zeros(pen, halo=1)
    plan = HaloExchange(field, check=check)
    if used:
        plan(field)
        plan.accumulate(field)
    plan.free()
    for use in uses(plan, field):
        all_raise(comm, ArgumentError, ("freed", "make a new one"), use)
    plan.free()


@pytest.mark.parametrize("used", [True, False])
def test_a_plan_freed_on_one_rank_raises_on_all(comm, pen, used):
    field = pencils.zeros(pen, halo=1)
    plan = HaloExchange(field)
    if used:
        plan(field)
        plan.accumulate(field)
    if comm.rank == comm.size - 1:
        plan.free()
    before = fill(field)[1]
    for use in uses(plan, field):
        all_raise(comm, ArgumentError, (named(comm, comm.size - 1), "freed"), use)
    assert everywhere(comm, same(field.padded, before))
    plan.free()


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("used", [True, False])
def test_a_plan_after_the_communicator_is_gone(comm, check, used):
    private = comm.Dup()
    field = pencils.zeros(Pencil(SHAPE, private, periodic=True), halo=1)
    plan = HaloExchange(field, check=check)
    if used:
        plan(field)
        plan.accumulate(field)
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


def test_a_plan_that_has_to_go_completes_what_is_under_way(comm):
    private = comm.Dup()
    pen = Pencil(SHAPE, private, decomp=(0, 1), periodic=True)
    fields = [pencils.zeros(pen, components=n, halo=1) for n in range(1, MOST_PLANS + 4)]
    known = [fill(field, n) for n, field in enumerate(fields)]
    handles = [field.start_halo_exchange() for field in fields]
    for n in np.random.default_rng(comm.rank).permutation(len(handles)):
        handles[n].wait()
    ok = [has_ghosts(field, *both) for field, both in zip(fields, known, strict=True)]
    assert everywhere(comm, all(ok))
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
    for n in range(up_to(90, 60)):
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
    for each in (half, reverse, cartesian):
        each.Free()


def test_halves_of_the_ranks_exchange_at_their_own_pace(comm):
    half = comm.Split(comm.rank % 2, comm.rank)
    u = pencils.zeros(Pencil(SHAPE, half, periodic=True), halo=1)
    for _ in range(1 + 3 * (comm.rank % 2)):
        check_exchange([u], u.exchange_halo)
    v = pencils.zeros(Pencil(SHAPE, comm, periodic=True), halo=1)
    handle = u.start_halo_exchange() if comm.rank % 2 else None
    check_exchange([v], v.exchange_halo)
    if handle is not None:
        handle.wait()
    half.Free()


def locked(field):
    """Make the same field read-only."""
    block = field.padded.copy()
    block.flags.writeable = False
    return PencilArray(field.pencil, block, halo=field.halo)


def check_mistake(comm, good, mistake, calls):
    """Make a mistake on one rank, or on all, in each call; nothing may change. Collective."""
    wrong, kind, text = mistake
    blocks = [f.padded for f in (*good, *wrong) if isinstance(f, PencilArray)]
    before = [block.copy() for block in blocks]
    for rank in ranks_at_fault(comm):
        for call in calls:
            mine = wrong if comm.rank == rank else good
            all_raise(comm, kind, (named(comm, rank), text), call, mine)
    for call in calls:
        all_raise(comm, kind, text, call, wrong)
    unchanged = [same(block, was) for block, was in zip(blocks, before, strict=True)]
    assert everywhere(comm, all(unchanged))


def test_wrong_fields_on_one_rank(comm, pen):
    u, v = (spread(pen, numbered(SHAPE), halo=1) for _ in range(2))
    other = pencils.zeros(other_blocks(pen), halo=1)
    calls = [exchange_halos, HaloExchange]
    mistakes = [
        ([], ArgumentError, "at least one"),
        ([u, None], TypeError, "fields[1] must be a PencilArray, not NoneType"),
        ([u.local, v], TypeError, "fields[0] must be a PencilArray, not ndarray"),
        ([u, u], ArgumentError, "share memory"),
        ([u, locked(v)], ArgumentError, "read-only"),
        ([u, other], PencilMismatchError, "transpose"),
        (None, TypeError, "PencilArray or a sequence of them, not NoneType"),
        (u.local, TypeError, "not ndarray"),
        ({"u": u}, TypeError, "not dict"),
    ]
    for wrong, kind, text in mistakes:
        for call in calls:
            for rank in ranks_at_fault(comm):
                mine = wrong if comm.rank == rank else [u, v]
                all_raise(comm, kind, (named(comm, rank), text), call, mine)
            all_raise(comm, kind, text, call, wrong)
    boundary = [u, v]
    assert everywhere(comm, all(np.array_equal(f.local, u.local) for f in boundary))
    check_exchange([u, v], lambda: exchange_halos([u, v]))


def test_a_field_alone_will_do_on_any_rank(comm, pen):
    """As it does for plans; some ranks may write it as a list of one."""
    u = pencils.zeros(pen, halo=1)
    for rank in ranks_at_fault(comm):
        fields = u if comm.rank == rank else [u]
        check_exchange([u], lambda f=fields: exchange_halos(f))
        with HaloExchange(fields) as plan:
            check_exchange([u], lambda p=plan: p(u))
    check_exchange([u], lambda: exchange_halos(u))


def test_wrong_fields_for_verbs_on_one_rank(comm, pen):
    u = spread(pen, numbered(SHAPE), halo=1)
    verbs = [
        PencilArray.exchange_halo,
        PencilArray.accumulate_halo,
        PencilArray.start_halo_exchange,
    ]
    for wrong, kind, text in (
        (None, TypeError, "must be a PencilArray, not NoneType"),
        (u.local, TypeError, "must be a PencilArray, not ndarray"),
        (locked(u), ArgumentError, "read-only"),
    ):
        for rank in ranks_at_fault(comm):
            for verb in verbs:
                mine = wrong if comm.rank == rank else u
                all_raise(comm, kind, (named(comm, rank), text), verb, mine)
    assert everywhere(comm, np.array_equal(u.local, numbered(SHAPE)[u.local_slices]))


def test_different_fields_on_one_rank_are_named(comm, pen):
    if comm.size == 1:
        return
    u = pencils.zeros(pen, halo=1)
    others = {
        "halos": [pencils.zeros(pen, halo=2)],
        "dtypes": [pencils.zeros(pen, dtype="f4", halo=1)],
        "components": [pencils.zeros(pen, components=1, halo=1)],
        "singletons": [pencils.zeros(pen, dims=(0, 1), halo=(1, 1, 0))],
        "pencils": [pencils.zeros(pen.with_(order=(2, 1, 0)), halo=1)],
        "fields": [u, pencils.zeros(pen, halo=1)],
    }
    before = fill(u)[1]
    for rank in ranks_at_fault(comm):
        odd = comm.rank == rank
        for name, wrong in others.items():
            calls = [HaloExchange, exchange_halos]
            if len(wrong) == 1:
                calls.append(lambda f: f[0].exchange_halo())
                calls.append(lambda f: f[0].start_halo_exchange())
                calls.append(lambda f: f[0].accumulate_halo())
            for call in calls:
                all_raise(
                    comm, RankDisagreementError, f"disagree on {name}", call, wrong if odd else [u]
                )
        for options in (
            {"corners": False}, {"route": "sweeps"}, {"method": "messages"}, {"check": False}
        ):  # fmt: skip
            all_raise(
                comm,
                RankDisagreementError,
                f"disagree on {next(iter(options))}",
                HaloExchange,
                u,
                **options if odd else {},
            )
        for verb in (u.exchange_halo, u.start_halo_exchange, u.accumulate_halo):
            all_raise(comm, RankDisagreementError, "disagree on corners", verb, corners=not odd)
        all_raise(
            comm,
            RankDisagreementError,
            "disagree on call",
            u.exchange_halo if odd else u.accumulate_halo,
        )
    assert everywhere(comm, same(u.padded, before))


@pytest.mark.parametrize(
    "wrong",
    [
        {"route": "pigeons"},
        {"route": None},
        {"method": "pigeons"},
        {"method": "alltoallv"},
        {"method": []},
    ],
    ids=str,
)
def test_unknown_routes_and_methods_on_one_rank(comm, pen, wrong):
    u = pencils.zeros(pen, halo=1)
    ((name, value),) = wrong.items()
    for rank in ranks_at_fault(comm):
        mine = wrong if comm.rank == rank else {}
        all_raise(
            comm,
            ArgumentError,
            (named(comm, rank), f"unknown {name} {value!r}"),
            HaloExchange,
            u,
            **mine,
        )
    known = (
        "auto, direct, sweeps" if name == "route" else "auto, shared, hybrid, gathered, messages"
    )
    all_raise(comm, ArgumentError, known, HaloExchange, u, **wrong)


def test_wrong_fields_for_a_plan_on_one_rank(comm, pen):
    good = [pencils.zeros(pen, halo=1), pencils.zeros(pen, dtype="i4", components=2, halo=2)]
    one, two = good
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
        ([pencils.zeros(pen.with_(periodic=False), halo=1), two], PencilMismatchError, "ghosts"),
        ([pencils.zeros(other_blocks(pen), halo=1), two], PencilMismatchError, "transpose"),
    ]  # fmt: skip
    turned = [pencils.zeros(pen.with_(order=(1, 0, 2)), halo=1), two]
    with HaloExchange(good) as plan:
        check_exchange(turned, lambda: plan(*turned))
        for used in (False, True):
            calls = [lambda f, call=call: call(*f) for call in (plan, plan.start, plan.accumulate)]
            for mistake in mistakes:
                check_mistake(comm, good, mistake, calls)
            if not used:
                plan(*good)
                plan.accumulate(*good)
        check_exchange(good, lambda: plan(*good))
    walled = pen.with_(periodic=False)
    others = [
        pencils.zeros(walled, dtype=f.dtype, halo=f.halo, components=f.components) for f in good
    ]
    mistakes.append((others, PencilMismatchError, "plan is for"))
    unchecked = HaloExchange(good, check=False)
    for wrong, kind, text in mistakes:
        all_raise(comm, kind, text, unchecked, *wrong)
    check_exchange(good, lambda: unchecked(*good))
    unchecked.free()


def test_another_plan_on_one_rank(comm, pen):
    if comm.size == 1:
        return
    u = pencils.zeros(pen, halo=1)
    with HaloExchange(u) as one, HaloExchange(u, corners=False) as other:
        for rank in ranks_at_fault(comm):
            plan = other if comm.rank == rank else one
            for call in (plan, plan.start, plan.accumulate):
                all_raise(
                    comm, RankDisagreementError, ("disagree on plan", "without corners"), call, u
                )
        check_exchange([u], lambda: one(u))


@pytest.mark.parametrize("dtype", ["?", "S3", "M8[s]", "m8[s]", [("a", "f8")]], ids=str)
def test_only_numbers_add_up(comm, pen, dtype):
    u = pencils.zeros(pen, halo=1)
    wrong = pencils.zeros(pen, dtype=dtype, halo=1)
    before = fill(wrong)[1] if wrong.dtype.kind != "m" else wrong.padded.copy()
    text = f"dtype {wrong.dtype} cannot be added up"
    all_raise(comm, TypeError, text, wrong.accumulate_halo)
    with HaloExchange([u, wrong]) as plan:
        all_raise(comm, TypeError, text, plan.accumulate, u, wrong)
    assert everywhere(comm, same(wrong.padded, before))


@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.parametrize("nodes", ["even and odd", "two halves", "one rank apart", "three nodes"])
def test_shared_memory_does_not_reach_another_node(nodes):
    comm = on_nodes(nodes)
    u = pencils.zeros(Pencil((max(12, comm.size), 12), comm, periodic=True), halo=1)
    text = "'shared' does not reach rank"
    for route in ("direct", "sweeps"):
        all_raise(
            comm,
            ArgumentError,
            (text, "use 'hybrid'"),
            HaloExchange,
            u,
            method="shared",
            route=route,
        )
    # Where nothing leaves a node, it does as well as anywhere.
    v = pencils.zeros(Pencil((12, 12), comm, periodic=True), halo=(0, 3))
    with HaloExchange(v, method="shared") as plan:
        check_exchange([v], lambda: plan(v))


def test_fields_of_another_communicator_are_refused(comm):
    """Though it has as many ranks, and gives this one the same block."""
    turned = comm.Split(0, -comm.rank)
    u, v = (pencils.zeros(Pencil((5, 3), c, periodic=True), halo=1) for c in (comm, turned))
    larger = pencils.zeros(Pencil((6, 3), comm, periodic=True), halo=1)
    with HaloExchange(u) as plan:
        if comm.size > 1:
            all_raise(comm, PencilMismatchError, "other processes", plan, v)
        all_raise(comm, PencilMismatchError, ("(6, 3)", "plan is for", "(5, 3)"), plan, larger)
        check_exchange([u], lambda: plan(u))
    turned.Free()


def test_views_of_one_field_are_refused_in_a_group(comm):
    """Their ghosts would be added twice."""
    u = pencils.zeros(Pencil((5, 3), comm, periodic=True), halo=1, components=2)
    again = PencilArray(u.pencil, u.padded, halo=1)
    for fields in ([u, again], [u.component(0), u], [u, u]):
        all_raise(comm, ArgumentError, "share memory", exchange_halos, fields)
    parts = u.unstack()
    check_exchange(parts, lambda: pencils.halo.exchange_halos(parts))
