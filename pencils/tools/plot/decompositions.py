"""Pictures of decompositions: which rank has which block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from pencils.array.operands import check_type
from pencils.errors import ArgumentError
from pencils.layout import Box, Layout, redistribution
from pencils.layout.halo import ghost_box
from pencils.layout.integers import as_int
from pencils.pencil import Pencil
from pencils.tools.planning.tuning import Tuning
from pencils.tools.plot.figures import (
    SOLID,
    Color,
    check_axes,
    check_drawable,
    color_of,
    lightened,
    new_axes,
    new_pair,
    set_ticks,
    settle,
    write_labels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BLOCKS = 4096  # more are no picture any more
_WIDE = 30  # blocks along a dimension; edges between more of them are thinner than a point
_THICKNESS = 2  # a thin box is drawn as thick as this part of its length


class _Part(NamedTuple):
    """A box, and the rank whose block or colour it is."""

    box: Box
    rank: int


def plot_decomposition(pencil: Pencil | Layout, *, halo: int = 0, ax: Axes | None = None) -> Axes:
    """Draw which rank has which block, in colours of the ranks.

    Nothing is communicated: each rank can draw the picture, and a layout of any number of ranks
    needs no MPI. Dimension 0 is horizontal. Blocks are labelled with their rank and indices, as far
    as there is room; of replicas, the one of the lowest rank is shown.

    Parameters
    ----------
    pencil : Pencil or Layout
        What is drawn, with 1 to 3 dimensions.
    halo : int, optional
        Width of ghosts, shown by dashed lines around each block; not in 3 dimensions.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: in a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ArgumentError
        If there are more than 3 dimensions or 4096 blocks, or `ax` does not suit the dimensions.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> from pencils.tools.plot import plot_decomposition
    >>> ax = plot_decomposition(build_layout((48, 32), 6, decomp=(0, 1)), halo=1)
    >>> len(ax.patches)
    6
    """
    layout = _layout_of(pencil)
    width = as_int("halo", halo, least=0)
    check_drawable(layout.ndim, "the pencil")
    if ax is None:
        ax = new_axes(layout.ndim)
    check_axes(ax, layout.ndim)
    blocks = _blocks(layout)
    _draw(ax, layout, blocks)
    if width and layout.ndim < SOLID:
        widths = [(width, width)] * layout.ndim
        ghosts = [ghost_box(box, layout.shape, layout.periodic, widths) for box, _ in blocks]
        _outline(ax, ghosts, linestyle="--", edgecolor="black", linewidth=0.8)
        ax.set_xlim(*_limits(ghosts, 0))
        if layout.ndim > 1:
            ax.set_ylim(*_limits(ghosts, 1))
    ax.set_title(_title(layout, len(blocks)))
    _label(ax, layout, blocks)
    return ax


def plot_redistribution(
    source: Pencil | Layout, target: Pencil | Layout, *, axes: Sequence[Axes] | None = None
) -> tuple[Axes, Axes]:
    """Draw a field before and after it moves to another pencil, as a transpose does.

    Colours are those of the ranks that have the points before, and numbers are ranks. Nothing is
    communicated.

    Parameters
    ----------
    source, target : Pencil or Layout
        Of one shape, with 1 to 3 dimensions.
    axes : sequence of matplotlib.axes.Axes, optional
        Where to draw the two pictures. Default: in a new figure.

    Returns
    -------
    tuple of matplotlib.axes.Axes
        Those of the picture before, and of the one after.

    Raises
    ------
    ArgumentError
        If the shapes differ, there are more than 3 dimensions or 4096 blocks, or `axes` are not two
        that suit the dimensions.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> from pencils.tools.plot import plot_redistribution
    >>> rows = build_layout((32, 32), 4, decomp=0)
    >>> before, after = plot_redistribution(rows, build_layout((32, 32), 4, decomp=1))
    >>> len(after.patches)  # each rank gets a part from each
    16
    """
    one, other = _layout_of(source), _layout_of(target)
    check_drawable(one.ndim, "the pencil")
    if axes is not None and len(axes) != 2:  # noqa: PLR2004
        raise ArgumentError(f"axes are {len(axes)}; pass two, for before and after")
    blocks = _blocks(other)
    parts = [
        _Part(message.box, message.source)
        for _, rank in blocks
        for message in redistribution(one, other, None, rank)[1]
    ]
    left, right = axes if axes is not None else new_pair(one.ndim)
    plot_decomposition(one, ax=left)
    check_axes(right, other.ndim)
    _draw(right, other, parts)
    if other.ndim < SOLID:
        _outline(right, [box for box, _ in blocks], edgecolor="black", linewidth=1.2)
    right.set_title(f"{_title(other, len(blocks))},\ncolours of the ranks before")
    _label(right, other, blocks)
    return left, right


def _layout_of(pencil: object) -> Layout:
    layout = pencil.layout if isinstance(pencil, Pencil) else pencil
    if not isinstance(layout, Layout):
        raise TypeError(f"expected a Pencil or a Layout, not {type(pencil).__name__}")
    return layout


def _blocks(layout: Layout) -> list[_Part]:
    """List blocks with points, and their ranks; of replicas the first."""
    if layout.size > MOST_BLOCKS:
        raise ArgumentError(f"there are {layout.size} blocks; a picture shows up to {MOST_BLOCKS}")
    ranks = filter(layout.is_first_replica, range(layout.size))
    return [_Part(box, rank) for rank in ranks if (box := layout.box(rank)).volume]


def _label(ax: Any, layout: Layout, blocks: Sequence[_Part]) -> None:
    """Label dimensions with bounds, and blocks with ranks and, in a plane, indices."""
    settle(ax)
    for name, split in zip("xyz", layout.splits, strict=False):
        cuts = sorted({bound for part in range(split.parts) for bound in split.bounds(part)})
        set_ticks(ax, name, cuts)
    if layout.ndim == SOLID:
        seen = [(place, rank) for box, rank in blocks if (place := _front(box, layout.shape))]
        write_labels(ax, [place for place, _ in seen], [str(rank) for _, rank in seen])
        return
    write_labels(
        ax,
        [_rectangle(box).get_center() for box, _ in blocks],
        [_named(block, ", ") for block in blocks],
        [_named(block, "\n") for block in blocks],
        [str(rank) for _, rank in blocks],
        rooms=[_rectangle(box).get_bbox().size for box, _ in blocks],
    )


def _named(block: _Part, gap: str) -> str:
    """Return the number of a rank and the indices that it has."""
    box, rank = block
    ranges = [f"{lo}:{hi}" for lo, hi in zip(box.start, box.stop, strict=True)]
    return f"rank {rank}\n{gap.join(ranges)}"


def _title(layout: Layout, blocks: int) -> str:
    grid = " × ".join(map(str, layout.grid.shape)) or "1"
    shape = " × ".join(map(str, layout.shape))
    idle = layout.size - blocks
    ranks = "rank" if layout.size == 1 else "ranks"
    return f"{shape} points on {grid} {ranks}" + (f", {idle} of them without points" * bool(idle))


def _draw(ax: Any, layout: Layout, parts: Sequence[_Part]) -> None:
    draw = _draw_solids if layout.ndim == SOLID else _draw_rectangles
    draw(ax, parts)
    names = "xyz"[: layout.ndim]
    for dim, (name, split) in enumerate(zip(names, layout.splits, strict=True)):
        getattr(ax, f"set_{name}lim")(0, split.points)
        getattr(ax, f"set_{name}label")(f"dimension {dim}")
    if layout.ndim == 1:
        ax.set_ylim(0, 1)
        ax.set_yticks([])
    elif layout.ndim == SOLID:
        thinnest = max(layout.shape) / _THICKNESS
        ax.set_box_aspect([max(n, thinnest) for n in layout.shape])
    else:
        ax.set_aspect("equal", adjustable="box")


def _limits(boxes: Sequence[Box], dim: int) -> tuple[int, int]:
    """Return the range of a dimension in which boxes lie."""
    starts, stops = [box.start[dim] for box in boxes], [box.stop[dim] for box in boxes]
    return min(starts, default=0), max(stops, default=1)


def _rectangle(box: Box, **style: Any) -> Rectangle:
    """Return the picture of a box; one dimension has no height."""
    (x, *y), (width, *height) = box.start, box.shape
    return Rectangle((x, y[0] if y else 0), width, height[0] if height else 1, **style)


def _draw_rectangles(ax: Axes, parts: Sequence[_Part]) -> None:
    edges = {"edgecolor": "white", "linewidth": _edge_width(parts)}
    for box, rank in parts:
        ax.add_patch(_rectangle(box, facecolor=lightened(color_of(rank), 0.45), **edges))


def _edge_width(parts: Sequence[_Part]) -> float:
    """Return the width of lines between boxes: white edges would hide many thin boxes."""
    starts = zip(*(box.start for box, _ in parts), strict=True)
    return min(1.0, _WIDE / max(map(len, map(set, starts)), default=1))


def _outline(ax: Axes, boxes: Iterable[Box], **style: Any) -> None:
    """Draw lines around boxes."""
    patches = [_rectangle(box) for box in boxes]
    ax.add_collection(PatchCollection(patches, facecolor="none", **style))


def _draw_solids(ax: Any, parts: Sequence[_Part]) -> None:
    """Draw boxes in perspective, with some room between them."""
    edges = {"edgecolor": "white", "linewidth": _edge_width(parts)}
    for box, rank in parts:
        color: Color = (*lightened(color_of(rank), 0.3)[:3], 0.75)
        ax.add_collection3d(Poly3DCollection(_faces(*_ends(box)), facecolor=color, **edges))


def _ends(box: Box) -> tuple[list[float], list[float]]:
    """Return the ends of what is drawn of a box along each dimension."""
    room = [0.06 * n for n in box.shape]
    low = [start + r for start, r in zip(box.start, room, strict=True)]
    return low, [stop - r for stop, r in zip(box.stop, room, strict=True)]


def _front(box: Box, shape: Sequence[int]) -> list[float] | None:
    """Return the middle of a side that can be seen; None if other boxes hide all sides.

    Seen from the usual place are low indices of dimension 1, and high ones of the others.
    """
    low, high = _ends(box)
    middle = [(lo + hi) / 2 for lo, hi in zip(low, high, strict=True)]
    if box.start[1] == 0:
        return [middle[0], low[1], middle[2]]
    if box.stop[2] == shape[2]:
        return [*middle[:2], high[2]]
    if box.stop[0] == shape[0]:
        return [high[0], *middle[1:]]
    return None


def _faces(low: Sequence[float], high: Sequence[float]) -> list[list[tuple[float, ...]]]:
    """List the corners of the six sides of a box."""
    corners = list(product(*zip(low, high, strict=True)))
    around = (0, 1, 3, 2)  # corners of a side, one after the other
    sides = []
    for dim, ends in product(range(SOLID), (low, high)):
        side = [corner for corner in corners if corner[dim] == ends[dim]]
        sides.append([side[number] for number in around])
    return sides


_MOST = 4  # times as long as the fastest one: darker colours would hide other differences


def plot_tuning(tuning: Tuning, *, ax: Axes | None = None) -> Axes:
    """Draw the times of each method on each process grid as a heat map; local.

    Parameters
    ----------
    tuning : Tuning
        What `tune` has returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. There is a row for each step on each grid, and a column for each method; colours
        are times divided by the shortest one of the row, and numbers are milliseconds.

    Raises
    ------
    TypeError
        If `tuning` is no `Tuning`.

    Examples
    --------
    >>> import pencils
    >>> rows = pencils.Pencil((16, 16), decomp=0)
    >>> found = pencils.tune([rows, rows.with_(decomp=1)], show=False)
    >>> ax = plot_tuning(found)
    >>> len(ax.get_xticklabels()) == len(found.rows)
    True
    """
    check_type("tuning", tuning, Tuning)
    cases = list(dict.fromkeys((row.grid, row.step) for row in tuning.rows))
    methods = list(dict.fromkeys(row.method for row in tuning.rows))
    seconds = np.full((len(cases), len(methods)), np.nan)
    for row in tuning.rows:
        seconds[cases.index((row.grid, row.step)), methods.index(row.method)] = row.seconds
    slower = seconds / np.nanmin(seconds, axis=1, keepdims=True)
    axes = new_axes(2) if ax is None else ax
    image = axes.imshow(slower, cmap="YlOrRd", vmin=1, vmax=_MOST, aspect="auto")
    for (y, x), value in np.ndenumerate(seconds):
        shade = "white" if slower[y, x] > (1 + _MOST) / 2 else "black"
        axes.text(x, y, f"{1e3 * value:.3g}", ha="center", va="center", color=shade)
    axes.set_xticks(range(len(methods)), methods)
    labels = [f"{' x '.join(map(str, grid))}, {step} to {step + 1}" for grid, step in cases]
    axes.set_yticks(range(len(cases)), labels)
    axes.set_ylabel("process grid, step")
    axes.set_title("milliseconds of a transpose")
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.colorbar(image, ax=axes, extend="max", label="times as long as the fastest method")
    return axes
