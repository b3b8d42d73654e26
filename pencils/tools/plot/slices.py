"""Pictures of fields: a line or a plane of points, collected on one rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import check_field, topology_among
from pencils.comm.agree import agreed
from pencils.comm.mpi import MPI
from pencils.distribute.gather import gather
from pencils.distribute.localgrid import localgrid
from pencils.distribute.partition import partition
from pencils.errors import ArgumentError
from pencils.io.show import At, read_plane
from pencils.layout.integers import as_dim, as_index, as_ints, as_rank
from pencils.pencil import Pencil
from pencils.tools.plot.figures import check_axes, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pencils.array.pencil_array import PencilArray
    from pencils.distribute.localgrid import LocalGrid

_FLAT = 2  # dimensions of a picture
_SOLID = 3
_BAR = 20  # height divided by width of a colour bar; its width follows from that of the picture
_SIGNED = 0.05  # a field has both signs if the smaller extreme is this part of the larger one


def plot_slice(
    u: PencilArray,
    axis: int | None = None,
    index: int | None = None,
    *,
    component: Sequence[int] | int = (),
    grid: LocalGrid | None = None,
    ax: Axes | None = None,
    root: int = 0,
    **options: Any,
) -> Axes | None:
    """Draw a plane of a field in colours, or a field of one dimension as a line. *Collective*.

    Only the points that are shown travel, to one rank, which draws them. Of the dimensions that
    remain, the first one is horizontal. A line along a periodic dimension is closed.

    Parameters
    ----------
    u : PencilArray
        A real field of 1 to 3 dimensions.
    axis, index : int, optional
        In 3 dimensions, or in 2 to draw a line: the axis across the slice, and the global index
        along it. Default: the last axis of 3 dimensions, and the middle. Axes are counted without
        components.
    component : int or sequence of int, optional
        Which component is drawn, if the field has some.
    grid : LocalGrid, optional
        Coordinates for the axes. Default: indices.
    ax : matplotlib.axes.Axes, optional
        Where to draw, on `root`. Default: in a new figure.
    root : int, optional
        The rank that draws, default 0.
    **options
        For `matplotlib.axes.Axes.pcolormesh`, or ``plot`` if a line is drawn; ``label`` names the
        field at the colour bar, or at the axis of its values. Default colours diverge from zero if
        the values have both signs.

    Returns
    -------
    matplotlib.axes.Axes or None
        The axes; None on ranks other than `root`.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if the slice has not 1 or 2 dimensions, there is no such axis, index or
        component, the field is complex, or `ax` does not suit it. Errors of Matplotlib, too, are
        raised on every rank.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> from pencils.tools.plot import plot_slice
    >>> pen = pencils.Pencil((16, 12, 8))
    >>> grid = pencils.localgrid(pen, [np.linspace(0, 1, n) for n in pen.shape])
    >>> ax = plot_slice(grid.x * grid.y + grid.z, axis=2, grid=grid, label="heat", cmap="magma")
    >>> ax.get_title(), ax.figure.axes[1].get_ylabel()
    ('z = 0.571', 'heat')
    """
    comm = topology_among(u).comm
    with agreed(comm, "plot_slice") as agree:
        check_field("u", u)
        root = as_rank("root", root, u.pencil.size)
        lead = as_ints("component", component)
        shown = _Slice(u, axis, index, lead, grid)
        agree(root=root, component=lead, axis=shown.axis, index=shown.index)
        if ax is not None:
            check_axes(ax, len(shown.dims))
    values = gather(u, root, key=shown.key)
    with agreed(comm, "plot_slice"):  # the root may get options that Matplotlib does not know
        if values is None:
            return None
        ax = new_axes(len(shown.dims), shown.aspect) if ax is None else ax
        shown.draw(ax, values, options)
    return ax


class _Slice:
    """Which points are drawn, and how they are named."""

    def __init__(
        self,
        u: PencilArray,
        axis: int | None,
        index: int | None,
        component: tuple[int, ...],
        grid: LocalGrid | None,
    ) -> None:
        ndim = u.pencil.ndim
        shape = u.shape[len(u.components) :]
        if u.dtype.kind == "c":
            raise TypeError("the field is complex; draw u.real, u.imag or abs(u)")
        if len(component) != len(u.components):
            raise ArgumentError(
                f"component={component}, but the field has components of shape {u.components}; "
                "pass an index for each of their axes"
            )
        if axis is None and ndim == _SOLID:
            axis = _SOLID - 1
        if axis is None and index is not None:
            raise ArgumentError(f"index={index} without axis=; pass both")
        self.axis = None if axis is None else as_dim("axis", axis, ndim)
        self.index = None if self.axis is None else as_index("index", index, shape[self.axis])
        self.dims = [dim for dim in range(ndim) if dim != self.axis]
        if not 1 <= len(self.dims) <= _FLAT:
            raise ArgumentError(
                f"a slice of {len(self.dims)} dimensions cannot be drawn; pass a section of 1 to 3"
            )
        alike = u.singletons & set(self.dims)
        if alike:
            raise ArgumentError(f"the field is the same along {sorted(alike)}: pass this as axis=")
        if grid is not None and grid.pencil.shape != u.pencil.shape:
            raise ArgumentError(
                f"grid has shape {grid.pencil.shape}, but the field {u.pencil.shape}"
            )
        self._names = grid.names if grid else [f"index {dim}" for dim in range(ndim)]
        self._points = grid.axes if grid else [np.arange(n) for n in shape]
        self._is_flat = self.axis in u.singletons
        self._is_ring = len(self.dims) == 1 and u.pencil.periodic[self.dims[0]]
        across: list[slice | int] = [slice(None)] * ndim
        if self.axis is not None and self.index is not None:
            across[self.axis] = self.index
        self.key = (*component, *across)

    @property
    def aspect(self) -> float:
        """Height divided by width of the picture."""
        if len(self.dims) == 1:
            return 1.0
        width, height = (float(np.ptp(self._points[dim])) for dim in self.dims)
        return height / width if height and width else 1.0

    def draw(self, ax: Axes, values: Any, options: dict[str, Any]) -> None:
        """Draw values with coordinates."""
        names = [self._names[dim] for dim in self.dims]
        points = [self._points[dim] for dim in self.dims]
        label = options.get("label", "")
        ax.set_xlabel(names[0])
        if len(points) == 1:
            line = _closed(points[0], values) if self._is_ring else (points[0], values)
            ax.plot(*line, **options)
            ax.set_ylabel(label)
        else:
            style = {"shading": "nearest"} | _colors(values, options)
            mesh = ax.pcolormesh(*points, values.T, **style)
            ax.set_ylabel(names[1])
            ax.set_aspect("equal", adjustable="box")
            beyond, form = _beyond(values, mesh.norm), _BAR * max(1, self.aspect)
            ax.figure.colorbar(mesh, ax=ax, label=label, extend=beyond, aspect=form)
        if self.axis is not None and self.index is not None and not self._is_flat:
            at = self._points[self.axis][self.index]
            ax.set_title(f"{self._names[self.axis]} = {at:.3g}")


def _colors(values: Array, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with colours that diverge from zero, if values of both signs have none."""
    if {"cmap", "norm", "vmin", "vmax"} & options.keys():
        return options
    low, high = float(np.min(values, initial=0)), float(np.max(values, initial=0))
    most = max(-low, high)
    if not (np.isfinite(most) and min(-low, high) > _SIGNED * most):
        return options
    return {"cmap": "RdBu_r", "vmin": -most, "vmax": most} | options


def _beyond(values: Array, norm: Any) -> str:
    """Return which ends of a colour bar have values beyond them."""
    below, above = np.any(values < norm.vmin), np.any(values > norm.vmax)
    return ("both" if above else "min") if below else "max" if above else "neither"


def _closed(points: Array, values: Array) -> tuple[Array, Array]:
    """Repeat the first point of a period at its end, if the points have one distance."""
    distances = np.diff(points)
    if not distances.size or not np.allclose(distances, distances[0]):
        return points, values
    return np.append(points, points[-1] + distances[0]), np.append(values, values[0])


def plot_file(
    path: str | os.PathLike[str],
    name: str,
    axis: int | None = None,
    index: int | None = None,
    *,
    at: At = None,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw a plane of a dataset in colours, or a line of it; local.

    Only the points that are shown are read. Nothing is communicated: call it on one rank, or after
    the run.

    Parameters
    ----------
    path : str or os.PathLike
        A checkpoint, the file of a `TimeSeries`, any HDF5 file, or Zarr folder.
    name : str
        The dataset, of real numbers.
    axis, index : int, optional
        The axis across the plane and the index along it. Default: the last axis of 3 dimensions,
        and the middle. Axes are counted without times and components.
    at : mapping of str to float, int or sequence of int, optional
        Where the picture is, by the names of axes: ``{"time": 0.5, "component": 1, "z": 0.25}`` is
        the nearest time, the component 1, and the nearest plane across z. Or the indices of the
        axes in front of those of space: time, if it is a series, and components. Default: the last
        time, and the first components.
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
    >>> grid = pencils.localgrid(pen, [np.linspace(0, 1, n) for n in pen.shape])
    >>> pencils.save("state.h5", {"u": grid.x * grid.y + grid.z}, grid=grid)
    >>> plot_file("state.h5", "u", at={"y": 0.5}).get_title()
    'y = 0.455'
    """
    plane = read_plane(os.fspath(path), name, axis, index, at)
    pencil = Pencil(plane.values.shape, MPI.COMM_SELF)
    grid = localgrid(pencil, plane.points, names=plane.names)
    options = {"label": name} | options
    drawn = plot_slice(partition(pencil, plane.values), grid=grid, ax=ax, **options)
    assert drawn is not None  # this is the only rank
    drawn.set_title(plane.title)
    return drawn
