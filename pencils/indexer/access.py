"""What one indexer is made of, below its methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pencils.comm.agree import agreed, read_comm
from pencils.comm.rows import Points, locate
from pencils.comm.topology import topology_of
from pencils.indexer.agreement import Agreement
from pencils.indexer.arguments import read_distri, read_indices, read_lists, told
from pencils.indexer.grouping import starts
from pencils.indexer.route import MOST_HELD, Errand, Transfer
from pencils.indexer.rows import RowPlan
from pencils.plans import FieldPlan

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")


class Access(FieldPlan[Transfer[Any]]):
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

    most_bound = MOST_HELD

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
        super().__init__(topology)
        self.agreement = Agreement(topology, next(topology.numbers), check=check)
        index = np.concatenate([np.empty(0, np.int64), *lists])
        rows = int(cuts[topology.rank + 1] - cuts[topology.rank])
        self.plan = RowPlan(topology, *locate(Points((index,), (cuts,), (1,), 0)), rows)
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

    def run(
        self,
        errand: Callable[..., Errand[Any]],
        call: str,
        source: object,
        target: object,
        *,
        count: object,
        reduce: object,
    ) -> Any:
        """Run an errand, or find it prepared if the same arrays come again. *Collective*.

        Parameters
        ----------
        errand : callable
            Makes it of the other arguments.
        call : str
            What is being called.
        source, target : object
            What is read and written where it is, if both are arrays.
        count, reduce
            As for `GlobalIndexer.Take`.
        """
        options = {"count": count, "reduce": reduce}
        if self.agreement.check or not (_is_array(source) and _is_array(target)):
            return errand(call, source, target, **options).run()
        key = call, id(source), id(target), *_states(source, target), str(count), id(reduce)
        found = self._found(key)
        if found is None:
            found = errand(call, source, target, **options).transfer()
            self._remember(key, found, [source, target])
        return found.run()

    def free(self) -> None:
        """Complete what is under way, and release memory and MPI objects.

        *Collective* if anything is under way.
        """
        self.agreement.closed = True
        self._bound.clear()
        self.plan.free()


def _states(*arrays: Any) -> list[object]:
    """Tell what may have changed of arrays that are passed again."""
    return [state for array in arrays for state in (array.dtype, array.flags.writeable)]


def _is_array(value: object) -> bool:
    return type(value) is np.ndarray
