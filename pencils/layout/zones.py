"""Parts of a padded block: the interior, the shells around it, and the ghosts around these."""

from __future__ import annotations

from collections.abc import Sequence

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


def ghosts(
    own: Box, shape: Sequence[int], periodic: Sequence[bool], halo: Sequence[tuple[int, int]]
) -> list[Box]:
    """Boxes of the halo that hold copies of own points of some rank; the rest are boundary points.

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
    list of Box
        Disjoint, none empty; in global indices, negative or past the end where they wrap.

    Examples
    --------
    >>> ghosts(Box((0, 0), (4, 4)), (8, 4), (False, True), [(1, 1), (1, 0)])
    [Box(start=(4, -1), stop=(5, 4)), Box(start=(0, -1), stop=(4, 0))]
    """
    padded = own.grow(halo)
    # A dimension without points has none to copy, even if it wraps.
    wraps = [wrap and n > 0 for wrap, n in zip(periodic, shape, strict=True)]
    starts, stops = (
        zip(padded.start, wraps, strict=True),
        zip(padded.stop, shape, wraps, strict=True),
    )
    reach = Box(
        tuple(i if wrap else max(i, 0) for i, wrap in starts),
        tuple(i if wrap else min(i, n) for i, n, wrap in stops),
    )
    return list(reach.without(own))
