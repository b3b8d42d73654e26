"""transpose and Transposition: from any pencil to any other, byte for byte."""

import gc
import weakref

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import (
    DTYPES,
    METHODS,
    all_raise,
    everywhere,
    holds,
    named,
    numbered,
    one_after_the_other,
    one_node,
    other_blocks,
    random_pencil,
    spread,
    spy_on,
    ways,
)
from tiers import up_to

from pencils import Pencil, PencilArray, Transposition, empty, gather, transpose, zeros
from pencils.comm import memory
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError
from pencils.plans import MOST_PLANS, kept_plans

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)


@pytest.fixture(name="pair")
def _pair(comm):
    source = Pencil(SHAPE, comm, decomp=(0, 1))
    return source, source.with_(decomp=(2, 0), order=(1, 0, 2))


def plan_of(pair, method="messages", data=None, dims=None):
    data = numbered(SHAPE) if data is None else data
    components = data.shape[: data.ndim - 3]
    return Transposition(*pair, data.dtype, components=components, dims=dims, method=method)


@ways
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_type(comm, pair, method, dtype):
    data = numbered((2, *SHAPE), dtype)
    with plan_of(pair, method, data) as plan:
        v = plan(spread(pair[0], data))
    assert v.dtype == dtype
    assert everywhere(comm, holds(v, data))


@ways
def test_in_place_over_one_buffer(comm, method):
    """As FFT libraries do: the same memory holds the source first and then the target."""
    rng = np.random.default_rng(6)
    data = numbered(SHAPE)
    for offset in (0, 0, 1, 17):
        source, target = (random_pencil(rng, comm, SHAPE) for _ in range(2))
        sizes = [pen.box().volume for pen in (source, target)]
        buffer = np.zeros(sum(sizes) + offset)
        u = PencilArray(source, buffer[: sizes[0]].reshape(source.local_shape))
        v = PencilArray(
            target, buffer[offset : offset + sizes[1]].reshape(target.local_shape[::-1]).T
        )
        u.local[...] = data[u.local_slices]
        with Transposition(source, target, method=method, check=False) as plan:
            with one_after_the_other(comm):
                handle = plan.start(u, v)
            handle.wait()
        assert everywhere(comm, holds(v, data))


def test_out_may_be_the_source(comm, pair):
    data = numbered(SHAPE)
    u = spread(Pencil(SHAPE, comm), data, halo=1)
    v = transpose(u, u.pencil)  # the same pencil copies
    assert v.halo == ((0, 0),) * 3
    v.local[...] = 0
    for pen in (u.pencil, u.pencil.with_(order=(2, 1, 0))):
        assert transpose(u, pen, u) is u
        assert everywhere(comm, holds(u, data))
    v = transpose(spread(pair[0], data), pair[1])
    assert v.local.transpose(1, 0, 2).flags.c_contiguous
    assert everywhere(comm, holds(v, data))


@ways
def test_counts_beyond_what_one_call_can_move(comm, pair, method, monkeypatch):
    monkeypatch.setattr(memory, "MOST_BYTES", 13)
    monkeypatch.setattr(memory, "MOST_UNITS", comm.size + 1)
    data = numbered((2, *SHAPE), "c16")
    with plan_of(pair, method, data) as plan:
        assert everywhere(comm, holds(plan(spread(pair[0], data)), data))


@ways
def test_several_are_under_way(comm, pair, method):
    data = numbered(SHAPE)
    u, w = spread(pair[0], data), spread(pair[1], 2 * data)
    with plan_of(pair, method) as there, there.reversed() as back:
        one = there.start(u)
        two = back.start(w)
        handles = [two, one] if comm.rank % 2 else [one, two]
        for handle in handles:
            handle.wait()
        assert everywhere(comm, holds(one.wait(), data))
        assert everywhere(comm, holds(two.wait(), 2 * data))
    # One rank has something under way that the others have not.
    alone = Pencil(SHAPE, MPI.COMM_SELF)
    handles = []
    with Transposition(alone, alone.with_(order=(2, 1, 0))) as mine, plan_of(pair, method) as plan:
        if comm.rank == 0:
            handles.append(mine.start(spread(alone, data)))
        assert everywhere(comm, holds(plan(spread(pair[0], data)), data))
        assert everywhere(comm, all(holds(handle.wait(), data) for handle in handles))


@ways
def test_a_forgotten_handle_is_completed_by_free(comm, pair, method):
    data = numbered(SHAPE)
    v = zeros(pair[1])
    plan = plan_of(pair, method)
    plan.start(spread(pair[0], data), v)
    gc.collect()
    plan.free()
    assert everywhere(comm, holds(v, data))
    plan.free()
    u = spread(pair[0], data)
    all_raise(comm, ArgumentError, ("freed", "make a new one"), plan, u)
    with plan_of(pair, method) as another:
        late = another.start(u)
    assert everywhere(comm, holds(late.wait(), data))


def test_without_checks_a_call_sends_nothing_but_the_data(comm, pair):
    data = numbered(SHAPE)
    u = spread(pair[0], data)
    with Transposition(*pair, check=False, method="messages") as plan:
        spy = spy_on(plan._exchange)
        assert everywhere(comm, holds(plan(u), data))
    assert set(spy.calls) <= {"Send_init", "Recv_init"}
    # Nothing travels where nothing moves.
    pen = Pencil(SHAPE, comm)
    with plan_of((pen, pen.with_(order=(2, 0, 1)))) as plan:
        spy = spy_on(plan._exchange)
        plan(spread(pen, numbered(SHAPE)))
    assert everywhere(comm, not spy.calls)
    # A plan of another memory order or equal pencils will do.
    u = spread(Pencil(SHAPE, comm, order=(2, 1, 0)), data)
    v = empty(pair[1].with_(order=(0, 1, 2)))
    with plan_of(pair) as plan:
        assert plan(u, v) is v
    assert everywhere(comm, holds(v, data))


def test_a_rank_sends_one_message_to_each_rank_that_shares_points(comm):
    rng = np.random.default_rng(7)
    data = numbered((3, *SHAPE))
    for _ in range(up_to(8, 4)):
        pair = random_pencil(rng, comm, SHAPE), random_pencil(rng, comm, SHAPE)
        mine = pair[0].box()
        expected = [
            rank
            for rank in range(comm.size)
            if rank != comm.rank and (mine & pair[1].box(rank)).volume
        ]
        with plan_of(pair, "messages", data) as plan:
            spy = spy_on(plan._exchange)
            v = plan(spread(pair[0], data))
        assert everywhere(comm, holds(v, data))
        assert everywhere(comm, sorted(dest for dest, _ in spy.sent) == expected)


@pytest.mark.parametrize(("whole", "next_whole"), [(0, 1), (1, 2), (2, 0), (1, 0)])
def test_against_mpi4py_fft(comm, whole, next_whole):
    """The same redistribution by an independent library: two dimensions swap their processes."""
    mpi4py_fft = pytest.importorskip("mpi4py_fft")
    shape = (8, 9, 10)
    subcomm = [0, 0, 0]
    subcomm[whole] = 1
    theirs = mpi4py_fft.DistArray(shape, subcomm=subcomm, alignment=whole)
    theirs[...] = np.random.default_rng(8).random(shape)[theirs.local_slice()]
    expected = theirs.redistribute(next_whole)
    cut = [dim for dim in range(3) if dim != whole]
    grid = [theirs.commsizes[dim] for dim in cut]
    source = Pencil(shape, comm, decomp=cut, grid=grid)
    target = source.with_(decomp=[whole if dim == next_whole else dim for dim in cut])
    v = transpose(PencilArray(source, theirs.v), target)
    assert everywhere(comm, v.local_slices == expected.local_slice())
    assert everywhere(comm, np.array_equal(v.local, expected.v))


def test_plans_on_two_communicators_waited_for_in_another_order(comm, pair):
    other = comm.Dup()
    data = numbered(SHAPE)
    again = Pencil(SHAPE, other, decomp=(0, 1)), Pencil(SHAPE, other, decomp=(1, 2))
    with Transposition(*pair) as one, Transposition(*again) as two:
        handles = [one.start(spread(pair[0], data)), two.start(spread(again[0], data))]
        for handle in handles[:: -1 if comm.rank % 2 else 1]:
            handle.wait()
        assert everywhere(comm, all(holds(handle.wait(), data) for handle in handles))
    other.Free()


def test_a_plan_that_is_dropped_is_gone_at_once(comm, pair):
    """Its memory would be missed before Python looks for cycles."""
    u, v = spread(pair[0], numbered(SHAPE)), empty(pair[1])
    gc.disable()
    try:
        plan = Transposition(*pair, check=False)
        plan(u, v)
        plan(u, v)
        parts = [weakref.ref(part) for part in (plan._exchange, plan.pull) if part is not None]
        del plan
        assert everywhere(comm, parts and not any(part() for part in parts))
    finally:
        gc.enable()


@one_node
def test_all_turns_meet_in_one_place(pair):
    whole, cut = (
        Transposition(*pair, method="shared", max_buffer_bytes=staging) for staging in (None, 100)
    )
    groups = {id(method.group.pool) for method in cut._exchange._methods}
    assert len(groups) == 1
    assert groups == {id(whole._exchange._methods[0].group.pool)}
    for plan in (whole, cut):
        assert plan.batch([], []) == []
        plan.free()


@pytest.mark.parametrize("method", METHODS)
def test_freeing_the_communicator_completes_what_is_under_way(comm, pair, method):
    """Nobody else's exchange stumbles over it afterwards."""
    private = comm.Dup()
    data = numbered(SHAPE)
    pen = Pencil(SHAPE, private, decomp=0)
    u, v = spread(pen, data), empty(pen.with_(decomp=1))
    plan, bare = (
        Transposition(pen, v.pencil, method=method, check=check) for check in (True, False)
    )
    bare(u, v)
    handle = plan.start(u)
    private.Free()
    assert everywhere(comm, holds(transpose(spread(pair[0], data), pair[1]), data))
    assert everywhere(comm, np.array_equal(handle.wait().local, data[plan.target.local_slices]))
    for call in (plan, plan.start, bare, bare.start):
        with pytest.raises(ArgumentError, match="freed"):
            call(u, v)
    plan.free()


def test_plans_room_and_buffers_that_are_kept(comm):
    private = comm.Dup()
    pen = Pencil((4, 3), private, decomp=0)
    plans = kept_plans(pen.topology)
    columns = pen.with_(decomp=1)
    for _ in range(5):
        transpose(zeros(pen), columns)
    assert len(plans) == 1
    for components in range(1, 100):
        data = numbered((components, 4, 3))
        assert everywhere(comm, holds(transpose(spread(pen, data), columns), data))
    assert len(plans) == MOST_PLANS
    private.Free()
    # More than there are addresses: all blocks are one number.
    source = Pencil((6 * 2**24, 2**30), comm, decomp=0)
    bounds = (0, *[2**30] * comm.size)  # everything goes to rank 0
    target = source.with_(decomp=1, splits=(None, bounds))
    u = PencilArray(source, np.broadcast_to(0.0, source.local_shape))
    all_raise(comm, MemoryError, named(comm, 0), transpose, u, target)
    with Transposition(source, target) as plan:
        all_raise(comm, MemoryError, named(comm, 0), plan, u)
    # MPI delivers into memory that nobody else got meanwhile, though plan and handle are gone.
    rows = Pencil((8 * comm.size, 64, 64), comm, decomp=0)
    u = spread(rows, numbered(rows.shape))
    columns = rows.with_(decomp=1)
    plan = Transposition(rows, columns)
    plan.start(u)
    del plan
    gc.collect()
    fresh = [np.zeros(u.local.size) for _ in range(8)]
    comm.Barrier()
    transpose(u, columns)
    assert everywhere(comm, not any(block.any() for block in fresh))


# Mistakes of one rank are those of `test_one_rank_wrong`; these are their texts.


def test_mistakes_are_explained(comm, pair):
    source, target = pair
    u, other, larger = zeros(source), zeros(other_blocks(source)), target.with_(shape=(8, 6, 5))
    locked = PencilArray(target, np.broadcast_to(0.0, target.local_shape))
    fields = [
        (None, None, TypeError, "u must be a PencilArray"),
        (u.local, None, TypeError, "u must be a PencilArray, not ndarray"),
        (u, u.local, TypeError, "out must be a PencilArray, not ndarray"),
        (u, zeros(other_blocks(target)), PencilMismatchError, "out lies on"),
        (u, zeros(target, components=3), ArgumentError, "components (3,)"),
        (u, zeros(target, dims=0), ArgumentError, "singleton dimensions [1, 2]"),
        (u, zeros(target, dtype=">f8"), ArgumentError, "dtype >f8"),
        (u, locked, ArgumentError, "read-only"),
    ]
    for_plans = [
        (other, None, PencilMismatchError, "u lies on"),
        (zeros(source, dtype="f4"), None, ArgumentError, "u has dtype float32"),
    ]
    with plan_of(pair) as plan:
        for v, out, kind, text in fields:
            all_raise(comm, kind, text, transpose, v, target, out)
        for v, out, kind, text in fields + for_plans:
            for call in (plan, plan.start):
                all_raise(comm, kind, text, call, v, out)
        v, _ = plan.buffers()
    for call, *args in ((plan.buffers,), (plan.reversed,), (plan.batch, [v]), (plan, v)):
        all_raise(comm, ArgumentError, ("freed", "make a new one"), call, *args)
    for wrong in (None, "columns", u):
        all_raise(comm, TypeError, "must be a Pencil", transpose, u, wrong)
        all_raise(comm, TypeError, "must be a Pencil", Transposition, source, wrong)
        all_raise(comm, TypeError, "must be a Pencil", Transposition, wrong, target)
    all_raise(comm, PencilMismatchError, "same global shape", transpose, u, larger)
    all_raise(comm, PencilMismatchError, "same global shape", Transposition, source, larger)
    for options, kind, text in (
        ({"dtype": object}, TypeError, "object"),
        ({"dtype": "spam"}, TypeError, "spam"),
        ({"components": -1}, ArgumentError, "components"),
        ({"components": 1.5}, TypeError, "components"),
        ({"dims": (0, 0)}, ArgumentError, "dims"),
        ({"dims": 3}, ArgumentError, "dims"),
        ({"method": "pigeons"}, ArgumentError, "pigeons"),
        ({"method": None}, ArgumentError, "None"),
        ({"method": []}, ArgumentError, "[]"),
    ):
        all_raise(comm, kind, text, Transposition, *pair, **options)


@pytest.mark.parallel([2, 3, 4, 6])
def test_what_ranks_disagree_on_is_named(comm, pair):
    source, target = pair
    u, data, odd = spread(source, numbered(SHAPE)), numbered(SHAPE), comm.rank == comm.size - 1
    fields = {
        "source": spread(source.with_(splits="last"), data),
        "dtype": spread(source, data.astype("f4")),
        "components": spread(source, data[None]),
        "singletons": spread(source, data[:, :1], dims=(0, 2)),
    }
    options = {"dtype": "f4", "components": 2, "dims": 0, "method": "alltoallw", "check": False}
    for name, other in fields.items():
        text = f"disagree on {name}"
        all_raise(comm, RankDisagreementError, text, transpose, other if odd else u, target)
    text = "disagree on target"
    all_raise(comm, RankDisagreementError, text, transpose, u, source if odd else target)
    all_raise(comm, TypeError, "not None", Transposition, None if odd else source, target)
    larger = target.with_(shape=(8, 6, 5))
    all_raise(comm, RankDisagreementError, "(8, 6, 5)", transpose, u, larger if odd else target)
    for name, value in options.items():
        text = f"disagree on {'singletons' if name == 'dims' else name}"
        mine = {name: value} if odd else {}
        all_raise(comm, RankDisagreementError, text, Transposition, *pair, **mine)
    turned = source, target.with_(splits="last")
    with plan_of(pair) as plan, plan_of(turned) as another, plan_of(pair) as twin:
        mine = another if odd else plan
        all_raise(comm, RankDisagreementError, ("disagree on plan", "last"), mine.start, u)
        assert repr(twin) == repr(plan)
        all_raise(comm, RankDisagreementError, "which plan", twin if odd else plan, u)
        call = gather if odd else plan.start
        all_raise(comm, RankDisagreementError, "disagree on call", call, u)
        assert everywhere(comm, holds(plan(u), data))


def test_repr_tells_from_where_to_where(pair):
    with Transposition(*pair, "f4", components=(2, 3), method="alltoallw") as plan:
        text = repr(plan)
        assert text == (
            "<Transposition of float32, components=(2, 3) by alltoallw\n"
            f"  from {pair[0]!r}\n  to   {pair[1]!r}>"
        )
        assert str(plan) == text
    with plan_of(pair) as plan:
        assert "components" not in repr(plan)
