"""Helpers of the MPI tests: equal data, equal results of checks, and equal errors on all ranks.

If an assertion failed on one rank only, the other ranks would wait in the next collective call.
Therefore all assertions here have the same result on all ranks.
"""

import os
import subprocess
import sys
import traceback
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest
import tiers
from mpi4py import MPI

import pencils
from pencils import dap
from pencils.comm.methods import METHODS as EVERY_METHOD
from pencils.comm.methods import Shared
from pencils.comm.topology import private_class, topology_of
from simmpi.process import PerProcess
from simmpi.world import active

DTYPES = [
    np.dtype(kind)
    for kind in ("f8", "f4", "f2", "g", "c16", "c8", "i1", "u8", "?", ">f8", ">i2", "S3", "M8[s]")
] + [np.dtype([("mass", ">f4"), ("at", "i2", (3,)), ("gone", "?")])]

# Into which node of several ones tests divide the node of each rank.
NODES = {
    "real nodes": lambda _rank, _size: 0,
    "even and odd": lambda rank, _size: rank % 2,
    "two halves": lambda rank, size: int(2 * rank >= size),
    "one rank apart": lambda rank, size: int(rank == size - 1),
    "three nodes": lambda rank, _size: rank % 3,
}


def real_nodes():
    """Return the lowest rank on the node of each rank. *Collective*, but on simulated ranks."""
    world = MPI.COMM_WORLD
    if active() is not None:
        return [active().nodes.index(node) for node in active().nodes]
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    lowest = node.allreduce(world.rank, op=MPI.MIN)
    node.Free()
    return world.allgather(lowest)


REAL_NODES = real_nodes()
ON_ONE_NODE = len(set(REAL_NODES)) == 1
one_node = pytest.mark.skipif(not ON_ONE_NODE, reason="for ranks that all share memory")


def reaching(methods):
    """Return those of these methods of exchange that reach all ranks."""
    return [method for method in methods if ON_ONE_NODE or method != Shared.name]


METHODS = reaching(EVERY_METHOD)


def nodes_of(name):
    """Return a number for the node of each rank, where nodes are divided as `name` says."""
    size = MPI.COMM_WORLD.size
    parts = [(real, NODES[name](rank, size)) for rank, real in enumerate(REAL_NODES)]
    return [parts.index(part) for part in parts]


def ways_of(methods):
    """Return every method on the real nodes, and those between nodes on each division of them.

    Divisions that are equal for these ranks appear once. Without ``--all``, nodes of neighbouring
    ranks are left out: a special case of nodes whose ranks alternate.
    """
    found = {}
    for name in NODES:
        found.setdefault(tuple(nodes_of(name)), name)
    several = [name for name in found.values() if tiers.ALL or name != "two halves"]
    real = [("real nodes", method) for method in reaching(methods)]
    between = [method for method in ("hybrid", "gathered") if method in ("hybrid", *methods)]
    return real + [(name, method) for name in several[1:] for method in between]


def mark_ways(methods):
    """Make a mark that runs a test with each of these methods, on nodes divided for it."""
    ways = ways_of(methods)
    ids = [method if nodes == "real nodes" else f"{method} {nodes}" for nodes, method in ways]
    return pytest.mark.parametrize(("comm", "method"), ways, indirect=["comm"], ids=ids)


ways = mark_ways(METHODS)


def on_nodes(nodes):
    """Return a communicator of all ranks, whose nodes are divided as that name says.

    It is kept for other tests. *Collective* the first time.
    """
    world = MPI.COMM_WORLD
    if nodes == "real nodes":
        return world
    if nodes not in kept_comms():
        kept_comms()[nodes] = private = world.Dup()
        pretend_nodes(private, nodes_of(nodes)[world.rank])
    return kept_comms()[nodes]


kept_comms = PerProcess(dict)  # those of `on_nodes`, by name


def pretend_nodes(comm, number):
    """Divide the nodes of an unused communicator: ranks on a node that pass the same number."""
    topology = topology_of(comm)
    whole = topology.node
    topology._made["node"] = MPI.Intracomm(whole.Split(number, comm.rank))
    whole.Free()


COLLECTIVES = (
    *("Barrier", "Allgather", "Allreduce", "Alltoall", "Bcast", "Ibarrier", "Iallreduce"),
    *("allgather", "allreduce", "alltoall", "bcast", "Split", "Split_type", "Allgatherv"),
    *("Alltoallv", "Alltoallw", "Gather", "Gatherv", "Reduce", "Scan", "Exscan", "Scatterv"),
    *("barrier", "gather", "reduce", "scan", "exscan", "scatter", "Dup", "Create"),
)


class Called(str):
    """The name of a collective that was called, and the communicator."""

    __slots__ = ("comm",)

    def __new__(cls, name, comm):
        made = super().__new__(cls, name)
        made.comm = comm
        return made


@contextmanager
def collectives():
    """List the collectives of this rank, by name, on private communicators made in the block."""
    calls = []

    def counted(name):
        def method(self, *args, **kwargs):
            calls.append(Called(name, self))
            return getattr(usual, name)(self, *args, **kwargs)

        return method

    usual = private_class()
    private_class.replace(type("Counted", (usual,), {name: counted(name) for name in COLLECTIVES}))
    try:
        yield calls
    finally:
        private_class.replace(usual)


def calls_of(function):
    """Count the calls of functions, in Python and in C, of which one consists."""
    calls = count()  # a list would take memory that results of the function had
    sys.setprofile(lambda _frame, event, _arg: "call" in event and next(calls))
    try:
        function()
    finally:
        sys.setprofile(None)
    return next(calls)


def count_calls(function):
    """Count as `calls_of`, in the best of many calls.

    The others may collect objects, or get results at places in memory for which nothing is
    prepared: the allocator chooses these.
    """
    return min(calls_of(function) for _ in range(40))


def everywhere(comm, verdict):
    """Whether the verdict is true on all ranks. *Collective*."""
    return all(comm.allgather(bool(verdict)))


@contextmanager
def one_after_the_other(comm):
    """Run the block on one rank after the other, in rising order."""
    if comm.rank > 0:
        comm.recv(source=comm.rank - 1)
    yield
    if comm.rank + 1 < comm.size:
        comm.send(None, comm.rank + 1)


def other_blocks(pencil):
    """Return a pencil with other blocks; of another shape only if there is one process."""
    for dim in range(pencil.ndim):
        other = pencil.with_(decomp=dim)
        if not other.same_blocks(pencil):
            return other
    return pencil.with_(shape=[extent + 2 for extent in pencil.shape])


def all_raise(comm, kind, texts, function, /, *args, **options):
    """Check that a call raises this class on every rank, with the text or texts in the message."""
    error = None
    try:
        function(*args, **options)
    except Exception as raised:  # noqa: BLE001 - checked below, on all ranks
        error = raised
    said = comm.allgather((type(error).__name__, str(error)))
    assert {name for name, _ in said} == {kind.__name__}, said
    for text in (texts,) if isinstance(texts, str) else texts:
        assert all(text in message for _, message in said), (text, said)


def ranks_at_fault(comm):
    """Return the ranks on which tests make mistakes in turn: the first and the last."""
    return sorted({0, comm.size - 1})


def named(comm, rank):
    """Return how the message of an error on one rank begins, if there are several ranks."""
    return f"rank {rank}: " if comm.size > 1 else ""


def one_is_wrong(comm, kind, text, *, call, bad, good, after=None):
    """Check that ``call(bad)`` on one rank raises everywhere, and that `after` works afterwards."""
    for rank in ranks_at_fault(comm):
        mine = bad if comm.rank == rank else good
        all_raise(comm, kind, (named(comm, rank), text), call, mine)
        if after is not None:
            after()


def python(*args, cwd=None, stdin="", without=(), **variables):
    """Run ``python *args`` with other variables of the environment; return what it prints."""
    env = {name: value for name, value in os.environ.items() if name not in without} | variables
    return subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def forked(work, *args):
    """Start a function in a copy of this process, which is quicker than a new one; its number."""
    child = os.fork()
    if child:
        return child
    try:
        work(*args)
    except BaseException:  # noqa: BLE001 - the parent sees the status
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def ended(*children):
    """Wait until such processes have ended; their statuses."""
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def numbered(shape, dtype=float):
    """Return global data in which neighbours differ, the same on every rank."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype.names:
        data = np.empty(shape, dtype)
        for name in dtype.names:
            field = data[name]
            field[...] = numbered(field.shape, field.dtype)
        return data
    values = np.arange(count) % 113 + 1
    if dtype.kind == "b":
        values = values % 3 == 0
    if dtype.kind == "c":
        values = values - 1j * values[::-1]
    return values.astype(dtype).reshape(shape)


def same(one, other):
    """Whether two arrays are equal in shape, element type and every element."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.dtype.names:  # NumPy does not compare structures of arrays well; these have no padding
        return one.tobytes() == other.tobytes()
    return np.array_equal(one, other)


def spread(pencil, data, *, halo=0, dims=None):
    """Return a field with global data (of extent 1 along singletons), without `partition`."""
    components = data.shape[: data.ndim - pencil.ndim]
    field = pencils.empty(pencil, dtype=data.dtype, components=components, halo=halo, dims=dims)
    field.local[...] = data[field.local_slices]
    return field


def holds(field, data):
    """Whether the block of this rank is its part of global data."""
    return field.shape == data.shape and same(field.local, data[field.local_slices])


def exported_array(field, exported):
    """Assemble the global array from the exports of all ranks. *Collective*."""
    comm = dap.comm(field)
    dist = dap.validate_on(comm, exported)
    found = np.zeros(dist.global_shape, field.dtype)
    slices = dap.validate(exported).owned_slices
    for rank, block in enumerate(comm.allgather(np.ascontiguousarray(exported["buffer"][slices]))):
        found[np.ix_(*(np.asarray(owned, dtype=int) for owned in dist.owned(rank)))] = block
    return found


class Spy:
    """A communicator that records calls, and the rank and size of each message."""

    def __init__(self, comm):
        self._comm = comm
        self.calls = []
        self.sent = []

    def __getattr__(self, name):
        value = getattr(self._comm, name)
        if not callable(value):
            return value

        def call(*args):
            self.calls.append(name)
            if name == "Send_init":
                self.sent.append((args[1], args[0].nbytes))
            return value(*args)

        return call


def spy_on(exchange):
    """Record the messages of an exchange by messages that was not started yet."""
    (method,) = exchange._methods
    method.comm = Spy(method.comm)
    return method.comm


def random_grid(rng, size, ndim):
    """Draw the numbers of processes along every dimension."""
    grid = [1] * ndim
    for prime in (2, 3, 5):
        while size % prime == 0:
            size //= prime
            grid[rng.integers(ndim)] *= prime
    grid[0] *= size
    return grid


def random_pencil(rng, comm, shape):
    """Return a pencil with a random decomposition, process grid, memory order and splits."""
    ndim = len(shape)
    decomp = rng.permutation(ndim)[: rng.integers(1, ndim + 1)].tolist()
    grid = random_grid(rng, comm.size, len(decomp))
    parts = dict(zip(decomp, grid, strict=True))
    splits = [random_split(rng, points, parts.get(dim, 1)) for dim, points in enumerate(shape)]
    return pencils.Pencil(
        shape, comm, decomp=decomp, grid=grid, order=rng.permutation(ndim).tolist(), splits=splits
    )


def random_field(rng, comm, dtypes=DTYPES, *, wraps=False):
    """Return any field on any pencil, and the global data it holds.

    A halo along a dimension needs that the field varies along it.
    """
    shape = tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 4)))
    pencil = random_pencil(rng, comm, shape)
    if wraps:
        pencil = pencil.with_(periodic=[bool(each) for each in rng.integers(0, 2, len(shape))])
    dims = [dim for dim in range(len(shape)) if rng.random() < 0.7]
    varied = tuple(n if dim in dims else 1 for dim, n in enumerate(shape))
    components = tuple(int(n) for n in rng.integers(1, 3, rng.integers(0, 3)))
    data = numbered(components + varied, dtypes[rng.integers(len(dtypes))])
    halo = [int(rng.integers(0, 2)) * (dim in dims) for dim in range(len(shape))]
    return spread(pencil, data, halo=halo, dims=dims), data


def random_split(rng, points, parts):
    if rng.random() < 0.5:
        return str(rng.choice(["first", "last", "floor", "ceil"]))
    return [0, *np.sort(rng.integers(0, points + 1, parts - 1)).tolist(), points]
