"""Fields together with their boundary points, for files that store these."""

from __future__ import annotations

from pencils.array.allocation import Widths, padded_slices
from pencils.array.pencil_array import PencilArray
from pencils.layout import Split
from pencils.pencil import Extent, Pencil


def boundary_widths(field: PencilArray) -> Widths:
    """How many boundary points a field has before and after each dimension.

    Only beyond the ends of dimensions that do not wrap are there any.
    """
    along = enumerate(zip(field.halo, field.extent.shape, strict=True))
    periodic, none = field.pencil.periodic, field.singletons | field.trimmed
    return tuple(
        (0, 0) if periodic[dim] or points == 0 or dim in none else halo
        for dim, (halo, points) in along
    )


def widened(pencil: Pencil, widths: Widths) -> Pencil:
    """Make a pencil that has these boundary points, too. *Collective*.

    They belong to the ranks with the first and the last points.
    """
    layout = pencil.layout
    specs = layout.split_specs
    points = [n + lo + hi for n, (lo, hi) in zip(pencil.shape, widths, strict=True)]
    for dim, (lo, hi) in enumerate(widths):
        if lo or hi:
            specs[dim] = _widened_bounds(layout.splits[dim], lo, points[dim])
    return pencil.with_(shape=points, splits=specs)


def _widened_bounds(split: Split, lo: int, points: int) -> tuple[int, ...]:
    bounds = [split.bounds(part)[0] for part in range(split.parts)] + [split.points]
    ends = {0: 0, split.points: points}
    return tuple(ends.get(bound, bound + lo) for bound in bounds)


def with_boundary(field: PencilArray, pencil: Pencil, widths: Widths) -> PencilArray:
    """View a field, which has room for them, together with its boundary points."""
    here = _here(field.extent, widths)
    block = field.padded[padded_slices(field.extent.local_shape, field.halo_room, here)]
    return PencilArray.from_block(pencil, block, field.singletons)


def has_room(field: PencilArray, widths: Widths) -> bool:
    """Whether a field can hold that many boundary points."""
    pairs = zip(boundary_widths(field), widths, strict=True)
    return all(have[0] >= lo and have[1] >= hi for have, (lo, hi) in pairs)


def copy_common(wide: PencilArray, field: PencilArray, widths: Widths) -> None:
    """Fill a field from one that also has boundary points, as far as it has room for these."""
    pairs = zip(boundary_widths(field), widths, strict=True)
    common = tuple((min(a, lo), min(b, hi)) for (a, b), (lo, hi) in pairs)
    there, here = _here(field.extent, widths), _here(field.extent, common)
    local = field.extent.local_shape
    target = field.padded[padded_slices(local, field.halo_room, here)]
    target[...] = wide.local[padded_slices(local, there, here)]


def _here(extent: Extent, widths: Widths) -> Widths:
    """Boundary points that this rank has: all before the first point, all after the last."""
    along = zip(extent.box.start, extent.box.stop, extent.shape, widths, strict=True)
    return tuple(
        (lo if start == 0 else 0, hi if stop == n else 0) if start < stop else (0, 0)
        for start, stop, n, (lo, hi) in along
    )
