"""A halo exchange for given fields, which runs any number of times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from pencils.comm.exchange import Handle, PreparedExchange
from pencils.comm.methods.pull import PreparedPull
from pencils.comm.pack import no_op
from pencils.comm.recording import timed
from pencils.comm.topology import Topology


class PreparedHalo(ABC):
    """The steps and the fields they work on.

    A call reserves, meets all ranks in an agreement, and moves; or it runs. If `meets` is true,
    older exchanges must be complete before it reserves.
    """

    meets: ClassVar[bool] = False
    topology: Topology

    @abstractmethod
    def reserve(self) -> None:
        """Prepare the next call, which cannot fail afterwards; local. No ghost changes."""

    @abstractmethod
    def move(self) -> None:
        """Do all steps, after all ranks have reserved. *Collective*."""

    def run(self) -> None:
        """Do all steps, without an agreement before. *Collective*."""
        self.move()

    @abstractmethod
    def start(self) -> Handle[None]:
        """Start, after all ranks have reserved. *Collective*.

        The fields may be read, not written, before ``wait`` is called.
        """


class PulledHalo(PreparedHalo):
    """Ghosts that are copied from the staging blocks of other ranks, then those of this rank."""

    meets = True

    def __init__(self, topology: Topology, prepared: PreparedPull) -> None:
        self.topology = topology
        self.prepared = prepared

    def reserve(self) -> None:
        """Pack what other ranks need."""
        self.prepared.pack()

    def move(self) -> None:
        """Copy the ghosts."""
        self.prepared.pull()

    def run(self) -> None:
        """Complete older exchanges, and do all steps."""
        self.prepared.run()

    def start(self) -> Handle[None]:
        """Do all steps: there is nothing to wait for."""
        self.prepared.pull()
        return Handle.completed(None)


class HaloByPhases(PreparedHalo):
    """Copies of this rank, and an exchange for each phase."""

    def __init__(
        self,
        topology: Topology,
        phases: Sequence[PreparedExchange],
        *,
        before: Callable[[], None] = no_op,
        after: Callable[[], None] = no_op,
    ) -> None:
        self.topology = topology
        self._before = before
        self._after = after
        self._phases = phases
        self._first, *self._others = phases
        self._most = max(phase.nbytes for phase in phases) if self._others else 0

    def reserve(self) -> None:
        """Allocate what the next call needs."""
        if self._most:
            # Two buffers that are large enough for all phases, before one takes smaller ones.
            buffers = self._first.exchange.buffers
            for buffer in [buffers.take(self._most) for _ in range(2)]:
                buffers.give(buffer)
        for phase in self._phases:
            phase.reserve()

    def move(self) -> None:
        """Complete older exchanges, and do all steps."""
        self.topology.complete()
        timed("copy", self._before)
        self._first.move()
        self._finish()

    def start(self) -> Handle[None]:
        """Start the first phase; the others follow when it is complete."""
        timed("copy", self._before)
        return self._first.start(None, self._finish)

    def _finish(self) -> None:
        for phase in self._others:
            phase.move()
        timed("copy", self._after)
