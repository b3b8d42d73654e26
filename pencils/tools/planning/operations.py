"""What an operation moves on a given layout: its exchanges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from pencils.errors import ArgumentError
from pencils.layout import Layout
from pencils.layout.build import change_layout
from pencils.layout.halo import direct, star
from pencils.layout.integers import as_ints
from pencils.layout.stages import changed_shape, plan_stages, staged
from pencils.tools.planning.counts import Counts, Ints, count_halo, count_redistribution, volumes

_KNOWN = "'fft', 'halo:2' (of width 2), 'halo:2:faces' (without corners) or 'transpose:0,2'"


class Redistribution(NamedTuple):
    """A field moves to another layout."""

    source: Layout
    target: Layout
    itemsize: int

    def sent(self, ranks: Ints, per_node: int) -> Counts:
        """Count what ranks send."""
        return count_redistribution(self.source, self.target, ranks, per_node)

    def memory(self, ranks: Ints, counts: Counts) -> Ints:
        """Return the bytes of the target, and of what is packed to send and to receive."""
        arriving = volumes(self.target, ranks)
        leaving = volumes(self.source, ranks)
        return (leaving + 2 * (arriving - counts.own) + counts.own) * self.itemsize


class HaloRound(NamedTuple):
    """Ghosts are filled in one round, with corners or without."""

    source: Layout
    width: int
    corners: bool
    itemsize: int

    def sent(self, ranks: Ints, per_node: int) -> Counts:
        """Count what ranks send."""
        parts = self.source.process_shape
        cut = [dim for dim, count in enumerate(parts) if count > 1]
        whole = [dim for dim, count in enumerate(parts) if count == 1]
        (faces,) = (direct(cut, whole) if self.corners else star(cut)) or [()]
        return count_halo(self.source, self.width, faces, ranks, per_node)

    def memory(self, ranks: Ints, counts: Counts) -> Ints:
        """Return the bytes of what is packed to send and to receive."""
        halo = volumes(self.source, ranks, self.width) - volumes(self.source, ranks)
        packed: Ints = counts.near[1] + counts.far[1]
        return np.asarray((packed + np.minimum(packed, halo)) * self.itemsize)


Move: TypeAlias = Redistribution | HaloRound


class Operation(NamedTuple):
    """An operation, by the text that names it."""

    text: str
    width: int  # of the halo that it needs
    moves: Callable[[Layout, np.dtype[np.generic]], Sequence[Move]]


def read_operation(text: str) -> Operation:
    """Read the text of an operation.

    Raises
    ------
    ArgumentError
        If it is not known.

    Examples
    --------
    >>> read_operation("halo:2").width
    2
    """
    name, *options = str(text).split(":")
    if name == "fft" and not options:
        return Operation(text, 0, _transform)
    if name == "halo" and options[:1] and options[0].isdecimal() and int(options[0]) > 0:
        width, corners = int(options[0]), options[1:] != ["faces"]
        if not corners or len(options) == 1:
            return Operation(
                text,
                width,
                lambda layout, dtype: [HaloRound(layout, width, corners, dtype.itemsize)],
            )
    dims = options[0].split(",") if name == "transpose" and len(options) == 1 else []
    if dims and all(map(str.isdecimal, dims)):
        return Operation(text, 0, _transpose_to(as_ints("transpose", list(map(int, dims)))))
    raise ArgumentError(f"operation {text!r} is unknown; use {_KNOWN}")


def _transpose_to(decomp: tuple[int, ...]) -> Callable[[Layout, np.dtype[np.generic]], list[Move]]:
    def moves(layout: Layout, dtype: np.dtype[np.generic]) -> list[Move]:
        return [Redistribution(layout, change_layout(layout, decomp=decomp), dtype.itemsize)]

    return moves


def _transform(layout: Layout, dtype: np.dtype[np.generic]) -> list[Move]:
    """List the transposes of a Fourier transform along all dimensions, as `PencilFFT` makes them.

    Real data are halved along the last dimension.
    """
    axes = range(layout.ndim)[::-1]
    first = None if dtype.kind == "c" else axes[0]
    waves = list(layout.shape)
    if first is not None:
        waves[first] = waves[first] // 2 + 1
    moves: list[Move] = []
    here = layout
    for stage in plan_stages(waves, layout.decomp, layout.grid.shape, axes, first=first):
        if moves or stage.decomp != layout.decomp or stage.grid != layout.grid.shape:
            there = staged(here, stage)
            moves.append(Redistribution(here, there, dtype.itemsize))
            here = there
        if first in stage.axes:
            shape = [waves[dim] if dim == first else n for dim, n in enumerate(here.shape)]
            here = changed_shape(here, shape, [first])
            dtype = np.result_type(dtype, "F")
    return moves
