"""Sections: ``u[key]`` is a field, a view of some points of `u`, and can be assigned.

Everything here follows from global indices, so that it raises on every rank alike, and nothing is
communicated. Dimensions of space never vanish: where the key has an integer, they keep one point.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import numpy as np

from pencils.array import provided
from pencils.array.allocation import Array, BlockLayout, Key, frame_of, plain_array
from pencils.array.base import Field
from pencils.array.operands import (
    check_fits,
    common_pencil,
    does_not_broadcast,
    fields_among,
    local_part,
    mixes,
    signature,
)
from pencils.array.picks import Picks, find_picks
from pencils.array.signatures import Indices, Mask, Operand
from pencils.comm.agree import agreed
from pencils.comm.failure import shown
from pencils.comm.memory import same_view
from pencils.comm.reduce import native
from pencils.comm.stream import bcast_array
from pencils.errors import ArgumentError
from pencils.layout import Selection, box
from pencils.layout.integers import as_ints
from pencils.layout.layout import ProcessGrid
from pencils.pencil import Pencil

F = TypeVar("F", bound=Field)

_WHOLE = slice(None)
_REAL = {int, float}  # numbers that any float can take, or that raise
_ARRAYS = {list, np.ndarray}
_BOUNDS = {int, type(None)}
_MASKED = (
    "reading by a mask would collect values of all ranks. Write u.sum(where=mask) to reduce, "
    "u[mask] = value or np.add(u, v, out=u, where=mask) to assign, u.local[mask.local] for own "
    "values"
)


class Section(NamedTuple):
    """Where a section of fields of one kind is."""

    pencil: Pencil
    frame: BlockLayout
    inside: Key  # index in the padded block
    components: Key | None  # index of the components; None if the key selects all
    cut: bool  # whether points of space are left out


def get_section(u: F, key: Indices) -> F:
    """Return ``u[key]``: a field of some points or components of `u`, a view.

    The dimensions of space that are cut have no halo, and are not periodic. Component axes take
    lists, arrays and masks, too, as in NumPy: ``V[[0, 2]]`` is a copy of two components.

    Raises
    ------
    IndexError
        If an index is out of the global range, or leaves nothing of a singleton dimension.
    TypeError
        If the key has anything else than integers, slices and one Ellipsis, and lists for
        component axes.
    ArgumentError
        If a step along a decomposed dimension is negative.
    """
    plain, kept = _as_plain(key), u.frame.sections
    name = plain, u.components
    found: Section | None = None if plain is None else kept.get(name)
    if found is None:
        picks = find_picks(u, key) if plain is None else None
        if picks is not None:
            return picks.load(get_section(u, (Ellipsis, *picks.space)))
        found = _find(u, key)
        if plain is not None:
            kept.add(name, found)
    if not found.cut:
        return u.map_block(itemgetter(found.inside))
    part = u.in_frame(found.pencil, found.frame, u.padded[found.inside])
    part.base = u if found.components is None else u.map_block(itemgetter(found.components))
    return part


def _as_plain(key: object) -> tuple[Any, ...] | None:
    """Return a key as what can be looked up; None if it has more than ints, slices and `...`."""
    found: list[Any] = []
    for one in key if type(key) is tuple else (key,):
        kind = type(one)
        if kind is slice:
            start, stop, step = bounds = one.start, one.stop, one.step
            if not (type(start) in _BOUNDS and type(stop) in _BOUNDS and type(step) in _BOUNDS):
                return None
            found.append(bounds)
        elif kind is int or one is Ellipsis:
            found.append(one)
        else:
            return None
    return tuple(found)


def _find(u: Field, key: object) -> Section:
    if is_mask(key):
        raise TypeError(_MASKED)
    selection = Selection.from_key(key, u.shape)
    lead, frame, pencil = len(u.components), u.frame, u.pencil
    chosen = zip(selection.ranges[:lead], selection.dropped, strict=False)
    components = tuple(kept.start if drop else box.as_slice(kept) for kept, drop in chosen)
    every = all(one == slice(0, n, 1) for one, n in zip(components, u.components, strict=True))
    ranges = list(selection.ranges[lead:])
    for dim in u.singletons:
        if not ranges[dim]:
            raise IndexError(
                f"the field is replicated along dimension {dim}, with extent 1; {key!r} would "
                "select no points"
            )
        ranges[dim] = range(pencil.shape[dim])
    part, inside = pencil.part(tuple(ranges)), [_WHOLE] * pencil.ndim
    cut = [dim for dim, kept in enumerate(ranges) if kept != range(pencil.shape[dim])]
    if part is not pencil:
        halo = tuple((0, 0) if dim in cut else width for dim, width in enumerate(frame.halo))
        frame = frame_of(part, u.singletons, halo, frame.trimmed.difference(cut))
    for dim in cut:
        lo, hi = u.extent.box.start[dim], u.extent.box.stop[dim]
        inside[dim] = box.local_slice(ranges[dim], lo, hi, u.halo_room[dim][0])
    first = () if every else components
    where = (*first, Ellipsis, *(inside if cut else ()))
    return Section(part, frame, where, None if every else components, cut=part is not pencil)


def is_mask(key: object) -> bool:
    """Whether a key is a mask: a field, or an array or a list of booleans."""
    if isinstance(key, Field):
        return True
    if isinstance(key, list):
        key = np.asarray(key)
    return isinstance(key, np.ndarray) and key.ndim > 0 and key.dtype == bool


# Assignments.


def set_section(u: Field, key: Indices | Mask, value: Operand) -> None:
    """Assign to ``u[key]`` on each rank where it owns part of it.

    *Collective* if `value` is a field whose points lie on other ranks than those of ``u[key]``, or
    are other points of the whole, as in ``u[1:] = u[:-1]``: then they are moved by a transpose that
    is kept. Whether they are follows from the pencils, never from the number of ranks. All other
    values, and fields that mix with ``u[key]``, are assigned without communication. `u` and `value`
    may share memory, as in NumPy.

    Mistakes raise on every rank alike, also where nothing is owned.

    Parameters
    ----------
    key : int, slice, Ellipsis, tuple of these, or mask
        Global indices, or a boolean field or array; lists for component axes.
    value : PencilArray or array_like
        A number, global data that all ranks have, or a field; it is converted to the type of `u`.
        A field has the extents of ``u[key]``, or is a singleton.

    Raises
    ------
    PencilMismatchError
        If `value` is a field with other extents than ``u[key]``, or on other processes.
    ArgumentError
        If `value` does not broadcast to the global shape of the selection, or `u` is read-only.
    IndexError, TypeError, ValueError
        If the index is out of the global range, or not basic; if `value` cannot be converted.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil(4), lambda i: i)
    >>> u[1:] = u[:-1]  # collective: points move
    >>> u[0] = 7  # local
    >>> u.local
    array([7, 0, 1, 2])
    """
    keys = key if type(key) is tuple else (key,)
    if not _ARRAYS.isdisjoint(map(type, keys)):
        picks = find_picks(u, key)
        if picks is not None:
            _set_picks(u, picks, value)
            return
    if is_mask(key):
        _set_where(u, key, value)
        return
    whole = key is Ellipsis or (
        0 < len(keys) <= u.ndim and all(type(one) is slice and one == _WHOLE for one in keys)
    )
    section: Field = u if whole else get_section(u, cast("Indices", key))
    if isinstance(value, Field) and not mixes(section, value):
        provided("assign")(section, value)
        return
    target = section.local
    part = part_of_value(u, key, section, value)
    if isinstance(value, Field) and not whole and target.size and same_view(part, target):
        return  # the second half of ``u[key] += 1``, which has written
    try:
        target[...] = part
    except ValueError:
        check_target(u)
        raise
    section.mark_written()


def _set_picks(u: Field, picks: Picks, value: Operand) -> None:
    """Assign to some components of a section."""
    section = get_section(u, (Ellipsis, *picks.space))
    new = picks.blank(section)
    # Integers select dimensions that the shape of NumPy values lacks.
    key = (_WHOLE if isinstance(one, slice) else 0 for one in picks.space)
    set_section(new, (Ellipsis, *key), value)
    check_target(u)
    picks.store(section, new)


def check_target(u: Field) -> None:
    """Check that a field that is assigned to may be written."""
    if not u.local.flags.writeable:
        raise ArgumentError(
            "the field is read-only, like the data it views; pass copy=True, as in "
            "partition(..., copy=True)"
        )


def part_of_value(u: Field, key: Indices | Mask, section: Field, value: Operand) -> Any:
    """Check what is assigned to a section, and return the part for the own block."""
    if isinstance(value, Field):
        return _field_part(value, section)
    if type(value) in _REAL and section.dtype.kind in "fc":
        return value
    return _values_part(u, key, section, converted(value, u.dtype))


def _field_part(value: Field, section: Field) -> Array:
    """Own block of a field that is assigned to a section."""
    part = value.local
    if value.frame.bare is section.frame.bare:
        if part.shape == section.local.shape:
            return part
    else:
        pencil = common_pencil([section, value], assigned=True)
        check_fits(value.singletons, section, pencil)
    _check_components(value.components, section.components)
    return part


def _check_components(given: tuple[int, ...], selected: tuple[int, ...]) -> None:
    """Check that the components of a field fit those of a section that it is assigned to."""
    surplus = len(given) - len(selected)
    pairs = zip(given[max(0, surplus) :], selected[max(0, -surplus) :], strict=True)
    if surplus > 0 or any(n not in (1, full) for n, full in pairs):
        raise ArgumentError(
            f"components {given} do not broadcast to the selected components {selected}"
        )


def check_moved(section: Field, value: Field) -> None:
    """Check that a field whose points are moved can be assigned to a section; local."""
    fixed, here, there = value.singletons, section.pencil, value.pencil
    same = here.ndim == there.ndim and here.same_ranks(there)
    if not same or here.extent(fixed).shape != there.extent(fixed).shape:
        common_pencil([section, value], assigned=True)  # raises, and names what to write
    check_fits(fixed, section, here)
    _check_components(value.components, section.components)
    check_target(section)


def _values_part(u: Field, key: object, section: Field, array: Array) -> Array:
    """Local part of global data that broadcast to what a key selects, on the section."""
    selection = Selection.from_key(key, u.shape)
    shape, lead = selection.shape, len(section.components)
    drops = enumerate(selection.dropped[len(u.components) :], lead)
    dropped = tuple(axis for axis, drop in drops if drop)  # axes that the shape lacks
    while array.ndim > len(shape) and array.shape[0] == 1:
        array = array[0]
    missing, own = len(shape) - array.ndim, section.global_box
    if missing < 0 or any(
        n not in (1, full) for n, full in zip(array.shape, shape[missing:], strict=True)
    ):
        owned = tuple(n for axis, n in enumerate(own.shape) if axis not in dropped)
        raise ArgumentError(does_not_broadcast(array.shape, shape, owned))
    whole = np.expand_dims(array[(np.newaxis,) * missing], dropped)
    along = zip(whole.shape, own.slices(), strict=True)
    return whole[tuple([_WHOLE if n == 1 else part for n, part in along])]


def converted(value: object, dtype: np.dtype[Any]) -> Array:
    """Read assigned values; conversions that can fail are done on all ranks, and in full."""
    if isinstance(value, np.ndarray):
        array = plain_array(value)
        same = np.can_cast(array.dtype, dtype, "same_kind")
        return array if same else array.astype(dtype)
    try:
        return np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        hint = "; write value.real, or u.astype(complex) for a field that takes it"
        hint *= isinstance(value, complex | np.complexfloating)
        text = f"{shown(value)} cannot be assigned to a field of {dtype}: {error}{hint}"
        raise (TypeError if isinstance(error, TypeError) else ValueError)(text) from None


def _set_where(u: Field, mask: Any, value: object) -> None:
    """Assign a number or a field where a mask is true."""
    check_target(u)
    if not isinstance(value, Field):
        value = converted(value, u.dtype)
        if value.ndim:
            raise TypeError(
                "u[mask] = value takes a number or a field; np.copyto(u, values, where=mask) takes "
                f"global data of the shape of u, {u.shape}"
            )
    if not isinstance(mask, Field):
        mask = plain_array(mask)
        if mask.ndim not in {u.ndim, u.pencil.ndim}:
            raise ArgumentError(
                f"a mask of shape {mask.shape} must have all {u.ndim} axes of the field of shape "
                f"{u.shape}, or only its axes of space"
            )
    elif mask.dtype != bool:
        raise TypeError(
            f"a mask must be boolean, not {mask.dtype}; write a comparison, as in u[v > 0] = value"
        )
    copy_where(u, value, mask, "unsafe")


def copy_where(u: Field, value: Any, mask: Any, casting: Any) -> None:
    """Copy a number, global data or a field to where a mask is true, as `numpy.copyto`."""
    pencil = common_pencil(fields_among(u, value, mask))
    part, singletons = local_part(value, pencil)
    where, along = local_part(mask, pencil)
    check_fits(singletons & along, u, pencil)
    np.copyto(u.local, part, casting=casting, where=where)
    u.mark_written()


# Single points, and planes for all ranks.


def item(u: Field, *index: int) -> Any:
    """Return the value of one point as a Python scalar, on every rank. *Collective*.

    Parameters
    ----------
    *index : int
        Global index along each axis, components first; or one position in the flattened global
        array. Without it, the field must have one element.

    Returns
    -------
    scalar
        The result of `numpy.ndarray.item` of the global array.

    Raises
    ------
    ArgumentError, IndexError, TypeError
        On every rank, if there is no such element, or more than one.
    RankDisagreementError
        On every rank, if ranks ask for different points.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 6)), lambda i, j: 10 * i + j)
    >>> u.item(2, -1), u[3, 0].item()
    (25, 30)
    """
    comm = u.pencil.topology.comm
    with agreed(comm, "item") as agree:
        agree(**signature(u))
        point = _read_point(u, index)
        agree(point=point)
        lead = len(u.components)
        owner = u.extent.layout.owner(point[lead:])
        value = np.zeros(1, native(u.dtype))
        if owner == u.pencil.rank:
            start = u.global_box.start
            value[0] = u.local[tuple([i - lo for i, lo in zip(point, start, strict=True)])]
        agree.carry(value)
    if agree.carried is not None:
        return agree.carried[owner].item()
    bcast_array(comm, value, owner)
    return value.item()


def _read_point(u: Field, index: tuple[Any, ...]) -> tuple[int, ...]:
    """Check an index of one element, and return it without negative entries."""
    here = as_ints("index", index[0] if len(index) == 1 and isinstance(index[0], tuple) else index)
    if not here and u.size != 1:
        raise ArgumentError(
            f"item() of a field of shape {u.shape} needs an index; or select one element first, "
            f"as in u[{_zeros(u)}].item()"
        )
    flat = len(here) == 1 != u.ndim
    shape, here = (u.size,) if flat else u.shape, here or (0,) * u.ndim
    if len(here) != len(shape):
        raise ArgumentError(
            f"item{here} of a field of shape {u.shape}: give one index for each of {u.ndim} axes, "
            "or one position in the flattened array"
        )
    for axis, (i, n) in enumerate(zip(here, shape, strict=True)):
        if not -n <= i < n:
            raise IndexError(f"index {i} is out of bounds for axis {axis} with global size {n}")
    point = tuple([i % n for i, n in zip(here, shape, strict=True)])
    return tuple(map(int, np.unravel_index(point[0], u.shape))) if flat else point


def replicate(u: F) -> F:
    """Copy dimensions of one point to all ranks, as singletons. *Collective*.

    The plane ``u[3]`` lies on the ranks that own it; ``u[3].replicate()`` is on all ranks, and
    broadcasts in expressions: ``u - u[3].replicate()``. Each rank receives the part that belongs to
    its own block.

    Returns
    -------
    PencilArray
        A new field without halo.

    Raises
    ------
    RankDisagreementError
        On every rank, if ranks have fields of different kinds.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 6)), lambda i, j: 10 * i + j)
    >>> (u - u[3].replicate())[0].max()
    np.int64(-30)
    """
    pencil, layout, grid = u.pencil, u.extent.layout, u.extent.layout.grid
    with agreed(pencil.topology.comm, "replicate") as agree:
        agree(**signature(u))
        alone = frozenset(dim for dim, n in enumerate(pencil.shape) if n == 1) - u.singletons
        target = pencil.uncut(u.singletons | alone)
        new = u.allocated(target, u.dtype, u.components, u.singletons | alone)
        coords = [
            layout.splits[dim].owner(0) if dim in alone else part
            for dim, part in enumerate(layout.parts(pencil.rank))
        ]
        owner = layout.rank(coords)
        if owner == pencil.rank:
            new.local[...] = u.local
    axes = [axis for axis, dim in enumerate(layout.decomp) if dim in alone]
    if axes and pencil.size > 1:
        there = grid.coords(owner)
        along = ProcessGrid(tuple(grid.shape[axis] for axis in axes))
        block = new.local.transpose(new.frame.axes(len(u.components))[0])
        row = pencil.topology.along(grid, axes)
        bcast_array(row, block, along.rank([there[axis] for axis in axes]))
    return new


def refuse_number(u: Field) -> NoReturn:
    """Raise what Python's conversions to numbers raise for fields."""
    call = "u.item()" if u.size == 1 else f"u.item({_zeros(u)})"
    raise TypeError(
        f"a field does not convert to a number; {call} returns the value of one point on all "
        "ranks, and is collective"
    )


def _zeros(u: Field) -> str:
    """Write the index of the first element."""
    return ", ".join("0" * u.ndim)
