"""Pictures of what `tune` has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pencils.array.operands import check_type
from pencils.tools.plot.figures import new_axes
from pencils.transposition.tune import Tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
