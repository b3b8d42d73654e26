"""Check the arguments of saves, loads and series; collect what `save` stores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import zip_longest
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from pencils.array.allocation import Widths
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.distribute.gather import gather
from pencils.distribute.localgrid import LocalGrid, localgrid
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.io.file_info import (
    COORDINATE,
    MOST_GROUPS,
    OF_SCALES,
    VIEW,
    DatasetInfo,
    Stored,
    encode,
)
from pencils.io.slabs import Extents, boundary_widths, chunks_of, widened, with_boundary
from pencils.layout.integers import as_int
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Truncatable(Protocol):
    """Output like a `TimeSeries`; it may have `closed`, `mode`, and `set_aside`."""

    def truncate(self, time: float) -> object:
        """Drop what is later than `time`. *Collective*."""


def as_path(path: object) -> str:
    """Return a path as text; raise TypeError or ArgumentError if it names no file."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a str or a path-like object, not {path!r}")
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise ArgumentError(f"path={text!r} names no file; pass text like 'run.h5'")
    return text


def read_mode(mode: object) -> str:
    """Return the mode of a series; raise ArgumentError if there is none like it."""
    if not isinstance(mode, str) or mode not in ("a", "w", "x"):
        raise ArgumentError(
            f"mode={mode!r} must be 'a' to continue what is there, 'w' to start anew in its place, "
            "or 'x' to start only where there is nothing yet"
        )
    return mode


def already_there(path: object) -> FileExistsError:
    """Make the error for a path that exists, with ``mode="x"``."""
    msg = (
        f"{path} is there already, and mode='x' only starts where there is nothing yet: mode='a' "
        "continues it, mode='w' starts anew in its place"
    )
    return FileExistsError(msg)


def read_name(name: object) -> str:
    """Return the name of a dataset, like 'fluid/u'; raise TypeError or ArgumentError for others."""
    if not isinstance(name, str):
        raise TypeError(f"names of fields must be str, not {name!r}")
    is_text = name == name.encode(errors="ignore").decode() and "\0" not in name
    parts = name.split("/")
    if {"", ".", ".."} & {*parts} or len(parts) > MOST_GROUPS or not is_text:
        raise ArgumentError(
            f"{name!r:.80} cannot be the name of a field; use text like 'u' or 'fluid/u', with '/' "
            f"after each of at most {MOST_GROUPS - 1} groups, none of them '.' or '..'"
        )
    return name


def read_fields(fields: object) -> list[str]:
    """Return the sorted names of what is to be stored; raise TypeError or ArgumentError."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"fields must be a mapping like {{'u': u}}, not {type(fields).__name__}")
    if not fields:
        raise ArgumentError("fields is empty; pass at least one, like {'u': u}")
    return sorted(read_name(name) for name in fields)


def read_names(names: object) -> list[str] | None:
    """Return names as a list; None means all. Sets are sorted: each rank has its own order."""
    if names is None:
        return None
    if not isinstance(names, Iterable):
        raise TypeError(
            f"names must be a str, several of them, or None for all fields, not {names!r}"
        )
    found = [read_name(name) for name in ([names] if isinstance(names, str) else names)]
    return sorted(found) if isinstance(names, set | frozenset) else found


def as_attrs(attrs: object, reserved: str) -> dict[str, Any]:
    """Return attributes, those of datasets in mappings; raise for empty or reserved names."""
    if attrs is None:
        return {}
    if not isinstance(attrs, Mapping) or not all(isinstance(name, str) for name in attrs):
        raise TypeError(
            "attrs must be a mapping of str to numbers, strings or small arrays, or of the name of "
            f"a dataset to such a mapping, not {attrs!r}"
        )
    for own in attrs.values():
        if isinstance(own, Mapping):
            as_attrs(own, reserved)
            taken = sorted(OF_SCALES & own.keys())
            if taken:  # HDF5 may crash
                raise ArgumentError(
                    f"attrs of a dataset may not be named {taken[0]!r}, by which HDF5 attaches "
                    "coordinates; rename it"
                )
    bad = [name for name in attrs if not name or name.startswith(reserved) or "\0" in name]
    if bad:
        raise ArgumentError(
            f"attrs may not be named {bad[0]!r}: empty names and {reserved}... are not free"
        )
    return dict(attrs)


def split_attrs(attrs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the attributes of a file from those of its datasets, by name."""
    notes = {name: value for name, value in attrs.items() if isinstance(value, Mapping)}
    return {name: value for name, value in attrs.items() if name not in notes}, notes


def check_notes(notes: Iterable[str], known: Iterable[str]) -> None:
    """Raise ArgumentError if a dataset that is to have attributes is not among those known."""
    names = sorted(known)
    missing = sorted(set(notes) - set(names))
    if missing:
        raise ArgumentError(
            f"attrs has attributes of {missing[0]!r}, which is not stored; choose among {names}"
        )


def read_facts(step: object, time: object) -> dict[str, Any]:
    """Return step and time of a run, as far as they are given; raise TypeError or ArgumentError."""
    facts: dict[str, Any] = {} if step is None else {"step": as_int("step", step)}
    if time is not None:
        if isinstance(time, str | bytes) or not hasattr(time, "__float__"):
            raise TypeError(f"time={time!r} must be a real number")
        facts["time"] = float(time)
    return facts


def read_grid(grid: Any) -> LocalGrid | None:
    """Return the coordinates to store; raise TypeError if they are no `LocalGrid`."""
    if grid is not None:
        check_type("grid", grid, LocalGrid)
    found: LocalGrid | None = grid
    return found


def read_every(every: object) -> int | timedelta | None:
    """Return the interval of saves, in steps or time; None means never."""
    if every is None:
        return None
    if not isinstance(every, timedelta):
        return as_int("every", every, least=1)
    if every <= timedelta():
        raise ArgumentError(f"every={every!r} must be positive")
    return every


def read_seconds(name: str, value: object) -> float:
    """Return a time span in seconds; None is endless. Raise TypeError or ArgumentError."""
    if value is None:
        return inf
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}={value!r} must be a number of seconds, a timedelta or None")
    seconds = float(value)
    if isnan(seconds):
        raise ArgumentError(
            f"{name} must not be NaN; pass a number of seconds, a timedelta or None"
        )
    return seconds


def read_outputs(outputs: object) -> list[Truncatable]:
    """Return outputs; raise TypeError or ArgumentError if one cannot be truncated."""
    found: list[Any] = list(outputs) if isinstance(outputs, Iterable) else [None]
    if not all(callable(getattr(output, "truncate", None)) for output in found):
        raise TypeError(
            f"outputs={outputs!r:.80} must be several that can be cut off, like [series]"
        )
    closed = next((output for output in found if getattr(output, "closed", False)), None)
    if closed is not None:
        raise ArgumentError(f"{closed!r} is closed, so it cannot be cut off; make a new one")
    return found


def set_back(outputs: Iterable[Truncatable], time: float | None) -> None:
    """Drop what is later than a time; None: everything, which is kept if possible. *Collective*."""
    for output in outputs:
        if time is None and hasattr(output, "set_aside"):
            output.set_aside()
        else:
            output.truncate(-inf if time is None else time)


def check_continued(outputs: Iterable[Truncatable]) -> None:
    """Raise ArgumentError if an output was opened with mode "w", which drops earlier output."""
    for output in outputs:
        if getattr(output, "mode", "a") == "w":
            raise ArgumentError(
                f"{output!r} was opened with mode='w', which drops what was written before, but "
                "the run goes on from a checkpoint: use mode='a' for it, or mode='w' for both"
            )


def check_processes(ranks: Pencil, *given: object) -> None:
    """Raise an error unless the fields and pencils in `given` are on the processes of `ranks`."""
    groups = (one.values() if isinstance(one, Mapping) else [one] for one in given)
    things = (thing for group in groups for thing in group)
    pencils = (thing.pencil if isinstance(thing, PencilArray) else thing for thing in things)
    found = [pencil for pencil in pencils if isinstance(pencil, Pencil)]
    if not found:
        raise ArgumentError("pass at least one field of these processes, or a pencil to load onto")
    for pencil in found:
        if not pencil.same_ranks(ranks):
            raise PencilMismatchError(
                f"{pencil!r}\nis on other processes than the series of checkpoints; make a series "
                "with comm=pencil.comm"
            )


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
    fields: Any, grid: LocalGrid | None, size: int, *, chunks: Any, **options: Any
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
    contents = Contents(found, values, grid, chunks=chunks, **options)
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
    """Name the axes of a field by the coordinates along them, if these have as many `extents`."""
    lead = entry.components or 0
    points = entry.shape[lead:]
    on_grid = entry.components is not None and len(points) == len(names)
    along = names if on_grid else [f"dim{dim}" for dim in range(len(points))]
    labels = [f"component{axis}_{n}" for axis, n in enumerate(entry.shape[:lead])]
    for dim, (name, n) in enumerate(zip(along, points, strict=True)):
        labels.append(name if on_grid and n == extents[dim] else f"{name}_{n}")
    return tuple(labels)
