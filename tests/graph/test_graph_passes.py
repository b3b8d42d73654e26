"""Elementwise nodes between messages are computed in one pass, with the bits of NumPy."""

import warnings
from functools import partial

import numpy as np
import pytest
from graphs import compute, receive, run, send
from mpi4py import MPI
from mpi_helpers import everywhere, same
from test_graph_random import OPERATIONS

import pencils
from pencils import graph
from pencils.comm.topology import topology_of
from pencils.graph import program
from pencils.graph.execute import generate_code_for_partition
from pencils.graph.program import programs as prepared_programs
from pencils.graph.rules import name_of

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(autouse=True)
def _small_passes(monkeypatch):
    """Compute also small arrays in one pass."""
    monkeypatch.setattr(program, "_LEAST", 1)


def names_of_steps(comm, partition):
    """Names of the functions of all steps but those that pick results."""
    found = prepared_programs(topology_of(comm))[partition].steps
    return [name_of(func) for func, _, _ in found if "itemgetter" not in repr(func)]


DRAWN = [
    *OPERATIONS,
    np.multiply,
    lambda a, b: np.sqrt(abs(a)) + 2 * b[::-1],
    lambda a, b: np.where(np.isfinite(a), a, 0) // (1 + b * b),
    lambda a, b: (a[None] * b[:, None])[1],
    lambda a, b: (a > b) * np.float32(0.1) + a.astype("f4") + b,
    lambda a, b: a.astype("f2").astype(float) + b,
    lambda a, b: (a + 1j * b).imag + np.exp(-a * a) ** 2,
    lambda a, b: a.mean() + b,
]


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_have_the_bits_of_numpy(comm, seed):
    rng = np.random.default_rng(seed)
    values = [[data] for data in rng.random((comm.size, 6))]
    start = values[comm.rank][0]
    nodes = [graph.make_placeholder("x", 6)]
    for n in range(50):
        rank, dest = map(int, rng.integers(comm.size, size=2))
        one, two = rng.integers(len(values[rank]), size=2)
        if rng.random() < 0.8:
            operation = DRAWN[rng.integers(len(DRAWN))]
            values[rank].append(operation(values[rank][one], values[rank][two]))
            if rank == comm.rank:
                nodes.append(operation(nodes[one], nodes[two]))
            continue
        values[dest].append(values[rank][one])
        if rank == comm.rank:
            nodes[two] = graph.staple_distributed_send(nodes[one], dest, n, nodes[two])
        if dest == comm.rank:
            nodes.append(graph.make_distributed_recv(rank, n, (6,), float))
    outputs = {f"y{n}": node for n, node in enumerate(nodes)}
    partition = graph.find_distributed_partition(comm, outputs)
    for programs in (None, generate_code_for_partition(partition)):
        found = run(comm, partition, programs, x=start)
        right = [same(found[f"y{n}"], each) for n, each in enumerate(values[comm.rank])]
        assert everywhere(comm, all(right))


def test_a_pass_for_what_is_sent_and_one_for_the_rest(comm):
    x = graph.make_placeholder("x", (4,))
    sent, local = 2 * x + 1, np.exp(x)
    for _ in range(5):
        local = local * x - 1
    got = receive(comm, shape=4)
    held = send(comm, sent, (got * x + sent) * local + x * x)
    outputs = {"y": held, "z": held - 1}
    partition = graph.find_distributed_partition(comm, outputs)
    values = np.random.default_rng(comm.rank).random(4)
    found = run(comm, partition, x=values)
    other = np.random.default_rng((comm.rank - 1) % comm.size).random(4)
    right = np.exp(values)
    for _ in range(5):
        right = right * values - 1
    right = ((2 * other + 1) * values + (2 * values + 1)) * right + values * values
    assert everywhere(comm, same(found["y"], right) and same(found["z"], right - 1))
    names = names_of_steps(comm, partition)
    # `x * x` is cheaper to compute in the last pass than to keep.
    assert names == ["multiply, add", "exp, multiply, subtract", "multiply, add, subtract"]


def test_a_step_of_a_field_is_one_pass(comm):
    """The block that is sent lies within the padded one from the beginning."""
    pen = pencils.Pencil((2 * comm.size, 5), comm, decomp=0, periodic=True)
    node = x = graph.make_placeholder("x", pen.local_shape)
    for _ in range(3):
        near = graph.halo_exchange(node, pen, ((1, 1), (0, 0)), corners=False)
        node = node + 0.1 * (near[2:] + near[:-2] - 2 * node)
    partition = graph.find_distributed_partition(comm, {"y": node, "x": x})
    u = pencils.zeros(pen, halo=((1, 1), (0, 0)))
    u[...] = np.random.default_rng(0).random(pen.shape)
    inputs = u.local.copy()
    for order in "CF":
        found = run(comm, partition, x=np.asarray(inputs, order=order))
        assert everywhere(comm, same(found["x"], inputs))
        for _ in range(3):
            u.exchange_halo()
            u[...] = u + 0.1 * (u.shift((1, 0)) + u.shift((-1, 0)) - 2 * u)
        assert everywhere(comm, same(found["y"], u.local))
        u[...] = np.random.default_rng(0).random(pen.shape)
    passes = [name for name in names_of_steps(comm, partition) if "add" in name]
    assert everywhere(comm, len(passes) == 3)


def test_several_halos_of_one_value_and_halos_of_inputs(comm):
    pen = pencils.Pencil((2 * comm.size, 3), comm, decomp=0, order=(1, 0))
    x = graph.make_placeholder("x", pen.local_shape, "f4")
    twice = 2 * x
    blocks = {
        "a": (lambda x: 2 * x, twice, 1),
        "b": (lambda x: 2 * x, twice, 2),
        "c": (lambda x: x, x, 1),
        "d": (lambda x: (2 * x).astype("f2"), twice.astype("f2"), 1),
        "e": (lambda x: np.stack([2 * x, x]), np.stack([twice, x]), 1),
        "f": (
            lambda x: np.concatenate([[x], [x.astype(float), -x]]),
            np.concatenate([x[None], np.stack([x.astype(float), -x])]),
            1,
        ),
    }
    halos = {name: graph.halo_exchange(node, pen, halo) for name, (_, node, halo) in blocks.items()}
    outputs = halos | {"twice": twice, "rest": twice + halos["a"][1:-1, 1:-1]}
    partition = graph.find_distributed_partition(comm, outputs)
    mine = np.random.default_rng(0).random(pen.shape, np.float32)[pen.local_slices]
    found = run(comm, partition, x=mine)
    for name, (right, node, halo) in blocks.items():
        u = pencils.zeros(pen, halo=halo, dtype=node.dtype, components=node.shape[:-2])
        u.local[...] = right(mine)
        u.exchange_halo()
        assert everywhere(comm, same(found[name], u.padded))
    assert everywhere(comm, same(found["twice"], 2 * mine) and same(found["rest"], 4 * mine))
    # Only within "f" is another block joined first.
    assert everywhere(comm, names_of_steps(comm, partition).count("stack") == 1)


def test_results_of_programs_that_cannot_be_written(comm):
    pen = pencils.Pencil((2 * comm.size, 3), comm, decomp=0, periodic=True)
    x = graph.make_placeholder("x", pen.local_shape)
    outputs = {"y": graph.halo_exchange(2 * x, pen, 1)}
    partition = graph.find_distributed_partition(comm, outputs)

    def read_only(program):
        def call(queue, **inputs):
            _, results = program(queue, **inputs)
            results = {name: np.array(value) for name, value in results.items()}
            for value in results.values():
                value.flags.writeable = False
            return None, results

        return call

    made = {pid: read_only(each) for pid, each in generate_code_for_partition(partition).items()}
    found = run(comm, partition, made, x=np.ones(pen.local_shape))
    assert everywhere(comm, (found["y"] == 2).all())


# What is passed to one pass.


def test_inputs_of_any_order_of_memory():
    x, y = (graph.make_placeholder(name, (4, 6)) for name in "xy")
    outputs = {"z": x * y - 1, "w": (x + y).T[::-1]}
    partition = graph.find_distributed_partition(MPI.COMM_SELF, outputs)
    one, two = np.random.default_rng(0).random((2, 4, 6))
    wide = np.zeros((9, 14))
    wide[1:5, 2:14:2] = two
    views = [two, np.asfortranarray(two), wide[1:5, 2:14:2], two[::-1, ::-1][::-1, ::-1]]
    views.append(np.broadcast_to(two[:, :1], (4, 6)))
    for _ in range(2):
        for view in views:
            for first in (one, np.asfortranarray(one)):
                found = run(MPI.COMM_SELF, partition, x=first, y=view)
                assert same(found["z"], first * view - 1)
                assert same(found["w"], (first + view).T[::-1])


@pytest.mark.parametrize("made", ["another type", "another shape", "a class", "a scalar"])
def test_functions_of_the_user_may_return_anything(made):
    class Own(np.ndarray):
        """An array that notes what is computed with it."""

        def __array_ufunc__(self, ufunc, method, *inputs, **options):
            noted.append(ufunc.__name__)
            return getattr(ufunc, method)(*map(np.asarray, inputs), **options).view(Own)

    noted = []
    make = {
        "another type": lambda x: x.astype("f4"),
        "another shape": lambda x: x[:1],
        "a class": lambda x: x.view(Own),
        "a scalar": lambda x: x.sum(),
    }[made]
    shape = () if made == "a scalar" else (3,)
    x = graph.make_placeholder("x", (3,))
    node = graph.Call(make, (x,), {}, shape, np.dtype(float)) * 2 + x
    values = np.random.default_rng(0).random(3)
    found = compute(node, x=values)
    expected = make(values) * 2 + values
    assert same(np.asarray(found), np.asarray(expected))
    assert noted == (["multiply", "add"] * 2 if made == "a class" else [])


def test_arrays_of_a_graph_may_change():
    weights, number, single = np.arange(3.0), np.array(2.0), np.array(2.0, "f4")
    x = graph.make_placeholder("x", (3,))
    node = x * weights + number * graph.make_data_wrapper(weights) + 2.0 * x + single * x
    partition = graph.find_distributed_partition(MPI.COMM_SELF, {"y": node})
    for n in range(3):
        weights += n
        number += n
        single += n
        found = run(MPI.COMM_SELF, partition, x=np.ones(3))
        assert same(found["y"], weights + number * weights + 2 + single)


# Errors.


def test_errors_tell_the_nodes():
    x = graph.make_placeholder("x", (3,))
    y = 1 / (2 * x)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError) as caught:
        compute(y, x=np.zeros(3))
    note = "in a node of a graph: multiply, divide(float64 of shape (3,))"
    assert caught.value.__notes__ == [note]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        compute(y, x=np.zeros(3))
    assert [str(each.message) for each in found] == ["divide by zero encountered in divide"]


@pytest.mark.parallel([2, 3, 4, 6])
def test_an_error_in_a_pass_reaches_the_ranks_that_wait(comm):
    x = graph.make_placeholder("x", (3,))
    node = send(comm, 1 / x + 1, x) + receive(comm)
    partition = graph.find_distributed_partition(comm, {"y": node})
    call = partial(run, comm, partition, x=np.full(3, float(comm.rank > 0)))
    with np.errstate(divide="raise"):
        try:
            call()
            kind = None
        except (FloatingPointError, graph.ExecutionError) as error:
            kind = type(error)
    expected = [None] * comm.size
    expected[:2] = FloatingPointError, graph.ExecutionError
    assert comm.allgather(kind) == expected
    found = run(comm, partition, x=np.ones(3))
    assert everywhere(comm, same(found["y"], np.full(3, 3.0)))
