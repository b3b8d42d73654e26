"""The one collective in which ranks agree, and the 64 bytes that each of them brings to it.

Every agreement, whatever it is about, is the same collective with rows of the same form, so that
ranks that call different verbs meet in it, too, and find that they differ. A row is eight integers:
whether this rank has failed, a digest of what must be equal, a digest of the element type, flags,
and 32 bytes of a value of the rank. Up to `MOST_GATHERED` ranks gather the rows; more ranks combine
them, without the values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.mpi import MPI
from pencils.comm.recording import current, timed

# With more ranks, rows are combined: what each rank receives must not grow with their number.
MOST_GATHERED = 64
# Bytes of a row, of its part that is not a value, and of the other part.
ROW, HEAD, VALUES = 64, 32, 32

_NUMBERS = Struct("=4q")
_NO_VALUES = bytes(VALUES)
_WORDS = HEAD // 8
_SOUND = bytes(8)  # begins a row of a rank that has not failed


def head(*, failed: bool, call: int, dtype: int, flags: int) -> bytes:
    """Return the part of a row that is not a value; `dtype` is 0 on a rank without a type."""
    return _NUMBERS.pack(failed, call, dtype, flags)


def waiting(comm: MPI.Intracomm) -> Callable[[], object]:
    """Return a function that waits for all ranks. *Collective*.

    For few ranks it gathers rows, like an agreement: MPI libraries do this faster than a barrier.
    """
    if comm.size > MOST_GATHERED:
        return comm.Barrier
    rows = bytearray(ROW * comm.size)
    return partial(comm.Allgather, [bytes(ROW), ROW, MPI.BYTE], [rows, ROW, MPI.BYTE])


class Meeting:
    """Memory for agreements of all ranks of a communicator, one after the other.

    Attributes
    ----------
    size : int
        Number of ranks.
    gathers : bool
        Whether rows are gathered, so that there is room for values.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.size = size = comm.size
        self.gathers = size <= MOST_GATHERED
        if not self.gathers:
            # Each number that must be equal, and its complement: if any bit differs between two
            # ranks, it is set in both results.
            self._combined = np.zeros((2, 1 + _WORDS + 1), np.int64)
            return
        self._mine, self._rows = bytearray(ROW), bytearray(ROW * size)
        self._sent = [self._mine, ROW, MPI.BYTE]
        self._received = [self._rows, ROW, MPI.BYTE]
        self._heads = Struct(f"{HEAD}s{VALUES}x" * size)
        self._head = b""  # that is in the row of this rank
        # All rows, and all heads, if all ranks have this head; rows only if there are no values.
        self._same_rows = b""
        self._same_heads: tuple[bytes, ...] | None = None  # None if this rank has failed
        self._flags = 0

    def values(self, dtype: np.dtype[Any], count: int = 1) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return room for the values of this rank, and for those that all ranks have after it.

        Their shapes are ``(count,)`` and ``(size, count)``; they have at most `VALUES` bytes.
        """
        mine = np.frombuffer(self._mine, dtype, count, HEAD)
        step = dtype.itemsize
        shape, strides = (self.size, count), (ROW, step)
        rows: NDArray[Any] = np.ndarray(shape, dtype, self._rows, HEAD, strides)
        return mine, rows

    def meet(self, mine: bytes) -> int | None:
        """Compare the heads of all ranks. *Collective*.

        Returns
        -------
        int or None
            The flags that are set on any rank; None if a rank has failed, or calls or types differ.
        """
        if not self.gathers:
            return self._combine(mine)
        if mine is not self._head:
            self._write(mine)
        recorder = current.recorder
        if recorder is None:
            self.comm.Allgather(self._sent, self._received)
        else:
            recorder.run("agree", self.comm.Allgather, self._sent, self._received)
        if self._rows == self._same_rows:
            return self._flags
        heads = self._heads.unpack(self._rows)
        if heads == self._same_heads:
            return self._flags
        numbers = np.frombuffer(b"".join(heads), np.int64)
        failed, calls, kinds, flags = numbers.reshape(-1, _WORDS).T
        known = kinds[kinds != 0]
        if failed.any() or (calls != calls[0]).any() or (known != known[:1]).any():
            return None
        return int(np.bitwise_or.reduce(flags))

    def _write(self, head: bytes) -> None:
        """Write the head of this rank, which stays for further calls."""
        self._mine[:HEAD] = self._head = head
        sound = head.startswith(_SOUND)
        self._same_rows = (head + _NO_VALUES) * self.size if sound else b""
        self._same_heads = (head,) * self.size if sound else None
        self._flags = _NUMBERS.unpack(head)[3]

    def _combine(self, mine: bytes) -> int | None:
        sent, received = self._combined
        failed, call, kind, flags = _NUMBERS.unpack(mine)
        sent[:] = failed, flags, call, ~call, kind, ~kind if kind else 0
        timed("agree", self.comm.Allreduce, sent, received, MPI.BOR)
        failed, flags, *same = received.tolist()
        if failed or same[0] & same[1] or same[2] & same[3]:
            return None
        return int(flags)
