"""Derived datatypes: random layouts, sent as they are. See also `test_datatypes`."""

import numpy as np
from mpi4py import MPI

from .case import free, status_of

ROOM = 64  # elements of the array that a layout lives in
BASES = {"f8": "DOUBLE", "i4": "INT32_T", "u1": "BYTE", "c16": "C_DOUBLE_COMPLEX", "i2": "SHORT"}


def layout(case, dtype, elements):
    """Make a committed datatype of some elements within `ROOM`, and free its temporary parts."""
    base = getattr(MPI, BASES[dtype])
    name = case.choose("layout", LAYOUTS)
    made = LAYOUTS[name](case, base, np.dtype(dtype).itemsize, elements)
    made, *parts = made if isinstance(made, tuple) else (made,)
    free(*parts)  # a datatype lives as long as those made of it
    return made.Commit()


def distances(case, count, unit=1):
    """Return increasing positions of blocks, at least two elements apart."""
    return (unit * np.cumsum(case.rng.integers(2, 4, count))).tolist()


def struct_of_vectors(case, base, size, n):
    inner = base.Create_vector(n // 2, 1, 2)
    starts = [0, (n + case.integer("gap", 0, 3)) * size]
    return MPI.Datatype.Create_struct([1, n // 2], starts, [inner, base]), inner


def subarray(case, base, _, n):
    order = getattr(MPI, case.choose("order", ["ORDER_C", "ORDER_FORTRAN"]))
    starts = case.integers("starts", 0, 3, 2)
    return base.Create_subarray([5, n // 2 + 3], [2, n // 2], starts, order)


def resized(case, base, size, n):
    inner = base.Create_vector(n // 2, 2, 3)
    return inner.Create_resized(0, case.integer("extent", 1, 4) * size), inner


def nested(case, base, _, n):
    inner = base.Create_contiguous(2)
    return inner.Create_vector(n // 2, 1, case.integer("stride", 1, 3)), inner


LAYOUTS = {
    "contiguous": lambda _case, base, _size, n: base.Create_contiguous(n),
    "hvector": lambda case, base, size, n: base.Create_hvector(
        n, 1, case.integer("stride", 1, 5) * size
    ),
    "hindexed": lambda case, base, size, n: base.Create_hindexed(
        [2] * (n // 2), distances(case, n // 2, size)
    ),
    "indexed_block": lambda case, base, _size, n: base.Create_indexed_block(
        2, distances(case, n // 2)[::-1]
    ),
    "struct_of_vectors": struct_of_vectors,
    "subarray": subarray,
    "resized": resized,
    "nested": nested,
}


def send_layouts(case):
    """Send with one layout and receive with another of the same elements."""
    dtype = case.choose("dtype", BASES)
    elements = 2 * case.integer("pairs", 1, 5)
    verb = case.choose("verb", ["Send", "Ssend", "replace", "partial"])
    outer, inner = layout(case, dtype, elements), layout(case, dtype, elements)
    dest, source = case.ends()
    data, result = case.data(dtype, ROOM, case.rank), np.zeros(ROOM, dtype)
    status, tag = MPI.Status(), case.first_tag
    if verb == "replace":
        case.comm.Sendrecv_replace([data, 1, outer], dest, tag, source, tag, status)
        result = data
    else:
        part = [data, elements // 2 - 1, getattr(MPI, BASES[dtype])]
        send = case.comm.Issend if verb == "Ssend" else case.comm.Isend
        request = send(part if verb == "partial" else [data, 1, outer], dest, tag)
        case.comm.Recv([result, 1, inner], source, tag, status)
        request.Wait()
    received = outer if verb == "replace" else inner
    answer = [result, status.Get_elements(received), status.Get_count(received), *status_of(status)]
    free(outer, inner)
    return answer


def send_pieces(case):
    """Send several items of a layout, and receive them as single elements; and the reverse."""
    dtype = case.choose("dtype", ["f8", "i4", "i2"])
    count, stride = case.integer("count", 0, 5), case.integer("stride", 1, 4)
    column = getattr(MPI, BASES[dtype]).Create_vector(4, 1, stride + 1)
    narrow = column.Create_resized(0, np.dtype(dtype).itemsize).Commit()
    data, flat = case.data(dtype, ROOM, case.rank), np.zeros(4 * count, dtype)
    tag, rank = case.first_tag, case.rank
    request = case.comm.Isend([data, count, narrow], rank, tag)
    case.comm.Recv(flat, rank, tag)
    request.Wait()
    result = np.zeros_like(data)
    if count <= stride + 1:  # no element is received twice
        case.comm.Sendrecv(flat, rank, tag, [result, count, narrow], rank)
    free(column, narrow)
    return [flat, result]
