"""Whose points the ghosts of padded blocks are, as plain data.

An exchange fills ghosts in rounds. One round for all dimensions is the direct exchange with all
neighbours, diagonal ones included; a round for each dimension sends faces only, and corners travel
over several ranks because every round takes along what earlier ones have brought. Boundary points,
which lie outside of the domain along a dimension that is not periodic, are no ghosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from pencils.layout.box import Box
from pencils.layout.layout import Layout
from pencils.layout.split import Split
from pencils.layout.zones import reach

Widths = Sequence[tuple[int, int]]


class Ghosts(NamedTuple):
    """Ghost points of rank `dest` that are copies of points of rank `source`.

    Parameters
    ----------
    source, dest : int
        Ranks; they may be the same, where a periodic dimension wraps around.
    box : Box
        The ghosts by the indices of the receiver, which go on beyond the ends of the grid.
    wrap : tuple of int
        The sender knows the same points by the indices ``box.shift(wrap)``.
    """

    source: int
    dest: int
    box: Box
    wrap: tuple[int, ...]


class Faces(NamedTuple):
    """Ghosts beyond the own range of `dims`, over the reach of the dimensions `reached`.

    With several `dims`, their common corners are part of it.
    """

    dims: tuple[int, ...]
    reached: tuple[int, ...] = ()


Round = tuple[Faces, ...]


def star(dims: Sequence[int]) -> list[Round]:
    """One round that fills faces and no corners."""
    return [tuple(Faces((dim,)) for dim in dims)]


def direct(dims: Sequence[int], reached: Sequence[int] = ()) -> list[Round]:
    """One round with all neighbours, diagonal ones included."""
    return [(Faces(tuple(dims), tuple(reached)),)] if dims else []


def sweeps(dims: Sequence[int], reached: Sequence[int] = ()) -> list[Round]:
    """One round for each dimension in turn."""
    return [
        (Faces((dim,), (*reached, *dims[:number])),)  # what came before is taken along
        for number, dim in enumerate(dims)
    ]


def exchange(
    layout: Layout, widths: Widths, rank: int, faces: Round
) -> tuple[list[Ghosts], list[Ghosts]]:
    """List what a rank sends and receives in one round.

    The cost follows the number of messages of that rank. A halo may be wider than the blocks of the
    neighbours, and wrap around more than once. Ranks without points of their own have no ghosts.

    Parameters
    ----------
    layout : Layout
        Of the field, singleton dimensions included; those must have no halo.
    widths : sequence of (int, int)
        Halo widths ``(lo, hi)`` along each dimension.
    rank : int
        The rank that asks.
    faces : Round
        What the round fills.

    Returns
    -------
    sends, recvs : list of Ghosts
        Between any two ranks in the same order on both sides.

    Examples
    --------
    >>> from pencils.layout import make_layout
    >>> ring = make_layout((8,), 2, periodic=True)
    >>> sends, recvs = exchange(ring, [(1, 1)], 0, *direct([0]))
    >>> [(g.source, g.box.slices(), g.wrap) for g in recvs]
    [(1, (slice(-1, 0, None),), (8,)), (1, (slice(4, 5, None),), (0,))]
    """
    own = layout.box(rank)
    if own.volume == 0:
        return [], []
    sends = [
        Ghosts(rank, peer, box, wrap)
        for face in faces
        for peer, box, wrap in _boxes(layout, widths, rank, face, outgoing=True)
    ]
    recvs = [
        Ghosts(peer, rank, box, wrap)
        for face in faces
        for peer, box, wrap in _boxes(layout, widths, rank, face, outgoing=False)
    ]
    return sorted(sends, key=_place), sorted(recvs, key=_place)


class _Segment(NamedTuple):
    """Points ``[lo, hi)`` of one dimension, by the receiver's indices, of or for `part`."""

    part: int
    lo: int
    hi: int
    wrap: int


def _boxes(
    layout: Layout, widths: Widths, rank: int, face: Faces, *, outgoing: bool
) -> Iterator[tuple[int, Box, tuple[int, ...]]]:
    """Peer, box and wrap of everything a rank sends, or receives."""
    parts = layout.parts(rank)
    reached = [width if dim in face.reached else (0, 0) for dim, width in enumerate(widths)]
    whole = reach(layout.box(rank), layout.shape, layout.periodic, reached)
    mine = [_Segment(*fixed, 0) for fixed in zip(parts, whole.start, whole.stop, strict=True)]
    find = _outgoing if outgoing else _incoming
    along = [
        list(find(layout.splits[dim], parts[dim], widths[dim], periodic=layout.periodic[dim]))
        if dim in face.dims and any(widths[dim])
        else [mine[dim]]
        for dim in range(layout.ndim)
    ]
    for segments in product(*along):
        peers, lows, highs, wraps = zip(*segments, strict=True)
        if peers != parts or any(wraps):
            yield layout.rank(peers), Box(lows, highs), wraps


def _incoming(
    split: Split, part: int, width: tuple[int, int], *, periodic: bool
) -> Iterator[_Segment]:
    """Who owns what of the reach of a block; the block itself is among it."""
    start, stop = split.bounds(part)
    low, high = start - width[0], stop + width[1]
    for shift in _shifts(split.points, low, high, periodic=periodic):
        for peer, lo, hi in _meeting(split, low - shift, high - shift):
            yield _Segment(peer, lo + shift, hi + shift, -shift)


def _outgoing(
    split: Split, part: int, width: tuple[int, int], *, periodic: bool
) -> Iterator[_Segment]:
    """Which blocks reach into this one, or one of its periodic images, and how far."""
    start, stop = split.bounds(part)
    low, high = start - width[1], stop + width[0]
    for shift in _shifts(split.points, low, high, periodic=periodic):
        for peer, _, _ in _meeting(split, low - shift, high - shift):
            first, last = split.bounds(peer)
            lo, hi = max(first - width[0], start - shift), min(last + width[1], stop - shift)
            yield _Segment(peer, lo, hi, shift)


def _shifts(points: int, low: int, high: int, *, periodic: bool) -> range:
    """How far the grid is moved to have a part in ``[low, high)``, once for each period."""
    if not periodic:
        return range(1)
    return range(low // points * points, high, points)


def _meeting(split: Split, low: int, high: int) -> Iterator[tuple[int, int, int]]:
    return split.meeting(max(low, 0), min(high, split.points))


def _place(ghosts: Ghosts) -> tuple[int, ...]:
    return ghosts.box.start
