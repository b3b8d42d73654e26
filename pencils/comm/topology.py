"""Private communicators: one duplicate per user communicator, and the sub-communicators of grids.

The library never sends on a communicator of the user, so its messages cannot meet theirs. The
duplicate hangs on the user's communicator as an MPI attribute: made once, found again by every
pencil, freed together with it.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Collection

    from pencils.layout import ProcessGrid


class Topology:
    """The private communicators, and plans on them, behind one communicator of the user.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The user's communicator. *Collective*.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        # Split, unlike Dup, leaves Cartesian structure, info and attributes of the user behind.
        self.comm = _split(comm, 0)
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.plans: OrderedDict[Any, Any] = OrderedDict()
        self._along: dict[tuple[tuple[int, ...], tuple[int, ...]], MPI.Intracomm] = {}

    def along(self, grid: ProcessGrid, axes: Collection[int]) -> MPI.Intracomm:
        """Communicator of the ranks that differ from this one along `axes` of the grid only.

        *Collective* over the whole topology the first time; ranks keep their order.
        """
        if len(axes) == len(grid.shape):
            return self.comm
        key = grid.shape, tuple(sorted(axes))
        if key not in self._along:
            coords = grid.coords(self.comm.rank)
            fixed = tuple(0 if axis in axes else coord for axis, coord in enumerate(coords))
            self._along[key] = _split(self.comm, grid.rank(fixed))
        return self._along[key]

    @property
    def communicators(self) -> int:
        """Number of communicators held here."""
        return 1 + len(self._along)

    def free(self) -> None:
        """Free all communicators. *Collective*; runs when the user's communicator is freed."""
        for comm in (*self._along.values(), self.comm):
            if comm != MPI.COMM_NULL:
                comm.Free()
        self._along.clear()
        self.plans.clear()


def topology_of(comm: MPI.Intracomm | None) -> Topology:
    """Private communicators of `comm` (default: the world), made on first use.

    *Collective* the first time a communicator is seen; afterwards a local look-up.

    Raises
    ------
    TypeError
        If `comm` is not an intra-communicator of mpi4py.
    ValueError
        If it is the null communicator, or was freed.
    """
    user = user_comm(comm)
    found = user.Get_attr(_keyval())
    if isinstance(found, Topology):
        return found
    topology = Topology(user)
    user.Set_attr(_keyval(), topology)
    return topology


def user_comm(comm: MPI.Intracomm | None) -> MPI.Intracomm:
    """Check a communicator given by the user; None means the world."""
    given: object = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(given, MPI.Intracomm):
        msg = f"comm must be an intra-communicator of mpi4py, not {comm!r}"
        raise TypeError(msg)
    if given == MPI.COMM_NULL:
        msg = "comm is MPI.COMM_NULL: this process is not a member, or the communicator was freed"
        raise ValueError(msg)
    return given


def congruent(one: MPI.Intracomm, other: MPI.Intracomm) -> bool:
    """Whether both communicators hold the same processes in the same order; local."""
    return one is other or MPI.Comm.Compare(one, other) in (MPI.IDENT, MPI.CONGRUENT)


def _split(comm: MPI.Intracomm, color: int) -> MPI.Intracomm:
    """Communicator of the ranks that pass the same color, in the order of `comm`."""
    return MPI.Intracomm(comm.Split(color, comm.rank))


@cache
def _keyval() -> int:
    return MPI.Comm.Create_keyval(delete_fn=_delete)


def _delete(_comm: MPI.Comm, _keyval: int, topology: Topology) -> None:
    # At MPI_Finalize MPI cleans up by itself, and a collective here could not complete.
    if not MPI.Is_finalized():
        topology.free()
