"""Axes to draw in, labels that do not overlap, and colours of ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pencils.errors import ArgumentError
from pencils.errors.missing import needs

with needs("Matplotlib"):
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox
    from mpl_toolkits.mplot3d.proj3d import proj_transform

Color = tuple[float, float, float, float]
Place: TypeAlias = Sequence[float] | NDArray[np.float64]

_MOST_LABELS = 64  # labels in one picture
_MOST_TICKS, _MOST_TICKS_OF_SOLIDS = 12, 5  # along an axis
_ROOM = 1.1  # of the size of a label: between it and the next one
_SIZE = "small"
_WIDTH, _BESIDE = 5.2, 1.2  # inches of axes, and of what is written beside them
_LOWEST, _HIGHEST = 2.0, 4.8  # inches of a figure

_GOLDEN = (5**0.5 - 1) / 2  # steps by it never come close to a colour again


def new_axes(ndim: int, aspect: float = 1.0) -> Axes:
    """Make a figure with axes for points of 1, 2 or 3 dimensions; `aspect` is height / width."""
    solid = ndim == SOLID
    height = np.clip(_WIDTH * aspect + _BESIDE, _LOWEST, _HIGHEST)
    figure = plt.figure(
        figsize=(_WIDTH + _BESIDE, height), layout="constrained" if solid else "compressed"
    )
    made: Axes = figure.add_subplot(projection="3d" if solid else None)
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
    return (red + (1 - red) * share, green + (1 - green) * share, blue + (1 - blue) * share, alpha)


def settle(ax: Any) -> None:
    """Put axes where they will be in their figure, before labels are measured."""
    if ax.name == "3d":  # the layout would be that of limits that were drawn before
        ax.M = ax.get_proj()
    ax.figure.canvas.figure.draw_without_rendering()


def write_labels(ax: Any, places: Sequence[Place], *kinds: Sequence[str], rooms: Any = ()) -> None:
    """Write at each place its label of the first kind that all fit into their rooms.

    Rooms are widths and heights. If no kind fits, labels of the last one are written: every second
    one, every fifth one and so on, until none overlap.
    """
    for labels in kinds if 0 < len(rooms) <= _MOST_LABELS else ():
        texts = _write(ax, places, labels)
        pixels = ax.transData.transform(rooms) - ax.transData.transform((0, 0))
        sizes = [box.size for box in extents(ax, texts)]
        if np.all(sizes <= pixels):
            return
        _remove(texts)
    for step in steps(len(places), _MOST_LABELS):
        texts = _write(ax, places[::step], kinds[-1][::step])
        if not overlapping(extents(ax, texts)):
            return
        _remove(texts)


def set_ticks(ax: Any, name: str, ticks: Sequence[int]) -> None:
    """Set ticks of an axis: as many of these that their labels do not overlap."""
    axis, solid = getattr(ax, f"{name}axis"), ax.name == "3d"
    for step in steps(len(ticks), _MOST_TICKS_OF_SOLIDS if solid else _MOST_TICKS):
        axis.set_ticks(ticks[::step])
        # In 3 dimensions labels get their places when they are drawn.
        if solid or not overlapping([text.get_window_extent() for text in axis.get_ticklabels()]):
            return


def steps(number: int, most: int) -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20 and so on, from that of which `number` has at most `most` multiples.

    Examples
    --------
    >>> list(steps(300, 64))
    [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    """
    for power in range(len(str(number)) + 1):
        for digit in (1, 2, 5):
            if number <= most * digit * 10**power:
                yield digit * 10**power


def extents(ax: Any, texts: Sequence[Text]) -> list[Bbox]:
    """Return where texts are in the figure, in pixels, with some room around them."""
    boxes = [text.get_window_extent() for text in texts]
    if ax.name == "3d":  # there these have their size, but not their place
        boxes = [_moved(ax, text, box) for text, box in zip(texts, boxes, strict=True)]
    return [box.expanded(_ROOM, _ROOM) for box in boxes]


def overlapping(boxes: Sequence[Bbox]) -> bool:
    """Whether any two boxes overlap."""
    return any(one.overlaps(other) for one, other in combinations(boxes, 2))


def _moved(ax: Any, text: Any, box: Bbox) -> Bbox:
    """Move the box of a text in 3 dimensions to where the text is drawn."""
    flat = proj_transform(*text.get_position_3d(), ax.get_proj())[:2]
    x, y = ax.transData.transform(flat)
    return box.translated(x - (box.x0 + box.x1) / 2, y - (box.y0 + box.y1) / 2)


def _write(ax: Any, places: Sequence[Place], labels: Sequence[str]) -> list[Text]:
    style = {"ha": "center", "va": "center", "fontsize": _SIZE, "zorder": 1000}
    return [ax.text(*place, label, **style) for place, label in zip(places, labels, strict=True)]


def _remove(texts: Sequence[Text]) -> None:
    for text in texts:
        text.remove()
