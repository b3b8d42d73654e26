"""What one indexer is made of, below its methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pencils.comm.agree import agreed, read_comm
from pencils.comm.topology import topology_of
from pencils.indexer.agreement import Agreement
from pencils.indexer.arguments import read_distri, read_indices, read_lists, told
from pencils.indexer.grouping import part_of, starts
from pencils.indexer.rows import RowPlan

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")


class Access:
    """Lists of global indices on all processes, into one distributed collection. *Collective*.

    Parameters
    ----------
    distri, g_idx_l, comm, check
        As for `GlobalMultiIndexer`.

    Attributes
    ----------
    plan : RowPlan
        All lists, one after the other.
    agreement : Agreement
        What comes before every exchange.
    sizes : list of int
        Length of every list.
    parts : list of slice
        Where the lists stand among all indices.
    """

    def __init__(
        self, distri: object, g_idx_l: object, comm: MPI.Intracomm | None, *, check: bool
    ) -> None:
        topology = topology_of(read_comm(comm, "GlobalMultiIndexer"))
        with agreed(topology.comm, "GlobalMultiIndexer") as same:
            cuts = read_distri(distri, topology.comm.size)
            same(distri=told(cuts), check=bool(check))
            lists = [
                read_indices(f"list {number}", index, int(cuts[-1]))
                for number, index in enumerate(read_lists("g_idx_l", g_idx_l))
            ]
        self.agreement = Agreement(topology, next(topology.numbers), check=check)
        index = np.concatenate([np.empty(0, np.int64), *lists])
        owners = part_of(cuts, index)
        rows = int(cuts[topology.rank + 1] - cuts[topology.rank])
        self.plan = RowPlan(topology, owners, index - cuts[owners], rows)
        self.sizes = [len(index) for index in lists]
        bounds = starts(self.sizes).tolist()
        self.parts = [slice(lo, hi) for lo, hi in pairwise(bounds)]

    def each(
        self, name: str, value: object, read: Callable[[str, Any, int], T], width: int = 1
    ) -> list[T]:
        """Read what belongs to each list: an entry for each index, or `width` of them."""
        entries: Sequence[Any] = read_lists(name, value, len(self.sizes))
        return [
            read(f"{name}[{number}]", entry, width * size)
            for number, (entry, size) in enumerate(zip(entries, self.sizes, strict=True))
        ]

    def each_given(
        self, name: str, value: object, read: Callable[[str, Any, int], T], width: int = 1
    ) -> list[T]:
        """Read what belongs to each list, if it was given; it may be left out."""
        return [] if value is None else self.each(name, value, read, width)

    def free(self) -> None:
        """Complete what is under way, and release memory and MPI objects.

        *Collective* if anything is under way.
        """
        self.agreement.closed = True
        self.plan.free()
