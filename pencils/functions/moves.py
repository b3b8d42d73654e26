"""Functions that move points along axes, with the signatures of NumPy. All are *Collective*.

Each point is sent once, in one exchange, to the rank that has its new place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pencils.array.base import Field
from pencils.errors import ArgumentError
from pencils.functions.axes import one_axis
from pencils.functions.carry import Mappings, carry
from pencils.functions.mappings import Flipped, Rolled
from pencils.layout.integers import as_dims, as_ints
from pencils.plans import Agreement

Function = Callable[..., Any]


def roll(a: Field, shift: Any, axis: int | Sequence[int] | None = None) -> Field:
    """Move points along axes, those at the end to the beginning, as `numpy.roll`. *Collective*.

    One message to each rank that has new places of own points; where the axis is not cut, points
    are copied on their rank. `u.shift` is faster for short ways in loops.

    Parameters
    ----------
    a : PencilArray
        The field. Whether the pencil is periodic does not matter.
    shift : int or sequence of int
        Points by which each axis is moved.
    axis : int or sequence of int, optional
        Axes of the global shape; may be left out if there is only one.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis, or there are more shifts than axes.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 10 * x + y)
    >>> np.roll(u, 1, axis=0).local[:, 0]
    array([30,  0, 10, 20])
    """

    def plan(agree: Agreement) -> list[Mappings]:
        axes = [one_axis("roll", a, None)] if axis is None else as_ints("axis", axis)
        numbers = [as_dims("axis", each, a.ndim)[0] for each in axes]
        pairs = np.broadcast(shift, numbers)
        if pairs.ndim > 1:
            raise ArgumentError(f"shift={shift} must be an integer, or a sequence of them")
        shifts: dict[int, int] = {}
        for step, number in pairs:
            shifts[number] = shifts.get(number, 0) + int(step)
        agree(shifts=shifts)
        return [{number: Rolled(step % max(1, a.shape[number])) for number, step in shifts.items()}]

    return _moved("roll", a, plan)


def flip(m: Field, axis: int | Sequence[int] | None = None) -> Field:
    """Reverse the order of points along axes, as `numpy.flip`. *Collective*.

    One message to each rank that has new places of own points; where the axis is not cut, points
    are copied on their rank.

    Parameters
    ----------
    m : PencilArray
        The field.
    axis : int or sequence of int, optional
        Axes of the global shape; default: all, components included.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo; not a view as in NumPy.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 10 * x + y)
    >>> np.flip(u, axis=0).local[:, 0]
    array([30, 20, 10,  0])
    """

    def plan(agree: Agreement) -> list[Mappings]:
        axes = range(m.ndim) if axis is None else sorted(as_dims("axis", axis, m.ndim))
        agree(axis=axes)
        return [dict.fromkeys(axes, Flipped())]

    return _moved("flip", m, plan)


def fliplr(m: Field) -> Field:
    """Reverse the order of points along axis 1, as `numpy.fliplr`. *Collective*."""
    return flip(m, 1)


def flipud(m: Field) -> Field:
    """Reverse the order of points along axis 0, as `numpy.flipud`. *Collective*."""
    return flip(m, 0)


def _moved(call: str, u: Field, plan: Callable[[Agreement], list[Mappings]]) -> Field:
    (block,) = carry(call, u, plan)
    return u.in_frame(u.pencil, u.frame.bare, block)


FUNCTIONS: dict[Function, Function] = {
    np.roll: roll,
    np.flip: flip,
    np.fliplr: fliplr,
    np.flipud: flipud,
}
