"""What is to be stored: fields, values that all ranks share, and coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pencils.array.allocation import Widths
from pencils.array.pencil_array import PencilArray
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.io.boundary import boundary_widths, widened, with_boundary
from pencils.io.chunking import Chunking
from pencils.io.dataset_info import DatasetInfo
from pencils.io.options import read_name
from pencils.io.scales import label_axes
from pencils.io.values import COORDINATE, Stored, encode
from pencils.pencil import Pencil


@dataclass(frozen=True)
class Contents:
    """What `save` was given, in the same order on every rank.

    Parameters
    ----------
    fields : mapping of str to PencilArray
        The fields.
    values : mapping of str to Stored
        What all ranks have alike, coordinates included.
    grid : LocalGrid or None
        The coordinates.
    chunking : Chunking
        How the fields are compressed and chunked.
    boundary : mapping of str to sequence of (int, int)
        For fields that include boundary points, how many there are.
    """

    fields: Mapping[str, PencilArray]
    values: Mapping[str, Stored]
    grid: LocalGrid | None
    chunking: Chunking
    boundary: Mapping[str, Widths] = field(default_factory=dict)

    @property
    def entries(self) -> list[DatasetInfo]:
        """Descriptions of the fields."""
        fields = self.fields.items()
        entries = [DatasetInfo.of(name, u, self.boundary.get(name, ())) for name, u in fields]
        return [replace(entry, chunks=self.chunking.chunks(entry)) for entry in entries]

    @property
    def scales(self) -> dict[str, tuple[str, ...]]:
        """Names for the axes of all that is stored, if there is a grid."""
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
        """What all ranks must agree on."""
        facts: dict[str, object] = {"names": [*self.fields, *self.values]}
        for entry in self.entries:
            u = self.fields[entry.name]
            facts[f"fields[{entry.name!r}]"] = u.pencil, entry, boundary_widths(u)
        return facts | {f"fields[{name!r}]": value for name, value in self.values.items()}

    def with_boundary(self) -> Contents:
        """Add their boundary points to all fields. *Collective*."""
        boundary = {name: boundary_widths(u) for name, u in self.fields.items()}
        fields = {
            name: with_boundary(u, widened(u.pencil, boundary[name]), boundary[name])
            for name, u in self.fields.items()
        }
        return replace(self, fields=fields, boundary=boundary)


def gather_contents(
    fields: object, grid: LocalGrid | None, size: int, chunking: Chunking
) -> Contents:
    """Read what is to be stored over `size` processes.

    Raises
    ------
    ArgumentError, PencilMismatchError, TypeError
        If the names, the values or the processes of the fields do not go together.
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
                f"fields[{name!r}] and fields[{first[0]!r}] lie over different processes:\n"
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
