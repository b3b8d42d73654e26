"""The plan below every indexer: rows asked of their owners, by rank and place there."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from pencils.comm.neighbours import incoming
from pencils.comm.topology import Topology
from pencils.indexer.grouping import Ints, Segments, group, inverse, last_of_each
from pencils.indexer.route import Route


class RowPlan:
    """Rows that this rank asks of their owners, and rows that others ask of it.

    It holds no data and knows no types: what a row is, and where it is read and written, is the
    business of those who use the two routes. Making one is *Collective*.

    Parameters
    ----------
    topology : Topology
        The ranks.
    owners : numpy.ndarray
        Rank that owns each requested row.
    offsets : numpy.ndarray
        Number of each requested row among those of its owner.
    rows : int
        Number of rows that this rank owns.

    Attributes
    ----------
    order : numpy.ndarray
        Requests in the order in which they travel.
    places : numpy.ndarray
        For each request, when it travels.
    wanted : numpy.ndarray
        Own rows that are asked for, in write order: by rank, then in the order of requests.
    pulls : Route
        From owners to those who ask.
    pushes : Route
        From those who ask to owners.
    """

    def __init__(self, topology: Topology, owners: Ints, offsets: Ints, rows: int) -> None:
        self.order, asked = group(owners, topology.comm.size)
        served = Segments.of(*incoming(topology.comm, asked.peers, asked.counts))
        self.places = inverse(self.order)
        self.pulls = Route(topology, served, asked)
        self.pushes = Route(topology, asked, served)
        self.wanted: Ints = self.pushes.move(offsets[self.order])
        self.rows = rows

    @cached_property
    def writers(self) -> tuple[Ints, Ints]:
        """Own rows that are asked for, and which of those in `wanted` is written last to each."""
        return last_of_each(self.wanted, self.rows)

    @property
    def times_wanted(self) -> Ints:
        """How often each own row is asked for."""
        return np.bincount(self.wanted, minlength=self.rows)

    def free(self) -> None:
        """Complete what is under way, and release memory and MPI objects.

        *Collective* if anything is under way.
        """
        self.pulls.free()
        self.pushes.free()
