"""The plan below every indexer: rows asked of their owners, by rank and place there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.comm.neighbours import incoming
from pencils.comm.rows import Ints, mover
from pencils.comm.topology import Topology
from pencils.indexer.block import Geometry
from pencils.indexer.grouping import Segments, group, inverse, last_of_each
from pencils.indexer.route import Calls, Route, Steps


class RowPlan:
    """Rows that this rank asks of their owners, and rows that others ask of it.

    It holds no data and knows no types: what a row is, and where it is read and written, is the
    business of those who use the two routes. Making one is *Collective*.

    Parameters
    ----------
    topology : Topology
        The ranks.
    locate : callable
        Finds the rank that owns each requested row, and the number of the row among those of its
        owner.
    rows : int
        Number of rows that this rank owns.

    Attributes
    ----------
    order : numpy.ndarray
        Requests in the order in which they travel.
    wanted : numpy.ndarray
        Own rows that are asked for, in write order: by rank, then in the order of requests.
    pulls : Route
        From owners to those who ask.
    pushes : Route
        From those who ask to owners.
    """

    def __init__(
        self, topology: Topology, locate: Callable[[], tuple[Ints, Ints]], rows: int
    ) -> None:
        self._rank = topology.rank
        with agreed(topology.comm, "indexer"):  # one rank may have no memory for it
            owners, offsets = locate()
            self.order, self._asked = group(owners, topology.comm.size)
            offsets = self.in_order(offsets)
        self._served = Segments.of(*incoming(topology.comm, self._asked.peers, self._asked.counts))
        self.pulls = Route(topology, self._served, self._asked)
        self.pushes = Route(topology, self._asked, self._served)
        with agreed(topology.comm, "indexer"):
            move = self.pushes.ready(offsets)
        self.wanted: Ints = move()
        self.rows = rows
        self._positions: dict[Geometry, Ints] = {}

    def in_order(self, source: Array) -> Array:
        """Return what belongs to each request in the order in which they travel."""
        if self._is_sorted:
            return source
        found = np.empty_like(source)
        mover(found, None, source, self.order)()
        return found

    def answers(
        self,
        source: Array,
        numbers: Ints,
        leaving: Array,
        arriving: Array,
        out: Array,
        *,
        aliased: bool,
    ) -> Steps:
        """Prepare to take ``source[numbers]``, for all in `wanted`.

        Parameters
        ----------
        source : numpy.ndarray
            What this rank owns.
        numbers : numpy.ndarray
            Where in it the `wanted` rows are.
        leaving, arriving : numpy.ndarray
            The lane: what others want, and what comes from them.
        out : numpy.ndarray
            To be filled, for each request.
        aliased : bool
            Whether writing to it may change a source that is read in the same call.

        Returns
        -------
        pack, unpack : list of callable
            What is done before and after the others' rows travel.
        """
        own, here = self._asked.of_rank(self._rank), self._served.of_rank(self._rank)
        parts = self._served.of_others(self._rank)
        pack = [mover(leaving[part], None, source, numbers[part]) for part in parts]
        parts = self._asked.of_others(self._rank)
        unpack = [self._to_requests(out, part, arriving[part], None) for part in parts]
        if aliased:  # all is read before anything is written
            pack.append(mover(arriving[own], None, source, numbers[here]))
            return pack, [*unpack, self._to_requests(out, own, arriving[own], None)]
        return pack, [self._to_requests(out, own, source, numbers[here]), *unpack]

    def letters(self, source: Array, lane: Array, own_lane: Array) -> Calls:
        """Prepare to pack what is for others, and what this rank writes to its own rows."""
        own, here = self._asked.of_rank(self._rank), self._served.of_rank(self._rank)
        parts = self._asked.of_others(self._rank)
        packed = [self._of_requests(source, part, lane[part]) for part in parts]
        return [self._of_requests(source, own, own_lane[here]), *packed]

    def positions(self, geometry: Geometry) -> Ints:
        """Return where `wanted` rows lie in memory, found once for all blocks that are alike."""
        if geometry not in self._positions:
            self._positions[geometry] = geometry.positions(self.wanted)
        return self._positions[geometry]

    @cached_property
    def writers(self) -> tuple[Ints, Ints]:
        """Own rows that are asked for, and which of those in `wanted` is written last to each.

        Costs memory for those only.
        """
        return last_of_each(self.wanted, self.rows)

    @property
    def times_wanted(self) -> Ints:
        """How often each own row is asked for."""
        return np.bincount(self.wanted, minlength=self.rows)

    @property
    def places(self) -> Ints:
        """For each request, when it travels."""
        return inverse(self.order)

    def free(self) -> None:
        """Complete what is under way, and release memory and MPI objects.

        *Collective* if anything is under way.
        """
        self.pulls.free()
        self.pushes.free()

    @property
    def _is_sorted(self) -> bool:
        """Whether requests travel as they come."""
        return len(self._asked.peers) <= 1

    def _to_requests(
        self, out: Array, part: slice, source: Array, rows: Ints | None
    ) -> Callable[[], None]:
        if self._is_sorted:
            return mover(out[part], None, source, rows)
        return mover(out, self.order[part], source, rows)

    def _of_requests(self, source: Array, part: slice, out: Array) -> Callable[[], None]:
        if self._is_sorted:
            return mover(out, None, source[part], None)
        return mover(out, None, source, self.order[part])
