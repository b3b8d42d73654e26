"""What all pieces of a graph ask first: which block a node is, and who is who where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pencils.array.operands import check_type
from pencils.comm.topology import topology_of, translate, user_comm
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.graph.array import Array
from pencils.graph.rules import Shape
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


def read_components(name: str, x: Array, pen: Pencil, singletons: frozenset[int]) -> Shape:
    """Check that a node is an own block; return the shape of its components.

    Raises
    ------
    ArgumentError, TypeError
        If it is none.
    """
    check_type("x", x, Array)
    local_shape = pen.extent(singletons).local_shape
    lead = max(0, x.ndim - pen.ndim)
    if x.shape[lead:] != local_shape:
        along = f" if it is a singleton along {sorted(singletons)}" if singletons else ""
        msg = (
            f"{name}: a node of shape {x.shape} is no own block of rank {pen.rank}, which has "
            f"shape {local_shape} after components{along}:\n{pen!r}"
        )
        raise ArgumentError(msg)
    return x.shape[:lead]


def ranks_on(comm: MPI.Intracomm | None, pen: Pencil) -> Sequence[int]:
    """Find the ranks of a pencil on the communicator of the graph; None: that of the pencil.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        If it is no communicator, or not all processes of the pencil are there.
    """
    other = pen.topology.comm if comm is None else user_comm(comm)
    ranks = translate(pen.topology.comm, other)
    if ranks is None:
        msg = f"comm does not have all processes of the pencil:\n{pen!r}"
        raise PencilMismatchError(msg)
    return ranks


def new_number(comm: MPI.Intracomm | None, pen: Pencil) -> int:
    """Draw a number for the tag of a piece, the same on all ranks of the graph.

    Before any check that may fail on some ranks only: the other ones draw, too.
    """
    topology = pen.topology if comm is None else topology_of(comm)
    return next(topology.numbers)
