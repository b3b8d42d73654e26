"""The common part of all reductions: each rank reduces its own block, then the ranks combine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pencils.array.allocation import Array, as_value, frame_of, memory_axes
from pencils.array.base import Field
from pencils.array.operands import check_fits, common_pencil, local_part, signature
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.reduce import (
    EXTREMA,
    allreduce,
    block_reducer,
    fold,
    folder,
    native,
    reducer,
    selectable,
)
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dims
from pencils.pencil import keep

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class WholeReduction:
    """A reduction of fields of one kind, whose arguments all ranks have agreed on before.

    Parameters
    ----------
    u : Field
        A field of this kind.
    call, facts
        What all ranks agree on.
    ufunc, dtype, result : ufunc, dtype, dtype
        What combines two values, the type in which it does, and that of the result.
    part : callable
        Reduces the own blocks, as many as fields are passed, to a value of type `dtype`.
    neutral : scalar or None
        The value of a rank that has nothing to contribute; None if this one has.
    """

    def __init__(
        self,
        u: Field,
        call: str,
        facts: Mapping[str, object],
        *,
        ufunc: np.ufunc,
        dtype: np.dtype[Any],
        result: np.dtype[Any],
        part: Callable[..., Any],
        neutral: Any,
    ) -> None:
        self._row = PreparedAgreement(u.pencil.topology.comm, call, **facts)
        self._ufunc = ufunc
        self._type = result.type if dtype == result else partial(converted, result)
        self._part = part
        self._neutral = neutral
        self._alone = self._row.size == 1
        self._rows: NDArray[Any] | None = None
        if self._row.gathers:
            self._mine, self._rows = self._row.values(dtype)
            self._column = self._rows[:, 0]
            self._fold = folder(ufunc, dtype)

    def __call__(self, *fields: Field) -> Any:
        """Reduce fields of the same kinds. *Collective*."""
        part, error, reduce = self._neutral, None, None
        try:
            if part is None:
                part = self._part(*[u._local for u in fields])
            if self._rows is None:
                reduce = reducer(np.asarray(part).reshape(1), self._ufunc)
            else:
                self._mine[0] = part
        except Exception as mine:  # noqa: BLE001 - raised on all ranks
            error = mine
        self._row.meet(error)
        if self._alone:
            return self._type(part)
        if reduce is not None:
            return self._type(reduce(self._row.comm)[0])
        if self._fold is not None:
            return self._type(self._fold(self._column.tolist()))
        assert self._rows is not None
        return self._type(fold(self._rows, self._ufunc)[0])


def converted(dtype: np.dtype[Any], value: Any) -> Any:
    """Convert a value, without warnings: only some ranks might take them for errors."""
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype)[()]


def kept_reduction(call: str, *fields: Field) -> WholeReduction | None:
    """Return what is prepared for fields like these, which lie on one pencil; local."""
    return fields[0]._pencil.kept.get(_key(call, fields))


def keep_reduction(call: str, fields: Sequence[Field], reduction: WholeReduction) -> None:
    """Keep what is prepared for fields like these."""
    keep(fields[0].pencil, _key(call, fields), reduction)


def _key(call: str, fields: Sequence[Field]) -> tuple[Any, ...]:
    return call, *[u._kind or u.kind for u in fields]


Axis = int | Sequence[int] | None
_ENDS = np.minimum, np.maximum
_ROUNDING = frozenset({np.add, np.multiply})
# Functions of extrema that take a start value.
_WITH_INITIAL = frozenset({"min", "max", "nanmin", "nanmax"})
NO_VALUE: Any = np._NoValue

# The ufunc of each reduction; those that are not listed sum up.
UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "all": np.logical_and,
    "any": np.logical_or,
}


@dataclass(frozen=True, slots=True)
class Reduction:
    """Which axes of a field are reduced, and the ranks that share a result.

    Replicas of singleton dimensions take part in the communication, so that all copies of the
    result come from the same sum; only the first replica contributes.
    """

    field: Field
    axes: tuple[int, ...]
    keepdims: bool
    whole: bool

    @classmethod
    def of(cls, name: str, u: Field, axis: Axis, out: object, keepdims: bool) -> Reduction:
        """Check and normalize the arguments of a reduction."""
        if out is not None:
            raise TypeError(f"{name} of a PencilArray takes no out=; use what it returns")
        whole = axis is None
        axes = range(u.ndim) if whole else sorted(as_dims("axis", axis, u.ndim))
        return cls(u, tuple(axes), bool(keepdims), whole)

    @property
    def comm(self) -> MPI.Intracomm:
        """Ranks whose blocks are combined into one. *Collective* the first time."""
        u = self.field
        if self.whole:
            return u.pencil.topology.comm
        return u.pencil.topology.along(u.extent.layout.grid, self._across)

    @property
    def is_everywhere(self) -> bool:
        """Whether all ranks have the same results."""
        grid = self.field.extent.layout.grid.shape
        return self.whole or all(n == 1 or axis in self._across for axis, n in enumerate(grid))

    @property
    def _across(self) -> list[int]:
        """Axes of the process grid along which ranks share a result."""
        u = self.field
        lead = len(u.components)
        dims = {axis - lead for axis in self.axes if axis >= lead} | u.singletons
        return [axis for axis, dim in enumerate(u.extent.layout.decomp) if dim in dims]

    @property
    def is_cut(self) -> bool:
        """Whether the points behind a result lie on several ranks."""
        u, lead = self.field, len(self.field.components)
        layout = u.extent.layout
        along = zip(layout.decomp, layout.grid.shape, strict=True)
        cut = {lead + dim for dim, parts in along if parts > 1 and dim not in u.singletons}
        return not cut.isdisjoint(self.axes)

    @property
    def contributes(self) -> bool:
        """Whether the own block has points that no other rank counts."""
        u = self.field
        if u.local.size == 0:
            return False
        return not u.singletons or u.extent.layout.is_first_replica(u.pencil.rank)

    @property
    def count(self) -> int:
        """Number of elements behind each result."""
        return prod(self.field.shape[axis] for axis in self.axes)

    @property
    def partial_shape(self) -> tuple[int, ...]:
        """Shape of the reduced own block, all axes kept."""
        extents = enumerate(self.field.local_shape)
        return tuple(1 if axis in self.axes else extent for axis, extent in extents)

    def finish(self, block: Array, front: int = 0) -> Any:
        """Return a reduced block with all axes kept as the scalar or the field of the user.

        `front` is the number of new axes in front of it.
        """
        u = self.field
        lead = len(u.components)
        if self.whole and not self.keepdims:
            return block.reshape(-1)[0]
        if not self.keepdims:
            block = block.squeeze(tuple(front + axis for axis in self.axes if axis < lead))
        singletons = u.singletons | {axis - lead for axis in self.axes if axis >= lead}
        frame = frame_of(u.pencil, frozenset(singletons))
        return u.in_frame(u.pencil, frame, frame.ordered(block))


def reduce_plainly(
    name: str,
    u: Field,
    axis: Axis = None,
    out: object = None,
    keepdims: bool = False,
    **options: Any,
) -> Any:
    """Reduce as `reduce_field`, where its `plain` is true. *Collective*.

    Where all elements are reduced, what the first call has prepared is used again.
    """
    if axis is None and out is None and keepdims is False:
        kept = kept_reduction(name, u)
        if kept is not None:
            return kept(u)
    return reduce_field(name, u, axis, out=out, keepdims=keepdims, plain=True, **options)


def reduce_field(name: str, u: Field, *args: Any, **options: Any) -> Any:
    """Do what `reduce_within` prepares, with the same arguments. *Collective*."""
    with agreed(u.pencil.topology.comm, name) as agree:
        complete = reduce_within(agree, name, u, *args, **options)
    return complete()


def reduce_within(
    agree: agreed,
    name: str,
    u: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: object = None,
    keepdims: bool = False,
    *,
    initial: Any = NO_VALUE,
    where: Any = True,
    ufunc: np.ufunc | None = None,
    of: Callable[[Array], Array] | None = None,
    same: Mapping[str, object] | None = None,
    plain: bool = False,
) -> Callable[[], Any]:
    """Prepare to reduce over the given axes of all ranks, within an agreement; local.

    Returns what is to be called after the agreement, *Collective*: it returns the result. `name` is
    the function that the user called, which also names the ufunc: see `UFUNCS`. `of` is applied to
    the own block first; `dtype` must then be the type of its result. `same` are further arguments
    on which all ranks must agree. The local part is computed here: an error on one rank, whatever
    it is, raises on all. With `plain`, the ufunc, `of` and `dtype` follow from the name and the
    field, and nothing else is given but `axis`, `out` and `keepdims`.
    """
    plain = plain and axis is None and out is None and keepdims is False
    ufunc = ufunc or UFUNCS.get(name, np.add)
    facts = {**signature(u), **(same or {}), "where": where is not True}
    agree(**facts)
    task = Reduction.of(name, u, axis, out, keepdims)
    result = None if dtype is None else native(np.dtype(dtype))
    if result is None or of is None:
        result = _result_dtype(ufunc, u.dtype, result)
    start = initial if initial is NO_VALUE else as_value("initial", initial, result)
    kind = result
    if result == np.float16 and ufunc in _ROUNDING and (task.whole or task.is_cut):
        kind = np.dtype(np.float32)  # as NumPy does where elements are contiguous
    neutral = _neutral(name, ufunc, kind, task.count if start is NO_VALUE else 1)
    chosen = {"axis": task.axes, "result": result, "keepdims": task.keepdims, "initial": start}
    agree(**chosen)
    options: dict[str, Any] = {} if where is True else {"where": mask_part(where, u)}
    if task.contributes:
        block = u.local if of is None else of(u.local)
        options |= {"dtype": selectable(kind), "initial": neutral}
        part = np.asarray(ufunc.reduce(block, axis=task.axes, keepdims=True, **options))
    else:
        part = np.full(task.partial_shape, neutral, kind)
    made = None
    if plain:
        reduce, idle = block_reducer(ufunc, kind, of), None if task.contributes else neutral
        types = {"dtype": kind, "result": result}
        made = WholeReduction(
            u, name, facts | chosen, ufunc=ufunc, **types, part=reduce, neutral=idle
        )
    total = _Total(agree, task, ufunc, part, start, result)

    def complete() -> Any:
        if made is not None:
            keep_reduction(name, [u], made)
        return total()

    return complete


class _Total:
    """Combines what ranks have reduced, which rides in an agreement if there is room.

    Making it is local, within the agreement; calling it, after that, is *Collective*. `start` is
    combined with the result, unless it is `NO_VALUE`; `dtype` is the type of the result.
    """

    def __init__(
        self,
        agree: agreed,
        task: Reduction,
        ufunc: np.ufunc,
        part: Array,
        start: Any,
        dtype: np.dtype[Any],
    ) -> None:
        self._agree, self._task, self._ufunc, self._start = agree, task, ufunc, start
        self._dtype = dtype
        self._axes = memory_axes(task.field.pencil.order, len(task.field.components))
        part = part.transpose(self._axes)
        self._shape = part.shape
        if task.is_everywhere:
            agree.carry(part)
        self._reduce = reducer(part, ufunc) if agree.carried is None else None

    def __call__(self) -> Any:
        task, ufunc = self._task, self._ufunc
        if self._reduce is None:
            assert self._agree.carried is not None
            total = fold(self._agree.carried, ufunc).reshape(self._shape)
        else:
            total = self._reduce(task.comm)
        with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
            if self._start is not NO_VALUE:
                ufunc(total, self._start, out=total)
            total = total.astype(self._dtype, copy=False)
        axes = self._axes
        return task.finish(total.transpose(sorted(range(total.ndim), key=axes.__getitem__)))


def extent(name: str, u: Field, axis: Axis, out: object, keepdims: bool) -> tuple[Any, Any]:
    """Return the least and the greatest values over the given axes. *Collective*."""
    if axis is not None or out is not None or keepdims is not False:
        lower, upper = (
            reduce_field(name, u, axis, out=out, keepdims=keepdims, ufunc=end) for end in _ENDS
        )
        return lower, upper
    with agreed(u.pencil.topology.comm, name) as agree:
        agree(**signature(u))
        pair = own_extent(name, u)
        agree.carry(pair)
    return extent_of(u.pencil.topology.comm, agree, pair)


def own_extent(name: str, u: Field) -> Array:
    """Return the least and the greatest value of this rank, for `extent_of`; local."""
    task = Reduction.of(name, u, None, None, False)
    pair = np.empty(2, native(u.dtype))
    for number, ufunc in enumerate(_ENDS):
        neutral = _neutral(name, ufunc, pair.dtype, task.count)
        pair[number] = ufunc.reduce(u.local, None, initial=neutral) if task.contributes else neutral
    return pair


def extent_of(comm: MPI.Intracomm, agree: agreed, pair: Array) -> tuple[Any, Any]:
    """Return the least and the greatest value of all ranks; NaN wins.

    *Collective*, unless the agreement had room for what `own_extent` has returned.
    """
    carried = agree.carried
    if carried is None:
        ends = [(pair[:1], np.minimum), (pair[1:], np.maximum)]
        least, greatest = (allreduce(comm, *end)[0] for end in ends)
    else:
        least = fold(carried[:, :1], np.minimum)[0]
        greatest = fold(carried[:, 1:], np.maximum)[0]
    return least, greatest


def mask_part(where: Any, u: Field) -> Array:
    """Own part of a boolean mask, which must broadcast to the field."""
    mask = own_part(where, u)
    if mask.dtype != bool:
        raise TypeError(f"where= must be boolean, not {mask.dtype}")
    return mask


def own_part(operand: Any, u: Field) -> Array:
    """Own part of an operand, a field or global data, which must broadcast to the field."""
    pencil = common_pencil([u, operand]) if isinstance(operand, Field) else u.pencil
    part, singletons = local_part(operand, pencil)
    check_fits(singletons, u, pencil)
    return np.broadcast_to(part, u.local_shape)


def any_of(u: Field, flags: Array | np.generic) -> bool:
    """Whether any flag is set, on any rank of a field. *Collective*."""
    return u.pencil.topology.any_of([bool(flags.any())])[0]


@cache
def _result_dtype(
    ufunc: np.ufunc, dtype: np.dtype[Any], wanted: np.dtype[Any] | None
) -> np.dtype[Any]:
    tried = ufunc.reduce(np.zeros(1, dtype), dtype=selectable(wanted), keepdims=True)
    return cast("np.dtype[Any]", tried.dtype)


def _neutral(name: str, ufunc: np.ufunc, dtype: np.dtype[Any], count: int) -> Any:
    """Value that changes no result, for blocks without points."""
    if ufunc not in EXTREMA:
        return np.asarray(ufunc.identity).astype(dtype)[()]
    if count == 0:
        hint = "give initial=" if name in _WITH_INITIAL else "pass a field with points"
        raise ArgumentError(f"{name} of a field without points has no value; {hint}")
    if ufunc in (np.fmax, np.fmin) and dtype.kind in "fcmM":  # they skip NaN and NaT
        return np.full((), "NaT" if dtype.kind in "mM" else np.nan, dtype)[()]
    lowest, highest = _limits(name, dtype)
    return highest if ufunc in (np.minimum, np.fmin) else lowest


def _limits(name: str, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Least and greatest value of a type."""
    match dtype.kind:
        case "b":
            limits: tuple[Any, Any] = False, True
        case "i" | "u":
            limits = np.iinfo(dtype).min, np.iinfo(dtype).max
        case "f":
            limits = -np.inf, np.inf
        case "c":
            limits = complex(-np.inf, -np.inf), complex(np.inf, np.inf)
        case "m" | "M":
            most = np.iinfo(np.int64).max  # the least integer is NaT
            return np.int64(-most).view(dtype), np.int64(most).view(dtype)
        case _:
            raise TypeError(f"{name} is not defined for dtype {dtype}")
    return dtype.type(limits[0]), dtype.type(limits[1])
