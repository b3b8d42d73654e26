"""GlobalIndexer and GlobalMultiIndexer: distributed collections by global indices.

The lists of indices of a rank are handled as one, and results split into lists again. Every call
reads its arguments, and allocates what it needs, inside an agreement of all ranks.

The values of a call have one element type on all ranks. A buffer without values may be of any type;
a rank without values gets the type from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.comm.exchange import Handle
from pencils.comm.recording import makes_plan
from pencils.comm.reduce import ReduceOp
from pencils.comm.rows import Points, locate, mover
from pencils.comm.topology import as_comm, topology_of
from pencils.errors import ArgumentError
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

T = TypeVar("T")
DType = np.dtype[Any]
VariableBuffer = tuple[Any, Any]
# Buffers that are read and written, their operation, and what allocates for values of a type.
Typed = tuple[list[Named], list[Named], ReduceOp | None, Callable[[DType], T]]
# Types of values where no rank has a buffer that could have them.
_DEFAULTS = [("", np.empty(0, kind)) for kind in (float, int)]


class GlobalIndexer(Plan[Request[Any]]):
    """Read and write the items of a distributed collection by global indices.

    The collection is divided into sections, one for each process. Every process passes a list of
    indices, and may then read those items of any number of collections with the same sections, or
    write to them. Items are Python objects (`take`, `put`), a fixed number of values (`Take`,
    `Put`), or any number of values (`Take_v`, `Put_v`).

    Several writes to the same index are done in the order of ranks, and on each of them in that of
    its list. Making an indexer and all methods are *Collective*.

    Parameters
    ----------
    distri : sequence of int
        Process ``j`` holds the items ``distri[j] .. distri[j + 1] - 1``: one entry more than there
        are processes, the same on all of them, from 0 to the size of the collection.
    g_idx : sequence of int
        Indices in ``[0, distri[-1])``, different ones on every process, perhaps none; an index may
        be repeated.
    comm : mpi4py.MPI.Intracomm
        The processes.
    check : bool, optional
        Whether every call agrees on its arguments over all processes, so that a mistake on one of
        them raises everywhere. Without it, buffers without values must have the right type, too,
        outputs must be given where there are no lists, and the last few arrays that were passed
        stay in memory.

    Raises
    ------
    IndexError, TypeError, ArgumentError
        On every process, if an argument does not fit on any of them.
    RankDisagreementError
        On every process, if `distri` differs.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> indexer = GlobalIndexer([0, 5], [4, 0, 4], MPI.COMM_SELF)
    >>> indexer.Take(np.array([3.0, 5.0, 7.0, 11.0, 13.0]))
    array([13.,  3., 13.])
    >>> indexer.take(["a", None, 2, [3], {4}])
    [{4}, 'a', {4}]
    """

    most_remembered = MOST_HELD

    @makes_plan
    def __init__(
        self,
        distri: Sequence[int] | NDArray[np.integer[Any]],
        g_idx: Sequence[int] | NDArray[Any],
        comm: MPI.Intracomm | None,
        *,
        check: bool = True,
    ) -> None:
        owner = type(self).__name__
        topology = topology_of(as_comm(comm, owner))
        size, rank = topology.comm.size, topology.rank
        with agreed(topology.comm, owner) as agree:
            cuts = as_distri(distri, size)
            agree(distri=cuts, check=bool(check))
            given = self._entries("g_idx", g_idx)
            lists = [as_indices(name, one, int(cuts[-1])) for name, one in given]
            index = np.concatenate([np.empty(0, np.int64), *lists])
        self._names = [name for name, _ in self._entries("local_data", lists)]
        self._sizes = [len(one) for one in lists]
        self._parts = [slice(lo, hi) for lo, hi in pairwise(bounds_of(self._sizes).tolist())]
        self._items = int(cuts[-1])
        super().__init__(topology, check=check)
        find = partial(locate, Points((index,), (cuts,), (1,), 0))
        self._rows = GatherScatter.locating(topology, find, int(cuts[rank + 1] - cuts[rank]))

    @property
    def access_counts(self) -> NDArray[np.int64]:
        """How often each item of the own section is in the lists of all processes; local."""
        counts: NDArray[np.int64] = np.bincount(self._rows.requested, minlength=self._rows.rows)
        return counts

    def take(self, dist_data: Sequence[Any], local_data: Any = None, /) -> Any:
        """Read Python objects, which are pickled: the results are copies. *Collective*.

        Parameters
        ----------
        dist_data : list
            The own section.
        local_data : list, optional
            List to fill, with an entry for each index. `GlobalMultiIndexer`: a list of such lists.

        Returns
        -------
        list
            `local_data`, or a new one.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> GlobalIndexer([0, 3], [2, 0], MPI.COMM_SELF).take(["a", None, {2}])
        [{2}, 'a']
        """
        slots: list[list[Any]] = []

        def bind(_: Agreement) -> Callable[[], Ragged]:
            items = as_items("dist_data", dist_data, self._rows.rows)
            slots[:] = [] if local_data is None else self._read(local_data, as_slots)
            requested, where = np.unique(self._rows.requested, return_inverse=True)
            rows = pickled([items[number] for number in requested.tolist()]).pick(where)
            return self._ragged_mover("take", self._rows.to_requesters, rows)

        rows = self._prepare("take", bind)()
        with self._agreement("take"):
            found = unpickled(rows.pick(self._rows.places))
        if local_data is None:
            return self._result([found[part] for part in self._parts])
        for slot, part in zip(slots, self._parts, strict=True):
            slot[:] = found[part]
        return local_data

    def put(self, local_data: Sequence[Any], dist_data: list[Any] | None = None, /) -> list[Any]:
        """Write Python objects; the last one for an index stays. *Collective*.

        Parameters
        ----------
        local_data : list
            An object for each index. `GlobalMultiIndexer`: a list of such lists.
        dist_data : list, optional
            The own section, to be written to.

        Returns
        -------
        list
            `dist_data`, or a new list, with None where nothing was written.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> GlobalIndexer([0, 4], [2, 0, 2], MPI.COMM_SELF).put(["a", "b", "c"])
        ['b', None, 'c', None]
        """
        size, out = self._rows.rows, list[Any]()

        def bind(_: Agreement) -> Callable[[], Ragged]:
            nonlocal out
            parts = self._read(local_data, as_items)
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

    def Take(  # noqa: N802 - capitals mean buffers, as in mpi4py
        self,
        dist_data: Any,
        local_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Any:
        """Read values, the same number of them for every index. *Collective*.

        Parameters
        ----------
        dist_data : buffer
            The own section, contiguous, in any shape: item ``i`` of it is the values ``i * count
            .. (i + 1) * count - 1``. Any type of fixed size, the same on all processes; a buffer
            without values may be of any.
        local_data : buffer, optional
            Buffer of that type to fill. `GlobalMultiIndexer`: a list of buffers.
        count : int, optional
            Number of values of each item.
        reduce : ReduceOp, optional
            How values are combined with those that are in the buffer, which may then also have the
            type that `ReduceOp` names. Default: they replace them.

        Returns
        -------
        buffer
            `local_data`, or a new one-dimensional array.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 0], MPI.COMM_SELF)
        >>> indexer.Take(np.array([[3, 5], [5, 7], [11, 13]]), count=2)
        array([11, 13,  3,  5])
        """
        return self._run("Take", dist_data, local_data, count, reduce)

    def Take_start(  # noqa: N802
        self,
        dist_data: Any,
        local_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Handle[Any]:
        """Start a `Take`; `wait` of the handle returns the buffer. *Collective*.

        No buffer may be used before. Several calls may be under way; see `Handle`.
        """
        return self._take("Take_start", dist_data, local_data, count, reduce).start()

    def Put(  # noqa: N802
        self,
        local_data: Any,
        dist_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Any:
        """Write values, the same number of them for every index. *Collective*.

        Parameters
        ----------
        local_data : buffer
            Values for each index, as `Take` returns them. `GlobalMultiIndexer`: a list of buffers.
        dist_data : buffer, optional
            The own section, to be written to: items without index keep their values.
        count : int, optional
            Number of values of each item.
        reduce : ReduceOp, optional
            How values for one index, and the one that is there, are combined, each of the `count`
            by itself. `dist_data` has the type of the values, or the one that `ReduceOp` names.
            Default: the last one stays.

        Returns
        -------
        buffer
            `dist_data`, or a new array. There, items without index are not set, or neutral for
            `reduce`.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 0, 2], MPI.COMM_SELF)
        >>> indexer.Put(np.array([1, 2, 3]), np.zeros(3, int))
        array([2, 0, 3])
        >>> indexer.Put(np.array([1, 2, 3]), reduce=ReduceOp.SUM)
        array([2, 0, 4])
        """
        return self._run("Put", local_data, dist_data, count, reduce)

    def Put_start(  # noqa: N802
        self,
        local_data: Any,
        dist_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Handle[Any]:
        """Start a `Put`; `wait` of the handle returns the buffer. *Collective*.

        No buffer may be used before. Several calls may be under way; see `Handle`.
        """
        return self._put("Put_start", local_data, dist_data, count, reduce).start()

    def Take_v(  # noqa: N802
        self, dist_data: VariableBuffer, local_data: Any = None, /
    ) -> Any:
        """Read values, any number of them for every index. *Collective*.

        Parameters
        ----------
        dist_data : (sequence of int, buffer)
            The number of values of every item of the own section, and the values.
        local_data : (sequence of int, buffer), optional
            The right numbers for each index, and a buffer to fill. `GlobalMultiIndexer`: a list of
            such pairs.

        Returns
        -------
        (sequence of int, buffer)
            `local_data`, or new arrays.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 1, 2], MPI.COMM_SELF)
        >>> indexer.Take_v(([1, 0, 2], np.array([5, 6, 7])))
        (array([2, 0, 2]), array([6, 7, 6, 7]))
        """
        given: list[Ragged] = []

        def read(_: Agreement) -> Typed[Callable[[], Ragged]]:
            dist = as_ragged("dist_data", dist_data, self._rows.rows)
            given[:] = [] if local_data is None else self._read(local_data, as_ragged_output)

            def make(dtype: DType) -> Callable[[], Ragged]:
                rows = dist.as_type(dtype).pick(self._rows.requested)
                return self._ragged_mover("Take_v", self._rows.to_requesters, rows)

            outs = self._named(out.values for out in given)
            return [("dist_data", dist.values)], outs, None, make

        rows = self._prepare_typed("Take_v", read)()
        with self._agreement("Take_v"):
            parts, outs = rows.pick(self._rows.places).split(self._sizes), given
            if local_data is None:
                outs = [Ragged(part.counts, np.empty_like(part.values)) for part in parts]
            for name, out, part in zip(self._names, outs, parts, strict=True):
                wrong = np.flatnonzero(out.counts != part.counts)
                if wrong.size:
                    raise ArgumentError(
                        f"{name} has count {out.counts[wrong[0]]} for its index {wrong[0]}; it "
                        f"must be {part.counts[wrong[0]]}, the number of its values"
                    )
        for out, part in zip(outs, parts, strict=True):
            out.values[:] = part.values
        return self._result([tuple(out) for out in outs]) if local_data is None else local_data

    def Put_v(  # noqa: N802
        self, local_data: Any, dist_data: VariableBuffer | None = None, /, *, extend: bool = False
    ) -> VariableBuffer:
        """Write values, any number of them for every index. *Collective*.

        Parameters
        ----------
        local_data : (sequence of int, buffer)
            The number of values for every index, and the values. `GlobalMultiIndexer`: a list of
            such pairs.
        dist_data : (sequence of int, buffer), optional
            The present contents of the own section, which are only read. Default: no values.
        extend : bool, optional
            Whether values are appended to those that are there, instead of replacing them.

        Returns
        -------
        (numpy.ndarray, numpy.ndarray)
            Numbers and values of the own section, in new arrays.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 1, 2], MPI.COMM_SELF)
        >>> indexer.Put_v(([1, 0, 2], np.array([5, 6, 7])))
        (array([0, 0, 2]), array([6, 7]))
        >>> indexer.Put_v(([1, 0, 2], np.array([5, 6, 7])), extend=True)
        (array([0, 0, 3]), array([5, 6, 7]))
        """
        given: list[Ragged] = []

        def read(agree: Agreement) -> Typed[Callable[[], Ragged]]:
            agree(extend=bool(extend))
            parts = self._read(local_data, as_ragged)
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

    # ---- implementation ----

    _many = False  # lists of indices; the results have an entry for each of them

    def _entries(self, name: str, value: Any, count: int | None = None) -> list[tuple[str, Any]]:
        """Name the entries of an argument, one for each of `count` lists."""
        if not self._many:
            return [(name, value)]
        entries = as_items(f"{name}_l", value, count)
        return [(f"{name}_l[{number}]", entry) for number, entry in enumerate(entries)]

    def _read(self, value: object, read: Callable[[str, Any, int], T], width: int = 1) -> list[T]:
        """Read the data of each list: an entry for each index, or `width` of them."""
        entries = self._entries("local_data", value, len(self._sizes))
        return [
            read(name, entry, width * size)
            for (name, entry), size in zip(entries, self._sizes, strict=True)
        ]

    def _result(self, entries: list[Any]) -> Any:
        """Return the result of a call that made an entry for each list."""
        return entries if self._many else entries[0]

    def _describe(self) -> str:
        size = self._topology.comm.size
        name = type(self).__name__
        return f"<{name} {self._number} of {self._items} items over {size} processes>"

    def _release(self) -> None:
        self._rows.free()

    def _run(self, call: str, source: Any, target: Any, count: object, reduce: object) -> Any:
        """Prepare a request and run it, or reuse the one for the same arrays. *Collective*."""
        prepare = self._take if call == "Take" else self._put
        if self._check or not type(source) is type(target) is np.ndarray:
            return prepare(call, source, target, count, reduce).run()
        states = source.dtype, source.flags.writeable, target.dtype, target.flags.writeable
        key = call, id(source), id(target), *states, str(count), id(reduce)
        found = self._found(key)
        if found is None:
            found = prepare(call, source, target, count, reduce)
            self._remembered.add(key, found, [source, target])
        return found.run()

    def _take(
        self, call: str, dist_data: object, local: Any, count: object, reduce: object
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
        self, call: str, local: object, dist_data: Any, count: object, reduce: object
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
                if op is None:
                    write = mover(as_rows(out, row), self._rows.requested, arriving, None)
                else:
                    target, values = out.reshape(-1, width), arriving.view(dtype).reshape(-1, width)
                    write = partial(op.combine, target, self._rows.requested, values)
                return Request(exchange, buffers, (pack, [write]), result)

            return self._named(parts), given, op, make

        return self._prepare_typed(call, read)

    def _ragged_mover(self, call: str, exchange: RowExchange, rows: Ragged) -> Callable[[], Ragged]:
        """Allocate what exchanges the numbers of values in rows; local.

        Returns a function that moves the rows, and returns those that arrive. *Collective*.
        """
        move_counts = exchange.prepare(rows.counts)

        def move() -> Ragged:
            counts = move_counts()
            with self._agreement(call):
                leaving = exchange.leaving.widened(rows.counts)
                values = RowExchange(self._topology, leaving, exchange.arriving.widened(counts))
                move_values = values.prepare(rows.values)
            with values:
                return Ragged(counts, move_values())

        return move

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
                        f"{type(self).__name__}.{call} with check=False cannot determine the type "
                        "of values on a rank without lists; pass the output"
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
        return list(zip(self._names, arrays, strict=False))


class GlobalMultiIndexer(GlobalIndexer):
    """Read and write the items of a distributed collection by several lists of global indices.

    Like `GlobalIndexer`, but every process passes any number of lists, and outputs of the take
    methods and inputs of the put methods are lists with an entry for each of them. Making an
    indexer and all methods are *Collective*.

    Parameters
    ----------
    distri : sequence of int
        Process ``j`` holds the items ``distri[j] .. distri[j + 1] - 1``: one entry more than there
        are processes, the same on all of them, from 0 to the size of the collection.
    g_idx_l : sequence of sequences of int
        Lists of indices in ``[0, distri[-1])``. Both the number of lists and their lengths may
        differ between processes and be 0; an index may be repeated.
    comm : mpi4py.MPI.Intracomm
        The processes.
    check : bool, optional
        As for `GlobalIndexer`.

    Raises
    ------
    IndexError, TypeError, ArgumentError
        On every process, if an argument does not fit on any of them.
    RankDisagreementError
        On every process, if `distri` differs.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> indexer = GlobalMultiIndexer([0, 5], [[4, 0], [], [1]], MPI.COMM_SELF)
    >>> indexer.Take(np.array([3.0, 5.0, 7.0, 11.0, 13.0]))
    [array([13.,  3.]), array([], dtype=float64), array([5.])]
    >>> indexer.access_counts
    array([1, 1, 0, 0, 1])
    """

    _many = True

    def __init__(
        self,
        distri: Sequence[int] | NDArray[np.integer[Any]],
        g_idx_l: Sequence[Any],
        comm: MPI.Intracomm | None,
        *,
        check: bool = True,
    ) -> None:
        super().__init__(distri, g_idx_l, comm, check=check)


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
