"""PointIndexer: any points of fields, read and written by their global coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pencils.array import PencilArray
from pencils.checking import checks, mark_written
from pencils.comm.agree import agreed
from pencils.comm.exchange import Handle
from pencils.errors import ArgumentError
from pencils.indexer.agreement import Agreement, Unheard
from pencils.indexer.arguments import read_array, read_coords, read_reduce, read_values
from pencils.indexer.block import Block
from pencils.indexer.grouping import Ints
from pencils.indexer.locate import locate, locate_replicas
from pencils.indexer.reduce import ReduceOp
from pencils.indexer.route import Transfer
from pencils.indexer.rows import RowPlan
from pencils.kinds import Kind, check_source
from pencils.operands import Field, check_type, topology_among
from pencils.pencil import Pencil
from pencils.plans import Freeable
from pencils.storage import Array, read_singletons


class PointIndexer(Freeable):
    """Reusable plan that reads and writes some points of fields. Making one is *Collective*.

    Every process asks for points of its own choice, wherever they live: probes, lines, planes,
    particles. The plan serves all fields of a pencil, whatever their type, components and halo;
    `Pencil.indexer` makes one, and `PencilArray.take` and `PencilArray.put` use one once.

    Parameters
    ----------
    pencil : Pencil
        Where the fields live.
    coords : sequence of array_like of int
        Global coordinates along each dimension, in ``[0, shape)``, which broadcast to each other
        as in NumPy's ``a[i, j, k]``. Other ones on every process, perhaps none; points may come
        twice.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; along the others they are singletons, and the only
        coordinate is 0. Default: all.
    check : bool, optional
        Whether every call agrees on its arguments over all ranks, so that a mistake on one rank
        raises everywhere.

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
    >>> with pen.indexer(([[0], [3]], [1, 5])) as corners:
    ...     corners.take(u)
    array([[ 1,  5],
           [31, 35]])
    """

    def __init__(
        self,
        pencil: Pencil,
        coords: Sequence[Any],
        *,
        dims: Sequence[int] | int | None = None,
        check: bool = True,
    ) -> None:
        topology = topology_among(pencil)
        with agreed(topology.comm, "indexer") as same:
            check_type("pencil", pencil, Pencil)
            self._singletons = read_singletons(pencil.ndim, dims)
            same(pencil=repr(pencil), dims=sorted(self._singletons), check=bool(check))
            self._layout = pencil.extent(self._singletons).layout
            self.shape, self._coords = read_coords(coords, self._layout.shape)
        self.pencil = pencil
        self._agreement = Agreement(topology, next(topology.numbers), check=check)
        self._replicas: RowPlan | None = None
        self._taken = self._plan(
            *locate(self._layout, self._coords, self._layout.parts(pencil.rank))
        )

    def take(self, u: PencilArray, out: Any = None) -> Array:
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
        return self._take("take", u, out).run()

    def take_start(self, u: PencilArray, out: Any = None) -> Handle[Array]:
        """Start what `take` does; `wait` of the handle returns the array. *Collective*.

        Meanwhile neither the field nor the array may be touched.
        """
        return self._take("take_start", u, out).start()

    def put(self, u: PencilArray, values: Any, *, reduce: ReduceOp | None = None) -> None:
        """Write to the points of a field: ``global_array[..., i, j, k] = values``. *Collective*.

        Parameters
        ----------
        u : PencilArray
            A field on the pencil, of any type and components. Its halo is left alone.
        values : array_like
            What broadcasts to ``u.components + shape`` and can be converted to the type of `u`.
        reduce : ReduceOp, optional
            How values for one point, and the one that is there, are combined. Default: the last
            one stays, in the order of ranks and, on each of them, of coordinates.

        Raises
        ------
        ArgumentError, TypeError, PencilMismatchError
            On every rank, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> import pencils
        >>> u = pencils.zeros(pencils.Pencil((2, 3)))
        >>> with u.pencil.indexer(([0, 1, 0], [2, 0, 2])) as particles:
        ...     particles.put(u, [1.0, 2.0, 4.0], reduce=ReduceOp.SUM)
        >>> u.local
        array([[0., 0., 5.],
               [2., 0., 0.]])
        """
        self._put("put", u, values, reduce).run()

    def put_start(
        self, u: PencilArray, values: Any, *, reduce: ReduceOp | None = None
    ) -> Handle[None]:
        """Start what `put` does; `wait` of the handle completes it. *Collective*.

        Meanwhile the field may not be touched.
        """
        return self._put("put_start", u, values, reduce).start()

    def free(self) -> None:
        """Complete what is under way, and release memory and MPI objects.

        *Collective* if anything is under way.
        """
        self._agreement.closed = True
        self._taken.free()
        if self._replicas is not None:
            self._replicas.free()

    def _take(self, call: str, u: PencilArray, out: Any) -> Transfer[Array]:
        plan = self._taken
        with self._agreement.on(call) as same:
            self._check_field(u, same)
            shape = (*u.components, *self.shape)
            found = np.empty(shape, u.dtype) if out is None else read_array("out", out, shape)
            if found.dtype != u.dtype:
                msg = f"out has type {found.dtype}, but the field has type {u.dtype}"
                raise TypeError(msg)
        block = Block(u, self.pencil.order)
        lane = plan.pulls.take_lane(block.row)
        block.columns(lane.source)[...] = block.read(plan.wanted)

        def unpack(rows: Array) -> None:
            np.take(block.columns(rows), plan.places, 1, block.flat(found), "clip")

        return Transfer(plan.pulls, lane, unpack, found)

    def _put(self, call: str, u: PencilArray, values: Any, reduce: object) -> Transfer[None]:
        with self._agreement.on(call) as same:
            self._check_field(u, same)
            op = read_reduce(reduce)
            same(reduce=op)
            given = read_values("values", values, (*u.components, *self.shape), u.dtype)
            _check_target(u, op)
        plan = self._written
        block = Block(u, self.pencil.order)
        lane = plan.pushes.take_lane(block.row)
        # Replicas come one after the other, each with all values.
        request = plan.order % max(1, prod(self.shape))
        block.columns(lane.source)[...] = block.flat(given)[:, request]

        def unpack(rows: Array) -> None:
            written, writers = plan.writers
            if op is None:
                block.write(written, block.columns(rows)[:, writers])
            else:
                current = np.ascontiguousarray(block.read(written).T)
                target = np.searchsorted(written, plan.wanted)
                op.combine(current, target, rows.view(u.dtype), block.width)
                block.write(written, current.T)
            if checks.on:
                mark_written(u)

        return Transfer(plan.pushes, lane, unpack, None)

    @property
    def _written(self) -> RowPlan:
        """Plan of points that are written, on all their replicas. *Collective* at first."""
        if not self._layout.replicated_axes:
            return self._taken
        if self._replicas is None:
            self._replicas = self._plan(*locate_replicas(self._layout, self._coords))
        return self._replicas

    def _plan(self, owners: Ints, offsets: Ints) -> RowPlan:
        topology = self.pencil.topology
        return RowPlan(topology, owners, offsets, self._layout.box(topology.rank).volume)

    def _check_field(self, u: PencilArray, same: agreed | Unheard) -> None:
        check_type("u", u, Field)
        check_source(u, self.pencil, Kind(u.dtype, u.components, self._singletons))
        if 0 in u.components:
            msg = f"u has components {u.components}, so that its points have no values"
            raise ArgumentError(msg)
        same(dtype=u.dtype, components=u.components)


def _check_target(u: PencilArray, op: ReduceOp | None) -> None:
    """Check that a field can be written, and holds what comes out."""
    if not u.local.flags.writeable:
        msg = "u is read-only; pass a field that may be written"
        raise ArgumentError(msg)
    if op is not None and op.result(u.dtype) != u.dtype:
        msg = f"{op} gives values of type {op.result(u.dtype)}, not of that of the field, {u.dtype}"
        raise TypeError(msg)
