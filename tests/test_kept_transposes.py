"""The function `transpose`: small fields by one collective, others by their addresses."""

import gc
import weakref
from functools import partial

import numpy as np
import pytest
from mpi_helpers import (
    ON_ONE_NODE,
    all_raise,
    collectives,
    count_calls,
    everywhere,
    holds,
    numbered,
    ranks_at_fault,
    spread,
)

import pencils
from pencils import Pencil, PencilArray, Transposition, empty, transpose
from pencils.comm.methods import pull
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 5, 6)


@pytest.fixture(name="way", params=["small", "large"])
def _way(request, monkeypatch):
    """Blocks that ranks pull, and those that are too large for that."""
    if request.param == "large":
        monkeypatch.setattr(Transposition, "_find_pull", lambda *_: None)
    return request.param


@pytest.fixture(name="pair")
def _pair(comm, way):  # noqa: ARG001
    private = comm.Dup()  # that has no plans
    rows = Pencil(SHAPE, private, decomp=0)
    yield rows, rows.with_(decomp=1, order=(2, 0, 1))
    private.Free()


def test_new_outputs_that_all_live(comm, pair):
    """What is prepared for an address serves each field that comes to lie there."""
    for dtype, lead in ((float, ()), ("c16", (2,)), ("i2", ())):
        data = [numbered((*lead, *SHAPE), dtype) * n for n in range(1, 6)]
        results = [transpose(spread(pair[0], each), pair[1]) for each in data * 3]
        for u, each in zip(results, data * 3, strict=True):
            assert everywhere(comm, u.pencil is pair[1] and holds(u, each))
        back = [transpose(u, pair[0]) for u in results]
        del results
        gc.collect()
        again = [transpose(u, pair[1]) for u in back]
        for u, each in zip(again, data * 3, strict=True):
            assert everywhere(comm, holds(u, each))
    # Nothing keeps fields alive.
    u = spread(pair[0], numbered(SHAPE))
    with Transposition(*pair) as move:
        blocks = []
        for verb in (lambda: transpose(u, pair[1]), lambda: move(u)):
            for _ in range(3):
                v = verb()
                blocks.append(weakref.ref(v))
                del v
        gc.collect()
        assert everywhere(comm, not any(block() for block in blocks))


def test_halos_and_other_strides(comm, pair):
    data = numbered((2, *SHAPE))
    plain, padded = spread(pair[0], data), spread(pair[0], data, halo=1)
    outs = [None, empty(pair[1], components=2), empty(pair[1], components=2, halo=2), None]
    for _ in range(3):
        for u in (plain, padded, plain * 1):
            for out in outs:
                v = transpose(u, pair[1], out)
                assert everywhere(comm, holds(v, data) and (out is None or v is out))
    u, v = pencils.alias(pair, components=2)
    for _ in range(3):
        u.local[...] = data[u.local_slices]
        assert everywhere(comm, holds(transpose(u, pair[1], v), data))
        assert everywhere(comm, holds(transpose(v, pair[0], u), data))


def test_fields_follow_each_other_without_a_barrier(comm, pair):
    """Turns: a fast rank packs the next field while others still read the one before."""
    rng = np.random.default_rng(comm.rank)
    u = spread(pair[0], numbered(SHAPE))
    start = u.local.copy()
    for n in range(40):
        u.local[...] = start * n
        if rng.random() < 0.3:
            np.linalg.svd(np.ones((20, 20)))
        v = transpose(u, pair[1])
        u.local[...] = -1
        w = transpose(v, pair[0])
        assert np.array_equal(w.local, start * n)
    comm.Barrier()


@pytest.mark.parallel([2, 3, 4, 6])
def test_a_small_transpose_is_one_collective(comm, way):
    private = comm.Dup()
    with collectives() as calls:
        rows = Pencil((12, 12, 4), private, decomp=0)
        columns = rows.with_(decomp=1)
        u = pencils.ones(rows)
        with (
            Transposition(rows, columns) as move,
            Transposition(rows, columns, check=False) as bare,
        ):
            out, two = empty(columns), [u, u]
            verbs = {
                "transpose": (lambda: transpose(u, columns), ["Allgather"]),
                "out": (lambda: transpose(u, columns, out), ["Allgather"]),
                "plan": (lambda: move(u), ["Allgather"]),
                "batch": (lambda: move.batch(two), ["Allgather"]),
                "start": (lambda: move.start(u).wait(), ["Allgather"]),
                "bare": (lambda: bare(u), ["Allgather"]),
            }
            for name, (verb, expected) in verbs.items():
                for _ in range(3):
                    verb()
                    del calls[:]
                verb()
                if way == "small" and ON_ONE_NODE:
                    assert everywhere(comm, calls == expected), (name, calls)
                else:  # the exchange has communicators of its own
                    assert everywhere(comm, calls.count("Allgather") == (name != "bare"))
    private.Free()


@pytest.mark.mpiexec("simulated ranks call functions while they wait")
def test_a_plan_calls_no_more_than_the_verb(comm, pair):
    """Least of all one without checks, whether there is an output or not."""
    u = spread(pair[0], numbered(SHAPE))
    for out in (None, empty(pair[1])):
        with Transposition(*pair) as checked, Transposition(*pair, check=False) as bare:
            verb = partial(transpose, u, pair[1], out)
            calls = [verb, partial(checked, u, out), partial(bare, u, out)]
            for call in calls * 3:
                call()
            counts = list(map(count_calls, calls))
            assert everywhere(comm, counts == sorted(counts, reverse=True)), comm.allgather(counts)


def test_a_start_without_checks_waits_for_nobody(comm, way):  # noqa: ARG001
    data = numbered(SHAPE)
    private = comm.Dup()
    with collectives() as calls:
        rows = Pencil(SHAPE, private, decomp=0)
        u = spread(rows, data)
        with Transposition(rows, rows.with_(decomp=1), check=False) as bare:
            for _ in range(3):
                del calls[:]
                handle = bare.start(u)
                started = [call for call in calls if call != "Ibarrier"]
                assert everywhere(comm, not started), started
                assert everywhere(comm, holds(bare(u), data))  # which completes the other
                assert everywhere(comm, holds(handle.wait(), data))
    private.Free()


@pytest.mark.parallel([2, 3, 4, 6])
def test_mistakes_of_one_rank_change_nothing(comm, pair):
    rows, columns = pair
    data = numbered(SHAPE)
    u, out, field = spread(rows, data), empty(columns), empty(rows)
    single, other = u.astype("f4"), columns.with_(order=(0, 1, 2))
    readonly = empty(columns)
    readonly.local.flags.writeable = False
    cases = [
        (lambda: transpose(u, other), RankDisagreementError, "target"),
        (lambda: transpose(single, columns), RankDisagreementError, "dtype"),
        (u.sum, RankDisagreementError, "rank 0 has"),
        (lambda: transpose(u, columns, readonly), ArgumentError, "read-only"),
        (lambda: transpose(u, columns, field), PencilMismatchError, "out lies on"),
        (lambda: transpose(u, columns, 5), TypeError, "out must be"),
        (lambda: transpose(u.local, columns, out), TypeError, "u must be"),
    ]
    for warm in (False, True):
        out.local[...] = -1
        for rank in ranks_at_fault(comm):
            for wrong, kind, text in cases:
                call = wrong if comm.rank == rank else lambda: transpose(u, columns, out)
                all_raise(comm, kind, text, call)
                assert everywhere(comm, (out.local == -1).all())
        if not warm:
            assert everywhere(comm, holds(transpose(u, columns), data))
    assert everywhere(comm, holds(transpose(u, columns, out), data))


def test_equal_pencils_need_not_be_the_same(comm, pair):
    rows, columns = pair
    data = numbered(SHAPE)
    u = spread(rows, data)
    transpose(u, columns)
    twins = Pencil(SHAPE, rows.comm, decomp=0), columns.with_(order=(2, 0, 1))
    first = comm.rank == 0
    mine = spread(twins[0], data) if first else u
    for _ in range(3):
        assert everywhere(comm, holds(transpose(mine, twins[1] if first else columns), data))
        assert everywhere(comm, holds(transpose(mine, columns if first else twins[1]), data))
    # Freed plans are made again.
    u = spread(pair[0], numbered(SHAPE))
    for number in range(40):  # more kinds than plans are kept
        kind = np.dtype(f"S{number % 35 + 1}")
        transpose(PencilArray(pair[0], np.zeros(u.local_shape, kind)), pair[1])
        if number % 10 == 0:
            assert everywhere(comm, holds(transpose(u, pair[1]), numbered(SHAPE)))
    assert everywhere(comm, holds(transpose(u, pair[1]), numbered(SHAPE)))


def test_exchanges_under_way_complete_before(comm, pair):
    data = numbered(SHAPE)
    u = spread(pair[0], data)
    with Transposition(pair[1], pair[0], method="messages") as back:
        for _ in range(3):
            v = transpose(u, pair[1])
            w = empty(pair[0])
            w.local[...] = -1
            handle = back.start(v, w)
            again = transpose(w, pair[1])  # reads what is under way
            assert everywhere(comm, holds(again, data))
            assert everywhere(comm, holds(handle.wait(), data))


@pytest.mark.parametrize("way", ["small"], indirect=True)
def test_more_fields_than_the_staging_blocks_hold(comm, pair, monkeypatch):
    u = spread(pair[0], numbered(SHAPE))
    with Transposition(*pair) as move:
        for count in (1, 30, 2, 30):
            monkeypatch.setattr(pull, "MOST_STAGED", 4096)
            for v in move.batch([u] * count):
                assert everywhere(comm, holds(v, numbered(SHAPE)))
    # Also where the first attempt finds that something has to be made.
    monkeypatch.setattr(pull, "MOST_STAGED", 4096)
    data = numbered(SHAPE)
    given = [spread(pair[0], n * data) for n in range(30)]
    outs = [pencils.empty(pair[1]) for _ in given]
    with Transposition(*pair) as move:
        moved = move.batch(iter(given), iter(outs))
    assert everywhere(comm, len(moved) == len(given))
    assert all(v is out for v, out in zip(moved, outs, strict=True))
    assert everywhere(comm, all(holds(v, n * data) for n, v in enumerate(moved)))


def test_a_pencil_of_a_communicator_that_was_freed_is_no_target(comm):
    """Whether a transpose to it was kept before or not."""
    other = comm.Dup()
    u = pencils.ones(Pencil(SHAPE, comm))
    across = Pencil(SHAPE, other, decomp=len(SHAPE) - 1)
    for _ in range(2):
        assert transpose(u, across).pencil is across
    other.Free()
    all_raise(comm, PencilMismatchError, "", transpose, u, across)
