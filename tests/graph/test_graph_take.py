"""Points taken in a graph are those of the global array, and those of `PencilArray.take`."""

from functools import partial

import numpy as np
import pytest
from graphs import execute, run
from mpi4py import MPI
from mpi_helpers import (
    DTYPES,
    all_raise,
    everywhere,
    numbered,
    one_is_wrong,
    random_pencil,
    ranks_at_fault,
    same,
    spread,
)

import pencils
from pencils import graph
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def node_of(u):
    """Make an input for the own block of a field."""
    return graph.make_placeholder("x", u.local.shape, u.dtype)


@pytest.mark.parametrize("programs", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_points_of_any_field(comm, seed, programs):
    """On random pencils, some of whose blocks are empty, with singletons and without."""
    rng = np.random.default_rng(seed)
    shape = tuple(map(int, rng.integers(1, 7, rng.integers(1, 4))))
    pen = random_pencil(rng, comm, shape)
    dims = [dim for dim in range(len(shape)) if rng.random() < 0.7]
    varied = tuple(n if dim in dims else 1 for dim, n in enumerate(shape))
    components = [(), (2,), (2, 3)][seed % 3]
    data = numbered(components + varied, DTYPES[seed])
    halo = [int(dim in dims) for dim in range(len(shape))]  # whose own block is not contiguous
    counts = rng.integers(0, 4, (comm.size, 2))
    coords = [rng.integers(0, n, counts[comm.rank]) for n in varied]
    for u in (spread(pen, data, dims=dims), spread(pen, data, dims=dims, halo=halo)):
        node = graph.take(node_of(u), pen, coords, dims=dims)
        found = execute(comm, {"it": node}, programs, x=u.local)["it"]
        expected = data[(..., *coords)]
        assert everywhere(comm, node.shape == expected.shape)
        assert everywhere(comm, same(found, expected))
        assert everywhere(comm, same(u.take_points(coords), expected))


def test_probes_lines_and_planes(comm):
    data = numbered((5, 4, 6))
    u = spread(pencils.Pencil(data.shape, comm, decomp=(0, 1), order=(2, 0, 1)), data)
    for coords in (
        (1, 2, 3),
        (1, range(4), 3),
        np.ix_(range(5), [2], range(6)),
        np.array([[0, 4], [3, 0], [5, 1]]),
    ):
        found = execute(comm, {"it": graph.take(node_of(u), u.pencil, coords)}, x=u.local)["it"]
        expected = data[tuple(np.asarray(index) for index in coords)]
        assert everywhere(comm, np.array_equal(found, expected))
        assert everywhere(comm, np.shape(found) == np.shape(expected))


def test_only_one_rank_takes_points(comm):
    data = numbered((3, 7, 2))
    u = spread(pencils.Pencil((7, 2), comm, decomp=0), data)
    none = np.empty((2, 0), int)
    for taking in ranks_at_fault(comm):
        coords = np.indices((7, 2)) if comm.rank == taking else (none, none)
        expected = data[(..., *coords)]
        found = execute(comm, {"it": graph.take(node_of(u), u.pencil, coords)}, x=u.local)["it"]
        assert everywhere(comm, same(found, expected))
    nothing = graph.take(node_of(u), u.pencil, (none, none))
    found = execute(comm, {"it": nothing, "more": nothing + 1}, x=u.local)
    assert everywhere(comm, found["it"].shape == found["more"].shape == (3, 2, 0))


def test_fields_without_components_or_points(comm):
    for shape, components, coords in (((4, 3), (0,), ([0, 3], 1)), ((0, 3), (), ([], 1))):
        pen = pencils.Pencil(shape, comm, decomp=0)
        x = graph.make_placeholder("x", components + pen.local_shape)
        found = execute(comm, {"it": graph.take(x, pen, coords)}, x=np.empty(x.shape))["it"]
        assert everywhere(comm, found.shape == (*components, len(coords[0])))


def test_one_message_from_each_owner(comm):
    """Every rank takes points of the rank before it; no other rank sends messages."""
    pen = pencils.Pencil((3 * comm.size,), comm)
    before = (comm.rank - 1) % comm.size
    x = graph.make_placeholder("x", pen.local_shape)
    points = graph.take(x, pen, ([3 * before, 3 * before + 2, 3 * before],))
    partition = graph.find_distributed_partition(comm, {"it": points})
    mine = sorted((message.src_rank, message.dest_rank) for message in partition.numbers)
    ring = [(before, comm.rank), (comm.rank, (comm.rank + 1) % comm.size)]
    assert everywhere(comm, mine == (sorted(ring) if comm.size > 1 else []))


def test_particles_in_a_flow(comm):
    """Probes of a stencil and of a transposed field, traced once and executed for some steps."""
    shape = (9, 8)
    pen = pencils.Pencil(shape, comm, periodic=True, decomp=0)
    across = pen.with_(decomp=1, order=(1, 0))
    rng = np.random.default_rng(comm.rank)
    coords = rng.integers(0, 9, comm.rank), rng.integers(0, 8, comm.rank)
    x = graph.make_placeholder("x", pen.local_shape)
    padded = graph.halo_exchange(x, pen, (1, 0))
    slope = padded[2:] - padded[:-2]
    outputs = {
        "x": x + slope,
        "slopes": graph.take(slope, pen, coords),
        "values": graph.take(graph.transpose(2 * x, pen, across), across, coords),
        "again": graph.take(x, pen, coords),
    }
    partition = graph.find_distributed_partition(comm, outputs)
    graph.verify_distributed_partition(comm, partition)
    u = numbered(shape)
    local = u[pen.local_slices]
    for _ in range(4):
        found = run(comm, partition, x=local)
        slopes = np.roll(u, -1, 0) - np.roll(u, 1, 0)
        assert everywhere(comm, np.array_equal(found["slopes"], slopes[coords]))
        assert everywhere(comm, np.array_equal(found["values"], 2 * u[coords]))
        assert everywhere(comm, np.array_equal(found["again"], u[coords]))
        local, u = found["x"], u + slopes
    assert everywhere(comm, np.array_equal(local, u[pen.local_slices]))


def test_coordinates_may_change_afterwards(comm):
    data = numbered((6,))
    u = spread(pencils.Pencil(data.shape, comm), data)
    index = np.array([1, 5, 2])
    node = graph.take(node_of(u), u.pencil, (index,))
    index[:] = 0
    assert everywhere(comm, np.array_equal(execute(comm, {"it": node}, x=u.local)["it"], [2, 6, 3]))


def test_pencils_of_some_ranks_in_a_graph_of_all(comm):
    half = comm.Split(comm.rank % 2, -comm.rank)  # in another order, too
    data = numbered((8, 3)) + comm.rank % 2
    u = spread(pencils.Pencil(data.shape, half, decomp=0), data)
    coords = [0, 7, 4], [2, 0, comm.rank % 3]
    node = graph.take(node_of(u), u.pencil, coords, comm=comm)
    found = execute(comm, {"it": node}, x=u.local)["it"]
    assert everywhere(comm, np.array_equal(found, data[coords]))
    half.Free()


BAD = {
    "index": (IndexError, "index 7", {"coords": ([0, 7], 0)}),
    "negative": (IndexError, "index -1", {"coords": (-1, 0)}),
    "too few": (ArgumentError, "each of 2 dimensions", {"coords": ([0, 1],)}),
    "broadcast": (ArgumentError, "broadcast", {"coords": ([0, 1], [0, 1, 2])}),
    "floats": (TypeError, "integers", {"coords": ([0.5], 0)}),
    "node": (TypeError, "x must be", {"x": np.ones(3)}),
    "block": (ArgumentError, "is not the block of", {"x": graph.make_placeholder("x", (7, 9))}),
    "pencil": (TypeError, "must be a Pencil", {"pencil": None}),
    "comm": (TypeError, "comm must be", {"comm": "world"}),
    "null": (ArgumentError, "COMM_NULL", {"comm": MPI.COMM_NULL}),
    "dims": (ArgumentError, "dims", {"dims": 2}),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_argument_on_one_rank_raises_everywhere(comm, case):
    kind, text, wrong = BAD[case]
    u = spread(pencils.Pencil((7, 3), comm, decomp=0), numbered((7, 3)))
    good = {"x": node_of(u), "pencil": u.pencil, "coords": ([0, 6], 2)}
    take = lambda given: graph.take(**given)  # noqa: E731
    one_is_wrong(comm, kind, text, call=take, bad=good | wrong, good=good)
    found = execute(comm, {"it": graph.take(**good)}, x=u.local)["it"]
    assert everywhere(comm, np.array_equal(found, [3, 21]))


def test_ranks_that_disagree(comm):
    pen = pencils.Pencil((7, 3), comm, decomp=0)
    x = graph.make_placeholder("x", pen.local_shape)
    short = graph.make_placeholder("x", pen.local_shape, "f4")
    vector = graph.make_placeholder("x", (2, *pen.local_shape))
    for other, text in ((short, "dtype"), (vector, "components")) if comm.size > 1 else ():
        call = partial(graph.take, x if comm.rank == 0 else other, pen, (0, 0))
        all_raise(comm, RankDisagreementError, text, call)
    if comm.size > 1:
        with pytest.raises(PencilMismatchError, match="all processes"):
            graph.take(x, pen, (0, 0), comm=MPI.COMM_SELF)
