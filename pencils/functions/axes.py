"""Axes of fields: how each is cut, and which ranks have the other blocks along it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pencils.array.base import Field
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dim
from pencils.layout.split import Split
from pencils.layout.whole import is_whole

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Line(NamedTuple):
    """One axis of a field, components included.

    Attributes
    ----------
    split : Split
        How the axis is cut: in one part if it is not decomposed, or replicated.
    part : int
        The part of this rank.
    stride : int
        Step in rank to the next part; 0 if there is one only.
    """

    split: Split
    part: int
    stride: int

    @classmethod
    def of(cls, u: Field, axis: int) -> Line:
        """Return an axis of a field; local."""
        dim = axis - len(u.components)
        if dim < 0:
            return cls(Split(u.components[axis], 1), 0, 0)
        layout = u.extent.layout
        split = layout.splits[dim]
        if split.parts == 1 or split.replicated:
            return cls(Split(split.points, 1), 0, 0)
        return cls(split, layout.parts(u.pencil.rank)[dim], layout.strides[dim])

    @property
    def is_cut(self) -> bool:
        """Whether there is more than one part."""
        return self.split.parts > 1

    @property
    def bounds(self) -> tuple[int, int]:
        """First own index and the one after the last."""
        return self.split.bounds(self.part)

    @property
    def filled(self) -> list[int]:
        """Parts that have points."""
        bounds = map(self.split.bounds, range(self.split.parts))
        return [part for part, (start, stop) in enumerate(bounds) if start < stop]


def decomposed_axes(u: Field) -> set[int]:
    """Axes that are decomposed: the same on any number of ranks, one included."""
    lead = len(u.components)
    return {lead + dim for dim in u.pencil.decomp if dim not in u.singletons}


def axes_of_cut_lines(u: Field) -> set[int]:
    """Axes along which no rank has whole lines, as `Pencil.whole` understands it.

    They are decomposed, without explicit bounds that give all points to one rank.
    """
    lead, layout = len(u.components), u.pencil.layout
    return {axis for axis in decomposed_axes(u) if not is_whole(layout, axis - lead)}


def along(u: Field, axis: int) -> MPI.Intracomm:
    """Communicator of the ranks along a decomposed axis; their ranks are the parts.

    *Collective* over all ranks of the field the first time.
    """
    layout = u.extent.layout
    dim = axis - len(u.components)
    return u.pencil.topology.along(layout.grid, [layout.decomp.index(dim)])


def one_axis(call: str, u: Field, axis: object) -> int:
    """Return the number of one axis; the axis may be left out if there is only one."""
    if axis is not None:
        return as_dim("axis", axis, u.ndim)
    if u.ndim != 1:
        raise ArgumentError(
            f"{call} without axis= would go through a field of shape {u.shape} as one flattened "
            f"line, across all blocks; give axis=, one of 0..{u.ndim - 1}"
        )
    return 0
