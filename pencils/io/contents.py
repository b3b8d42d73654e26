"""Collect what `save` stores: fields, values that all ranks have, and coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeGuard

from pencils.array.allocation import Widths
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.distribute.gather import gather
from pencils.distribute.localgrid import LocalGrid, localgrid
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.io.chunks import Extents, chunks_of
from pencils.io.file_info import COORDINATE, VIEW, DatasetInfo, Stored, encode
from pencils.io.options import read_fields
from pencils.io.slabs import boundary_widths, widened, with_boundary
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


@dataclass(frozen=True)
class Contents:
    """Fields, values and coordinates to store, in the same order on every rank."""

    fields: Mapping[str, PencilArray]
    values: Mapping[str, Stored]  # the same on all ranks, coordinates included
    grid: LocalGrid | None  # the coordinates
    compression: Mapping[str, Any]  # keywords of h5py's create_dataset, for all fields
    chunks: Extents | Mapping[str, Extents] = ()  # given extents: of all fields, or by name
    boundary: Mapping[str, Widths] = field(default_factory=dict)  # of fields that include it
    attrs: Mapping[str, Any] = field(default_factory=dict)  # of the user
    dataset_attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of datasets
    step_and_time: Mapping[str, Any] = field(default_factory=dict)
    align: int = 1  # datasets of that many bytes and more begin at multiples of it
    summed: bool = True  # whether to store checksums

    @property
    def entries(self) -> list[DatasetInfo]:
        """Descriptions of the fields."""
        entries = []
        for name, u in self.fields.items():
            entry = DatasetInfo.of(name, u, self.boundary.get(name, ()))
            given = self.chunks
            extents = given.get(name, ()) if isinstance(given, Mapping) else given
            chunks = chunks_of(entry, extents, filtered=bool(self.compression))
            entries.append(replace(entry, chunks=chunks))
        return entries

    @property
    def scales(self) -> dict[str, tuple[str, ...]]:
        """Names for the axes of all datasets, if there is a grid."""
        grid = self.grid
        if grid is None:
            return {}
        found = {}
        for entry in self.entries:
            extents = known_extents(grid.pencil, self.fields[entry.name].pencil)
            found[entry.name] = entry, extents
        for name, (kind, data) in self.values.items():
            if kind != COORDINATE:
                found[name] = DatasetInfo(name, data.shape, data.dtype), grid.pencil.shape
        return {
            name: label_axes(entry, grid.names, extents)
            for name, (entry, extents) in found.items()
            if entry.nbytes
        }

    @property
    def agreed_values(self) -> dict[str, object]:
        """What must be the same on all ranks."""
        facts: dict[str, object] = {"names": [*self.fields, *self.values]}
        for entry in self.entries:
            u = self.fields[entry.name]
            facts[f"fields[{entry.name!r}]"] = u.pencil, entry, boundary_widths(u)
        return facts | {f"fields[{name!r}]": value for name, value in self.values.items()}

    def with_boundary(self) -> Contents:
        """Return contents whose fields include their boundary points. *Collective*."""
        boundary = {name: boundary_widths(u) for name, u in self.fields.items()}
        fields = {
            name: with_boundary(u, widened(u.pencil, boundary[name]), boundary[name])
            for name, u in self.fields.items()
        }
        return replace(self, fields=fields, boundary=boundary)


def gather_contents(
    fields: Any,
    grid: LocalGrid | None,
    size: int,
    compression: Mapping[str, Any],
    chunks: Extents | Mapping[str, Extents],
) -> Contents:
    """Check names, values and processes of what to store, on `size` processes."""
    names = read_fields(fields)
    found = {name: fields[name] for name in names if isinstance(fields[name], PencilArray)}
    first = next(iter(found), "")
    for name, u in found.items():
        pencil = found[first].pencil
        if u.pencil.size != size or not u.pencil.same_ranks(pencil):
            raise PencilMismatchError(
                f"fields[{name!r}] and fields[{first!r}] are on different processes:\n"
                f"{u.pencil!r}\n{pencil!r}\nsave them to files of their own"
            )
    values = {}
    for name in (name for name in names if name not in found):
        try:
            values[name] = encode(fields[name])
        except TypeError as error:
            kind = type(fields[name]).__name__
            raise TypeError(f"fields[{name!r}] is a {kind}, not a PencilArray: {error}") from None
    for name, axis in zip(grid.names, grid.axes, strict=True) if grid is not None else ():
        if name in fields:
            raise ArgumentError(
                f"{name!r} is a coordinate of the grid, so it cannot be a field; rename one"
            )
        values[name] = Stored(COORDINATE, axis)
    unknown = sorted(set(chunks) - set(found)) if isinstance(chunks, Mapping) else ()
    if unknown:
        raise ArgumentError(f"chunks has extents for {unknown[0]!r}, which is not a field")
    contents = Contents(found, values, grid, compression, chunks)
    scales = {label for labels in contents.scales.values() for label in labels}
    check_groups(sorted({*names, *values, *scales}))
    taken = (scales - values.keys()) & set(names)
    if taken:
        raise ArgumentError(
            f"{min(taken)!r} names a dimension of the grid, so it cannot be a field; rename it"
        )
    return contents


def check_groups(names: list[str]) -> None:
    """Raise ArgumentError if a name is also the group of another, or in the group for VTK."""
    for name in names:
        groups = [other for other in names if name.startswith(other + "/")]
        if groups:
            raise ArgumentError(
                f"{groups[0]!r} is a field, so it cannot be the group of {name!r}; rename one"
            )
        if name.split("/")[0] == VIEW:
            raise ArgumentError(
                f"{name!r} cannot be the name of a field: the group {VIEW!r} shows fields to VTK; "
                "rename it"
            )


def are_fields(grid: object) -> TypeGuard[Sequence[PencilArray]]:
    """Whether coordinates are given as fields, one for each dimension."""
    return (
        isinstance(grid, list | tuple)
        and bool(grid)
        and all(isinstance(one, PencilArray) for one in grid)
    )


def whole_grid(comm: MPI.Intracomm, call: str, grid: Any) -> LocalGrid | None:
    """Make a LocalGrid of coordinates that are fields; return others as they are. *Collective*."""
    if not are_fields(grid):
        given: LocalGrid | None = grid  # `read_grid` raises for anything else
        return given
    with agreed(comm, call) as agree:
        pencil = grid[0].pencil
        agree(grid=[(u.pencil, u.shape, u.dtype) for u in grid])
        ones = (1,) * pencil.ndim
        shapes = [(*ones[:dim], n, *ones[dim + 1 :]) for dim, n in enumerate(pencil.shape)]
        found = [u.shape for u in grid]
        if found != shapes or any(u.pencil != pencil for u in grid):
            raise PencilMismatchError(
                f"grid has fields of shapes {found}; coordinates are on "
                f"one pencil, each along its dimension: {shapes}, as of x, y, z = localgrid(...)"
            )
    return localgrid(pencil, [gather(u, root=None, dims=dim) for dim, u in enumerate(grid)])


def known_extents(grid: Pencil, pencil: Pencil) -> tuple[int, ...]:
    """Extents of a grid; -1 along dimensions where a pencil has other points of the whole."""
    both = zip_longest(grid.layout.all_origins, pencil.layout.all_origins)
    same = [one == other for one, other in both]
    return tuple(n if same[dim] else -1 for dim, n in enumerate(grid.shape))


def label_axes(entry: DatasetInfo, names: Sequence[str], extents: Sequence[int]) -> tuple[str, ...]:
    """Name the axes of a field for a grid with these coordinates.

    An axis has the name of the coordinates along it, if `extents` has the same number of them.
    Components, singletons and dimensions of other extents have names of their own.

    Examples
    --------
    >>> import numpy as np
    >>> velocity = DatasetInfo("u", (3, 8, 1), np.dtype(float), components=1)
    >>> label_axes(velocity, ("x", "y"), (8, 6))
    ('component0_3', 'x', 'y_1')
    """
    lead = entry.components or 0
    points = entry.shape[lead:]
    on_grid = entry.components is not None and len(points) == len(names)
    along = names if on_grid else [f"dim{dim}" for dim in range(len(points))]
    labels = [f"component{axis}_{n}" for axis, n in enumerate(entry.shape[:lead])]
    for dim, (name, n) in enumerate(zip(along, points, strict=True)):
        labels.append(name if on_grid and n == extents[dim] else f"{name}_{n}")
    return tuple(labels)
