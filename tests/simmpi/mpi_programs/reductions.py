"""Reductions: all operations on all types, pairs of value and index, operations of users."""

import numpy as np
from mpi4py import MPI

from .case import COMPLEX, FLOATS, INTEGERS, call, error_of
from .collectives import some_counts, some_root, spec

ARITHMETIC = ("SUM", "PROD", "MAX", "MIN")
LOGICAL = ("LAND", "LOR", "LXOR")
BITWISE = ("BAND", "BOR", "BXOR")
PAIRS = {"DOUBLE_INT": "f8", "FLOAT_INT": "f4", "LONG_INT": "i8", "SHORT_INT": "i2", "TWOINT": "i4"}


def some_reduction(case):
    """Choose an operation, and a type that it takes."""
    kind = case.choose("kind", ["integer", "integer", "float", "complex", "bool"])
    if kind == "integer":
        return case.choose("op", ARITHMETIC + LOGICAL + BITWISE), case.choose("dtype", INTEGERS)
    if kind == "float":
        return case.choose("op", ARITHMETIC), case.choose("dtype", FLOATS)
    if kind == "complex":
        return case.choose("op", ("SUM", "PROD")), case.choose("dtype", COMPLEX)
    return case.choose("op", LOGICAL), "?"


def values(case, op, dtype, shape, *key):
    """Make data whose reduction is exact and does not overflow."""
    data = case.data(dtype, shape, *key, high=2 if op == "PROD" else 9)
    return data % 2 if op in LOGICAL and data.dtype.kind in "iu" else data


def some_size(case):
    return case.choose("count", [0, 1, 5, 4000])


def reduced(verb):
    """Make the operation for Reduce, Allreduce, Scan or Exscan."""

    def run(case):
        (op, dtype), root, count = some_reduction(case), some_root(case), some_size(case)
        is_root = verb != "Reduce" or case.rank == root
        data, in_place = values(case, op, dtype, count, case.rank), case.flag("in_place")
        result = data.copy() if in_place else np.zeros_like(data)
        send, receive = spec(case, data), spec(case, result)
        send, receive = MPI.IN_PLACE if in_place and is_root else send, receive if is_root else None
        more = [root] if verb == "Reduce" else []
        call(case, verb, send, receive, getattr(MPI, op), *more, again=not in_place)
        # The receive buffer of Exscan on the first rank is undefined.
        return None if not is_root or (verb == "Exscan" and case.rank == 0) else result

    return run


def scattered(verb):
    """Make the operation for Reduce_scatter or Reduce_scatter_block."""

    def run(case):
        op, dtype = some_reduction(case)
        if verb == "Reduce_scatter":
            counts = some_counts(case)
        else:
            counts = [case.choose("count", [0, 1, 4, 1000])] * case.size
        data, own = values(case, op, dtype, sum(counts), case.rank), counts[case.rank]
        in_place = case.flag("in_place")
        result, send = (data, MPI.IN_PLACE) if in_place else (np.zeros(own, dtype), data)
        more = [counts] if verb == "Reduce_scatter" else []
        call(case, verb, send, result, *more, getattr(MPI, op), again=not in_place)
        return result[:own]

    return run


def locations(case):
    """Find the largest or smallest value and its place."""
    name, op = case.choose("type", PAIRS), case.choose("op", ["MAXLOC", "MINLOC"])
    verb = case.choose("verb", ["Allreduce", "Reduce", "Scan"])
    root, count = some_root(case), case.choose("count", [1, 3, 50])
    fields = [("value", PAIRS[name]), ("index", "i4")]
    data = np.zeros(count, np.dtype(fields, align=True))
    data["value"] = case.data(PAIRS[name], count, case.rank, high=2)
    data["index"] = case.data("u1", count, case.rank, 1) * 10 + case.rank
    result, datatype = np.zeros_like(data), getattr(MPI, name)
    arguments = [[data, datatype], [result, datatype], getattr(MPI, op)]
    call(case, verb, *arguments, *([root] if verb == "Reduce" else []))
    return result if verb != "Reduce" or case.rank == root else None


def own_operation(case):
    """Reduce with a function of the user."""
    kind = case.choose("kind", ["first", "last", "sum", "matrix"])
    commutes, root = kind == "sum", some_root(case)
    verb = case.choose("verb", ["Allreduce", "Reduce", "Scan", "Exscan", "Reduce_scatter_block"])
    datatype = MPI.INT64_T.Create_contiguous(4).Commit() if kind == "matrix" else MPI.INT64_T
    operation = MPI.Op.Create(lambda a, b, _: OPERATIONS[kind](a, b), commutes)
    count = case.choose("count", [1, 2, 8])
    blocks = case.size if verb == "Reduce_scatter_block" else 1
    width = 4 if kind == "matrix" else 1
    data = case.data("i8", blocks * count * width, case.rank, high=2)
    result = np.zeros(count * width, "i8")
    send, receive = [data, count, datatype], [result, count, datatype]
    call(case, verb, send, receive, operation, *([root] if verb == "Reduce" else []))
    found = [operation.Is_commutative(), operation.is_predefined]
    operation.Free()
    if kind == "matrix":
        datatype.Free()
    if (verb == "Exscan" and case.rank == 0) or (verb == "Reduce" and case.rank != root):
        result = None
    return [result, *found, operation == MPI.OP_NULL]


def into(function):
    """Write ``function(a, b)`` into the second buffer, as MPI asks of operations."""

    def run(a, b):
        left, right = np.frombuffer(a, "i8"), np.frombuffer(b, "i8")
        right[:] = function(left, right)

    return run


def multiply(left, right):
    return (left.reshape(-1, 2, 2) @ right.reshape(-1, 2, 2)).ravel() % 97


OPERATIONS = {
    "first": into(lambda left, _: left),
    "last": into(lambda _, right: right),
    "sum": into(np.add),
    "matrix": into(multiply),
}


def wrong_operation(case):
    """Reduce with an operation that does not suit the type, or with none."""
    data, result = np.zeros(2), np.zeros(2)
    comm = case.comm
    return [
        error_of(comm.Allreduce, data, result, MPI.OP_NULL),
        error_of(comm.Allreduce, data, result, MPI.BAND),
        error_of(comm.Allreduce, data.astype("c16"), result.astype("c16"), MPI.MAX),
    ]
