"""Points of a field, wherever they live, as a piece of a graph; the plan is that of an indexer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import memory_axes
from pencils.array.normalize import as_singletons
from pencils.array.operands import check_type, topology_among
from pencils.comm.agree import agreed
from pencils.comm.rows import Ints
from pencils.graph.array import Array
from pencils.graph.blocks import new_number, ranks_on, read_components
from pencils.graph.messages import make_distributed_recv, staple_distributed_send
from pencils.graph.nodes import call
from pencils.graph.rules import Shape
from pencils.indexer.arguments import read_coords
from pencils.indexer.gather_scatter import GatherScatter
from pencils.indexer.requests import locate
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


def take(
    x: Array,
    pen: Pencil,
    coords: Sequence[Any],
    *,
    dims: Sequence[int] | int | None = None,
    comm: MPI.Intracomm | None = None,
) -> Array:
    """Read points of a field, wherever they live: a `PencilArray.take`. *Collective*.

    Who asks whom for which points is found out now, so that an execution sends values only. One
    message comes from each rank that owns points asked for here, if their number is not zero.

    Parameters
    ----------
    x : Array
        Own block of a field, of shape ``components + pen.local_shape``.
    pen : Pencil
        Where the field lives.
    coords : sequence of array_like of int
        Global coordinates along each space dimension, in ``[0, shape)``, which broadcast to each
        other. Other ones on every process, perhaps none; points may come twice.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; along the others it is a singleton, and the only
        coordinate is 0. Default: all.
    comm : mpi4py.MPI.Intracomm, optional
        Communicator on which the graph will be executed, and whose ranks all build such pieces.
        Default: that of the pencil.

    Returns
    -------
    Array
        The values, of shape ``components`` + what the coordinates of this rank broadcast to.

    Raises
    ------
    IndexError, ArgumentError, TypeError, PencilMismatchError, RankDisagreementError
        On every rank of the pencil, if an argument does not fit on any.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> from pencils import graph
    >>> pen = pencils.Pencil((4, 6))
    >>> x = graph.make_placeholder("x", pen.local_shape)
    >>> twice = 2 * graph.take(x, pen, ([3, 0], [1, 5]))
    >>> partition = graph.find_distributed_partition(pen.comm, {"twice": twice})
    >>> inputs = {"x": np.arange(24.0).reshape(4, 6)}
    >>> graph.execute_distributed_partition(partition, None, None, pen.comm, input_args=inputs)
    {'twice': array([38., 10.])}
    """
    with agreed(topology_among(pen).comm, "graph.take") as same:
        check_type("pen", pen, Pencil)
        singletons = as_singletons(pen.ndim, dims)
        components = read_components("take", x, pen, singletons)
        same(pencil=pen, dims=sorted(singletons), components=components, dtype=x.dtype)
        ranks = ranks_on(comm, pen)
        extent = pen.extent(singletons)
        shape, index = read_coords(coords, extent.shape, copy=False)
    find = partial(locate, extent.layout, index, extent.layout.parts(pen.rank))
    plan = GatherScatter(pen.topology, find, extent.box.volume)
    plan.free()  # its arrays stay; what travels from now on does so in the graph
    tag = "take", new_number(comm, pen)
    picked = {
        peer: call(_Picking(plan.requested[rows], pen.order), x, shape=(*components, _count(rows)))
        for peer, rows in plan.to_requesters.leaving.ranges
    }
    kept = picked.pop(pen.rank, None)
    arriving = [
        kept
        if peer == pen.rank
        else make_distributed_recv(ranks[peer], tag, (*components, _count(rows)), x.dtype)
        for peer, rows in plan.to_requesters.arriving.ranges
    ]
    # x is needed even where nothing is asked for: other ranks may wait for what it staples.
    arrange = _Arrangement(plan.places, (*components, *shape))
    found: Array = call(arrange, x, *arriving, shape=arrange.shape)
    for peer, parcel in picked.items():
        found = staple_distributed_send(parcel, ranks[peer], tag, found)
    return found


def _count(rows: slice) -> int:
    count: int = rows.stop - rows.start
    return count


@dataclass(frozen=True, slots=True, eq=False)
class _Picking:
    """Reads points of a block, by their numbers in memory order."""

    points: Ints
    order: tuple[int, ...]

    @property
    def __name__(self) -> str:
        return "pick"

    def __call__(self, block: Any) -> Any:
        lead = block.ndim - len(self.order)
        memory = block.transpose(memory_axes(self.order, lead))
        components, points = memory.shape[:lead], memory.shape[lead:]
        if memory.flags.c_contiguous:
            return memory.reshape(*components, prod(points)).take(self.points, -1)
        return memory[(..., *np.unravel_index(self.points, points))]


@dataclass(frozen=True, slots=True, eq=False)
class _Arrangement:
    """Brings points from their owners, which come in the order of ranks, where they belong."""

    places: Ints
    shape: Shape

    @property
    def __name__(self) -> str:
        return "arrange"

    def __call__(self, block: Any, *parcels: Any) -> Any:
        if not parcels:
            return np.empty(self.shape, block.dtype)
        rows = np.concatenate(parcels, -1)
        return rows.take(self.places, -1).reshape(self.shape)
