"""The implementation of `GlobalIndexer` and `GlobalMultiIndexer`, below their documented methods.

The lists of indices of a rank are handled as one, and results split into lists again. Every call
reads its arguments, and allocates what it needs, inside an agreement of all ranks.

The values of a call have one element type on all ranks. A buffer without values may be of any type;
a rank without values gets the type from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.comm.rows import Points, locate, mover
from pencils.comm.topology import as_comm, topology_of
from pencils.indexer.arguments import (
    Named,
    Ragged,
    as_buffer,
    as_distri,
    as_indices,
    as_items,
    as_output,
    as_ragged,
    as_ragged_output,
    as_reduce,
    as_slots,
    check_counts,
    check_outputs,
    common_type,
    pickled,
    possible_type,
    unpickled,
)
from pencils.indexer.gather_scatter import MOST_HELD, GatherScatter, Request, RowExchange
from pencils.indexer.requests import as_rows, bounds_of, row_type
from pencils.layout.integers import as_int
from pencils.plans import Agreement, Plan

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI
    from pencils.comm.reduce import ReduceOp

T = TypeVar("T")
DType = np.dtype[Any]
# Buffers that are read and written, their operation, and what allocates for values of a type.
Typed = tuple[list[Named], list[Named], "ReduceOp | None", Callable[[DType], T]]
# Types of values where no rank has a buffer that could have them.
_DEFAULTS = [("", np.empty(0, kind)) for kind in (float, int)]


class CollectionPlan(Plan[Request[Any]]):
    """Plan that reads and writes the items of collections by lists of global indices."""

    most_remembered = MOST_HELD
    # The names of the lists of indices, and of the arguments with an entry for each list.
    _indices_name: ClassVar[str] = "g_idx"
    _data_name: ClassVar[str] = "local_data"

    def __init__(
        self, distri: object, indices: object, comm: MPI.Intracomm | None, *, check: bool
    ) -> None:
        owner = type(self).__name__
        topology = topology_of(as_comm(comm, owner))
        size, rank = topology.comm.size, topology.rank
        with agreed(topology.comm, owner) as agree:
            cuts = as_distri(distri, size)
            agree(distri=cuts, check=bool(check))
            given = self._entries(self._indices_name, indices)
            names = self._entry_names(self._indices_name, len(given))
            lists = [
                as_indices(name, one, int(cuts[-1])) for name, one in zip(names, given, strict=True)
            ]
            index = np.concatenate([np.empty(0, np.int64), *lists])
        self._names = self._entry_names(self._data_name, len(lists))
        self._sizes = [len(one) for one in lists]
        self._parts = [slice(lo, hi) for lo, hi in pairwise(bounds_of(self._sizes).tolist())]
        self._items = int(cuts[-1])
        super().__init__(topology, check=check)
        find = partial(locate, Points((index,), (cuts,), (1,), 0))
        self._rows = GatherScatter.locating(topology, find, int(cuts[rank + 1] - cuts[rank]))

    # One list of indices; `GlobalMultiIndexer` overrides these.

    def _entries(self, _name: str, value: Any, _count: int | None = None) -> Sequence[Any]:
        """Return the entries of an argument, one for each of `count` lists."""
        return [value]

    def _entry_names(self, name: str, _count: int) -> Sequence[str]:
        """Name the entries of an argument in errors."""
        return [name]

    def _result(self, entries: list[Any]) -> Any:
        """Return the result of a call that made an entry for each list."""
        return entries[0]

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
        if self._check or not type(source) is type(target) is np.ndarray:
            return prepare(call, source, target, count=count, reduce=reduce).run()
        states = source.dtype, source.flags.writeable, target.dtype, target.flags.writeable
        key = call, id(source), id(target), *states, str(count), id(reduce)
        found = self._found(key)
        if found is None:
            found = prepare(call, source, target, count=count, reduce=reduce)
            self._remembered.add(key, found, [source, target])
        return found.run()

    # ---- a fixed number of values for each index ----

    def _take(
        self, call: str, dist_data: object, local: Any, *, count: object, reduce: object
    ) -> Request[Any]:
        def read(agree: Agreement) -> Typed[Request[Any]]:
            width, op = as_int("count", count, least=1), as_reduce(reduce)
            agree(count=width, reduce=op)
            dist = as_buffer("dist_data", dist_data, width * self._rows.rows)
            given = [] if local is None else self._read(local, as_output, width)

            def make(dtype: DType) -> Request[Any]:
                outs, result = given, local
                if local is None:
                    outs = [_new_output(width * size, dtype, op) for size in self._sizes]
                    result = self._result(outs)
                row, exchange = row_type(dtype, width), self._rows.to_requesters
                source = as_rows(dist, row)
                direct = len(outs) == 1 and op is None
                found = as_rows(outs[0], row) if direct else np.empty(len(self._rows.order), row)
                buffers = exchange.buffers(row, starts=call == "Take_start")
                aliased = np.may_share_memory(source, found)
                steps = self._rows.take_steps(
                    source, self._rows.requested, *buffers[:2], found, aliased=aliased
                )
                if not direct:
                    steps[1].append(partial(_fill_outputs, found, self._parts, outs, op, dtype))
                return Request(exchange, buffers, steps, result)

            return [("dist_data", dist)], self._named(given), op, make

        return self._prepare_typed(call, read)

    def _put(
        self, call: str, local: object, dist_data: Any, *, count: object, reduce: object
    ) -> Request[Any]:
        def read(agree: Agreement) -> Typed[Request[Any]]:
            width, op = as_int("count", count, least=1), as_reduce(reduce)
            agree(count=width, reduce=op)
            parts = self._read(local, as_buffer, width)
            size, given = width * self._rows.rows, []
            if dist_data is not None:
                given = [("dist_data", as_output("dist_data", dist_data, size))]

            def make(dtype: DType) -> Request[Any]:
                out = given[0][1] if given else _new_output(size, dtype, op)
                result = out if dist_data is None else dist_data
                row, exchange = row_type(dtype, width), self._rows.to_owners
                buffers = exchange.buffers(row, starts=call == "Put_start")
                leaving, arriving, _ = buffers
                rows = [as_rows(values, row) for values in parts]
                source = rows[0] if len(rows) == 1 else np.concatenate([np.empty(0, row), *rows])
                pack = self._rows.put_steps(source, leaving, arriving)
                write = self._writer(out, arriving, op, dtype)
                return Request(exchange, buffers, (pack, [write]), result)

            return self._named(parts), given, op, make

        return self._prepare_typed(call, read)

    def _writer(
        self, out: Array, arriving: Array, op: ReduceOp | None, dtype: DType
    ) -> Callable[[], None]:
        """Prepare to write the rows that arrive, in this order."""
        if op is None:
            return mover(as_rows(out, arriving.dtype), self._rows.requested, arriving, None)
        width = arriving.itemsize // dtype.itemsize
        target, values = out.reshape(-1, width), arriving.view(dtype).reshape(-1, width)
        return partial(op.combine, target, self._rows.requested, values)

    # ---- any number of values for each index ----

    def _take_ragged(self, dist_data: object, local: Any) -> Any:
        given: list[Ragged] = []

        def read(_: Agreement) -> Typed[Callable[[], Ragged]]:
            dist = as_ragged("dist_data", dist_data, self._rows.rows)
            given[:] = [] if local is None else self._read(local, as_ragged_output)

            def make(dtype: DType) -> Callable[[], Ragged]:
                rows = dist.as_type(dtype).pick(self._rows.requested)
                return self._ragged_mover("Take_v", self._rows.to_requesters, rows)

            outs = self._named(out.values for out in given)
            return [("dist_data", dist.values)], outs, None, make

        rows = self._prepare_typed("Take_v", read)()
        with self._agreement("Take_v"):
            parts, outs = rows.pick(self._rows.places).split(self._sizes), given
            if local is None:
                outs = [Ragged(part.counts, np.empty_like(part.values)) for part in parts]
            for name, out, part in zip(self._names, outs, parts, strict=True):
                check_counts(name, out.counts, part.counts)
        for out, part in zip(outs, parts, strict=True):
            out.values[:] = part.values
        return self._result([tuple(out) for out in outs]) if local is None else local

    def _put_ragged(self, local: object, dist_data: object, *, extend: bool) -> tuple[Array, Array]:
        given: list[Ragged] = []

        def read(agree: Agreement) -> Typed[Callable[[], Ragged]]:
            agree(extend=bool(extend))
            parts = self._read(local, as_ragged)
            if dist_data is not None:
                given[:] = [as_ragged("dist_data", dist_data, self._rows.rows)]
            inputs = [("dist_data", part.values) for part in given]

            def make(dtype: DType) -> Callable[[], Ragged]:
                rows = Ragged.joined(parts, dtype).pick(self._rows.order)
                return self._ragged_mover("Put_v", self._rows.to_owners, rows)

            return [*inputs, *self._named(part.values for part in parts)], [], None, make

        rows = self._prepare_typed("Put_v", read)()
        with self._agreement("Put_v"):
            nothing = Ragged(np.zeros(self._rows.rows, np.int64), rows.values[:0])
            before = given[0].as_type(rows.values.dtype) if given else nothing
            write = before.extended if extend else before.replaced
            counts, values = write(self._rows.requested, rows)
        return counts, values

    def _ragged_mover(self, call: str, exchange: RowExchange, rows: Ragged) -> Callable[[], Ragged]:
        """Allocate what exchanges the numbers of values in rows; local.

        Returns a function that moves the rows, and returns those that arrive. *Collective*.
        """
        move_counts = exchange.prepare(rows.counts)

        def move() -> Ragged:
            counts = move_counts()
            with self._agreement(call):
                values = exchange.widened(rows.counts, counts)
                move_values = values.prepare(rows.values)
            with values:
                return Ragged(counts, move_values())

        return move

    # ---- Python objects ----

    def _take_objects(self, dist_data: object, local: Any) -> Any:
        slots: list[list[Any]] = []

        def bind(_: Agreement) -> Callable[[], Ragged]:
            items = as_items("dist_data", dist_data, self._rows.rows)
            slots[:] = [] if local is None else self._read(local, as_slots)
            requested, where = np.unique(self._rows.requested, return_inverse=True)
            rows = pickled([items[number] for number in requested.tolist()]).pick(where)
            return self._ragged_mover("take", self._rows.to_requesters, rows)

        rows = self._prepare("take", bind)()
        with self._agreement("take"):
            found = unpickled(rows.pick(self._rows.places))
        if local is None:
            return self._result([found[part] for part in self._parts])
        for slot, part in zip(slots, self._parts, strict=True):
            slot[:] = found[part]
        return local

    def _put_objects(self, local: object, dist_data: object) -> list[Any]:
        size, out = self._rows.rows, list[Any]()

        def bind(_: Agreement) -> Callable[[], Ragged]:
            nonlocal out
            parts = self._read(local, as_items)
            given = dist_data is not None
            out = as_slots("dist_data", dist_data, size) if given else [None] * size
            rows = pickled([item for part in parts for item in part]).pick(self._rows.order)
            return self._ragged_mover("put", self._rows.to_owners, rows)

        rows = self._prepare("put", bind)()
        with self._agreement("put"):
            written, writers = self._rows.last_writers
            found = unpickled(rows.pick(writers))
        for number, item in zip(written.tolist(), found, strict=True):
            out[number] = item
        return out

    # ---- common to all ----

    def _prepare_typed(self, call: str, read: Callable[[Agreement], Typed[T]]) -> T:
        """Prepare a call with values of one type on all ranks. *Collective* if the plan checks."""
        found: DType | None = None  # by all ranks together, if one of them has no values
        seen: tuple[Any, ...] = ()

        def bind(agree: Agreement) -> T | None:
            nonlocal seen
            inputs, outputs, op, make = read(agree)
            known = common_type(inputs if op else [*inputs, *outputs])
            seen = known, inputs, outputs, op
            agree.dtype(known)
            dtype = known or found
            if dtype is None and not self._check:
                dtype = possible_type([*inputs, *outputs], op)
                if dtype is None:
                    raise TypeError(
                        f"{type(self).__name__}.{call} with check=False cannot find the type of "
                        "values where there are no lists; pass the output"
                    )
            if dtype is None:
                return None
            check_outputs(outputs, dtype, op)
            return make(dtype)

        def find() -> None:
            """Choose the type of the first rank with values, else that of a buffer without."""
            nonlocal found
            known, inputs, outputs, op = seen
            choices = known, possible_type([*outputs, *inputs], op), possible_type(_DEFAULTS, op)
            every = zip(*self._topology.comm.allgather(choices), strict=True)
            found = next(dtype for ranks in every for dtype in ranks if dtype is not None)

        return self._prepare(call, bind, find)

    def _named(self, arrays: Iterable[Array]) -> list[Named]:
        """Name arrays, one for each list of indices."""
        return list(zip(self._names, arrays, strict=False))

    def _read(self, value: object, read: Callable[[str, Any, int], T], width: int = 1) -> list[T]:
        """Read the data of each list: an entry for each index, or `width` of them."""
        entries = self._entries(self._data_name, value, len(self._sizes))
        every = zip(self._names, entries, self._sizes, strict=True)
        return [read(name, entry, width * size) for name, entry, size in every]


def _new_output(size: int, dtype: DType, op: ReduceOp | None) -> Array:
    return np.empty(size, dtype) if op is None else op.blank(size, dtype)


def _fill_outputs(
    rows: Array, parts: Sequence[slice], outs: Sequence[Array], op: ReduceOp | None, dtype: DType
) -> None:
    """Copy to each output its part of all rows, or combine them with it."""
    for out, part in zip(outs, parts, strict=True):
        if op is None:
            as_rows(out, rows.dtype)[:] = rows[part]
        else:
            op.fold(out, rows[part].view(dtype))
