"""What stands beside a field in an expression: other fields, replicated arrays, scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.errors import ArgumentError, PencilMismatchError

if TYPE_CHECKING:
    from pencils.array import PencilArray
    from pencils.layout import Box, Selection
    from pencils.pencil import Pencil


def is_field(operand: object) -> bool:
    """Whether an operand is a PencilArray."""
    return hasattr(operand, "pencil") and hasattr(operand, "padded")


def common_pencil(fields: Sequence[PencilArray]) -> Pencil:
    """Return the pencil of all fields, which must give every rank the same block.

    Raises
    ------
    PencilMismatchError
        If they do not.
    """
    pencil = fields[0].pencil
    for field in fields[1:]:
        if field.pencil is not pencil and not field.pencil.same_blocks(pencil):
            hint = (
                "transpose() one of them to the pencil of the other"
                if field.pencil.shape == pencil.shape
                else "their global shapes differ"
            )
            msg = f"fields of different pencils cannot be mixed; {hint}:\n{pencil!r}\n{field.pencil!r}"
            raise PencilMismatchError(msg)
    return pencil


def cut(operand: Any, pencil: Pencil) -> tuple[Any, frozenset[int]]:
    """Local part of an operand, and the dimensions along which it is a singleton.

    Raises
    ------
    ArgumentError
        If an array does not broadcast to the global shape.
    """
    if is_field(operand):
        return operand.local, operand.singletons
    if not isinstance(operand, np.ndarray | list | tuple):
        return operand, everywhere(pencil)
    array = np.asarray(operand)
    if array.ndim == 0:
        return array[()], everywhere(pencil)
    missing = pencil.ndim - array.ndim
    key: list[slice] = []
    singletons = set(range(missing))
    box = pencil.box()
    for dim in range(max(0, missing), pencil.ndim):
        extent = array.shape[dim - pencil.ndim]
        if extent == pencil.shape[dim]:
            key.append(slice(box.start[dim], box.stop[dim]))
        elif extent == 1:
            key.append(slice(None))
            singletons.add(dim)
        else:
            raise ArgumentError(_does_not_broadcast(array.shape, pencil.shape, box.shape))
    return array[(..., *key)], frozenset(singletons)


def cut_to_selection(value: Any, field: PencilArray, selection: Selection, box: Box) -> Any:
    """Local part of what is assigned to a selection of a field.

    Raises
    ------
    ArgumentError
        If `value` does not broadcast to the global shape of the selection.
    """
    if is_field(value):
        _check_assigns_whole(value, field, selection)
        return value.local
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    shape = selection.shape
    parts = selection.part(box)
    lead = max(0, array.ndim - len(shape))
    axes = zip(array.shape[lead:], shape[len(shape) - array.ndim + lead :], strict=True)
    if lead or any(extent not in (1, full) for extent, full in axes):
        local = tuple(part.stop - part.start for part in parts)
        raise ArgumentError(_does_not_broadcast(array.shape, shape, local))
    key = [
        part if extent == full else slice(None)
        for extent, full, part in zip(
            array.shape,
            shape[len(shape) - array.ndim :],
            parts[len(parts) - array.ndim :],
            strict=True,
        )
    ]
    return array[tuple(key)]


def _check_assigns_whole(value: PencilArray, field: PencilArray, selection: Selection) -> None:
    pencil = common_pencil([field, value])
    space = range(len(field.components), field.ndim)
    whole = all(
        selection.ranges[axis] == range(field.shape[axis]) and not selection.dropped[axis]
        for axis in space
    )
    if not whole:
        msg = "a PencilArray can only be assigned to whole fields, like u[...] = v or u[0, ...] = v"
        raise ArgumentError(msg)
    check_fits(value.singletons, field, pencil)


def check_fits(singletons: frozenset[int], out: PencilArray, pencil: Pencil) -> None:
    narrow = out.singletons - singletons
    if narrow:
        msg = (
            f"values that vary along dimensions {sorted(narrow)} do not fit into a field that has "
            f"extent 1 there (shape {out.shape} on a pencil of shape {pencil.shape})"
        )
        raise ArgumentError(msg)


def everywhere(pencil: Pencil) -> frozenset[int]:
    return frozenset(range(pencil.ndim))


def _does_not_broadcast(
    given: tuple[int, ...], shape: tuple[int, ...], local: tuple[int, ...]
) -> str:
    hint = (
        "; it fits the own block: write u.local for that" if given[-len(local) :] == local else ""
    )
    return (
        f"NumPy data of shape {given} are taken as global and do not broadcast to the global shape "
        f"{shape}{hint}"
    )
