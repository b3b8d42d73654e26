"""PointIndexer: any points of fields, read and written by their global coordinates."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, as_singletons
from pencils.array.base import checks
from pencils.array.operands import check_place, check_type, check_writeable, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Handle
from pencils.comm.reduce import ReduceOp
from pencils.comm.rows import Ints, Points, locate, mover
from pencils.errors import ArgumentError
from pencils.indexer.arguments import as_coords, as_reduce, as_results, as_values
from pencils.indexer.gather_scatter import MOST_HELD, GatherScatter, Request, Requests
from pencils.indexer.requests import Block, locate_replicas, points_on
from pencils.layout import Layout
from pencils.pencil import Pencil
from pencils.plans import Agreement, Plan


class Chosen(NamedTuple):
    """Points that one rank has chosen; made of checked arguments. Local."""

    singletons: frozenset[int]
    layout: Layout
    shape: tuple[int, ...]  # of what the coordinates broadcast to
    coords: list[Ints]
    points: Points  # on the nearest replicas

    @classmethod
    def read(
        cls, pencil: Pencil, singletons: frozenset[int], coords: Any, *, copy: bool = False
    ) -> Chosen:
        """Check coordinates; a copy of them is needed if they may change."""
        layout = pencil.extent(singletons).layout
        shape, along = as_coords(coords, layout.shape, copy=copy)
        points = points_on(layout, along, layout.parts(pencil.rank))
        return cls(singletons, layout, shape, along, points)

    def requests(self) -> Requests:
        """Return the requests that read the points."""
        return Requests(partial(locate, self.points), self.layout.size)


class PointIndexer(Plan[Request[Any]]):
    """Reusable plan that reads and writes some points of fields. Making one is *Collective*.

    Every process chooses its points, which any process may own: probes, lines, planes, particles.
    The plan serves all fields of a pencil, with any type, components and halo.
    `PencilArray.take_points` and `PencilArray.put_points` make one for a single use.

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
        Whether every call agrees on its arguments over all ranks, so that a mistake on one rank
        raises everywhere. Without it, the last few arrays that were passed stay in memory.

    Attributes
    ----------
    shape : tuple of int
        What the coordinates of this rank broadcast to.

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
    _copies = True  # the coordinates, which may change before they are used

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
            chosen = Chosen.read(pencil, singletons, coords, copy=self._copies)
        self._set(pencil, chosen, check=check)

    @classmethod
    def of(cls, pencil: Pencil, chosen: Chosen, requests: Requests) -> PointIndexer:
        """Make a plan that does not check, after an agreement. *Collective*."""
        plan = object.__new__(cls)
        plan._set(pencil, chosen, check=False)
        plan._nearest = GatherScatter(
            pencil.topology, requests, chosen.layout.box(pencil.rank).volume
        )
        return plan

    def _set(self, pencil: Pencil, chosen: Chosen, *, check: bool) -> None:
        self.pencil = pencil
        self._singletons, self._layout, self.shape, self._coords, self._points = chosen
        super().__init__(pencil.topology, check=check)
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
            What broadcasts to ``u.components + shape`` and can be converted to the type of `u`.
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
        self.put_request(u, values, reduce).run()

    def put_request(self, u: PencilArray, values: Any, reduce: ReduceOp | None) -> Request[None]:
        """Prepare a `put`. *Collective*, if ranks agree or the plan is to be made."""
        key = id(u), id(values), _state(values), reduce
        found = None if self._check else self._found(key)
        if found is None:
            found = self._agreed_put("put", u, values, reduce)
            if self._is_read_in_place(values, u):
                self._remembered.add(key, found, [u, values], [u.local])
        return found

    def put_start(
        self, u: PencilArray, values: Any, *, reduce: ReduceOp | None = None
    ) -> Handle[None]:
        """Start a `put`; `wait` of the handle completes it. *Collective*.

        The field may not be used before.
        """
        return self._agreed_put("put_start", u, values, reduce).start()

    def _describe(self) -> str:
        name = type(self).__name__
        return f"<{name} {self._number} on a pencil of shape {self.pencil.shape}>"

    def _release(self) -> None:
        for plan in (self._nearest, self._replicas):
            if plan is not None:
                plan.free()

    @property
    def can_put(self) -> bool:
        """Whether the plan to write points was made."""
        return (self._replicas if self._layout.replicated_axes else self._nearest) is not None

    def check_field(self, u: PencilArray, agree: Agreement) -> None:
        """Check a field against the pencil, and record what ranks agree on."""
        check_place(u, self.pencil, self._singletons)
        check_components(u)
        agree(components=u.components)
        agree.dtype(u.dtype)

    def plan_take(self) -> GatherScatter:
        """Return the plan to read points, on the nearest replica. *Collective* at first."""
        if self._nearest is None:
            self._nearest = self._plan(partial(locate, self._points))
        return self._nearest

    def plan_put(self) -> GatherScatter:
        """Return the plan to write points, on all their replicas. *Collective* at first."""
        if not self._layout.replicated_axes:
            return self.plan_take()
        if self._replicas is None:
            self._replicas = self._plan(partial(locate_replicas, self._layout, self._coords))
        return self._replicas

    def take_request(self, call: str, u: PencilArray, out: Any) -> Request[Array]:
        """Prepare a `take`. *Collective*, if ranks agree or the plan is to be made."""

        def bind(agree: Agreement) -> Request[Array] | None:
            results = self._as_results(u, out, agree)
            starts = call == "take_start"
            return None if self._nearest is None else self._bind_take(u, results, starts=starts)

        return self._prepare(call, bind, self.plan_take)

    def _as_results(self, u: PencilArray, out: Any, agree: Agreement) -> Array:
        self.check_field(u, agree)
        return as_results(out, (*u.components, *self.shape), u.dtype)

    def _bind_take(self, u: PencilArray, results: Array, *, starts: bool) -> Request[Array]:
        plan, block = self.plan_take(), Block(u, self.pencil.order)
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

    def _agreed_put(self, call: str, u: PencilArray, values: Any, reduce: object) -> Request[None]:

        def bind(agree: Agreement) -> Request[None] | None:
            self.check_field(u, agree)
            op = as_reduce(reduce)
            agree(reduce=op)
            given = as_values("values", values, (*u.components, *self.shape), u.dtype)
            check_writeable(u)
            if op is not None:
                op.result(u.dtype)  # if there is any
            starts = call == "put_start"
            return self._bind_put(u, given, op, starts=starts) if self.can_put else None

        return self._prepare(call, bind, self.plan_put)

    def _bind_put(
        self, u: PencilArray, given: Array, op: ReduceOp | None, *, starts: bool
    ) -> Request[None]:
        plan, block = self.plan_put(), Block(u, self.pencil.order)
        # Replicas follow each other, each with all values.
        copies = len(plan.order) // max(1, prod(self.shape))
        buffers = plan.to_owners.buffers(block.row, starts=starts)
        pack, unpack = [], []
        columns = block.columns, block.flat(given), *map(block.rows, buffers[:2])
        for column, source, leaving, arriving in zip(*columns, strict=True):
            every = source if copies == 1 else np.tile(source, copies)
            pack += plan.put_steps(every, leaving, arriving)
            unpack.append(_writer(plan, block, column, arriving, op))
        unpack.append(partial(_mark, weakref.ref(u)))
        return Request(plan.to_owners, buffers, (pack, unpack), None)

    def _is_read_in_place(self, values: object, u: PencilArray) -> bool:
        """Whether a put reads the values without copying them first."""
        return (
            type(values) is np.ndarray
            and values.flags.c_contiguous
            and (values.dtype, values.shape) == (u.dtype, (*u.components, *self.shape))
            and not self._layout.replicated_axes
        )

    def _plan(self, locate: Callable[[], tuple[Ints, Ints]]) -> GatherScatter:
        topology = self.pencil.topology
        return GatherScatter.locating(topology, locate, self._layout.box(topology.rank).volume)


def check_components(u: PencilArray) -> None:
    """Check that points have values."""
    if 0 in u.components:
        raise ArgumentError(f"u has components {u.components}, so that its points have no values")


def _writer(
    plan: GatherScatter, block: Block, column: Array, arriving: Array, op: ReduceOp | None
) -> Callable[[], None]:
    """Prepare to write the rows of one component that arrive, in this order."""
    if op is not None:
        return partial(op.combine_column, column, plan.positions(block), arriving)
    return mover(column, plan.positions(block), arriving, None)


def _state(array: object) -> object:
    """Return what may have changed of an array that is passed again."""
    return (array.dtype, array.flags.writeable) if isinstance(array, np.ndarray) else None


def _mark(field: weakref.ref[PencilArray]) -> None:
    """Mark the ghosts of a field as outdated, if ghosts are checked."""
    u = field() if checks.on else None
    if u is not None:
        u.mark_written()
