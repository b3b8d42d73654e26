"""Parts of a padded block: the interior, the margins around it, and the reach of the ghosts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pencils.layout.box import Box


def interior(shape: Sequence[int], halo: Sequence[tuple[int, int]]) -> Box:
    """Points of an own block whose stencil, as wide as the halo, stays within the block.

    Parameters
    ----------
    shape : sequence of int
        Shape of the own block.
    halo : sequence of (int, int)
        Widths ``(lo, hi)`` along every dimension.

    Returns
    -------
    Box
        In indices of the own block; empty where that is thinner than ``lo + hi + 1``.

    Examples
    --------
    >>> interior((8, 5), [(1, 1), (0, 2)])
    Box(start=(1, 0), stop=(7, 3))
    """
    start = tuple(min(lo, n) for n, (lo, _) in zip(shape, halo, strict=True))
    stop = tuple(max(low, n - hi) for low, n, (_, hi) in zip(start, shape, halo, strict=True))
    return Box(start, stop)


def margins(
    own: Box,
    shape: Sequence[int],
    halo: Sequence[tuple[int, int]],
    trimmed: Collection[int],
) -> tuple[tuple[int, int], ...]:
    """Room of one padded block around its own points: the halo, less what is trimmed.

    Parameters
    ----------
    own : Box
        The own block.
    shape : sequence of int
        Global shape.
    halo : sequence of (int, int)
        Widths ``(lo, hi)`` along every dimension.
    trimmed : collection of int
        Dimensions along which padded blocks end where the domain ends.

    Returns
    -------
    tuple of (int, int)
        Points before and after the own ones, along every dimension.

    Examples
    --------
    >>> margins(Box((0, 0), (4, 4)), (8, 4), [(1, 1), (1, 1)], {0})
    ((0, 1), (1, 1))
    """
    along = zip(own.start, own.stop, shape, halo, strict=True)
    return tuple(
        (min(lo, start), min(hi, n - stop)) if dim in trimmed else (lo, hi)
        for dim, (start, stop, n, (lo, hi)) in enumerate(along)
    )


def reach(
    own: Box, shape: Sequence[int], periodic: Sequence[bool], halo: Sequence[tuple[int, int]]
) -> Box:
    """Own block and its ghosts: the padded block without boundary points.

    Parameters
    ----------
    own : Box
        The own block.
    shape : sequence of int
        Global shape.
    periodic : sequence of bool
        Whether each dimension wraps around: its halo then holds ghosts beyond the edges, too.
    halo : sequence of (int, int)
        Widths ``(lo, hi)`` along every dimension.

    Returns
    -------
    Box
        In global indices, negative or past the end where they wrap.

    Examples
    --------
    >>> reach(Box((0, 0), (4, 4)), (8, 4), (False, True), [(1, 1), (1, 0)])
    Box(start=(0, -1), stop=(5, 4))
    """
    # A dimension without points has none to copy, even if it wraps.
    along = enumerate(zip(periodic, shape, strict=True))
    ending = [dim for dim, (wraps, n) in along if not wraps or n == 0]
    return own.grow(margins(own, shape, halo, ending))
