"""The executor of schedules, on bare NumPy arrays: every method moves the same bytes."""

import gc
import weakref
from functools import partial
from itertools import chain, product

import numpy as np
import pytest
from mpi_helpers import (
    all_raise,
    everywhere,
    numbered,
    on_nodes,
    one_after_the_other,
    reaching,
    same,
    spy_on,
    ways,
)

from pencils.comm import memory
from pencils.comm.exchange import METHODS, Exchange
from pencils.comm.pack import MessageBlock, MessageSpec, prepare_additions, prepare_copies
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

memories = pytest.mark.parametrize("memory", ["private", "shared", "mixed"])


def all_to_all(comm, method, *, dtype=float, lead=(), ranks=None, **rest):
    """ChunkPlan in which each of `ranks` sends row r of its source to row `comm.rank` of rank r."""
    ranks = range(comm.size) if ranks is None else ranks
    peers = ranks if comm.rank in ranks else ()
    me = comm.rank, 0
    pieces = [MessageBlock(r, (slice(r, r + 1), slice(0, r + 2)), me) for r in peers]
    home = [MessageBlock(r, (slice(r, r + 1), slice(0, comm.rank + 2)), me) for r in peers]
    dtype = np.dtype(dtype)
    spec = MessageSpec(pieces, home, lead, dtype)
    return Exchange(topology_of(comm), [spec], axes=2, method=method, **rest)


def move(plan, source, target):
    plan.prepare([source], [target]).run()


def source_of(comm, rank, dtype=float, lead=()):
    """Make what `rank` sends; everyone knows it."""
    data = numbered((*lead, comm.size, comm.size + 2), dtype)
    return np.roll(data, rank, axis=-1)


def expected_on(comm, rank, before, dtype=float, lead=()):
    found = before.copy()
    for r in range(comm.size):
        found[..., r, : rank + 2] = source_of(comm, r, dtype, lead)[..., rank, : rank + 2]
    return found


def shared_copy(comm, array):
    """Copy an array to where the other ranks of the node can read it. Collective."""
    memory = topology_of(comm).shared.allocate(array.nbytes)
    copy = memory.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def lying(comm, array, memory):
    """Put an array into private memory, into shared memory, or on odd ranks into shared memory."""
    if memory == "private":
        return array.copy()
    copy = shared_copy(comm, array)
    return copy if memory == "shared" or comm.rank % 2 else array.copy()


@pytest.fixture(name="plan")
def _plan(comm, method):
    plan = all_to_all(comm, method)
    yield plan
    plan.free()


def got(comm, *targets, lead=()):
    """Whether targets that were zero have what all ranks have sent. *Collective*."""
    zeros = np.zeros((*lead, comm.size, comm.size + 2))
    expected = expected_on(comm, comm.rank, zeros, lead=lead)
    return everywhere(comm, all(np.array_equal(target, expected) for target in targets))


@ways
@memories
def test_arrays_of_any_strides(comm, plan, memory):
    source = source_of(comm, comm.rank)
    layouts = {
        "C": lambda a: lying(comm, a, memory),
        "F": lambda a: lying(comm, a.T, memory).T,
        "backwards": lambda a: lying(comm, a[::-1, ::-1], memory)[::-1, ::-1],
        "sparse": lambda a: lying(comm, np.repeat(np.repeat(a, 2, 0), 3, 1), memory)[::2, ::3],
    }
    for here, there in product(layouts.values(), repeat=2):
        target = there(np.zeros_like(source))
        read_only = here(source)
        read_only.flags.writeable = False
        move(plan, read_only, target)
        assert got(comm, target)


@ways
def test_strides_may_differ_between_ranks_and_from_call_to_call(comm, plan):
    """More kinds of strides than a plan keeps anything for, in sources and in targets."""
    source = source_of(comm, comm.rank)
    rows, columns = source.shape
    steps = 1 + (np.arange(12) + comm.rank) % 12
    for here, there in [(1, n) for n in steps] + [(n, 1) for n in steps] + [(n, n) for n in steps]:
        wide = np.zeros((rows, columns * here))[:, ::here]
        wide[...] = source
        target = np.zeros((rows, columns * there))[:, ::there]
        move(plan, wide, target)
        assert got(comm, target)


def test_collectives_over_all_ranks_copy_arrays_that_are_alike():
    comm = on_nodes("real nodes")
    spec = MessageSpec([], [], (), np.dtype(float))
    for specs, rest in (([spec, spec], {}), ([spec], {"unpack": prepare_additions})):
        call = partial(Exchange, topology_of(comm), specs, axes=1, method="alltoallw", **rest)
        all_raise(comm, ArgumentError, ("alltoallw", "use another one"), call)


@pytest.mark.parametrize("method", reaching(["shared", "hybrid", "messages"]))
@memories
def test_arrays_of_several_kinds_travel_together_and_add_up(comm, method, memory):
    """To the right neighbour go two ints of one array and a complex vector of another."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    ints = MessageSpec(
        [MessageBlock(right, (slice(1, 3),), (0,))],
        [MessageBlock(left, (slice(0, 2),), (1,))],
        (),
        np.dtype("i4"),
    )
    vectors = MessageSpec(
        [MessageBlock(right, (slice(0, 1),), (2,))],
        [MessageBlock(left, (slice(2, 3),), (0,))],
        (2,),
        np.dtype("c16"),
    )
    for unpack in (prepare_copies, prepare_additions):
        plan = Exchange(topology_of(comm), [ints, vectors], axes=1, method=method, unpack=unpack)
        sources = [numbered((4,), "i4") + comm.rank, numbered((2, 3), "c16") * (1 + comm.rank)]
        targets = [np.full(4, 7, "i4"), np.full((2, 3), 7j)]
        before = 0 if unpack is prepare_copies else 1
        expected = [target.copy() for target in targets]
        expected[0][0:2] = before * expected[0][0:2] + (numbered((4,), "i4") + left)[1:3]
        theirs = numbered((2, 3), "c16") * (1 + left)
        expected[1][:, 2:3] = before * expected[1][:, 2:3] + theirs[:, 0:1]
        plan.prepare([lying(comm, source, memory) for source in sources], targets).run()
        assert everywhere(comm, all(map(same, targets, expected)))
        plan.free()


@ways
def test_several_pieces_for_the_same_rank_keep_their_order(comm, method):
    """Rows travel to the right neighbour, one piece each, and land in reversed order."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    rows = range(4)
    sends = [MessageBlock(right, (slice(i, i + 1), slice(0, i + 1)), (3 - i, 0)) for i in rows]
    recvs = [MessageBlock(left, (slice(3 - i, 4 - i), slice(0, i + 1)), (i, 0)) for i in rows]
    topology = topology_of(comm)
    plan = Exchange(
        topology, [MessageSpec(sends, recvs, (), np.dtype("i4"))], axes=2, method=method
    )
    source = numbered((4, 4), "i4") + 100 * comm.rank
    expected = np.zeros_like(source)
    for i in rows:
        expected[3 - i, : i + 1] = (numbered((4, 4), "i4") + 100 * left)[i, : i + 1]
    for mine in (source, shared_copy(comm, source)):
        target = np.zeros_like(source)
        move(plan, mine, target)
        assert everywhere(comm, np.array_equal(target, expected))
    plan.free()


@ways
def test_pieces_may_travel_in_turns(comm, method):
    """Row i in chunk i; some ranks have no_op to say in some chunks."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sends, recvs = (
        [
            MessageBlock(peer, (slice(i, i + 1), slice(0, i + 1)), (i, 0), i)
            for i in range(count + 1)
        ]
        for peer, count in ((right, comm.rank), (left, left))
    )
    topology = topology_of(comm)
    spec = MessageSpec(sends, recvs, (), np.dtype(float))
    plan = Exchange(topology, [spec], axes=2, method=method, chunks=comm.size)
    assert plan.chunks == comm.size
    source = numbered((comm.size, comm.size)) + 100 * comm.rank
    expected = np.zeros_like(source)
    for i in range(left + 1):
        expected[i, : i + 1] = (numbered(source.shape) + 100 * left)[i, : i + 1]
    for mine in (source, shared_copy(comm, source)):
        for start in (False, True):
            target = np.zeros_like(source)
            bound = plan.prepare([mine], [target])
            bound.start(None).wait() if start else bound.run()
            assert everywhere(comm, np.array_equal(target, expected))
    if comm.size > 1:  # all that leaves would have to be packed at once
        with pytest.raises(ArgumentError, match="max_buffer_bytes"):
            plan.prepare([source], [source])
    plan.free()


@ways
@pytest.mark.parametrize("most", [1, 7, 64, 1000])
def test_counts_beyond_what_one_call_can_move(comm, method, most, monkeypatch):
    monkeypatch.setattr(memory, "MOST_BYTES", most)
    monkeypatch.setattr(memory, "MOST_UNITS", comm.size + 2)
    source = source_of(comm, comm.rank, "c16", (3,))
    expected = expected_on(comm, comm.rank, np.zeros_like(source), "c16", (3,))
    plan = all_to_all(comm, method, dtype="c16", lead=(3,))
    spy = spy_on(plan) if method == "messages" else None
    for there in (lambda a: a, lambda a: a.transpose(2, 0, 1).copy().transpose(1, 2, 0)):
        target = there(np.zeros_like(source))
        move(plan, source, target)
        assert everywhere(comm, same(target, expected))
    if method == "messages":
        assert everywhere(comm, all(nbytes <= most for _, nbytes in spy.sent))
        assert everywhere(comm, bool(spy.sent) == (comm.size > 1))
    plan.free()


@ways
@pytest.mark.parametrize("copies", [1, 5000], ids=["small", "large"])
def test_source_and_target_may_share_memory(comm, method, copies):
    shape = copies, comm.size, comm.size + 2
    extent = int(np.prod(shape))
    plan = all_to_all(comm, method, lead=(copies,))
    for offset in (0, 1, comm.size):
        for make in (lambda a: a, lambda a: shared_copy(comm, a)):
            buffer = make(np.zeros(extent + offset))
            source, target = buffer[:extent].reshape(shape), buffer[offset:].reshape(shape)
            source[...] = source_of(comm, comm.rank, lead=(copies,))
            expected = expected_on(comm, comm.rank, target, lead=(copies,))
            with one_after_the_other(comm):
                handle = plan.prepare([source], [target]).start(None)
            handle.wait()
            assert everywhere(comm, np.array_equal(target, expected))
    plan.free()


@ways
@memories
def test_in_place_where_only_some_ranks_keep_something_for_themselves(comm, method, memory):
    """Rank 0 sends to itself and to its neighbours; the others pass on all they have."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sends = [MessageBlock(right, (slice(0, 3),), (1,))]
    recvs = [MessageBlock(left, (slice(1, 4),), (0,))]
    if comm.rank == 0:
        sends.append(MessageBlock(0, (slice(3, 4),), (0,)))
        recvs.append(MessageBlock(0, (slice(0, 1),), (3,)))
    spec = MessageSpec(sends, recvs, (), np.dtype(float))
    plan = Exchange(topology_of(comm), [spec], axes=1, method=method)
    for _ in range(3):
        block = lying(comm, np.arange(4.0) + 10 * comm.rank, memory)
        move(plan, block, block)
        first = 3 if comm.rank == 0 else 10 * comm.rank
        expected = [first, *(np.arange(3) + 10 * left)]
        assert everywhere(comm, block.tolist() == expected)
    plan.free()


@ways
@memories
def test_several_arrays_in_one_exchange(comm, plan, memory):
    expected = expected_on(comm, comm.rank, np.zeros((comm.size, comm.size + 2)))
    for count in (3, 1, 2, 3):
        sources = [lying(comm, f * source_of(comm, comm.rank), memory) for f in range(count)]
        targets = [np.zeros_like(source) for source in sources]
        bound = plan.prepare(sources, targets)  # moves what the arrays hold then
        for factor in (1, 2, 4):
            for target in targets:
                target[...] = 0
            bound.start(None).wait() if factor % 2 else bound.run()
            right = [factor * f * expected for f in range(count)]
            assert everywhere(comm, all(map(np.array_equal, targets, right)))
            for source in sources:
                source[...] *= 2
    plan.prepare([], []).run()


@ways
@memories
def test_many_under_way_and_waited_for_in_another_order(comm, method, memory):
    plans = [all_to_all(comm, method), all_to_all(comm, method)]
    sources = [lying(comm, source_of(comm, comm.rank) * f, memory) for f in range(1, 7)]
    targets = [np.zeros_like(source) for source in sources]
    handles = [
        plans[n % 2].prepare([source], [target]).start(n)
        for n, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]
    order = np.random.default_rng(5 + comm.rank).permutation(6)
    for n in order:
        assert handles[n].wait() == n
        assert handles[n].wait() == n
    expected = expected_on(comm, comm.rank, np.zeros_like(sources[0]))
    ok = all(np.array_equal(t, f * expected) for f, t in enumerate(targets, 1))
    assert everywhere(comm, ok)
    assert not topology_of(comm).under_way
    for plan in plans:
        plan.free()


@ways
def test_a_call_while_others_are_under_way_completes_them_first(comm, plan):
    source = source_of(comm, comm.rank)
    targets = [np.zeros_like(source) for _ in range(3)]
    handle = plan.prepare([source], [targets[0]]).start("first")
    plan.prepare([source], [targets[1]]).start("forgotten")
    gc.collect()
    move(plan, source, targets[2])
    assert got(comm, *targets)
    assert handle.wait() == "first"
    assert not topology_of(comm).under_way


@ways
def test_buffers_are_used_again(comm, method):
    plan = all_to_all(comm, method)
    source = np.asfortranarray(source_of(comm, comm.rank))
    target = np.zeros_like(source)
    held = set()
    for _ in range(20):
        move(plan, source, target)
        held.add(plan.buffers.nbytes)
    shared = [*chain(*plan.buffers._shared.values())]
    assert everywhere(comm, len(held) == 1)
    assert everywhere(comm, len(plan.buffers._private) <= 2)
    assert everywhere(comm, len(shared) <= (method in ("shared", "hybrid", "gathered")))
    gone = [weakref.ref(buffer) for buffer in (*plan.buffers._private, *shared)]
    shared = None
    plan.free()
    plan = None
    gc.collect()
    assert everywhere(comm, all(ref() is None for ref in gone))


@ways
def test_plans_that_share_buffers_hold_no_more_than_the_largest_needs(comm, method):
    buffers = Buffers()
    plans = [all_to_all(comm, method, lead=(n,), buffers=buffers) for n in (1, 5, 3)]
    alone = [all_to_all(comm, method, lead=(n,)) for n in (1, 5, 3)]
    for _ in range(2):
        for n, both in zip((1, 5, 3), zip(plans, alone, strict=True), strict=True):
            source = source_of(comm, comm.rank, lead=(n,)).transpose(0, 2, 1).copy()
            source = source.transpose(0, 2, 1)
            for plan in both:
                target = np.zeros_like(source)
                move(plan, source, target)
                assert got(comm, target, lead=(n,))
    assert everywhere(comm, buffers.nbytes <= 2 * alone[1].buffers.nbytes)
    for plan in plans + alone:
        plan.free()


@ways
def test_ranks_that_have_nothing_to_say(comm, method):
    """Only the even ranks exchange anything; then nobody does."""
    even = range(0, comm.size, 2)
    source = source_of(comm, comm.rank)
    target, expected = np.zeros_like(source), np.zeros_like(source)
    for r in even if comm.rank in even else ():
        expected[r, : comm.rank + 2] = source_of(comm, r)[comm.rank, : comm.rank + 2]
    for ranks in (even, ()):
        plan = all_to_all(comm, method, ranks=ranks)
        move(plan, source, target)
        assert everywhere(comm, np.array_equal(target, expected))
        plan.free()


def test_an_unknown_method_is_told_with_the_known_ones(comm):
    all_raise(comm, ArgumentError, ("'pigeons'", *METHODS), all_to_all, comm, "pigeons")
