"""Build a Layout from user arguments: defaults and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pencils.errors import ArgumentError
from pencils.layout.grid import ProcessGrid, choose_grid
from pencils.layout.integers import as_dims, as_int, as_ints, items_of, to_int
from pencils.layout.layout import Layout
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
    decomp : int or sequence of int, optional
        Decomposed dimensions; entry ``i`` lies on axis ``i`` of the process grid. Default: all
        but the last, or dimension 0 of a 1-D grid. Negative ones count from the end.
    grid : int or sequence of int, optional
        Processes along each entry of `decomp`; 0 leaves the choice open (`choose_grid`).
    periodic : bool or sequence of bool, optional
        Whether dimensions wrap around, for all or for each.
    order : sequence of int, optional
        Memory order of the dimensions, slowest first. Default: C order.
    splits : str, sequence of int, or one of these per dimension, optional
        A rule name ("first", "last", "floor", "ceil"; see `Split`) or explicit bounds
        ``(0, ..., points)``, one more than there are processes along the dimension.

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


def _read_shape(shape: object) -> tuple[int, ...]:
    extents = as_ints("shape", shape)
    if not extents or min(extents) < 0:
        msg = f"shape={extents} must have at least one dimension and no negative extent"
        raise ArgumentError(msg)
    return extents


def _read_decomp(decomp: object, ndim: int) -> tuple[int, ...]:
    if decomp is None:
        return tuple(range(max(1, ndim - 1)))
    dims = as_dims("decomp", decomp, ndim)
    if not dims:
        msg = "decomp=() decomposes nothing; name at least one dimension"
        raise ArgumentError(msg)
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
        msg = (
            f"grid={wanted} must give the number of processes (0 = choose) for each of the "
            f"{len(decomp)} decomposed dimensions {decomp}; decomp= decomposes others"
        )
        raise ArgumentError(msg)
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
        msg = f"order={dims} must name each of the {ndim} dimensions once, slowest first"
        raise ArgumentError(msg)
    return dims


def _read_periodic(periodic: object, ndim: int) -> tuple[bool, ...]:
    flags = items_of(periodic)
    if len(flags) == 1 and flags[0] is periodic:
        flags *= ndim
    if len(flags) != ndim or any(flag not in (True, False) for flag in flags):
        msg = f"periodic={periodic!r} must be one boolean or one for each of {ndim} dimensions"
        raise ArgumentError(msg)
    return tuple(map(bool, flags))


def _read_splits(splits: object, ndim: int) -> list[SplitSpec]:
    specs = items_of(splits)
    if splits is None or isinstance(splits, str):
        specs *= ndim
    elif ndim == 1 and len(specs) != 1 and all(to_int(item) is not None for item in specs):
        specs = [specs]
    if len(specs) != ndim:
        msg = (
            f"splits={splits!r} must be one rule or one entry for each of {ndim} dimensions; "
            f"{_ALLOWED_SPLITS}"
        )
        raise ArgumentError(msg)
    return [_read_split(spec) for spec in specs]


def _read_split(spec: object) -> SplitSpec:
    if spec is None:
        return "first"
    if not isinstance(spec, str):
        return Split.from_bounds(as_ints("splits", spec)).table
    if spec not in RULES:
        msg = f"split rule {spec!r} is unknown; {_ALLOWED_SPLITS}"
        raise ArgumentError(msg)
    return spec


def _make_split(dim: int, points: int, parts: int, spec: SplitSpec) -> Split:
    if isinstance(spec, str):
        return Split(points, parts, cast("Rule", spec))
    if len(spec) != parts + 1 or spec[-1] != points:
        msg = (
            f"splits of dimension {dim} must be {parts + 1} bounds from 0 to {points} "
            f"({parts} processes along it), got {spec!r}"
        )
        raise ArgumentError(msg)
    return Split.from_bounds(spec)
