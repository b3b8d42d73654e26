"""The executor of schedules, on bare NumPy arrays: every method moves the same bytes."""

import numpy as np
import pytest
from together import DTYPES, everywhere, numbered, one_after_the_other, raise_together, same

from pencils.comm import exchange
from pencils.comm.exchange import METHODS, Exchange, Piece
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

methods = pytest.mark.parametrize("method", list(METHODS))


def all_to_all(comm, method, *, dtype=float, lead=(), ranks=None):
    """Plan in which each of `ranks` sends row r of its source to row `comm.rank` of rank r."""
    ranks = range(comm.size) if ranks is None else ranks
    peers = ranks if comm.rank in ranks else ()
    pieces = [Piece(r, (slice(r, r + 1), slice(0, r + 2))) for r in peers]
    home = [Piece(r, (slice(r, r + 1), slice(0, comm.rank + 2))) for r in peers]
    private = topology_of(comm).comm
    return Exchange(private, pieces, home, lead=lead, dtype=np.dtype(dtype), method=method)


def source_of(comm, rank, dtype=float, lead=()):
    """Make what `rank` sends; everyone knows it."""
    data = numbered((*lead, comm.size, comm.size + 2), dtype)
    return np.roll(data, rank, axis=-1)


def expected_on(comm, rank, before, dtype=float, lead=()):
    found = before.copy()
    for r in range(comm.size):
        found[..., r, : rank + 2] = source_of(comm, r, dtype, lead)[..., rank, : rank + 2]
    return found


@methods
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_every_element_type_arrives_byte_by_byte(comm, method, dtype, lead):
    source = source_of(comm, comm.rank, dtype, lead)
    target = numbered(source.shape, dtype)
    expected = expected_on(comm, comm.rank, target, dtype, lead)
    plan = all_to_all(comm, method, dtype=dtype, lead=lead)
    assert plan.start(source, target, "done").wait() == "done"
    assert everywhere(comm, same(target, expected))
    plan.free()


@methods
def test_arrays_of_any_strides(comm, method):
    source = source_of(comm, comm.rank)
    layouts = {
        "C": lambda a: a.copy(),
        "F": np.asfortranarray,
        "backwards": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
        "sparse": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    }
    plan = all_to_all(comm, method)
    for here in layouts.values():
        for there in layouts.values():
            target = there(np.zeros_like(source))
            read_only = here(source)
            read_only.flags.writeable = False
            plan.start(read_only, target, None).wait()
            expected = expected_on(comm, comm.rank, np.zeros_like(source))
            assert everywhere(comm, np.array_equal(target, expected))
    plan.free()


@methods
def test_several_pieces_for_the_same_rank_keep_their_order(comm, method):
    """Rows travel to the right neighbour, one piece each, and land in reversed order."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    rows = range(4)
    sends = [Piece(right, (slice(i, i + 1), slice(0, i + 1))) for i in rows]
    recvs = [Piece(left, (slice(3 - i, 4 - i), slice(0, i + 1))) for i in rows]
    plan = Exchange(
        topology_of(comm).comm, sends, recvs, lead=(), dtype=np.dtype("i4"), method=method
    )
    source = numbered((4, 4), "i4") + 100 * comm.rank
    target = np.zeros_like(source)
    plan.start(source, target, None).wait()
    expected = np.zeros_like(source)
    for i in rows:
        expected[3 - i, : i + 1] = (numbered((4, 4), "i4") + 100 * left)[i, : i + 1]
    assert everywhere(comm, np.array_equal(target, expected))
    plan.free()


@methods
@pytest.mark.parametrize("most", [1, 7, 64, 1000])
def test_counts_beyond_what_one_call_can_move(comm, method, most, monkeypatch):
    monkeypatch.setattr(exchange, "MOST_BYTES", most)
    monkeypatch.setattr(exchange, "MOST_UNITS", comm.size + 2)
    source = source_of(comm, comm.rank, "c16", (3,))
    target = np.zeros_like(source)
    plan = all_to_all(comm, method, dtype="c16", lead=(3,))
    plan.start(source, target, None).wait()
    expected = expected_on(comm, comm.rank, np.zeros_like(source), "c16", (3,))
    assert everywhere(comm, same(target, expected))
    if method == "alltoallv":
        counts = plan._method._counts_away[0]
        assert everywhere(comm, counts.sum() <= comm.size + 2)
    plan.free()


@methods
@pytest.mark.parametrize("copies", [1, 5000], ids=["small", "large"])
def test_source_and_target_may_share_memory(comm, method, copies):
    shape = copies, comm.size, comm.size + 2
    extent = int(np.prod(shape))
    plan = all_to_all(comm, method, lead=(copies,))
    for offset in (0, 1, comm.size):
        buffer = np.zeros(extent + offset)
        source, target = buffer[:extent].reshape(shape), buffer[offset:].reshape(shape)
        source[...] = source_of(comm, comm.rank, lead=(copies,))
        expected = expected_on(comm, comm.rank, target, lead=(copies,))
        with one_after_the_other(comm):
            handle = plan.start(source, target, None)
        handle.wait()
        assert everywhere(comm, np.array_equal(target, expected))
    plan.free()


@methods
def test_many_under_way_and_waited_for_in_another_order(comm, method):
    plans = [all_to_all(comm, method), all_to_all(comm, method)]
    sources = [source_of(comm, comm.rank) * factor for factor in range(1, 7)]
    targets = [np.zeros_like(source) for source in sources]
    handles = [
        plans[n % 2].start(source, target, n)
        for n, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]
    order = np.random.default_rng(5 + comm.rank).permutation(6)
    for n in order:
        assert handles[n].wait() == n
        assert handles[n].wait() == n
    expected = expected_on(comm, comm.rank, np.zeros_like(sources[0]))
    ok = all(np.array_equal(t, f * expected) for f, t in enumerate(targets, 1))
    assert everywhere(comm, ok)
    for plan in plans:
        assert not plan._pending
        plan.free()


@methods
def test_buffers_are_used_again(comm, method):
    plan = all_to_all(comm, method)
    source = np.asfortranarray(source_of(comm, comm.rank))
    target = np.zeros_like(source)
    for _ in range(20):
        plan.start(source, target, None).wait()
    assert len(plan._method._home.idle) == len(plan._method._away.idle) == 1
    plan.free()
    assert not plan._method._home.idle


@methods
def test_free_completes_what_was_forgotten(comm, method):
    plan = all_to_all(comm, method)
    source = source_of(comm, comm.rank)
    targets = [np.zeros_like(source) for _ in range(3)]
    for target in targets:
        plan.start(source, target, None)
    plan.free()
    plan.free()
    expected = expected_on(comm, comm.rank, np.zeros_like(source))
    assert everywhere(comm, all(np.array_equal(target, expected) for target in targets))


@methods
def test_ranks_that_have_nothing_to_say(comm, method):
    """Only the even ranks exchange anything; then nobody does."""
    even = range(0, comm.size, 2)
    source = source_of(comm, comm.rank)
    target = np.zeros_like(source)
    plan = all_to_all(comm, method, ranks=even)
    plan.start(source, target, None).wait()
    expected = np.zeros_like(source)
    if comm.rank in even:
        for r in even:
            expected[r, : comm.rank + 2] = source_of(comm, r)[comm.rank, : comm.rank + 2]
    assert everywhere(comm, np.array_equal(target, expected))
    plan.free()
    plan = all_to_all(comm, method, ranks=())
    plan.start(source, target, None).wait()
    assert everywhere(comm, np.array_equal(target, expected))
    plan.free()


@methods
def test_components_without_extent(comm, method):
    plan = all_to_all(comm, method, lead=(0,))
    source = np.zeros((0, comm.size, comm.size + 2))
    plan.start(source, source.copy(), None).wait()
    plan.free()


def test_messages_go_only_to_ranks_that_share_something(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    plan = Exchange(
        topology_of(comm).comm,
        [Piece(right, (slice(0, 1),))],
        [Piece(left, (slice(0, 1),))],
        lead=(),
        dtype=np.dtype(float),
    )
    sent = []

    class Spy:
        def __init__(self, inner):
            self._inner = inner

        def Isend(self, buffer, dest, tag):
            sent.append(dest)
            return self._inner.Isend(buffer, dest, tag)

        def __getattr__(self, name):
            return getattr(self._inner, name)

    plan._method._comm = Spy(plan._method._comm)
    target = np.zeros(1)
    plan.start(np.full(1, float(comm.rank)), target, None).wait()
    assert everywhere(comm, target[0] == left)
    assert everywhere(comm, sent == ([right] if comm.size > 1 else []))
    plan.free()


def test_an_unknown_method_is_told_with_the_known_ones(comm):
    raise_together(
        comm,
        ArgumentError,
        "'pigeons'",
        *METHODS,
        call=lambda: all_to_all(comm, "pigeons"),
    )
