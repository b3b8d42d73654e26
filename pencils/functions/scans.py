"""Running sums and products along one axis, with the signatures of NumPy. All are *Collective*.

Each rank scans its own block. Along an axis that is cut, the ranks of a row share the work: each
gets its part of the last planes of all blocks, scans these, and sends back to every rank what
comes before its block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array, as_dtype
from pencils.array.base import Field
from pencils.array.operands import check_field, signature, topology_among
from pencils.comm.agree import agreed
from pencils.comm.reduce import selectable
from pencils.comm.scan import scanner
from pencils.errors import ArgumentError
from pencils.functions.axes import Line, along, one_axis

Function = Callable[..., Any]

_MANY = 128  # elements of a plane: fewer are added one by one as fast


def cumsum(
    a: Field, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Field:
    """Add up all elements up to each one along an axis, as `numpy.cumsum`. *Collective*.

    It takes one pass over the own block, and, if the axis is cut, another one, and two messages of
    the size of one plane to the ranks along the axis.

    Parameters
    ----------
    a : PencilArray
        The field.
    axis : int, optional
        Axis of the global shape; may be left out if there is only one.
    dtype : dtype, optional
        Type of the sums. Default: as in NumPy, where booleans and short integers become ``int``.
    out : None
        Not supported.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo. Sums of floats differ from those of NumPy by
        rounding, because each block is summed up first; they are the same in every run.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis, or NumPy does not add such elements.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((4, 3)))
    >>> int(np.cumsum(u, axis=0).max())
    4
    """
    return _scan("cumsum", np.add, a, axis, dtype, out=out)


def cumprod(
    a: Field, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Field:
    """Multiply all elements up to each one along an axis; else like `cumsum`. *Collective*."""
    return _scan("cumprod", np.multiply, a, axis, dtype, out=out)


def nancumsum(
    a: Field, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Field:
    """Add up with NaN as 0, as `numpy.nancumsum`; else like `cumsum`. *Collective*."""
    return _scan("nancumsum", np.add, a, axis, dtype, out=out, missing=0)


def nancumprod(
    a: Field, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Field:
    """Multiply with NaN as 1, as `numpy.nancumprod`; else like `cumsum`. *Collective*."""
    return _scan("nancumprod", np.multiply, a, axis, dtype, out=out, missing=1)


def cumulative_sum(
    x: Field,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    include_initial: bool = False,
) -> Field:
    """Add up along an axis, as `numpy.cumulative_sum` and like `cumsum`. *Collective*."""
    return _scan("cumulative_sum", np.add, x, axis, dtype, out=out, initial=include_initial)


def cumulative_prod(
    x: Field,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    include_initial: bool = False,
) -> Field:
    """Multiply along an axis, as `numpy.cumulative_prod` and like `cumsum`. *Collective*."""
    return _scan("cumulative_prod", np.multiply, x, axis, dtype, out=out, initial=include_initial)


def accumulate(
    ufunc: np.ufunc, a: Field, axis: int = 0, dtype: DTypeLike | None = None, out: None = None
) -> Field:
    """Do what ``ufunc.accumulate`` does, for `numpy.add` and `numpy.multiply`. *Collective*."""
    return _scan(f"{ufunc.__name__}.accumulate", ufunc, a, axis, dtype, out=out)


def _scan(
    name: str,
    ufunc: np.ufunc,
    u: Field,
    axis: int | None,
    dtype: DTypeLike | None,
    *,
    out: object,
    missing: int | None = None,
    initial: bool = False,
) -> Field:
    """Scan along one axis; NaN counts as `missing`."""
    with agreed(topology_among(u).comm, name) as agree:
        check_field("a", u)
        agree(**signature(u), initial=bool(initial))
        if out is not None:
            raise TypeError(f"{name} of a PencilArray takes no out=; use what it returns")
        if initial:
            raise ArgumentError(
                f"{name} with include_initial=True would have one point more than its pencil; "
                f"leave it out, and take the {ufunc.identity} before the first point as known"
            )
        position = one_axis(name, u, axis)
        wanted = None if dtype is None else as_dtype(dtype)
        agree(axis=position, wanted=wanted)
        result = _result_dtype(ufunc, u.dtype, wanted)
        frame = u.frame.bare
        block = frame.make(frame.shape_of(u.components, result), result)
        _accumulate(ufunc, _known(u.local, missing), position, block)
        line = Line.of(u, position)
        scan = None
        if line.is_cut:
            scan = scanner(_last(block, position), ufunc, line.filled, line.part, line.split.parts)
    if scan is not None:
        before = scan(along(u, position))
        if before is not None:
            with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
                ufunc(before, block, out=block)
    return u.in_frame(u.pencil, frame, block)


def _accumulate(ufunc: np.ufunc, values: Array, axis: int, out: Array) -> None:
    """Do what ``ufunc.accumulate`` does, along axes that are not fastest in memory faster."""
    kind = selectable(out.dtype)
    planes, sums = np.moveaxis(values, axis, 0), np.moveaxis(out, axis, 0)
    if out.strides[axis] <= out.itemsize or sums[:1].size < _MANY:
        ufunc.accumulate(values, axis, kind, out)
        return
    sums[:1] = planes[:1]
    for before, plane, total in zip(sums, planes[1:], sums[1:], strict=False):
        ufunc(before, plane, out=total, dtype=kind, casting="unsafe")


def _result_dtype(
    ufunc: np.ufunc, dtype: np.dtype[Any], wanted: np.dtype[Any] | None
) -> np.dtype[Any]:
    """Type that NumPy gives the result; its error for elements that it does not combine."""
    result: np.dtype[Any] = ufunc.accumulate(np.ones(1, dtype), dtype=selectable(wanted)).dtype
    if wanted is not None and wanted.kind != result.kind:
        raise TypeError(f"{ufunc.__name__} of elements of dtype {dtype} does not give {wanted}")
    return result


def _last(block: Array, axis: int) -> Array:
    """Return the last plane of a block; zeros if it has none."""
    if block.shape[axis]:
        return block.take([-1], axis)
    shape = list(block.shape)
    shape[axis] = 1
    return np.zeros(shape, block.dtype)


def _known(block: Array, missing: int | None) -> Array:
    """Replace NaN, as functions of NumPy do whose names begin with nan."""
    if missing is None or block.dtype.kind not in "fc":
        return block
    return np.where(np.isnan(block), block.dtype.type(missing), block)


FUNCTIONS: dict[Function, Function] = {
    np.cumsum: cumsum,
    np.cumprod: cumprod,
    np.nancumsum: nancumsum,
    np.nancumprod: nancumprod,
    np.add.accumulate: partial(accumulate, np.add),
    np.multiply.accumulate: partial(accumulate, np.multiply),
}
if hasattr(np, "cumulative_sum"):  # since NumPy 2.1
    FUNCTIONS |= {np.cumulative_sum: cumulative_sum, np.cumulative_prod: cumulative_prod}
