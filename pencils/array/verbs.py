"""Methods of fields that higher layers provide: halos, whole lines, points, protocol.

Each calls a function of `PROVIDERS`; signatures and documentation are here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias, TypeVar

from pencils.array import provided
from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.comm.exchange import Handle
from pencils.comm.reduce import ReduceOp

F = TypeVar("F", bound=Field)

# How boundary points are filled; the functions are in `pencils.halo.boundary`.
Mode: TypeAlias = Literal[
    "constant", "edge", "linear_ramp", "reflect", "symmetric", "antisymmetric"
]

# Halos: ghosts by communication, boundary points without.


def exchange_halo(u: Field, *, corners: bool = True) -> None:
    """Fill the ghosts with values of the points that they copy. *Collective*.

    Boundary points, beyond the ends of dimensions that are not periodic, are not touched; fill them
    afterwards with `fill_boundary`, which reads ghosts.

    Parameters
    ----------
    corners : bool, optional
        Whether to fill ghosts that lie beyond several dimensions; stencils shaped like a star do
        not need them.

    Raises
    ------
    ArgumentError
        On every rank, if the field has no halo but could have one (one of a single point cannot),
        is read-only, or its communicator was freed.
    RankDisagreementError
        On every rank, if ranks have fields of different kinds.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((8, 6), periodic=True)
    >>> u = pencils.from_function(pen, lambda i, j: 10.0 * i + j, halo=1)
    >>> u.exchange_halo()
    >>> laplacian = sum(u.shift(o) for o in [(1, 0), (-1, 0), (0, 1), (0, -1)]) - 4 * u
    >>> abs(laplacian[1:-1, 1:-1]).max()
    np.float64(0.0)
    """
    call = getattr(u, "_kept_halo", None)
    if call is None or not call.run(u, corners):
        provided("exchange_halo")(u, corners=corners)


def start_halo_exchange(u: Field, *, corners: bool = True) -> Handle[None]:
    """Start filling the ghosts, and return before it is done. *Collective*.

    Until ``wait()`` of the returned handle, which all ranks must call, own points may be read but
    not written: compute on `interior` before, on the `shells` after it. If ranks wait for several
    exchanges in different orders, make no other collective call between these waits.

    Parameters
    ----------
    corners : bool, optional
        As for `exchange_halo`.

    Returns
    -------
    Handle
        The started exchange.

    Raises
    ------
    ArgumentError, RankDisagreementError
        As `exchange_halo`.
    """
    handle: Handle[None] = provided("prepare_kept")(
        "start_halo_exchange", [u], corners=corners
    ).start(None)
    return handle


def accumulate_halo(u: Field, *, corners: bool = True) -> None:
    """Add every ghost to the point it is a copy of, and zero it. *Collective*.

    The exact adjoint of `exchange_halo`: for blocks x, y with halo, the scalar products of
    (x with its ghosts filled) and y, and of x and (y accumulated), are equal up to rounding. It
    adds contributions outside the own block to their owners: particles, finite elements, gradients.

    Parameters
    ----------
    corners : bool, optional
        Whether ghosts that lie beyond several dimensions are added; else they stay as they are.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if the field has no halo, is read-only, or does not hold numbers.
    RankDisagreementError
        On every rank, if ranks have fields of different kinds.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((4,), periodic=True), halo=1)
    >>> u.accumulate_halo()
    >>> u.sum() / u.pencil.size  # each rank had two ghosts
    np.float64(6.0)
    """
    provided("prepare_kept")("accumulate_halo", [u], corners=corners).run_agreed()


def fill_boundary(
    u: Field,
    mode: Mode | Callable[..., Any],
    *,
    value: object = None,
    axis: int | Sequence[int] | None = None,
    side: Literal["lo", "hi", "both"] = "both",
    reflect_type: Literal["even", "odd"] = "even",
) -> None:
    """Fill halo points outside the physical domain, as `numpy.pad` would; never communicates.

    These are the points of ``u.padded`` with a global index below 0 or not below ``u.shape``, along
    dimensions that are not periodic. Ghosts must be up to date: exchange first, then fill.
    Dimensions are filled in rising order, each over the whole padded range of the others, so that
    after both steps corners too equal those of `numpy.pad` of the global array. Ranks whose own
    block is empty are left alone.

    Parameters
    ----------
    u : PencilArray
        The field; its boundary points are overwritten, nothing else.
    mode : {"constant", "edge", "linear_ramp", "reflect", "symmetric", "antisymmetric"} or callable
        Values to fill in, by the names of `numpy.pad`; ramps may differ in the last bit.
        ``"antisymmetric"``, which NumPy does not have, is twice `value` less what ``"symmetric"``
        gives: half a cell outside of the last points the field is `value`. A callable is called as
        ``f(i, j, ...)`` once for each dimension and side, with the global indices of the boundary
        points, padded range of the other dimensions included: integer arrays that broadcast against
        each other, with values below 0 and beyond the shape. The result must broadcast to these
        points, components first. It runs only on ranks that have such points, so it must not
        communicate, and an error it raises is raised there only.
    value : array_like, optional
        For ``"constant"`` the value, for ``"linear_ramp"`` the one at the outermost point, for
        ``"antisymmetric"`` that at the wall between the last point and the first one outside: a
        scalar, or an array that broadcasts to the components. Default 0.
    axis : int or sequence of int, optional
        Space dimensions in ``[-n, n)`` to fill along, components not counted. Default: all that
        have a halo and are not periodic, and along which the field is not `trimmed`.
    side : {"lo", "hi", "both"}, optional
        Below index 0, beyond the last one, or both.
    reflect_type : {"even", "odd"}, optional
        For ``"reflect"`` and ``"symmetric"``: ``"odd"`` subtracts the mirrored values from twice
        the value of the last point.

    Raises
    ------
    ArgumentError, TypeError
        If an argument is not allowed, there is no halo at all, or none to fill along a dimension
        that is named, the field is read-only or has no points along a dimension, or the halo of
        some rank does not hold the points to mirror (possible only if it is narrower on the inner
        side). All ranks raise, and nothing is changed.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(pencils.Pencil(4), halo=2)
    >>> u.local[...] = [1, 2, 3, 4]
    >>> u.fill_boundary("reflect")
    >>> u.padded
    array([3., 2., 1., 2., 3., 4., 3., 2.])
    >>> u.fill_boundary("constant", value=9, side="hi")
    >>> u.padded
    array([3., 2., 1., 2., 3., 4., 9., 9.])
    >>> u.fill_boundary(lambda i: 10 * i, side="lo")
    >>> u.padded
    array([-20., -10.,   1.,   2.,   3.,   4.,   9.,   9.])
    """
    fill = provided("fill_boundary")
    fill(u, mode, value=value, axis=axis, side=side, reflect_type=reflect_type)


# Lines along an axis.


def whole(u: F, axis: int) -> F:
    """Return the field where lines along an axis are whole: on one process each. *Collective*.

    There functions of NumPy and SciPy can go along the axis of ``u.local``, and NumPy functions of
    lines, such as `numpy.sort`, take the field. ``pencils.transpose(v, u.pencil)`` moves a result
    back; `pencils.functions.along` does both.

    Parameters
    ----------
    axis : int
        An axis of ``u.shape``, components first, in ``[-u.ndim, u.ndim)``.

    Returns
    -------
    PencilArray
        The field on ``u.pencil.whole(dim)``, where ``dim`` is the dimension of the axis; see
        `Pencil.whole`. If this is the pencil of the field, and for axes of components, it is the
        field itself, else a new one without halo.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError
        On every rank, if there is no such axis on any, or ranks pass different ones.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 6)), lambda i, j: (i + j) % 4)
    >>> u.whole(0).pencil.decomp, u.whole(1) is u
    ((1,), True)
    >>> np.sort(u.whole(0), axis=0)[:, :3].local
    array([[0, 0, 0],
           [1, 1, 1],
           [2, 2, 2],
           [3, 3, 3]])
    """
    lines: F = provided("whole")(u, axis)
    return lines


# Points by their global coordinates.


def take_points(u: Field, coords: Sequence[Any] | Array, out: Array | None = None) -> Array:
    """Read any points, on any rank: ``global_array[..., i, j, k]``. *Collective*.

    `PointIndexer` is the plan for repeated calls with the same points.

    Parameters
    ----------
    coords : sequence of array_like of int
        Global coordinates along each space dimension, as for `PointIndexer`.
    out : numpy.ndarray, optional
        Array to fill, as for `PointIndexer.take`.

    Returns
    -------
    numpy.ndarray
        `out`, or a new array.

    Raises
    ------
    IndexError, ArgumentError, TypeError
        On every rank, if an argument does not fit on any.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 6)), lambda i, j: 10 * i + j)
    >>> u.take_points(([3, 0], [1, 5]))
    array([31,  5])
    """
    values: Array = provided("take_once")(u, coords, out)
    return values


def put_points(
    u: Field, coords: Sequence[Any] | Array, values: Any, *, reduce: ReduceOp | None = None
) -> None:
    """Write to any points, on any rank. *Collective*.

    Parameters
    ----------
    coords : sequence of array_like of int
        Global coordinates, as for `take_points`.
    values, reduce
        As for `PointIndexer.put`.

    Raises
    ------
    IndexError, ArgumentError, TypeError
        On every rank, before anything is written, if an argument does not fit on any.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(pencils.Pencil(4))
    >>> u.put_points([[2, 0, 2]], [1.0, 3.0, 5.0], reduce=pencils.indexer.ReduceOp.SUM)
    >>> u.local
    array([3., 0., 6., 0.])
    """
    provided("put_once")(u, coords, values, reduce)


# The Distributed Array Protocol: see `pencils.dap`.


def to_distarray(u: Field) -> dict[str, Any]:
    """Export by the Distributed Array Protocol 0.10: see `pencils.dap.export`.

    The ghosts are shown as communication padding, or none of them if that version cannot represent
    all. Times raise `pencils.dap.UnsupportedError`: their elements have no buffer.
    """
    export = provided("export")
    with suppress(provided("UnsupportedError")):
        return export(u, halo="comm")  # type: ignore[no-any-return]
    return export(u)  # type: ignore[no-any-return]
