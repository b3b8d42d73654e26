"""Communicators with a grid or a graph of ranks, and collectives among neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from simmpi.collectives import slots as each
from simmpi.collectives.calls import forms, objects
from simmpi.collectives.grids import Edges, Grid, sub_grids
from simmpi.collectives.slots import Call, Slot
from simmpi.communicators import Comm, Intracomm
from simmpi.constants import CART, PROC_NULL
from simmpi.exceptions import ERR_ARG, MPIError
from simmpi.types.buffers import Buffer, as_buffer, as_parts, as_vector, as_wide

if TYPE_CHECKING:
    from simmpi.types.memory import Bytes
    from simmpi.world import Context

_Read = Callable[..., list[Buffer]]

# ---- collectives among neighbours: given is a list of parts, one for each target ----


def _incoming(slot: Slot, number: int) -> list[tuple[int, int] | None]:
    """Return sources of a rank and which of their parts are for it; None for PROC_NULL.

    Parts for the same rank match in order; on a grid, those of opposite directions.
    """
    topology = slot.context.topology
    sources = topology.sources(number)
    found: list[tuple[int, int] | None] = []
    for place, source in enumerate(sources):
        if source == PROC_NULL:
            found.append(None)
            continue
        if topology.kind == CART:
            found.append((source, place ^ 1))
            continue
        before = sources[:place].count(source)
        targets = topology.targets(source)
        places = [at for at, target in enumerate(targets) if target == number]
        found.append((source, places[before]))
    return found


def _unpack(slot: Slot, number: int, *, parts: Sequence[Buffer]) -> None:
    for part, incoming in zip(parts, _incoming(slot, number), strict=True):
        if incoming is not None:
            source, at = incoming
            each.put(slot, part, slot.given[source][at], source, number, at)


def _load(slot: Slot, number: int) -> list[Any]:
    return [
        None if place is None else each.loads(slot.given[place[0]][place[1]])
        for place in _incoming(slot, number)
    ]


def _degrees(comm: Comm, context: Context) -> tuple[int, int]:
    topology = context.topology
    return len(topology.sources(comm._me)), len(topology.targets(comm._me))


def _call(
    comm: Comm, context: Context, given: list[Bytes], sends: list[Buffer], parts: list[Buffer]
) -> Call:
    """Send what is given, and receive parts, but for those that belong to PROC_NULL."""
    sources = context.topology.sources(comm._me)
    receives = [part for part, source in zip(parts, sources, strict=True) if source != PROC_NULL]
    return Call("", partial(_unpack, parts=parts), given, sends=sends, receives=receives)


def _to_all(comm: Comm, context: Context, read: _Read, sendbuf: Any, recvbuf: Any) -> Call:
    sources, targets = _degrees(comm, context)
    parts, mine = read(recvbuf, sources, writes=True), as_buffer(sendbuf)
    return _call(comm, context, [mine.pack()] * targets, [mine], parts)


def neighbor_allgather(comm: Comm, context: Context, sendbuf: Any, recvbuf: Any) -> Call:
    """Collect equal parts of the neighbours."""
    return _to_all(comm, context, as_parts, sendbuf, recvbuf)


def neighbor_allgatherv(comm: Comm, context: Context, sendbuf: Any, recvbuf: Any) -> Call:
    """Collect parts of the neighbours."""
    return _to_all(comm, context, as_vector, sendbuf, recvbuf)


def _to_each(comm: Comm, context: Context, read: _Read, sendbuf: Any, recvbuf: Any) -> Call:
    sources, targets = _degrees(comm, context)
    sends, parts = read(sendbuf, targets), read(recvbuf, sources, writes=True)
    return _call(comm, context, [part.pack() for part in sends], sends, parts)


def neighbor_alltoall(comm: Comm, context: Context, sendbuf: Any, recvbuf: Any) -> Call:
    """Send equal parts to the neighbours."""
    return _to_each(comm, context, as_parts, sendbuf, recvbuf)


def neighbor_alltoallv(comm: Comm, context: Context, sendbuf: Any, recvbuf: Any) -> Call:
    """Send parts to the neighbours."""
    return _to_each(comm, context, as_vector, sendbuf, recvbuf)


def neighbor_alltoallw(comm: Comm, context: Context, sendbuf: Any, recvbuf: Any) -> Call:
    """Send parts of other types to the neighbours."""
    return _to_each(comm, context, as_wide, sendbuf, recvbuf)


def neighbor_allgather_objects(comm: Comm, context: Context, sendobj: Any) -> Call:
    """Return the objects of the neighbours."""
    return Call("", _load, [each.pickled(sendobj)] * _degrees(comm, context)[1])


def neighbor_alltoall_objects(comm: Comm, context: Context, sendobj: Any) -> Call:
    """Return the objects that the neighbours have for this rank."""
    given = [each.pickled(one) for one in sendobj]
    if len(given) != _degrees(comm, context)[1]:
        raise ValueError(f"expecting {_degrees(comm, context)[1]} items, got {len(given)}")
    return Call("", _load, given)


class Topocomm(Intracomm):
    """A communicator with a grid or a graph of ranks."""

    Neighbor_allgather, Ineighbor_allgather, Neighbor_allgather_init = forms(
        neighbor_allgather, "Neighbor_allgather"
    )
    Neighbor_allgatherv, Ineighbor_allgatherv, Neighbor_allgatherv_init = forms(
        neighbor_allgatherv, "Neighbor_allgatherv"
    )
    Neighbor_alltoall, Ineighbor_alltoall, Neighbor_alltoall_init = forms(
        neighbor_alltoall, "Neighbor_alltoall"
    )
    Neighbor_alltoallv, Ineighbor_alltoallv, Neighbor_alltoallv_init = forms(
        neighbor_alltoallv, "Neighbor_alltoallv"
    )
    Neighbor_alltoallw, Ineighbor_alltoallw, Neighbor_alltoallw_init = forms(
        neighbor_alltoallw, "Neighbor_alltoallw"
    )
    neighbor_allgather = objects(neighbor_allgather_objects, "neighbor_allgather")
    neighbor_alltoall = objects(neighbor_alltoall_objects, "neighbor_alltoall")

    @property
    def _topology(self) -> Any:
        topology = self._alive().topology
        if topology is None:
            raise MPIError(ERR_ARG, "the communicator has no grid and no graph")
        return topology

    @property
    def inedges(self) -> list[int]:
        """Ranks that this one receives from."""
        return list(self._topology.sources(self._me))

    @property
    def outedges(self) -> list[int]:
        """Ranks that this one sends to."""
        return list(self._topology.targets(self._me))

    indegree = property(lambda self: len(self.inedges))
    outdegree = property(lambda self: len(self.outedges))
    degrees = property(lambda self: (self.indegree, self.outdegree))
    inoutedges = property(lambda self: (self.inedges, self.outedges))


class Cartcomm(Topocomm):
    """A communicator with a Cartesian grid of ranks."""

    def Get_dim(self) -> int:
        """Number of dimensions."""
        return len(self._topology.dims)

    def Get_topo(self) -> tuple[list[int], list[int], list[int]]:
        """Extents, whether each dimension is periodic, and the coordinates of this rank."""
        grid: Grid = self._topology
        return list(grid.dims), [int(each) for each in grid.periods], grid.coords(self._me)

    topo = property(Get_topo)
    dim = ndim = property(Get_dim)
    dims = property(lambda self: self.Get_topo()[0])
    periods = property(lambda self: self.Get_topo()[1])
    coords = property(lambda self: self.Get_topo()[2])

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        """Rank at coordinates."""
        rank: int = self._topology.rank(coords)
        if rank == PROC_NULL:
            raise MPIError(ERR_ARG, f"coords={list(coords)} are outside of the grid")
        return rank

    def Get_coords(self, rank: int) -> list[int]:
        """Coordinates of a rank."""
        self._alive().check_rank(rank, "rank")
        found: list[int] = self._topology.coords(rank)
        return found

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """Ranks from which to receive and to which to send, for a shift along a dimension."""
        grid: Grid = self._topology
        return grid.shifted(self._me, direction, -disp), grid.shifted(self._me, direction, disp)

    def Sub(self, remain_dims: Sequence[bool]) -> Cartcomm:
        """Make a communicator of the ranks that differ in some coordinates only."""
        grid: Grid = self._topology
        keep = [dim for dim, remains in enumerate(remain_dims) if remains]
        coords = grid.coords(self._me)
        fixed = tuple(at for dim, at in enumerate(coords) if dim not in keep)
        part = Grid(tuple(grid.dims[d] for d in keep), tuple(grid.periods[d] for d in keep))
        made = self._collective("Sub", partial(sub_grids, part=part), contribution=fixed)
        return Cartcomm.of(made)


class Graphcomm(Topocomm):
    """A communicator with a graph of ranks, which each rank has whole."""

    def Get_dims(self) -> tuple[int, int]:
        """Numbers of nodes and of edges."""
        outgoing = self._topology.outgoing
        return len(outgoing), sum(map(len, outgoing))

    def Get_topo(self) -> tuple[list[int], list[int]]:
        """Where the edges of each node end, and all edges."""
        index: list[int] = []
        for outgoing in self._topology.outgoing:
            index.append(len(outgoing) + (index[-1] if index else 0))
        return index, [rank for outgoing in self._topology.outgoing for rank in outgoing]

    def Get_neighbors_count(self, rank: int) -> int:
        """Number of neighbours of a rank."""
        return len(self.Get_neighbors(rank))

    def Get_neighbors(self, rank: int) -> list[int]:
        """Neighbours of a rank."""
        return list(self._topology.targets(rank))

    topo = property(Get_topo)
    dims = property(Get_dims)
    nnodes = property(lambda self: self.Get_dims()[0])
    nedges = property(lambda self: self.Get_dims()[1])
    index = property(lambda self: self.Get_topo()[0])
    edges = property(lambda self: self.Get_topo()[1])
    nneighbors = property(lambda self: self.Get_neighbors_count(self._me))
    neighbors = property(lambda self: self.Get_neighbors(self._me))


class Distgraphcomm(Topocomm):
    """A communicator with a graph of ranks, of which each rank has its neighbours."""

    def Get_dist_neighbors_count(self) -> tuple[int, int, bool]:
        """Numbers of sources and targets, and whether there are weights."""
        edges: Edges = self._topology
        return self.indegree, self.outdegree, edges.weights is not None

    def Get_dist_neighbors(self) -> tuple[list[int], list[int], tuple[list[int], list[int]] | None]:
        """Sources, targets, and weights of both."""
        edges: Edges = self._topology
        weights = None if edges.weights is None else edges.weights[self._me]
        return self.inedges, self.outedges, weights


for _made in (Cartcomm, Graphcomm, Distgraphcomm):
    Intracomm._classes[_made.__name__] = _made
