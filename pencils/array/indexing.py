"""Read and write parts of a field by global basic indices, without communication."""

from __future__ import annotations

from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.operands import check_fits, common_pencil, does_not_broadcast, plain_array
from pencils.comm.memory import same_view
from pencils.errors import ArgumentError, NotLocalError
from pencils.layout import Box, Selection


def get_selection(u: Field, key: object) -> Any:
    """Local part of ``u[key]``: a view, of size 0 where this rank owns nothing of it.

    Raises
    ------
    NotLocalError
        If the key names a single element that another rank owns.
    IndexError, TypeError
        If the index is out of the global range, or not basic.
    """
    selection = Selection.from_key(key, u.shape)
    inside = selection.local(u.global_box)
    if inside is not None:
        return u.local[inside]
    if all(selection.dropped):
        index = tuple(kept.start for kept in selection.ranges)
        owner = u.extent.layout.owner(index[len(u.components) :])
        msg = (
            f"element {index} is owned by rank {owner}, not by rank {u.pencil.rank}; "
            "gather(u, root=None, key=...) copies it to all ranks"
        )
        raise NotLocalError(msg)
    return _nothing(u, selection)


def set_selection(u: Field, key: object, value: object) -> None:
    """Assign to ``u[key]`` on each rank where it owns part of it.

    Mistakes raise on every rank alike, also where nothing is owned.

    Raises
    ------
    ArgumentError
        If `value` does not broadcast to the global shape of the selection.
    IndexError, TypeError, ValueError
        If the index is out of the global range, or not basic; if `value` cannot be converted.
    """
    selection = Selection.from_key(key, u.shape)
    if not u.local.flags.writeable:
        msg = "the field is read-only, like the data it views; partition(..., copy=True) copies"
        raise ArgumentError(msg)
    box = u.global_box
    inside = selection.local(box)
    target = _nothing(u, selection) if inside is None else u.local[(*inside, ...)]
    if isinstance(value, np.ndarray) and same_view(value, target):
        return  # the second half of ``u[key] += 1``
    part = _cut_to_selection(value, u, selection, box)
    if inside is not None:
        target[...] = part


def _nothing(u: Field, selection: Selection) -> Array:
    """Empty view with the axes of the selection, where none of it is owned."""
    extents = [part.stop - part.start for part in selection.part(u.global_box)]
    return u.local[:0].reshape(0, *extents[1:])


def _cut_to_selection(value: object, u: Field, selection: Selection, box: Box) -> Array:
    """Local part of what is assigned to a selection of a field."""
    if isinstance(value, Field):
        return _match_planes(value, u, selection)
    array = _convert(value, u.dtype)
    shape = selection.shape
    while array.ndim > len(shape) and array.shape[0] == 1:
        array = array[0]
    parts = selection.part(box)
    skipped = len(shape) - array.ndim
    axes = list(zip(array.shape, shape[skipped:], parts[skipped:], strict=False))
    if skipped < 0 or any(extent not in (1, full) for extent, full, _ in axes):
        local = tuple(part.stop - part.start for part in parts)
        raise ArgumentError(does_not_broadcast(array.shape, shape, local))
    key = [part if extent == full else slice(None) for extent, full, part in axes]
    return array[tuple(key)]


def _convert(value: object, dtype: np.dtype[Any]) -> Array:
    """Read assigned values; conversions that can fail are done on all ranks, and in full."""
    if not isinstance(value, np.ndarray):
        return np.asarray(value, dtype)
    array = plain_array(value)
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        array = array.astype(dtype)
    return array


def _match_planes(value: Field, u: Field, selection: Selection) -> Array:
    """Own block of an assigned field, without the dimensions that the selection drops."""
    pencil = common_pencil([u, value])
    lead = len(u.components)
    for dim in set(range(pencil.ndim)) - value.singletons:
        axis = lead + dim
        if selection.dropped[axis] or selection.ranges[axis] != range(u.shape[axis]):
            msg = (
                f"an assigned PencilArray fills whole dimensions, and this one varies along "
                f"dimension {dim}, of which only a part is selected; there it must be a singleton, "
                "like u[0] = wall with partition(pen, ..., dims=(1, 2))"
            )
            raise ArgumentError(msg)
    check_fits(value.singletons, u, pencil)
    _check_components(value, selection, lead)
    dropped = [dim for dim in range(pencil.ndim) if selection.dropped[lead + dim]]
    return value.local.squeeze(tuple(len(value.components) + dim for dim in dropped))


def _check_components(value: Field, selection: Selection, lead: int) -> None:
    """Check that the components of an assigned field broadcast to the selected ones."""
    selected = selection.shape[: selection.dropped[:lead].count(False)]
    surplus = len(value.components) - len(selected)
    pairs = zip(value.components[max(0, surplus) :], selected[max(0, -surplus) :], strict=True)
    if surplus > 0 or any(given not in (1, full) for given, full in pairs):
        msg = f"components {value.components} do not broadcast to the selected ones, {selected}"
        raise ArgumentError(msg)
