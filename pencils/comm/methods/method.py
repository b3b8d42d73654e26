"""Base classes of the methods by which blocks are moved between ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from numpy.typing import NDArray

from pencils.comm.mpi import MPI
from pencils.comm.pack import (
    MessageBlock,
    PackPlan,
    Unpacker,
    one_each,
    prepare_copies,
    prepare_ordered_copies,
)
from pencils.comm.recording import timed
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology
from pencils.layout import Traffic

Array = NDArray[Any]
Arrays = Sequence[Array]


class ChunkPlan(NamedTuple):
    """What a method moves in one chunk, without the blocks that stay on this rank.

    There is a pack plan for each array of a call, or a single one for any number of arrays.
    """

    topology: Topology
    sends: Sequence[PackPlan]
    recvs: Sequence[PackPlan]
    axes: int  # largest number of axes of an array, the same on all ranks
    buffers: Buffers
    unpack: Unpacker  # how received blocks are written to the targets

    def sends_of(self, arrays: Arrays) -> list[tuple[PackPlan, Array]]:
        """Pair the sources of a call with their pack plans."""
        return list(zip(one_each(self.sends, arrays), arrays, strict=True))

    def recvs_of(self, arrays: Arrays) -> list[tuple[PackPlan, Array]]:
        """Pair the targets of a call with their pack plans."""
        return list(zip(one_each(self.recvs, arrays), arrays, strict=True))

    def select(
        self,
        sends: Callable[[MessageBlock], bool],
        recvs: Callable[[MessageBlock], bool] | None = None,
    ) -> ChunkPlan:
        """Plan of some blocks: those for which `sends`, or `recvs` (default: the same), is true."""

        def some(plans: Sequence[PackPlan], wanted: Callable[[MessageBlock], bool]) -> Any:
            return [plan.with_blocks(filter(wanted, plan.blocks)) for plan in plans]

        return self._replace(sends=some(self.sends, sends), recvs=some(self.recvs, recvs or sends))

    def cut(self, part: Callable[[MessageBlock], MessageBlock]) -> ChunkPlan:
        """Plan of a part of every block; targets are large and written past the cache."""
        sends, recvs = (
            [plan.with_blocks(map(part, plan.blocks)) for plan in plans]
            for plans in (self.sends, self.recvs)
        )
        unpack = self.unpack
        if unpack is prepare_copies:
            unpack = partial(prepare_ordered_copies, read_elsewhere=True)
        return self._replace(sends=sends, recvs=recvs, unpack=unpack)


class Started(NamedTuple):
    """What was started: the function that receives and unpacks, and the requests it waits for."""

    complete: Callable[[], None]
    requests: Sequence[MPI.Request] = ()


class PreparedMethod(ABC):
    """A method for the arrays of one call: views are sliced once, so that starting is fast."""

    nbytes = 0  # bytes of the larger one of the buffers to send from and to receive in

    @abstractmethod
    def __init__(self, method: Any, sources: Arrays, targets: Arrays, *, aliased: bool) -> None:
        """Prepare `method`; local. `aliased`: some target shares memory with some source."""

    @abstractmethod
    def start(self) -> Started:
        """Pack and send; completing the result receives and unpacks. *Collective*."""

    def reserve(self) -> None:  # noqa: B027 - shared memory needs little of it
        """Allocate what `start` needs; local. Ranks can still agree that one of them failed."""

    def run(self, own: Callable[[], None]) -> None:
        """Start, call `own` while data are on their way, and complete. *Collective*."""
        started = timed("pack", self.start, calls=0)
        own()
        started.complete()

    def run_open(self, own: Callable[[], None]) -> MPI.Intracomm | None:
        """Run, but return the ranks that may still read sources of this one, if any. *Collective*.

        The caller meets them before a source is written.
        """
        self.run(own)
        return None


class Method(ABC):
    """How the blocks of one chunk are moved between ranks. Making one is *Collective*."""

    name: ClassVar[str]
    prepared: ClassVar[type[PreparedMethod]]
    # Whether arrays of a call may differ from each other, and received blocks may be added.
    versatile: ClassVar[bool] = True

    def __init__(self, plan: ChunkPlan) -> None:
        self.plan = plan

    @classmethod
    def for_chunks(cls, plans: Sequence[ChunkPlan]) -> Sequence[Method]:
        """Make a method for each chunk. *Collective*."""
        return [cls(plan) for plan in plans]

    def prepare(self, sources: Arrays, targets: Arrays, *, aliased: bool) -> PreparedMethod:
        """Prepare to move ``sources[i]`` to ``targets[i]``; local."""
        return self.prepared(self, sources, targets, aliased=aliased)

    def off_node(self) -> Traffic:
        """Count what this rank sends to other nodes for one array of each pack plan.

        A large block counts as one message, although MPI may need several. *Collective* the first
        time.
        """
        on_node = self.plan.topology.on_node
        far = [
            (peer, nbytes)
            for sends in self.plan.sends
            for peer, nbytes in zip(sends.peers, sends.nbytes, strict=True)
            if nbytes and peer not in on_node
        ]
        return Traffic(len({peer for peer, _ in far}), sum(nbytes for _, nbytes in far))

    def has_room(self) -> bool:
        """Whether all nodes have the shared memory that is needed. *Collective*."""
        return True

    def free(self) -> None:  # noqa: B027 - most methods own no MPI objects
        """Free MPI objects; local."""
