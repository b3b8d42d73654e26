"""Texts in pictures that do not lie over each other: of several labels, those that have room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from mpl_toolkits.mplot3d.proj3d import proj_transform
from numpy.typing import NDArray

Place: TypeAlias = Sequence[float] | NDArray[np.float64]

_MOST = 64  # labels in one picture
_MOST_TICKS, _MOST_TICKS_OF_SOLIDS = 12, 5  # along an axis
_ROOM = 1.1  # of the size of a label: between it and the next one
_SIZE = "small"


def settle(ax: Any) -> None:
    """Put axes where they will be in their figure, before labels are measured."""
    if ax.name == "3d":  # the layout would be that of limits that were drawn before
        ax.M = ax.get_proj()
    ax.figure.canvas.figure.draw_without_rendering()


def write_labels(ax: Any, places: Sequence[Place], *kinds: Sequence[str], rooms: Any = ()) -> None:
    """Write at each place its label of the first kind that all fit into their rooms.

    Rooms are widths and heights. If no kind fits, those of the last one are written, of which so
    many are left out that the others do not overlap.
    """
    for labels in kinds if 0 < len(rooms) <= _MOST else ():
        texts = _write(ax, places, labels)
        pixels = ax.transData.transform(rooms) - ax.transData.transform((0, 0))
        sizes = [box.size for box in extents(ax, texts)]
        if np.all(sizes <= pixels):
            return
        _remove(texts)
    for step in steps(len(places), _MOST):
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
