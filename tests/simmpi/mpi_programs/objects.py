"""Collective calls on Python objects: the lower-case methods."""

from mpi4py import MPI

from .collectives import some_root


def item_of(case, rank, *key):
    """Make an object of rank."""
    return {"rank": rank, "list": case.data("i8", rank % 3 + 1, rank, *key).tolist(), "key": key}


def moves(case):
    """Move objects by any collective, twice."""
    comm, root = case.comm, some_root(case)
    is_root = case.rank == root
    mine, every = item_of(case, case.rank), [item_of(case, rank) for rank in range(case.size)]
    calls = {
        "bcast": lambda: comm.bcast(mine if is_root else None, root),
        "gather": lambda: comm.gather(mine, root),
        "scatter": lambda: comm.scatter(every if is_root else None, root),
        "allgather": lambda: comm.allgather(mine),
        "alltoall": lambda: comm.alltoall([item_of(case, case.rank, n) for n in range(case.size)]),
        "barrier": comm.barrier,
    }
    return [calls[case.choose("verb", calls)]() for _ in range(2)]


REDUCED = {
    "SUM": lambda rank: f"<{rank}>",
    "PROD": lambda rank: rank + 1,
    "MAX": lambda rank: (rank % 2, rank),
    "MAXLOC": lambda rank: (rank % 2, rank),
    "MINLOC": lambda rank: (rank % 2, rank),
    "BOR": lambda rank: {rank},
    "LAND": lambda rank: rank > 0,
    "function": lambda rank: [rank],
}


def reductions(case):
    """Reduce objects: with predefined operations, and with any function, in the order of ranks."""
    verb = case.choose("verb", ["reduce", "allreduce", "scan", "exscan"])
    name, root = case.choose("op", REDUCED), some_root(case)
    operation = (lambda a, b: [*a, *b]) if name == "function" else getattr(MPI, name)
    item = REDUCED[name](case.rank)
    arguments = [root] if verb == "reduce" else []
    result = getattr(case.comm, verb)(item, operation, *arguments)
    return sorted(result) if isinstance(result, set) else result


def defaults(case):
    """Call without the optional arguments."""
    verbs = ["bcast", "gather", "reduce", "allreduce", "scan", "exscan"]
    found = [getattr(case.comm, verb)(case.rank) for verb in verbs]
    return [*found, case.comm.scatter(list(range(case.size)))]


def large(case):
    """Move objects that do not fit into small messages."""
    root = some_root(case)
    text = "x" * case.choose("size", [70_000, 300_000])
    found = case.comm.bcast(text if case.rank == root else None, root)
    parts = case.comm.allgather(text[: case.rank * 30_000])
    return [len(found), [len(part) for part in parts]]
