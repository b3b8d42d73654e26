"""One point of a field, for all ranks: its value, and planes that all ranks are to have."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.frame import frame_of
from pencils.array.operands import signature
from pencils.comm.agree import agreed
from pencils.comm.reduce import native
from pencils.comm.stream import bcast_array
from pencils.errors import ArgumentError
from pencils.layout.integers import as_ints
from pencils.layout.layout import ProcessGrid

F = TypeVar("F", bound=Field)


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
