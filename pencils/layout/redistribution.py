"""Which box each rank sends to each other rank, to move a field to another layout, as plain data.

Each rank computes its own schedule by intersecting bounds, one dimension at a time. The cost
follows the number of messages of that rank, not the number of pairs of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from pencils.errors import ArgumentError
from pencils.layout.box import Box
from pencils.layout.layout import Layout


class Message(NamedTuple):
    """The points of `box` (global indices) travel from rank `source` to rank `dest`."""

    source: int
    dest: int
    box: Box


class Traffic(NamedTuple):
    """What travels from node to node: the number of messages, and their bytes."""

    messages: int
    nbytes: int


def redistribution(
    source: Layout, target: Layout, source_rank: int | None, target_rank: int | None
) -> tuple[list[Message], list[Message]]:
    """List the messages of one process that move a field to another layout of the same shape.

    The layouts may have different numbers of ranks. Senders are named by their rank in `source`,
    receivers by their rank in `target`.

    Several ranks hold the points of singleton dimensions. Each receiver gets them from the replica
    at its own coordinates along the replicated axes: every point arrives exactly once, the senders
    share the work, and a rank that has the points already only copies them.

    Parameters
    ----------
    source, target : Layout
        Layouts of equal global shape.
    source_rank, target_rank : int or None
        Rank of this process in each layout; None if it has none there.

    Returns
    -------
    sends, recvs : list of Message
        What the process sends and receives; a message to itself is in both lists.

    Raises
    ------
    ArgumentError
        If the shapes differ.

    Examples
    --------
    >>> from pencils.layout.build import build_layout
    >>> rows, columns = build_layout((4, 6), 2, decomp=0), build_layout((4, 6), 2, decomp=1)
    >>> sends, recvs = redistribution(rows, columns, 0, 0)
    >>> [(m.dest, m.box.slices()) for m in sends]
    ... # doctest: +NORMALIZE_WHITESPACE
    [(0, (slice(0, 2, None), slice(0, 3, None))),
     (1, (slice(0, 2, None), slice(3, 6, None)))]
    """
    if source.shape != target.shape:
        raise ArgumentError(
            f"cannot redistribute shape {source.shape} to shape {target.shape}; make them equal"
        )
    sends = [] if source_rank is None else list(_sends(source, target, source_rank))
    recvs = [] if target_rank is None else list(_recvs(source, target, target_rank))
    return sends, recvs


def off_node(source: Layout, target: Layout, nodes: Sequence[int], itemsize: int = 1) -> Traffic:
    """Count what all ranks together send to other nodes, to move a field to another layout.

    Parameters
    ----------
    source, target : Layout
        Layouts of equal global shape, over the same ranks.
    nodes : sequence of int
        A number for the node of each rank.
    itemsize : int, optional
        Bytes of a point.

    Returns
    -------
    Traffic
        One message for each pair of ranks on different nodes, and all bytes.

    Examples
    --------
    >>> from pencils.layout.build import build_layout
    >>> here = build_layout((8, 8, 8), 4, decomp=(0, 1), grid=(2, 2))
    >>> there = build_layout((8, 8, 8), 4, decomp=(0, 2), grid=(2, 2))
    >>> off_node(here, there, [0, 0, 1, 1]), off_node(here, there, [0, 1, 0, 1])
    (Traffic(messages=0, nbytes=0), Traffic(messages=4, nbytes=256))
    """
    far = [
        message.box.volume * itemsize
        for rank in range(source.size)
        for message in redistribution(source, target, rank, None)[0]
        if nodes[message.dest] != nodes[rank]
    ]
    return Traffic(len(far), sum(far))


def scatter(layout: Layout, root: int) -> Iterator[Message]:
    """List the messages that send every rank its block from `root`, in the order of ranks."""
    for rank in range(layout.size):
        box = layout.box(rank)
        if box.volume:
            yield Message(root, rank, box)


def gather(layout: Layout, root: int) -> Iterator[Message]:
    """Messages that bring every point to `root` once; of replicas, only the first one sends."""
    for message in scatter(layout, root):
        if layout.is_first_replica(message.dest):
            yield Message(message.dest, root, message.box)


def _sends(source: Layout, target: Layout, rank: int) -> Iterator[Message]:
    mine = _replica(source, rank)
    # On equal grids the receivers of this replica follow from its coordinates; else check each.
    known = source.grid == target.grid
    pinned = {target.decomp[axis]: coord for axis, coord in mine.items()} if known else {}
    for dest, box in _holders(target, source.box(rank), pinned):
        if known or not mine or _replica(source, dest % source.size) == mine:
            yield Message(rank, dest, box)


def _recvs(source: Layout, target: Layout, rank: int) -> Iterator[Message]:
    replica = _replica(source, rank % source.size)
    pinned = {source.decomp[axis]: coord for axis, coord in replica.items()}
    for peer, box in _holders(source, target.box(rank), pinned):
        yield Message(peer, rank, box)


def _holders(layout: Layout, box: Box, pinned: Mapping[int, int]) -> Iterator[tuple[int, Box]]:
    """Yield every rank that holds a part of `box`, and that part.

    If ``pinned[d]`` is given, only the ranks at that position along dimension d.
    """
    if box.volume == 0:
        return
    strides = dict(zip(layout.decomp, layout.grid.strides, strict=True))
    overlaps = [
        [
            (part * strides.get(dim, 0), lo, hi)
            for part, lo, hi in split.overlaps(box.start[dim], box.stop[dim], pinned.get(dim))
        ]
        for dim, split in enumerate(layout.splits)
    ]
    for pieces in product(*overlaps):
        steps, starts, stops = zip(*pieces, strict=True)
        yield sum(steps), Box(starts, stops)


def _replica(layout: Layout, rank: int) -> dict[int, int]:
    """Coordinate of `rank` on each replicated axis: which of the equal copies it holds."""
    coords = layout.grid.coords(rank)
    return {axis: coords[axis] for axis in layout.replicated_axes}
