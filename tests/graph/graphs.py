"""Graphs for tests: computed on one or all processes, or partitioned without MPI."""

import numpy as np
from mpi4py import MPI

from pencils import graph
from pencils.graph.execute import generate_code_for_partition
from pencils.graph.find import RankGraph, partition_graph
from pencils.graph.verify import order_messages


def run(comm, partition, programs=None, /, **inputs):
    return graph.execute_distributed_partition(partition, programs, None, comm, input_args=inputs)


def execute(comm, outputs, programs=None, /, **inputs):
    """Find the partition of a graph, verify and execute it."""
    partition = graph.find_distributed_partition(comm, outputs)
    graph.verify_distributed_partition(comm, partition)
    made = generate_code_for_partition(partition) if programs else None
    return run(comm, partition, made, **inputs)


def compute(outputs, **inputs):
    """Compute outputs, one or a dict of them, on this process alone."""
    named = outputs if isinstance(outputs, dict) else {"it": outputs}
    partition = graph.find_distributed_partition(MPI.COMM_SELF, named)
    found = run(MPI.COMM_SELF, partition, **inputs)
    return found if isinstance(outputs, dict) else found["it"]


def partition_all(*outputs):
    """Partition the graphs of all ranks in one process, given the outputs of each."""
    graphs = [RankGraph(mine, rank, len(outputs)) for rank, mine in enumerate(outputs)]
    order = order_messages([each.report for each in graphs])
    return [partition_graph(each, *order) for each in graphs]


def send(comm, data, onto, tag="ring", by=1):
    """Send data to the next rank."""
    return graph.staple_distributed_send(data, (comm.rank + by) % comm.size, tag, onto)


def receive(comm, tag="ring", shape=(3,), dtype=float, *, by=1, **options):
    """Receive what the rank before sends."""
    source = (comm.rank - by) % comm.size
    return graph.make_distributed_recv(source, tag, shape, dtype, **options)


def ring(comm, shape=(3,), dtype=float, tag="ring"):
    """Graph in which every rank adds what it has to twice what the rank before has."""
    x = graph.make_placeholder("x", shape, dtype)
    return {"y": send(comm, 2 * x, x, tag) + receive(comm, tag, shape, dtype)}


def expected(comm, shape=(3,)):
    return np.full(shape, comm.rank + 2.0 * ((comm.rank - 1) % comm.size))
