"""What `save` stores: fields with their chunks, values, coordinates, and names for their axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypeGuard

from numpy.lib.recfunctions import repack_fields

from pencils.array.allocation import Array, Widths
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.distribute.gather import gather
from pencils.distribute.localgrid import LocalGrid, localgrid
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.io.file_info import COORDINATE, DatasetInfo, Stored, encode
from pencils.io.options import as_field_names, check_groups, check_known
from pencils.io.slabs import (
    Extents,
    boundary_widths,
    choose_chunk,
    count_chunks,
    widened,
    with_boundary,
)
from pencils.layout import Selection
from pencils.layout.integers import as_ints, to_int

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# HDF5 keeps the size of a chunk in 32 bits.
MOST_BYTES = 2**32 - 1
# Of a chunk of Zarr by default, and objects that all fields together may have: readers get them
# one by one, and file systems bear so many in a folder.
GOOD_ZARR_BYTES, MOST_FILES = 2**24, 2**13
_KEYWORDS = ("compression", "compression_opts", "shuffle", "fletcher32", "scaleoffset")


@dataclass(frozen=True)
class Contents:
    """Fields, values and coordinates to store, in the same order on every rank."""

    fields: Mapping[str, PencilArray]
    values: Mapping[str, Stored]  # the same on all ranks, coordinates included
    grid: LocalGrid | None  # the coordinates
    compression: Mapping[str, Any]  # as `save` gets it, for all fields
    chunks: Extents | Mapping[str, Extents] = ()  # given extents: of all fields, or by name
    shards: Extents | Mapping[str, Extents] | None = None  # the same; None for HDF5
    tolerance: float | Mapping[str, float] | None = None  # bounds: of all fields, or by name
    boundary: Mapping[str, Widths] = field(default_factory=dict)  # of fields that include it
    attrs: Mapping[str, Any] = field(default_factory=dict)  # of the user
    dataset_attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of datasets
    step_and_time: Mapping[str, Any] = field(default_factory=dict)
    align: int = 1  # datasets of that many bytes and more begin at multiples of it
    summed: bool = True  # whether to store checksums

    @cached_property
    def entries(self) -> list[DatasetInfo]:
        """Descriptions of the fields."""
        entries = []
        for name, u in self.fields.items():
            entry = DatasetInfo.of(name, u, self.boundary.get(name, ()))
            bound = self.tolerance
            bound = bound.get(name) if isinstance(bound, Mapping) else bound
            entry = replace(entry, tolerance=bound)
            extents = extents_of(self.chunks, name)
            if self.shards is not None:
                most = MOST_FILES // max(1, len(self.fields))
                entries.append(sharded(entry, extents, extents_of(self.shards, name), most))
            else:
                chunks = chunks_of(entry, extents, filtered=bool(self.compression))
                entries.append(replace(entry, chunks=chunks))
        return entries

    @cached_property
    def scales(self) -> dict[str, tuple[str, ...]]:
        """Names for the axes of all datasets, of HDF5 only if there is a grid."""
        if self.grid is None and self.shards is None:
            return {}
        found: dict[str, tuple[str, ...]] = {}
        for entry in self.entries:
            if entry.nbytes or self.shards is not None:
                u = self.fields[entry.name]
                whole = Selection.from_key(..., u.shape)
                found[entry.name], *_ = label_axes(entry.name, u, whole, self.grid)
        for name, (kind, data) in self.values.items():
            if kind != COORDINATE and (data.nbytes or self.shards is not None):
                found[name] = tuple(f"dim{axis}_{n}" for axis, n in enumerate(data.shape))
        return found

    def with_boundary(self) -> Contents:
        """Return contents whose fields include their boundary points. *Collective*."""
        boundary = {name: boundary_widths(u) for name, u in self.fields.items()}
        fields = {
            name: with_boundary(u, widened(u.pencil, boundary[name]), boundary[name])
            for name, u in self.fields.items()
        }
        return replace(self, fields=fields, boundary=boundary)


def gather_contents(fields: Any, grid: LocalGrid | None, size: int, **options: Any) -> Contents:
    """Check names, values and processes, and describe the contents, on `size` processes."""
    if grid is not None:
        check_type("grid", grid, LocalGrid)
    names = as_field_names(fields)
    found = {name: fields[name] for name in names if isinstance(fields[name], PencilArray)}
    first = next(iter(found), "")
    for name, u in found.items():
        pencil = found[first].pencil
        if u.pencil.size != size or not u.pencil.same_ranks(pencil):
            raise PencilMismatchError(
                f"fields[{name!r}] and fields[{first!r}] are on different "
                f"processes:\n{u.pencil!r}\n{pencil!r}\nsave them to separate files"
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
    for argument in ("chunks", "shards", "tolerance"):
        check_known(argument, options[argument], found)
    contents = Contents(found, values, grid, **options)
    scales = {label for labels in contents.scales.values() for label in labels}
    check_groups(sorted({*names, *values, *scales}))
    taken = (scales - values.keys()) & set(names)
    if taken:
        raise ArgumentError(
            f"{min(taken)!r} names a dimension of the grid, so it cannot be a field; rename it"
        )
    return contents


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
        given: LocalGrid | None = grid  # `gather_contents` raises for anything else
        return given
    with agreed(comm, call) as agree:
        pencil = grid[0].pencil
        agree(grid=[(u.pencil, u.shape, u.dtype) for u in grid])
        ones = (1,) * pencil.ndim
        shapes = [(*ones[:dim], n, *ones[dim + 1 :]) for dim, n in enumerate(pencil.shape)]
        found = [u.shape for u in grid]
        if found != shapes or any(u.pencil != pencil for u in grid):
            raise PencilMismatchError(
                f"grid has fields of shapes {found}; it needs one coordinate for each dimension "
                f"of one pencil, of shapes {shapes}, as x, y, z = localgrid(...) returns"
            )
    return localgrid(pencil, [gather(u, root=None, dims=dim) for dim, u in enumerate(grid)])


def label_axes(
    name: str, u: PencilArray, selection: Selection, grid: LocalGrid | None
) -> tuple[tuple[str, ...], dict[str, Array], dict[str, Any]]:
    """Name the axes of a selection of a field; also return the coordinates that only it has.

    An axis that has all points of the grid has the name of the coordinate. One with a part of them
    has a coordinate of its own, named after the field, in the second result; the third one has the
    coordinates of single points, which an integer selects.
    """
    points: list[Array | None] = [None] * u.ndim  # of the grid, along axes that have all of them
    along = [f"component{axis}" for axis in range(len(u.components))]
    if grid is None or len(grid.names) != u.pencil.ndim:
        along += [f"dim{dim}" for dim in range(u.pencil.ndim)]
    else:
        along += grid.names
        origins = grid.pencil.layout.all_origins, u.pencil.layout.all_origins
        pairs = zip(*origins, grid.axes, strict=True)
        for axis, (one, other, given) in enumerate(pairs, len(u.components)):
            points[axis] = given if one == other and len(given) == u.shape[axis] else None
    labels: list[str] = []
    own: dict[str, Array] = {}
    single: dict[str, Any] = {}
    for axis, (kept, drop) in enumerate(zip(selection.ranges, selection.dropped, strict=True)):
        label, known = along[axis], points[axis]
        if known is None:
            labels += [] if drop else [f"{label}_{len(kept)}"]
        elif drop:
            single[label] = known[kept.start]
        elif len(kept) == len(known):
            labels.append(label)
        else:
            labels.append(f"{name.replace('/', '_')}_{label}")
            own[labels[-1]] = known[kept.start : kept.stop : kept.step]
    return tuple(labels), own, single


def as_filters(compression: object) -> dict[str, Any]:
    """Return filters as keywords of h5py's ``create_dataset``; HDF5 has to check their values."""
    if compression is None:
        return {}
    options: dict[str, Any] = {"compression": compression}
    if isinstance(compression, Mapping):
        options = dict(compression)
    if isinstance(inner := options.get("compression"), Mapping):  # an object of hdf5plugin
        options |= inner
    unknown = [name for name in options if name not in _KEYWORDS]
    if unknown:
        raise ArgumentError(
            f"compression has an entry {unknown[0]!r}; it takes {', '.join(_KEYWORDS)}, as h5py's "
            "create_dataset, for all fields alike"
        )
    kind = options.get("compression", "")
    if (level := to_int(kind)) is not None:
        options["compression"] = level
    elif not isinstance(kind, str):
        raise TypeError(
            f"compression={compression!r} must be a name like 'gzip', a level of gzip, or a "
            "mapping of keywords of h5py's create_dataset, such as an object of hdf5plugin"
        )
    return options


def as_chunks(chunks: object, what: str = "chunks") -> Extents | dict[str, Extents]:
    """Return extents of chunks: for all fields, empty for none, or by name of the field."""
    if chunks is None:
        return ()
    if isinstance(chunks, Mapping):
        return {name: _as_extents(own, what) for name, own in chunks.items()}
    return _as_extents(chunks, what)


def _as_extents(chunks: object, what: str) -> Extents:
    extents = as_ints(what, chunks)
    if not extents or min(extents) < 1:
        raise ArgumentError(f"{what}={extents} must be one positive extent for each dimension")
    return extents


def extents_of(extents: Extents | Mapping[str, Extents], name: str) -> Extents:
    """Return the extents that are given for a field; empty for none."""
    return extents.get(name, ()) if isinstance(extents, Mapping) else extents


def _check_rank(what: str, extents: Extents, entry: DatasetInfo, dims: int) -> None:
    if extents and len(extents) != dims:
        raise ArgumentError(
            f"{what}={extents} do not fit fields[{entry.name!r}], which has {dims} "
            "dimensions; give one extent for each, or a mapping of names of fields to them"
        )


def sharded(entry: DatasetInfo, chunks: Extents, shards: Extents, most: int) -> DatasetInfo:
    """Describe a field of a Zarr folder by its chunks, and shards: given, or at most so many."""
    lead = entry.components or 0
    points = entry.shape[lead:]
    for what, extents in (("chunks", chunks), ("shards", shards)):
        _check_rank(what, extents, entry, len(points))
    chosen = choose_chunk(points, entry.dtype.itemsize, GOOD_ZARR_BYTES)
    inner = chunks or shards or tuple(max(1, n) for n in chosen)
    if shards and any(n % extent for n, extent in zip(shards, inner, strict=True)):
        raise ArgumentError(
            f"shards={shards} of fields[{entry.name!r}] do not consist of whole chunks, of "
            f"{inner} points; give multiples of these"
        )
    unit, most = [*(shards or inner)], max(1, most // max(1, prod(entry.shape[:lead])))
    while not (chunks or shards) and prod(counts := count_chunks(points, unit)) > most:
        unit[counts.index(max(counts))] *= 2
    ones, in_shards = (1,) * lead, shards or tuple(unit) != inner
    return replace(entry, chunks=ones + tuple(unit), inner=ones + inner if in_shards else ())


def chunks_of(entry: DatasetInfo, extents: Extents, *, filtered: bool) -> Extents:
    """Extents of a field's chunks, components included, of those given; empty if it has none."""
    lead = entry.components or 0
    points = entry.shape[lead:]
    _check_rank("chunks", extents, entry, len(points))
    if not entry.nbytes or not (extents or filtered or entry.tolerance is not None):
        return ()
    if repack_fields(entry.dtype, recurse=True) != entry.dtype:
        raise TypeError(
            f"fields[{entry.name!r}] has records with gaps, {entry.dtype}: filters do not keep the "
            "bytes in gaps, which checksums cover. Save it without compression and chunks, or "
            "packed"
        )
    extents = tuple(map(min, extents or choose_chunk(points, entry.dtype.itemsize), points))
    if prod(extents) * entry.dtype.itemsize > MOST_BYTES:
        raise ArgumentError(
            f"chunks of {extents} points of fields[{entry.name!r}] would have 4 GiB or more, "
            "which HDF5 cannot store; make them smaller"
        )
    return (1,) * lead + extents
