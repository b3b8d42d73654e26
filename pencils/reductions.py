"""Reductions over the whole field: each rank reduces its own block, then the ranks combine.

All functions here are *Collective*. Axes of space that are reduced stay as singletons, so that the
result broadcasts back; component axes vanish as in NumPy; no axis at all gives a NumPy scalar, the
same on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod as product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import DTypeLike

from pencils.comm.agree import agreed
from pencils.comm.reduce import allreduce, combine
from pencils.errors import ArgumentError, ReplicaError
from pencils.layout.make import read_dims
from pencils.operands import common_pencil, cut, is_field
from pencils.storage import Array

if TYPE_CHECKING:
    from mpi4py import MPI

    from pencils.array import PencilArray

Axis = int | Sequence[int] | None
_NO_VALUE = np._NoValue  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Reduction:
    """Which axes of a field are reduced, and the ranks that share a result.

    Replicas of singleton dimensions take part in the communication, so that all copies of the
    result come out of the same sum; only the first replica contributes.
    """

    field: PencilArray
    axes: tuple[int, ...]
    keepdims: bool
    whole: bool

    @property
    def comm(self) -> MPI.Intracomm:
        """Ranks whose blocks are combined into one."""
        field = self.field
        lead = len(field.components)
        dims = {axis - lead for axis in self.axes if axis >= lead} | field.singletons
        layout = field.extent.layout
        across = [axis for axis, dim in enumerate(layout.decomp) if dim in dims]
        return field.pencil.topology.along(layout.grid, across)

    @property
    def contributes(self) -> bool:
        """Whether the own block has points that no other rank counts."""
        field = self.field
        return field.extent.layout.is_first_replica(field.pencil.rank) and field.local.size > 0

    @property
    def count(self) -> int:
        """Number of elements behind each result."""
        return product(self.field.shape[axis] for axis in self.axes)

    def partial_shape(self) -> tuple[int, ...]:
        """Shape of the reduced own block, all axes kept."""
        return tuple(
            1 if axis in self.axes else extent for axis, extent in enumerate(self.field.local_shape)
        )

    def finish(self, block: Array) -> Any:
        """Turn a reduced block with all axes kept into what the user gets."""
        lead = len(self.field.components)
        if self.whole and not self.keepdims:
            return block.reshape(-1)[0]
        if not self.keepdims:
            block = block.squeeze(tuple(axis for axis in self.axes if axis < lead))
        singletons = self.field.singletons | {a - lead for a in self.axes if a >= lead}
        return type(self.field).from_block(self.field.pencil, block, frozenset(singletons))


def sum(  # noqa: A001 - the names of this module are NumPy's
    field: PencilArray,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = _NO_VALUE,
    where: Any = True,
) -> Any:
    """Sum over all ranks, as `numpy.sum`. *Collective*.

    Parameters
    ----------
    field : PencilArray
        The field; replicas of singleton dimensions count once.
    axis : int or tuple of int, optional
        Axes of the global shape, default all.
    dtype : dtype, optional
        Type of the sum.
    out : None
        Not supported.
    keepdims : bool, optional
        Whether reduced component axes stay with extent 1; axes of space always do.
    initial : scalar, optional
        Start value.
    where : array_like or PencilArray of bool, optional
        Elements to include, as a global array or a field.

    Returns
    -------
    scalar or PencilArray
        A NumPy scalar if all axes are reduced, else a field.
    """
    return _reduce(
        "sum", np.add, field, axis, keepdims, dtype=dtype, out=out, initial=initial, where=where
    )


def prod(
    field: PencilArray,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = _NO_VALUE,
    where: Any = True,
) -> Any:
    """Product over all ranks, as `numpy.prod`; parameters as in `sum`. *Collective*."""
    return _reduce(
        "prod",
        np.multiply,
        field,
        axis,
        keepdims,
        dtype=dtype,
        out=out,
        initial=initial,
        where=where,
    )


def min(  # noqa: A001
    field: PencilArray,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = _NO_VALUE,
    where: Any = True,
) -> Any:
    """Minimum over all ranks, as `numpy.min`: a NaN anywhere wins. *Collective*.

    Parameters as in `sum`.

    Raises
    ------
    ArgumentError
        If there are no elements and no `initial`.
    """
    return _reduce("min", np.minimum, field, axis, keepdims, out=out, initial=initial, where=where)


def max(  # noqa: A001
    field: PencilArray,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = _NO_VALUE,
    where: Any = True,
) -> Any:
    """Maximum over all ranks, as `numpy.max`: a NaN anywhere wins. *Collective*.

    Parameters as in `sum`.

    Raises
    ------
    ArgumentError
        If there are no elements and no `initial`.
    """
    return _reduce("max", np.maximum, field, axis, keepdims, out=out, initial=initial, where=where)


def any(  # noqa: A001
    field: PencilArray,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Whether any element is true, on any rank; parameters as in `sum`. *Collective*."""
    return _reduce("any", np.logical_or, field, axis, keepdims, out=out, where=where)


def all(  # noqa: A001
    field: PencilArray,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Whether all elements are true, on all ranks; parameters as in `sum`. *Collective*."""
    return _reduce("all", np.logical_and, field, axis, keepdims, out=out, where=where)


def count_nonzero(field: PencilArray, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Count the elements that are not zero, over all ranks. *Collective*."""
    flags = _like(field, field.local.astype(bool))
    return _reduce("count_nonzero", np.add, flags, axis, keepdims, dtype=np.intp)


def ptp(field: PencilArray, axis: Axis = None, out: None = None, keepdims: bool = False) -> Any:
    """Return maximum minus minimum over all ranks, as `numpy.ptp`. *Collective*."""
    return max(field, axis, out, keepdims) - min(field, axis, out, keepdims)


def mean(
    field: PencilArray,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Mean over all ranks, as `numpy.mean`; parameters as in `sum`. *Collective*."""
    accumulate, kind = _mean_dtypes(field.dtype, dtype)
    total = _reduce("mean", np.add, field, axis, keepdims, dtype=accumulate, out=out, where=where)
    result = total / _count(field, axis, keepdims, where)
    return result.astype(kind) if result.dtype != kind else result


def var(
    field: PencilArray,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Variance over all ranks, as `numpy.var`. *Collective*.

    Parameters as in `sum`; the divisor is the number of elements minus `ddof`. The mean is taken
    first, so that large means do not cost digits.
    """
    accumulate, kind = _mean_dtypes(field.dtype, dtype)
    center = mean(field, axis, accumulate, out, keepdims=True, where=where)
    away = np.abs(field - center)
    total = _reduce("var", np.add, away * away, axis, keepdims, where=where)
    result = total / np.maximum(_count(field, axis, keepdims, where) - ddof, 0)
    real = np.empty(0, kind).real.dtype
    return result.astype(real) if result.dtype != real else result


def std(
    field: PencilArray,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Return the square root of `var`, with the same parameters. *Collective*."""
    return np.sqrt(var(field, axis, dtype, out, ddof, keepdims, where=where))


def argmin(
    field: PencilArray, axis: int | None = None, out: None = None, *, keepdims: bool = False
) -> Any:
    """Global position of the first minimum, as `numpy.argmin`. *Collective*.

    Parameters
    ----------
    field : PencilArray
        The field.
    axis : int, optional
        Axis along which to search; default: the flattened global array, in C order.
    out : None
        Not supported.
    keepdims : bool, optional
        As in `sum`.

    Returns
    -------
    int or PencilArray
        ``numpy.unravel_index(u.argmin(), u.shape)`` gives the global index.

    Raises
    ------
    ArgumentError
        If there are no elements.
    """
    return _arg_extremum("argmin", np.less, field, axis, out, keepdims)


def argmax(
    field: PencilArray, axis: int | None = None, out: None = None, *, keepdims: bool = False
) -> Any:
    """Global position of the first maximum; like `argmin`. *Collective*."""
    return _arg_extremum("argmax", np.greater, field, axis, out, keepdims)


def vdot(field: PencilArray, other: Any) -> Any:
    """Sum of ``conj(field) * other`` over all elements and ranks. *Collective*.

    Parameters
    ----------
    field, other : PencilArray
        Fields of the same global shape; one of them may be a replicated NumPy array.

    Raises
    ------
    PencilMismatchError, ArgumentError
        If pencils or shapes differ.
    """
    one = field if is_field(field) else other
    with agreed(one.pencil.topology.comm, "vdot") as agree:
        pencil = common_pencil([x for x in (field, other) if is_field(x)])
        (left, _), (right, _) = cut(field, pencil), cut(other, pencil)
        if np.shape(field) != np.shape(other) or left.shape != right.shape:
            msg = f"vdot of shapes {np.shape(field)} and {np.shape(other)}; they must be equal"
            raise ArgumentError(msg)
        agree(shape=one.shape, dtypes=(left.dtype, right.dtype))
    task = Reduction(one, tuple(range(one.ndim)), keepdims=False, whole=True)
    part = np.vdot(left, right)
    if not task.contributes:
        part = np.zeros_like(part)
    return allreduce(task.comm, np.asarray(part), np.add)[()]


def norm(field: PencilArray, ord: float | None = None) -> Any:  # noqa: A002 - as in numpy.linalg
    """Vector norm of all elements over all ranks. *Collective*.

    Parameters
    ----------
    field : PencilArray
        The field, taken as one long vector.
    ord : float, optional
        The p of the norm ``(sum |u|^p)^(1/p)``; ``inf`` for the largest modulus; 0 counts the
        elements that are not zero. Default 2.

    Returns
    -------
    scalar
        The norm, the same on every rank.
    """
    size = np.abs(field)
    if field.dtype.kind in "biu":
        size = size.astype(float)
    if ord is None or ord == 2:  # noqa: PLR2004
        return np.sqrt(vdot(size, size))
    if ord == np.inf:
        return max(size)
    if ord == -np.inf:
        return min(size)
    if ord == 0:
        return count_nonzero(size)
    return sum(size**ord) ** (1 / ord)


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether two fields agree within tolerances on all ranks, as `numpy.allclose`. *Collective*.

    Parameters
    ----------
    a, b : PencilArray
        Fields of the same blocks; one of them may be a replicated NumPy array or a scalar.
    rtol, atol, equal_nan
        As in `numpy.isclose`.
    """
    one = a if is_field(a) else b
    with agreed(one.pencil.topology.comm, "allclose"):
        close = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan).local.all()
    return bool(combine(one.pencil.topology.comm, bool(close), np.logical_and))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether two fields have the same global shape and elements on all ranks. *Collective*."""
    one = a1 if is_field(a1) else a2
    with agreed(one.pencil.topology.comm, "array_equal") as agree:
        shapes = np.shape(a1), np.shape(a2)
        agree(shapes=shapes)
        if shapes[0] != shapes[1]:
            equal = False
        else:
            pencil = common_pencil([x for x in (a1, a2) if is_field(x)])
            equal = np.array_equal(cut(a1, pencil)[0], cut(a2, pencil)[0], equal_nan=equal_nan)
    return bool(combine(one.pencil.topology.comm, equal, np.logical_and))


def verify_replicas(field: PencilArray) -> None:
    """Check that all copies of a field with singleton dimensions are equal, bit by bit.

    *Collective*. Replicas drift apart when code treats ranks differently, for instance by writing
    to ``u.local`` on some of them only.

    Parameters
    ----------
    field : PencilArray
        The field; without singleton dimensions there is nothing to find.

    Raises
    ------
    ReplicaError
        On every rank, naming the ranks whose copies differ from that of the first one.
    """
    with agreed(field.pencil.topology.comm, "verify_replicas") as agree:
        agree(shape=field.shape, dtype=field.dtype)
    topology, layout = field.pencil.topology, field.extent.layout
    group = topology.along(layout.grid, layout.replicated_axes)
    mine = np.ascontiguousarray(field.local)
    first = mine.copy()
    group.Bcast(first.reshape(-1).view(np.uint8), 0)
    strayed = [field.pencil.rank] if first.tobytes() != mine.tobytes() else []
    ranks = sorted(combine(topology.comm, strayed, list.__add__))
    if ranks:
        msg = (
            f"copies of the singleton dimensions {sorted(field.singletons)} on ranks {ranks} "
            "differ from the first copy; compute them alike on all ranks, or partition() again"
        )
        raise ReplicaError(msg)


# How it is done.


def _reduce(
    name: str,
    ufunc: np.ufunc,
    field: PencilArray,
    axis: Axis,
    keepdims: bool,
    *,
    dtype: DTypeLike | None = None,
    out: object = None,
    initial: Any = _NO_VALUE,
    where: Any = True,
) -> Any:
    """Reduce with a ufunc over the given axes of all ranks."""
    with agreed(field.pencil.topology.comm, name) as agree:
        task = _task(name, field, axis, keepdims, out)
        mask, _ = cut(where, field.pencil)
        kind = _result_dtype(ufunc, field.dtype, dtype)
        neutral = _neutral(name, ufunc, kind, task.count if initial is _NO_VALUE else 1)
        agree(shape=field.shape, dtype=field.dtype, axis=task.axes, result=kind, keepdims=keepdims)
    if task.contributes:
        options = {} if mask is True else {"where": mask}
        part = ufunc.reduce(
            field.local, axis=task.axes, dtype=kind, keepdims=True, initial=neutral, **options
        )
    else:
        part = np.full(task.partial_shape(), neutral, kind)
    total = allreduce(task.comm, np.asarray(part), ufunc)
    if initial is not _NO_VALUE:
        total = ufunc(total, initial)
    return task.finish(total)


def _task(name: str, field: PencilArray, axis: Axis, keepdims: bool, out: object) -> Reduction:
    if out is not None:
        msg = f"{name} of a PencilArray takes no out=; use what it returns"
        raise TypeError(msg)
    axes = range(field.ndim) if axis is None else sorted(read_dims("axis", axis, field.ndim))
    return Reduction(field, tuple(axes), keepdims, whole=axis is None)


def _result_dtype(ufunc: np.ufunc, dtype: np.dtype[Any], wanted: DTypeLike | None) -> np.dtype[Any]:
    if wanted is not None:
        return np.dtype(wanted)
    return cast("np.dtype[Any]", ufunc.reduce(np.zeros(1, dtype), keepdims=True).dtype)


def _neutral(name: str, ufunc: np.ufunc, dtype: np.dtype[Any], count: int) -> Any:
    """Value that changes nothing, for blocks without points."""
    if ufunc not in (np.maximum, np.minimum):
        return dtype.type(ufunc.identity)
    if count == 0:
        msg = f"{name} of a field without points has no value; give initial="
        raise ArgumentError(msg)
    highest = ufunc is np.minimum
    if dtype.kind == "b":
        return dtype.type(highest)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return dtype.type(limits.max if highest else limits.min)
    if dtype.kind in "fc":
        extreme = np.inf if highest else -np.inf
        return dtype.type(complex(extreme, extreme) if dtype.kind == "c" else extreme)
    msg = f"{name} is not defined for dtype {dtype}"
    raise TypeError(msg)


def _mean_dtypes(
    dtype: np.dtype[Any], wanted: DTypeLike | None
) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Types in which a mean is accumulated and returned; as in NumPy."""
    if wanted is not None:
        return np.dtype(wanted), np.dtype(wanted)
    if dtype.kind in "biu":
        return np.dtype(float), np.dtype(float)
    if dtype == np.float16:
        return np.dtype(np.float32), dtype
    return dtype, dtype


def _count(field: PencilArray, axis: Axis, keepdims: bool, where: Any) -> Any:
    """Number of elements behind each result."""
    if where is True:
        return _task("count", field, axis, keepdims, None).count
    mask, _ = cut(where, field.pencil)
    flags = _like(field, np.broadcast_to(mask, field.local_shape))
    return _reduce("count", np.add, flags, axis, keepdims, dtype=np.intp)


def _like(field: PencilArray, block: Array) -> PencilArray:
    return type(field).from_block(field.pencil, block, field.singletons)


Candidates = tuple[Array, Array] | None


def _arg_extremum(
    name: str, better: np.ufunc, field: PencilArray, axis: int | None, out: object, keepdims: bool
) -> Any:
    with agreed(field.pencil.topology.comm, name) as agree:
        task = _task(name, field, axis, keepdims, out)
        agree(shape=field.shape, dtype=field.dtype, axis=task.axes, keepdims=keepdims)
        if field.dtype.kind not in "biufc":
            msg = f"{name} is not defined for dtype {field.dtype}"
            raise TypeError(msg)
        if task.count == 0:
            msg = f"{name} of a field without points has no value"
            raise ArgumentError(msg)
    search = np.argmin if better is np.less else np.argmax
    mine = _candidates(search, task) if task.contributes else None
    winners = combine(task.comm, mine, _chooser(better))
    indices = np.zeros(task.partial_shape(), np.intp) if winners is None else winners[1]
    return task.finish(indices)


def _candidates(search: Callable[..., Any], task: Reduction) -> tuple[Array, Array]:
    """Best values of the own block and their global positions, all axes kept."""
    field, block = task.field, task.field.local
    start = (0,) * len(field.components) + field.extent.box.start
    if task.whole:
        here = np.unravel_index(search(block), block.shape)
        there = [int(i) + o for i, o in zip(here, start, strict=True)]
        index = np.ravel_multi_index(there, field.shape)
        return block[here].reshape(task.partial_shape()), np.full(task.partial_shape(), index)
    (axis,) = task.axes
    found = search(block, axis=axis, keepdims=True)
    return np.take_along_axis(block, found, axis), found + start[axis]


def _chooser(better: np.ufunc) -> Callable[[Candidates, Candidates], Candidates]:
    def choose(one: Candidates, other: Candidates) -> Candidates:
        if one is None or other is None:
            return other if one is None else one
        (a, i), (b, j) = one, other
        a_nan, b_nan = np.not_equal(a, a), np.not_equal(b, b)
        tie = np.equal(a, b) | (a_nan & b_nan)
        second = np.where(tie, j < i, (better(b, a) & ~a_nan) | (b_nan & ~a_nan))
        return np.where(second, b, a), np.where(second, j, i)

    return choose
