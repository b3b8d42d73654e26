"""Predictions of what decompositions cost, against schedules and against real exchanges."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI
from mpi_helpers import python

import pencils
from pencils.comm.methods import messages
from pencils.layout import build_layout, redistribution
from pencils.layout import halo as layout_halo
from pencils.tools.planning.counts import count_halo, count_redistribution

comm = MPI.COMM_WORLD


@st.composite
def worlds(draw):
    ndim, ranks = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 13]))
    shape = [draw(st.integers(1, 9)) for _ in range(ndim)]
    flags = [draw(st.booleans()) for _ in range(ndim)]
    cut = [draw(st.permutations(range(ndim)))[: draw(st.integers(1, ndim))] for _ in range(2)]
    layouts = [build_layout(shape, ranks, decomp=dims, periodic=flags) for dims in cut]
    return *layouts, draw(st.integers(1, ranks))


def sums(sent, rank, per_node):
    """Messages and points for ranks of the same node, and of others, from points by peer."""
    near = [n for peer, n in sent.items() if peer != rank and peer // per_node == rank // per_node]
    far = [n for peer, n in sent.items() if peer // per_node != rank // per_node]
    return [[len(near), sum(near)], [len(far), sum(far)]]


@given(worlds())
def test_redistributions_are_counted_as_they_are_scheduled(world):
    here, there, per_node = world
    found = count_redistribution(here, there, np.arange(here.size), per_node)
    for rank in range(here.size):
        sent = {m.dest: m.box.volume for m in redistribution(here, there, rank, None)[0]}
        counted = [found.near[:, rank].tolist(), found.far[:, rank].tolist()]
        assert counted == sums(sent, rank, per_node)
        assert found.own[rank] == sent.get(rank, 0)


@given(worlds(), st.integers(1, 3))
def test_halos_are_counted_as_they_are_scheduled(world, width):
    layout, _, per_node = world
    cut = [dim for dim in range(layout.ndim) if layout.process_shape[dim] > 1]
    whole = [dim for dim in range(layout.ndim) if dim not in cut]
    for faces in (*layout_halo.direct(cut, whole), *layout_halo.star(cut)):
        found = count_halo(layout, width, faces, np.arange(layout.size), per_node)
        for rank in range(layout.size):
            sends, _ = layout_halo.exchange(layout, [(width, width)] * layout.ndim, rank, faces)
            sent = {}
            for m in sends:
                sent[m.dest] = sent.get(m.dest, 0) + m.box.volume
            counted = [found.near[:, rank].tolist(), found.far[:, rank].tolist()]
            assert counted == sums(sent, rank, per_node)


@pytest.fixture
def sent(monkeypatch):
    """Messages that this rank has made requests for: the peer and the bytes of each."""
    found = []

    class Counted(messages.Requests):
        def __init__(self, buffer, by_message, init, copy, far):
            if copy is messages._pack:
                found.extend((peer, sum(v.nbytes for v in views)) for peer, views, _ in by_message)
            super().__init__(buffer, by_message, init, copy, far)

    monkeypatch.setattr(messages, "Requests", Counted)
    return found


def most(found):
    """Most messages and most bytes of a rank."""
    mine = [len({peer for peer, _ in found}), sum(nbytes for _, nbytes in found)]
    return tuple(comm.allreduce(each, op=MPI.MAX) for each in mine)


@pytest.mark.parallel([1, 2, 3, 4, 6])
@pytest.mark.parametrize(("decomp", "dtype"), [((0,), float), ((0, 1), "F"), ((0, 1, 2), "f")])
def test_a_transform_sends_what_was_predicted(sent, decomp, dtype):
    shape = 10, 7, 9
    for found in pencils.plan(shape, comm.size, "fft", dtype=dtype, decomp=decomp):
        pencil = pencils.Pencil(shape, comm, decomp=decomp, grid=found.grid)
        del sent[:]
        with pencils.fft.PencilFFT(pencil, dtype, backend="scipy") as plan:
            for function, there, _ in plan._forward._steps:
                if isinstance(function, pencils.Transposition):
                    here = function.source
                    u, out = (
                        pencils.zeros(each, dtype=there.dtype) for each in (here, there.pencil)
                    )
                    with pencils.Transposition(
                        here, there.pencil, there.dtype, method="messages"
                    ) as move:
                        move(u, out)
        (load,) = found.loads
        counted = len(sent), sum(nbytes for _, nbytes in sent)
        assert load.near == tuple(comm.allreduce(each, op=MPI.MAX) for each in counted)
        assert load.far == load.off_node == (0, 0)


@pytest.mark.parallel([1, 2, 3, 4, 6])
@pytest.mark.parametrize("operation", ["halo:1", "halo:2", "halo:2:faces"])
@pytest.mark.parametrize("periodic", [True, (False, True)])
def test_a_halo_sends_what_was_predicted(sent, operation, periodic):
    width, corners = int(operation.split(":")[1]), not operation.endswith("faces")
    for found in pencils.plan((9, 8), comm.size, operation, periodic=periodic, dtype="f4"):
        pencil = pencils.Pencil(
            (9, 8), comm, decomp=found.decomp, grid=found.grid, periodic=periodic
        )
        u = pencils.zeros(pencil, dtype="f4", halo=width)
        del sent[:]
        with pencils.HaloExchange(u, corners=corners, method="messages") as plan:
            plan(u)
        assert found.loads[0].near == most(sent)


def test_messages_between_nodes_are_those_of_plans():
    def count():
        pencil = pencils.Pencil((8, 9, 10), grid=(2, 3))
        target = pencil.with_(decomp=(0, 2))
        with pencils.Transposition(pencil, target) as plan:
            moved = plan.off_node()
        with pencils.HaloExchange(pencils.zeros(pencil, halo=1)) as plan:
            return moved, plan.off_node()

    operations = ["transpose:0,2", "halo:1"]
    for nodes in (1, 2, 3, 6):
        (found,) = (
            each
            for each in pencils.plan((8, 9, 10), 6, operations, per_node=6 // nodes, decomp=(0, 1))
            if each.grid == (2, 3)
        )
        expected = [tuple(load.off_node) for load in found.loads]
        assert [tuple(each) for each in pencils.simulate(6, count, nodes=nodes)[0]] == expected


def test_arguments_and_a_million_ranks():
    found = pencils.plan((4096,) * 3, 10**6, ["halo:1"], per_node=64, decomp=(0, 1, 2), most=2)
    assert len(found) == 2
    assert found.counted < found.ranks
    assert found[0].loads[0].off_node is None
    assert "1000000 ranks, 64 on a node" in str(found)
    # Without operations a halo and a transform are planned.
    for kind, operations in ((float, ["halo:1", "fft"]), (int, [])):
        expected = pencils.plan((16, 16), 4, operations or "halo:1", dtype=kind)
        assert str(pencils.plan((16, 16), 4, dtype=kind)) == str(expected)
    # Wrong arguments are explained.
    for arguments, text in (
        (((8, 8), 2, "fourier"), "operation 'fourier' is unknown; use 'fft'"),
        (((8, 8), 2, "halo:x"), "unknown"),
        (((8, 8), 2, []), "must name one or more"),
        (((8, 0), 2, "fft"), "no points"),
        (((8, 8), 0, "fft"), "ranks"),
    ):
        with pytest.raises(pencils.errors.PencilsError, match=text):
            pencils.plan(*arguments)
    with pytest.raises(pencils.errors.PencilsError, match="cannot be transformed"):
        pencils.plan((8, 8), 2, "fft", dtype=int)
    with pytest.raises(pencils.errors.PencilsError, match="latency=0 of links must be positive"):
        pencils.planning.Links(latency=0)


def test_the_command_prints_the_table():
    command = partial(python, "-m", "pencils")
    options = ["--ranks", "4", "--per-node", "2", "--op", "fft", "--latency", "1e-6"]
    ran = command("plan", "16", "16", *options)
    assert ran.returncode == 0, ran.stderr
    links = pencils.planning.Links(latency=1e-6)
    assert ran.stdout == f"{pencils.plan((16, 16), 4, 'fft', per_node=2, links=links)}\n"
    ran = command("plan", "64", "64", "64", "--ranks", "4")
    assert ran.stdout == f"{pencils.plan((64, 64, 64), 4)}\n"
    ran = command("plan", "16", "--ranks", "4", "--op", "bogus")
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: operation 'bogus' is unknown")
    assert command("--version").stdout == f"pencils {pencils.__version__}\n"
