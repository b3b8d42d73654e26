"""Private communicators: one per user communicator, found again, freed with it."""

import os
from math import prod

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import (
    NODES,
    REAL_NODES,
    all_raise,
    everywhere,
    holds,
    named,
    nodes_of,
    numbered,
    pretend_nodes,
    spread,
)

import pencils
from pencils import graph
from pencils.comm.agree import agreed
from pencils.comm.methods.shared import SharedMemoryGroup
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import congruent, private_class, topology_of, translate, user_comm
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid
from pencils.plans import kept_plans

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture
def node(comm):
    """Return a communicator of the ranks on this node."""
    node = MPI.Intracomm(comm.Split_type(MPI.COMM_TYPE_SHARED))
    yield node
    node.Free()


def group_of(topology, peers):
    return SharedMemoryGroup(topology, peers, 1, Buffers())


SHAPE = (5, 7, 4)


def works(comm):
    """Run something of everything on a communicator and compare with NumPy."""
    pen = pencils.Pencil(SHAPE, comm)
    data = numbered(SHAPE)
    last = comm.size - 1
    u = pencils.partition(pen, data if comm.rank == last else None, root=last)
    v = pencils.transpose(u, pen.with_(decomp=(1, 2), order=(2, 0, 1)))
    found = pencils.gather(v, root=None)
    return holds(u, data) and holds(v, data) and np.array_equal(found, data)


def test_one_private_communicator_for_each_of_the_user(comm):
    one, two = comm.Dup(), comm.Dup()
    assert topology_of(one) is topology_of(one)
    assert topology_of(one) is not topology_of(two)
    assert pencils.Pencil(SHAPE, one).topology is topology_of(one)
    assert pencils.Pencil(SHAPE, one) == pencils.Pencil(SHAPE, two)
    private = topology_of(one).comm
    assert private != one
    assert congruent(private, one)
    assert topology_of(None) is topology_of(MPI.COMM_WORLD)
    again = one.Dup()  # inherits nothing
    assert topology_of(again) is not topology_of(one)
    for each in (again, one, two):
        assert works(each)
        each.Free()


def test_lines_and_planes_of_a_grid(comm):
    private = comm.Dup()
    topology = topology_of(private)
    grid = ProcessGrid((comm.size, 1) if comm.size % 2 else (2, comm.size // 2))
    before = topology.communicators
    for axes in ((0,), (1,), ()):
        line = topology.along(grid, axes)
        coords = grid.coords(comm.rank)
        peers = [
            rank
            for rank in range(comm.size)
            if all(grid.coords(rank)[a] == coords[a] for a in range(2) if a not in axes)
        ]
        assert everywhere(comm, line.allgather(comm.rank) == peers)
        assert line.size == prod(grid.shape[axis] for axis in axes)
        assert topology.along(grid, axes) is line
    assert topology.along(grid, (0, 1)) is topology.comm
    assert topology.communicators == before + 3
    private.Free()


def test_communicators_lent_to_other_libraries(comm):
    """They may free them, all or some: then there are others the next time."""
    own = comm.Dup()
    topology = topology_of(own)
    grid = ProcessGrid((comm.size // 2, 2) if comm.size % 2 == 0 else (comm.size, 1))
    before = topology.communicators
    *along, alone = lent = topology.lent(grid)
    assert [each.size for each in lent] == [*grid.shape, 1]
    assert tuple(each.rank for each in along) == grid.coords(own.rank)
    assert all(one is other for one, other in zip(lent, topology.lent(grid), strict=True))
    along[0].Free()
    first, *rest = topology.lent(grid)
    assert first.size == grid.shape[0]
    assert all(one is other for one, other in zip(rest, [*along[1:], alone], strict=True))
    assert topology.communicators == before + 3
    own.Free()
    assert all(each == MPI.COMM_NULL for each in (first, *rest))


@pytest.mark.mpiexec("asks the system for cores")
@pytest.mark.parametrize("cores", [1, 6])
def test_more_ranks_than_cores(comm, cores, monkeypatch):
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _: set(range(64, 64 + cores)), raising=False
    )
    private = comm.Dup()
    most = max(map(REAL_NODES.count, REAL_NODES))
    assert topology_of(private).crowded == (most > cores)
    private.Free()


@pytest.mark.parametrize("nodes", list(NODES))
def test_ranks_on_several_nodes(comm, nodes):
    private = comm.Dup()
    numbers = nodes_of(nodes)
    pretend_nodes(private, numbers[comm.rank])
    topology = topology_of(private)
    here = [rank for rank in range(comm.size) if numbers[rank] == numbers[comm.rank]]
    assert everywhere(comm, list(topology.on_node) == here)
    assert everywhere(comm, list(topology.on_node.values()) == list(range(len(here))))
    assert topology.nodes == len(set(numbers))
    assert topology.node_of.tolist() == [numbers.index(number) for number in numbers]
    assert everywhere(comm, topology.shared.allocate(8) is not None)
    private.Free()


def test_what_all_ranks_say(comm):
    topology = topology_of(comm)
    last = comm.rank == comm.size - 1
    assert topology.any_of([last, False, True]) == [True, False, True]
    assert topology.any_of([]) == []
    assert topology.most(comm.rank) == comm.size - 1
    assert topology.first_of(present=last) == comm.size - 1
    assert topology.first_of(present=comm.rank > 0) == (1 if comm.size > 1 else None)
    assert topology.first_of(present=False) is None


def test_ranks_translated_to_another_communicator(comm):
    turned = comm.Split(0, -comm.rank)
    some = comm.Split(0 if comm.rank % 2 == 0 else MPI.UNDEFINED)
    assert translate(comm, turned) == tuple(range(comm.size))[::-1]
    assert translate(MPI.COMM_SELF, comm) == (comm.rank,)
    assert (translate(comm, MPI.COMM_SELF) is None) == (comm.size > 1)
    assert translate(MPI.COMM_NULL, comm) is None
    if some != MPI.COMM_NULL:
        assert translate(some, comm) == tuple(range(0, comm.size, 2))
        assert translate(some, turned) == tuple(range(comm.size - 1, -1, -2))
        some.Free()
    turned.Free()


def test_ranks_of_a_node_that_wait_for_each_other(node):
    """Rows of a process grid are groups; a ring is not, and neither is a node that is all one."""
    comm, private = node, node.Dup()
    topology = topology_of(private)
    before = topology.communicators
    whole = group_of(topology, range(comm.size))
    assert whole.comm is topology.node
    ring = group_of(topology, [(comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size])
    assert ring.comm.size in {comm.size} | ({1, 2, 3} if comm.size <= 3 else set())
    for row in (1, 2, 3):
        first = comm.rank // row * row
        peers = [rank for rank in range(first, first + row) if rank < comm.size]
        group = group_of(topology, peers)
        assert everywhere(
            comm, list(group.ranks) == (peers if row < comm.size else [*range(comm.size)])
        )
        assert everywhere(comm, group.comm.rank == group.ranks[comm.rank])
        again = group_of(topology, [peer for peer in peers if peer != comm.rank])
        assert again.comm is group.comm
        assert again.pool is group.pool
    assert topology.communicators <= before + 4
    private.Free()


def test_not_more_groups_than_communicators_allow(node):
    """However a node is divided, in the end the whole node waits."""
    comm, private = node, node.Dup()
    topology = topology_of(private)
    rng = np.random.default_rng(2)
    for _ in range(60):
        numbers = rng.integers(0, 3, comm.size).tolist()
        peers = [rank for rank, number in enumerate(numbers) if number == numbers[comm.rank]]
        group = group_of(topology, peers)
        assert everywhere(comm, set(peers) <= set(group.ranks))
        assert everywhere(comm, group.comm.allreduce(1) == len(group.ranks))
    assert len(topology.groups) <= 16
    assert everywhere(comm, works(private))
    private.Free()


def test_freed_with_the_communicator_of_the_user(comm):
    private = comm.Dup()
    pen = pencils.Pencil(SHAPE, private)
    topology = pen.topology
    line = topology.along(pen.layout.grid, (0,))
    u = spread(pen, numbered(SHAPE))
    v = pencils.transpose(u, pen.with_(decomp=2))
    private.Free()
    assert topology.comm == MPI.COMM_NULL
    assert line == MPI.COMM_NULL or line is topology.comm
    assert not kept_plans(topology)
    assert everywhere(comm, holds(v, numbered(SHAPE)))  # fields outlive it
    assert everywhere(comm, f"rank {comm.rank} " in str(pen))
    assert pen != pencils.Pencil(SHAPE, comm)
    for call in (
        lambda: pen.with_(decomp=1),
        lambda: pencils.gather(u),
        lambda: pencils.partition(pen, numbered(SHAPE), root=0),
        lambda: pencils.transpose(u, v.pencil),
    ):
        all_raise(comm, ArgumentError, "freed", call)
    assert works(comm)


def test_communicators_come_and_go(comm):
    """More than any MPI holds at once: MPICH has 2048 context ids."""
    for count, parent in ((20, comm), (1000, MPI.COMM_SELF)):
        for _ in range(count):
            private = parent.Dup()
            pen = pencils.Pencil((4, 4), private, decomp=(0, 1))
            for axis in (0, 1):
                pen.topology.along(pen.layout.grid, (axis,))
            private.Free()
    assert everywhere(comm, works(comm))


def test_messages_of_the_user_do_not_mix_with_ours(comm):
    """The user waits for anything from anybody while we send, and gets only what users sent."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    inbox = [np.zeros(1, np.int64) for _ in range(3)]
    receipts = [comm.Irecv(box, MPI.ANY_SOURCE, tag) for tag, box in enumerate(inbox)]
    receipts.append(comm.Irecv(any_tag := np.zeros(1, np.int64), left, MPI.ANY_TAG))
    ok = works(comm)
    untouched = not any(receipt.Test() for receipt in receipts)
    assert everywhere(comm, ok and untouched)
    for tag in (0, 1, 2, 3):
        comm.Send(np.array([10 * comm.rank + tag]), right, tag)
    MPI.Request.Waitall(receipts)
    assert everywhere(
        comm, [int(box[0]) for box in (*inbox, any_tag)] == [10 * left + t for t in range(4)]
    )


def test_split_reordered_cartesian_and_single_communicators(comm):
    turned, cart = comm.Split(0, -comm.rank), comm.Create_cart([comm.size], reorder=True)
    for part in (turned, cart, comm.Split(comm.rank % 2)):
        pen = pencils.Pencil(SHAPE, part)
        assert everywhere(comm, (pen.rank, pen.size) == (part.rank, part.size))
        assert everywhere(comm, works(part))
        part.Free()
    assert everywhere(comm, works(MPI.COMM_SELF))
    assert everywhere(comm, pencils.Pencil(SHAPE, MPI.COMM_SELF).local_shape == SHAPE)


def test_halves_work_at_their_own_pace_or_alone(comm):
    for color, times in (
        (comm.rank % 2, 1 + 4 * (comm.rank % 2)),
        (0 if comm.rank < (comm.size + 1) // 2 else MPI.UNDEFINED, 3),
    ):
        half = comm.Split(color)
        assert everywhere(comm, half == MPI.COMM_NULL or all(works(half) for _ in range(times)))
        if half != MPI.COMM_NULL:
            half.Free()


@pytest.mark.mpiexec("simulated ranks have no intercommunicators")
def test_wrong_communicators(comm):
    for wrong, kind, text in (
        ("world", TypeError, "intra-communicator"),
        (MPI.COMM_NULL, ArgumentError, "COMM_NULL"),
    ):
        all_raise(comm, kind, text, pencils.Pencil, SHAPE, wrong)
    if comm.size > 1:
        half = comm.Split(comm.rank % 2)
        inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2)
        all_raise(comm, TypeError, "intra", pencils.Pencil, SHAPE, inter)
        inter.Free()
        half.Free()


class _ElsewhereComm:
    """Looks like a communicator of another MPI."""


_ElsewhereComm.__name__ = "Comm"


def test_a_communicator_of_another_mpi_is_refused():
    class Intracomm(_ElsewhereComm):
        pass

    with pytest.raises(TypeError, match=r"another MPI: objects .* Create .* pencils\.simulate"):
        user_comm(Intracomm())
    with pytest.raises(TypeError, match="gather: the pencils or fields belong to another MPI"):
        agreed(Intracomm(), "gather")
    assert not congruent(Intracomm(), MPI.COMM_SELF)


def averaged(pen):
    return pencils.ones(pen).mean(axis=0).local.max()


def verified(pen):
    return pencils.debug.verify_replicas(pencils.zeros(pen, dims=(1, 2)))


def sent_around(pen):
    x = graph.make_placeholder("x", (2,))
    held = graph.staple_distributed_send(x, (pen.rank + 1) % pen.size, 0, x)
    got = graph.make_distributed_recv((pen.rank - 1) % pen.size, 0, (2,), float)
    parts = graph.find_distributed_partition(pen.comm, {"x": held, "y": got})
    found = graph.execute_distributed_partition(
        parts, None, None, pen.comm, input_args={"x": np.ones(2)}
    )
    return found["y"].max()


@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.parametrize("call", [averaged, verified, sent_around, None])
def test_a_communicator_that_mpi_makes_on_some_ranks_only(comm, call):
    """One rank has no memory for it when the others have made theirs."""
    usual, failing = private_class(), []

    def fail_once(name):
        def method(self, *args):
            made = getattr(MPI.Intracomm, name)(self, *args)
            if failing and comm.rank == comm.size - 1:
                raise RuntimeError(failing.pop())
            return made

        return method

    names = ("Split", "Split_type")
    private_class.replace(type("Failing", (usual,), {name: fail_once(name) for name in names}))
    try:
        own = comm.Dup()
        first = call or (lambda pen: pen.size)
        pen = None if call is None else pencils.Pencil((6, 5, 4), own, decomp=(0, 1))
        failing.append("no memory")
        texts = named(comm, comm.size - 1), "no memory"
        all_raise(comm, RuntimeError, texts, lambda: first(pen or pencils.Pencil((6, 5, 4), own)))
        failing.clear()
        pen = pen or pencils.Pencil((6, 5, 4), own)
        assert everywhere(comm, first(pen) in (None, 1.0, comm.size))
        own.Free()
    finally:
        private_class.replace(usual)
