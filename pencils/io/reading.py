"""Read the fields of a file that rank 0 has described onto pencils, all ranks together.

Each rank reads and sums up its own points; slabs are exchanged where that would be too many bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import HaloLike, Widths, as_halo
from pencils.array.base import checks
from pencils.array.pencil_array import PencilArray
from pencils.bars import BYTES, OnProgress, ignore, shown
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.recording import timed
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.commit import check_seen
from pencils.io.describe import reader_of
from pencils.io.direct import add_up, checksum_box, is_direct, read_points
from pencils.io.file_info import DatasetInfo, FileInfo, damaged, decode, encode
from pencils.io.options import as_name
from pencils.io.slabs import (
    FileMoves,
    boundary_widths,
    copy_common,
    has_room,
    widened,
    with_boundary,
)
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI
    from pencils.comm.topology import Topology

_NUMBERS = "biufc"  # `kind` of dtypes that can be converted into each other


@dataclass(frozen=True, slots=True)
class Target:
    """Where one field goes."""

    pencil: Pencil
    halo: Widths  # of a new field
    like: PencilArray | None = None  # a field whose components, dtype and so on it must have
    filled: bool = False  # whether to fill `like` instead of a new field

    def make(self, dataset: DatasetInfo, dtype: np.dtype[Any] | None, path: str) -> PencilArray:
        """Return the field that a dataset is read into; CheckpointError if it does not fit."""
        singletons = _match(self.pencil, dataset, path)
        dtype = dataset.dtype if dtype is None else dtype
        numbers = dataset.dtype.kind in _NUMBERS and dtype.kind in _NUMBERS
        same_kind = numbers and np.can_cast(dataset.dtype, dtype, "same_kind")
        if dataset.dtype != dtype and not same_kind:
            raise CheckpointError(
                f"{dataset.name!r} in {path} has dtype {dataset.dtype}, which {dtype} cannot hold; "
                "leave out dtype, or pass a wider one"
            )
        components = dataset.shape[: len(dataset.shape) - self.pencil.ndim]
        if (u := self.like) is not None:
            periodic = dataset.periodic or self.pencil.periodic
            found = components, sorted(singletons), dtype, periodic
            wanted = u.components, sorted(u.singletons), u.dtype, u.pencil.periodic
            names = "components", "singleton dimensions", "dtype", "periodic dimensions"
            for name, have, want in zip(names, found, wanted, strict=True):
                if have != want:
                    hint = f"; dtype={str(want)!r} would convert it" if name == "dtype" else ""
                    raise CheckpointError(
                        f"{dataset.name!r} in {path} has {name} {have}, but the field to load has "
                        f"{want}{hint}"
                    )
            if self.filled:
                return u
        widths = enumerate(self.halo)
        halo = tuple((0, 0) if dim in singletons else width for dim, width in widths)
        return PencilArray.allocated(
            self.pencil, dtype, components, singletons, halo, zero=any(map(any, halo))
        )

    def __repr__(self) -> str:
        text = f"{self.pencil!r} halo={self.halo}"
        if self.like is None:
            return text
        kind = f"{self.like.dtype}{self.like.shape} {sorted(self.like.singletons)}"
        return f"{text} like {kind} {boundary_widths(self.like)} into={self.filled}"


# By name of the field, sorted, and by None for all other fields.
Targets = dict[str | None, Target]


def find_target(targets: Targets, name: str) -> Target:
    """Return the target of a field; raise ArgumentError if it has none."""
    target = targets.get(name) or targets.get(None)
    if target is None:
        raise ArgumentError(
            f"there is no place for {name!r}: it is neither in template nor in into; add it"
        )
    return target


def as_targets(
    template: object, into: object, names: list[str] | None, halo: HaloLike | None, size: int
) -> Targets:
    """Make targets of arguments of `load`, on `size` processes; raise an error for wrong ones."""

    def onto(pencil: Pencil) -> Target:
        return Target(pencil, as_halo(0 if halo is None else halo, pencil.ndim))

    named: dict[str, Target] = {}
    default: Targets = {None: onto(template)} if isinstance(template, Pencil) else {}
    if isinstance(template, Mapping):
        for name, thing in template.items():
            as_name(name)
            if isinstance(thing, Pencil):
                named[name] = onto(thing)
            elif isinstance(thing, PencilArray):
                widths = thing.halo if halo is None else as_halo(halo, thing.pencil.ndim)
                named[name] = Target(thing.pencil, widths, thing)
            else:
                encode(thing)  # raises TypeError unless it is a value, which needs no target
    elif not default and (template is not None or into is None):
        raise TypeError(
            "template must be a Pencil, or a mapping like {'u': u} of fields like those to load, "
            f"not {type(template).__name__}"
        )
    for name, u in _as_fields(into, names).items():
        named[name] = Target(u.pencil, u.halo, u, filled=True)
    targets: Targets = {name: named[name] for name in sorted(named)}
    targets |= default
    pencils = [target.pencil for target in targets.values()]
    for pencil in pencils:
        if pencil.size != size or not pencil.same_ranks(pencils[0]):
            raise PencilMismatchError(
                f"template and into are on different processes:\n{pencil!r}\n{pencils[0]!r}\nload "
                "them in separate calls"
            )
    return targets


def _as_fields(into: object, names: list[str] | None) -> dict[str, PencilArray]:
    if into is None:
        return {}
    if isinstance(into, PencilArray):
        if names is None or len(names) != 1:
            raise ArgumentError("to load into one field, name it: load(path, names='u', into=u)")
        into = {names[0]: into}
    fields = into.values() if isinstance(into, Mapping) else [into]
    if not isinstance(into, Mapping) or not all(isinstance(u, PencilArray) for u in fields):
        raise TypeError(
            f"into must be a PencilArray or a mapping like {{'u': u}}, not {into!r:.80}"
        )
    for name, u in into.items():
        as_name(name)
        if not u.local.flags.writeable:
            raise ArgumentError(f"into[{name!r}] is read-only, like the data it views; pass a copy")
    return dict(into)


def default_targets(file: FileInfo, halo: HaloLike | None, comm: MPI.Intracomm | None) -> Targets:
    """Make pencils of the stored shapes; singletons are on that of fitting fields. *Collective*."""
    grids = {one.name: (one.points[one.components or 0 :], one.periodic) for one in file.datasets}
    whole = {grids[one.name] for one in file.datasets if not any(one.singletons)}
    pencils: dict[object, Pencil] = {}
    targets: Targets = {}
    for one in file.datasets:
        shape, periodic = grids[one.name]
        if any(one.singletons):
            fits = [
                other
                for other, same in whole
                if len(other) == len(shape) and same == periodic
                if all(map(lambda n, m, flat: n == m or flat, other, shape, one.singletons))
            ]
            shape = fits[0] if len(fits) == 1 else shape
        if (shape, periodic) not in pencils:
            pencils[shape, periodic] = Pencil(shape, comm, periodic=periodic or False)
        pencil = pencils[shape, periodic]
        widths = as_halo(one.boundary or 0 if halo is None else halo, pencil.ndim)
        targets[one.name] = Target(pencil, widths)
    return targets


def _match(pencil: Pencil, dataset: DatasetInfo, path: str) -> frozenset[int]:
    """Return the singleton dimensions of a dataset; raise CheckpointError if it does not fit."""
    points = dataset.points
    lead = len(points) - pencil.ndim
    if lead < 0 or lead != (dataset.components if dataset.components is not None else lead):
        axes = len(points) - (dataset.components or 0)
        how = f"load it onto one with {axes} dimensions"
        if not axes:  # numbers, perhaps one at each time
            reader = f"pencils.open(path)[{dataset.name!r}].read(pencil)"
            how = f"{reader} takes one of shape {points}" if points else "read it by h5py"
        raise CheckpointError(
            f"{dataset.name!r} in {path} has shape {points}, {axes} dimensions without "
            f"components; the pencil has {pencil.ndim}: {how}"
        )
    flags = dataset.singletons or (False,) * pencil.ndim
    singletons = set()
    for dim, (extent, wanted) in enumerate(zip(points[lead:], pencil.shape, strict=True)):
        if extent == 1 and (wanted != 1 or flags[dim]):
            singletons.add(dim)
        elif extent != wanted:
            raise CheckpointError(
                f"{dataset.name!r} in {path} has shape {points}; on a pencil of shape "
                f"{pencil.shape} dimension {dim} must have extent {wanted}, or 1 for a singleton"
            )
    return frozenset(singletons)


def read_contents(
    topology: Topology, file: FileInfo, targets: Targets, dtype: np.dtype[Any] | None
) -> dict[str, Any]:
    """Read the fields, converted to `dtype` if there is one, and values of a file. *Collective*."""
    comm = topology.comm

    def make() -> list[PencilArray]:
        check_seen(topology, file.path, file.identity.size)
        pairs = [(find_target(targets, one.name), one) for one in file.datasets]
        return [target.make(one, dtype, file.path) for target, one in pairs]

    fields: list[PencilArray] = []
    wide: list[Pencil] = []
    if any(one.filled for one in targets.values()) or any(one.boundary for one in file.datasets):
        with agreed(comm, "load"):  # they keep their values if anything else does not fit
            fields = make()
        pairs = zip(file.datasets, fields, strict=True)
        wide = [widened(u.pencil, one.boundary) if one.boundary else u.pencil for one, u in pairs]
    raws: list[PencilArray] = []
    values: dict[str, Any] = {}
    with ExitStack() as stack:
        reader, moves = _Reader(comm, file, stack), stack.enter_context(closing(FileMoves()))

        def read(agree: agreed) -> dict[str, int]:
            nonlocal fields
            fields = fields or make()
            pencils = wide or [u.pencil for u in fields]
            raws.extend(map(_raw_of, file.datasets, fields, pencils))
            reader.read(raws)
            moves.prepare(agree, ((raw, ()) for _, raw in reader.rest), back=True)
            for one, raw in reader.rest[:1]:
                moves.fill_first(raw, partial(reader.read_bytes, one))
            values.update({name: decode(value) for name, value in file.values.items()})
            return reader.sums

        sums = sum_together(comm, "load", file, read)
        later = [
            moves.fill(raw, partial(reader.read_bytes, one), reader.keep)
            for one, raw in reader.rest
        ]
    if any(later) or any(one.checksum is None for one in file.datasets):
        sums = sum_together(comm, "load", file, reader.finish)
    # Else all was summed up before that agreement: checksums show if the file changes later, too.
    compare(comm, "load", file, sums)
    for one, raw, u in zip(file.datasets, raws, fields, strict=True):
        if raw is not u and not np.may_share_memory(raw.local, u.padded):
            if one.boundary:
                copy_common(raw, u, one.boundary)
            else:
                np.copyto(u.local, raw.local, casting="same_kind")
        if checks.on:
            u.mark_written()
    names = (one.name for one in file.datasets)
    return dict(zip(names, fields, strict=True)) | values


def _raw_of(one: DatasetInfo, u: PencilArray, pencil: Pencil) -> PencilArray:
    """Return the field that is read: `u`, or one with the points and dtype of the file."""
    if one.dtype == u.dtype and not one.boundary:
        return u
    if one.dtype == u.dtype and has_room(u, one.boundary):
        return with_boundary(u, pencil, one.boundary)
    return PencilArray.allocated(pencil, one.dtype, u.components, u.singletons)


def sum_together(
    comm: MPI.Intracomm, call: str, file: FileInfo, read: Callable[[agreed], Mapping[str, int]]
) -> dict[str, int]:
    """Agree that ranks have `read` locally; add their parts of known checksums. *Collective*."""

    def read_same(agree: agreed) -> dict[str, int]:
        found: Mapping[str, int] = {}
        try:
            found = read(agree)
        finally:  # a replaced file can be the reason of an error, too
            if comm.rank == 0:
                file.identity.check_unchanged(file.path)
        known = (one.name for one in file.datasets if one.checksum is not None)
        return {name: found.get(name, 0) for name in known}

    return add_up(comm, call, read_same)


def compare(comm: MPI.Intracomm, call: str, file: FileInfo, sums: Mapping[str, int]) -> None:
    """Raise CheckpointError unless checksums are those in the file. *Collective* if they differ."""
    bad = [one.name for one in file.datasets if sums.get(one.name, one.checksum) != one.checksum]
    if bad:
        with agreed(comm, call):  # a replaced file can be the reason
            if comm.rank == 0:
                file.identity.check_unchanged(file.path)
        raise damaged(file.path, bad)


class _Reader:
    """Reads on one rank: the open file, checksums of own points, and fields to be exchanged."""

    def __init__(self, comm: MPI.Intracomm, file: FileInfo, stack: ExitStack) -> None:
        self._info = file
        self._progress: OnProgress = ignore
        self.rest: list[tuple[DatasetInfo, PencilArray]] = []  # fields that ranks exchange
        self.sums: dict[str, int] = {}
        if any(one.offset is not None for one in file.datasets):
            share = sum(one.nbytes for one in file.datasets) // comm.size
            title = f"load {Path(file.path).name}"
            bar = shown(title, share, rank=comm.rank, unit=BYTES)
            self._progress = stack.enter_context(bar)
            self._file = SharedFile(file.path)
            stack.callback(self._file.close)

    def read(self, raws: Sequence[PencilArray]) -> None:
        """Read all fields that need no exchange. Local, as are its errors."""
        boxes = []
        for one, raw in zip(self._info.datasets, raws, strict=True):
            if one.offset is None:
                boxes.append((one, raw))
            elif is_direct(raw.extent.layout, raw.components, one.dtype.itemsize):
                self.read_bytes(one, raw)
            else:
                self.rest.append((one, raw))
        if any(one.nbytes for one, _ in boxes):
            self._read_boxes(boxes)

    def read_bytes(self, one: DatasetInfo, raw: PencilArray) -> None:
        """Read this rank's points of plain bytes, and add up their checksum."""
        start = (0,) * len(raw.components) + raw.extent.box.start
        place = one.offset or 0, one.shape, start
        self.sums[one.name] = read_points(
            self._file, *place, raw.local, summed=_is_summed(one, raw), progress=self._progress
        )
        self._file.raise_error()

    def keep(self, work: Callable[[], object]) -> None:
        """Do something, unless reading has failed before; keep its error for `finish`."""
        self._file.attempt(work)

    def finish(self, _: object) -> dict[str, int]:
        """Return the checksums, or raise the error that was kept."""
        if self.rest:
            self._file.raise_error()
        return self.sums

    def _read_boxes(self, boxes: Sequence[tuple[DatasetInfo, PencilArray]]) -> None:
        """Read this rank's box of datasets that have no plain bytes."""
        reader = reader_of(self._info.path)
        with reader.opened(self._info.path) as opened:
            for one, raw in boxes:
                where, is_known = raw.local_slices, one.checksum is not None
                if raw.local.size:
                    read = partial(reader.read_box, summed=is_known)
                    box = timed("I/O", read, opened, one.name, where, nbytes=raw.local.nbytes)
                    raw.local[...] = box
                    if _is_summed(one, raw):
                        # Not of `raw.local`: gaps between members of records were not copied.
                        start = [part.start for part in where]
                        self.sums[one.name] = checksum_box(box, start, one.shape)


def _is_summed(one: DatasetInfo, raw: PencilArray) -> bool:
    """Whether the part that this rank reads counts in the checksum."""
    return one.checksum is not None and raw.extent.layout.is_first_replica(raw.pencil.rank)
