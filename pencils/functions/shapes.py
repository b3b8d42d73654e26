"""Functions whose results have another shape: joined, padded and repeated. *Collective* in space.

The result lies on ``u.pencil.resized(shape)``. Each point is sent once, in one exchange, to each
rank that needs it; a rank that needs it several times copies it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from pencils.array.allocation import Array, plain_array
from pencils.array.base import Field
from pencils.array.global_reduction import NO_VALUE
from pencils.array.operands import check_field, fields_among, topology_among
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.functions import components
from pencils.functions.arguments import Line, facts_of, one_axis
from pencils.functions.mapping import Indexed
from pencils.functions.moves import Computation, Steps, fetch_boxes
from pencils.layout.integers import as_dim, as_int, as_ints
from pencils.plans import Agreement
from pencils.transposition.transpose import transpose

_NO_OUT = "numpy.concatenate of a PencilArray takes no out=; use the result"

Indices = Mapping[int, Array]  # of each axis that changes: which point lies at each of the result


def _place(
    u: Field, shape: Sequence[int], singletons: frozenset[int], dtype: np.dtype[Any]
) -> tuple[Callable[[], Field], Sequence[Line]]:
    """Return what makes results of a shape and a type beside a field, and their axes."""
    lead = len(u.components)
    space = list(shape[lead:])
    kept = frozenset(dim for dim in singletons if space[dim] == 1)
    for dim in kept:
        space[dim] = u.pencil.shape[dim]
    pencil = u.pencil.resized(tuple(space))
    layout = pencil.extent(kept).layout
    lines = [Line.whole(n) for n in shape[:lead]]
    lines += [Line.along(layout, pencil.rank, dim) for dim in range(pencil.ndim)]
    return u.maker(pencil, dtype, tuple(shape[:lead]), kept), lines


def _moves(
    u: Field, lines: Sequence[Line], indices: Indices, *, direct: bool
) -> dict[int, Indexed]:
    """Return how points of a field come to a result with these axes."""
    found: dict[int, Indexed] = {}
    for axis, line in enumerate(lines):
        index = indices.get(axis)
        if index is None and line.split != Line.of(u, axis).split:
            index = np.arange(u.shape[axis])
        if index is not None:
            found[axis] = Indexed(line, index.astype(np.int64).tobytes(), direct)
    return found


def _resize(
    name: str,
    u: Field,
    given: Sequence[object] | None,
    read: Callable[[Agreement], Indices],
) -> Field:
    """Make a field whose points are those of `u` at given indices. *Collective*.

    `read` checks the arguments. Where an index is -1, there is no point, and nothing is set.
    """

    def plan(agree: Agreement) -> Steps:
        indices = read(agree)
        shape = [len(indices.get(axis, range(n))) for axis, n in enumerate(u.shape)]
        agree(result=shape)
        make, lines = _place(u, shape, u.singletons, u.dtype)
        direct = all(np.all(np.diff(index[index >= 0]) > 0) for index in indices.values())
        moves = _moves(u, lines, indices, direct=direct)
        if direct:
            return Steps([moves], [make])
        own = {axis: each.own for axis, each in moves.items()}
        return Steps([moves], [make], partial(_copy, own))

    (result,) = fetch_boxes(name, u, given, plan)
    return result


def _copy(own: Indices, _: Array, fetched: Sequence[Array], outs: Sequence[Array]) -> Computation:
    """Prepare to copy fetched points to all places that have them."""

    def copy() -> None:
        (found,) = fetched
        *others, (last, at) = own.items()
        for axis, places in others:
            found = found.take(places, axis)
        found.take(at, last, out=outs[0], mode="clip")  # in other modes it makes a copy first

    return [copy], False


def _facts(*values: object) -> tuple[Any, ...] | None:
    """Return numbers and types in arguments, by which calls are kept; None for anything else."""
    found: list[Any] = []
    for value in values:
        if value is None or isinstance(value, str):
            found.append(value)
            continue
        try:
            array = np.asarray(value)
        except (ValueError, TypeError):
            return None
        if array.dtype.kind not in "iuf":
            return None
        found += [array.dtype.str, *array.shape, *array.ravel().tolist()]
    return tuple(found)


# What each mode takes.
_MODES = {
    **dict.fromkeys(("edge", "empty", "wrap"), ""),
    **dict.fromkeys(("maximum", "mean", "median", "minimum"), "stat_length"),
    **dict.fromkeys(("reflect", "symmetric"), "reflect_type"),
    "constant": "constant_values",
    "linear_ramp": "end_values",
}
_STATISTICS: Mapping[str, Callable[..., Any]] = {
    "maximum": np.max,
    "mean": np.mean,
    "median": np.median,
    "minimum": np.min,
}


def pad(array: Field, pad_width: Any, mode: Any = "constant", **options: Any) -> Field:
    """Add points at the ends of axes, as `numpy.pad`. *Collective*.

    One message to each rank that has new places of own points.

    Parameters
    ----------
    array : PencilArray
        The field; its halo is not read.
    pad_width : int, sequence or dict
        Points before and after each axis, as in `numpy.pad`. One number is for all axes,
        components included.
    mode : {"constant", "edge", "empty", "linear_ramp", "reflect", "symmetric", "wrap", \
            "maximum", "mean", "median", "minimum"}, optional
        Values of the new points; ramps, means, and reflections of the type "odd" may differ from
        those of NumPy in the last bits. The last four reduce the field along each axis.
    **options : dict, optional
        One of `constant_values`, `end_values`, `stat_length` and `reflect_type`, as in `numpy.pad`,
        for the modes that take it.

    Returns
    -------
    PencilArray
        A new field without halo, on ``array.pencil.resized(shape)``.

    Raises
    ------
    ArgumentError, TypeError, ValueError
        On every rank, if an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: 3 * i + j)
    >>> np.pad(u, ((0, 0), (1, 2)), "reflect").local
    array([[1, 0, 1, 2, 1, 0],
           [4, 3, 4, 5, 4, 3]])
    """
    key = _MODES.get(mode, "") if isinstance(mode, str) else ""
    value = options.get(key, {"reflect_type": "even", "stat_length": None}.get(key, 0))

    def read(agree: Agreement) -> Indices:
        if not isinstance(mode, str) or mode not in _MODES:
            raise ArgumentError(
                f"mode={mode!r}: numpy.pad of a PencilArray takes {', '.join(_MODES)}"
            )
        if set(options) - {key} or (key == "reflect_type" and value not in ("even", "odd")):
            raise ArgumentError(
                f"numpy.pad of a PencilArray with mode={mode!r} does not take "
                f"{options}; it takes {key or 'nothing else'}"
            )
        widths, ends = _widths(array, pad_width), _ends(array, mode, value)
        agree(mode=mode, widths=widths, values=ends)
        of: Any = {"linear_ramp": {"mode": "edge"}}.get(mode, {"mode": mode})
        if mode in {"constant", "empty", *_STATISTICS}:
            of = {"constant_values": -1}
        indices = {}
        for axis, width in enumerate(widths):
            if any(width):
                points = np.arange(array.shape[axis])
                if mode in _STATISTICS:
                    np.pad(points, width, "edge")  # it raises if there are none
                indices[axis] = np.pad(points, width, **of)
        return indices

    facts = None if isinstance(pad_width, dict) else _facts(pad_width, mode, value, *options)
    result = cast("Any", _resize("pad", array, facts, read))
    if mode in _STATISTICS or value == "odd" or mode in {"constant", "linear_ramp"}:
        _fill(result, array, mode, _widths(array, pad_width), _ends(array, mode, value))
    return result  # type: ignore[no-any-return]


def _ends(u: Field, mode: str, value: Any) -> Any:
    """Return the option of a mode for both ends of each axis, as `numpy.pad` reads it."""
    if mode in {"constant", "linear_ramp"}:
        pairs = np.broadcast_to(np.asarray(value), (u.ndim, 2))
        if pairs.dtype.kind == "c" and u.dtype.kind != "c":
            raise TypeError(
                f"{_MODES[mode]}={value} is complex, and the field of {u.dtype}; pass "
                "u.astype(complex), or the real part"
            )
        np.empty(pairs.shape, u.dtype)[...] = pairs  # it raises if NumPy does not convert
        return pairs.tolist()
    if mode not in _STATISTICS:
        return value
    most = np.repeat(u.shape, 2).reshape(-1, 2)
    lengths = most if value is None else np.round(np.broadcast_to(value, most.shape)).astype(int)
    if lengths.min() < (least := int(mode in {"maximum", "minimum"})):
        raise ValueError(f"stat_length={value} of numpy.pad must be at least {least}")
    return np.minimum(lengths, most).tolist()


def _widths(u: Field, given: Any) -> list[list[int]]:
    """Return the points before and after each axis, as `numpy.pad` reads them."""
    if isinstance(given, dict):
        every = np.zeros((u.ndim, 2), int)
        for axis, width in given.items():
            every[as_dim("axis", axis, u.ndim)] = width
        given = every
    pairs = np.broadcast_to(np.asarray(given), (u.ndim, 2))
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"pad_width={given} must be of integers")
    if np.any(pairs < 0):
        raise ArgumentError(f"pad_width={given} must not be negative")
    return pairs.tolist()  # type: ignore[no-any-return]


def _fill(result: Any, u: Field, mode: str, widths: Sequence[Sequence[int]], ends: Any) -> None:
    """Fill points at the ends of axes, one axis after another. *Collective* but for numbers."""
    for axis, (low, high) in enumerate(widths):
        n = u.shape[axis]
        later = [slice(before, before + m) for (before, _), m in zip(widths, u.shape, strict=True)]
        part = result[(slice(None),) * (axis + 1) + tuple(later[axis + 1 :])]
        if ends == "odd":
            _reflect(result, axis, (low, high), n, 1 if n == 1 else n - (mode == "reflect"))
            continue
        found: dict[Any, Any] = {}
        for side, (start, width) in enumerate(((0, low), (low + n, high))):
            if not width or not result.size:
                continue
            new, end = (
                _along(result if mode == "linear_ramp" else part, axis, start, width),
                ends[axis][side],
            )
            if mode == "constant":
                new[...] = end
            elif mode == "linear_ramp":
                block, rows = np.moveaxis(new.local, axis, 0), new.local_slices[axis]
                if block.size:
                    ramp = np.linspace(end, block[0], width, endpoint=False, dtype=u.dtype)
                    block[...] = (ramp if side == 0 else ramp[::-1])[rows]
            else:
                first = low if side == 0 else low + n - end
                if (first, end) not in found:
                    points = _along(part, axis, first, end)
                    value = _STATISTICS[mode](points, axis=axis, keepdims=True)
                    found[first, end] = np.round(value) if u.dtype.kind in "iu" else value
                new[...] = found[first, end]


def _along(u: Any, axis: int, start: int, count: int) -> Any:
    """Return a section of points along an axis."""
    return u[(*(slice(None),) * axis, slice(start, start + count))]


def _reflect(u: Any, axis: int, widths: tuple[int, int], n: int, step: int) -> None:
    """Turn mirrored points at the ends of an axis into those of an odd function. *Collective*.

    Every `step` points they are mirrored again, at the value there.
    """
    planes = [_along(u, axis, at, 1) for at in (widths[0], widths[0] + n - 1)]
    if axis >= len(u.components):
        planes = [plane.replicate() for plane in planes]
    for side, width in enumerate(widths):
        offset: Any = 0
        for turn, start in enumerate(range(0, width if n > 1 else 0, step)):
            count = min(step, width - start)
            at = widths[0] + n + start if side else widths[0] - start - count
            part, twice = _along(u, axis, at, count), 2 * planes[(side + turn) % 2]
            offset = offset - twice if turn % 2 else offset + twice
            part[...] = offset + part if turn % 2 else offset - part


def tile(A: Field, reps: Any) -> Field:  # noqa: N803 - of NumPy
    """Repeat a field along axes, as `numpy.tile`. *Collective*.

    Each point is sent once to each rank that has copies of it.

    Parameters
    ----------
    A : PencilArray
        The field.
    reps : int or sequence of int
        How often along each axis, the last ones if there are fewer. If there are more, the first
        ones are extents of new component axes.

    Returns
    -------
    PencilArray
        A new field without halo, on ``A.pencil.resized(shape)``.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: 3 * i + j)
    >>> np.tile(u, 2).local
    array([[0, 1, 2, 0, 1, 2],
           [3, 4, 5, 3, 4, 5]])
    """

    def read(agree: Agreement) -> Indices:
        times = as_ints("reps", reps)
        if min(times, default=0) < 0:
            raise ArgumentError(f"reps={reps} must be numbers >= 0, one for each axis")
        agree(reps=times)
        last = zip(range(A.ndim)[::-1], times[::-1], strict=False)
        return {axis: np.tile(np.arange(A.shape[axis]), n) for axis, n in last if n != 1}

    found: Any = _resize("tile", A, _facts(reps), read)
    new = as_ints("reps", reps)[: -A.ndim]
    return cast("Field", np.broadcast_to(found, (*new, *found.shape)) if new else found)


def repeat(a: Field, repeats: Any, axis: int | None = None) -> Field:
    """Repeat each point along an axis, as `numpy.repeat`. *Collective*.

    Each point is sent once to each rank that has copies of it.

    Parameters
    ----------
    a : PencilArray
        The field.
    repeats : int or sequence of int
        How often all points, or each of them, are repeated.
    axis : int
        Axis of the global shape; may be left out if there is only one.

    Returns
    -------
    PencilArray
        A new field without halo, on ``a.pencil.resized(shape)``.

    Raises
    ------
    ArgumentError, TypeError, ValueError
        On every rank, if an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: 3 * i + j)
    >>> np.repeat(u, [0, 1, 2], axis=1).local
    array([[1, 2, 2],
           [4, 5, 5]])
    """

    def read(agree: Agreement) -> Indices:
        number = one_axis("numpy.repeat", a, axis)
        index = np.repeat(np.arange(a.shape[number]), repeats)
        agree(axis=number, repeats=np.asarray(repeats).tolist())
        return {number: index}

    return _resize("repeat", a, _facts(repeats, axis), read)


def concatenate(
    arrays: Sequence[Any], axis: int | None = 0, out: None = None, **options: Any
) -> Field:
    """Join fields along an axis, as `numpy.concatenate`. *Collective* along axes of space.

    Along component axes nothing is communicated. Along space each point is sent once, in one
    exchange; the fields may have other blocks, but the same decomposed dimensions and process grid.

    Parameters
    ----------
    arrays : sequence of PencilArray or array_like
        Fields with as many component axes, and replicated NumPy arrays.
    axis : int, optional
        The axis; dimensions of space come last.
    out : None
        Not supported.
    dtype, casting
        As in `numpy.concatenate`.

    Returns
    -------
    PencilArray
        A new field without halo; along space it lies on ``u.pencil.resized(shape)``, for the first
        field.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        On every rank, if arguments do not fit.

    Examples
    --------
    >>> import pencils
    >>> velocity = pencils.ones(pencils.Pencil((4, 6)), components=2)
    >>> np.concatenate([velocity, velocity[:1]]).shape
    (3, 4, 6)
    >>> np.concatenate([velocity, velocity[:, 1:]], axis=1).shape
    (2, 7, 6)
    """
    fields = fields_among(*arrays)
    if not fields:
        raise TypeError(_NO_OUT)
    lead = len(fields[0].components)
    if isinstance(axis, int) and (
        0 <= axis < lead or -fields[0].ndim <= axis < -fields[0].pencil.ndim
    ):
        return components.concatenate(arrays, axis, out, **options)
    with agreed(topology_among(*fields).comm, "concatenate") as agree:
        number, operands = _read_joined(agree, arrays, axis, out, options)
    ends = np.cumsum([0, *(each.shape[number] for each in operands)]).tolist()
    parts = list(zip(operands, ends, strict=False))
    moving = [(each, start) for each, start in parts if isinstance(each, Field)]
    first = moving[0][0]

    def plan(_: Agreement) -> Steps:
        shape = [*first.shape[:number], ends[-1], *first.shape[number + 1 :]]
        singletons = frozenset.intersection(*(each.singletons for each, _ in moving))
        make, lines = _place(first, shape, singletons, first.dtype)
        moves = []
        for each, start in moving:
            index = np.full(ends[-1], -1)
            index[start : start + each.shape[number]] = np.arange(each.shape[number])
            moves.append(_moves(each, lines, {number: index}, direct=True))
        return Steps(moves, [make])

    others = [each for each, _ in moving[1:]]
    facts = (number, ends[-1], *[start for _, start in moving])
    (result,) = fetch_boxes("concatenate", first, facts, plan, others)
    for each, start in parts:
        if not isinstance(each, Field):
            key = (slice(None),) * number
            cast("Any", result)[(*key, slice(start, start + each.shape[number]))] = each
    return result


def _read_joined(
    agree: Agreement,
    arrays: Sequence[Any],
    axis: int | None,
    out: object,
    options: Mapping[str, Any],
) -> tuple[int, list[Any]]:
    """Check what is joined; return the axis, and fields and arrays of one type."""
    fields = fields_among(*arrays)
    first = fields[0]
    if out is not None:
        raise TypeError(_NO_OUT)
    if axis is None:
        raise TypeError("numpy.concatenate with axis=None flattens; give an axis")
    number = as_dim("axis", axis, first.ndim)
    operands = [each if isinstance(each, Field) else plain_array(each) for each in arrays]
    shapes = [each.shape for each in operands]
    if len({(*shape[:number], *shape[number + 1 :]) for shape in shapes}) > 1 or any(
        len(shape) != first.ndim for shape in shapes
    ):
        raise ArgumentError(
            f"numpy.concatenate of shapes {', '.join(map(str, shapes))} along axis {axis}: all "
            "must have as many axes, and equal extents but along this one"
        )
    for each in fields[1:]:
        one, other = first.pencil.layout, each.pencil.layout
        alike = (one.decomp, one.grid) == (other.decomp, other.grid)
        if not (alike and first.pencil.same_ranks(each.pencil)):
            raise PencilMismatchError(
                "numpy.concatenate along space needs fields with the same decomposed dimensions "
                "and process grid; transpose() moves a field:\n"
                f"{first.pencil!r}\n{each.pencil!r}"
            )
    empty = [np.empty(0, each.dtype) for each in operands]
    dtype = np.concatenate(empty, **options).dtype
    agree(axis=number, shapes=shapes, dtype=dtype, fields=[isinstance(x, Field) for x in operands])
    return number, [each if each.dtype == dtype else each.astype(dtype) for each in operands]


def diff_with_ends(a: Field, n: int, axis: int, prepend: Any, append: Any) -> Field:
    """Subtract neighbours along an axis, with points before and after it: see `diff`."""
    ends = prepend, append
    if fields_among(*ends):
        with agreed(topology_among(a, *ends).comm, "diff") as agree:
            check_field("a", a)
            number = one_axis("diff", a, axis)
            agree(axis=number, ends=[facts_of(None if x is NO_VALUE else x) for x in ends])
            before, after = (x if isinstance(x, Field) else _end(a, number, x) for x in ends)
        found: Any = np.diff(cast("Any", concatenate([before, a, after], number)), n, number)
        lead = len(a.components)
        return found if number < lead else transpose(found, a.pencil.resized(found.shape[lead:]))

    def plan(agree: Agreement) -> Steps:
        number, times = one_axis("diff", a, axis), as_int("n", n, least=0)
        before, after = (_end(a, number, each) for each in ends)
        index = np.pad(
            np.arange(a.shape[number]),
            (before.shape[number], after.shape[number]),
            constant_values=-1,
        )
        agree(axis=number, n=times, shapes=(before.shape, after.shape))
        joined = np.result_type(a.dtype, before.dtype, after.dtype)
        values = [each.tolist() for each in map(np.asarray, ends) if each.ndim == 0]
        agree(values=values, dtype=joined)
        few = min(times, 2)  # further differences have the same type
        dtype = np.diff(np.zeros(few + 1, joined), few).dtype
        shape = list(a.shape)
        shape[number] = max(0, len(index) - times)
        make, lines = _place(a, shape, a.singletons, dtype)
        moves = _moves(a, lines, {number: index}, direct=True)
        moves[number] = window = moves[number]._replace(more=times)
        key = [slice(*line.bounds) for line in lines]
        key[number] = slice(None)
        fill = [each[tuple(key)].astype(joined) for each in (before, after)]
        return Steps([moves], [make], partial(_subtract, number, times, window, fill, joined))

    scalar = all(each is NO_VALUE or np.ndim(each) == 0 for each in ends)
    facts = _facts(n, axis, *("" if each is NO_VALUE else each for each in ends))
    (result,) = fetch_boxes("diff", a, facts if scalar else None, plan)
    return result


def _end(a: Field, axis: int, given: Any) -> Array:
    """Return the points before or after an axis, as an array of all of them."""
    shape = list(a.shape)
    shape[axis] = 0
    array = np.empty(shape, a.dtype) if given is NO_VALUE else plain_array(given)
    if array.ndim == 0:
        shape[axis] = 1
        array = np.broadcast_to(array, shape)
    shape[axis] = -1
    if array.ndim != a.ndim or [*array.shape[:axis], -1, *array.shape[axis + 1 :]] != shape:
        raise ArgumentError(
            f"prepend= and append= of numpy.diff must be numbers or arrays of shape {tuple(shape)} "
            f"with any extent along axis {axis}, not {array.shape}"
        )
    return array


def _subtract(
    axis: int,
    n: int,
    window: Indexed,
    ends: Sequence[Array],
    dtype: np.dtype[Any],
    _: Array,
    fetched: Sequence[Array],
    outs: Sequence[Array],
) -> Computation:
    """Prepare to fill in the ends, and to subtract."""
    points = window.points(window.target.part)
    first = window.target.bounds[0]
    places = np.arange(first, first + len(points))
    before, after = (np.moveaxis(each, axis, 0) for each in ends)
    low, high = places < len(before), (points < 0) & (places >= len(before))
    behind = places[high] - (len(window.places) // 8 - len(after))

    def subtract() -> None:
        joined = fetched[0].astype(dtype, copy=False)
        rows = np.moveaxis(joined, axis, 0)
        rows[low], rows[high] = before[places[low]], after[behind]
        outs[0][...] = np.diff(joined, n, axis)

    return [subtract], False
