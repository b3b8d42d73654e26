"""Random MPI programs without races: each has one result on every MPI library.

`program` draws the operations of a program from a seed, and `execute` runs them on the ranks of
``MPI.COMM_WORLD``. An operation is a function that takes a `Case`. All its random choices are the
same on all ranks of its communicator. The communicators that operations make are used by later
operations, and freed at the end. On a rank without the communicator, an operation does nothing.
"""

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from . import (
    collectives,
    communicators,
    groups,
    neighbours,
    objects,
    point_to_point,
    reductions,
    requests,
    windows,
)
from .case import Case, call, free, plain

ANY = [
    ("messages", 6, point_to_point.script),
    ("exchange", 6, point_to_point.exchange),
    ("ring", 3, point_to_point.ring),
    ("gather any", 2, point_to_point.gather_any),
    ("errors", 1, point_to_point.errors),
    ("persistent", 3, requests.persistent),
    ("no process", 1, requests.no_process),
    ("null requests", 1, requests.null_requests),
    ("cancelled", 1, requests.cancelled),
    ("buffered", 1, requests.buffered),
    ("ready", 1, requests.ready),
    ("pickled requests", 2, requests.pickled_requests),
    ("Barrier", 1, lambda case: call(case, "Barrier")),
    ("Bcast", 2, collectives.bcast),
    ("Gather", 2, collectives.rooted("Gather", varies=False)),
    ("Scatter", 2, collectives.rooted("Scatter", varies=False)),
    ("Gatherv", 2, collectives.rooted("Gatherv", varies=True)),
    ("Scatterv", 2, collectives.rooted("Scatterv", varies=True)),
    ("Allgather", 2, collectives.exchanged("Allgather")),
    ("Allgatherv", 2, collectives.allgatherv),
    ("Alltoall", 2, collectives.exchanged("Alltoall")),
    ("Alltoallv", 2, collectives.alltoallv),
    ("Alltoallw", 2, collectives.alltoallw),
    ("derived datatype", 2, collectives.derived),
    ("overlapping", 3, collectives.overlapping),
    ("Reduce", 2, reductions.reduced("Reduce")),
    ("Allreduce", 3, reductions.reduced("Allreduce")),
    ("Scan", 2, reductions.reduced("Scan")),
    ("Exscan", 2, reductions.reduced("Exscan")),
    ("Reduce_scatter", 2, reductions.scattered("Reduce_scatter")),
    ("Reduce_scatter_block", 2, reductions.scattered("Reduce_scatter_block")),
    ("MAXLOC", 2, reductions.locations),
    ("own operation", 2, reductions.own_operation),
    ("wrong operation", 1, reductions.wrong_operation),
    ("objects", 5, objects.moves),
    ("reduce", 3, objects.reductions),
    ("defaults", 1, objects.defaults),
    ("large objects", 1, objects.large),
    ("fewer ranks", 2, communicators.fewer),
    ("no topology", 1, neighbours.no_topology),
    ("group arithmetic", 2, groups.arithmetic),
    ("empty group", 1, groups.empty_group),
    ("Compare", 1, groups.compare),
    ("names", 1, groups.names),
    ("attributes", 2, groups.attributes),
    ("freed", 1, groups.freed),
    ("identity", 1, groups.identity),
    ("window accesses", 6, windows.accesses),
    ("window requests", 2, windows.request_accesses),
    ("window counters", 2, windows.counters),
    ("shared memory", 2, windows.shared),
    ("ask window", 1, windows.ask),
    ("strided window", 1, windows.targets),
    ("locks", 1, windows.locks),
    ("flag", 1, windows.flag),
    ("spins", 1, windows.spins),
    ("dynamic window", 1, windows.dynamic),
]
if "Open MPI" not in MPI.Get_library_version():  # which does not notice some errors
    ANY.append(("mistakes with windows", 1, windows.mistakes))
TOPOLOGICAL = [
    ("Neighbor_allgather", 2, neighbours.neighbor_equal("Neighbor_allgather")),
    ("Neighbor_allgatherv", 2, neighbours.neighbor_allgatherv),
    ("Neighbor_alltoall", 3, neighbours.neighbor_equal("Neighbor_alltoall")),
    ("Neighbor_alltoallv", 3, neighbours.neighbor_varying("Neighbor_alltoallv")),
    ("Neighbor_alltoallw", 2, neighbours.neighbor_varying("Neighbor_alltoallw")),
    ("neighbor objects", 2, neighbours.neighbor_objects),
    ("ask topology", 3, neighbours.ask_cart),
]
MAKERS = [
    ("Dup", 2, communicators.dup),
    ("Split", 3, communicators.split),
    ("Split_type", 1, communicators.split_type),
    ("Create", 3, communicators.create),
    ("Create_cart", 4, communicators.cart),
    ("Create_graph", 1, communicators.graph),
    ("Create_dist_graph", 3, communicators.dist_graph),
]
SUB = ("Sub", 4, communicators.cart_sub)
FUNCTIONS = {name: function for name, _, function in [*ANY, *MAKERS, SUB, *TOPOLOGICAL]}
MAKES = {name for name, *_ in [*MAKERS, SUB]}
TOPOLOGIES = {"Create_cart", "Create_graph", "Create_dist_graph", "Sub"}


@dataclass(frozen=True)
class Operation:
    """One operation of a program, on the communicator that was made as number ``slot``."""

    index: int
    name: str
    slot: int
    seed: int


def program(seed, length=40):
    """Draw the operations of a program: on a new communicator about every sixth.

    Every thousandth program has each operation once.
    """
    rng = np.random.default_rng(seed)
    if seed % 1000 == 0:
        return [
            Operation(index, name, slot, int(rng.integers(1 << 30)))
            for index, (name, slot) in enumerate(every_operation())
        ]
    slots = ["world"]
    operations = []
    for index in range(length):
        slot = int(rng.integers(len(slots))) if rng.random() < 0.6 else 0
        topological = [i for i, name in enumerate(slots) if name in TOPOLOGIES]
        grids = [i for i, name in enumerate(slots) if name in {"Create_cart", "Sub"}]
        if rng.random() < 0.18:
            name = draw(rng, [*MAKERS, SUB] if grids else MAKERS)
            slot = int(rng.choice(grids)) if name == "Sub" else slot
            if slots[slot] in TOPOLOGIES and name in {"Create_graph", "Create_dist_graph"}:
                slot = 0  # with Open MPI 5.0 the new one would have both topologies
            slots.append(name)
        elif topological and rng.random() < 0.3:
            name, slot = draw(rng, TOPOLOGICAL), int(rng.choice(topological))
        else:
            name = draw(rng, ANY)
        operations.append(Operation(index, name, slot, int(rng.integers(1 << 30))))
    return operations


def every_operation():
    """List all operations, on the world or on a grid of it."""
    makers, others, topological = (
        [name for name, *_ in table] for table in (MAKERS, ANY, TOPOLOGICAL)
    )
    grid = 1 + makers.index("Create_cart")
    on_grid = [(name, grid) for name in ("Sub", *topological)]
    return [(name, 0) for name in (*makers, *others)] + on_grid


def draw(rng, options):
    """Choose a name by weight."""
    weights = np.array([weight for _, weight, _ in options], float)
    return options[rng.choice(len(options), p=weights / weights.sum())][0]


def execute(operations, report=None):
    """Run a program on all ranks; return (or append to ``report``) text and result of each step."""
    report = [] if report is None else report
    slots = [MPI.COMM_WORLD]
    for operation in operations:
        case = Case(operation.index, operation.seed, operation.slot, slots)
        report.append([operation.name, "did not return"])
        try:
            result = run(operation, case)
        finally:
            report[-1][0] = case.text(operation.name)
        report[-1][1] = plain(result)
    windows.KEPT.clear()
    free(*slots[1:])
    return report


def run(operation, case):
    """Run one operation on this rank, and add the communicator that it makes."""
    member = case.comm != MPI.COMM_NULL
    result = FUNCTIONS[operation.name](case) if member else "not a member"
    if operation.name not in MAKES:
        return result
    made = result if member else MPI.COMM_NULL
    case.slots.append(made)
    return [made.Get_rank(), made.Get_size()] if made else "no communicator"
