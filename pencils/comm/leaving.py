"""Leave a ``with`` block together: if its body fails on one rank, all ranks raise at its end.

A rank that fails cannot wait for the others, which may wait for it anywhere in the body. So it
starts a nonblocking collective with its error, and does not wait for it. Ranks that reach the end
complete the collective, and get the error of the first rank that failed, if any.
"""

from __future__ import annotations

import atexit
import pickle
from abc import ABC, abstractmethod
from functools import cache
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

import numpy as np

from pencils.comm.fault import Fault, shown
from pencils.comm.mpi import MPI
from pencils.comm.uncopied import Uncopied

# Bytes of a message, and how many of them share a number with the place of the rank.
_BYTES, _EACH = 1024, 4
# Bytes of the text of an error, so that a message holds it.
_MOST = 600
# Seconds for which a process that ends waits for others to take its message, and looks for that.
_PATIENCE, _PAUSE = 5.0, 0.002
# Messages that this rank has left, until all others have them.
_left: list[tuple[MPI.Request, MPI.buffer]] = []


class LeftTogether(Uncopied, ABC):
    """What all ranks use in a ``with`` block, which they leave together.

    If the body fails on some ranks only, those raise their own error and do not wait; the others
    raise one of the same type, which names the first rank that failed, at the end of the block.
    Then no rank executes the end of the block.
    """

    __slots__ = ()

    @abstractmethod
    def _meet(self) -> MPI.Intracomm | None:
        """Private communicator of the ranks; None if no rank waits for others in the end. Local."""

    @abstractmethod
    def _end_block(self) -> None:
        """Do what there is to do in the end. *Collective*."""

    @abstractmethod
    def _give_up(self, error: BaseException, /) -> None:
        """Do what this rank can do alone, instead of that: others may never get here. Local."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        comm = self._meet()
        fault: BaseException | None = error
        if comm is not None and comm != MPI.COMM_NULL and comm.size > 1:
            if error is None:
                fault = _hear(comm)
            else:
                _tell(comm, error)
        if fault is None:
            self._end_block()
            return
        self._give_up(fault)
        if error is None:
            raise fault


def _hear(comm: MPI.Intracomm) -> Exception | None:
    """Wait for all ranks; return the error of the first that failed, if any did. *Collective*."""
    numbers = np.zeros(_BYTES // _EACH, np.int64)
    # Only nonblocking collectives meet nonblocking ones.
    comm.Iallreduce(MPI.IN_PLACE, numbers, op=MPI.MAX).Wait()
    place = int(numbers[0]) >> 8 * _EACH
    if place == 0:
        return None
    text = (numbers & (2 ** (8 * _EACH) - 1)).astype("<u4").tobytes()
    fault: Fault = pickle.loads(text)  # noqa: S301 - from a rank of the same program
    return fault.on(comm.size - place)


def _tell(comm: MPI.Intracomm, error: BaseException) -> None:
    """Leave a message for ranks that reach the end of the block. Does not wait for them."""
    _deliver()
    _deliver_in_the_end()
    # MPI may need the memory after the interpreter has ended.
    memory: Any = MPI.Alloc_mem(8 * _BYTES // _EACH)
    numbers = np.frombuffer(memory, np.int64)
    numbers[:] = np.frombuffer(_message(error).ljust(_BYTES, b"\0"), "<u4")
    # The largest number wins: everywhere that of the first rank.
    numbers += (comm.size - comm.rank) << 8 * _EACH
    _left.append((comm.Iallreduce(MPI.IN_PLACE, numbers, op=MPI.MAX), memory))


def _deliver() -> None:
    """Go on with messages that have been left, and forget those that all others have."""
    _left[:] = [one for one in _left if not _is_over(*one)]


@cache
def _deliver_in_the_end() -> None:
    """Let a process that ends give the others a while to arrive: MPI itself does not."""
    atexit.register(_wait)


def _wait() -> None:
    end = monotonic() + _PATIENCE
    while _left and monotonic() < end and not MPI.Is_finalized():
        _deliver()
        sleep(_PAUSE)


def _is_over(request: MPI.Request, memory: MPI.buffer) -> bool:
    over = request.Test()
    if over:
        MPI.Free_mem(memory)
    return over


def _message(error: BaseException) -> bytes:
    """Write down an error for other ranks; what ends a process does not end theirs."""
    if isinstance(error, Exception):
        fault = Fault.of(error)
    else:
        fault = Fault(RuntimeError, f"left the block by {shown(error)}", None)
    text = fault.text.encode(errors="replace")
    if len(text) > _MOST:
        fault = fault._replace(text=f"{text[:_MOST].decode(errors='ignore')} ...")
    return pickle.dumps(fault)
