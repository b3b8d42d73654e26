"""Interpolation of fields at any positions by B-splines, and its adjoint, the deposition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, as_singletons, plain_array
from pencils.array.operands import check_type, check_writeable, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.recording import makes_plan
from pencils.comm.reduce import ReduceOp, native
from pencils.comm.rows import Ints, locate
from pencils.errors import ArgumentError
from pencils.indexer.arguments import as_results, as_values, broadcast
from pencils.indexer.gather_scatter import Request, requests_of
from pencils.indexer.one_shot import Record, TakeOnce
from pencils.indexer.points import PointIndexer
from pencils.indexer.requests import points_on
from pencils.layout import Layout
from pencils.layout.integers import as_int
from pencils.pencil import Pencil
from pencils.plans import Agreement, Plan

# A table of all points in the bounding box of the requests is faster than sorting, if it has at
# most so many entries for each request.
_SPARSE = 8


def interpolate(
    u: PencilArray,
    points: Sequence[Any] | Array,
    *,
    out: Array | None = None,
    fill_value: complex | None = None,
    order: int = 1,
    cells: bool = False,
) -> Array:
    """Interpolate a field between its points, on any rank. *Collective*.

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
    order : {1, 2, 3}, optional
        1: multilinear. 2 and 3: sums of the values at three and four points along each dimension,
        with the weights of quadratic (TSC, triangular-shaped clouds) and cubic B-splines [1]_,
        which have one and two continuous derivatives. They are the shapes of particles: at a point
        the result is an average of values around it.
    cells : bool, optional
        Whether points are centres of cells: where a dimension is not periodic, it ends half a cell
        beyond them, and positions from -0.5 to ``n - 0.5`` are allowed. Default: it ends at the
        first and last points. Values beyond the end are those mirrored in it.

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

    References
    ----------
    .. [1] R. W. Hockney and J. W. Eastwood, Computer Simulation Using Particles, 1988, chapter 5.

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
    field: object = u
    if not isinstance(field, PencilArray):
        with agreed(topology_among(u).comm, "interpolate"):
            check_type("u", u, PencilArray)
    read_cells: Cells | None = None
    add_up: Callable[[Array], Array]

    def read(agree: Record) -> list[Ints]:  # twice where a plan has to be made
        nonlocal read_cells, add_up
        if read_cells is None:
            form = Shape.read(agree, order, cells, fill_value)
            read_cells = Cells.read(points, u.extent.layout, u.singletons, form)
            add_up = read_cells.adder(u.dtype, u.components, out)
        return read_cells.coords

    corners = TakeOnce("interpolate", u, read, None).run()
    return add_up(corners)


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
        Whether all ranks compare the arguments of every call, and all raise if one is wrong.
    order, cells : optional
        Shape of the weights, and where the domain ends, as for `interpolate`.

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

    @makes_plan
    def __init__(
        self,
        pencil: Pencil,
        points: Sequence[Any] | Array,
        *,
        dims: Sequence[int] | int | None = None,
        fill_value: complex | None = None,
        check: bool = True,
        order: int = 1,
        cells: bool = False,
    ) -> None:
        with agreed(topology_among(pencil).comm, "Interpolation") as agree:
            check_type("pencil", pencil, Pencil)
            singletons = as_singletons(pencil.ndim, dims)
            agree(pencil=pencil, dims=sorted(singletons), check=bool(check))
            layout = pencil.extent(singletons).layout
            # All memory of later calls is allocated while all ranks can still raise.
            form = Shape.read(agree, order, cells, fill_value)
            self._cells = Cells.read(points, layout, singletons, form)
            coords = self._cells.coords
            corners = points_on(layout, coords, layout.parts(pencil.rank))
            requests = requests_of(partial(locate, corners), layout.size)
        self.pencil, self.shape = pencil, self._cells.shape
        super().__init__(pencil.topology, check=check)
        self._indexer = PointIndexer.of(pencil, singletons, coords)
        self._indexer.plan_take(requests)
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

        def bind(agree: Agreement) -> tuple[Request[Array], Callable[[Array], Array]]:
            self._indexer.check_field(u, agree)
            add_up = self._cells.adder(u.dtype, u.components, out)
            return self._indexer.take_request("interpolate", u, None), add_up

        request, add_up = self._prepare("__call__", bind)
        return add_up(request.run())

    def deposit(self, u: PencilArray, values: Any) -> None:
        """Add values at the positions to the points around them. *Collective*.

        The weights are those of interpolation, as in the deposition of particles by *cloud in
        cell* (order 1), *triangular-shaped clouds* (2) and cubic splines (3): this is the adjoint
        of interpolation, and the sum over a field grows by that of the values. Values outside the
        field are ignored.

        Parameters
        ----------
        u : PencilArray
            A field of floating point numbers on the pencil, with any components. Its halo is not
            changed.
        values : array_like
            Values that broadcast to ``u.components + shape`` and convert to the type of `u`.

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
            return self._indexer.kept_put(u, self._shares(given, u), ReduceOp.SUM)

        self._prepare("deposit", bind, self._indexer.plan_put).run()

    def _shares(self, given: Array, u: PencilArray) -> Array:
        """Return the sum of the weighted values at each point that is used."""
        shape, dtype = (*u.components, *self._indexer.shape), native(u.dtype)
        if (self._sums.shape, self._sums.dtype) != (shape, dtype):
            self._sums = np.empty(shape, dtype)
        # For the same array, the indexer finds the prepared call.
        self._sums[...] = 0
        cells, totals = self._cells, _columns(self._sums, u.components)
        inside = _columns(given, u.components)[:, cells.inside]
        for total, column in zip(totals, inside, strict=True):
            for weights, where in zip(cells.weights, cells.where, strict=True):
                np.add.at(total, where, (weights * column).astype(dtype, copy=False))
        return self._sums

    def _describe(self) -> str:
        return f"<Interpolation {self._number} on a pencil of shape {self.pencil.shape}>"

    def _release(self) -> None:
        self._indexer.free()


class Shape(NamedTuple):
    """How to interpolate: arguments that all ranks agree on."""

    order: int  # of the weights
    cells: bool  # whether dimensions end half a cell beyond their points
    fill: Any  # the value outside, or None

    @classmethod
    def read(cls, agree: Record, order: Any, cells: object, fill_value: object) -> Shape:
        """Check the arguments."""
        fill = None if fill_value is None else np.asarray(fill_value)
        if fill is not None and (fill.ndim or fill.dtype.kind not in "biufc"):
            raise TypeError(f"fill_value={fill_value!r} must be a number, or None")
        order = as_int("order", order)
        if not 1 <= order <= 3:  # noqa: PLR2004
            raise ArgumentError(
                f"order={order!r} must be 1 (linear), 2 (quadratic) or 3 (cubic weights)"
            )
        agree(fill_value=None if fill is None else complex(fill), order=order, cells=bool(cells))
        return cls(order, bool(cells), fill)

    def ends(self, extent: int) -> tuple[float, float]:
        """First and last position along a dimension that is not periodic."""
        return (-0.5, extent - 0.5) if self.cells and extent else (0, extent - 1)


class Cells(NamedTuple):
    """Positions, and the corners of the cells around them."""

    shape: tuple[int, ...]  # of what the positions broadcast to
    inside: Ints | slice  # the positions at which fields can be interpolated
    fill: Any  # the value at the others, or None
    coords: list[Ints]  # of the distinct corners, along each dimension
    where: Ints  # for each corner of a cell and each position inside: the number of the corner
    weights: Array  # and its weight

    @classmethod
    def read(cls, points: Any, layout: Layout, singletons: frozenset[int], form: Shape) -> Cells:
        """Check positions, which are ignored along singletons."""
        fill = form.fill
        shape, positions = _as_positions(points, len(layout.shape), singletons)
        inside = _are_inside(positions, layout, shape, form, strict=fill is None)
        dims = zip(positions, layout.shape, layout.periodic, strict=True)
        along = [_neighbours(at[inside], extent, form, wraps=wraps) for at, extent, wraps in dims]
        return cls(shape, inside, None if fill is None else fill[()], *_corners(along))

    def adder(
        self, dtype: np.dtype[Any], components: tuple[int, ...], out: object
    ) -> Callable[[Array], Array]:
        """Allocate what a call needs, for fields of this type; `out` is an argument.

        The returned function makes the results, from the values at the corners; each once.
        """
        if dtype.kind not in "biufc":
            raise TypeError(f"u of type {dtype} cannot be interpolated; convert it to floats")
        result = native(dtype) if dtype.kind in "fc" else np.dtype(float)
        if self.fill is not None and not np.can_cast(self.fill.dtype, result, "same_kind"):
            raise TypeError(f"fill_value={self.fill} does not fit values of type {result}")
        found = as_results(out, (*components, *self.shape), result)
        sums = np.zeros((prod(components), self.where.shape[1]), result)
        shares = np.empty_like(sums, np.result_type(self.weights, dtype))
        values = np.empty_like(sums, dtype)

        def add_up(corners: Array) -> Array:
            rows = _columns(corners, components)
            for weights, where in zip(self.weights, self.where, strict=True):
                np.take(rows, where, 1, out=values, mode="clip")
                np.add(sums, np.multiply(weights, values, out=shares), out=sums)
            results = _columns(found, components)
            if self.fill is not None:
                results[...] = self.fill
            results[:, self.inside] = sums
            return found

        return add_up


def _columns(array: Array, components: tuple[int, ...]) -> Array:
    """View a contiguous array, components first, as one row for each of them."""
    width = prod(components)
    return array.reshape(width, prod(array.shape[len(components) :]))


def _as_positions(
    points: object, ndim: int, ignored: frozenset[int]
) -> tuple[tuple[int, ...], list[Array]]:
    """Return the shape to which positions broadcast, and those along each dimension, flat.

    Along ignored dimensions they are 0.
    """
    along = [plain_array(entry) for entry in points] if isinstance(points, Iterable) else []
    if len(along) != ndim:
        raise ArgumentError(
            f"points must have an entry for each of {ndim} dimensions, like (x, y, z)"
        )
    for dim, position in enumerate(along):
        if dim in ignored:
            along[dim] = np.zeros(position.shape)
        elif position.size and position.dtype.kind not in "iuf":
            raise TypeError(
                f"positions along dimension {dim} must be real numbers, not {position.dtype}"
            )
    shape, positions = broadcast("points", along)
    return shape, [position.astype(float) for position in positions]


def _are_inside(
    positions: Sequence[Array], layout: Layout, shape: tuple[int, ...], form: Shape, *, strict: bool
) -> Ints | slice:
    """Select the points where fields can be interpolated; raise if `strict` and some cannot."""
    good = np.ones(prod(shape), bool)
    for dim, (at, extent) in enumerate(zip(positions, layout.shape, strict=True)):
        wraps = layout.periodic[dim] and extent > 0
        first, last = form.ends(extent)
        here = np.isfinite(at) if wraps else (at >= first) & (at <= last)
        if strict and not here.all():
            worst = int(np.argmin(here))
            point = tuple(map(int, np.unravel_index(worst, shape)))
            raise IndexError(
                f"point {point} is at {at[worst]} along dimension {dim}, which is not "
                f"{'finite' if wraps else f'in [{first}, {last}]'}; pass fill_value to allow this"
            )
        good &= here
    return slice(None) if good.all() else np.flatnonzero(good)


def _neighbours(at: Array, extent: int, form: Shape, *, wraps: bool) -> tuple[Ints, Array]:
    """Find the points around positions along a dimension, and their weights.

    Examples
    --------
    >>> _neighbours(np.array([0.25, -0.5]), 4, Shape(1, False, None), wraps=True)
    (array([[0, 3],
           [1, 0]]), array([[0.75, 0.5 ],
           [0.25, 0.5 ]]))
    """
    if extent == 1:
        return np.zeros((1, len(at)), np.int64), np.ones((1, len(at)))
    order, cells, _ = form
    here = np.mod(at, extent) if wraps else at
    nearest = np.floor(here + 0.5 if order == 2 else here)  # noqa: PLR2004
    first = nearest.astype(np.int64) - order // 2
    points = np.stack([first + number for number in range(order + 1)])
    # A position just below 0 may be rounded to `extent`.
    if wraps:
        points %= extent
    elif order == 1 and not cells:
        np.minimum(points, extent - 1, out=points)  # the last point has no neighbour above
    else:
        period = 2 * extent if cells else 2 * extent - 2
        points %= period
        points = np.where(points < extent, points, period - cells - points)
    return points, np.stack(_weights(here - nearest, order))


def _weights(f: Array, order: int) -> list[Array]:
    """Weights of B-splines; `f` is the distance from the point below, for order 2 the nearest."""
    if order == 1:
        return [1 - f, f]
    if order == 2:  # noqa: PLR2004
        return [(0.5 - f) ** 2 / 2, 0.75 - f**2, (0.5 + f) ** 2 / 2]
    g = 1 - f
    return [g**3 / 6, 2 / 3 - f**2 + f**3 / 2, 2 / 3 - g**2 + g**3 / 2, f**3 / 6]


def _corners(along: Sequence[tuple[Ints, Array]]) -> tuple[list[Ints], Ints, Array]:
    """Find the distinct corners of cells, from the neighbours of positions along each axis.

    Returns their coordinates and, for each corner of a cell and each position, the number of the
    corner and its weight.
    """
    count = along[0][0].shape[1]
    numbers, weights = np.zeros((1, count), np.int64), np.ones((1, count))
    lows = [int(pair.min(initial=np.iinfo(np.int64).max)) for pair, _ in along]
    box = []
    for (pair, shares), low in zip(along, lows, strict=True):
        box.append(int(pair.max(initial=low)) - low + 1)
        corners = len(weights) * len(pair)
        numbers = (numbers[:, None] * box[-1] + (pair - low)).reshape(corners, count)
        weights = (weights[:, None] * shares).reshape(corners, count)
    distinct, where = _distinct(numbers, prod(box))
    coords = np.unravel_index(distinct, box)
    return [index + low for index, low in zip(coords, lows, strict=True)], where, weights


def _distinct(numbers: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the distinct numbers, all below `size`, and the index of each number in them."""
    if size > _SPARSE * numbers.size:
        distinct, where = np.unique(numbers, return_inverse=True)
        return distinct, where.reshape(numbers.shape)
    seen = np.zeros(size, bool)
    seen[numbers] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[numbers]
