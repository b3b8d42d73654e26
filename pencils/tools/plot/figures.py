"""Axes to draw in, and colours of ranks."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any

from pencils.errors import ArgumentError
from pencils.libraries import needs

with needs("Matplotlib"):
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes

Color = tuple[float, float, float, float]

_GOLDEN = (5**0.5 - 1) / 2  # steps by it never come close to a colour again


def new_axes(ndim: int) -> Axes:
    """Make a figure with axes for points of 1, 2 or 3 dimensions."""
    figure = plt.figure(layout="constrained")
    made: Axes = figure.add_subplot(projection="3d" if ndim == SOLID else None)
    return made


def new_pair(ndim: int) -> tuple[Axes, Axes]:
    """Make a figure with two axes, side by side."""
    figure = plt.figure(figsize=(9.6, 4.8), layout="constrained")
    projection = "3d" if ndim == SOLID else None
    left, right = (figure.add_subplot(1, 2, place, projection=projection) for place in (1, 2))
    return left, right


def new_panels(number: int) -> list[Axes]:
    """Make a figure with axes one above the other, over one horizontal scale."""
    figure = plt.figure(figsize=(6.4, max(4.8, 0.6 + 1.6 * number)), layout="constrained")
    panels: list[Axes] = list(figure.subplots(number, sharex=True, squeeze=False)[:, 0])
    figure.align_ylabels(panels)
    return panels


SOLID = 3  # dimensions of what is drawn in perspective


def check_drawable(ndim: int, what: str) -> None:
    """Raise if there are too many or too few dimensions for a picture."""
    if not 1 <= ndim <= SOLID:
        raise ArgumentError(f"{what} has {ndim} dimensions, but a picture shows 1 to {SOLID}")


def check_axes(ax: Any, ndim: int) -> None:
    """Raise if axes do not suit the number of dimensions."""
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be axes of Matplotlib, not {ax!r}")
    if (ax.name == "3d") != (ndim == SOLID):
        wanted = "projection='3d'" if ndim == SOLID else "two dimensions"
        raise ArgumentError(f"a picture of {ndim} dimensions takes axes with {wanted}, not {ax!r}")


def save_picture(path: str | os.PathLike[str], ax: Axes | None) -> None:
    """Save and close the figure of axes, on the rank that has them; the others pass None.

    Parameters
    ----------
    path : str or os.PathLike
        The file; its suffix selects the format.
    ax : matplotlib.axes.Axes or None
        What `plot_slice` and others have returned on this rank.

    Raises
    ------
    ArgumentError
        If no picture can have this suffix.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> from pencils.tools.plot import plot_slice, save_picture
    >>> wave = pencils.from_function(pencils.Pencil((16, 12)), lambda i, j: np.sin(i) + j)
    >>> save_picture("wave.png", plot_slice(wave))
    """
    if ax is None:
        return
    figure = ax.figure.canvas.figure  # not a part of one
    suffix = PurePath(path).suffix.lstrip(".").lower()
    kinds = figure.canvas.get_supported_filetypes()
    if suffix and suffix not in kinds:
        raise ArgumentError(f"{path} has none of the suffixes of pictures: {', '.join(kinds)}")
    figure.savefig(path)
    plt.close(figure)


def color_of(rank: int) -> Color:
    """Return the colour of a rank, well apart from those of the ranks before it."""
    red, green, blue, _ = mpl.colormaps["turbo"](0.1 + 0.85 * (rank * _GOLDEN % 1))
    return red, green, blue, 1.0


def lightened(color: Color, share: float) -> Color:
    """Return a colour with a share of white."""
    red, green, blue, alpha = color
    return (
        red + (1 - red) * share,
        green + (1 - green) * share,
        blue + (1 - blue) * share,
        alpha,
    )
