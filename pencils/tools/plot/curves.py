"""Pictures of curves: the spectrum of a field, and numbers over time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pencils.array.operands import check_field, topology_among
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.fft import PencilFFT
from pencils.io.show import read_numbers
from pencils.layout.integers import as_rank
from pencils.tools.plot.figures import check_axes, new_axes, new_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pencils.array.pencil_array import PencilArray


def plot_spectrum(
    u: PencilArray, *, ax: Axes | None = None, root: int = 0, **options: Any
) -> Axes | None:
    """Draw how the energy of a periodic field is distributed over its wave numbers. *Collective*.

    The energy of a wave is half of its squared amplitude; that of all components is added. A point
    of the curve is the sum over a shell of waves: those whose wave number rounds to the same
    integer, where 1 is the wave that fits once into the domain along each dimension. The mean of
    the field, wave number 0, is not drawn.

    Parameters
    ----------
    u : PencilArray
        A field without singletons, real or complex, that is periodic along all dimensions.
    ax : matplotlib.axes.Axes, optional
        Where to draw, on `root`. Default: in a new figure.
    root : int, optional
        The rank that draws, default 0.
    **options
        For `matplotlib.axes.Axes.loglog`.

    Returns
    -------
    matplotlib.axes.Axes or None
        The axes; None on ranks other than `root`.

    Raises
    ------
    ArgumentError
        On every rank, if the field has singletons, or axes do not suit a curve.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> from pencils.tools.plot import plot_spectrum
    >>> pen = pencils.Pencil((16, 16), periodic=True)
    >>> x, y = pencils.localgrid(pen, [np.arange(16) * np.pi / 8] * 2)
    >>> (curve,) = plot_spectrum(np.sin(2 * x) * np.cos(y) + np.cos(4 * y)).lines
    >>> curve.get_ydata()[:4].round(12).tolist()
    [0.0, 0.125, 0.0, 0.25]
    """
    comm = topology_among(u).comm
    with agreed(comm, "plot_spectrum") as agree:
        check_field("u", u)
        root = as_rank("root", root, u.pencil.size)
        agree(root=root)
        if u.singletons:
            raise ArgumentError(
                f"the field is the same along {sorted(u.singletons)}; a spectrum takes a field "
                "that has all points of its pencil"
            )
        if ax is not None:
            check_axes(ax, 1)
    energy = _energy(u)
    with agreed(comm, "plot_spectrum"):  # the root may get options that Matplotlib does not know
        if u.pencil.rank != root:
            return None
        ax = new_axes(1) if ax is None else ax
        ax.loglog(np.arange(1, energy.size), energy[1:], **options)
        ax.set_xlabel("wave number")
        ax.set_ylabel("energy")
    return ax


def _energy(u: PencilArray) -> NDArray[np.float64]:
    """Return the energy of each shell of waves, on all ranks."""
    dtype = np.result_type(u.dtype, np.float32)
    with PencilFFT(u.pencil, dtype, components=u.components, normalize="forward") as plan:
        waves = plan.forward(u.astype(dtype))
        numbers = plan.wavenumbers(nyquist="keep")
    energy: Any = (waves.real**2 + waves.imag**2) / 2
    if u.components:
        energy = energy.sum(axis=tuple(range(len(u.components))))
    if dtype.kind != "c":  # half of the waves along the last axis; the others are their conjugates
        points, last = u.shape[-1], np.abs(numbers[-1])
        energy = energy * np.where((last > 0) & (2 * last != points), 2.0, 1.0)
    length = np.sqrt(sum(number**2 for number in numbers))
    return np.asarray(np.bincount(np.rint(length).astype(int), weights=energy), np.float64)


def plot_times(
    path: str | os.PathLike[str],
    names: Iterable[str] | None = None,
    *,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw numbers of a `TimeSeries` over time, each in its own panel.

    Nothing is communicated: call it on one rank, or after the run.

    Parameters
    ----------
    path : str or os.PathLike
        The file of the series.
    names : iterable of str, optional
        Which numbers. Default: all of them.
    ax : matplotlib.axes.Axes, optional
        Where to draw all of them, on one scale. Default: in a new figure.
    **options
        For `matplotlib.axes.Axes.plot`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; of several panels the lowest one, and ``ax.figure.axes`` are all.

    Raises
    ------
    ArgumentError
        If the file is no series, or has no such numbers.

    Examples
    --------
    >>> import pencils
    >>> from pencils.tools.plot import plot_times
    >>> with pencils.TimeSeries("out.h5", "w") as series:
    ...     for step in range(3):
    ...         series.append(0.1 * step, {"energy": 0.9**step, "mass": 1.0})
    >>> ax = plot_times("out.h5")
    >>> [panel.get_ylabel() for panel in ax.figure.axes]
    ['energy', 'mass']
    """
    if ax is not None:
        check_axes(ax, 1)
    times, found = read_numbers(os.fspath(path))
    wanted = list(found) if names is None else list(names)
    missing = [name for name in wanted if name not in found]
    if missing or not wanted:
        has = ", ".join(found) or "none"
        raise ArgumentError(f"{path} has no numbers {missing or ''}; over time it has: {has}")
    panels = new_panels(len(wanted)) if ax is None else [ax] * len(wanted)
    for panel, name in zip(panels, wanted, strict=True):
        panel.plot(times, found[name], **({"label": name} | options))
        panel.set_ylabel(name if ax is None else "")
    panels[-1].set_xlabel("time")
    if ax is not None:
        ax.legend()
    return panels[-1]
