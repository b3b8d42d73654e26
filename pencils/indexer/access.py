"""What one indexer is made of, below its methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed, read_comm
from pencils.comm.rows import Points, locate
from pencils.comm.topology import topology_of
from pencils.indexer.agreement import Agreement, Named
from pencils.indexer.arguments import read_distri, read_indices, read_lists, told
from pencils.indexer.grouping import starts
from pencils.indexer.route import MOST_HELD, Errand, Transfer
from pencils.indexer.rows import RowPlan
from pencils.plan import FieldPlan

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")


class Names(NamedTuple):
    """What errors call an indexer, and its arguments that have an entry for each list.

    Parameters
    ----------
    owner : str
        Its class.
    indices : str
        The lists of indices.
    data : str
        What belongs to the indices.
    several : bool
        Whether these arguments are lists of such entries, or the only entry itself.
    """

    owner: str
    indices: str
    data: str
    several: bool

    def entry(self, name: str, number: int) -> str:
        """Name an entry of an argument."""
        return f"{name}[{number}]" if self.several else name


class Access(FieldPlan[Transfer[Any]]):
    """Lists of global indices on all processes, into one distributed collection. *Collective*.

    Parameters
    ----------
    names : Names
        What errors call the indexer.
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
        self,
        names: Names,
        distri: object,
        g_idx_l: object,
        comm: MPI.Intracomm | None,
        *,
        check: bool,
    ) -> None:
        topology = topology_of(read_comm(comm, names.owner))
        with agreed(topology.comm, names.owner) as same:
            cuts = read_distri(distri, topology.comm.size)
            same(distri=told(cuts), check=bool(check))
            lists = [
                read_indices(names.entry(names.indices, number), index, int(cuts[-1]))
                for number, index in enumerate(read_lists(names.indices, g_idx_l))
            ]
            index = np.concatenate([np.empty(0, np.int64), *lists])
        super().__init__(topology)
        self._names = names
        self.agreement = Agreement(topology, next(topology.numbers), names.owner, check=check)
        rows = int(cuts[topology.rank + 1] - cuts[topology.rank])
        points = Points((index,), (cuts,), (1,), 0)
        self.plan = RowPlan(topology, partial(locate, points), rows)
        self.sizes = [len(index) for index in lists]
        bounds = starts(self.sizes).tolist()
        self.parts = [slice(lo, hi) for lo, hi in pairwise(bounds)]

    def name(self, number: int) -> str:
        """Name what belongs to a list of indices."""
        return self._names.entry(self._names.data, number)

    def each(self, value: object, read: Callable[[str, Any, int], T], width: int = 1) -> list[T]:
        """Read what belongs to each list: an entry for each index, or `width` of them."""
        entries: Sequence[Any] = read_lists(self._names.data, value, len(self.sizes))
        return [
            read(self.name(number), entry, width * size)
            for number, (entry, size) in enumerate(zip(entries, self.sizes, strict=True))
        ]

    def each_given(
        self, value: object, read: Callable[[str, Any, int], T], width: int = 1
    ) -> list[T]:
        """Read what belongs to each list, if it was given; it may be left out."""
        return [] if value is None else self.each(value, read, width)

    def named(self, arrays: Iterable[Array]) -> list[Named]:
        """Name arrays, of which one belongs to each list."""
        return [(self.name(number), array) for number, array in enumerate(arrays)]

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
