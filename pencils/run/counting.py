"""Communicators that count what is called on them, for programs that are watched."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import CodeType, FunctionType
from typing import Any, NamedTuple, cast

from mpi4py import MPI

from pencils.comm import sparse
from pencils.comm.mailbox import Mailbox
from pencils.comm.topology import Topology

# Methods of communicators, by the names of their variants: Xyz, Ixyz, Xyz_init, xyz, ixyz.
_COLLECTIVES = (
    "Allgather Allgatherv Allreduce Alltoall Alltoallv Alltoallw Barrier Bcast Exscan Gather "
    "Gatherv Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv "
    "Neighbor_alltoallw Reduce Reduce_scatter Reduce_scatter_block Scan Scatter Scatterv "
    "Disconnect Dup Dup_with_info Free"
)
_MAKERS = (
    "Accept Connect Create Create_cart Create_dist_graph Create_dist_graph_adjacent Create_graph "
    "Create_group Create_intercomm Dup Dup_with_info Merge Shrink Spawn Spawn_multiple Split "
    "Split_type Sub"
)
_MESSAGES = "Bsend Mprobe Probe Recv Rsend Send Sendrecv Sendrecv_replace Ssend"


# Functions in which the library looks again and again, without a call that could be counted.
POLLING = frozenset({Mailbox.wait.__code__, sparse.sparse_exchange.__code__})


class CountedCall(NamedTuple):
    """A method of a communicator, and how many collectives a call of it is."""

    name: str
    step: int


class Calls:
    """What this process has called so far."""

    def __init__(self) -> None:
        self.begun = 0  # collectives, messages and waits: changes as long as the program goes on
        self.collectives = 0
        self.latest = CountedCall("", 0)


class Counting:
    """Count the calls of a process, from now on. One for each process.

    The world, what is made of it, and the private communicators of the library become
    communicators of classes derived from those of mpi4py.
    """

    def __init__(self) -> None:
        self.calls = Calls()
        self.codes: set[CodeType] = set()  # of the functions that count and call mpi4py
        bases = (MPI.Intracomm, MPI.Intercomm, MPI.Cartcomm, MPI.Graphcomm, MPI.Distgraphcomm)
        self._kinds = {base: self._derive(base) for base in bases}
        for name in ("COMM_WORLD", "COMM_SELF"):
            setattr(MPI, name, self._convert(getattr(MPI, name)))
        Topology.kind = self._kinds[MPI.Intracomm]
        wait = self._count("Wait", Mailbox.wait, 0)
        Mailbox.wait = wait  # type: ignore[method-assign]

    def _derive(self, base: type[MPI.Comm]) -> Any:
        methods: dict[str, Callable[..., Any]] = {}
        for stems, step in ((_COLLECTIVES, 1), (_MAKERS, 1), (_MESSAGES, 0)):
            for stem in stems.split():
                low = stem.lower()
                for name in (stem, f"I{low}", f"{stem}_init", low, f"i{low}"):
                    if hasattr(base, name) and name not in {"free", "split"}:
                        methods[name] = self._count(name, getattr(base, name), step)
        for name in _MAKERS.split():
            if hasattr(base, name):
                methods[name] = self._converted(methods[name])
        return type(base.__name__, (base,), methods)

    def _convert(self, result: Any) -> Any:
        """Turn a communicator into one that counts; leave what is none as it is."""
        kind = self._kinds.get(type(result))
        return result if kind is None or result == MPI.COMM_NULL else kind(result)

    def _converted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def make(*args: Any, **kwargs: Any) -> Any:
            return self._convert(method(*args, **kwargs))

        return make

    def _count(self, name: str, method: Callable[..., Any], step: int) -> Callable[..., Any]:
        calls, call = self.calls, CountedCall(name, step)

        @wraps(method)
        def count(*args: Any, **kwargs: Any) -> Any:
            calls.begun += 1
            calls.collectives += step
            calls.latest = call
            return method(*args, **kwargs)

        self.codes.add(cast("FunctionType", count).__code__)
        return count
