"""How one ufunc is reduced over a field: every rank its own block, then the ranks together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array, in_memory_order, memory_axes
from pencils.array.base import Field
from pencils.array.normalize import as_value
from pencils.array.operands import check_fits, local_part, signature
from pencils.comm.agree import agreed
from pencils.comm.reduce import reducer
from pencils.errors import ArgumentError
from pencils.layout.make import read_dims

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

Axis = int | Sequence[int] | None
NO_VALUE: Any = np._NoValue  # noqa: SLF001 - what NumPy itself passes for "not given"


@dataclass(frozen=True, slots=True)
class Reduction:
    """Which axes of a field are reduced, and the ranks that share a result.

    Replicas of singleton dimensions take part in the communication, so that all copies of the
    result come out of the same sum; only the first replica contributes.
    """

    field: Field
    axes: tuple[int, ...]
    keepdims: bool
    whole: bool

    @classmethod
    def read(cls, name: str, field: Field, axis: Axis, *, keepdims: bool, out: object) -> Reduction:
        """Check what the user asked for.

        Raises
        ------
        ArgumentError, TypeError
            If there is no such axis, or `out` is given.
        """
        if out is not None:
            msg = f"{name} of a PencilArray takes no out=; use what it returns"
            raise TypeError(msg)
        whole = axis is None
        axes = range(field.ndim) if whole else sorted(read_dims("axis", axis, field.ndim))
        return cls(field, tuple(axes), bool(keepdims), whole)

    @property
    def comm(self) -> MPI.Intracomm:
        """Ranks whose blocks are combined into one. *Collective* the first time."""
        field = self.field
        if self.whole:
            return field.pencil.topology.comm
        lead = len(field.components)
        dims = {axis - lead for axis in self.axes if axis >= lead} | field.singletons
        layout = field.extent.layout
        across = [axis for axis, dim in enumerate(layout.decomp) if dim in dims]
        return field.pencil.topology.along(layout.grid, across)

    @property
    def contributes(self) -> bool:
        """Whether the own block has points that no other rank counts."""
        field = self.field
        if field.local.size == 0:
            return False
        return not field.singletons or field.extent.layout.is_first_replica(field.pencil.rank)

    @property
    def count(self) -> int:
        """Number of elements behind each result."""
        return prod(self.field.shape[axis] for axis in self.axes)

    def partial_shape(self) -> tuple[int, ...]:
        """Shape of the reduced own block, all axes kept."""
        return tuple(
            1 if axis in self.axes else extent for axis, extent in enumerate(self.field.local_shape)
        )

    def in_memory(self, block: Array) -> Array:
        """View a reduced block with all axes in memory order."""
        return block.transpose(self._axes)

    def in_logic(self, block: Array) -> Array:
        """View a reduced block in memory order in the order of its axes."""
        return block.transpose(np.argsort(self._axes))

    @property
    def _axes(self) -> tuple[int, ...]:
        return memory_axes(self.field.pencil.order, len(self.field.components))

    def finish(self, block: Array) -> Any:
        """Turn a reduced block with all axes kept into what the user gets."""
        field = self.field
        lead = len(field.components)
        if self.whole and not self.keepdims:
            return block.reshape(-1)[0]
        if not self.keepdims:
            block = block.squeeze(tuple(axis for axis in self.axes if axis < lead))
        singletons = field.singletons | {axis - lead for axis in self.axes if axis >= lead}
        ordered = in_memory_order(block, field.pencil.order)
        return type(field).from_block(field.pencil, ordered, frozenset(singletons))


def reduce_field(
    name: str,
    ufunc: np.ufunc,
    field: Field,
    axis: Axis,
    *,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
    out: object = None,
    initial: Any = NO_VALUE,
    where: Any = True,
    of: Callable[[Array], Array] | None = None,
    same: Mapping[str, object] | None = None,
) -> Any:
    """Reduce with a ufunc over the given axes of all ranks. *Collective*.

    The local part of the work is done where all ranks still agree to go on: whatever fails there,
    on whatever rank, raises everywhere.

    Parameters
    ----------
    name : str
        What the user called, for errors.
    ufunc, field, axis, keepdims, dtype, out, initial, where
        As in ``ufunc.reduce``.
    of : callable, optional
        Computed of the own block first; `dtype` must then say what it makes.
    same : mapping, optional
        Further arguments on which all ranks must agree.
    """
    with agreed(field.pencil.topology.comm, name) as agree:
        agree(**signature(field), where=where is not True, **(same or {}))
        task = Reduction.read(name, field, axis, keepdims=keepdims, out=out)
        kind = None if dtype is None else np.dtype(dtype).newbyteorder("=")
        if kind is None or of is None:
            kind = _result_dtype(ufunc, field.dtype, kind)
        start = initial if initial is NO_VALUE else as_value("initial", initial, kind)
        neutral = _neutral(name, ufunc, kind, task.count if start is NO_VALUE else 1)
        agree(axis=task.axes, result=kind, keepdims=task.keepdims, initial=start)
        options: dict[str, Any] = {} if where is True else {"where": read_mask(where, field)}
        if task.contributes:
            block = field.local if of is None else of(field.local)
            options |= {"dtype": _selectable(kind), "initial": neutral}
            part = ufunc.reduce(block, axis=task.axes, keepdims=True, **options)
        else:
            part = np.full(task.partial_shape(), neutral, kind)
        reduce = reducer(task.in_memory(np.asarray(part)), ufunc)
    total = reduce(task.comm)
    if start is not NO_VALUE:
        ufunc(total, start, out=total)
    return task.finish(task.in_logic(total))


def read_mask(where: Any, field: Field) -> Array:
    """Own part of a mask over a field.

    Raises
    ------
    TypeError, ValueError
        If it is not boolean, or does not broadcast to the field.
    """
    part, singletons = local_part(where, field.pencil)
    check_fits(singletons, field, field.pencil)
    mask = np.asarray(part)
    if mask.dtype != bool:
        msg = f"where= must be boolean, not {mask.dtype}"
        raise TypeError(msg)
    return np.broadcast_to(mask, field.local_shape)


@cache
def _result_dtype(
    ufunc: np.ufunc, dtype: np.dtype[Any], wanted: np.dtype[Any] | None
) -> np.dtype[Any]:
    tried = ufunc.reduce(np.zeros(1, dtype), dtype=_selectable(wanted), keepdims=True)
    return cast("np.dtype[Any]", tried.dtype)


def _selectable(dtype: np.dtype[Any] | None) -> np.dtype[Any] | None:
    """Return what ufuncs take as ``dtype=``: units of time they find by themselves."""
    return None if dtype is None or dtype.kind in "mM" else dtype


def _neutral(name: str, ufunc: np.ufunc, dtype: np.dtype[Any], count: int) -> Any:
    """Value that changes nothing, for blocks without points."""
    if ufunc not in (np.maximum, np.minimum):
        return np.asarray(ufunc.identity).astype(dtype)[()]
    if count == 0:
        msg = f"{name} of a field without points has no value; give initial="
        raise ArgumentError(msg)
    lowest, highest = _limits(name, dtype)
    return highest if ufunc is np.minimum else lowest


def _limits(name: str, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Least and greatest value of a type."""
    match dtype.kind:
        case "b":
            ends: tuple[Any, Any] = False, True
        case "i" | "u":
            ends = np.iinfo(dtype).min, np.iinfo(dtype).max
        case "f":
            ends = -np.inf, np.inf
        case "c":
            ends = complex(-np.inf, -np.inf), complex(np.inf, np.inf)
        case "m" | "M":
            most = np.iinfo(np.int64).max  # the least integer is NaT
            return np.int64(-most).view(dtype), np.int64(most).view(dtype)
        case _:
            msg = f"{name} is not defined for dtype {dtype}"
            raise TypeError(msg)
    return dtype.type(ends[0]), dtype.type(ends[1])
