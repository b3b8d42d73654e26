"""What reductions have in common: each rank reduces its own block, then the ranks combine.

`reduce_field` is the way of all of them but `arg_extremum`. Both keep what the first call has
prepared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array, as_value, frame_of
from pencils.array.base import Field
from pencils.array.elementwise import as_field
from pencils.array.operands import check_fits, common_pencil, local_part, signature
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.reduce import (
    EXTREMA,
    allreduce,
    block_reducer,
    combine,
    fold,
    folder,
    native,
    operation,
    reduce_in_place,
    reducer,
    selectable,
)
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dims

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

Axis = int | Sequence[int] | None
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
_ENDS = np.minimum, np.maximum
_ROUNDING = frozenset({np.add, np.multiply})
# Functions of extrema that take a start value.
_WITH_INITIAL = frozenset({"min", "max", "nanmin", "nanmax"})


@dataclass(frozen=True, slots=True)
class Reduction:
    """Which axes of a field are reduced, and the ranks that share a result.

    Replicas of singleton dimensions take part in the communication, so that all copies of the
    result come from the same sum; only the first replica contributes.
    """

    field: Field
    axes: tuple[int, ...]
    dims: frozenset[int]  # those of space among the axes
    keepdims: bool
    whole: bool

    @classmethod
    def of(cls, name: str, u: Field, axis: Axis, out: object, keepdims: bool) -> Reduction:
        """Check and normalize the arguments of a reduction."""
        if out is not None:
            raise TypeError(f"{name} of a PencilArray takes no out=; use the result")
        whole = axis is None
        axes = range(u.ndim) if whole else sorted(as_dims("axis", axis, u.ndim))
        lead = len(u.components)
        dims = frozenset([axis - lead for axis in axes if axis >= lead])
        return cls(u, tuple(axes), dims, bool(keepdims), whole)

    @property
    def comm(self) -> MPI.Intracomm:
        """Ranks whose blocks are combined into one. *Collective* the first time."""
        topology = self.field.pencil.topology
        if self.whole:
            return topology.comm
        return topology.along(self.field.extent.layout.grid, self._across)

    @property
    def is_everywhere(self) -> bool:
        """Whether all ranks have the same results."""
        if self.whole:
            return True
        across = self._across
        grid = self.field.extent.layout.grid.shape
        return all(n == 1 or axis in across for axis, n in enumerate(grid))

    @property
    def _across(self) -> list[int]:
        """Axes of the process grid along which ranks share a result."""
        dims = self.dims | self.field.singletons
        return [axis for axis, dim in enumerate(self.field.extent.layout.decomp) if dim in dims]

    @property
    def is_cut(self) -> bool:
        """Whether the points behind a result lie on several ranks."""
        layout, dims = self.field.extent.layout, self.dims - self.field.singletons
        cut = zip(layout.decomp, layout.grid.shape, strict=True)
        return any(n > 1 and dim in dims for dim, n in cut)

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
        return tuple([1 if axis in self.axes else extent for axis, extent in extents])

    def finish(self, block: Array, front: int = 0) -> Any:
        """Return a reduced block with all axes kept as the scalar or the field of the user.

        `front` is the number of new axes in front of it.
        """
        u = self.field
        if self.whole and not self.keepdims:
            return block.reshape(-1)[0]
        if not self.keepdims:
            lead = len(u.components)
            block = block.squeeze(tuple(front + axis for axis in self.axes if axis < lead))
        return as_field(block, None, u.pencil, u.singletons | self.dims, u)


def reduce_field(
    name: str,
    u: Field,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: object = None,
    keepdims: bool = False,
    *,
    initial: Any = NO_VALUE,
    where: Any = True,
    keep_as: str = "",
    given: tuple[Any, ...] = (),
    **options: Any,
) -> Any:
    """Reduce a field over the given axes of all ranks. *Collective*.

    What the first call has prepared is used again, if there are no options, which are those of
    `reduce_within`, or if these and `dtype` follow from `keep_as` and the type of the field.
    """
    plain = bool(
        (axis is None or _is_plain(axis))
        and keepdims is False
        and where is True
        and out is None
        and initial is NO_VALUE
        and (keep_as or (dtype is None and not options))
    )
    key = keep_as or name
    if plain:
        kind = u._kind or u.kind
        kept = u._pencil.kept[key].get(kind if axis is None else (kind, axis))
        if kept is not None:
            return kept(u, *given)
    with agreed(u.pencil.topology.comm, name) as agree:
        options |= {"initial": initial, "where": where, "keep_as": key if plain else ""}
        complete = reduce_within(agree, name, u, axis, dtype, out, keepdims, given=given, **options)
    return complete()


def _is_plain(axis: Any) -> bool:
    """Whether an axis or axes are equal to others only if they mean the same."""
    return type(axis) is int or (type(axis) is tuple and {*map(type, axis)} == {int})


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
    of: Callable[..., Array] | None = None,
    given: tuple[Any, ...] = (),
    same: Mapping[str, object] | None = None,
    keep_as: str = "",
) -> Callable[[], Any]:
    """Prepare to reduce over the given axes of all ranks, within an agreement; local.

    Returns what is to be called after the agreement, *Collective*: it returns the result. `name` is
    the function that the user called, which also names the ufunc: see `UFUNCS`. `of` is applied to
    the own block, and numbers `given` with it, first; `dtype` must then be the type of its result.
    `same` are further arguments on which all ranks must agree. The local part is computed here: an
    error on one rank, whatever it is, raises on all. With `keep_as`, the call is kept.
    """
    ufunc = ufunc or UFUNCS.get(name, np.add)
    agree(**signature(u), **(same or {}), where=where is not True)
    task = Reduction.of(name, u, axis, out, keepdims)
    result = None if dtype is None else native(np.dtype(dtype))
    if result is None or of is None:
        result = result_dtype(ufunc, u.dtype, result)
    start = initial if initial is NO_VALUE else as_value("initial", initial, result)
    kind = result
    if result == np.float16 and ufunc in _ROUNDING and (task.whole or task.is_cut):
        kind = np.dtype(np.float32)  # as NumPy does where elements are contiguous
    if where is not True and ufunc in EXTREMA and start is NO_VALUE:
        raise ArgumentError(f"{name} with where= needs initial=, the result where nothing is")
    neutral = neutral_of(name, ufunc, kind, task.count if start is NO_VALUE else 1)
    agree(axis=task.axes, result=result, keepdims=task.keepdims, initial=start)
    options: dict[str, Any] = {} if where is True else {"where": mask_part(where, u)}
    if task.contributes:
        block = u.local if of is None else of(u.local, *given)
        options |= {"dtype": selectable(kind), "initial": neutral}
        part = np.asarray(ufunc.reduce(block, axis=task.axes, keepdims=True, **options))
    else:
        part = np.full(task.partial_shape, neutral, kind)
    if keep_as and task.whole:
        idle, local = None if task.contributes else neutral, block_reducer(ufunc, kind, of)
        made = prepare_whole(agree.prepared(), ufunc, kind, result, local, idle)
        u.pencil.kept[keep_as].add(u.kind, made)
    axes, back = u.frame.axes(len(u.components))
    combined = combining(agree, task, part.transpose(axes), ufunc)

    def complete() -> Any:
        total = combined()
        with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
            if start is not NO_VALUE:
                ufunc(total, start, out=total)
            total = total.astype(result, copy=False)
        found = task.finish(total.transpose(back))
        if keep_as and not task.whole:
            made = _prepare_along(agree.prepared(), task, ufunc, kind, result, neutral, of)
            u.pencil.kept[keep_as].add((u.kind, axis), made)
        return found

    return complete


def combining(agree: agreed, task: Reduction, part: Array, ufunc: np.ufunc) -> Callable[[], Array]:
    """Let the agreement carry what this rank has reduced, if there is room; local.

    Returns what is to be called after the agreement: it returns that of all ranks. *Collective*.
    """
    if task.is_everywhere:
        agree.carry(part)
    reduce = reducer(part, ufunc) if agree.carried is None else None

    def combined() -> Array:
        if reduce is not None:
            return reduce(task.comm)
        assert agree.carried is not None
        return fold(agree.carried, ufunc).reshape(part.shape)

    return combined


def _prepare_along(
    agreement: PreparedAgreement,
    task: Reduction,
    ufunc: np.ufunc,
    dtype: np.dtype[Any],
    result: np.dtype[Any],
    neutral: Any,
    of: Callable[..., Array] | None,
) -> Callable[..., Field]:
    """Return a function that reduces fields of one kind along axes to a field; local.

    Calling it is *Collective*: ranks agree as they did at the first call, which has made the
    communicator.
    """
    u, axes, shape, contributes = task.field, task.axes, task.partial_shape, task.contributes
    order, back = u.frame.axes(len(u.components))
    gone = tuple([axis for axis in axes if axis < len(u.components)])
    pencil, frame = u.pencil, frame_of(u.pencil, u.singletons | task.dims)
    count = prod(shape)
    carried = agreement.size > 1 and task.is_everywhere and agreement.has_room(dtype, count)
    mine, rows = agreement.values(dtype, count) if carried else (None, None)
    comm = None if carried or task.comm.size == 1 else task.comm
    op = operation(ufunc, dtype)
    options: dict[str, Any] = {"dtype": selectable(dtype), "initial": neutral}

    def reduce(u: Field, *given: Any) -> Field:
        error: Exception | None = None
        try:
            if contributes:
                block = u._local if of is None else of(u._local, *given)
                part = ufunc.reduce(block, axis=axes, keepdims=True, **options)
            else:
                part = np.full(shape, neutral, dtype)
            part = np.ascontiguousarray(part.transpose(order))
            if mine is not None:
                mine[:] = part.reshape(-1)
            elif comm is not None and op is None:
                total = reducer(part, ufunc)
        except Exception as mistake:  # noqa: BLE001 - raised on all ranks
            error = mistake
        agreement.meet(error)
        if rows is not None:
            part = fold(rows, ufunc).reshape(part.shape)
        elif comm is not None:
            part = total(comm) if op is None else reduce_in_place(comm, part, op)
        part = part.transpose(back)
        block = (part if dtype == result else converted(result, part)).squeeze(gone)
        return u.in_frame(pencil, frame, block)

    return reduce


def prepare_whole(
    agreement: PreparedAgreement,
    ufunc: np.ufunc,
    dtype: np.dtype[Any],
    result: np.dtype[Any],
    local: Callable[..., Any],
    idle: Any,
) -> Callable[..., Any]:
    """Return a function that reduces all elements of fields of one kind to a value; local.

    Calling it is *Collective*: ranks agree as they did at the first call. `local` reduces the own
    blocks of fields, and numbers that are given with them, to a value of type `dtype`; a rank that
    has nothing to contribute gives `idle`, which is None on others. `result` is the type of the
    value that is returned.
    """
    convert = result.type if dtype == result else functools.partial(converted, result)
    carried = agreement.gathers or (ufunc is np.add and agreement.adds(dtype))
    mine, rows = agreement.values(dtype) if carried else (None, None)
    column = None if rows is None else rows[:, 0]
    fold_values = folder(ufunc, dtype)

    def reduce(*operands: Any) -> Any:
        value, error, total = idle, None, None
        try:
            if value is None:
                value = local(*[getattr(each, "_local", each) for each in operands])
            if mine is None:
                total = reducer(np.asarray(value).reshape(1), ufunc)
            else:
                mine[0] = value
        except Exception as mistake:  # noqa: BLE001 - raised on all ranks
            error = mistake
        agreement.meet(error)
        if agreement.size == 1:
            return convert(value)
        if total is not None:
            return convert(total(agreement.comm)[0])
        assert rows is not None
        assert column is not None
        if fold_values is None:
            return convert(fold(rows, ufunc)[0])
        return convert(fold_values(column.tolist()))

    return reduce


def converted(dtype: np.dtype[Any], value: Any) -> Any:
    """Convert a value, without warnings: only some ranks might take them for errors."""
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype)[()]


def own_extent(name: str, u: Field) -> Array:
    """Return the least and the greatest value of this rank, for `extent_of`; local."""
    task = Reduction.of(name, u, None, None, False)
    pair = np.empty(2, native(u.dtype))
    for number, ufunc in enumerate(_ENDS):
        neutral = neutral_of(name, ufunc, pair.dtype, task.count)
        pair[number] = ufunc.reduce(u.local, None, initial=neutral) if task.contributes else neutral
    return pair


def extent_of(comm: MPI.Intracomm, agree: agreed, pair: Array) -> tuple[Any, Any]:
    """Return the least and the greatest value of all ranks; NaN wins.

    *Collective*, unless the agreement had room for what `own_extent` has returned.
    """
    rows = agree.carried
    if rows is None:
        return allreduce(comm, pair[:1], np.minimum)[0], allreduce(comm, pair[1:], np.maximum)[0]
    return fold(rows[:, :1], np.minimum)[0], fold(rows[:, 1:], np.maximum)[0]


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


@functools.cache
def result_dtype(
    ufunc: np.ufunc, dtype: np.dtype[Any], wanted: np.dtype[Any] | None
) -> np.dtype[Any]:
    """Return the type of a reduction, of this type if one is wanted."""
    tried = ufunc.reduce(np.zeros(1, dtype), dtype=selectable(wanted), keepdims=True)
    return cast("np.dtype[Any]", tried.dtype)


def neutral_of(name: str, ufunc: np.ufunc, dtype: np.dtype[Any], count: int) -> Any:
    """Value that changes no result, for blocks without points."""
    if ufunc not in EXTREMA:
        return np.asarray(ufunc.identity).astype(dtype)[()]
    if count == 0:
        hint = "give initial=" if name in _WITH_INITIAL else "pass a field with points"
        raise ArgumentError(f"{name} of a field without points has no value; {hint}")
    is_time = dtype.kind in "mM"
    if ufunc in (np.fmax, np.fmin) and dtype.kind in "fcmM":  # they skip NaN and NaT
        return np.full((), "NaT" if is_time else np.nan, dtype)[()]
    ends: dict[str, tuple[Any, Any]] = {
        "b": (False, True),
        "f": (-inf, inf),
        "c": (complex(-inf, -inf), complex(inf, inf)),
    }
    if dtype.kind in "iumM":
        info = np.iinfo(np.int64 if is_time else dtype)
        ends[dtype.kind] = info.min + is_time, info.max  # the least integer is NaT
    if dtype.kind not in ends:
        raise TypeError(f"{name} is not defined for dtype {dtype}")
    end = ends[dtype.kind][ufunc in (np.minimum, np.fmin)]
    return np.int64(end).view(dtype) if is_time else dtype.type(end)


# The position of the smallest or largest element: each rank finds its own, then all choose one.


def arg_extremum(
    name: str,
    u: Field,
    axis: int | None,
    out: object,
    *,
    keepdims: bool,
    of: Callable[[Array], Array] | None = None,
) -> Any:
    """Global position of the first extremum: `argmin` and `argmax`. *Collective*.

    `of` is applied to the own block first; it leaves its type.
    """
    least = name.endswith("argmin")
    plain = axis is None and out is None and keepdims is False and of is None
    kept = u.pencil.kept[name].get(u.kind) if plain else None
    if kept is not None:
        return kept(u)
    with agreed(u.pencil.topology.comm, name) as agree:
        agree(**signature(u))
        task = Reduction.of(name, u, axis, out, keepdims)
        agree(axis=task.axes, keepdims=task.keepdims)
        if not task.whole and len(task.axes) != 1:
            raise ArgumentError(
                f"{name} along axes {task.axes}: give one axis, or none for the flattened array"
            )
        if u.dtype.kind not in "biufcmM":
            raise TypeError(f"{name} is not defined for dtype {u.dtype}")
        if task.count == 0:
            raise ArgumentError(
                f"{name} of a field without points has no value; pass a field with points"
            )
        # Best own values and their global positions; a rank without points has position -1.
        best = np.zeros(task.partial_shape, [("value", native(u.dtype)), ("index", np.int64)])
        best["index"] = -1
        if task.contributes:
            block = u.local if of is None else of(u.local)
            best["value"], best["index"] = _own_best(np.argmin if least else np.argmax, task, block)
        if task.is_everywhere:
            agree.carry(best)
    if plain and agree.carried is not None and u.dtype.kind in "biuf":
        made = _prepare_search(agree.prepared(), task, best.dtype, least=least)
        u.pencil.kept[name].add(u.kind, made)
    choose = functools.partial(_choose, np.less if least else np.greater)
    if agree.carried is None:
        best = combine(task.comm, best, choose)
    else:
        best = functools.reduce(choose, agree.carried).reshape(task.partial_shape)
    return task.finish(best["index"].astype(np.intp))


def _own_best(search: Callable[..., Any], task: Reduction, block: Array) -> tuple[Any, Any]:
    """Best values of the own block and their global positions, all axes kept."""
    u = task.field
    start = u.global_box.start
    if task.whole:
        here = np.unravel_index(search(block), block.shape)
        there = [int(i) + lo for i, lo in zip(here, start, strict=True)]
        return block[here], np.ravel_multi_index(there, u.shape)
    (axis,) = task.axes
    found = search(block, axis=axis, keepdims=True)
    return np.take_along_axis(block, found, axis), found + start[axis]


def _prepare_search(
    agreement: PreparedAgreement, task: Reduction, dtype: np.dtype[Any], *, least: bool
) -> Callable[[Field], np.intp]:
    """Return a function that finds the extremum of all elements of fields of one kind; local.

    Calling it is *Collective*: ranks agree as they did at the first call.
    """
    search = np.ndarray.argmin if least else np.ndarray.argmax
    box, shape, several = task.field.extent.box, task.field.shape, agreement.size > 1
    lead, contributes = len(task.field.components), task.contributes
    # Position of the first own element, and the steps from one to the next along each axis.
    steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    first = sum(start * step for start, step in zip(box.start, steps[lead:], strict=True))
    along = list(zip(task.field.local_shape, steps, strict=True))[::-1]
    mine, rows = agreement.values(dtype)
    own_value, own_index = mine["value"], mine["index"]
    values, indices = rows["value"][:, 0], rows["index"][:, 0]

    def find(u: Field) -> np.intp:
        error, index = None, -1
        try:
            if contributes:
                block = u._local
                place = int(search(block))
                value = block.item(place) if several else None
                index = first
                for extent, step in along:
                    place, here = divmod(place, extent)
                    index += here * step
                if several:
                    own_value[0], own_index[0] = value, index
            elif several:
                own_index[0] = -1
        except Exception as mistake:  # noqa: BLE001 - raised on all ranks
            error = mistake
        agreement.meet(error)
        if several:
            index = _first_best(values.tolist(), indices.tolist(), least=least)
        return np.intp(index)

    return find


def _first_best(values: list[Any], indices: list[int], *, least: bool) -> int:
    """Return the index of the best value; NaN is better than any number."""
    found, best = -1, None
    for value, index in zip(values, indices, strict=True):
        if index < 0:  # a rank without points
            continue
        if found >= 0:
            nan, best_nan = value != value, best != best  # noqa: PLR0124
            tie = value == best or (nan and best_nan)
            better = (value < best if least else value > best) or nan
            if index > found if tie else best_nan or not better:
                continue
        found, best = index, value
    return found


def _choose(better: np.ufunc, one: Array, other: Array) -> Array:
    """Choose the best values of two; NaN is better than any number, earlier better than later."""
    a, b, i, j = one["value"], other["value"], one["index"], other["index"]
    a_nan, b_nan = np.not_equal(a, a), np.not_equal(b, b)
    tie = np.equal(a, b) | (a_nan & b_nan)
    with np.errstate(invalid="ignore"):  # complex NaN; only some ranks might take it for errors
        second = np.where(tie, j < i, (better(b, a) & ~a_nan) | (b_nan & ~a_nan))
    return np.where((i < 0) | (second & (j >= 0)), other, one)
