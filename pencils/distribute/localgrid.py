"""Coordinates of rectilinear grids, as fields that broadcast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from pencils.array.allocation import Array, plain_array
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.distribute.partition import partition, readable
from pencils.errors import ArgumentError
from pencils.layout.integers import as_ints
from pencils.pencil import Pencil


@dataclass(frozen=True, repr=False, eq=False)
class LocalGrid:
    """Coordinates of a rectilinear grid, each a field that varies along one dimension.

    They broadcast against each other and against full fields: ``u = grid.x + 2 * grid.y``.

    Attributes
    ----------
    pencil : Pencil
        The decomposed grid.
    names : tuple of str
        Names of the coordinates, by dimension.
    axes : tuple of numpy.ndarray
        Global coordinates along each dimension, as given.
    """

    pencil: Pencil
    names: tuple[str, ...]
    axes: tuple[Array, ...]
    _fields: tuple[PencilArray, ...]

    def coords(self, index: Sequence[int]) -> tuple[Any, ...]:
        """Return the coordinates of the point with global `index`, on any rank.

        Raises
        ------
        IndexError
            If the index lies outside the global shape.
        """
        here = as_ints("index", index)
        self.pencil.owner(here)
        return tuple(points[i] for points, i in zip(self.axes, here, strict=True))

    def __getattr__(self, name: str) -> PencilArray:
        if name.startswith("_"):  # not set yet, while copy or pickle makes this object
            raise AttributeError(name)
        if name not in self.names:
            raise AttributeError(
                f"this grid has coordinates {', '.join(self.names)}, but no {name!r}"
            )
        return self._fields[self.names.index(name)]

    @overload
    def __getitem__(self, key: int) -> PencilArray: ...
    @overload
    def __getitem__(self, key: tuple[int, ...]) -> tuple[Any, ...]: ...
    def __getitem__(self, key: int | tuple[int, ...]) -> PencilArray | tuple[Any, ...]:
        """Return the coordinate along one dimension, or with ``(i, j, k)`` those of one point."""
        return self.coords(key) if isinstance(key, tuple) else self._fields[key]

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[PencilArray]:
        return iter(self._fields)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names]

    def __repr__(self) -> str:
        ranges = []
        for name, points in zip(self.names, self.axes, strict=True):
            ends = (
                [format(x, "g") if isinstance(x, np.inexact) else str(x) for x in points[[0, -1]]]
                if len(points)
                else []
            )
            ranges.append(f"{name} [{' .. '.join(ends)}]")
        return f"<LocalGrid {', '.join(ranges)}>\n  on {self.pencil!r}"


def localgrid(
    pencil: Pencil, axes: Sequence[Any], *, names: Sequence[str] | None = None
) -> LocalGrid:
    """Distribute the coordinates of a rectilinear grid.

    Every rank passes the same global coordinates; nothing is communicated.

    Parameters
    ----------
    pencil : Pencil
        The decomposed grid.
    axes : sequence of array_like
        For each dimension its global coordinates, one number per point.
    names : sequence of str, optional
        Attribute names; default ``x, y, z, w``, or ``x0, x1, ...`` beyond four dimensions.

    Returns
    -------
    LocalGrid
        ``grid.x``, ``grid[0]`` and ``x, y, z = grid`` give the coordinates as fields,
        ``grid.coords((i, j, k))``, or ``grid[i, j, k]``, those of one point.

    Raises
    ------
    ArgumentError
        If the number of axes, their lengths or the names do not fit the pencil.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> pen = pencils.Pencil((5, 3))
    >>> grid = pencils.localgrid(pen, (np.linspace(0, 1, 5), np.linspace(-1, 1, 3)))
    >>> u = grid.x + 2 * grid.y
    >>> u.shape, grid.coords((4, 0))
    ((5, 3), (np.float64(1.0), np.float64(-1.0)))
    """
    check_type("pencil", pencil, Pencil)
    points = [plain_array(readable(axis)[...]) for axis in axes]
    if [axis.shape for axis in points] != [(extent,) for extent in pencil.shape]:
        shapes = [axis.shape for axis in points]
        raise ArgumentError(
            f"axes of shapes {shapes} do not fit {pencil!r}: give one 1-D array for each "
            f"dimension, of {', '.join(map(str, pencil.shape))} coordinates"
        )
    default = "xyzw" if pencil.ndim <= len("xyzw") else [f"x{dim}" for dim in range(pencil.ndim)]
    chosen: tuple[Any, ...] = tuple(default[: pencil.ndim] if names is None else names)
    taken = {*dir(LocalGrid), *LocalGrid.__dataclass_fields__}
    good = [
        isinstance(name, str) and name.isidentifier() and name[0] != "_" and name not in taken
        for name in chosen
    ]
    if len(set(chosen)) != pencil.ndim or not all(good):
        raise ArgumentError(
            f"names={chosen} must be {pencil.ndim} different identifiers that do not start with _ "
            "and are not those of methods"
        )
    fields = tuple(partition(pencil, axis, dims=dim) for dim, axis in enumerate(points))
    return LocalGrid(pencil, chosen, tuple(points), fields)
