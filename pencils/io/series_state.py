"""What a series contains, and what is to be appended to it.

A *column* is a dataset that grows with time: of a field or a selection of one, of a value, of
times, of checksums. Rank 0 keeps the `SeriesState`: everything but the points of fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.io.file_info import COORDINATE, RESERVED, TIME, DatasetInfo, Stored, encode
from pencils.io.options import check_groups, check_notes, known_extents, read_fields
from pencils.layout import Selection
from pencils.layout.box import as_slice
from pencils.pencil import Pencil

# Checksums of the snapshots of fields, by name in this group.
SUMS = RESERVED + "checksum/"
# Attribute: which points of a field are stored.
_SELECTED = RESERVED + "selection"
# Attribute: that a dataset holds values.
_VALUE = RESERVED + "value"

_NUMBERS = ("bool", "int", "float", "complex", "numpy")  # kinds of values

# Fields by name, with the points to store.
Selected = Mapping[str, tuple[PencilArray, Selection]]


@dataclass(frozen=True, slots=True)
class Column:
    """What a series holds under one name."""

    name: str
    shape: tuple[int, ...]  # of one snapshot
    dtype: np.dtype[Any]
    labels: tuple[str, ...] = ()  # names of the axes of a snapshot
    attrs: Mapping[str, Any] = field(default_factory=dict)  # of the dataset
    is_field: bool = False  # or a value that all ranks have alike

    @property
    def nbytes(self) -> int:
        """Bytes of one snapshot."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def selection(self) -> str | None:
        """Which points of a field are stored."""
        return self.attrs.get(_SELECTED)


@dataclass
class SeriesState:
    """Datasets, coordinates and attributes of a series, and its values at all times."""

    attrs: dict[str, Any] = field(default_factory=dict)  # of the file
    columns: dict[str, Column] = field(default_factory=dict)
    coordinates: dict[str, Array] = field(default_factory=dict)  # along axes of columns
    values: dict[str, list[Any]] = field(default_factory=dict)  # of all columns but fields
    notes: dict[str, Any] = field(default_factory=dict)  # attributes of datasets, of the user
    whole: bool = True  # whether all this is also in the file

    @property
    def times(self) -> list[float]:
        """Times of all snapshots."""
        return self.values.get(TIME, [])

    @property
    def fields(self) -> list[Column]:
        """Datasets of fields."""
        return [column for column in self.columns.values() if column.is_field]

    def start(self, columns: Iterable[Column], coordinates: Mapping[str, Array]) -> None:
        """Fix what a series holds, before its first snapshot.

        Raises ArgumentError if a dimension has the name of a field, or there are attributes of
        something else.
        """
        given = {column.name: column for column in columns}
        labels = {label for column in given.values() for label in column.labels}
        taken = (labels | coordinates.keys()) & (given.keys() | {TIME})
        if taken:
            raise ArgumentError(
                f"{min(taken)!r} names a dimension of the grid, so it cannot be a field; rename"
            )
        times = Column(TIME, (), np.dtype(float), attrs={_VALUE: "numpy"})
        names = [column.name for column in given.values() if column.is_field]
        sums = [Column(SUMS + name, (), np.dtype(np.uint64)) for name in names]
        everything = [times, *given.values(), *sums]
        check_notes(self.notes, {*given, TIME, *coordinates})
        self.columns = {column.name: column for column in everything}
        self.coordinates = dict(coordinates)
        self.values = {column.name: [] for column in everything if not column.is_field}

    def check(self, columns: Iterable[Column], coordinates: Mapping[str, Array]) -> None:
        """Raise ArgumentError if names, shapes, types or coordinates to append differ."""
        given = {column.name: column for column in columns}
        own = {name for name in self.columns if name != TIME and not name.startswith(SUMS)}
        for names, what in ((own - given.keys(), "misses"), (given.keys() - own, "has besides")):
            if names:
                raise ArgumentError(
                    f"the series holds {sorted(own)}; what is appended {what} {sorted(names)}"
                )
        for name, column in given.items():
            for what in ("shape", "dtype", "is_field", "selection"):
                old, new = getattr(self.columns[name], what), getattr(column, what)
                if old != new:
                    raise ArgumentError(
                        f"{name!r} has {what} {old} in the series, what is appended has {new}"
                    )
        for name, points in coordinates.items():
            if not np.array_equal(self.coordinates.get(name, points[:0]), points):
                raise ArgumentError(
                    f"the coordinate {name!r} of the grid differs from that in the series"
                )

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change state and file together; after a failure neither can be trusted."""
        self.whole = False
        yield
        self.whole = True

    def record(self, values: Mapping[str, Any]) -> None:
        """Add a snapshot: time, values and checksums."""
        for name, value in values.items():
            self.values[name].append(copy(value))  # callers use their arrays again

    def cut(self, count: int) -> None:
        """Forget all but the first snapshots."""
        for history in self.values.values():
            del history[count:]

    def checksum(self, name: str) -> int:
        """Checksum of all snapshots of a field."""
        return sum(map(int, self.values[SUMS + name])) % 2**64

    def entries(self) -> list[DatasetInfo]:
        """Describe what the file of the series holds."""
        entries = []
        for name, column in self.columns.items():
            kind = "" if column.is_field else column.attrs.get(_VALUE, COORDINATE)
            total = self.checksum(name) if SUMS + name in self.values else None
            shape = len(self.times), *column.shape
            entries.append(DatasetInfo(name, shape, column.dtype, kind=kind, checksum=total))
        for name, points in self.coordinates.items():
            entries.append(DatasetInfo(name, points.shape, points.dtype, kind=COORDINATE))
        return entries


def read_samples(fields: Any, ranks: Pencil) -> tuple[Selected, dict[str, Stored]]:
    """Read what is to be appended: fields with selections of them, and values, sorted by name.

    Raises ArgumentError, IndexError, PencilMismatchError or TypeError if names, fields, selections
    or values are not what a series takes.
    """
    names = read_fields(fields)
    for name in names:
        if name == TIME or name.startswith(RESERVED):
            raise ArgumentError(
                f"{name!r} cannot be the name of a field of a series; the series itself uses it"
            )
    check_groups(sorted([*names, TIME]))
    selected, values = {}, {}
    for name in names:
        thing = fields[name]
        is_pair = isinstance(thing, tuple) and len(thing) == 2  # noqa: PLR2004
        u, key = thing if is_pair else (thing, ...)
        if isinstance(u, PencilArray):
            selected[name] = u, _read_selection(name, u, key, ranks)
        else:
            values[name] = _read_value(name, thing)
    return selected, values


def _read_selection(name: str, u: PencilArray, key: Any, ranks: Pencil) -> Selection:
    if u.pencil.size != ranks.size or not u.pencil.same_ranks(ranks):
        raise PencilMismatchError(
            f"fields[{name!r}] is on other processes than the series:\n{u.pencil!r}"
        )
    selection = Selection.from_key(key, u.shape)
    if any(kept.step < 0 for kept in selection.ranges):
        raise ArgumentError(f"fields[{name!r}] is selected backwards; use positive steps")
    return selection


def _read_value(name: str, value: object) -> Stored:
    stored = None
    with suppress(TypeError):
        stored = encode(value)
    if stored is None or stored.kind not in _NUMBERS:
        raise TypeError(
            f"fields[{name!r}] is a {type(value).__name__}; a series takes PencilArrays, (field, "
            "selection) pairs, numbers and NumPy arrays"
        )
    return stored


def take(u: PencilArray, selection: Selection) -> PencilArray:
    """View the selected points of a field where they are, without halo.

    Dimensions that were indexed by an integer keep one point.
    """
    lead = len(u.components)
    slices = tuple(map(as_slice, selection.ranges))
    drops = (
        one.start if drop else one for one, drop in zip(slices, selection.dropped, strict=True)
    )
    part = u[(*islice(drops, lead), *slices[lead:])]
    return PencilArray.from_block(part.pencil, part.local, part.singletons)


def describe_columns(
    selected: Selected,
    taken: Mapping[str, PencilArray],
    values: Mapping[str, Stored],
    grid: LocalGrid | None,
) -> tuple[list[Column], dict[str, Array]]:
    """Describe datasets and coordinates for what is appended."""
    columns = [_describe_value(name, value.data) for name, value in values.items()]
    coordinates = {} if grid is None else dict(zip(grid.names, grid.axes, strict=True))
    for name, (u, selection) in selected.items():
        column, own = _describe_field(name, u, selection, taken[name], grid)
        columns.append(column)
        twice = own.keys() & coordinates.keys()
        if twice:
            raise ArgumentError(
                f"two fields would have a coordinate {min(twice)!r} of their own; rename one"
            )
        coordinates |= own
    return sorted(columns, key=lambda column: column.name), coordinates


def _describe_value(name: str, data: Array) -> Column:
    labels = tuple(f"dim{axis}_{n}" for axis, n in enumerate(data.shape))
    return Column(name, data.shape, data.dtype, labels, {_VALUE: "numpy"})


def _describe_field(
    name: str, u: PencilArray, selection: Selection, taken: PencilArray, grid: LocalGrid | None
) -> tuple[Column, dict[str, Array]]:
    """Describe the dataset of a field, and the coordinates of its own that it needs.

    An axis that has all points of the grid has the coordinate of the grid; of a part of them a
    coordinate of its own, named after the field. Where an integer selects one point of an axis,
    its coordinate becomes an attribute.
    """
    lead, dropped = len(u.components), selection.dropped
    left = [dim for dim in range(u.pencil.ndim) if not dropped[lead + dim]]
    labels: list[str] = []
    own: dict[str, Array] = {}
    attrs: dict[str, Any] = {
        RESERVED + "components": 1 + dropped[:lead].count(False),  # with time, for load
        RESERVED + "singleton": np.array([dim in taken.singletons for dim in left], np.int8),
        RESERVED + "periodic": np.array([taken.pencil.periodic[dim] for dim in left], np.int8),
        _SELECTED: _selection_text(selection),
    }
    known = grid if grid is not None and len(grid.names) == u.pencil.ndim else None
    extents = () if known is None else known_extents(known.pencil, u.pencil)
    for axis, (kept, drop) in enumerate(zip(selection.ranges, dropped, strict=True)):
        dim = axis - lead
        if dim < 0:
            labels += [] if drop else [f"component{axis}_{len(kept)}"]
        elif known is None or u.shape[axis] != extents[dim]:
            along = f"dim{dim}" if known is None else known.names[dim]
            labels += [] if drop else [f"{along}_{len(kept)}"]
        elif drop:
            attrs[known.names[dim]] = known.axes[dim][kept.start]
        elif len(kept) == len(known.axes[dim]):
            labels.append(known.names[dim])
        else:
            label = f"{name.replace('/', '_')}_{known.names[dim]}"
            labels.append(label)
            own[label] = known.axes[dim][kept.start : kept.stop : kept.step]
    column = Column(name, selection.shape, taken.dtype, tuple(labels), attrs, is_field=True)
    return column, own


def _selection_text(selection: Selection) -> str:
    pairs = zip(selection.ranges, selection.dropped, strict=True)
    parts = (
        str(kept.start) if drop else f"{kept.start}:{kept.stop}:{kept.step}" for kept, drop in pairs
    )
    return f"[{', '.join(parts)}]"
