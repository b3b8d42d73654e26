"""Derived datatypes: random layouts, sent as they are. See also `test_datatypes`."""

import numpy as np
from mpi4py import MPI

from .case import free, status_of

ROOM = 64  # elements of the array that a layout lives in
BASES = {"f8": "DOUBLE", "i4": "INT32_T", "u1": "BYTE", "c16": "C_DOUBLE_COMPLEX", "i2": "SHORT"}


def layout(case, dtype, elements):
    """Make a committed datatype of some elements within `ROOM`, and its temporary parts."""
    base = getattr(MPI, BASES[dtype])
    name = case.choose("layout", LAYOUTS)
    made = LAYOUTS[name](case, base, np.dtype(dtype).itemsize, elements)
    made, *parts = made if isinstance(made, tuple) else (made,)
    free(*parts)  # a datatype lives as long as those made of it
    return made.Commit()


def distances(case, count, step=3):
    """Return increasing positions of blocks, at least two elements apart."""
    return np.cumsum(case.rng.integers(2, step + 1, count)).tolist()


def contiguous(_, base, __, elements):
    return base.Create_contiguous(elements)


def vector(case, base, _, elements):
    stride = case.integer("stride", 2, 4)
    return base.Create_vector(elements // 2, 2, stride)


def hvector(case, base, size, elements):
    return base.Create_hvector(elements, 1, case.integer("stride", 1, 5) * size)


def indexed(case, base, _, elements):
    return base.Create_indexed([2] * (elements // 2), distances(case, elements // 2))


def hindexed(case, base, size, elements):
    starts = [size * start for start in distances(case, elements // 2)]
    return base.Create_hindexed([2] * (elements // 2), starts)


def indexed_block(case, base, _, elements):
    return base.Create_indexed_block(2, distances(case, elements // 2)[::-1])


def hindexed_block(case, base, size, elements):
    starts = [size * start for start in distances(case, elements // 2)]
    return base.Create_hindexed_block(2, starts)


def struct(case, base, size, elements):
    first = case.integer("first", 1, elements - 1)
    gap = case.integer("gap", 0, 5)
    return MPI.Datatype.Create_struct(
        [first, elements - first], [0, (first + gap) * size], [base, base]
    )


def struct_of_vectors(case, base, size, elements):
    inner = base.Create_vector(elements // 2, 1, 2)
    gap = case.integer("gap", 0, 3)
    starts = [0, (elements + gap) * size]
    return MPI.Datatype.Create_struct([1, elements // 2], starts, [inner, base]), inner


def subarray(case, base, _, elements):
    order = getattr(MPI, case.choose("order", ["ORDER_C", "ORDER_FORTRAN"]))
    starts = case.integers("starts", 0, 3, 2)
    sizes = [2 + 3, elements // 2 + 3]
    return base.Create_subarray(sizes, [2, elements // 2], starts, order)


def resized(case, base, size, elements):
    inner = base.Create_vector(elements // 2, 2, 3)
    return inner.Create_resized(0, case.integer("extent", 1, 4) * size), inner


def nested(case, base, _, elements):
    inner = base.Create_contiguous(2)
    return inner.Create_vector(elements // 2, 1, case.integer("stride", 1, 3)), inner


def duplicate(_, base, __, elements):
    inner = base.Create_vector(elements, 1, 2)
    return inner.Dup(), inner


LAYOUTS = {
    function.__name__: function
    for function in (
        contiguous,
        vector,
        hvector,
        indexed,
        hindexed,
        indexed_block,
        hindexed_block,
        struct,
        struct_of_vectors,
        subarray,
        resized,
        nested,
        duplicate,
    )
}


def send_layouts(case):
    """Send with one layout and receive with another of the same elements."""
    dtype = case.choose("dtype", BASES)
    elements = 2 * case.integer("pairs", 1, 5)
    shift = case.integer("shift", 0, case.size)
    verb = case.choose("verb", ["Send", "Ssend", "replace", "partial"])
    outer, inner = layout(case, dtype, elements), layout(case, dtype, elements)
    dest, source = (case.rank + shift) % case.size, (case.rank - shift) % case.size
    data, result = case.data(dtype, ROOM, case.rank), np.zeros(ROOM, dtype)
    status = MPI.Status()
    tag = case.first_tag
    if verb == "replace":
        case.comm.Sendrecv_replace([data, 1, outer], dest, tag, source, tag, status)
        result = data
    elif verb == "partial":
        part = elements // 2 - 1
        base = getattr(MPI, BASES[dtype])
        request = case.comm.Isend([data, part, base], dest, tag)
        case.comm.Recv([result, 1, inner], source, tag, status)
        request.Wait()
    else:
        request = getattr(case.comm, "I" + verb.lower())([data, 1, outer], dest, tag)
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
