"""Count what many ranks send at once, by arithmetic on arrays of ranks.

The peers of a rank are a product: a set of parts along each axis of the process grid. So are the
points that each of them gets. Ranks of a node are consecutive; how many of the peers are among them
follows from two prefix sums over ranks in C order, digit by digit, as in counting numbers below a
bound. The cost for a rank grows neither with its messages nor with the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pencils.layout import Layout, Split
from pencils.layout.halo import Faces, outgoing

Ints: TypeAlias = NDArray[np.int64]
# For each rank, the number of peers whose part along an axis is smaller than x, and of points.
Below: TypeAlias = Callable[[Ints], Ints]

# Ranks that are counted at once, so that arrays stay in the cache.
_AT_ONCE = 2**15


class Counts(NamedTuple):
    """Messages and points that ranks send, as arrays of shape ``(2, ranks)``; and what they keep.

    Attributes
    ----------
    near, far : array
        To other ranks of the same node, and to other nodes.
    own : array
        Points that stay on their rank.
    """

    near: Ints
    far: Ints
    own: Ints


def count_redistribution(source: Layout, target: Layout, ranks: Ints, per_node: int) -> Counts:
    """Count what ranks send to move a field to another layout of the same shape and ranks.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> here = build_layout((8, 8, 8), 4, decomp=(0, 1), grid=(2, 2))
    >>> there = build_layout((8, 8, 8), 4, decomp=(0, 2), grid=(2, 2))
    >>> count_redistribution(here, there, np.arange(4), 1).far.tolist()
    [[1, 1, 1, 1], [64, 64, 64, 64]]
    """
    return _in_pieces(lambda some: _redistribution(source, target, some, per_node), ranks)


def count_halo(
    layout: Layout, width: int, faces: Sequence[Faces], ranks: Ints, per_node: int
) -> Counts:
    """Count what ranks send in one round of a halo exchange of equal widths.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> ring = build_layout((8, 8), 4, decomp=0, periodic=True)
    >>> found = count_halo(ring, 1, [Faces((0,), (1,))], np.arange(4), 2)
    >>> found.near.tolist(), found.far.tolist()
    ([[1, 1, 1, 1], [10, 10, 10, 10]], [[1, 1, 1, 1], [10, 10, 10, 10]])
    """

    def count(some: Ints) -> Counts:
        each = [_halo(layout, width, face, some, per_node) for face in faces]
        if not each:
            nothing = np.zeros((2, len(some)), np.int64)
            return Counts(nothing, nothing, nothing[0])
        near, far, own = (sum(parts) for parts in zip(*each, strict=True))
        return Counts(np.asarray(near), np.asarray(far), np.asarray(own))

    return _in_pieces(count, ranks)


def volumes(layout: Layout, ranks: Ints, widths: int = 0) -> Ints:
    """Return the points of the blocks of ranks, each with a halo around it.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> volumes(build_layout((5, 4), 3), np.arange(3), 1).tolist()
    [24, 24, 18]
    """
    sizes = []
    for split, part in zip(layout.splits, _parts(layout, ranks), strict=True):
        cuts = _cuts(split)
        sizes.append(cuts[part + 1] - cuts[part] + 2 * widths)
    return np.asarray(prod(sizes))


def _in_pieces(count: Callable[[Ints], Counts], ranks: Ints) -> Counts:
    starts = range(0, max(1, len(ranks)), _AT_ONCE)
    pieces = [count(ranks[start : start + _AT_ONCE]) for start in starts]
    return Counts(*(np.concatenate(parts, -1) for parts in zip(*pieces, strict=True)))


def _redistribution(source: Layout, target: Layout, ranks: Ints, per_node: int) -> Counts:
    lows, highs = [], []
    for split, part in zip(source.splits, _parts(source, ranks), strict=True):
        cuts = _cuts(split)
        lows.append(cuts[part])
        highs.append(cuts[part + 1])
    whole = np.ones(len(ranks), np.int64)
    for dim, (low, high) in enumerate(zip(lows, highs, strict=True)):
        if dim not in target.decomp:
            whole = whole * (high - low)
    below = [_overlapping(target.splits[dim], lows[dim], highs[dim]) for dim in target.decomp]
    return _divided(target, below, whole, ranks, per_node)


def _overlapping(split: Split, low: Ints, high: Ints) -> Below:
    """Count the blocks of a split that share points with ``[low, high)``, which may be empty."""
    cuts, before = _cuts(split), _filled_before(split)
    filled = cuts[:-1] < cuts[1:]
    first = np.searchsorted(cuts[1:][filled], low, "right")
    last = np.maximum(first, np.searchsorted(cuts[:-1][filled], high, "left"))

    def below(part: Ints) -> Ints:
        parts = np.clip(before[part], first, last) - first
        return np.stack([parts * (low < high), np.clip(cuts[part], low, high) - low])

    return below


def _halo(layout: Layout, width: int, face: Faces, ranks: Ints, per_node: int) -> Counts:
    whole = np.ones(len(ranks), np.int64)
    below: dict[int, Below] = {}
    for dim, (split, part) in enumerate(zip(layout.splits, _parts(layout, ranks), strict=True)):
        if split.parts > 1:
            used = width if dim in face.dims else 0
            below[dim] = _neighbours(split, part, used, periodic=layout.periodic[dim])
            continue
        wraps = layout.periodic[dim] and dim in face.reached and split.points > 0
        whole = whole * (split.points + 2 * width * wraps)
        below[dim] = lambda limit: np.stack([limit, limit])  # points are counted in `whole`
    return _divided(layout, [below[dim] for dim in layout.decomp], whole, ranks, per_node)


def _neighbours(split: Split, part: Ints, width: int, *, periodic: bool) -> Below:
    """Count the blocks whose ghosts, or own points, are points of a block."""
    peers, points = _segments(split, width, periodic)
    there, sizes = peers[part].T, points[part].T

    def below(limit: Ints) -> Ints:
        under = (there < limit) & (sizes > 0)
        return np.stack([under.sum(0), (sizes * under).sum(0)])

    return below


@cache
def _segments(split: Split, width: int, periodic: bool) -> tuple[Ints, Ints]:  # noqa: FBT001 - cached
    """List, for each block, the blocks that need its points, and how many; padded with zeros."""
    cuts = _cuts(split)
    found: list[dict[int, int]] = [{} for _ in range(split.parts)]
    for part in np.flatnonzero(cuts[:-1] < cuts[1:]).tolist():
        for peer, low, high, _ in outgoing(split, part, (width, width), periodic=periodic):
            found[part][peer] = found[part].get(peer, 0) + high - low
    most = max(map(len, found), default=0)
    peers, points = np.zeros((2, split.parts, most), np.int64)
    for part, each in enumerate(found):
        peers[part, : len(each)], points[part, : len(each)] = list(each), list(each.values())
    return peers, points


def _divided(
    layout: Layout, below: Sequence[Below], whole: Ints, ranks: Ints, per_node: int
) -> Counts:
    """Divide what ranks send by where it goes; ``below[i]`` is for axis ``i`` of the grid.

    `whole` are the points along all dimensions that the grid does not cut.
    """
    shape, size = layout.grid.shape, layout.size
    totals = [count(np.full(len(ranks), parts)) for count, parts in zip(below, shape, strict=True)]
    scale = np.stack([(whole > 0).astype(np.int64), whole])

    def before(rank: Ints) -> Ints:
        """Count what goes to ranks before `rank`."""
        found, equal = np.zeros_like(scale), scale
        rests = [prod(totals[axis + 1 :], start=np.ones_like(scale)) for axis in range(len(shape))]
        for count, digit, parts, rest in zip(
            below, _coords(layout, rank), shape, rests, strict=True
        ):
            lower = count(digit)
            found = found + equal * lower * rest
            equal = equal * (count(np.minimum(digit + 1, parts)) - lower)
        return found

    first = ranks // per_node * per_node
    own = scale
    for count, digit in zip(below, _coords(layout, ranks), strict=True):
        own = own * (count(digit + 1) - count(digit))
    node = before(np.minimum(first + per_node, size)) - before(first)
    return Counts(node - own, prod(totals, start=scale) - node, own[1])


def _coords(layout: Layout, ranks: Ints) -> list[Ints]:
    """Coordinates in the process grid; of the number of ranks, the end along the first axis."""
    found = []
    for stride in layout.grid.strides:
        coord, ranks = np.divmod(ranks, stride)
        found.append(coord)
    return found


def _parts(layout: Layout, ranks: Ints) -> list[Ints]:
    """Position of ranks along each dimension."""
    coords = dict(zip(layout.decomp, _coords(layout, ranks), strict=True))
    nowhere = np.zeros_like(ranks)
    return [coords.get(dim, nowhere) for dim in range(layout.ndim)]


@cache
def _cuts(split: Split) -> Ints:
    """Return the bounds of all blocks."""
    if split.rule != "first":
        return np.array(split.cuts)
    parts = np.arange(split.parts + 1)
    points, more = divmod(split.points, split.parts)
    return parts * points + np.minimum(parts, more)


@cache
def _filled_before(split: Split) -> Ints:
    """Return, for each block, the number of earlier ones that are not empty."""
    cuts = _cuts(split)
    return np.concatenate([[0], np.cumsum(cuts[:-1] < cuts[1:])])
