"""Pictures of what a file holds, without a parallel run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pencils.comm.mpi import MPI
from pencils.distribute.localgrid import localgrid
from pencils.distribute.partition import partition
from pencils.io.show import read_plane
from pencils.pencil import Pencil
from pencils.tools.plot.slices import plot_slice

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_file(
    path: str | os.PathLike[str],
    name: str,
    axis: int | None = None,
    index: int | None = None,
    *,
    at: Sequence[int] | int | None = None,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw a plane of a dataset in colours, or a line of it; local.

    Only the points that are shown are read. Nothing is communicated: call it on one rank, or after
    the run.

    Parameters
    ----------
    path : str or os.PathLike
        A checkpoint, the file of a `TimeSeries`, or any HDF5 file.
    name : str
        The dataset, of real numbers.
    axis, index : int, optional
        The axis across the plane and the index along it. Default: the last axis of 3 dimensions,
        and the middle. Axes are counted without times and components.
    at : int or sequence of int, optional
        Indices of the axes in front of those of space: time, if it is a series, and components.
        Default: the last time, and the first components.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: in a new figure.
    **options
        For `matplotlib.axes.Axes.pcolormesh`, or ``plot`` if a line is drawn.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ArgumentError
        If there is no such dataset, plane, or component, or it has no real numbers.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> from pencils.tools.plot import plot_file
    >>> pen = pencils.Pencil((16, 12, 8))
    >>> x, y, z = pencils.localgrid(pen, [np.linspace(0, 1, n) for n in pen.shape])
    >>> pencils.save("state.h5", {"u": x * y + z})
    >>> plot_file("state.h5", "u", axis=1, index=0).get_title()
    'u, dim1_12 = 0'
    """
    plane = read_plane(os.fspath(path), name, axis, index, at)
    pencil = Pencil(plane.values.shape, MPI.COMM_SELF)
    grid = localgrid(pencil, plane.points, names=plane.names)
    drawn = plot_slice(partition(pencil, plane.values), grid=grid, ax=ax, **options)
    assert drawn is not None  # this is the only rank
    drawn.set_title(plane.title)
    return drawn
