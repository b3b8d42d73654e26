"""Graphs for tests: computed on one process, or cut for many ranks without MPI."""

from mpi4py import MPI

from pencils import graph
from pencils.graph.finding import cut, plan, trace


def compute(outputs, **inputs):
    """Compute outputs, one or a dict of them, on this process alone."""
    named = outputs if isinstance(outputs, dict) else {"it": outputs}
    partition = graph.find_distributed_partition(MPI.COMM_SELF, named)
    found = graph.execute_distributed_partition(
        partition, None, None, MPI.COMM_SELF, input_args=inputs
    )
    return found if isinstance(outputs, dict) else found["it"]


def cut_all(*outputs):
    """Play all ranks: cut the graph of each, given the outputs of each."""
    traced = [trace(mine, rank, len(outputs)) for rank, mine in enumerate(outputs)]
    planned = plan([each.report for each in traced])
    return [cut(each, rank, planned) for rank, each in enumerate(traced)]
