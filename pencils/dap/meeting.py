"""Checking exports over a communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pencils.comm.topology import topology_of
from pencils.dap.dist import GlobalDist
from pencils.dap.validate import metadata, validate_collective

if TYPE_CHECKING:
    from mpi4py import MPI


def validate_on(
    comm: MPI.Intracomm | None, exported: object, *, lenient: bool = False
) -> GlobalDist:
    """Check that the exports of all processes are right and fit together. *Collective*.

    Only what they say is sent, not the elements.

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

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(pencils.Pencil((4, 6)))
    >>> validate_on(u.pencil.comm, u.__distarray__()).global_shape
    (4, 6)
    """
    found = topology_of(comm).comm.allgather(metadata(exported, lenient=lenient))
    return validate_collective(found)
