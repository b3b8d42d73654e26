"""Random graphs over all ranks compute what NumPy computes from the arrays of all ranks."""

import numpy as np
import pytest
from graphs import run
from mpi_helpers import everywhere

import pencils
from pencils import graph
from pencils.graph import program
from pencils.graph.execute import generate_code_for_partition

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(params=["alone", "in one pass"], autouse=True)
def _passes(request, monkeypatch):
    """Compute small nodes alone, as always, or elementwise ones in one pass."""
    if request.param == "in one pass":
        monkeypatch.setattr(program, "_LEAST", 1)


OPERATIONS = [
    np.add,
    np.subtract,
    np.maximum,
    lambda a, b: np.where(a > b, a, 0.5 * b),
    lambda a, b: np.concatenate([a[1:], b[:1]]),
    lambda a, b: np.sin(a) * b.mean(),
    lambda a, b: np.roll(a, 2) - np.flip(b),
    lambda a, b: np.stack([a, b]).sum(axis=0),
]
POINTS = 5


def draw(seed, comm, broken=None):
    """Build the graph of this rank, and compute the values of all; one node calls `broken`."""
    rng = np.random.default_rng(seed)
    values = [[data] for data in rng.random((comm.size, POINTS))]
    start = values[comm.rank][0]
    nodes = [graph.make_placeholder("x", POINTS)]
    ends = [graph.zeros(POINTS)]  # these keep messages in the graph
    culprit, place = rng.integers(comm.size), rng.integers(60)
    for n in range(60):
        if broken and comm.rank == culprit and n == place:
            nodes[0] = graph.call(broken, nodes[0])
            ends.append(nodes[0])
        rank = int(rng.integers(comm.size))
        one, two, three = rng.integers(len(values[rank]), size=3)
        if rng.random() < 0.6:
            operation = OPERATIONS[rng.integers(len(OPERATIONS))]
            values[rank].append(operation(values[rank][one], values[rank][two]))
            if rank == comm.rank:
                nodes.append(operation(nodes[one], nodes[two]))
            continue
        dest = int(rng.integers(comm.size))
        sent = values[rank][one]
        values[rank][two] = values[rank][three]
        values[dest].append(sent)
        if rank == comm.rank:
            nodes[two] = graph.staple_distributed_send(nodes[one], dest, ("tag", n), nodes[three])
            ends.append(nodes[two])
        if dest == comm.rank:
            nodes.append(graph.make_distributed_recv(rank, ("tag", n), POINTS, float))
            ends.append(nodes[-1])
    outputs = {f"y{n}": node for n, node in enumerate(nodes)}
    return outputs | {"ends": sum(ends)}, values[comm.rank], start


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(comm, seed):
    outputs, values, start = draw(seed, comm)
    partition = graph.find_distributed_partition(comm, outputs)
    graph.verify_distributed_partition(comm, partition)
    for programs in (None, generate_code_for_partition(partition)):
        found = run(comm, partition, programs, x=start)
        right = [np.allclose(found[f"y{n}"], value) for n, value in enumerate(values)]
        assert everywhere(comm, all(right) and len(right) == len(outputs) - 1)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_that_break_down(comm, seed):
    """No rank hangs, and no message is left for the next execution."""

    def break_down(values):
        if again % 2 == 0:
            raise ZeroDivisionError
        return values

    outputs, values, start = draw(seed, comm, break_down)
    partition = graph.find_distributed_partition(comm, outputs)
    for again in range(6):
        try:
            found = run(comm, partition, x=start)
        except (ZeroDivisionError, graph.ExecutionError):
            found = None
        if again % 2 == 0:
            assert not everywhere(comm, found is not None)
        else:
            right = [np.allclose(found[f"y{n}"], value) for n, value in enumerate(values)]
            assert everywhere(comm, all(right))


@pytest.mark.parametrize("seed", range(6))
def test_random_operators_on_fields(comm, seed):
    """Stencils along any axis, transposes and points, against NumPy on the global arrays."""
    rng = np.random.default_rng(seed)
    shape = (6, 8)
    pens = [pencils.Pencil(shape, comm, decomp=d, periodic=True) for d in (0, 1, (0, 1))]
    data = rng.random((2, *shape))
    where = [int(rng.integers(3)) for _ in range(2)]
    nodes = [graph.make_placeholder(f"x{n}", pens[w].local_shape) for n, w in enumerate(where)]
    inputs = {f"x{n}": data[n][pens[w].local_slices] for n, w in enumerate(where)}
    for _ in range(6):
        one, two = (int(n) for n in rng.permutation(len(nodes))[:2])
        target = int(rng.integers(3))
        moved = graph.transpose(nodes[two], pens[where[two]], pens[where[one]])
        axis = int(rng.integers(2))
        padded = graph.halo_exchange(nodes[one], pens[where[one]], 1)
        inside = tuple(slice(0, -2) if d == axis else slice(1, -1) for d in range(2))
        node = padded[inside] * 0.5 + moved
        nodes.append(graph.transpose(node, pens[where[one]], pens[target]))
        where.append(target)
        data = [*data, np.roll(data[one], 1, axis) * 0.5 + data[two]]
    mine = np.random.default_rng([seed, comm.rank])
    asked = [mine.integers(0, [[6], [8]], (2, mine.integers(3))) for _ in nodes]
    pieces = zip(nodes, where, asked, strict=True)
    points = {f"p{n}": graph.take(x, pens[w], at) for n, (x, w, at) in enumerate(pieces)}
    blocks = {f"y{n}": node for n, node in enumerate(nodes) if n % 2}
    partition = graph.find_distributed_partition(comm, points | blocks)
    found = run(comm, partition, **inputs)
    right = [np.allclose(found[f"p{n}"], data[n][tuple(at)]) for n, at in enumerate(asked)]
    right += [
        np.allclose(found[f"y{n}"], data[n][pens[where[n]].local_slices])
        for n in range(1, len(nodes), 2)
    ]
    assert everywhere(comm, all(right))
