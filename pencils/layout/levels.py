"""Levels: coarser grids whose blocks follow those of a finer one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from pencils.errors import ArgumentError
from pencils.layout.integers import as_int, each_dim
from pencils.layout.layout import Layout
from pencils.layout.split import Split

CELL, VERTEX = "cell", "vertex"
# Vertices between walls where solvers know the solution, or its slope: those on walls of known
# values, low or high, are no points. Outside of all points, fields are zero.
BETWEEN = {
    (True, True): "between walls",
    (True, False): "beyond a wall",
    (False, True): "before a wall",
    (False, False): "from wall to wall",
}
# Points more than a multiple of the factor, and whether the last fine point of so many is a coarse
# one instead of the first.
PLACES = {CELL: (0, 0), VERTEX: (1, 0)} | dict(
    zip(BETWEEN.values(), [(-1, 1), (0, 1), (0, 0), (1, 0)], strict=True)
)

# Points of a block, chosen by measured times of `Multigrid.solve` on two ranks that share memory,
# with 16^3 to 64^3 and 256^2 points: they are shortest with 0 to 256, and up to 20 % longer with
# 512 to 32768, since to move to fewer ranks and back costs two exchanges. Not 0: on networks,
# messages take longer.
LEAST = 256


def coarse_layout(
    layout: Layout, factors: Sequence[int], centred: Sequence[str], least: int = 0
) -> Layout:
    """Return the layout of a coarser grid: its point ``i`` has the rank of the fine point ``f i``.

    With few points, fewer ranks have some: while a block has less than `least` points on average,
    each second one along the dimension that is cut most gives its points to the one before it.

    Parameters
    ----------
    layout : Layout
        The finer grid.
    factors : sequence of int
        Points of the finer grid for each coarse one, along each dimension; 1 keeps it.
    centred : sequence of {"cell", "vertex"}
        Whether coarse cells consist of fine ones, or coarse points are fine ones.
    least : int, optional
        Points of a block that is not given to another rank.

    Returns
    -------
    Layout
        The layout, which knows `factors` and `centred`.

    Raises
    ------
    ArgumentError
        If an extent does not allow it.

    Examples
    --------
    >>> from pencils.layout import build_layout
    >>> fine = build_layout((16, 8), 4, decomp=0)
    >>> coarse = coarse_layout(fine, (2, 2), ("cell", "cell"), 16)
    >>> coarse.shape, [coarse.box(rank).shape for rank in range(4)]
    ((8, 4), [(4, 4), (0, 4), (4, 4), (0, 4)])
    """
    intervals, firsts = [], []
    along = zip(layout.shape, factors, centred, layout.periodic, strict=True)
    for dim, (points, factor, kind, wraps) in enumerate(along):
        more, last = PLACES[kind]
        more = 0 if wraps else more
        if points < more or (points - more) % factor:
            ends = more > 0
            low = max(points - ends, 0) // factor * factor + ends
            raise ArgumentError(
                f"dimension {dim} has {points} points; with factor {factor} and centred={kind!r}"
                f"{' in a dimension that is not periodic' * ends} it must have a multiple of "
                f"{factor}{', and one point more' * ends}, such as {low} or {low + factor}; a "
                "factor of 1 keeps the dimension"
            )
        intervals.append(max(1, (points - more) // factor))
        firsts.append(last * (factor - 1))
    every = _agglomerated(layout.splits, intervals, least)
    splits = map(Split.coarsened, layout.splits, factors, every, firsts)
    relation = tuple(zip(factors, centred, strict=True))
    return replace(layout, splits=tuple(splits), origins=(), coarsened=relation)


def _agglomerated(splits: Sequence[Split], points: Sequence[int], least: int) -> list[int]:
    """Return which parts have points, along each dimension: each so many-th one."""
    every = [split.every for split in splits]
    while True:
        pairs = zip(splits, every, points, strict=True)
        filled = [min(n, -(-split.parts // step)) for split, step, n in pairs]
        most = max(filled)
        if most <= 1 or prod(points) >= least * prod(filled):
            return every
        dim = filled.index(most)
        while min(points[dim], -(-splits[dim].parts // every[dim])) == most:
            every[dim] *= 2


def read_levels(ndim: int, factor: object, centred: object) -> tuple[tuple[int, ...], list[str]]:
    """Read arguments of `Pencil.coarsen`: one value for all dimensions, or one for each."""
    factors = each_dim("factor", factor, ndim, "an integer")
    kinds = each_dim("centred", centred, ndim, f"{CELL!r} or {VERTEX!r}")
    for kind in kinds:
        if kind not in [CELL, VERTEX]:  # a list also accepts values that cannot be hashed
            raise ArgumentError(f"centred={centred!r} must be 'cell' or 'vertex', or a sequence")
    return tuple(as_int("factor", each, least=1) for each in factors), list(map(str, kinds))
