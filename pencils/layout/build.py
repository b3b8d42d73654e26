"""Build a Layout from user arguments: defaults, checks and the choice of a process grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import isqrt, prod
from typing import cast

from pencils.errors import ArgumentError
from pencils.layout.integers import as_dims, as_int, as_ints, items_of, to_int
from pencils.layout.layout import Layout, ProcessGrid
from pencils.layout.split import RULES, Rule, Split

SplitSpec = str | Sequence[int]

_ALLOWED_SPLITS = f"rules are {', '.join(RULES)}, or explicit bounds (0, ..., points)"


def build_layout(
    shape: Sequence[int],
    ranks: int,
    *,
    decomp: Sequence[int] | int | None = None,
    grid: Sequence[int] | int | None = None,
    periodic: bool | Sequence[bool] = False,
    order: Sequence[int] | None = None,
    splits: SplitSpec | Sequence[SplitSpec] | None = None,
) -> Layout:
    """Build the layout of a global grid over a number of ranks.

    Parameters
    ----------
    shape : sequence of int
        Global points along each dimension, at least one dimension.
    ranks : int
        Number of ranks, at least 1.
    decomp, grid, periodic, order, splits
        As for `pencils.Pencil`; `choose_grid` chooses what `grid` leaves open.

    Returns
    -------
    Layout
        The normalised layout.

    Raises
    ------
    ArgumentError, TypeError
        If an argument does not fit the others.

    Examples
    --------
    >>> layout = build_layout((64, 64, 64), 6)
    >>> layout.grid.shape, layout.box(5)
    ((3, 2), Box(start=(43, 32, 0), stop=(64, 64, 64)))
    """
    extents = _read_shape(shape)
    ndim = len(extents)
    dims = _read_decomp(decomp, ndim)
    specs = _read_splits(splits, ndim)
    processes = _read_grid(grid, dims, extents, as_int("ranks", ranks, least=1), specs)
    parts = dict(zip(dims, processes, strict=True))
    return Layout(
        ProcessGrid(processes),
        dims,
        tuple(
            _make_split(dim, extents[dim], parts.get(dim, 1), spec)
            for dim, spec in enumerate(specs)
        ),
        _read_order(order, ndim),
        _read_periodic(periodic, ndim),
    )


def change_layout(
    layout: Layout,
    *,
    shape: Sequence[int] | int | None = None,
    decomp: Sequence[int] | int | None = None,
    grid: Sequence[int] | int | None = None,
    periodic: bool | Sequence[bool] | None = None,
    order: Sequence[int] | None = None,
    splits: SplitSpec | Sequence[SplitSpec] | None = None,
) -> Layout:
    """Build a layout that differs in the given arguments, as `pencils.Pencil.with_`.

    Examples
    --------
    >>> change_layout(build_layout((8, 8, 8), 2), decomp=2).decomp
    (2,)
    """
    points = layout.shape if shape is None else as_ints("shape", shape)
    moved = shape is not None or decomp is not None or grid is not None
    if not moved and splits is None:
        wraps = layout.periodic if periodic is None else _read_periodic(periodic, layout.ndim)
        return replace(
            layout,
            periodic=wraps,
            order=layout.order if order is None else _read_order(order, layout.ndim),
            coarsened=layout.coarsened if wraps == layout.periodic else (),
        )
    dims = layout.decomp if decomp is None else decomp
    if grid is None and len(as_ints("decomp", dims)) == len(layout.decomp):
        grid = layout.grid.shape
    if splits is None:
        splits = layout.split_rules
    changed = build_layout(
        points,
        layout.size,
        decomp=dims,
        grid=grid,
        periodic=layout.periodic if periodic is None else periodic,
        order=layout.order if order is None else order,
        splits=splits,
    )
    same = changed.shape == layout.shape and changed.periodic == layout.periodic
    return replace(
        changed,
        origins=layout.origins if shape is None else (),
        coarsened=layout.coarsened if same else (),
    )


def _read_shape(shape: object) -> tuple[int, ...]:
    extents = as_ints("shape", shape)
    if not extents or min(extents) < 0:
        raise ArgumentError(
            f"shape={extents} must have at least one dimension and no negative extent"
        )
    return extents


def _read_decomp(decomp: object, ndim: int) -> tuple[int, ...]:
    if decomp is None:
        return tuple(range(max(1, ndim - 1)))
    dims = as_dims("decomp", decomp, ndim)
    if not dims:
        raise ArgumentError("decomp=() decomposes nothing; name at least one dimension")
    return dims


def _read_grid(
    grid: object,
    decomp: tuple[int, ...],
    shape: tuple[int, ...],
    ranks: int,
    specs: Sequence[SplitSpec],
) -> tuple[int, ...]:
    wanted = (0,) * len(decomp) if grid is None else as_ints("grid", grid)
    if len(wanted) != len(decomp) or min(wanted) < 0:
        raise ArgumentError(
            f"grid={wanted} must give the number of processes (0 = choose) for each of the "
            f"{len(decomp)} decomposed dimensions {decomp}; pass decomp= to decompose others"
        )
    chosen = [specs[dim] for dim in decomp]
    explicit = [0 if isinstance(spec, str) else len(spec) - 1 for spec in chosen]
    fixed = [w or e for w, e in zip(wanted, explicit, strict=True)]
    rules = [cast("Rule", spec) if isinstance(spec, str) else "first" for spec in chosen]
    return choose_grid([shape[dim] for dim in decomp], ranks, fixed, rules)


def _read_order(order: object, ndim: int) -> tuple[int, ...]:
    if order is None:
        return tuple(range(ndim))
    dims = as_dims("order", order, ndim)
    if len(dims) != ndim:
        raise ArgumentError(
            f"order={dims} must name each of the {ndim} dimensions once, slowest first"
        )
    return dims


def _read_periodic(periodic: object, ndim: int) -> tuple[bool, ...]:
    flags = items_of(periodic)
    if len(flags) == 1 and flags[0] is periodic:
        flags *= ndim
    if len(flags) != ndim or any(flag not in (True, False) for flag in flags):
        raise ArgumentError(
            f"periodic={periodic!r} must be one boolean or one for each of {ndim} dimensions"
        )
    return tuple(map(bool, flags))


def _read_splits(splits: object, ndim: int) -> list[SplitSpec]:
    specs = items_of(splits)
    if splits is None or isinstance(splits, str):
        specs *= ndim
    elif ndim == 1 and len(specs) != 1 and all(to_int(item) is not None for item in specs):
        specs = [specs]
    if len(specs) != ndim:
        raise ArgumentError(
            f"splits={splits!r} must be one rule or one entry for each of {ndim} dimensions; "
            f"{_ALLOWED_SPLITS}"
        )
    return [_read_split(spec) for spec in specs]


def _read_split(spec: object) -> SplitSpec:
    if spec is None:
        return "first"
    if not isinstance(spec, str):
        return Split.from_bounds(as_ints("splits", spec)).table
    if spec not in RULES:
        raise ArgumentError(f"split rule {spec!r} is unknown; {_ALLOWED_SPLITS}")
    return spec


def _make_split(dim: int, points: int, parts: int, spec: SplitSpec) -> Split:
    if isinstance(spec, str):
        return Split(points, parts, cast("Rule", spec))
    if len(spec) != parts + 1 or spec[-1] != points:
        raise ArgumentError(
            f"splits of dimension {dim} must be {parts + 1} bounds from 0 to {points} "
            f"({parts} processes along it), got {spec!r}"
        )
    return Split.from_bounds(spec)


def choose_grid(
    points: Sequence[int], ranks: int, fixed: Sequence[int] = (), rules: Sequence[Rule] = ()
) -> tuple[int, ...]:
    """Choose how many processes go along each dimension of a grid of `points`.

    Of all factorisations of `ranks`, takes those that leave the fewest ranks without points, then
    the one whose cuts through the grid have the least surface; ties go to the smaller largest
    block, then to more processes along the earlier (slower) dimensions.

    Parameters
    ----------
    points : sequence of int
        Points along each decomposed dimension.
    ranks : int
        Number of processes to place.
    fixed : sequence of int, optional
        Required number of processes along each dimension; 0 leaves the choice open.
    rules : sequence of str, optional
        Split rule of each dimension (see `Split`); "ceil" may leave more ranks without points
        than "first", the default.

    Returns
    -------
    tuple of int
        Processes along each dimension; their product is `ranks`.

    Raises
    ------
    ArgumentError
        If the required numbers do not divide `ranks`.

    Examples
    --------
    >>> choose_grid((64, 64), 6), choose_grid((4, 1000), 6), choose_grid((64, 64), 6, (0, 3))
    ((3, 2), (1, 6), (2, 3))
    """
    wanted = tuple(fixed) or (0,) * len(points)
    first: Sequence[Rule] = ["first"] * len(points)
    cuts = [
        {parts: Split(n, parts, rule) for parts in _divisors(ranks)}
        for n, rule in zip(points, rules or first, strict=True)
    ]
    across = [prod(points[:axis]) * prod(points[axis + 1 :]) for axis in range(len(points))]

    def cost(grid: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        splits = [along[parts] for along, parts in zip(cuts, grid, strict=True)]
        blocks = [split.filled for split in splits]
        surface = sum((count - 1) * area for count, area in zip(blocks, across, strict=True))
        largest = prod(split.longest for split in splits)
        return -prod(blocks), surface, largest, tuple(-parts for parts in grid)

    best = min(factorizations(ranks, wanted), key=cost, default=None)
    if best is None:
        raise ArgumentError(
            f"grid {wanted} cannot hold {ranks} processes: the product of its entries must be "
            f"{ranks} (0 leaves an entry open; explicit splits fix it)"
        )
    return best


def factorizations(number: int, wanted: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to write `number` as one factor per entry of `wanted`, 0 being any factor.

    Examples
    --------
    >>> list(factorizations(6, (0, 0)))
    [(1, 6), (2, 3), (3, 2), (6, 1)]
    """
    if len(wanted) == 1:
        if wanted[0] in (0, number):
            yield (number,)
        return
    for first in _divisors(number) if wanted[0] == 0 else wanted[:1]:
        if first > 0 and number % first == 0:
            for rest in factorizations(number // first, wanted[1:]):
                yield (first, *rest)


@cache
def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
