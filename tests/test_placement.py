"""Rows of the process grid on nodes: what is sent between nodes is what layouts predict."""

from itertools import product

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import (
    NODES,
    Spy,
    all_raise,
    everywhere,
    holds,
    nodes_of,
    numbered,
    pretend_nodes,
    spread,
)

import pencils
from pencils import HaloExchange, Pencil, Transposition
from pencils.errors import ArgumentError
from pencils.layout import Traffic, build_layout, off_node, redistribution
from pencils.layout.halo import direct, exchange, sweeps

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (9, 8, 7)
ITEM = 8


@pytest.fixture(name="comm", params=NODES)
def _comm(request):
    """Return a communicator whose nodes are divided, with the node of each rank."""
    comm = MPI.COMM_WORLD.Dup()
    nodes = nodes_of(request.param)
    pretend_nodes(comm, nodes[comm.rank])
    yield comm, nodes
    comm.Free()


def on_the_nodes(comm, nodes, **layout):
    """Return a pencil with its rows on nodes, and the node of each of its ranks."""
    pencil = Pencil(SHAPE, comm, placement="node", **layout)
    if pencil.comm is not comm:
        nodes = pencil.comm.allgather(nodes[comm.rank])
        sizes = pencil.comm.allgather(pencil.topology.node.size)
        if sizes != [nodes.count(node) for node in nodes]:
            pretend_nodes(pencil.comm, nodes[pencil.rank])
    return pencil, nodes


def really_sent(plan, on_node):
    """Run a plan; return what all ranks have sent to other nodes."""
    (method,) = plan.exchange()._methods
    far = getattr(method, "far", method)
    spy = far.comm = Spy(far.comm)
    values = numbered(SHAPE)
    moved = plan(spread(plan.source, values))
    assert everywhere(plan.source.comm, holds(moved, values))
    sent = [nbytes for peer, nbytes in spy.sent if peer not in on_node]
    return Traffic(*np.sum(plan.source.comm.allgather((len(sent), sum(sent))), axis=0).tolist())


@pytest.mark.parametrize("method", ["hybrid", "messages"])
def test_plans_count_what_travels_between_nodes(comm, method):
    comm, nodes = comm
    for pencil, where in ((Pencil(SHAPE, comm), nodes), on_the_nodes(comm, nodes)):
        for decomp in ((0, 2), (2, 1), (0, 1)):
            other = pencil.with_(decomp=decomp)
            with Transposition(pencil, other, method=method) as plan:
                predicted = off_node(pencil.layout, other.layout, where, ITEM)
                assert plan.off_node() == predicted
                assert really_sent(plan, pencil.topology.on_node) == predicted


@pytest.mark.parametrize("route", ["direct", "sweeps"])
def test_halos_count_what_travels_between_nodes(comm, route):
    comm, nodes = comm
    halo = [(2, 1), (1, 1), (0, 2)]
    for pencil, where in ((Pencil(SHAPE, comm), nodes), on_the_nodes(comm, nodes)):
        layout = pencil.layout
        with HaloExchange(pencils.zeros(pencil, halo=halo), method="hybrid", route=route) as plan:
            cut = [dim for dim in range(3) if layout.process_shape[dim] > 1]
            rounds = {"direct": direct, "sweeps": sweeps}[route](
                cut, [dim for dim in range(3) if dim not in cut]
            )
            boxes = {}
            for rank, (number, phase) in product(range(comm.size), enumerate(rounds)):
                for message in exchange(layout, halo, rank, phase)[0]:
                    if where[message.source] != where[message.dest]:
                        key = number, message.source, message.dest
                        boxes[key] = boxes.get(key, 0) + message.box.volume * ITEM
            assert plan.off_node() == (len(boxes), sum(boxes.values()))


def test_processes_of_a_node_follow_each_other(comm):
    comm, nodes = comm
    pencil, where = on_the_nodes(comm, nodes)
    order = sorted(range(comm.size), key=lambda rank: (nodes.index(nodes[rank]), rank))
    assert pencil.comm.allgather(comm.rank) == order
    assert where == [nodes[rank] for rank in order]
    assert pencil == on_the_nodes(comm, nodes)[0]
    assert pencil.comm is on_the_nodes(comm, nodes)[0].comm
    assert pencil.with_(decomp=2).comm is pencil.comm
    if order == list(range(comm.size)):
        assert pencil.comm is comm
        assert pencil == Pencil(SHAPE, comm)


def test_fields_of_both_placements_meet_in_a_plan(comm):
    comm, nodes = comm
    here, there = Pencil(SHAPE, comm), on_the_nodes(comm, nodes, decomp=(1, 2))[0]
    values = numbered(SHAPE)
    with Transposition(here, there) as plan:
        assert everywhere(comm, holds(plan(spread(here, values)), values))
    u = pencils.partition(there, values if there.rank == 0 else None, root=0)
    assert everywhere(comm, holds(u, values))
    assert everywhere(comm, np.array_equal(pencils.gather(u, root=None), values))


def test_other_placements_are_refused():
    comm = MPI.COMM_WORLD
    for placement in ("nodes", None, []):
        all_raise(
            comm,
            ArgumentError,
            "placement must be 'rank' or 'node'",
            Pencil,
            SHAPE,
            comm,
            placement=placement,
        )


@pytest.mark.parallel([1])
def test_predictions_for_many_ranks():
    """Every point is counted once; rows that are on a node send nothing to others."""
    points = 16**3
    for decomp in ((0, 2), (2, 1)):
        here = build_layout((16, 16, 16), 64, decomp=(0, 1), grid=(8, 8))
        there = build_layout((16, 16, 16), 64, decomp=decomp, grid=(8, 8))
        alone = off_node(here, there, range(64))
        every = [m for rank in range(64) for m in redistribution(here, there, rank, None)[0]]
        away = [message for message in every if message.dest != message.source]
        assert alone == (len(away), sum(message.box.volume for message in away))
        assert alone == (64 * 7, points * 7 // 8)
        assert off_node(here, there, [0] * 64) == (0, 0)
    blocks = [rank // 8 for rank in range(64)]
    turns = [rank % 8 for rank in range(64)]
    rows = build_layout((16, 16, 16), 64, decomp=(0, 1), grid=(8, 8))
    along = [build_layout((16, 16, 16), 64, decomp=d, grid=(8, 8)) for d in ((0, 2), (2, 1))]
    cases = product(along, (blocks, turns))
    found = [off_node(rows, other, nodes).nbytes for other, nodes in cases]
    assert found == [0, points * 7 // 8, points * 7 // 8, 0]
