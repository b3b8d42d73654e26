"""A transpose of given blocks, prepared: by staging blocks that ranks pull from, or an exchange.

Both have the same steps. A call that all ranks agree on reserves and packs before the agreement,
and finishes after it; any other call runs. Views are borrowed: what is prepared keeps no field of
the user alive, and suits any blocks at the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import FieldSpec
from pencils.comm.exchange import Exchange, Handle
from pencils.comm.memory import borrowed, place
from pencils.comm.methods.pull import Pull
from pencils.comm.pack import no_op
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology
from pencils.transposition.sides import PlanOptions, Side, find_pull, make_exchange

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")

# Places of blocks for which a plan has something prepared.
_MOST_PLACES = 64


class Move(Protocol):
    """A transpose of given blocks."""

    def reserve(self) -> None:
        """Allocate what the next call needs; local."""

    def pack(self) -> None:
        """Do what comes before the agreement on a call; local. No target changes."""

    def finish(self) -> None:
        """Move the data, after all ranks have packed and agreed. *Collective*."""

    def run(self) -> None:
        """Move the data, without an agreement. *Collective*."""

    def run_open(self) -> MPI.Intracomm | None:
        """Run, but return the ranks that may still read sources, if any. *Collective*."""

    def start(
        self, result: T, sources: object, *, agreed: bool, after: Callable[[], None] = no_op
    ) -> Handle[T]:
        """Start to move the data; the handle keeps the fields `sources`. *Collective*.

        `after` is called when the data have come.
        """


class MoveByPull:
    """Small blocks: the agreement is the only barrier."""

    def __init__(self, pull: Pull, sources: Sequence[Array], targets: Sequence[Array]) -> None:
        every = product(sources, targets)
        aliased = any(np.may_share_memory(*pair) for pair in every)
        views = list(map(borrowed, sources)), list(map(borrowed, targets))
        prepared = pull.prepare(*views, aliased=aliased)
        self.pack: Callable[[], None] = prepared.pack
        self.finish: Callable[[], None] = prepared.pull
        self.run: Callable[[], None] = prepared.run

    def reserve(self) -> None:
        """Do nothing: all memory is there."""

    def run_open(self) -> None:
        """Run; afterwards nobody reads the sources. *Collective*."""
        self.run()

    def start(
        self,
        result: T,
        sources: object,  # noqa: ARG002
        *,
        agreed: bool,
        after: Callable[[], None] = no_op,
    ) -> Handle[T]:
        """Move the data: there is nothing to wait for. *Collective*."""
        if agreed:
            self.finish()
        else:
            self.run()
        after()
        return Handle.completed(result)


class MoveByExchange:
    """Blocks of any size, by any method."""

    def __init__(
        self, exchange: Exchange, sources: Sequence[Array], targets: Sequence[Array]
    ) -> None:
        prepared = exchange.prepare(list(map(borrowed, sources)), list(map(borrowed, targets)))
        self._start = prepared.start
        self.reserve: Callable[[], None] = prepared.reserve
        self.finish = self.run = prepared.run
        self.run_open: Callable[[], MPI.Intracomm | None] = prepared.run_open

    def pack(self) -> None:
        """Do nothing: sources are packed while they are sent."""

    def start(
        self,
        result: T,
        sources: object,
        *,
        agreed: bool,  # noqa: ARG002
        after: Callable[[], None] = no_op,
    ) -> Handle[T]:
        """Start the exchange. *Collective*."""
        return self._start(result, partial(_let_go, sources, after))


class Moves:
    """What a plan moves blocks by, and what is prepared for blocks. Making it is *Collective*."""

    def __init__(
        self,
        sides: tuple[Side, Side],
        spec: FieldSpec,
        options: PlanOptions,
        topology: Topology,
        buffers: Buffers,
    ) -> None:
        self._topology = topology
        self._bound: dict[tuple[Any, ...], Move] = {}  # by way, and by the places of blocks
        self._make = partial(make_exchange, sides, spec, options, topology, buffers)
        self._exchange: Exchange | None = None
        self._meets = options.meets
        self.pull: Pull | None = None
        if options.max_buffer_bytes is None:
            self.pull = find_pull(sides, spec, options, topology)
        if self.pull is None or not self._meets:
            self.exchange()
        self.method = self.exchange().method if self.pull is None else Pull.name

    def exchange(self) -> Exchange:
        """Return the exchange for large blocks. *Collective* the first time."""
        if self._exchange is None:
            self._exchange = self._make()
        return self._exchange

    def pull_for(self, fields: int, *, started: bool = False) -> Pull | None:
        """Return what so many fields are pulled by, if they are.

        Where a start must not wait for all ranks, fields are not pulled by one.
        """
        pull = self.pull
        if pull is None or not pull.fits(fields) or (started and not self._meets):
            return None
        return pull

    def needs_setup(self, fields: int, *, started: bool = False) -> bool:
        """Whether ranks have to make something before they move so many fields."""
        if self.pull_for(fields, started=started) is None:
            return self._exchange is None
        return bool(self._topology.under_way)  # it may still write what would be packed

    def set_up(self, fields: int) -> None:
        """Complete older exchanges, and make what moves many fields at once. *Collective*."""
        self._topology.complete()
        if self.pull_for(fields) is None:
            self.exchange()

    def bound(self, sources: list[Array], targets: list[Array], *, started: bool = False) -> Move:
        """Prepare to move blocks that were checked; local."""
        pull = self.pull_for(len(sources), started=started)
        key = (pull is None, *[place(block) for block in (*sources, *targets)])
        found = self._bound.get(key)
        if found is None:
            if pull is not None:
                found = MoveByPull(pull, sources, targets)
            else:
                assert self._exchange is not None
                found = MoveByExchange(self._exchange, sources, targets)
            if len(self._bound) >= _MOST_PLACES:
                self._bound.clear()
            self._bound[key] = found
        return found

    def free(self) -> None:
        """Complete what is under way and release MPI objects. *Collective* if anything is."""
        self._bound.clear()
        del self._make  # a freed plan that is still referenced keeps no memory
        if self._exchange is not None:
            self._exchange.free()


def _let_go(_: object, after: Callable[[], None]) -> None:
    """Call `after`; the other object lives until then."""
    after()
