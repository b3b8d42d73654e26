"""Multilinear interpolation of fields at any positions, and its adjoint, the deposition."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pencils.array.allocation import Array, as_singletons
from pencils.array.operands import (
    check_type,
    check_writeable,
    signature,
    topology_among,
)
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.reduce import ReduceOp
from pencils.indexer.arguments import as_results, as_values
from pencils.indexer.gather_scatter import Request, Requests
from pencils.indexer.points import Chosen, PointIndexer
from pencils.indexer.positions import are_inside, as_positions, corners, neighbours
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
    >>> pencils.interpolate(u, ([0.5, 3], [2.25, 5]))
    array([ 7.25, 35.  ])

    Positions on a rectilinear grid become those in units of the index with ``numpy.interp``:

    >>> x, y = np.array([0, 0.1, 0.4, 1]), np.linspace(0, 1, 6)
    >>> at = np.interp([0.2, 0.7], x, range(4)), np.interp([1, 0.5], y, range(6))
    >>> (pencils.interpolate(u, at) - (10 * at[0] + at[1])).round(12)
    array([0., 0.])
    """
    with Interpolation.of(u, points, fill_value) as plan:
        return plan(u, out)


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
    >>> with pencils.Interpolation(pen, ([-0.5, 1], [0, 2.5])) as plan:
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
            agree(**signature(u))
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
        self._fill = _as_fill_value(fill_value)
        agree(fill_value=None if self._fill is None else complex(self._fill))
        layout = pencil.extent(singletons).layout
        self.shape, positions = as_positions(points, pencil.ndim, singletons)
        self._inside = are_inside(positions, layout, self.shape, strict=self._fill is None)
        along = [
            neighbours(position[self._inside], extent, wraps=wraps)
            for position, extent, wraps in zip(
                positions, layout.shape, layout.periodic, strict=True
            )
        ]
        coords, self._where, self._weights = corners(along)
        self._chosen = Chosen.read(pencil, singletons, coords)
        return self._chosen.requests()

    def _set(self, requests: Requests, *, check: bool) -> None:
        topology = self.pencil.topology
        self._number = next(topology.numbers)
        super().__init__(topology, check=check)
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

        def bind(agree: Agreement) -> tuple[Request[Array], Array, list[Array]]:
            self._check_field(u, agree)
            found = as_results(out, (*u.components, *self.shape), self._result(u.dtype))
            request = self._indexer.take_request("interpolate", u, None)
            inside = np.zeros((prod(u.components), self._where.shape[1]), found.dtype)
            values = np.empty_like(inside, u.dtype)
            shares = np.empty_like(inside, np.result_type(self._weights, u.dtype))
            return request, found, [inside, values, shares]

        request, found, (inside, values, shares) = self._prepare("__call__", bind)
        corners = _columns(request.run(), u.components)
        for weights, where in zip(self._weights, self._where, strict=True):
            np.take(corners, where, 1, out=values, mode="clip")
            inside += np.multiply(weights, values, out=shares)
        columns = _columns(found, u.components)
        if self._fill is not None:
            columns[...] = self._fill
        columns[:, self._inside] = inside
        return found

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
        >>> with pencils.Interpolation(pen, [[0.75, 3.5, 1]]) as particles:
        ...     particles.deposit(charge, [4.0, 2.0, 1.0])
        >>> charge.local
        array([2., 4., 0., 1.])
        """

        def bind(agree: Agreement) -> Request[None] | None:
            self._check_field(u, agree)
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
        shape, dtype = (*u.components, *self._indexer.shape), u.dtype.newbyteorder("=")
        if (self._sums.shape, self._sums.dtype) != (shape, dtype):
            self._sums = np.empty(shape, dtype)
        # For the same array, the indexer finds the prepared call.
        self._sums[...] = 0
        columns = _columns(given, u.components)[:, self._inside]
        for total, column in zip(_columns(self._sums, u.components), columns, strict=True):
            for weights, where in zip(self._weights, self._where, strict=True):
                np.add.at(total, where, (weights * column).astype(dtype, copy=False))
        return self._sums

    def _describe(self) -> str:
        return f"<Interpolation {self._number} on a pencil of shape {self.pencil.shape}>"

    def _release(self) -> None:
        self._indexer.free()

    def _check_field(self, u: PencilArray, agree: Agreement) -> None:
        self._indexer.check_field(u, agree)
        if u.dtype.kind not in "biufc":
            raise TypeError(f"u of type {u.dtype} cannot be interpolated; convert it to floats")

    def _result(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the element type of the results for a field of element type `dtype`."""
        result = dtype.newbyteorder("=") if dtype.kind in "fc" else np.dtype(float)
        if self._fill is not None and not np.can_cast(self._fill.dtype, result, "same_kind"):
            raise TypeError(f"fill_value={self._fill} does not fit values of type {result}")
        return result


def _as_fill_value(value: object) -> Any:
    """Return one number as a scalar of NumPy, or None."""
    if value is None:
        return None
    number = np.asarray(value)
    if number.ndim or number.dtype.kind not in "biufc":
        raise TypeError(f"fill_value={value!r} must be a number, or None")
    return number[()]


def _columns(array: Array, components: tuple[int, ...]) -> Array:
    """View a contiguous array, components first, as one row for each of them."""
    width = prod(components)
    return array.reshape(width, prod(array.shape[len(components) :]))
