"""Coordinates to be stored, also if they are given as fields, like those that a grid yields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.distribute.gather import gather
from pencils.distribute.localgrid import LocalGrid, localgrid
from pencils.errors import PencilMismatchError

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


def are_fields(grid: object) -> TypeGuard[Sequence[PencilArray]]:
    """Whether coordinates are given as fields, one for each dimension."""
    return (
        isinstance(grid, list | tuple)
        and bool(grid)
        and all(isinstance(one, PencilArray) for one in grid)
    )


def whole_grid(comm: MPI.Intracomm, call: str, grid: Any) -> LocalGrid | None:
    """Make a grid of coordinates given as fields; return anything else. *Collective* if they are.

    Raises
    ------
    ArgumentError, PencilMismatchError
        On every rank, if they are not coordinates along each dimension of one pencil.
    """
    if not are_fields(grid):
        given: LocalGrid | None = grid  # who reads it complains of anything else
        return given
    with agreed(comm, call) as same:
        pencil = grid[0].pencil
        same(grid=[(field.pencil, field.shape, field.dtype) for field in grid])
        ones = (1,) * pencil.ndim
        shapes = [(*ones[:dim], n, *ones[dim + 1 :]) for dim, n in enumerate(pencil.shape)]
        found = [field.shape for field in grid]
        if found != shapes or any(field.pencil != pencil for field in grid):
            msg = (
                f"grid has fields of shapes {found}; coordinates lie on "
                f"one pencil, each along its dimension: {shapes}, as of x, y, z = localgrid(...)"
            )
            raise PencilMismatchError(msg)
    return localgrid(pencil, [gather(field, root=None, dims=dim) for dim, field in enumerate(grid)])
