"""Points read and written once: requests of any size in shared memory, and what a call costs."""

import weakref
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexer_worlds import put_with
from mpi_helpers import (
    ON_ONE_NODE,
    all_raise,
    collectives,
    everywhere,
    holds,
    numbered,
    one_node,
    pretend_nodes,
    random_field,
    ranks_at_fault,
    same,
    spread,
)
from test_indexer_points import assign, points_of
from tiers import examples

import pencils
from pencils import Pencil
from pencils.comm.shared_memory import SharedPool
from pencils.comm.topology import topology_of
from pencils.errors import RankDisagreementError
from pencils.indexer import ReduceOp, one_shot
from pencils.indexer.gather_scatter import GatherScatter

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (5, 4, 6)
CHUNK, SLOT = one_shot.CHUNK, one_shot.SLOT


@pytest.fixture(name="fresh")
def _fresh(comm):
    """Return a communicator that knows no requests."""
    fresh = comm.Dup()
    yield fresh
    fresh.Free()


@pytest.fixture(name="tiny", scope="module")
def _tiny(comm):
    """Return a communicator that knows no requests, for those with other constants."""
    tiny = comm.Dup()
    yield tiny
    tiny.Free()


@pytest.mark.mpiexec("sets constants of the process")
@examples(60)
@given(st.integers(0, 2**32))
def test_requests_of_any_size(tiny, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_shot, "CHUNK", 3)
        patch.setattr(one_shot, "SLOT", 4 * one_shot.LINE)
        take_and_put(tiny, np.random.default_rng(seed))


def take_and_put(comm, rng):
    field, data = random_field(rng, comm)
    for _ in range(3):
        every = points_of(rng, comm, field.shape[len(field.components) :])
        mine = every[comm.rank]
        assert everywhere(comm, same(field.take_points(mine), data[(..., *mine)]))
        values = [np.roll(data[(..., *points)], 1, -1) for points in every]
        assign(data, every, values)
        field.put_points(mine, values[comm.rank])
        assert everywhere(comm, holds(field, data))


@pytest.mark.parametrize("rises", [True, False])
@pytest.mark.parametrize("counts", [(3 * CHUNK + 1, 0), (10, CHUNK), (SLOT // 4, SLOT // 4)])
def test_many_points_and_few(fresh, counts, rises):
    rng = np.random.default_rng(1)
    data = numbered(SHAPE)
    field = spread(Pencil(SHAPE, fresh, order=(2, 0, 1)), data, halo=1)
    for turn in range(4):
        every = [
            [rng.integers(0, n, counts[(rank + turn) % 2]) for n in SHAPE]
            for rank in range(fresh.size)
        ]
        if rises:
            every = [[np.sort(points[0]), *points[1:]] for points in every]
        mine = every[fresh.rank]
        assert everywhere(fresh, same(field.take_points(mine), data[tuple(mine)]))
        flat = data.reshape(-1).copy()
        for rank, points in enumerate(every):
            at = np.ravel_multi_index(points, SHAPE)
            weights = np.arange(at.size) % 7 + rank
            flat = put_with(np.add, flat, at, weights) if turn % 2 else _assigned(flat, at, weights)
        weights = np.arange(mine[0].size) % 7 + fresh.rank
        field.put_points(mine, weights, reduce=ReduceOp.SUM if turn % 2 else None)
        data = flat.reshape(SHAPE)
        assert everywhere(fresh, holds(field, data))


def test_kinds_of_fields_in_turn(fresh):
    rng = np.random.default_rng(2)
    data = [numbered(SHAPE, "f4"), numbered((2, *SHAPE), "c16"), numbered(SHAPE, "i8")]
    fields = [spread(Pencil(SHAPE, fresh, decomp=part), one) for part, one in enumerate(data)]
    for count in (3, 3, 0, 5, 3):
        mine = [rng.integers(0, n, count + (fresh.rank == 1)) for n in SHAPE]
        for field, one in zip(fields, data, strict=True):
            expected = one[(..., *mine)]
            assert everywhere(fresh, same(field.take_points(mine), expected))
            field.put_points(mine, expected)
            assert everywhere(fresh, holds(field, one))


@pytest.mark.parametrize("wrong", [-1, 6, 2**40, -(2**63)])
def test_one_wrong_coordinate_among_few(fresh, wrong):
    u = pencils.zeros(Pencil(SHAPE, fresh))
    good = [np.arange(4)] * 3
    bad = [*good[:2], np.array([0, 5, wrong, 5])]
    with pytest.raises(IndexError, match=f"dimension 2: index {wrong} is not in \\[0, 6\\)"):
        u.put_points(bad if fresh.rank == fresh.size - 1 else good, 1.0)
    assert everywhere(fresh, not u.local.any())


def _assigned(flat, at, values):
    flat = flat.copy()
    for i, value in zip(at.tolist(), values, strict=True):
        flat[i] = value
    return flat


@one_node
@pytest.mark.mpiexec("counts the collectives of one process")
@pytest.mark.parametrize("shared", [False, True])
def test_what_a_call_costs(comm, shared):
    with collectives() as calls:
        fresh = comm.Dup()
        u = pencils.zeros(Pencil(SHAPE, fresh), shared=shared)
        few = [[0, 4], [3, 0], [5, 1]]
        many = [np.arange(SLOT) % n for n in SHAPE]
        u.take_points(many)  # makes room
        for call, expected in (
            (lambda: u.put_points(few, 1), ["Allgather"]),
            (lambda: u.put_points(few, 1, reduce=ReduceOp.MAX), ["Allgather"]),
            (lambda: u.put_points(many, 1), ["Allgather", "Barrier"]),
            (lambda: u.take_points(few), ["Allgather", "Barrier"]),
            (lambda: u.take_points(many), ["Allgather", "Barrier"]),
        ):
            del calls[:]
            call()
            assert everywhere(comm, comm.size == 1 or calls == expected)
    fresh.Free()


@pytest.mark.mpiexec("counts the collectives of one process")
@pytest.mark.parallel([2, 3, 4, 6])
def test_a_plan_between_nodes_is_kept_for_the_same_points(comm, monkeypatch):
    agreed, made = ["Allgather"], ["Allgather", "Alltoall", "Allgather", "Allgather"]
    with collectives() as calls:
        fresh = comm.Dup()
        pretend_nodes(fresh, fresh.rank)
        data = numbered(SHAPE)
        u = spread(Pencil(SHAPE, fresh), data)
        own = topology_of(fresh).comm
        at = np.array([[0, 4], [3, 0], [5, 1]])
        all_ranks, none, one = range(fresh.size), range(0), range(1)
        cases = (none, None), (none, agreed), (one, made), (none, agreed), (all_ranks, made)
        for change, expected in (*cases, (one, made), (none, made)):
            if (change, expected) == (all_ranks, made):
                monkeypatch.setattr(one_shot, "_MOST_KEPT", 2)
            if fresh.rank in change:
                at[1] = 3 - at[1]
            for call in (partial(u.take_points, at), partial(u.put_points, at, data[tuple(at)])):
                del calls[:]
                found = call()
                counted = [name for name in calls if name.comm == own]
                assert everywhere(comm, expected in (None, counted)), (change, calls)
                assert everywhere(comm, found is None or same(found, data[tuple(at)]))
        assert everywhere(comm, holds(u, data))
    fresh.Free()


def test_coordinates_do_not_stay_in_memory(fresh):
    u = pencils.zeros(Pencil(SHAPE, fresh))
    along = [np.arange(4) for _ in SHAPE]
    there = list(map(weakref.ref, along))
    u.put_points(along, 1)
    u.take_points(along)
    del along
    assert everywhere(fresh, not any(array() is not None for array in there))


def test_mistakes_between_calls_change_nothing(fresh):
    u, data = pencils.zeros(Pencil(SHAPE, fresh)), np.zeros(SHAPE)
    rng = np.random.default_rng(2)
    for turn in range(12):
        points = [rng.integers(0, n, 20) for n in SHAPE]
        fault = ranks_at_fault(fresh)[turn % 2 - 1]
        wrong = [*points[:2], [6] * 20] if fresh.rank == fault else points
        calls = [partial(u.put_points, wrong, -1)] * (turn % 3 > 0)
        calls += [partial(u.take_points, wrong)] * (turn % 4 > 0)
        for call in calls:
            all_raise(fresh, IndexError, "index 6", call)
        u.put_points(points, turn)
        data[tuple(points)] = turn
        assert everywhere(fresh, same(u.take_points(points), data[tuple(points)]))
        assert everywhere(fresh, holds(u, data))


def test_ranks_that_differ_raise(comm):
    u, other = pencils.zeros(Pencil(SHAPE, comm)), pencils.zeros(Pencil(SHAPE, comm), dtype=int)
    at, last = (0, 0, 0), comm.rank == comm.size - 1
    vectors, plane = pencils.ones(u.pencil, components=2), pencils.ones(u.pencil, dims=(0, 1))
    cases = [
        ("call", lambda: u.take_points(at) if last else u.put_points(at, 1)),
        ("reduce", lambda: u.put_points(at, 1, reduce=ReduceOp.SUM if last else None)),
        ("components", lambda: (vectors if last else u).take_points(at)),
        ("singleton", lambda: (plane if last else u).take_points(at)),
    ]
    for _, call in cases if comm.size > 1 else []:
        all_raise(comm, RankDisagreementError, "", call)
    if comm.size > 1:
        all_raise(
            comm, pencils.errors.TypeDisagreementError, "", (other if last else u).put_points, at, 1
        )
    assert everywhere(comm, u.take_points(at) == 0)


@pytest.mark.mpiexec("sets constants of the process")
@pytest.mark.parametrize("lacks", ["room", "size"])
def test_without_memory_a_plan_is_made(fresh, monkeypatch, lacks):
    made = []
    make = GatherScatter.__init__
    monkeypatch.setattr(GatherScatter, "__init__", lambda *args: made.append(1) or make(*args))
    if lacks == "room":
        monkeypatch.setattr(SharedPool, "allocate", lambda *_: None)
    else:
        monkeypatch.setattr(one_shot, "MOST", 2 * CHUNK)
    u = pencils.zeros(Pencil(SHAPE, fresh))
    count = CHUNK + 1 if fresh.rank == fresh.size - 1 else 3
    many = [np.arange(count) % n for n in SHAPE]
    for turn in range(2):
        del made[:]
        u.put_points(many, 1)
        assert everywhere(fresh, (u.take_points(many) == 1).all())
        kept = lacks == "room" and turn > 0
        few = kept or (lacks == "room" and fresh.size == 1)
        assert everywhere(fresh, len(made) == (0 if few else 2))
    del made[:]
    u.put_points((0, 0, 0), 2)
    assert everywhere(fresh, u.take_points((0, 0, 0)) == 2)
    needs_plan = not ON_ONE_NODE or (lacks == "room" and fresh.size > 1)
    assert everywhere(fresh, bool(made) == needs_plan)
