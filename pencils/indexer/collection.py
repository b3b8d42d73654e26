"""The implementation of `GlobalIndexer` and `GlobalMultiIndexer`, below their documented methods.

The lists of indices of a rank are handled as one, and results split into lists again. Every call
reads its arguments, and allocates what it needs, inside an agreement of all ranks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed, as_comm
from pencils.comm.rows import Points, locate
from pencils.comm.topology import topology_of
from pencils.indexer.arguments import (
    as_buffer,
    as_distri,
    as_indices,
    as_items,
    as_output,
    as_ragged,
    as_ragged_output,
    as_reduce,
    as_slots,
    summary,
)
from pencils.indexer.gather_scatter import MOST_HELD, GatherScatter, Request
from pencils.indexer.ragged import Ragged, extended, pickled, replaced, row_type, unpickled
from pencils.indexer.requests import bounds_of
from pencils.indexer.values import BufferTypes, blank, check_counts, put_steps, take_steps
from pencils.layout.integers import as_int
from pencils.plan import Agreement, Plan

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")
DType = np.dtype[Any]


class CollectionPlan(Plan[Request[Any]]):
    """Plan that reads and writes the items of collections by lists of global indices.

    Parameters
    ----------
    distri, indices, comm, check
        As for `GlobalMultiIndexer`.
    """

    most_remembered = MOST_HELD
    # The names of the lists of indices, and of the arguments with an entry for each list.
    _indices_name: ClassVar[str]
    _data_name: ClassVar[str]

    def __init__(
        self, distri: object, indices: object, comm: MPI.Intracomm | None, *, check: bool
    ) -> None:
        owner = type(self).__name__
        topology = topology_of(as_comm(comm, owner))
        size, rank = topology.comm.size, topology.rank
        with agreed(topology.comm, owner) as agree:
            cuts = as_distri(distri, size)
            agree(distri=summary(cuts), check=bool(check))
            lists = [
                as_indices(self._entry_name(self._indices_name, number), index, int(cuts[-1]))
                for number, index in enumerate(self._entries(self._indices_name, indices))
            ]
            index = np.concatenate([np.empty(0, np.int64), *lists])
        self._sizes = [len(index) for index in lists]
        self._parts = [slice(lo, hi) for lo, hi in pairwise(bounds_of(self._sizes).tolist())]
        self._number, self._items = next(topology.numbers), int(cuts[-1])
        super().__init__(topology, check=check)
        find = partial(locate, Points((index,), (cuts,), (1,), 0))
        self._rows = GatherScatter(topology, find, int(cuts[rank + 1] - cuts[rank]))

    @abstractmethod
    def _entries(self, name: str, value: Any, count: int | None = None) -> Sequence[Any]:
        """Return the entries of an argument, one for each of `count` lists."""

    @abstractmethod
    def _entry_name(self, name: str, number: int) -> str:
        """Name an entry of an argument in errors."""

    @abstractmethod
    def _result(self, entries: list[Any]) -> Any:
        """Return the result of a call that made an entry for each list."""

    def _describe(self) -> str:
        size = self._topology.comm.size
        name = type(self).__name__
        return f"<{name} {self._number} of {self._items} items over {size} processes>"

    def _release(self) -> None:
        self._rows.free()

    def _run(
        self,
        prepare: Callable[..., Request[Any]],
        call: str,
        source: Any,
        target: Any,
        *,
        count: object,
        reduce: object,
    ) -> Any:
        """Prepare a request and run it, or reuse the one for the same arrays. *Collective*."""
        if self._check or not (_is_array(source) and _is_array(target)):
            return prepare(call, source, target, count=count, reduce=reduce).run()
        states = source.dtype, source.flags.writeable, target.dtype, target.flags.writeable
        key = call, id(source), id(target), *states, str(count), id(reduce)
        found = self._found(key)
        if found is None:
            found = prepare(call, source, target, count=count, reduce=reduce)
            self._remember(key, found, [source, target])
        return found.run()

    # ---- a fixed number of values for each index ----

    def _take(
        self, call: str, dist_data: object, local: Any, *, count: object, reduce: object
    ) -> Request[Any]:
        def read(agree: Agreement, types: BufferTypes) -> Callable[[DType], Request[Any]]:
            width, op = as_int("count", count, least=1), as_reduce(reduce)
            agree(count=width, reduce=op)
            dist = as_buffer("dist_data", dist_data, width * self._rows.rows)
            given = [] if local is None else self._read(local, as_output, width)
            types.read([("dist_data", dist)], self._named(given), op)

            def make(dtype: DType) -> Request[Any]:
                outs, result = given, local
                if local is None:
                    outs = [blank(width * size, dtype, op) for size in self._sizes]
                    result = self._result(outs)
                steps = partial(take_steps, self._rows, dist, outs, self._parts, op=op, dtype=dtype)
                row, starts = row_type(dtype, width), call == "Take_start"
                return Request(self._rows.to_requesters, row, steps, result, starts=starts)

            return make

        return self._prepare_typed(call, read)

    def _put(
        self, call: str, local: object, dist_data: Any, *, count: object, reduce: object
    ) -> Request[Any]:
        def read(agree: Agreement, types: BufferTypes) -> Callable[[DType], Request[Any]]:
            width, op = as_int("count", count, least=1), as_reduce(reduce)
            agree(count=width, reduce=op)
            parts = self._read(local, as_buffer, width)
            size, outs = width * self._rows.rows, []
            if dist_data is not None:
                outs = [("dist_data", as_output("dist_data", dist_data, size))]
            types.read(self._named(parts), outs, op)

            def make(dtype: DType) -> Request[Any]:
                out = outs[0][1] if outs else blank(size, dtype, op)
                result = out if dist_data is None else dist_data
                steps = partial(put_steps, self._rows, parts, out, op=op, dtype=dtype)
                row, starts = row_type(dtype, width), call == "Put_start"
                return Request(self._rows.to_owners, row, steps, result, starts=starts)

            return make

        return self._prepare_typed(call, read)

    # ---- any number of values for each index ----

    def _take_ragged(self, dist_data: object, local: Any) -> Any:
        agree_again = partial(self._agreement, "Take_v")
        given: list[Ragged] = []

        def read(_: Agreement, types: BufferTypes) -> Callable[[DType], Callable[[], Ragged]]:
            dist = as_ragged("dist_data", dist_data, self._rows.rows)
            given[:] = [] if local is None else self._read(local, as_ragged_output)
            outs = self._named(out.values for out in given)
            types.read([("dist_data", dist.values)], outs)

            def make(dtype: DType) -> Callable[[], Ragged]:
                rows = dist.as_type(dtype).pick(self._rows.requested)
                return self._rows.to_requesters.prepare_ragged(rows, agree_again)

            return make

        rows = self._prepare_typed("Take_v", read)()
        with agree_again():
            parts, outs = rows.pick(self._rows.places).split(self._sizes), given
            if local is None:
                outs = [Ragged(part.counts, np.empty_like(part.values)) for part in parts]
            check_counts([self._name(number) for number in range(len(parts))], outs, parts)
        for out, part in zip(outs, parts, strict=True):
            out.values[:] = part.values
        return self._result([tuple(out) for out in outs]) if local is None else local

    def _put_ragged(self, local: object, dist_data: object, *, extend: bool) -> tuple[Array, Array]:
        agree_again = partial(self._agreement, "Put_v")
        given: list[Ragged] = []

        def read(agree: Agreement, types: BufferTypes) -> Callable[[DType], Callable[[], Ragged]]:
            agree(extend=bool(extend))
            parts = self._read(local, as_ragged)
            if dist_data is not None:
                given[:] = [as_ragged("dist_data", dist_data, self._rows.rows)]
            named = self._named(part.values for part in parts)
            types.read([*(("dist_data", part.values) for part in given), *named])

            def make(dtype: DType) -> Callable[[], Ragged]:
                rows = Ragged.joined(parts, dtype).pick(self._rows.order)
                return self._rows.to_owners.prepare_ragged(rows, agree_again)

            return make

        rows = self._prepare_typed("Put_v", read)()
        with agree_again():
            dtype = rows.values.dtype
            before = given[0].as_type(dtype) if given else Ragged.empty(self._rows.rows, dtype)
            counts, values = (extended if extend else replaced)(before, rows, self._rows.requested)
        return counts, values

    # ---- Python objects ----

    def _take_objects(self, dist_data: object, local: Any) -> Any:
        agree_again = partial(self._agreement, "take")
        slots: list[list[Any]] = []

        def bind(_: Agreement) -> Callable[[], Ragged]:
            items = as_items("dist_data", dist_data, self._rows.rows)
            slots[:] = [] if local is None else self._read(local, as_slots)
            requested, where = np.unique(self._rows.requested, return_inverse=True)
            rows = pickled([items[number] for number in requested.tolist()]).pick(where)
            return self._rows.to_requesters.prepare_ragged(rows, agree_again)

        rows = self._prepare("take", bind)()
        with agree_again():
            found = unpickled(rows.pick(self._rows.places))
        if local is None:
            return self._result([found[part] for part in self._parts])
        for slot, part in zip(slots, self._parts, strict=True):
            slot[:] = found[part]
        return local

    def _put_objects(self, local: object, dist_data: object) -> list[Any]:
        agree_again = partial(self._agreement, "put")
        size, out = self._rows.rows, list[Any]()

        def bind(_: Agreement) -> Callable[[], Ragged]:
            nonlocal out
            parts = self._read(local, as_items)
            given = dist_data is not None
            out = as_slots("dist_data", dist_data, size) if given else [None] * size
            rows = pickled([item for part in parts for item in part]).pick(self._rows.order)
            return self._rows.to_owners.prepare_ragged(rows, agree_again)

        rows = self._prepare("put", bind)()
        with agree_again():
            written, writers = self._rows.last_writers
            found = unpickled(rows.pick(writers))
        for number, item in zip(written.tolist(), found, strict=True):
            out[number] = item
        return out

    # ---- common to all ----

    def _prepare_typed(
        self, call: str, read: Callable[[Agreement, BufferTypes], Callable[[DType], T]]
    ) -> T:
        """Prepare a call with values of one type on all ranks. *Collective* if the plan checks.

        Parameters
        ----------
        call : str
            Name of the method.
        read : callable
            Reads the arguments, and returns a function that allocates what the call needs for
            values of a type.
        """
        types = BufferTypes(f"{type(self).__name__}.{call}")
        made: list[T] = []  # once, even if ranks agree twice because others do not know the type

        def bind(agree: Agreement) -> T | None:
            make = read(agree, types)
            agree.dtype(types.known)
            dtype = types.chosen if self._check else types.unchecked
            if dtype is not None and not made:
                made.append(make(dtype))
            return made[0] if made else None

        return self._prepare(call, bind, partial(types.find, self._topology))

    def _name(self, number: int) -> str:
        """Name the data of a list of indices in errors."""
        return self._entry_name(self._data_name, number)

    def _named(self, arrays: Iterable[Array]) -> list[tuple[str, Array]]:
        """Name arrays, one for each list of indices."""
        return [(self._name(number), array) for number, array in enumerate(arrays)]

    def _read(self, value: object, read: Callable[[str, Any, int], T], width: int = 1) -> list[T]:
        """Read the data of each list: an entry for each index, or `width` of them."""
        entries = self._entries(self._data_name, value, len(self._sizes))
        return [
            read(self._name(number), entry, width * size)
            for number, (entry, size) in enumerate(zip(entries, self._sizes, strict=True))
        ]


def _is_array(value: object) -> bool:
    return type(value) is np.ndarray
