"""Reading and writing any points of a field by their global coordinates, as methods of fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pencils.array.allocation import Array

if TYPE_CHECKING:
    from pencils.array.pencil_array import PencilArray
    from pencils.indexer import PointIndexer, ReduceOp


def take(self: PencilArray, coords: Sequence[Any], out: Any = None) -> Array:
    """Read any points, wherever they live: ``global_array[..., i, j, k]``. *Collective*.

    A plan for the same points again and again is made by `Pencil.indexer`.

    Parameters
    ----------
    coords : sequence of array_like of int
        Global coordinates along each space dimension, in ``[0, shape)``, which broadcast to
        each other. Other ones on every process, perhaps none; points may come twice.
    out : numpy.ndarray, optional
        Contiguous array to fill, of shape ``u.components`` + that of the coordinates.

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
    >>> u.take(([3, 0], [1, 5]))
    array([31,  5])
    """
    with _indexer(self, coords) as plan:
        return plan.take(self, out)


def put(
    self: PencilArray, coords: Sequence[Any], values: Any, *, reduce: ReduceOp | None = None
) -> None:
    """Write to any points, wherever they live. *Collective*.

    Parameters
    ----------
    coords : sequence of array_like of int
        Global coordinates, as for `take`.
    values : array_like
        What broadcasts to ``u.components`` + the shape of the coordinates.
    reduce : ReduceOp, optional
        How values for one point, and the one that is there, are combined; the type of the field
        stays, see `ReduceOp`. Default: the last one stays, in the order of ranks and, on each of
        them, of coordinates.

    Raises
    ------
    IndexError, ArgumentError, TypeError
        On every rank, before anything is written, if an argument does not fit on any.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(pencils.Pencil(4))
    >>> u.put([[2, 0, 2]], [1.0, 3.0, 5.0], reduce=pencils.ReduceOp.SUM)
    >>> u.local
    array([3., 0., 6., 0.])
    """
    with _indexer(self, coords) as plan:
        plan.put(self, values, reduce=reduce)


def _indexer(field: PencilArray, coords: Sequence[Any]) -> PointIndexer:
    from pencils.indexer.passing import PassingIndexer  # which stands on fields

    dims = [dim for dim in range(field.pencil.ndim) if dim not in field.singletons]
    return PassingIndexer(field.pencil, coords, dims=dims)
