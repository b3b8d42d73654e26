"""Halo exchanges and transposes in graphs have the results of those of fields."""

import numpy as np
import pytest
from graphs import execute
from mpi4py import MPI
from mpi_helpers import everywhere, numbered, random_pencil, same, spread

import pencils
from pencils import graph
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("periodic", [True, False, (True, False, True)])
@pytest.mark.parametrize("halo", [1, (0, 2, 1), ((2, 0), (0, 3), (1, 1))])
def test_halos_are_those_of_fields(comm, halo, periodic, corners):
    pen = pencils.Pencil((7, 5, 6), comm, decomp=(0, 1), periodic=periodic, order=(2, 0, 1))
    for components in ((), (2,)):
        u = pencils.zeros(pen, halo=halo, components=components)
        u[...] = numbered((*components, *pen.shape))
        u.exchange_halo(corners=corners)
        expected = u.padded
        x = graph.make_placeholder("x", u.local_shape)
        padded = graph.halo_exchange(x, pen, halo, corners=corners)
        found = execute(comm, {"padded": padded}, x=u.local)["padded"]
        mine = np.ones(expected.shape, bool)
        if not corners:  # the corners of fields depend on the route
            mine = sum_of_sides(pen, u) <= 1
        assert everywhere(comm, found.shape == expected.shape)
        assert everywhere(comm, np.array_equal(found[mine], expected[mine]))


def sum_of_sides(pen, u):
    """Count the dimensions along which each point of a padded block is in the halo."""
    sides = np.zeros(u.padded.shape[-3:], int)
    for dim, (lo, hi) in enumerate(u.halo):
        n = pen.local_shape[dim]
        outside = np.ones(n + lo + hi, int)
        outside[lo : lo + n] = 0
        sides += outside.reshape([-1 if d == dim else 1 for d in range(3)])
    return np.broadcast_to(sides, u.padded.shape)


@pytest.mark.parametrize("piece", ["halo_exchange", "transpose"])
def test_tags_agree_after_an_error_on_one_rank(comm, piece):
    pen = pencils.Pencil((7, 5), comm, periodic=True)
    more = 1 if piece == "halo_exchange" else pen.with_(decomp=1)
    build = getattr(graph, piece)
    x = graph.make_placeholder("x", pen.local_shape)
    if comm.rank == 0:
        with pytest.raises(ArgumentError, match="is not the block of"):
            build(graph.make_placeholder("x", (99, 99)), pen, more)
    else:
        build(x, pen, more)
    outputs = {"y": build(x, pen, more)}
    found = execute(comm, outputs, x=np.ones(pen.local_shape))
    assert everywhere(comm, (found["y"] == 1).all() or not x.size)


def test_halos_wider_than_blocks_and_empty_blocks(comm):
    pen = pencils.Pencil((comm.size + 1, 3), comm, decomp=0, periodic=True)
    thin = pencils.Pencil((max(1, comm.size - 1),), comm, periodic=True)
    for pencil, halo in ((pen, (3, 0)), (thin, 2)):
        u = pencils.zeros(pencil, halo=halo)
        u[...] = numbered(pencil.shape)
        u.exchange_halo()
        x = graph.make_placeholder("x", pencil.local_shape)
        found = execute(comm, {"p": graph.halo_exchange(x, pencil, halo)}, x=u.local)["p"]
        assert everywhere(comm, np.array_equal(found, u.padded) or u.local.size == 0)


@pytest.mark.parametrize("seed", range(8))
def test_transposes_are_those_of_fields(comm, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(map(int, rng.integers(1, 9, 3)))
    one, two = (random_pencil(rng, comm, shape) for _ in range(2))
    data = numbered((2, *shape) if seed % 2 else shape, [float, "c8"][seed % 2])
    u = spread(one, data)
    x = graph.make_placeholder("x", u.local_shape, u.dtype)
    there = graph.transpose(x, one, two)
    back = graph.transpose(there * 2, two, one)
    found = execute(comm, {"there": there, "back": back}, x=u.local)
    assert everywhere(comm, same(found["there"], pencils.transpose(u, two).local))
    assert everywhere(comm, same(found["back"], u.local * 2))
    axes = (*range(data.ndim - 3), *(data.ndim - 3 + dim for dim in two.order))
    assert everywhere(comm, found["there"].transpose(axes).flags.c_contiguous)


def test_singletons(comm):
    """Fields that vary along some dimensions only, and are the same along the others."""
    pen = pencils.Pencil((7, 5, 6), comm, decomp=(0, 1), periodic=True)
    across = pen.with_(decomp=(2, 1), order=(1, 0, 2))
    for dims in ((0, 2), (2,), ()):
        halo = [int(dim in dims) for dim in range(3)]
        u = pencils.zeros(pen, halo=halo, dims=dims, components=2)
        u[...] = numbered(u.shape)
        u.exchange_halo()
        x = graph.make_placeholder("x", u.local.shape)
        outputs = {
            "padded": graph.halo_exchange(x, pen, 1, dims=dims),
            "full": graph.halo_exchange(x, pen, (1, 1, 1), dims=dims),
            "moved": graph.transpose(x, pen, across, dims=dims),
        }
        found = execute(comm, outputs, x=u.local)
        assert everywhere(comm, same(found["padded"], u.padded) or u.local.size == 0)
        assert everywhere(comm, same(found["full"], found["padded"]))
        assert everywhere(comm, same(found["moved"], pencils.transpose(u, across).local))


@pytest.mark.parametrize("count", [1, 2])
def test_one_message_to_each_neighbour(comm, count):
    pen = pencils.Pencil((max(12, comm.size), 12), comm, decomp=0, periodic=True)
    x = np.stack([graph.make_placeholder(str(n), pen.local_shape) for n in range(count)])
    partition = graph.find_distributed_partition(comm, {"p": graph.halo_exchange(x, pen, 1)})
    peers = [message.dest_rank for message in partition.numbers if message.src_rank == comm.rank]
    assert everywhere(comm, len(peers) == len(set(peers)) == min(2, comm.size - 1))


def test_pencils_of_some_ranks_in_a_graph_of_all(comm):
    half = comm.Split(comm.rank % 2, -comm.rank)  # in another order, too
    pen = pencils.Pencil((8, 3), half, decomp=0, periodic=True)
    u = pencils.zeros(pen, halo=1)
    u[...] = numbered(pen.shape) + comm.rank % 2
    u.exchange_halo()
    x = graph.make_placeholder("x", pen.local_shape)
    found = execute(comm, {"p": graph.halo_exchange(x, pen, 1, comm=comm)}, x=u.local)["p"]
    assert everywhere(comm, np.array_equal(found, u.padded))
    if half.size > 1:
        with pytest.raises(PencilMismatchError, match="all processes"):
            graph.halo_exchange(x, pen, 1, comm=MPI.COMM_SELF)
    half.Free()


def test_what_does_not_fit(comm):
    pen = pencils.Pencil((8, 3), comm, decomp=0)
    x = graph.make_placeholder("x", pen.local_shape)
    other = pen.with_(shape=(8, 4))
    for call, args, kind, text in (
        (graph.halo_exchange, (x[:, :2], pen, 1), ArgumentError, "is not the block of"),
        (graph.transpose, (x[:, :2], pen, pen), ArgumentError, "is not the block of"),
        (graph.halo_exchange, (x, pen, -1), ArgumentError, "halo"),
        (graph.transpose, (x, pen, other), PencilMismatchError, "same global shape"),
        (graph.halo_exchange, (x, x, 1), TypeError, "must be a Pencil"),
        (graph.halo_exchange, (x, None, 1), TypeError, "must be a Pencil"),
        (graph.transpose, (np.ones(pen.local_shape), pen, pen), TypeError, "x must be"),
    ):
        with pytest.raises(kind, match=text):
            call(*args)
