"""Accesses to memory of other ranks: what they copy, when they do, and which ones conflict.

MPI leaves open when an access happens: at some time between its call and the synchronization that
completes it. Without a seed it happens at its completion; with one, sometimes at the call.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from simmpi.types.buffers import Buffer
    from simmpi.types.memory import Bytes
    from simmpi.types.typemaps import Ints

READ, WRITE, UPDATE = "read", "write", "update"


class Access:
    """One access of rank `origin` to memory of rank `target`, `where` it is.

    `sent` holds the `data` of the call; `result` gets what is found; `change` makes the new bytes
    of the ones that are found. A write has no `change`, and a read has no `data` either.
    """

    def __init__(
        self,
        call: str,
        origin: int,
        target: int,
        where: Buffer,
        *,
        sent: Buffer | None = None,
        result: Buffer | None = None,
        change: Callable[[Bytes, Bytes], Bytes] | None = None,
    ) -> None:
        self.call = call
        self.origin, self.target, self.where = origin, target, where
        self.sent = sent
        self.data = None if sent is None else sent.pack()
        self.result = result
        self.change = change
        self.kind = UPDATE if change is not None else READ if self.data is None else WRITE
        low, high = where.typemap.bounds if where.nbytes else (0, 0)
        self.low, self.high = where.address + low, where.address + high
        self.found: Bytes | None = None
        self.applied = False
        self.before: Bytes | None = None  # what the result has held

    def protect(self) -> None:
        """Fill the buffer of the result, so that programs that read it too early are noticed."""
        if self.result is not None:
            self.before = self.result.pack()
            self.result.poison()

    def apply(self) -> None:
        """Copy, unless it was done before."""
        if self.applied:
            return
        self.applied = True
        if self.kind == WRITE:
            assert self.data is not None
            self.where.unpack(self.data)
            return
        self.found = self.where.pack()
        if self.change is not None:
            assert self.data is not None
            self.where.unpack(self.change(self.found, self.data))

    def deliver(self) -> str | None:
        """Write the result; return what the program has done to its buffers too early."""
        wrong = self.release()
        result, self.result = self.result, None
        if result is None:
            return wrong
        if self.before is not None and not result.is_poisoned():
            wrong = "the program changed the buffer of the result"
        assert self.found is not None
        result.unpack(self.found)
        return wrong

    def release(self) -> str | None:
        """Let the program use the buffer that was sent; return what it has done too early."""
        sent, self.sent = self.sent, None
        if sent is None or self.data is None or np.array_equal(sent.pack(), self.data):
            return None
        return "the program changed the buffer"

    def text(self) -> str:
        """Describe the access."""
        return f"{self.call} of rank {self.origin} to rank {self.target}"


class OpenAccesses:
    """Accesses to the memory of one rank that are not complete, by their lowest address."""

    def __init__(self) -> None:
        self._accesses: list[Access] = []
        self._longest = 0

    def conflict(self, new: Access) -> Access | None:
        """Find an access to the same bytes of which one writes, and not both update."""
        every = self._accesses
        place = bisect_left(every, new.low - self._longest, key=_low)
        while place < len(every) and every[place].low < new.high:
            other = every[place]
            excluded = other.kind != new.kind or new.kind == WRITE
            if other.high > new.low and excluded and _overlap(other, new):
                return other
            place += 1
        return None

    def add(self, access: Access) -> None:
        """Add an access."""
        if access.high > access.low:
            insort(self._accesses, access, key=_low)
            self._longest = max(self._longest, access.high - access.low)

    def remove(self, accesses: Iterable[Access]) -> None:
        """Remove accesses, which are complete."""
        gone = {id(access) for access in accesses}
        self._accesses = [access for access in self._accesses if id(access) not in gone]
        self._longest = max((access.high - access.low for access in self._accesses), default=0)


_low = attrgetter("low")


def _overlap(one: Access, other: Access) -> bool:
    """Whether accesses, of which the bounds overlap, have a byte in common."""
    (starts, ends), (low, high) = _runs(one), _runs(other)
    before = np.searchsorted(starts, high, side="left") - 1  # the last run that begins before
    return bool(((before >= 0) & (ends[before] > low)).any())


def _runs(access: Access) -> tuple[Ints, Ints]:
    """Begins and ends of runs of bytes, in the order of memory."""
    offsets, lengths = access.where.typemap.runs
    order = np.argsort(offsets)
    starts = offsets[order] + access.where.address
    return starts, starts + lengths[order]
