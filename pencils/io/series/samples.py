"""What is to be appended to a series: fields, selections of them, and values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.io.contents import check_groups
from pencils.io.file_info import RESERVED, Stored, encode
from pencils.io.options import read_name
from pencils.io.series.state import SELECTED, SOURCE, TIME, Column
from pencils.layout import Box, Selection
from pencils.layout.box import positions
from pencils.pencil import Pencil

_NUMBERS = ("bool", "int", "float", "complex", "numpy")  # kinds of values


@dataclass(frozen=True, slots=True)
class FieldSample:
    """A field, and what is stored of it under a name."""

    name: str
    field: PencilArray
    selection: Selection

    @property
    def facts(self) -> tuple[object, ...]:
        """What all ranks must agree on."""
        u = self.field
        return u.pencil, u.shape, u.dtype, sorted(u.singletons), self.selection


@dataclass(frozen=True, slots=True)
class ValueSample:
    """A value that all ranks have alike."""

    name: str
    value: Stored

    @property
    def facts(self) -> tuple[object, ...]:
        """What all ranks must agree on."""
        return (self.value,)


Sample = FieldSample | ValueSample


def read_samples(fields: object, ranks: Pencil) -> list[Sample]:
    """Read what is to be appended.

    Raises
    ------
    ArgumentError, IndexError, PencilMismatchError, TypeError
        If names, fields, selections or values are not what a series takes.
    """
    if not isinstance(fields, Mapping):
        msg = f"fields must be a mapping like {{'u': u}}, not {type(fields).__name__}"
        raise TypeError(msg)
    if not fields:
        msg = "fields is empty; pass at least one, like {'u': u}"
        raise ArgumentError(msg)
    names = sorted(read_name(name) for name in fields)
    for name in names:
        if name == TIME or name.startswith(RESERVED):
            msg = f"{name!r} cannot be the name of a field of a series; the series itself uses it"
            raise ArgumentError(msg)
    check_groups(sorted([*names, TIME]))
    return [_read_sample(name, fields[name], ranks) for name in names]


def _read_sample(name: str, thing: object, ranks: Pencil) -> Sample:
    u, key = thing if isinstance(thing, tuple) and len(thing) == 2 else (thing, ...)  # noqa: PLR2004
    if not isinstance(u, PencilArray):
        return ValueSample(name, _read_value(name, thing))
    if u.pencil.size != ranks.size or not u.pencil.same_ranks(ranks):
        msg = f"fields[{name!r}] lies over other processes than the series:\n{u.pencil!r}"
        raise PencilMismatchError(msg)
    selection = Selection.from_key(key, u.shape)
    if any(kept.step < 0 for kept in selection.ranges):
        msg = f"fields[{name!r}] is selected backwards; use positive steps"
        raise ArgumentError(msg)
    return FieldSample(name, u, selection)


def _read_value(name: str, value: object) -> Stored:
    stored = None
    with suppress(TypeError):
        stored = encode(value)
    if stored is None or stored.kind not in _NUMBERS:
        msg = (
            f"fields[{name!r}] is a {type(value).__name__}; a series takes PencilArrays, (field, "
            "selection) pairs, numbers and NumPy arrays"
        )
        raise TypeError(msg)
    return stored


class Selector:
    """Makes fields of selections, on pencils that it keeps."""

    def __init__(self) -> None:
        self._pencils: dict[tuple[Pencil, Selection, frozenset[int]], Pencil] = {}

    def take(self, u: PencilArray, selection: Selection) -> PencilArray:
        """View the selected points of a field where they are. *Collective*.

        Dimensions that were indexed by an integer keep one point; halos are left out.
        """
        lead = len(u.components)
        if selection == Selection.from_key(..., u.shape):
            return PencilArray.from_block(u.pencil, u.local, u.singletons)
        singletons = frozenset(dim for dim in u.singletons if selection.ranges[lead + dim])
        key = u.pencil, selection, singletons
        if key not in self._pencils:
            self._pencils[key] = _selected_pencil(u.pencil, selection.ranges[lead:], singletons)
        box = Box((0,) * lead + u.extent.box.start, tuple(u.components) + u.extent.box.stop)
        whole = Selection(selection.ranges, (False,) * len(selection.ranges))
        block = u.local[whole.local(box)]
        block = block[tuple(0 if drop else slice(None) for drop in selection.dropped[:lead])]
        return PencilArray.from_block(self._pencils[key], block, singletons)


def _selected_pencil(
    pencil: Pencil, ranges: tuple[range, ...], singletons: frozenset[int]
) -> Pencil:
    """Lay out the selected points so that every rank has those which are in its block."""
    specs, points = pencil.layout.split_specs, list(pencil.shape)
    for dim, kept in enumerate(ranges):
        if dim in singletons:
            continue
        split = pencil.layout.splits[dim]
        first = [positions(kept, *split.bounds(part))[0] for part in range(split.parts)]
        points[dim] = len(kept)
        specs[dim] = (0, *first[1:], len(kept))
    return pencil.with_(shape=points, splits=specs)


def describe_value(sample: ValueSample) -> Column:
    """Describe the dataset of a value."""
    data = sample.value.data
    labels = tuple(f"dim{axis}_{n}" for axis, n in enumerate(data.shape))
    attrs = {RESERVED + "value": "numpy"}
    return Column(sample.name, data.shape, data.dtype, labels, attrs, is_field=False)


def describe_field(
    sample: FieldSample, taken: PencilArray, grid: LocalGrid | None
) -> tuple[Column, dict[str, Array]]:
    """Describe the dataset of a field, and the coordinates of its own that it needs."""
    selection = sample.selection
    axes = Axes(sample, grid)
    left = [dim for dim in range(taken.pencil.ndim) if not selection.dropped[axes.lead + dim]]
    lead = sum(not drop for drop in selection.dropped[: axes.lead])
    attrs: dict[str, Any] = {
        RESERVED + "components": 1 + lead,  # time is one of them when all snapshots are loaded
        RESERVED + "singleton": np.array([dim in taken.singletons for dim in left], np.int8),
        RESERVED + "periodic": np.array([taken.pencil.periodic[dim] for dim in left], np.int8),
        SOURCE: np.array(taken.shape),
        SELECTED: _tell(selection),
        **axes.places,
    }
    column = Column(
        sample.name, selection.shape, taken.dtype, tuple(axes.labels), attrs, is_field=True
    )
    return column, axes.coordinates


def _tell(selection: Selection) -> str:
    pairs = zip(selection.ranges, selection.dropped, strict=True)
    parts = (
        str(kept.start) if drop else f"{kept.start}:{kept.stop}:{kept.step}" for kept, drop in pairs
    )
    return f"[{', '.join(parts)}]"


class Axes:
    """Names of the axes of a selection, coordinates along them, and places where it cuts.

    An axis that has all points of the grid has the coordinate of the grid; of a part of them a
    coordinate of its own, named after the field.
    """

    def __init__(self, sample: FieldSample, grid: LocalGrid | None) -> None:
        u, selection = sample.field, sample.selection
        self.lead = len(u.components)
        self.labels: list[str] = []
        self.coordinates: dict[str, Array] = {}
        self.places: dict[str, Any] = {}
        known = grid if grid is not None and len(grid.names) == u.pencil.ndim else None
        for axis, (kept, drop) in enumerate(zip(selection.ranges, selection.dropped, strict=True)):
            dim = axis - self.lead
            if dim < 0:
                self.labels += [] if drop else [f"component{axis}_{len(kept)}"]
            elif known is None or u.shape[axis] != known.pencil.shape[dim]:
                name = f"dim{dim}" if known is None else known.names[dim]
                self.labels += [] if drop else [f"{name}_{len(kept)}"]
            else:
                self._add(sample.name, known.names[dim], known.axes[dim], kept, drop=drop)

    def _add(self, field: str, name: str, points: Array, kept: range, *, drop: bool) -> None:
        if drop:
            self.places[name] = points[kept.start]
        elif len(kept) == len(points):
            self.labels.append(name)
        else:
            own = f"{field.replace('/', '_')}_{name}"
            self.labels.append(own)
            self.coordinates[own] = points[kept.start : kept.stop : kept.step]
