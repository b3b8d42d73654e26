"""Where points of a layout live: their owner and their place in its block, by arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from pencils.comm.rows import Ints, Points
from pencils.comm.rows import locate as locate_points
from pencils.layout import Layout
from pencils.layout.split import Split


def locate(layout: Layout, coords: Sequence[Ints], parts: Sequence[int]) -> tuple[Ints, Ints]:
    """Find points by their global coordinates.

    Costs memory for the points, and for one number for each process along a dimension.

    Parameters
    ----------
    layout : Layout
        Where all points live.
    coords : sequence of numpy.ndarray
        Coordinates along every dimension, within the global shape.
    parts : sequence of int
        Which of the processes along each dimension to take where all have the same points.

    Returns
    -------
    owners, offsets : numpy.ndarray
        Rank that owns each point, and its number in the own block there, in memory order.

    Examples
    --------
    >>> from pencils.layout import make_layout
    >>> layout = make_layout((4, 6), 4, decomp=(0, 1), grid=(2, 2))
    >>> locate(layout, [np.array([0, 3]), np.array([1, 5])], (0, 0))
    (array([0, 3]), array([1, 5]))
    """
    return locate_points(points_on(layout, coords, parts))


def points_on(layout: Layout, coords: Sequence[Ints], parts: Sequence[int]) -> Points:
    """Describe points, dimensions in memory order; see `locate`.

    Where all processes along a dimension have the same points, it looks as if it were not cut.
    """
    steps = dict(zip(layout.decomp, layout.grid.strides, strict=True))
    whole = [split.replicated or split.parts == 1 for split in layout.splits]
    first = sum(parts[dim] * step for dim, step in steps.items() if whole[dim])
    return Points(
        tuple(coords[dim] for dim in layout.order),
        tuple(cuts_of(layout.splits[dim]) for dim in layout.order),
        tuple(0 if whole[dim] else steps[dim] for dim in layout.order),
        first,
    )


def cuts_of(split: Split) -> Ints:
    """Where the blocks along a dimension begin, and where the last one ends."""
    if split.replicated:
        return np.array([0, split.points])
    return np.array([*(split.bounds(part)[0] for part in range(split.parts)), split.points])


def locate_replicas(layout: Layout, coords: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Find all replicas of points; see `locate`: the first ones of all points, then the second.

    Examples
    --------
    >>> from pencils.layout import make_layout
    >>> layout = make_layout((4, 6), 4, decomp=(0, 1), grid=(2, 2)).with_singletons([1])
    >>> locate_replicas(layout, [np.array([0, 3]), np.array([0, 0])])
    (array([0, 2, 1, 3]), array([0, 1, 0, 1]))
    """
    owners, offsets = locate(layout, coords, (0,) * layout.ndim)
    along = [
        range(extent if axis in layout.replicated_axes else 1)
        for axis, extent in enumerate(layout.grid.shape)
    ]
    steps = np.array([layout.grid.rank(step) for step in product(*along)])
    return (steps[:, None] + owners).reshape(-1), np.tile(offsets, len(steps))
