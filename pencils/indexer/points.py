"""PointIndexer: any points of fields, read and written by their global coordinates."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pencils.array.allocation import Array, as_singletons
from pencils.array.base import checks
from pencils.array.operands import check_place, check_type, check_writeable, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Handle
from pencils.comm.recording import makes_plan
from pencils.comm.reduce import ReduceOp
from pencils.comm.rows import Ints, locate, mover
from pencils.errors import ArgumentError
from pencils.indexer.arguments import as_coords, as_reduce, as_results, as_values
from pencils.indexer.gather_scatter import MOST_HELD, GatherScatter, Request, Requests
from pencils.indexer.requests import PointColumns, locate_replicas, points_on
from pencils.pencil import Pencil
from pencils.plans import Agreement, Plan


class PointIndexer(Plan[Request[Any]]):
    """Reusable plan that reads and writes some points of fields. Making one is *Collective*.

    Every process chooses its points, which any process may own: probes, lines, planes, particles.
    The plan serves all fields of a pencil, with any type, components and halo.
    `PencilArray.take_points` and `PencilArray.put_points` make one where they need it.

    Parameters
    ----------
    pencil : Pencil
        Pencil of the fields.
    coords : sequence of array_like of int
        Global coordinates along each dimension, in ``[0, shape)``, which broadcast to each other
        as in NumPy's ``a[i, j, k]``. Different ones on every process, perhaps none; a point may be
        repeated.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; along the others they are singletons, and the only
        coordinate is 0. Default: all.
    check : bool, optional
        Whether all ranks compare the arguments of every call, and all raise if one is wrong.
        Without it, the last few arrays that were passed stay in memory.

    Attributes
    ----------
    shape : tuple of int
        The shape to which the coordinates of this rank broadcast.

    Raises
    ------
    IndexError, ArgumentError, TypeError, RankDisagreementError
        On every rank, if an argument does not fit on any.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((4, 6))
    >>> u = pencils.from_function(pen, lambda i, j: 10 * i + j)
    >>> with pencils.indexer.PointIndexer(pen, ([[0], [3]], [1, 5])) as corners:
    ...     corners.take(u)
    array([[ 1,  5],
           [31, 35]])
    """

    most_remembered = MOST_HELD

    @makes_plan
    def __init__(
        self,
        pencil: Pencil,
        coords: Sequence[Any] | Array,
        *,
        dims: Sequence[int] | int | None = None,
        check: bool = True,
    ) -> None:
        topology = topology_among(pencil)
        with agreed(topology.comm, "PointIndexer") as agree:
            check_type("pencil", pencil, Pencil)
            singletons = as_singletons(pencil.ndim, dims)
            agree(pencil=pencil, dims=sorted(singletons), check=bool(check))
            self._read(pencil, singletons, coords, copy=True)
        super().__init__(topology, check=check)

    @classmethod
    def of(cls, pencil: Pencil, singletons: frozenset[int], coords: Sequence[Ints]) -> PointIndexer:
        """Make a plan that does not check, after an agreement; all ranks make it."""
        plan = object.__new__(cls)
        plan._read(pencil, singletons, coords, copy=False)
        super(PointIndexer, plan).__init__(pencil.topology, check=False)
        return plan

    def _read(self, pencil: Pencil, singletons: frozenset[int], coords: Any, *, copy: bool) -> None:
        """Check the coordinates, of which a `copy` is needed if they may change."""
        self.pencil, self._singletons = pencil, singletons
        self._layout = layout = pencil.extent(singletons).layout
        self.shape, self._coords = as_coords(coords, layout.shape, copy=copy)
        self._points = points_on(layout, self._coords, layout.parts(pencil.rank))
        # Made when they are needed: reading shared fields once needs none.
        self._nearest: GatherScatter | None = None
        self._replicas: GatherScatter | None = None

    def take(self, u: PencilArray, out: Array | None = None) -> Array:
        """Read the points of a field: ``global_array[..., i, j, k]``. *Collective*.

        Parameters
        ----------
        u : PencilArray
            A field on the pencil, of any type and components.
        out : numpy.ndarray, optional
            Contiguous array of the same type to fill, of shape ``u.components + shape``.

        Returns
        -------
        numpy.ndarray
            `out`, or a new array.

        Raises
        ------
        ArgumentError, TypeError, PencilMismatchError
            On every rank, before anything is written, if an argument does not fit on any.
        """
        key = id(u), id(out), None if out is None else _state(out)
        found = None if self._check else self._found(key)
        if found is None:
            found = self.take_request("take", u, out)
            if out is not None:
                self._remembered.add(key, found, [u, out])
        taken: Array = found.run()
        return taken

    def take_start(self, u: PencilArray, out: Array | None = None) -> Handle[Array]:
        """Start a `take`; `wait` of the handle returns the array. *Collective*.

        Neither the field nor the array may be changed before.
        """
        return self.take_request("take_start", u, out).start()

    def put(self, u: PencilArray, values: Any, *, reduce: ReduceOp | None = None) -> None:
        """Write to the points of a field: ``global_array[..., i, j, k] = values``. *Collective*.

        Parameters
        ----------
        u : PencilArray
            A field on the pencil, of any type and components. Its halo is left alone.
        values : array_like
            Values that broadcast to ``u.components + shape`` and convert to the type of `u`.
        reduce : ReduceOp, optional
            How values for one point, and its present one, are combined; the type of the field
            stays, see `ReduceOp`. Default: the last one stays, in the order of ranks and, on each
            of them, of coordinates.

        Raises
        ------
        ArgumentError, TypeError, PencilMismatchError
            On every rank, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> import pencils
        >>> u = pencils.zeros(pencils.Pencil((2, 3)))
        >>> with pencils.indexer.PointIndexer(u.pencil, ([0, 1, 0], [2, 0, 2])) as particles:
        ...     particles.put(u, [1.0, 2.0, 4.0], reduce=ReduceOp.SUM)
        >>> u.local
        array([[0., 0., 5.],
               [2., 0., 0.]])
        """
        self.kept_put(u, values, reduce).run()

    def kept_put(self, u: PencilArray, values: Any, reduce: ReduceOp | None) -> Request[None]:
        """Find the prepared `put` of the same arrays, or prepare one; see `put_request`."""
        key = id(u), id(values), _state(values), reduce
        found = None if self._check else self._found(key)
        if found is None:
            found = self.put_request("put", u, values, reduce)
            form = u.dtype, (*u.components, *self.shape)
            in_place = type(values) is np.ndarray and (values.dtype, values.shape) == form
            if in_place and values.flags.c_contiguous and not self._layout.replicated_axes:
                self._remembered.add(key, found, [u, values], [u.local])
        return found

    def put_start(
        self, u: PencilArray, values: Any, *, reduce: ReduceOp | None = None
    ) -> Handle[None]:
        """Start a `put`; `wait` of the handle completes it. *Collective*.

        The field may not be used before.
        """
        return self.put_request("put_start", u, values, reduce).start()

    def _describe(self) -> str:
        name = type(self).__name__
        return f"<{name} {self._number} on a pencil of shape {self.pencil.shape}>"

    def _release(self) -> None:
        for plan in (self._nearest, self._replicas):
            if plan is not None:
                plan.free()

    def check_field(self, u: PencilArray, agree: Agreement) -> None:
        """Check a field against the pencil, and record what ranks agree on."""
        check_place(u, self.pencil, self._singletons)
        check_components(u)
        agree(components=u.components)
        agree.dtype(u.dtype)

    @property
    def can_put(self) -> bool:
        """Whether the plan to write points was made."""
        return (self._replicas if self._layout.replicated_axes else self._nearest) is not None

    def plan_take(self, requests: Requests | None = None) -> GatherScatter:
        """Return the plan to read points, on the nearest replica. *Collective* at first.

        All ranks give their `requests`, if these are known, after they have agreed.
        """
        if self._nearest is None:
            self._nearest = self._make(partial(locate, self._points), requests)
        return self._nearest

    def plan_put(self, requests: Requests | None = None) -> GatherScatter:
        """Return the plan to write points, on all their replicas. *Collective* at first."""
        if not self._layout.replicated_axes:
            return self.plan_take(requests)
        if self._replicas is None:
            replicas = partial(locate_replicas, self._layout, self._coords)
            self._replicas = self._make(replicas, requests)
        return self._replicas

    def _make(
        self, locate: Callable[[], tuple[Ints, Ints]], requests: Requests | None
    ) -> GatherScatter:
        topology = self.pencil.topology
        rows = self._layout.box(topology.rank).volume
        if requests is None:
            return GatherScatter.locating(topology, locate, rows)
        return GatherScatter(topology, requests, rows)

    def is_for(self, coords: Sequence[Ints]) -> bool:
        """Whether this rank has made the plan for these points."""
        return all(map(np.array_equal, self._coords, coords))

    def take_request(self, call: str, u: PencilArray, out: Any) -> Request[Array]:
        """Prepare a `take`. *Collective*, if ranks agree or the plan is to be made."""

        def bind(agree: Agreement) -> Request[Array] | None:
            self.check_field(u, agree)
            results = as_results(out, (*u.components, *self.shape), u.dtype)
            starts = call == "take_start"
            return None if self._nearest is None else self.bind_take(u, results, starts=starts)

        return self._prepare(call, bind, self.plan_take)

    def put_request(self, call: str, u: PencilArray, values: Any, reduce: object) -> Request[None]:
        """Prepare a `put`. *Collective*, if ranks agree or the plan is to be made."""

        def bind(agree: Agreement) -> Request[None] | None:
            self.check_field(u, agree)
            op = as_reduce(reduce)
            agree(reduce=op)
            given = as_values("values", values, (*u.components, *self.shape), u.dtype)
            check_writeable(u)
            if op is not None:
                op.result(u.dtype)  # if there is any
            starts = call == "put_start"
            return self.bind_put(u, given, op, starts=starts) if self.can_put else None

        return self._prepare(call, bind, self.plan_put)

    def bind_take(self, u: PencilArray, results: Array, *, starts: bool) -> Request[Array]:
        """Prepare to read points, once the plan was made; local."""
        plan, block = self.plan_take(), PointColumns(u, self.pencil.order)
        numbers = plan.positions(block)
        aliased = np.may_share_memory(u.padded, results)
        buffers = plan.to_requesters.buffers(block.row, starts=starts)
        pack, unpack = [], []
        columns = block.columns, block.flat(results), *map(block.rows, buffers[:2])
        for column, out, leaving, arriving in zip(*columns, strict=True):
            steps = plan.take_steps(column, numbers, leaving, arriving, out, aliased=aliased)
            pack += steps[0]
            unpack += steps[1]
        return Request(plan.to_requesters, buffers, (pack, unpack), results)

    def bind_put(
        self, u: PencilArray, given: Array, op: ReduceOp | None, *, starts: bool
    ) -> Request[None]:
        """Prepare to write points, once the plan was made; local."""
        plan, block = self.plan_put(), PointColumns(u, self.pencil.order)
        numbers = plan.positions(block)
        # Replicas follow each other, each with all values.
        copies = len(plan.order) // max(1, given.size // len(block.columns))
        buffers = plan.to_owners.buffers(block.row, starts=starts)
        pack, unpack = [], list[Callable[[], None]]()
        columns = block.columns, block.flat(given), *map(block.rows, buffers[:2])
        for column, source, leaving, arriving in zip(*columns, strict=True):
            every = source if copies == 1 else np.tile(source, copies)
            pack += plan.put_steps(every, leaving, arriving)
            combine = op and partial(op.combine_column, column, numbers, arriving)
            unpack.append(combine or mover(column, numbers, arriving, None))
        field = weakref.ref(u)

        def mark() -> None:
            """Mark the ghosts of the field as outdated, if ghosts are checked."""
            written = field() if checks.on else None
            if written is not None:
                written.mark_written()

        return Request(plan.to_owners, buffers, (pack, [*unpack, mark]), None)


def check_components(u: PencilArray) -> None:
    """Check that points have values."""
    if 0 in u.components:
        raise ArgumentError(
            f"u has components {u.components}, so its points have no values; pass a field with "
            "values"
        )


def _state(array: object) -> object:
    """Return what may have changed of an array that is passed again."""
    return (array.dtype, array.flags.writeable) if isinstance(array, np.ndarray) else None
