"""Halos: the parts of a padded block, and which messages fill its ghost points, as plain data.

An exchange fills ghosts in rounds. *Direct*: one round with all neighbours, diagonal ones included.
*Sweeps*: one round for each dimension, with face neighbours only; each round also sends the ghosts
that earlier rounds have filled, so that corners arrive by way of several ranks. Boundary points,
which are outside of the domain along a dimension that is not periodic, are not ghosts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from pencils.layout.box import Box
from pencils.layout.layout import Layout
from pencils.layout.split import Split

Widths = Sequence[tuple[int, int]]


def interior(shape: Sequence[int], halo: Sequence[tuple[int, int]]) -> Box:
    """Return the points of a block whose stencil, as wide as the halo, stays in the block.

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


def halo_room(
    own: Box, shape: Sequence[int], halo: Sequence[tuple[int, int]], trimmed: Collection[int]
) -> tuple[tuple[int, int], ...]:
    """Widths around an own block: the halo, but no boundary points along `trimmed` dimensions.

    Examples
    --------
    >>> halo_room(Box((0, 0), (4, 4)), (8, 4), [(1, 1), (1, 1)], {0})
    ((0, 1), (1, 1))
    """
    along = zip(own.start, own.stop, shape, halo, strict=True)
    return tuple(
        (min(lo, start), min(hi, n - stop)) if dim in trimmed else (lo, hi)
        for dim, (start, stop, n, (lo, hi)) in enumerate(along)
    )


def ghost_box(
    own: Box, shape: Sequence[int], periodic: Sequence[bool], halo: Sequence[tuple[int, int]]
) -> Box:
    """Return the own block and its ghosts: the padded block without boundary points.

    Parameters
    ----------
    own : Box
        The own block.
    shape : sequence of int
        Global shape.
    periodic : sequence of bool
        Whether each dimension wraps around, so that there are ghosts beyond the edges, too.
    halo : sequence of (int, int)
        Widths ``(lo, hi)`` along every dimension.

    Returns
    -------
    Box
        In global indices, negative or past the end where they wrap.

    Examples
    --------
    >>> ghost_box(Box((0, 0), (4, 4)), (8, 4), (False, True), [(1, 1), (1, 0)])
    Box(start=(0, -1), stop=(5, 4))
    """
    # A dimension without points has none to copy, even if it wraps.
    along = enumerate(zip(periodic, shape, strict=True))
    ending = [dim for dim, (wraps, n) in along if not wraps or n == 0]
    return own.grow(halo_room(own, shape, halo, ending))


class HaloMessage(NamedTuple):
    """Ghost points of rank `dest` that are copies of points of rank `source`, maybe the same."""

    source: int
    dest: int
    box: Box  # in indices of the receiver, which continue beyond the ends of the grid
    wrap: tuple[int, ...]  # the same points have the indices ``box.shift(wrap)`` on the sender


class Faces(NamedTuple):
    """Ghosts beyond the own range of `dims`, next to own points and ghosts of `reached`.

    With several `dims`, their common corners are included.
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
        (Faces((dim,), (*reached, *dims[:number])),)  # ghosts that earlier rounds have filled
        for number, dim in enumerate(dims)
    ]


def exchange(
    layout: Layout, widths: Widths, rank: int, faces: Round
) -> tuple[list[HaloMessage], list[HaloMessage]]:
    """List the messages that a rank sends and receives in one round, in the same order on both.

    The cost follows the number of messages of that rank. A halo may be wider than the blocks of the
    neighbours, and wrap around more than once. Ranks without points of their own have no ghosts.
    The layout is that of the field; its singleton dimensions must have no halo.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> ring = build_layout((8,), 2, periodic=True)
    >>> sends, recvs = exchange(ring, [(1, 1)], 0, *direct([0]))
    >>> [(g.source, g.box.slices(), g.wrap) for g in recvs]
    [(1, (slice(-1, 0, None),), (8,)), (1, (slice(4, 5, None),), (0,))]
    """
    if layout.box(rank).volume == 0:
        return [], []
    sends = [
        HaloMessage(rank, peer, box, wrap)
        for face in faces
        for peer, box, wrap in _boxes(layout, widths, rank, face, outgoing)
    ]
    recvs = [
        HaloMessage(peer, rank, box, wrap)
        for face in faces
        for peer, box, wrap in _boxes(layout, widths, rank, face, _incoming)
    ]
    return sorted(sends, key=_start), sorted(recvs, key=_start)


def _start(message: HaloMessage) -> tuple[int, ...]:
    return message.box.start


# Part, first index, the one after the last, and wrap along one dimension, in the receiver's
# indices.
_Segment = tuple[int, int, int, int]


def _boxes(
    layout: Layout, widths: Widths, rank: int, face: Faces, find: Callable[..., Iterator[_Segment]]
) -> Iterator[tuple[int, Box, tuple[int, ...]]]:
    """Yield peer, box and wrap of all messages whose segments `find` lists for each dimension."""
    parts = layout.parts(rank)
    reached = [width if dim in face.reached else (0, 0) for dim, width in enumerate(widths)]
    whole = ghost_box(layout.box(rank), layout.shape, layout.periodic, reached)
    along = [
        list(find(layout.splits[dim], parts[dim], widths[dim], periodic=layout.periodic[dim]))
        if dim in face.dims and any(widths[dim])
        else [(parts[dim], whole.start[dim], whole.stop[dim], 0)]
        for dim in range(layout.ndim)
    ]
    for segments in product(*along):
        peers, lows, highs, wraps = zip(*segments, strict=True)
        if peers != parts or any(wraps):
            yield layout.rank(peers), Box(lows, highs), wraps


def _incoming(
    split: Split, part: int, width: tuple[int, int], *, periodic: bool
) -> Iterator[_Segment]:
    """Owners of a block and its ghosts along one dimension."""
    start, stop = split.bounds(part)
    for peer, lo, hi, shift in _overlaps(
        split, start - width[0], stop + width[1], periodic=periodic
    ):
        yield peer, lo, hi, -shift


def outgoing(
    split: Split, part: int, width: tuple[int, int], *, periodic: bool
) -> Iterator[_Segment]:
    """Blocks whose ghosts are points of this one, or of its periodic images."""
    start, stop = split.bounds(part)
    low, high = start - width[1], stop + width[0]
    for peer, _, _, shift in _overlaps(split, low, high, periodic=periodic):
        first, last = split.bounds(peer)
        lo, hi = max(first - width[0], start - shift), min(last + width[1], stop - shift)
        yield peer, lo, hi, shift


def _overlaps(split: Split, low: int, high: int, *, periodic: bool) -> Iterator[_Segment]:
    """Blocks with points in ``[low, high)``, and the shift of the period that these are in."""
    points = split.points
    for shift in range(low // points * points, high, points) if periodic else (0,):
        for part, lo, hi in split.overlaps(max(low - shift, 0), min(high - shift, points)):
            yield part, lo + shift, hi + shift, shift
