"""Base classes of the methods by which blocks are moved between ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray

from pencils.comm.pack_plan import ChunkPlan

Array = NDArray[Any]


class PreparedMethod(ABC):
    """A method for the arrays of one call: views are sliced once, so that starting is fast."""

    nbytes = 0  # bytes of the larger one of the buffers to send from and to receive in

    @abstractmethod
    def start(self) -> Callable[[], None]:
        """Pack and send; return the function that receives and unpacks. *Collective*."""

    def reserve(self) -> None:  # noqa: B027 - shared memory needs little of it
        """Allocate what `start` needs; local. Ranks can still agree that one of them failed."""

    def run(self, own: Callable[[], None]) -> None:
        """Start, call `own` while data are on their way, and complete. *Collective*."""
        complete = self.start()
        own()
        complete()


class Method(ABC):
    """How blocks are moved between ranks. Making one is *Collective*.

    Parameters
    ----------
    plan : ChunkPlan
        What to move.
    """

    name: ClassVar[str]
    # Whether arrays of a call may differ from each other, and received blocks may be added.
    versatile: ClassVar[bool] = True

    def __init__(self, plan: ChunkPlan) -> None:
        self.plan = plan

    @classmethod
    def for_chunks(cls, plans: Sequence[ChunkPlan]) -> Sequence[Method]:
        """Make a method for each chunk. *Collective*."""
        return [cls(plan) for plan in plans]

    @abstractmethod
    def prepare(
        self, sources: Sequence[Array], targets: Sequence[Array], *, aliased: bool
    ) -> PreparedMethod:
        """Prepare to move ``sources[i]`` to ``targets[i]``; local.

        `aliased`: some target shares memory with some source.
        """

    def has_room(self) -> bool:
        """Whether all nodes have the shared memory that is needed. *Collective*."""
        return True

    def free(self) -> None:  # noqa: B027 - most methods own no MPI objects
        """Free MPI objects; local."""
