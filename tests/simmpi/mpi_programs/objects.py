"""Collective calls on Python objects: the lower-case methods."""

from mpi4py import MPI

from .collectives import some_root


def item_of(case, rank, *key):
    """Make an object of rank."""
    return {"rank": rank, "list": case.data("i8", rank % 3 + 1, rank, *key).tolist(), "key": key}


def bcast(case):
    root = some_root(case)
    return case.comm.bcast(item_of(case, root) if case.rank == root else None, root)


def gather(case):
    return case.comm.gather(item_of(case, case.rank), some_root(case))


def scatter(case):
    root = some_root(case)
    items = [item_of(case, rank) for rank in range(case.size)]
    return case.comm.scatter(items if case.rank == root else None, root)


def allgather(case):
    return case.comm.allgather(item_of(case, case.rank))


def alltoall(case):
    return case.comm.alltoall([item_of(case, case.rank, dest) for dest in range(case.size)])


def barrier(case):
    return case.comm.barrier()


def concatenate(a, b):
    return [*a, *b]


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
    operation = concatenate if name == "function" else getattr(MPI, name)
    item = REDUCED[name](case.rank)
    arguments = [root] if verb == "reduce" else []
    result = getattr(case.comm, verb)(item, operation, *arguments)
    return sorted(result) if isinstance(result, set) else result


def defaults(case):
    """Call without the optional arguments."""
    comm = case.comm
    return [
        comm.bcast(case.rank),
        comm.gather(case.rank),
        comm.reduce(case.rank),
        comm.allreduce(case.rank),
        comm.scan(case.rank),
        comm.exscan(case.rank),
        comm.scatter(list(range(case.size))),
    ]


def large(case):
    """Move objects that do not fit into small messages."""
    root = some_root(case)
    text = "x" * case.choose("size", [70_000, 300_000])
    found = case.comm.bcast(text if case.rank == root else None, root)
    parts = case.comm.allgather(text[: case.rank * 30_000])
    return [len(found), [len(part) for part in parts]]
