"""The lists of global indices of a `GlobalIndexer` or `GlobalMultiIndexer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from pencils.comm.agree import agreed, read_comm
from pencils.comm.rows import Points, locate
from pencils.comm.topology import topology_of
from pencils.indexer.agreement import Agreement
from pencils.indexer.arguments import read_distri, read_indices, read_lists, told
from pencils.indexer.gather_scatter import GatherScatter
from pencils.indexer.requests import bounds_of

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")


class Names(NamedTuple):
    """Names in errors of an indexer, of its lists, and of the data that belong to them.

    Parameters
    ----------
    owner, indices, data : str
        The class, its argument with the indices, and that of methods with an entry for each list.
    several : bool
        Whether these arguments are lists of entries, or the only entry itself.
    """

    owner: str
    indices: str
    data: str
    several: bool


class IndexLists:
    """Lists of global indices on all processes, into one distributed collection. *Collective*.

    Parameters
    ----------
    names : Names
        Names for errors.
    distri, indices, comm, check
        As for `GlobalMultiIndexer`.

    Attributes
    ----------
    topology : Topology
        The ranks.
    plan : GatherScatter
        All lists, one after the other.
    agreement : Agreement
        Checks that all ranks make the same call.
    sizes : list of int
        Length of every list.
    parts : list of slice
        The position of the lists among all indices.
    """

    def __init__(
        self,
        names: Names,
        distri: object,
        indices: object,
        comm: MPI.Intracomm | None,
        *,
        check: bool,
    ) -> None:
        self.names = names
        self.topology = topology_of(read_comm(comm, names.owner))
        size, rank = self.topology.comm.size, self.topology.rank
        with agreed(self.topology.comm, names.owner) as same:
            cuts = read_distri(distri, size)
            same(distri=told(cuts), check=bool(check))
            lists = [
                read_indices(self._entry(names.indices, number), index, int(cuts[-1]))
                for number, index in enumerate(self._entries(names.indices, indices))
            ]
            index = np.concatenate([np.empty(0, np.int64), *lists])
        number = next(self.topology.numbers)
        self.agreement = Agreement(self.topology, number, names.owner, check=check)
        find = partial(locate, Points((index,), (cuts,), (1,), 0))
        self.plan = GatherScatter(self.topology, find, int(cuts[rank + 1] - cuts[rank]))
        self.sizes = [len(index) for index in lists]
        self.parts = [slice(lo, hi) for lo, hi in pairwise(bounds_of(self.sizes).tolist())]

    def name(self, number: int) -> str:
        """Name the data of a list of indices in errors."""
        return self._entry(self.names.data, number)

    def read(self, value: object, read: Callable[[str, Any, int], T], width: int = 1) -> list[T]:
        """Read the data of each list: an entry for each index, or `width` of them."""
        entries = self._entries(self.names.data, value, len(self.sizes))
        return [
            read(self.name(number), entry, width * size)
            for number, (entry, size) in enumerate(zip(entries, self.sizes, strict=True))
        ]

    def result(self, entries: list[Any]) -> Any:
        """Return the result of a call that made an entry for each list."""
        return entries if self.names.several else entries[0]

    def _entries(self, name: str, value: Any, count: int | None = None) -> Sequence[Any]:
        return read_lists(name, value, count) if self.names.several else [value]

    def _entry(self, name: str, number: int) -> str:
        return f"{name}[{number}]" if self.names.several else name
