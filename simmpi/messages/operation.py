"""What a rank starts and has to complete; and the status that completing it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from simmpi.constants import ANY_SOURCE, ANY_TAG, UNDEFINED
from simmpi.exceptions import ERR_REQUEST, SUCCESS, MPIError

if TYPE_CHECKING:
    from simmpi.ranks import Waiting
    from simmpi.types.datatypes import Datatype
    from simmpi.world import World


class Status:
    """Source, tag and number of bytes of a message that was received."""

    def __init__(self, status: Status | None = None) -> None:
        self._nbytes = 0
        self.source, self.tag, self.error, self.cancelled = ANY_SOURCE, ANY_TAG, SUCCESS, False
        if status is not None:
            self.set(status.source, status.tag, status.count, cancelled=status.cancelled)

    def set(self, source: int, tag: int, nbytes: int, *, cancelled: bool = False) -> None:
        """Describe a message; not in MPI."""
        self.source, self.tag, self._nbytes = source, tag, nbytes
        self.cancelled = cancelled

    @property
    def count(self) -> int:
        """Number of bytes."""
        return self._nbytes

    @count.setter
    def count(self, nbytes: int) -> None:
        self._nbytes = nbytes

    def Get_source(self) -> int:
        """Rank of the sender."""
        return self.source

    def Set_source(self, source: int) -> None:
        """Set the rank of the sender."""
        self.source = source

    def Get_tag(self) -> int:
        """Tag of the message."""
        return self.tag

    def Set_tag(self, tag: int) -> None:
        """Set the tag."""
        self.tag = tag

    def Get_error(self) -> int:
        """Error code."""
        return self.error

    def Set_error(self, error: int) -> None:
        """Set the error code."""
        self.error = error

    def Get_count(self, datatype: Datatype | None = None) -> int:
        """Return the number of whole elements of a type; UNDEFINED if there is a part of one."""
        size = 1 if datatype is None else datatype.size
        if size == 0:
            return 0
        return UNDEFINED if self._nbytes % size else self._nbytes // size

    def Get_elements(self, datatype: Datatype) -> int:
        """Number of basic elements of a type."""
        parts = [
            (1 if code in {"byte", "packed"} else np.dtype(code).itemsize, count)
            for code, count in datatype.kind.typemap.signature
        ]
        if not datatype.size:
            return 0
        whole, rest = divmod(self._nbytes, datatype.size)
        found = whole * sum(count for _, count in parts)
        for size, count in parts:
            some = min(count, rest // size)
            found, rest = found + some, rest - some * size
            if some < count:
                break
        return UNDEFINED if rest else found

    def Set_elements(self, datatype: Datatype, count: int) -> None:
        """Set the number of elements."""
        self._nbytes = count * datatype.size

    def Is_cancelled(self) -> bool:
        """Whether the message was cancelled."""
        return self.cancelled

    def Set_cancelled(self, flag: bool) -> None:
        """Set whether the message was cancelled."""
        self.cancelled = flag


class Operation(ABC):
    """A send, a receive or a collective of one rank, from its start to its completion."""

    def __init__(self, world: World, call: str) -> None:
        self.world = world
        self.call = call
        self.rank = world.scheduler.running(call)
        self.result: Any = None
        self.cancelled = False
        self.detached = False  # whether the program has freed the request
        self.completed = False
        self.rank.operations[self] = None

    @abstractmethod
    def done(self) -> bool:
        """Whether `complete` need not wait."""

    @abstractmethod
    def waiting(self) -> Waiting:
        """Describe what is waited for."""

    @abstractmethod
    def text(self) -> str:
        """Describe the operation."""

    @abstractmethod
    def finish(self, status: Status | None) -> None:
        """Do what completing requires."""

    def describe(self, status: Status) -> None:
        """Set the status of an operation that is done."""
        status.set(ANY_SOURCE, ANY_TAG, 0, cancelled=self.cancelled)

    def cancel(self) -> None:
        """Give up, if possible."""
        raise MPIError(ERR_REQUEST, f"{self.call}: only sends and receives can be cancelled")

    def detach(self) -> None:
        """Complete by itself: the program has dropped the request."""
        if self.done() and not self.world.scheduler.ended:
            self.complete()
        self.detached = True
        self.rank.operations.pop(self, None)

    def check_rank(self, call: str) -> None:
        """Raise if another rank than the running one has started this."""
        rank = self.world.scheduler.running(call)
        if rank is not self.rank:
            raise MPIError(
                ERR_REQUEST,
                f"{call}: rank {rank.number} uses a request of rank {self.rank.number}; each rank "
                "completes its own",
            )

    def complete(self, status: Status | None = None) -> Any:
        """Complete an operation that is done; return its result."""
        if not self.completed:
            self.completed = True
            self.rank.operations.pop(self, None)
            self.finish(status)
        return self.result

    def wait(self, status: Status | None = None) -> Any:
        """Let other ranks run until this is done; complete it."""
        if not self.completed and not self.done():
            self.world.scheduler.wait(self.done, self.waiting())
        return self.complete(status)
