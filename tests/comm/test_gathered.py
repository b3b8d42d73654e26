"""Small pieces in one message from each node to each other one."""

from contextlib import contextmanager
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import NODES, everywhere, holds, nodes_of, numbered, pretend_nodes, spread

from pencils import Pencil, Transposition
from pencils.comm import memory
from pencils.comm.methods import gathered
from pencils.comm.topology import private_class, topology_of
from pencils.layout import off_node

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

CASES = [
    ((9, 8, 7), "f8", (), {"decomp": (0, 1)}, {"decomp": (0, 2)}),
    ((9, 8, 7), "c16", (2,), {"decomp": (0, 1)}, {"decomp": (2, 1), "order": (1, 2, 0)}),
    ((2, 3, 1), "i2", (), {"decomp": (0, 1)}, {"decomp": (1, 0)}),  # empty blocks
    ((7, 5), "S3", (3,), {"decomp": 0, "splits": "last"}, {"decomp": 1}),
]


@contextmanager
def sends():
    """List the messages of this rank, on private communicators made in the block."""
    sent = []

    def send_init(self, buffer, dest, tag):
        sent.append((dest, buffer.nbytes))
        return MPI.Intracomm.Send_init(self, buffer, dest, tag)

    usual = private_class()
    private_class.replace(type("Counted", (usual,), {"Send_init": send_init}))
    try:
        yield sent
    finally:
        private_class.replace(usual)


@pytest.fixture(name="divided", params=NODES)
def _divided(request):
    """Return a communicator, the node of each rank, and the messages sent on it."""
    with sends() as sent:
        comm = MPI.COMM_WORLD.Dup()
        nodes = nodes_of(request.param)
        pretend_nodes(comm, nodes[comm.rank])
        yield comm, nodes, sent
        comm.Free()


stages = pytest.mark.parametrize("unit", [gathered.STAGE, 1])


def pair_of(comm, case):
    """Make two pencils of a case; also the kind of its fields, and global values."""
    shape, dtype, components, here, there = case
    kind = {"dtype": dtype, "components": components}
    pair = Pencil(shape, comm, **here), Pencil(shape, comm, **there)
    return pair, kind, numbered((*components, *shape), dtype)


def slabs(comm, shape):
    rows = Pencil(shape, comm, decomp=0)
    return rows, rows.with_(decomp=1)


def works(comm, plan, values):
    """Whether a plan moves global values."""
    return everywhere(comm, holds(plan(spread(plan.source, values)), values))


def away_of(sent, nodes, rank):
    """Bytes of the messages to other nodes."""
    return [nbytes for peer, nbytes in sent if nodes[peer] != nodes[rank]]


@stages
@pytest.mark.parametrize("most", [2**13, 300, 0])
@pytest.mark.parametrize("case", CASES)
def test_pieces_of_any_size(divided, case, most, unit, monkeypatch):
    monkeypatch.setattr(gathered, "TOGETHER", most)
    monkeypatch.setattr(gathered, "STAGE", unit)
    comm = divided[0]
    pair, kind, values = pair_of(comm, case)
    data = [np.roll(values, n) for n in range(3)]
    us = [spread(pair[0], each) for each in data]
    with Transposition(*pair, **kind, method="gathered") as plan:
        assert plan.method == "gathered"
        for u, each in zip(us, data, strict=True):
            assert everywhere(comm, holds(plan(u), each))
        handles = [plan.start(u) for u in us]
        found = [handle.wait() for handle in reversed(handles)][::-1]
        assert everywhere(comm, all(map(holds, found, data)))
        assert everywhere(comm, all(map(holds, plan.batch(us), data)))
        with plan.reversed() as back:
            assert everywhere(comm, holds(back(found[1]), data[1]))


@stages
def test_one_message_for_each_pair_of_nodes(divided, unit, monkeypatch):
    monkeypatch.setattr(gathered, "STAGE", unit)
    comm, nodes, sent = divided
    monkeypatch.setattr(memory, "EAGER", 16)  # of other messages
    source, target = slabs(comm, (18, 17, 3))
    with Transposition(source, target, method="gathered") as plan:
        for _ in range(2):
            assert works(comm, plan, numbered(source.shape))
        counted = plan.off_node()
        away = away_of(sent, nodes, comm.rank)
        assert counted == tuple(np.sum(comm.allgather((len(away), sum(away))), axis=0))
        pairs = len(set(nodes)) * (len(set(nodes)) - 1)
        assert counted == (pairs, off_node(source.layout, target.layout, nodes, 8).nbytes)


@pytest.mark.parametrize(
    ("nbytes", "sizes"),
    [(0, [7]), (7 * 2**16, [3, 4]), (7 * 2**18, [1, 2, 2, 2]), (2**30, [1] * 7)],
)
def test_more_bytes_are_sent_in_more_stages(nbytes, sizes):
    divided = gathered.in_stages(range(7), nbytes)
    assert [len(stage) for stage in divided] == sizes
    assert [*chain(*divided)] == [*range(7)]
    assert gathered.in_stages([], nbytes) == [[]]


@pytest.mark.parametrize("on_node", [1, 2])
def test_bundles_come_in_the_stage_in_which_they_are_sent(on_node, monkeypatch):
    monkeypatch.setattr(gathered, "STAGE", 1)
    comm = MPI.COMM_WORLD.Dup()
    pretend_nodes(comm, comm.rank // on_node)
    topology = topology_of(comm)
    nodes = topology.node_of.tolist()
    pieces = [{far: 8 for far in range(comm.size) if far not in topology.on_node}]
    sides = [
        gathered._NodeBundles(topology, pieces * topology.node.size, sent=sent).stages
        for sent in (True, False)
    ]
    every = dict(zip(nodes, comm.allgather(sides), strict=True))
    assert {len(stages) for both in every.values() for stages in both} == {max(1, len(every) - 1)}
    for node, (sent, received) in every.items():
        assert {*chain(*sent)} == {*chain(*received)} == {*every} - {node}
        for number, others in enumerate(sent):
            assert all(node in every[other][1][number] for other in others)
    for number in range(len(every) - 1):  # nodes do not all send to the same one
        assert {other for sent, _ in every.values() for other in sent[number]} == {*every}
    comm.Free()


@pytest.mark.mpiexec("notes the calls of one rank")
def test_each_stage_is_sent_before_the_next_one_is_packed(divided, monkeypatch):
    comm, nodes, _ = divided
    calls = []
    monkeypatch.setattr(gathered, "STAGE", 1)

    def noted(name, function):
        def call(*args):
            calls.append(name)
            return function(*args)

        return call

    start, prepare = noted("start", MPI.Prequest.Startall), gathered.prepare_copies
    requests = SimpleNamespace(Prequest=SimpleNamespace(Startall=start))
    monkeypatch.setattr(gathered, "MPI", requests)
    monkeypatch.setattr(gathered, "prepare_copies", lambda pairs: noted("pack", prepare(pairs)))
    monkeypatch.setattr(gathered, "wait_all", noted("wait", gathered.wait_all))
    monkeypatch.setattr(gathered, "synchronize", noted("meet", gathered.synchronize))
    with Transposition(*slabs(comm, (12, 12)), method="gathered") as plan:
        assert works(comm, plan, numbered((12, 12)))
    others = len(set(nodes)) - 1
    expected = ["pack", "wait", *["start"] * others, "start"]  # of what comes, and the first stage
    expected += ["pack", "meet", "start"] * (others - 1) + ["wait", "meet"] * others
    assert everywhere(comm, calls == (expected if others else []))


def test_large_pieces_travel_alone(divided, monkeypatch):
    comm, nodes, sent = divided
    monkeypatch.setattr(gathered, "TOGETHER", 0)
    source, target = slabs(comm, (9, 8, 7))
    with Transposition(source, target, method="gathered") as plan:
        assert works(comm, plan, numbered(source.shape))
        assert plan.off_node() == off_node(source.layout, target.layout, nodes, 8)
        count = sum(comm.allgather(len(away_of(sent, nodes, comm.rank))))
        assert count == plan.off_node().messages


@pytest.mark.parametrize("sizes", [{"ALONE": 16, "PIECE": 24}, {"EAGER": 20}])
@pytest.mark.parametrize("case", CASES)
def test_messages_travel_in_pieces_between_nodes(divided, case, sizes, monkeypatch):
    comm, nodes, sent = divided
    for name, size in sizes.items():
        monkeypatch.setattr(memory, name, size)
    (source, target), kind, values = pair_of(comm, case)
    with Transposition(source, target, **kind, method="messages") as plan:
        assert works(comm, plan, values)
        whole = plan.off_node()
        itemsize = values.nbytes // np.prod(source.shape)
        assert whole == off_node(source.layout, target.layout, nodes, itemsize)
    away = away_of(sent, nodes, comm.rank)
    near = [peer for peer, _ in sent if nodes[peer] == nodes[comm.rank]]
    assert everywhere(comm, len(near) == len(set(near)))
    if "EAGER" in sizes:
        assert everywhere(comm, max(away, default=0) <= sizes["EAGER"])
    messages, nbytes = np.sum(comm.allgather((len(away), sum(away))), axis=0)
    assert nbytes == whole.nbytes
    if source.shape == (9, 8, 7):
        assert (messages > whole.messages) == (whole.messages > 0)


def test_every_rank_of_a_node_carries_for_some_other_node():
    comm = MPI.COMM_WORLD
    with sends() as sent:
        apart = comm.Dup()
        number = comm.rank if comm.rank < comm.size - 2 else comm.size
        pretend_nodes(apart, number)  # two ranks on the last node
        Transposition(*slabs(apart, (12, 12)), method="gathered").free()
        apart.Free()
    carried = comm.allgather(len(sent))[-2:]
    assert max(carried) - min(carried) <= 1


def test_messages_where_a_node_has_no_room(divided, monkeypatch):
    comm, nodes, _ = divided
    rows, columns = slabs(comm, (6, 7))
    Transposition(rows, columns, method="hybrid")  # there is room for tables
    if nodes[comm.rank] == nodes[-1]:
        monkeypatch.setattr(topology_of(comm).shared, "allocate_common", lambda _: None)
    with Transposition(rows, columns, method="gathered") as plan:
        assert plan.method == "gathered"
        assert plan.off_node() == off_node(rows.layout, columns.layout, nodes, 8)
        assert works(comm, plan, numbered(rows.shape))


@pytest.mark.mpiexec("changes functions of one rank")
@pytest.mark.parametrize("step", ["_small", "_NodeBundles", "Requests"])
def test_one_rank_without_memory_for_bundles(divided, step, monkeypatch):
    comm = divided[0]
    pair = pair_of(comm, CASES[0])[0]

    def fail(*_args, **_options):
        raise MemoryError("no memory for bundles")

    Transposition(*pair, method="gathered").free()
    if comm.rank == comm.size - 1:
        monkeypatch.setattr(gathered, step, fail)
    found = None
    try:
        Transposition(*pair, method="gathered").free()
    except MemoryError as error:
        found = str(error)
    every = comm.allgather(found)
    assert len(set(every)) == 1 or all(every), every
    monkeypatch.undo()
    with Transposition(*pair, method="gathered") as plan:
        assert works(comm, plan, numbered(pair[0].shape))


@pytest.mark.mpiexec("changes functions of one rank")
def test_calls_reserve_for_bundles_that_come_free(divided):
    comm = divided[0]
    source, target = pair_of(comm, CASES[0])[0]
    made, make = [], gathered.Bundles.__init__

    def noted(self, plan):
        make(self, plan)
        made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathered.Bundles, "__init__", noted)
        plan = Transposition(source, target, method="gathered")
    u = spread(source, numbered(source.shape))
    with plan:
        plan(u)
        for bundles in made:
            prepared = bundles.prepare([u.local], [np.empty(target.local_shape)], aliased=False)
            bundles.busy = True
            prepared.reserve()
            bundles.busy = False
            large = prepared._large
            assert large._idle or not bundles.made or large._latest is not None
