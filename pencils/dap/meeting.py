"""Learning over a communicator what the exports of all processes say together, and checking it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from pencils.comm.agree import agreed, read_comm, token
from pencils.comm.topology import Topology, topology_of
from pencils.dap.collective import fitting
from pencils.dap.dist import GlobalDist, LocalDist
from pencils.dap.global_maps import make_global
from pencils.dap.maps import DimMap
from pencils.dap.parse import is_old
from pencils.dap.validate import Metadata, metadata, raise_first, validate_collective
from pencils.layout.grid import ProcessGrid

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


def validate_on(
    comm: MPI.Intracomm | None, exported: object, *, lenient: bool = False
) -> GlobalDist:
    """Check that the exports of all processes are right and fit together. *Collective*.

    Only what they say is sent, not the elements; each process hears from those that differ from it
    along one dimension.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        All processes of the array, in the order of the protocol; None for the world.
    exported : dict
        What ``__distarray__()`` returned on this process.
    lenient : bool, optional
        As in `metadata`.

    Returns
    -------
    GlobalDist
        Who owns what; the same on every rank.

    Raises
    ------
    DAPError
        The same on every rank: the first broken rule, with the rank at fault.
    ArgumentError, TypeError
        If `comm` is no communicator.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(pencils.Pencil((4, 6)))
    >>> validate_on(u.pencil.comm, u.__distarray__()).global_shape
    (4, 6)
    """
    topology = topology_of(read_comm(comm, "dap.validate_on"))
    with agreed(topology.comm, "dap.validate_on") as same:
        same(lenient=bool(lenient))
        found = metadata(exported, lenient=bool(lenient))
    return meet(topology, found)


def meet(topology: Topology, found: Metadata) -> GlobalDist:
    """Put together what the exports of all processes say. *Collective*.

    If all of them are right, each process hears along every dimension from those of its own line,
    and the lines compare what they heard; of what is odd, each warns itself. Only to say what is
    wrong, all hear from all.

    Raises
    ------
    DAPError
        The same on every rank.
    """
    mine = found.dist
    sound = mine is not None and _is_in_place(mine, topology)
    if topology.alike(token(_common(mine)) if mine and sound else None):
        assert mine is not None
        lines = _lines(topology, mine)
        dist = GlobalDist(tuple(map(make_global, lines)))
        fit = not any(list(fitting(whole, old=is_old(mine.version))) for whole in dist.dims)
        if topology.alike(token(lines)) and fit:
            raise_first(found.findings)
            return dist
    return validate_collective(topology.comm.allgather(found))


def _is_in_place(dist: LocalDist, topology: Topology) -> bool:
    """Whether this process has the coordinates of its rank on a grid of all (rules G2 and G3)."""
    grid = dist.grid_shape
    return prod(grid) == topology.comm.size and ProcessGrid(grid).rank(dist.coords) == topology.rank


def _common(dist: LocalDist) -> object:
    """Gather what all processes must say alike (rules G1 and G10)."""
    padding = dist.padding_given if is_old(dist.version) else ()
    shapes = dist.global_shape, dist.grid_shape
    return dist.version, repr(dist.dtype), dist.dist_types, shapes, padding


def _lines(topology: Topology, dist: LocalDist) -> list[Sequence[DimMap]]:
    """Learn along each dimension the maps of the processes that differ there only. *Collective*."""
    far = [dim for dim, count in enumerate(dist.grid_shape) if count > 1]
    grid = ProcessGrid(tuple(dist.grid_shape[dim] for dim in far))
    lines: list[Sequence[DimMap]] = [(here,) for here in dist.dims]
    for axis, dim in enumerate(far):
        lines[dim] = topology.along(grid, [axis]).allgather(dist.dims[dim])
    return lines
