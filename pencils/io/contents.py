"""Collect what `save` stores: fields, values that all ranks have, and coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from pencils.array.allocation import Widths
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.distribute.gather import gather
from pencils.distribute.localgrid import LocalGrid, localgrid
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.io.chunks import Chunking
from pencils.io.file_info import COORDINATE, DatasetInfo, Stored, encode
from pencils.io.options import read_name
from pencils.io.slabs import boundary_widths, widened, with_boundary
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


@dataclass(frozen=True)
class Contents:
    """Fields, values and coordinates to store, in the same order on every rank.

    Parameters
    ----------
    fields : mapping of str to PencilArray
        The fields.
    values : mapping of str to Stored
        Values that are the same on all ranks, coordinates included.
    grid : LocalGrid or None
        The coordinates.
    chunking : Chunking
        Compression and chunks of the fields.
    boundary : mapping of str to sequence of (int, int)
        Numbers of boundary points, for fields that include them.
    attrs : mapping of str to object
        Attributes of the user.
    run : mapping of str to object
        Step and time of the run.
    align : int
        Datasets of that many bytes and more begin at multiples of it.
    summed : bool
        Whether to store checksums.
    """

    fields: Mapping[str, PencilArray]
    values: Mapping[str, Stored]
    grid: LocalGrid | None
    chunking: Chunking
    boundary: Mapping[str, Widths] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    align: int = 1
    summed: bool = True

    @property
    def entries(self) -> list[DatasetInfo]:
        """Descriptions of the fields."""
        fields = self.fields.items()
        entries = [DatasetInfo.of(name, u, self.boundary.get(name, ())) for name, u in fields]
        return [replace(entry, chunks=self.chunking.chunks(entry)) for entry in entries]

    @property
    def scales(self) -> dict[str, tuple[str, ...]]:
        """Names for the axes of all datasets, if there is a grid."""
        if self.grid is None:
            return {}
        grid = self.grid.names, self.grid.pencil.shape
        arrays = {name: value for name, value in self.values.items() if value.kind != COORDINATE}
        values = [
            DatasetInfo(name, value.data.shape, value.data.dtype) for name, value in arrays.items()
        ]
        everything = [*self.entries, *values]
        return {entry.name: label_axes(entry, *grid) for entry in everything if entry.nbytes}

    @property
    def facts(self) -> dict[str, object]:
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
    fields: object, grid: LocalGrid | None, size: int, chunking: Chunking
) -> Contents:
    """Check what to store, on `size` processes.

    Raises an error if names are not allowed or used twice, a value cannot be stored, or fields are
    on different processes.
    """
    if not isinstance(fields, Mapping):
        msg = f"fields must be a mapping like {{'u': u}}, not {type(fields).__name__}"
        raise TypeError(msg)
    if not fields:
        msg = "fields is empty; pass at least one, like {'u': u}"
        raise ArgumentError(msg)
    names = sorted(read_name(name) for name in fields)
    found = {name: fields[name] for name in names if isinstance(fields[name], PencilArray)}
    _check_processes(found, size)
    values = {name: _encode(name, fields[name]) for name in names if name not in found}
    if grid is not None:
        values |= _coordinates(grid, fields)
    chunking.check_names(found)
    contents = Contents(found, values, grid, chunking)
    scales = {label for labels in contents.scales.values() for label in labels}
    check_groups(sorted({*names, *values, *scales}))
    taken = (scales - values.keys()) & set(names)
    if taken:
        msg = f"{min(taken)!r} names a dimension of the grid, so it cannot be a field; rename it"
        raise ArgumentError(msg)
    return contents


def _encode(name: str, value: object) -> Stored:
    try:
        return encode(value)
    except TypeError as error:
        msg = f"fields[{name!r}] is a {type(value).__name__}, not a PencilArray: {error}"
        raise TypeError(msg) from None


def _coordinates(grid: LocalGrid, fields: Mapping[str, Any]) -> dict[str, Stored]:
    for name in grid.names:
        if name in fields:
            msg = f"{name!r} is a coordinate of the grid, so it cannot be a field; rename one"
            raise ArgumentError(msg)
    pairs = zip(grid.names, grid.axes, strict=True)
    return {name: Stored(COORDINATE, axis) for name, axis in pairs}


def _check_processes(fields: Mapping[str, PencilArray], size: int) -> None:
    first: tuple[str, Pencil] | None = None
    for name, u in fields.items():
        first = first or (name, u.pencil)
        if u.pencil.size != size or not u.pencil.same_ranks(first[1]):
            msg = (
                f"fields[{name!r}] and fields[{first[0]!r}] are on different processes:\n"
                f"{u.pencil!r}\n{first[1]!r}\nsave them to files of their own"
            )
            raise PencilMismatchError(msg)


def check_groups(names: list[str]) -> None:
    """Raise ArgumentError if one of the names is also the group of another."""
    for name in names:
        groups = [other for other in names if name.startswith(other + "/")]
        if groups:
            msg = f"{groups[0]!r} is a field, so it cannot be the group of {name!r}; rename one"
            raise ArgumentError(msg)


def are_fields(grid: object) -> TypeGuard[Sequence[PencilArray]]:
    """Whether coordinates are given as fields, one for each dimension."""
    return (
        isinstance(grid, list | tuple)
        and bool(grid)
        and all(isinstance(one, PencilArray) for one in grid)
    )


def whole_grid(comm: MPI.Intracomm, call: str, grid: Any) -> LocalGrid | None:
    """Make a LocalGrid of coordinates that are fields; return anything else as it is. *Collective*.

    Raises
    ------
    ArgumentError, PencilMismatchError
        On every rank, if they are not coordinates along each dimension of one pencil.
    """
    if not are_fields(grid):
        given: LocalGrid | None = grid  # `read_grid` raises for anything else
        return given
    with agreed(comm, call) as same:
        pencil = grid[0].pencil
        same(grid=[(field.pencil, field.shape, field.dtype) for field in grid])
        ones = (1,) * pencil.ndim
        shapes = [(*ones[:dim], n, *ones[dim + 1 :]) for dim, n in enumerate(pencil.shape)]
        found = [field.shape for field in grid]
        if found != shapes or any(field.pencil != pencil for field in grid):
            msg = (
                f"grid has fields of shapes {found}; coordinates are on "
                f"one pencil, each along its dimension: {shapes}, as of x, y, z = localgrid(...)"
            )
            raise PencilMismatchError(msg)
    return localgrid(pencil, [gather(field, root=None, dims=dim) for dim, field in enumerate(grid)])


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
