"""Functions whose results have another shape: joined and repeated. *Collective* in space.

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
from pencils.functions.arguments import Line, check_no_out, facts_of, one_axis
from pencils.functions.mapping import Indexed
from pencils.functions.moves import Computation, Steps, fetch_boxes
from pencils.layout.integers import as_dim, as_int, as_ints
from pencils.plans import Agreement
from pencils.transposition.transpose import transpose

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


def resize(
    name: str, u: Field, given: Sequence[object] | None, read: Callable[[Agreement], Indices]
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


def facts_of_numbers(*values: object) -> tuple[Any, ...] | None:
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
        found += [f"{array.dtype.str}{array.shape}", *array.ravel().tolist()]
    return tuple(found)


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

    found: Any = resize("tile", A, facts_of_numbers(reps), read)
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

    return resize("repeat", a, facts_of_numbers(repeats, axis), read)


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
        check_no_out("concatenate", out)
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
    check_no_out("concatenate", out)
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
        if number < len(a.components):
            return cast("Field", found)
        out: Any = _place(a, found.shape, found.singletons, found.dtype)[0]()
        return transpose(found, out.pencil, out)

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
    facts = facts_of_numbers(n, axis, *("" if each is NO_VALUE else each for each in ends))
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
