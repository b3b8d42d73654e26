"""Cartesian and graph topologies: queries, and collective calls between neighbours."""

import numpy as np
from mpi4py import MPI

from .case import DTYPES, FORMS, call, free, name_of
from .collectives import code_of, starts_of


def ends(case):
    """Return the ranks that this rank receives from, and those that it sends to."""
    kind = case.comm.Get_topology()
    if kind == MPI.DIST_GRAPH:
        sources, destinations, _ = case.comm.Get_dist_neighbors()
        return list(sources), list(destinations)
    if kind == MPI.GRAPH:
        found = list(case.comm.Get_neighbors(case.rank))
        return found, found
    found = [r for dim in range(case.comm.Get_dim()) for r in case.comm.Shift(dim, 1)]
    return found, found


def call_alltoall(case, verb, send, receive):
    """Call in any form where all neighbours differ; Open MPI 5.0 mixes equal ones up in others."""
    comm = case.comm
    repeated = comm.Get_topology() == MPI.CART and any(
        period and extent < 3 for extent, period in zip(comm.dims, comm.periods, strict=True)
    )
    call(case, verb, send, receive, forms=FORMS[:1] if repeated else FORMS)


def ordered(case, sources, blocks):
    """Return blocks by source; a library is free to order the neighbours of a dist_graph."""
    if case.comm.Get_topology() != MPI.DIST_GRAPH:
        return blocks
    order = sorted(range(len(sources)), key=lambda i: sources[i])
    return [blocks[i] for i in order]


def neighbor_equal(verb):
    """Make the operation for Neighbor_allgather or Neighbor_alltoall."""

    def run(case):
        sources, destinations = ends(case)
        dtype, count = case.choose("dtype", DTYPES), case.choose("count", [0, 1, 5, 900])
        code, result = code_of(dtype), np.zeros((len(sources), count), dtype)
        receive = [result, count, code]
        if verb == "Neighbor_allgather":
            call(case, verb, [case.data(dtype, count, case.rank), count, code], receive)
        else:
            # Open MPI compares the counts of both buffers also where a rank has no neighbours.
            data = to_each(case, dtype, [count] * len(destinations), 0)
            call_alltoall(case, verb, [data, count, code], receive)
        return ordered(case, sources, list(result))

    return run


def count_between(case, source, dest):
    """Return the number of elements from a rank to another: any function of both."""
    return int(case.data("u1", 1, source, dest)[0]) if MPI.PROC_NULL not in {source, dest} else 0


def neighbor_allgatherv(case):
    sources, _ = ends(case)
    dtype, gap = case.choose("dtype", DTYPES), case.integer("gap", 0, 2)
    counts = [count_between(case, source, source) for source in sources]
    data = case.data(dtype, count_between(case, case.rank, case.rank), case.rank)
    result = np.zeros(sum(counts) + gap * len(counts), dtype)
    starts = starts_of(counts, [gap] * len(counts))
    receive = [result, (counts, starts)]
    if not sources:
        receive = [result, ([], []), code_of(dtype)]
    call(case, "Neighbor_allgatherv", data, receive)
    blocks = [result[start : start + n] for start, n in zip(starts, counts, strict=True)]
    return ordered(case, sources, blocks)


def which(case, position):
    """Tell messages to the same rank apart, where their order is defined."""
    return [] if case.comm.Get_topology() == MPI.DIST_GRAPH else [position]


def vectors(case):
    """Return counts and starts of what this rank sends and receives, in elements."""
    sources, destinations = ends(case)
    gap = case.integer("gap", 0, 2)
    out = [count_between(case, case.rank, dest) for dest in destinations]
    back = [count_between(case, source, case.rank) for source in sources]
    starts = starts_of(out, [gap] * len(out))
    starts_back = starts_of(back, [gap] * len(back))
    return sources, (out, starts), (back, starts_back), gap


def to_each(case, dtype, counts, gap):
    """Make the data to all neighbours: for each of them, others, after a gap."""
    blocks = [np.zeros(0, dtype)]
    for i, (dest, count) in enumerate(zip(ends(case)[1], counts, strict=True)):
        blocks += [
            np.zeros(gap, dtype),
            case.data(dtype, count, case.rank, max(dest, 0), *which(case, i)),
        ]
    return np.concatenate(blocks)


def neighbor_varying(verb):
    """Make the operation for Neighbor_alltoallv, or for Neighbor_alltoallw: receive two apart."""

    def run(case):
        wide = verb == "Neighbor_alltoallw"
        dtype = case.choose("dtype", ["f8", "i4", "u1"] if wide else DTYPES)
        sources, out, back, gap = vectors(case)
        data, apart = to_each(case, dtype, out[0], gap), 2 if wide else 1
        result = np.zeros(apart * (sum(back[0]) + gap * len(back[0])) + 1, dtype)
        code, width = code_of(dtype), np.dtype(dtype).itemsize
        spread = code.Create_resized(0, apart * width).Commit()
        send, receive = [data, *out, code], [result, *back, code]
        if wide:
            places = [[n * width for n in out[1]], [apart * n * width for n in back[1]]]
            send = [data, (out[0], places[0]), [code] * len(out[0])]
            receive = [result, (back[0], places[1]), [spread] * len(sources)]
        call_alltoall(case, verb, send, receive)
        free(spread)
        blocks = [
            result[apart * start : apart * (start + n)] for n, start in zip(*back, strict=True)
        ]
        return ordered(case, sources, blocks)

    return run


def neighbor_objects(case):
    """Exchange Python objects."""
    sources, destinations = ends(case)
    verb = case.choose("verb", ["neighbor_allgather", "neighbor_alltoall"])
    if verb == "neighbor_allgather":
        found = case.comm.neighbor_allgather((case.rank, "x" * case.rank))
    else:
        found = case.comm.neighbor_alltoall([(case.rank, dest) for dest in destinations])
    return ordered(case, sources, found)


def ask_cart(case):
    """Ask about a Cartesian topology."""
    comm = case.comm
    if comm.Get_topology() != MPI.CART:
        return ask_graph(case)
    dims = comm.Get_dim()
    shifts = [
        [*map(name_of, comm.Shift(dim, disp))] for dim in range(dims) for disp in (-2, -1, 0, 1, 3)
    ]
    coords = [comm.Get_coords(rank) for rank in range(case.size)]
    outside = [3 if period else 0 for period in comm.periods]
    return [
        type(comm).__name__,
        comm.Get_topo(),
        [comm.dims, comm.periods, comm.coords, comm.ndim, comm.dim],
        shifts,
        coords,
        [comm.Get_cart_rank(coord) for coord in coords],
        comm.Get_cart_rank([c + o for c, o in zip(comm.coords, outside, strict=True)]),
        [comm.is_topo, comm.indegree, comm.outdegree],
        [[*map(name_of, edges)] for edges in (comm.inedges, comm.outedges)],
    ]


def ask_graph(case):
    """Ask about a graph topology."""
    comm = case.comm
    found = [type(comm).__name__, comm.is_topo, comm.indegree, comm.outdegree]
    if comm.Get_topology() == MPI.DIST_GRAPH:
        sources, destinations, weights = comm.Get_dist_neighbors()
        if weights:
            sources = list(zip(sources, weights[0], strict=True))
            destinations = list(zip(destinations, weights[1], strict=True))
        degrees = comm.Get_dist_neighbors_count()
        return [*found, sorted(sources), sorted(destinations), degrees]
    return [
        *found,
        comm.Get_dims(),
        comm.Get_topo(),
        [comm.Get_neighbors_count(rank) for rank in range(case.size)],
        [comm.Get_neighbors(rank) for rank in range(case.size)],
        [comm.nnodes, comm.nedges, comm.neighbors, comm.inedges],
    ]


def no_topology(case):
    """Ask a communicator that may have no topology."""
    comm = MPI.Intracomm(case.comm)
    dims = [MPI.Compute_dims(case.size, n) for n in (1, 2, 3)]
    return [
        comm.Get_topology() in {MPI.UNDEFINED, MPI.CART, MPI.GRAPH, MPI.DIST_GRAPH},
        comm.is_topo,
        dims,
        MPI.Compute_dims(2 * case.size, [2, 0]),
    ]
