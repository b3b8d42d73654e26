"""Names for the axes of fields, by which tools that know netCDF find their coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from pencils.io.dataset_info import DatasetInfo


def label_axes(entry: DatasetInfo, names: Sequence[str], extents: Sequence[int]) -> tuple[str, ...]:
    """Name the axes of a field for a grid with these coordinates.

    Parameters
    ----------
    entry : DatasetInfo
        The field, or a value that has no components.
    names : sequence of str
        Names of the coordinates.
    extents : sequence of int
        How many of them there are along each dimension.

    Returns
    -------
    tuple of str
        Names that differ from each other: that of the coordinate where the field has as many
        points, others for components, singletons and whatever has another extent.

    Examples
    --------
    >>> import numpy as np
    >>> velocity = DatasetInfo("u", (3, 8, 1), np.dtype(float), components=1)
    >>> label_axes(velocity, ("x", "y"), (8, 6))
    ('component0_3', 'x', 'y_1')
    """
    lead = entry.components or 0
    points = entry.shape[lead:]
    on_grid = entry.components is not None and len(points) == len(names)
    along = names if on_grid else [f"dim{dim}" for dim in range(len(points))]
    labels = [f"component{axis}_{n}" for axis, n in enumerate(entry.shape[:lead])]
    for dim, (name, n) in enumerate(zip(along, points, strict=True)):
        labels.append(name if on_grid and n == extents[dim] else f"{name}_{n}")
    return tuple(labels)
