"""Lists and masks of components: ``V[[0, 2]]``, ``T[:, [True, False, True], 1:-1]``, `numpy.take`.

Component axes are whole on every rank, hence all of NumPy's indices work there, and nothing is
communicated. What they select is a copy, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.errors import ArgumentError

F = TypeVar("F", bound=Field)

_WHOLE = slice(None)


class Picks(NamedTuple):
    """Components that a key selects by lists or masks, and the key of space."""

    components: NDArray[np.intp]  # of each new component, its position among all old ones
    space: tuple[Any, ...]  # one entry for each dimension

    def blank(self, section: F) -> F:
        """Make a field for the selected components of a section, with the same halo."""
        frame = section.frame
        shape = frame.shape_of(self.components.shape, section.dtype)
        return section.in_frame(section.pencil, frame, frame.make(shape, section.dtype))

    def load(self, section: F) -> F:
        """Copy the selected components of a section, halo included."""
        new = self.blank(section)
        for index, place in self._pairs(section):
            new.padded[index] = section.padded[place]
        return new

    def store(self, section: Field, new: Field) -> None:
        """Copy all components of a field to where they were selected; of several, the last one."""
        for index, place in self._pairs(section):
            section.local[place] = new.local[index]
        section.mark_written()

    def _pairs(self, section: Field) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """Yield the index of each selected component, and its index in the section."""
        for index, position in np.ndenumerate(self.components):
            yield index, np.unravel_index(position, section.components)


def find_picks(u: Field, key: object) -> Picks | None:
    """Read a key that has lists or arrays for component axes; None if it has none.

    Raises
    ------
    IndexError
        If there is no such component, or a mask has another shape.
    ArgumentError
        If a mask fits the components as well as the grid.
    """
    entries: list[Any] = list(key) if isinstance(key, tuple) else [key]
    if not u.components or any(_axes_of(one) is None for one in entries):
        return None
    if _is_array(key) and _selects_points(u, np.asarray(key)):
        return None
    dots = [number for number, one in enumerate(entries) if one is Ellipsis] or [len(entries)]
    fill = u.ndim - sum(_axes_of(one) or 0 for one in entries)
    if fill < 0 or len(dots) > 1:
        return None
    entries[dots[0] : dots[0] + 1] = [_WHOLE] * fill
    axes = list(accumulate((_axes_of(one) or 0 for one in entries), initial=0))
    if len(u.components) not in axes:
        return None  # a mask of components and points
    number = axes.index(len(u.components))
    chosen, space = tuple(entries[:number]), tuple(entries[number:])
    if not any(map(_is_array, chosen)) or any(map(_is_array, space)):
        return None
    return Picks(all_components(u)[chosen], space)


def all_components(u: Field) -> NDArray[np.intp]:
    """Return the numbers of all components, in an array of their shape."""
    return np.arange(prod(u.components)).reshape(u.components)


def _is_array(one: object) -> bool:
    return isinstance(one, list | np.ndarray)


def _axes_of(one: object) -> int | None:
    """Count the axes that an entry of a key indexes; None if no key may have it."""
    if one is Ellipsis:
        return 0
    if not _is_array(one):
        return None if one is None else 1
    array = np.asarray(one)
    if array.ndim == 0 or (array.size and array.dtype.kind not in "iub"):
        return None
    return array.ndim if array.dtype == bool else 1


def _selects_points(u: Field, key: Array) -> bool:
    """Whether a list or an array, alone, is a mask of points."""
    if key.dtype != bool:
        return False
    if key.shape != u.components[: key.ndim]:
        return True
    if key.shape == u.pencil.shape:
        raise ArgumentError(
            f"a mask of shape {key.shape} fits the components of the field as well as its points; "
            "write u[[0, 2], ...] for components, and a field of booleans for points"
        )
    return False
