"""Collective calls on arrays: blocking, nonblocking, persistent; in place; all v and w forms."""

import numpy as np
from mpi4py import MPI

from .case import DTYPES, call, complete, free


def code_of(dtype):
    return MPI.Datatype.fromcode(np.dtype(dtype).char)


def spec(case, array, blocks=1):
    """Give the buffer in one of the forms that mpi4py takes. A count is that of one block."""
    form = case.choose("spec", ["array", "type", "count", "string"])
    if form == "type":
        return [array, code_of(array.dtype)]
    if form == "count":
        return [array, array.size // (blocks or 1), code_of(array.dtype)]
    if form == "string":
        return (array, array.dtype.char)
    return array


def some_dtype(case):
    return case.choose("dtype", DTYPES)


def some_root(case):
    return case.integer("root", 0, case.size - 1)


def some_counts(case, name="counts", count=None):
    return case.integers(name, 0, 4, case.size if count is None else count)


def vector(case, array, counts, gaps):
    """Give the buffer of a v form, with or without displacements."""
    form = case.choose("vector", ["displacements", "displacements", "packed", "typed"])
    displacements = starts_of(counts, gaps)
    if form == "packed" and not any(gaps):
        return [array, counts]
    if form == "typed":
        return [array, counts, displacements, code_of(array.dtype)]
    return [array, (counts, displacements)]


def starts_of(counts, gaps):
    """Return where each block starts: after the gap that belongs to it."""
    return [sum(counts[:i]) + sum(gaps[: i + 1]) for i in range(len(counts))]


def some_gaps(case, count=None):
    count = case.size if count is None else count
    return case.integers("gaps", 0, 2, count) if case.flag("gap") else [0] * count


def bcast(case):
    dtype, root, count = some_dtype(case), some_root(case), case.choose("count", [0, 1, 7, 5000])
    data = case.data(dtype, count, root)
    result = data if case.rank == root else np.zeros_like(data)
    buffer = spec(case, result)
    if case.flag("bytes"):
        buffer = [result.view("u1"), result.nbytes, MPI.BYTE]
    call(case, "Bcast", buffer, root)
    return result


def rooted(verb, *, varies):
    """Make the operation for Gather, Scatter, Gatherv or Scatterv."""

    def run(case):
        dtype, root = some_dtype(case), some_root(case)
        gathers, is_root = verb.startswith("Gather"), case.rank == root
        if varies:
            counts, gaps = some_counts(case), some_gaps(case)
        else:
            counts, gaps = [case.choose("count", [0, 1, 6, 3000])] * case.size, [0] * case.size
        own, whole = counts[case.rank], sum(counts) + sum(gaps)
        start = starts_of(counts, gaps)[root]
        in_place = case.flag("in_place") and is_root
        data = case.data(dtype, own if gathers else whole, case.rank if gathers else root)
        result = np.zeros(whole if gathers else own, dtype)
        if in_place and gathers:
            result[start : start + own] = data
        part, parts = (data, result) if gathers else (result, data)
        part = spec(case, part)
        parts = vector(case, parts, counts, gaps) if varies else spec(case, parts, case.size)
        part, parts = MPI.IN_PLACE if in_place else part, parts if is_root else None
        call(case, verb, *((part, parts) if gathers else (parts, part)), root)
        return result

    return run


def allgatherv(case):
    dtype, counts, gaps = some_dtype(case), some_counts(case), some_gaps(case)
    data = case.data(dtype, counts[case.rank], case.rank)
    result = np.zeros(sum(counts) + sum(gaps), dtype)
    send = spec(case, data)
    if case.flag("in_place"):
        start = starts_of(counts, gaps)[case.rank]
        send, result[start : start + data.size] = MPI.IN_PLACE, data
    call(case, "Allgatherv", send, vector(case, result, counts, gaps))
    return result


def exchanged(verb):
    """Make the operation for Allgather or Alltoall."""

    def run(case):
        dtype, count = some_dtype(case), case.choose("count", [0, 1, 6, 2500])
        rows = case.size if verb == "Alltoall" else 1
        data, result = (
            case.data(dtype, (rows, count), case.rank),
            np.zeros((case.size, count), dtype),
        )
        send = spec(case, data, rows)
        in_place = case.flag("in_place")
        if in_place:
            send, result[case.rank if rows == 1 else ...] = MPI.IN_PLACE, data
        again = verb == "Allgather" or not in_place
        call(case, verb, send, spec(case, result, case.size), again=again)
        return result

    return run


def alltoallv(case):
    dtype, size = some_dtype(case), case.size
    in_place = case.flag("in_place")
    table = np.reshape(case.integers("counts", 0, 4, size * size), (size, size))
    table = np.minimum(table, table.T) if in_place else table
    gaps, gaps_back = some_gaps(case), some_gaps(case)
    counts, counts_back = table[case.rank].tolist(), table[:, case.rank].tolist()
    data = case.data(dtype, sum(counts) + sum(gaps), case.rank)
    result = np.zeros(sum(counts_back) + sum(gaps_back), dtype)
    send = vector(case, data, counts, gaps)
    if in_place:
        send, result = MPI.IN_PLACE, case.data(dtype, result.size, case.rank)
    receive = vector(case, result, counts_back, gaps_back)
    call(case, "Alltoallv", send, receive, again=not in_place)
    return result


def alltoallw(case):
    """Send rows of a matrix, receive columns, each with a datatype of its own."""
    size, rows = case.size, case.integer("rows", 1, 3)
    names = case.choose("types", [("DOUBLE",), ("INT32_T", "DOUBLE"), ("SHORT", "BYTE", "FLOAT")])
    types = [getattr(MPI, name) for name in names]
    pick = [[types[(i + j) % len(types)] for j in range(size)] for i in range(size)]
    room, rank = 8 * 2 * rows + 8, case.rank
    sends, receives = pick[rank], [pick[i][rank] for i in range(size)]
    columns = [t.Create_vector(rows, 1, 2).Commit() for t in receives]
    counts = case.integers("counts", 0, 1, size * size)
    data, result = case.data("u1", size * room, rank), np.zeros(size * room, "u1")
    places = [room * i for i in range(size)]
    out = [rows * counts[rank * size + j] for j in range(size)]
    back = [counts[i * size + rank] for i in range(size)]
    send, receive = [data, out, places, sends], [result, (back, places), columns]
    call(case, "Alltoallw", send, receive)
    free(*columns)
    return result


def derived(case):
    """Bcast, Gather and Alltoall with a derived datatype."""
    stride, root = case.integer("stride", 2, 3), some_root(case)
    made = MPI.DOUBLE.Create_vector(3, 1, stride)
    made = [made, made.Create_resized(0, 8 * 10).Commit()]
    data, result = case.data("f8", 10 * case.size, case.rank), np.zeros(10 * case.size)
    verb = case.choose("verb", ["Bcast", "Gather", "Alltoall", "Allgather", "Scatter"])
    send, receive = [data, 1, made[1]], [result, 1, made[1]]
    if verb == "Bcast":
        call(case, verb, send, root)
        result = data
    elif verb in {"Gather", "Scatter"}:
        call(case, verb, send, receive, root)
    else:
        call(case, verb, send, receive)
    free(*made)
    return result


def overlapping(case):
    """Start several collective calls, and complete them in another order."""
    number = case.integer("calls", 2, 6)
    kinds = [
        case.choose("verb", ["Ibcast", "Iallreduce", "Ibarrier", "Iallgather", "Ialltoall"])
        for _ in range(number)
    ]
    roots = case.integers("roots", 0, case.size - 1, number)
    order, together = case.order(number), case.flag("waitall")
    requests, results, alive = [], [], []
    for i, (kind, root) in enumerate(zip(kinds, roots, strict=True)):
        data, result = case.data("i8", case.size, case.rank, i), np.zeros(case.size, "i8")
        if kind == "Ibarrier":
            request = case.comm.Ibarrier()
        elif kind == "Ibcast":
            request, result = case.comm.Ibcast(data, root), data
        elif kind == "Iallgather":
            request = case.comm.Iallgather(data[:1], result)
        else:
            request = getattr(case.comm, kind)(data, result)
        requests.append(request)
        results.append(result)
        alive.append(data)
    if together:
        MPI.Request.Waitall(requests)
    else:
        for i in order:
            complete(requests[i], "wait")
    return results
