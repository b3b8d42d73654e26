"""Sections: ``u[key]`` is a field, a view of some points of `u`, and can be assigned.

Everything here follows from global indices, so that it raises on every rank alike, and nothing is
communicated. Dimensions of space never vanish: where the key has an integer, they keep one point.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from pencils.array.allocation import Array, BlockLayout, Key, frame_of, plain_array
from pencils.array.base import Field
from pencils.array.operands import (
    check_fits,
    common_pencil,
    does_not_broadcast,
    local_part,
    signature,
)
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
from pencils.pencil import Pencil, keep_in

F = TypeVar("F", bound=Field)

_WHOLE = slice(None)
_REAL = {int, float}  # numbers that any float can take, or that raise
_BOUNDS = {int, type(None)}
_MASKED = (
    "a mask would read a list of values of all ranks; reduce with where=mask, as in "
    "u.sum(where=mask), write with u[mask] = value or np.add(u, v, out=u, where=mask), or take "
    "u.local[mask.local] on each rank"
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

    The dimensions of space that are cut have no halo, and are not periodic.

    Raises
    ------
    IndexError
        If an index is out of the global range, or leaves nothing of a singleton dimension.
    TypeError
        If the key has anything else than integers, slices and one Ellipsis.
    ArgumentError
        If a step along a decomposed dimension is negative.
    """
    found = _find(u, key)
    if not found.cut:
        return u.part_of_components(found.inside)
    part = u.in_frame(found.pencil, found.frame, u.padded[found.inside])
    part.base = u if found.components is None else u.part_of_components(found.components)
    return part


def _find(u: Field, key: object) -> Section:
    """Find a section, which is kept for each kind of field and each plain key."""
    plain = _as_plain(key)
    if plain is None:
        return _make(u, key)
    kept = u.frame.sections
    name = plain, u.components
    found: Section | None = kept.get(name)
    if found is None:
        found = _make(u, key)
        keep_in(kept, name, found)
    return found


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


def _make(u: Field, key: object) -> Section:
    if is_mask(key):
        raise TypeError(_MASKED)
    selection = Selection.from_key(key, u.shape)
    lead, frame, pencil = len(u.components), u.frame, u.pencil
    ranges = list(selection.ranges[lead:])
    for dim in u.singletons:
        if not ranges[dim]:
            raise IndexError(
                f"the field has extent 1 along dimension {dim}, where all ranks have its values; "
                f"{key!r} leaves nothing of it"
            )
        ranges[dim] = range(pencil.shape[dim])
    part = pencil.part(tuple(ranges))
    components = _component_key(u, selection)
    if part is pencil:
        return Section(pencil, frame, (*(components or ()), Ellipsis), components, cut=False)
    cut = {dim for dim, kept in enumerate(ranges) if kept != range(pencil.shape[dim])}
    halo = tuple((0, 0) if dim in cut else width for dim, width in enumerate(frame.halo))
    new = frame_of(part, u.singletons, halo, frame.trimmed - cut)
    inside = [_WHOLE] * pencil.ndim
    for dim in cut:
        lo, hi = frame.extent.box.start[dim], frame.extent.box.stop[dim]
        inside[dim] = box.local_slice(ranges[dim], lo, hi, frame.halo_room[dim][0])
    return Section(part, new, (*(components or ()), Ellipsis, *inside), components, cut=True)


def _component_key(u: Field, selection: Selection) -> Key | None:
    """Index of the selected components; None for all."""
    lead = len(u.components)
    chosen = zip(selection.ranges[:lead], selection.dropped[:lead], strict=True)
    key = tuple(kept.start if drop else box.as_slice(kept) for kept, drop in chosen)
    whole = all(one == slice(0, n, 1) for one, n in zip(key, u.components, strict=True))
    return None if whole else key


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

    Mistakes raise on every rank alike, also where nothing is owned.

    Raises
    ------
    PencilMismatchError
        If `value` is a field that does not mix with ``u[key]``.
    ArgumentError
        If `value` does not broadcast to the global shape of the selection.
    IndexError, TypeError, ValueError
        If the index is out of the global range, or not basic; if `value` cannot be converted.
    """
    if is_mask(key):
        _set_where(u, key, value)
    elif not (_is_whole(key, u.ndim) and _set_all(u, value)):
        _set_part(u, key, value)


def _is_whole(key: object, ndim: int) -> bool:
    """Whether a key plainly selects all points: ``...``, ``:`` or ``:, :, :``."""
    if key is Ellipsis:
        return True
    keys = key if type(key) is tuple else (key,)
    return 0 < len(keys) <= ndim and all(type(one) is slice and one == _WHOLE for one in keys)


def _set_all(u: Field, value: Any) -> bool:
    """Assign to all own points what fits without a look at it; return whether it is done."""
    target = u.local
    if isinstance(value, Field):
        part = value.local
        if value.frame.bare is not u.frame.bare or part.shape != target.shape:
            return False
    elif type(value) in _REAL and target.dtype.kind in "fc":
        part = value
    else:
        return False
    try:
        target[...] = part
    except ValueError:  # read-only
        return False
    u.mark_written()
    return True


def _set_part(u: Field, key: Any, value: Any) -> None:
    section = get_section(u, key)
    target = section.local
    if isinstance(value, Field):
        part = _field_part(value, section)
        if target.size and same_view(part, target):
            return  # the second half of ``u[key] += 1``, which has written
        check_writeable(u)
    elif type(value) in _REAL and target.dtype.kind in "fc":
        check_writeable(u)
        part = np.asarray(value)
    else:
        check_writeable(u)
        selection = Selection.from_key(key, u.shape)
        lead, few = len(u.components), len(section.components)
        drops = enumerate(selection.dropped[lead:], few)
        dropped = tuple(axis for axis, drop in drops if drop)
        part = _values_part(_converted(value, u.dtype), section, selection.shape, dropped)
    target[...] = part
    section.mark_written()


def check_writeable(u: Field) -> None:
    """Check that a field can be assigned to."""
    if not u.local.flags.writeable:
        raise ArgumentError(
            "the field is read-only, like the data it views; partition(..., copy=True) copies"
        )


def _field_part(value: Field, section: Field) -> Array:
    """Own block of a field that is assigned to a section."""
    part = value.local
    if value.frame.bare is section.frame.bare:
        if part.shape == section.local.shape:
            return part
    else:
        pencil = common_pencil([section, value], assigned=True)
        check_fits(value.singletons, section, pencil)
    given, selected = value.components, section.components
    surplus = len(given) - len(selected)
    pairs = zip(given[max(0, surplus) :], selected[max(0, -surplus) :], strict=True)
    if surplus > 0 or any(n not in (1, full) for n, full in pairs):
        raise ArgumentError(f"components {given} do not broadcast to the selected ones, {selected}")
    return part


def _values_part(array: Array, section: Field, shape: tuple[int, ...], dropped: Key) -> Array:
    """Local part of global data that broadcast to a selection of a global shape.

    `dropped`: the axes of the section that the shape lacks.
    """
    while array.ndim > len(shape) and array.shape[0] == 1:
        array = array[0]
    missing, box = len(shape) - array.ndim, section.global_box
    if missing < 0 or any(
        n not in (1, full) for n, full in zip(array.shape, shape[missing:], strict=True)
    ):
        owned = tuple(n for axis, n in enumerate(box.shape) if axis not in dropped)
        raise ArgumentError(does_not_broadcast(array.shape, shape, owned))
    whole = np.expand_dims(array[(np.newaxis,) * missing], dropped)
    along = zip(whole.shape, box.slices(), strict=True)
    return whole[tuple([_WHOLE if n == 1 else part for n, part in along])]


def _converted(value: object, dtype: np.dtype[Any]) -> Array:
    """Read assigned values; conversions that can fail are done on all ranks, and in full."""
    if not isinstance(value, np.ndarray):
        try:
            return np.asarray(value, dtype)
        except (TypeError, ValueError) as error:
            hint = "; write value.real, or u.astype(complex) for a field that takes it"
            hint *= isinstance(value, complex | np.complexfloating)
            text = f"{shown(value)} cannot be assigned to a field of {dtype}: {error}{hint}"
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(text) from None
    array = plain_array(value)
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        array = array.astype(dtype)
    return array


def _set_where(u: Field, mask: Any, value: object) -> None:
    """Assign a number or a field where a mask is true."""
    check_writeable(u)
    if not isinstance(value, Field):
        value = _converted(value, u.dtype)
        if value.ndim:
            raise TypeError(
                "u[mask] = value takes a number or a field; np.copyto(u, values, where=mask) takes "
                f"global data of the shape of u, {u.shape}"
            )
    if not isinstance(mask, Field):
        mask = plain_array(mask)
        if mask.ndim not in {u.ndim, u.pencil.ndim}:
            raise ArgumentError(
                f"a mask of shape {mask.shape} must have the {u.ndim} axes of the field, of shape "
                f"{u.shape}, or those of space"
            )
    elif mask.dtype != bool:
        raise TypeError(
            f"a field of {mask.dtype} is no mask; write u[v > 0] = value for one of booleans"
        )
    copy_where(u, value, mask, "unsafe")


def copy_where(u: Field, value: Any, mask: Any, casting: Any) -> None:
    """Copy a number, global data or a field to where a mask is true, as `numpy.copyto`."""
    pencil = common_pencil([one for one in (u, value, mask) if isinstance(one, Field)])
    part, singletons = local_part(value, pencil)
    where, along = local_part(mask, pencil)
    check_fits(singletons & along, u, pencil)
    np.copyto(u.local, part, casting=casting, where=where)
    u.mark_written()


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
        What `numpy.ndarray.item` returns for the global array.

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
    given = index[0] if len(index) == 1 and isinstance(index[0], tuple) else index
    here = as_ints("index", given)
    if not here and u.size != 1:
        raise ArgumentError(
            f"item() of a field of shape {u.shape} needs an index; without one the field must have "
            f"one element, like u[{_zeros(u)}].item()"
        )
    shape = (u.size,) if len(here) == 1 != u.ndim else u.shape
    here = here or (0,) * u.ndim
    if len(here) != len(shape):
        raise ArgumentError(
            f"item{here} of a field of shape {u.shape}: give one index for each of {u.ndim} axes, "
            "or one position in the flattened array"
        )
    for axis, (i, n) in enumerate(zip(here, shape, strict=True)):
        if not -n <= i < n:
            raise IndexError(f"index {i} is out of bounds for axis {axis} with global size {n}")
    point = [i % n for i, n in zip(here, shape, strict=True)]
    if len(shape) == u.ndim:
        return tuple(point)
    return tuple(map(int, np.unravel_index(point[0], u.shape)))


def replicate(u: F) -> F:
    """Return the field with singletons where it has one point, which all ranks get. *Collective*.

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
    pencil = u.pencil
    with agreed(pencil.topology.comm, "replicate") as agree:
        agree(**signature(u))
        alone = frozenset(dim for dim, n in enumerate(pencil.shape) if n == 1) - u.singletons
        singletons = u.singletons | alone
        target = pencil.uncut(singletons)
        frame = frame_of(target, singletons)
        block: Array = frame.make(frame.shape_of(u.components, u.dtype), u.dtype)
        layout = u.extent.layout
        parts = list(layout.parts(pencil.rank))
        for dim in alone:
            parts[dim] = layout.splits[dim].owner(0)
        axes = [axis for axis, dim in enumerate(layout.decomp) if dim in alone]
        owner = layout.rank(parts)
        if owner == pencil.rank:
            block[...] = u.local
    if axes and pencil.size > 1:
        row = pencil.topology.along(layout.grid, axes)
        shape, coords = layout.grid.shape, layout.grid.coords(owner)
        along = ProcessGrid(tuple(shape[axis] for axis in axes))
        root = along.rank([coords[axis] for axis in axes])
        bcast_array(row, block.transpose(frame.axes(len(u.components))[0]), root)
    return u.in_frame(target, frame, block)


def refuse_number(u: Field) -> NoReturn:
    """Raise what Python's conversions to numbers raise for fields."""
    call = "u.item()" if u.size == 1 else f"u.item({_zeros(u)})"
    raise TypeError(
        f"a field is not converted to a number: {call} returns the value of a point on all ranks, "
        "and is collective"
    )


def _zeros(u: Field) -> str:
    """Write the index of the first element."""
    return ", ".join("0" * u.ndim)
