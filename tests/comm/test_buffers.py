"""Memory of plans: shared where it can be, staged where it cannot, and never more than said."""

import gc
import warnings
import weakref
from contextlib import contextmanager
from itertools import chain

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere, holds, numbered, one_node, reaching, spread, ways
from tiers import up_to

import pencils
from pencils import Pencil, PencilArray, Transposition, transpose
from pencils.comm import shared_memory
from pencils.comm.memory import LINE
from pencils.comm.methods import shared
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.plans import kept_plans, plan_buffers

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (12, 10, 8)


@pytest.fixture
def private(comm):
    """Ranks that have no window yet."""
    private = comm.Dup()
    yield private
    gc.collect()
    private.Free()


def pair_on(comm):
    source = Pencil(SHAPE, comm, decomp=(0, 1))
    return source, source.with_(decomp=(2, 0), order=(1, 0, 2))


def leaving(pair, rank):
    """Bytes that leave a rank, each piece in whole cache lines."""
    mine = pair[0].box(rank)
    pieces = [mine & pair[1].box(peer) for peer in range(pair[0].size) if peer != rank]
    return sum(-(-8 * box.volume // LINE) * LINE for box in pieces)


def most_leaving(pair):
    return max(leaving(pair, rank) for rank in range(pair[0].size))


def staging_blocks(plan):
    return [*chain(*plan._buffers._shared.values())]


def shared_copy(field):
    copy = pencils.empty(field.pencil, dtype=field.dtype, shared=True)
    copy.local[...] = field.local
    return copy


def no_room(monkeypatch, after=0):
    """From now on, or after some windows, the node has no more room."""
    left = [after]

    def has_room(_nbytes):
        left[0] -= 1
        return left[0] >= 0

    monkeypatch.setattr(shared_memory, "_has_room", has_room)


@contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# One at a time.


def test_as_many_buffers_as_were_ever_in_use_at_once():
    buffers = Buffers()
    for _ in range(3):
        held = [buffers.take(1000) for _ in range(3)]
        assert buffers.nbytes == 0
        for buffer in held:
            buffers.give(buffer)
        assert buffers.nbytes == 3000
    larger = buffers.take(5000)  # takes the place of a smaller one
    buffers.give(larger)
    assert buffers.nbytes == 7000
    assert buffers.take(2000) is larger
    buffers.clear()
    assert buffers.nbytes == 0


# What a plan holds.


@ways
def test_at_most_one_block_of_what_leaves_a_rank(comm, method):
    pair = pair_on(comm)
    values = numbered(SHAPE)
    u, v = spread(pair[0], values), pencils.empty(pair[1])
    with Transposition(*pair, method=method) as plan:
        for _ in range(3):
            plan(u, v)
            assert everywhere(comm, holds(v, values))
            plan.start(u, v).wait()
        held = plan._buffers.nbytes
        if method in ("shared", "hybrid"):
            assert everywhere(comm, len(staging_blocks(plan)) <= 1)
        if method == "shared":
            assert everywhere(comm, held <= most_leaving(pair))
        if method == "alltoallw":
            assert everywhere(comm, held == 0)
        else:  # messages: what leaves, and what arrives; within nodes, all stage as much
            nearby = most_leaving(pair) if method == "hybrid" else 0
            apart = leaving(pair, comm.rank) + leaving(pair[::-1], comm.rank)
            assert everywhere(comm, held <= nearby + apart)
    lying = shared_copy(u)  # needs no block
    with Transposition(*pair, method=method) as plan:
        assert everywhere(comm, holds(plan(lying), values))
        assert not staging_blocks(plan)
        assert method != "shared" or plan._buffers.nbytes == 0


@one_node
@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.parametrize("method", reaching(["shared", "hybrid"]))
def test_much_is_staged_in_turns(comm, method, monkeypatch):
    """A tenth at once, also if some ranks have shared fields; all if source and target overlap."""
    shape = 30 * comm.size, 6 * comm.size, 5
    source = Pencil(shape, comm, decomp=0)
    pair = source, source.with_(decomp=1, order=(2, 1, 0))
    monkeypatch.setattr(shared, "MOST_AT_ONCE", most_leaving(pair) // 8)
    values = numbered(shape)
    u = spread(source, values)
    known = shared_copy(u)
    with Transposition(*pair, method=method) as plan:
        plan.exchange()
        for field in (u, known, known if comm.rank else u, u):
            v = pencils.full(pair[1], np.nan)
            assert everywhere(comm, holds(plan(field, v), values))
            assert everywhere(comm, holds(plan.start(field).wait(), values))
        parts = most_leaving(pair) // shared.TURNS + LINE * comm.size
        assert everywhere(comm, 0 < max(block.nbytes for block in staging_blocks(plan)) <= parts)
        assert everywhere(comm, len(staging_blocks(plan)) == 1)
        both = plan.batch([u, known])
        assert everywhere(comm, all(holds(each, values) for each in both))
        one, other = pencils.alias(pair)
        one[...] = u
        assert everywhere(comm, holds(plan(one, other), values))
        assert everywhere(comm, holds(plan(u), values))


@ways
@pytest.mark.parametrize("staging", [100, 1000, 4000])
def test_a_bound_is_kept(comm, method, staging):
    pair = pair_on(comm)
    values = numbered(SHAPE)
    u = spread(pair[0], values)
    with Transposition(*pair, method=method, max_buffer_bytes=staging) as plan:
        chunks = plan.exchange().chunks
        for call in (plan, lambda field: plan.start(field).wait()):
            assert everywhere(comm, holds(call(u), values))
        rounding = LINE * max(1, comm.size)
        private = [buffer.nbytes for buffer in plan._buffers._private]
        assert everywhere(comm, all(nbytes <= staging + rounding for nbytes in private))
        blocks = [block.nbytes for block in staging_blocks(plan)]
        assert everywhere(comm, all(nbytes <= staging + rounding for nbytes in blocks))
        assert everywhere(comm, len(private) <= 2)
        assert everywhere(comm, len(blocks) <= 1)
        most = max(8 * pen.box(rank).volume for pen in pair for rank in range(comm.size))
        assert chunks >= most // staging
        one, other = pencils.alias(pair)
        if chunks > 1:
            text = "leave out max_buffer_bytes="
            all_raise(comm, ArgumentError, text, plan, one, other)
        assert everywhere(comm, holds(plan(u), values))


@ways
def test_there_and_back_share_their_memory(comm, method):
    pair = pair_on(comm)
    values = numbered(SHAPE)
    u = spread(pair[0], values)
    with Transposition(*pair, method=method) as plan, plan.reversed() as back:
        assert plan._buffers is back._buffers
        v = plan(u)
        held = plan._buffers.nbytes
        for _ in range(3):
            assert everywhere(comm, holds(back(plan(u)), values))
        larger = max(most_leaving(pair), most_leaving(pair[::-1]))
        assert everywhere(comm, plan._buffers.nbytes <= held + 2 * larger)
        assert everywhere(comm, len(staging_blocks(plan)) <= 1)
        with back.reversed() as again:
            assert again.source is pair[0]
            assert everywhere(comm, holds(again(u), values))
        plan.free()
        assert everywhere(comm, holds(back(v), values))


def test_plans_of_transpose_share_their_memory(private):
    values = numbered(SHAPE)
    pen = Pencil(SHAPE, private)
    u = spread(pen, values)
    for decomp in (0, 1, 2, (1, 2), (0, 2)):
        v = transpose(u, pen.with_(decomp=decomp))
        assert everywhere(private, holds(v, values))
    topology = topology_of(private)
    assert len({id(plan._buffers) for plan in kept_plans(topology).values()}) == 1
    assert everywhere(
        private, plan_buffers(topology).nbytes <= 3 * u.local.nbytes + 64 * private.size
    )


# Fields and what is remembered of them.


@ways
@pytest.mark.parametrize("check", [True, False])
def test_fields_come_and_go(comm, method, check):
    """A new field at the place, or with the identity, of one that is gone is never mistaken."""
    pair = pair_on(comm)
    values = numbered(SHAPE)
    seen = set()
    with Transposition(*pair, method=method, check=check) as plan:
        v = pencils.empty(pair[1])
        for turn in range(12):
            sharing = (turn // 2 + comm.rank * (turn > 6)) % 2
            u = spread(pair[0], values + turn)
            lying = shared_copy(u)  # on all ranks, for it is collective
            u = lying if sharing else u
            lying = None
            seen.add(id(u))
            if turn % 3 == 0:
                v = pencils.empty(pair[1])
            plan(u, v)
            assert everywhere(comm, holds(v, values + turn))
            assert len(plan._remembered) <= 1
            u = None
            assert not plan._remembered
        assert not plan._remembered


@ways
def test_a_new_source_over_the_same_memory(comm, method):
    """Only the strides change, or where the field begins."""
    pair = pair_on(comm)
    values = numbered(SHAPE)
    nbytes = 2 * 8 * int(np.prod(pair[0].local_shape)) + 64
    memory = topology_of(comm).shared.allocate(nbytes).view(float)
    v = pencils.empty(pair[1])
    volume = int(np.prod(pair[0].local_shape))
    with Transposition(*pair, method=method, check=False) as plan:
        for skip in (0, 1, 0, 5):
            for axes in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
                shape = [pair[0].local_shape[axis] for axis in axes]
                block = memory[skip : skip + volume].reshape(shape).transpose(np.argsort(axes))
                u = PencilArray(pair[0], block)
                u[...] = values + skip
                plan(u, v)
                assert everywhere(comm, holds(v, values + skip))


@ways
def test_what_is_remembered_does_not_keep_fields_alive(comm, method):
    pair = pair_on(comm)
    plan = Transposition(*pair, method=method, check=False)
    u, v = pencils.zeros(pair[0]), pencils.zeros(pair[1])
    plan(u, v)
    assert len(plan._remembered) == 1
    gone = weakref.ref(u), weakref.ref(v)
    u = v = None
    gc.collect()
    assert everywhere(comm, gone[0]() is gone[1]() is None)
    assert not plan._remembered
    held = [(pencils.zeros(pair[0]), pencils.zeros(pair[1])) for _ in range(40)]
    for u, v in held:
        plan(u, v)
    assert 0 < len(plan._remembered) <= 16
    plan.free()
    assert not plan._remembered


@ways
def test_work_fields_are_made_once(comm, method):
    pair = pair_on(comm)
    values = numbered(SHAPE)
    with Transposition(*pair, components=2, method=method) as plan:
        u, v = plan.buffers()
        assert (u.pencil, v.pencil) == pair
        assert u.components == v.components == (2,)
        again = plan.buffers()
        assert again[0] is u
        assert again[1] is v
        u[...] = values
        assert plan(u, v) is v
        assert everywhere(comm, holds(v, np.stack([values, values])))
        find = topology_of(comm).shared.find
        assert everywhere(comm, find(u.local) is not None and find(v.local) is not None)
        assert not staging_blocks(plan)


# Several under way.


@ways
def test_any_number_under_way_again_and_again(comm, method):
    """Blocks come together with other fields each time, and never with what they held before."""
    pair = pair_on(comm)
    values = numbered(SHAPE)
    rng, own = np.random.default_rng(1), np.random.default_rng(comm.rank)
    us = [spread(pair[0], values) for _ in range(4)]
    us[2] = shared_copy(us[2])
    vs = [pencils.empty(pair[1]) for _ in us]
    with Transposition(*pair, method=method) as plan:
        for turn in range(up_to(40, 18)):
            count = (1, 1, 1, 2, 1, 1, 1, 3, 4)[turn % 9]
            chosen = rng.permutation(len(us))[:count] if turn % 2 else np.arange(count)
            for n in chosen:
                us[n][...] = values + 10 * turn + n
            handles = {n: plan.start(us[n], vs[n]) for n in chosen}
            for n in own.permutation(chosen):
                handles[n].wait()
            ok = [holds(vs[n], values + 10 * turn + n) for n in chosen]
            assert everywhere(comm, all(ok)), (turn, ok)


# No room.


@pytest.mark.parametrize("method", reaching(["auto", "shared", "hybrid"]))
def test_a_plan_without_any_room_uses_messages(private, method, monkeypatch):
    no_room(monkeypatch)
    pair = pair_on(private)
    values = numbered(SHAPE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = Transposition(*pair, method=method)
        u, v = plan.buffers()
    if private.size > 1:
        warned = any("private memory" in str(each.message) for each in caught)
        assert everywhere(private, warned == (topology_of(private).node.rank == 0))
        assert plan.method == "messages"
        assert "by messages" in repr(plan)
    u[...] = values
    assert everywhere(private, holds(plan(u, v), values))
    assert everywhere(private, holds(plan.start(u).wait(), values))
    plan.free()


@pytest.mark.parametrize("method", reaching(["shared", "hybrid"]))
def test_no_room_for_staging(private, method, monkeypatch):
    """What leaves a rank does not fit into the window there is: as messages, again and again."""
    shape = 96 * private.size, 32, 32
    source = Pencil(shape, private, decomp=0)
    values = numbered(shape)
    u = spread(source, values)
    plan = Transposition(source, source.with_(decomp=1), method=method)
    back = plan.reversed()
    known = shared_copy(u)
    no_room(monkeypatch)
    with quiet():
        for _ in range(2):
            assert everywhere(private, holds(plan(u), values))
            assert everywhere(private, holds(plan.start(u).wait(), values))
            assert everywhere(private, holds(plan(known), values))
            handles = [plan.start(u) for _ in range(3)]
            ok = [holds(handles[n].wait(), values) for n in ((2, 0, 1), (1, 0, 2))[source.rank % 2]]
            assert everywhere(private, all(ok))
            assert everywhere(private, all(holds(v, values) for v in plan.batch([u, known, u])))
            assert everywhere(private, holds(back(plan(u)), values))
    monkeypatch.undo()
    assert everywhere(private, holds(plan(u), values))
    back.free()
    plan.free()


@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.parametrize("method", reaching(["shared", "hybrid"]))
def test_room_for_one_block_but_not_for_two(private, method, monkeypatch):
    """The second exchange under way finds none; what the first one said before is not true then."""
    rows = shared_memory.FIRST_WINDOW * 7 // 10 // (8 * 64 * (private.size - 1))
    shape = rows * private.size, 64 * private.size
    source = Pencil(shape, private, decomp=0)
    values = numbered(shape)
    target = source.with_(decomp=1)
    nbytes = most_leaving((source, target))
    assert nbytes < shared_memory.FIRST_WINDOW < 2 * nbytes
    plan = Transposition(source, target, method=method)
    back = plan.reversed()
    no_room(monkeypatch)
    fields = [spread(source, factor * values) for factor in (1, 2)]
    outs = [pencils.empty(target) for _ in fields]
    w = spread(target, 5 * values)
    with quiet():
        for _ in range(2):
            for u, out in zip(fields, outs, strict=True):
                plan(u, out)
        handles = [back.start(w), *map(plan.start, fields, outs), back.start(w)]
        found = [handle.wait() for handle in handles]
    expected = [5 * values, values, 2 * values, 5 * values]
    assert everywhere(private, all(map(holds, found, expected)))
    back.free()
    plan.free()


@pytest.mark.parametrize("method", reaching(["shared", "hybrid"]))
def test_no_room_for_more_than_one_field_at_a_time(private, method, monkeypatch):
    """The window is full when several arrays, or several exchanges, want to be announced."""
    pair = pair_on(private)
    values = numbered(SHAPE)
    plan = Transposition(*pair, method=method)
    u = shared_copy(spread(pair[0], values))
    no_room(monkeypatch)
    hoard = []
    with quiet():
        for pool in {id(p): p for p in pools_of(private)}.values():
            size = shared_memory.FIRST_WINDOW
            while size >= LINE:
                block = pool.allocate(size)
                hoard.append(block)
                size = size // 2 if block is None else size
        assert everywhere(private, holds(plan(u), values))
        assert everywhere(private, all(holds(v, values) for v in plan.batch([u, u, u])))
        handles = [plan.start(u) for _ in range(3)]
        assert everywhere(private, all(holds(handle.wait(), values) for handle in handles))
    plan.free()


def pools_of(comm):
    topology = topology_of(comm)
    return [topology.shared, *(pool for _, pool in topology.groups.values())]


def test_no_room_on_one_node_only(monkeypatch):
    """Then all nodes use messages: they could not agree on anything else."""
    private = MPI.COMM_WORLD.Dup()
    on_other_node = private.rank % 2 == 1
    node = MPI.Intracomm(private.Split(int(on_other_node), private.rank))
    topology_of(private).node.Free()
    topology_of(private)._made["node"] = node
    if on_other_node:
        no_room(monkeypatch)
    pair = pair_on(private)
    values = numbered(SHAPE)
    with quiet(), Transposition(*pair, method="hybrid") as plan:
        assert private.size == 1 or plan.method == "messages"
        assert everywhere(private, holds(plan(spread(pair[0], values)), values))
    private.Free()
