"""Multilinear interpolation of fields at any positions, and its adjoint, the deposition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pencils.array.allocation import Array, as_singletons
from pencils.array.operands import (
    check_type,
    check_writeable,
    topology_among,
)
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.reduce import ReduceOp, native
from pencils.comm.rows import Ints
from pencils.indexer.arguments import as_values
from pencils.indexer.cells import Cells, Values, as_fill_value, columns, fill_facts
from pencils.indexer.gather_scatter import Request, Requests
from pencils.indexer.one_shot import Take
from pencils.indexer.points import Chosen, PointIndexer
from pencils.pencil import Pencil
from pencils.plans import Agreement, Plan


def interpolate(
    u: PencilArray,
    points: Sequence[Any] | Array,
    *,
    out: Array | None = None,
    fill_value: complex | None = None,
) -> Array:
    """Interpolate a field multilinearly between its points, on any rank. *Collective*.

    To use the same positions many times, make an `Interpolation`.

    Parameters
    ----------
    u : PencilArray
        A field of numbers, with any components.
    points : sequence of array_like
        Positions in units of the index along each space dimension, which broadcast to each other:
        at 2.25, three quarters of the value at index 2 and a quarter of that at 3; at 2.0 both are
        used, too, so that a NaN in one of them gives NaN. Different ones on every process, perhaps
        none. Any number is allowed along periodic dimensions, ``0 .. n - 1`` along the other ones,
        and anything, ignored, along singletons.
    out : numpy.ndarray, optional
        Contiguous array to fill, of shape ``u.components`` + that of the positions.
    fill_value : number, optional
        Value outside the field. Default: positions outside raise IndexError.

    Returns
    -------
    numpy.ndarray
        `out`, or a new array: of the type of the field, or ``float64`` for integers.

    Raises
    ------
    IndexError
        On every rank, if a position is outside on any, and there is no `fill_value`.
    ArgumentError, TypeError, RankDisagreementError
        On every rank, if another argument does not fit on any.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 6)), lambda i, j: 10.0 * i + j)
    >>> pencils.indexer.interpolate(u, ([0.5, 3], [2.25, 5]))
    array([ 7.25, 35.  ])

    Positions on a rectilinear grid become those in units of the index with ``numpy.interp``:

    >>> x, y = np.array([0, 0.1, 0.4, 1]), np.linspace(0, 1, 6)
    >>> at = np.interp([0.2, 0.7], x, range(4)), np.interp([1, 0.5], y, range(6))
    >>> (pencils.indexer.interpolate(u, at) - (10 * at[0] + at[1])).round(12)
    array([0., 0.])
    """
    if isinstance(u, PencilArray):
        call = _Once.of(u, points, out, fill_value)
        if call.run():
            return call.values.add_up(call.found)
    with Interpolation.of(u, points, fill_value) as plan:
        return plan(u, out)


class _Once(Take):
    """Reads the corners of the cells for a single call."""

    name = "interpolate"

    def __init__(self, u: PencilArray, points: Any, out: Any, fill_value: Any) -> None:
        super().__init__(u, (), None)
        self._given = points, out, fill_value
        self._cells: Cells | None = None

    def find(self) -> tuple[tuple[int, ...], list[Ints]]:
        """Check the arguments, and allocate the results; return what it does for the corners."""
        u, (points, out, fill_value) = self._u, self._given
        if self._cells is None:
            fill = as_fill_value(fill_value)
            kind, facts = self._kind, fill_facts(fill)
            row = kind.row if fill is None else kind.new_row
            self._row = row(self.name, fill_value=facts)
            self._cells = Cells.read(points, u.extent.layout, u.singletons, fill)
            self.values = self._cells.values(u.dtype, u.components, out)
            self._coords = self._cells.coords
        return super().find()


class Interpolation(Plan[Any]):
    """Reusable plan that interpolates fields at some positions. Making one is *Collective*.

    It serves all fields of a pencil, with any type, components and halo.

    Parameters
    ----------
    pencil : Pencil
        Pencil of the fields.
    points : sequence of array_like
        Positions, as for `interpolate`.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; along the others they are singletons, and the
        position is ignored. Default: all.
    fill_value : number, optional
        Value outside the fields. Default: positions outside raise IndexError.
    check : bool, optional
        Whether every call agrees on its arguments over all ranks, so that a mistake on one rank
        raises everywhere.

    Attributes
    ----------
    shape : tuple of int
        Common shape of the positions of this rank.

    Raises
    ------
    IndexError, ArgumentError, TypeError, RankDisagreementError
        On every rank, if an argument does not fit on any.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((4, 6), periodic=(True, False))
    >>> with pencils.indexer.Interpolation(pen, ([-0.5, 1], [0, 2.5])) as plan:
    ...     plan(pencils.from_function(pen, lambda i, j: i + 10 * j))
    array([ 1.5, 26. ])
    """

    def __init__(
        self,
        pencil: Pencil,
        points: Sequence[Any] | Array,
        *,
        dims: Sequence[int] | int | None = None,
        fill_value: complex | None = None,
        check: bool = True,
    ) -> None:
        with agreed(topology_among(pencil).comm, "Interpolation") as agree:
            check_type("pencil", pencil, Pencil)
            singletons = as_singletons(pencil.ndim, dims)
            agree(pencil=pencil, dims=sorted(singletons), check=bool(check))
            requests = self._read(agree, pencil, singletons, points, fill_value)
        self._set(requests, check=check)

    @classmethod
    def of(cls, u: PencilArray, points: Any, fill_value: complex | None) -> Interpolation:
        """Make a plan for fields like `u`, as `interpolate` does. *Collective*."""
        plan = object.__new__(cls)
        with agreed(topology_among(u).comm, "interpolate") as agree:
            check_type("u", u, PencilArray)
            agree.dtype(u.dtype)
            agree(pencil=u.pencil, shape=u.shape, singletons=sorted(u.singletons))
            requests = plan._read(agree, u.pencil, u.singletons, points, fill_value)
        plan._set(requests, check=True)
        return plan

    def _read(
        self,
        agree: agreed,
        pencil: Pencil,
        singletons: frozenset[int],
        points: Any,
        fill_value: complex | None,
    ) -> Requests:
        """Check positions and allocate memory for all later calls; local, within an agreement."""
        self.pencil, self._singletons = pencil, singletons
        fill = as_fill_value(fill_value)
        agree(fill_value=fill_facts(fill))
        self._cells = Cells.read(points, pencil.extent(singletons).layout, singletons, fill)
        self.shape = self._cells.shape
        self._chosen = Chosen.read(pencil, singletons, self._cells.coords)
        return self._chosen.requests()

    def _set(self, requests: Requests, *, check: bool) -> None:
        super().__init__(self.pencil.topology, check=check)
        self._indexer = PointIndexer.of(self.pencil, self._chosen, requests)
        self._sums: Array = np.empty(0)

    def __call__(self, u: PencilArray, out: Array | None = None) -> Array:
        """Interpolate a field. *Collective*.

        Parameters
        ----------
        u : PencilArray
            A field of numbers on the pencil, with any components.
        out : numpy.ndarray, optional
            Contiguous array to fill, of shape ``u.components + shape``.

        Returns
        -------
        numpy.ndarray
            `out`, or a new array: of the type of the field, or ``float64`` for integers.

        Raises
        ------
        ArgumentError, TypeError, PencilMismatchError
            On every rank, before anything is written, if an argument does not fit on any.
        """

        def bind(agree: Agreement) -> tuple[Request[Array], Values]:
            self._indexer.check_field(u, agree)
            values = self._cells.values(u.dtype, u.components, out)
            return self._indexer.take_request("interpolate", u, None), values

        request, values = self._prepare("__call__", bind)
        return values.add_up(request.run())

    def deposit(self, u: PencilArray, values: Any) -> None:
        """Add values at the positions to the points around them. *Collective*.

        The weights are those of interpolation, as in the deposition of particles by *cloud in
        cell*: this is the adjoint of interpolation, and the sum over a field grows by that of the
        values. Values outside the field are ignored.

        Parameters
        ----------
        u : PencilArray
            A field of floating point numbers on the pencil, with any components. Its halo is not
            changed.
        values : array_like
            What broadcasts to ``u.components + shape`` and can be converted to the type of `u`.

        Raises
        ------
        ArgumentError, TypeError, PencilMismatchError
            On every rank, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> import pencils
        >>> pen = pencils.Pencil(4, periodic=True)
        >>> charge = pencils.zeros(pen)
        >>> with pencils.indexer.Interpolation(pen, [[0.75, 3.5, 1]]) as particles:
        ...     particles.deposit(charge, [4.0, 2.0, 1.0])
        >>> charge.local
        array([2., 4., 0., 1.])
        """

        def bind(agree: Agreement) -> Request[None] | None:
            self._indexer.check_field(u, agree)
            if u.dtype.kind not in "fc":
                raise TypeError(
                    f"u of type {u.dtype} cannot hold shares of values; use a field of floats"
                )
            check_writeable(u)
            given = as_values("values", values, (*u.components, *self.shape), u.dtype)
            if not self._indexer.can_put:
                return None
            return self._indexer.put_request(u, self._shares(given, u), ReduceOp.SUM)

        self._prepare("deposit", bind, self._indexer.plan_put).run()

    def _shares(self, given: Array, u: PencilArray) -> Array:
        """Return the sum of the weighted values at each point that is used."""
        shape, dtype = (*u.components, *self._indexer.shape), native(u.dtype)
        if (self._sums.shape, self._sums.dtype) != (shape, dtype):
            self._sums = np.empty(shape, dtype)
        # For the same array, the indexer finds the prepared call.
        self._sums[...] = 0
        cells, totals = self._cells, columns(self._sums, u.components)
        inside = columns(given, u.components)[:, cells.inside]
        for total, column in zip(totals, inside, strict=True):
            for weights, where in zip(cells.weights, cells.where, strict=True):
                np.add.at(total, where, (weights * column).astype(dtype, copy=False))
        return self._sums

    def _describe(self) -> str:
        return f"<Interpolation {self._number} on a pencil of shape {self.pencil.shape}>"

    def _release(self) -> None:
        self._indexer.free()
