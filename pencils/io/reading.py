"""Read the fields of a file that rank 0 has described, all ranks together.

1. Each field gets memory, and each rank reads its own points: plain bytes by `read_points`, other
   datasets box by box. It sums them up at the same time. Then all ranks agree.
2. Plain bytes of which a rank would have to read too many are read as slabs, which are exchanged;
   boundary points are read into pencils that have room for them.
3. All ranks compare the checksums, and rank 0 looks whether the file is still the same one.
4. Points and elements are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pencils.array.base import checks
from pencils.array.pencil_array import PencilArray
from pencils.bars import BYTES, OnProgress, ignore, shown
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.recording import timed
from pencils.io.checksum import add_sums, carry_sums, checksum_box
from pencils.io.direct import Place, is_direct, read_points
from pencils.io.file_info import DatasetInfo, FileInfo, damaged, decode
from pencils.io.readers import Format, Targets, format_of
from pencils.io.slabs import Slabs, copy_common, has_room, widened, with_boundary

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


def read_contents(
    comm: MPI.Intracomm, file: FileInfo, targets: Targets, dtype: np.dtype[Any] | None
) -> dict[str, Any]:
    """Read the fields and values of a file by name. *Collective*.

    Elements of fields are converted to `dtype`, unless it is None. Raises CheckpointError on every
    rank, if a field does not fit or is damaged, and OSError.
    """

    def make() -> list[PencilArray]:
        return [targets.find(one.name).make(one, dtype, file.path) for one in file.datasets]

    fields = None
    if targets.filled:  # they keep their values if anything else does not fit
        with agreed(comm, "load"):
            fields = make()
    with ExitStack() as stack:
        reading = _Reading(comm, file, stack)
        with agreed(comm, "load") as agree:
            try:
                fields = make() if fields is None else fields
                reading.read(fields)
                values = {name: decode(value) for name, value in file.values.items()}
            finally:  # a replaced file can be the reason of an error, too
                if comm.rank == 0:
                    file.identity.check_unchanged(file.path)
            carry_sums(agree, _wanted_parts(file, reading.sums))
        reading.read_rest()
    if reading.is_summed:  # checksums show if the file changes later, too
        _check_sums(comm, "load", file, reading.sums, agree)
    else:
        compare(comm, "load", file, lambda: reading.sums)
    for one in reading.done:
        one.convert()
    names = (one.name for one in file.datasets)
    return dict(zip(names, fields, strict=True)) | values


def compare(
    comm: MPI.Intracomm, call: str, file: FileInfo, read: Callable[[], Mapping[str, int]]
) -> None:
    """Compare checksums with those in the file, which must be the same still. *Collective*.

    `read` returns those of the points that this rank reads; it does not communicate. Raises
    CheckpointError on every rank.
    """
    sums: Mapping[str, int] = {}
    with agreed(comm, call) as agree:
        try:
            sums = read()
        finally:  # a replaced file can be the reason of an error, too
            if comm.rank == 0:
                file.identity.check_unchanged(file.path)
        carry_sums(agree, _wanted_parts(file, sums))
    _check_sums(comm, call, file, sums, agree)


def _wanted_parts(file: FileInfo, sums: Mapping[str, int]) -> dict[str, int]:
    """Return this rank's part of each checksum that is known."""
    return {one.name: sums.get(one.name, 0) for one in file.datasets if one.checksum is not None}


def _check_sums(
    comm: MPI.Intracomm, call: str, file: FileInfo, sums: Mapping[str, int], agree: agreed
) -> None:
    """Compare checksums, of which an agreement has carried the parts if there was room."""
    totals = add_sums(comm, _wanted_parts(file, sums), agree)
    bad = [one.name for one in file.datasets if totals.get(one.name, one.checksum) != one.checksum]
    if bad:
        with agreed(comm, call):  # a replaced file can be the reason
            if comm.rank == 0:
                file.identity.check_unchanged(file.path)
        raise damaged(file.path, bad)


class _Reading:
    """The part of one rank: the open file, what was read, and the checksums of that."""

    def __init__(self, comm: MPI.Intracomm, file: FileInfo, stack: ExitStack) -> None:
        self._comm, self._info, self._stack = comm, file, stack
        self._rest: list[tuple[DatasetInfo, PencilArray]] = []
        self._moved: OnProgress = ignore
        self._file: SharedFile | None = None
        self.done: list[ReadTarget] = []
        self.sums: dict[str, int] = {}

    def read(self, fields: Iterable[PencilArray]) -> None:
        """Read what needs no other rank. Local, as are its errors."""
        info, comm, boxes = self._info, self._comm, []
        if any(one.offset is not None for one in info.datasets):
            share = sum(one.nbytes for one in info.datasets) // comm.size
            title = f"load {Path(info.path).name}"
            bar = shown(title, share, rank=comm.rank, unit=BYTES)
            self._moved = self._stack.enter_context(bar)
            self._file = SharedFile(info.path)
            self._stack.callback(self._file.close)
            self._file.raise_error()
        for one, u in zip(info.datasets, fields, strict=True):
            layout = u.extent.layout
            direct = one.offset is None or is_direct(layout, u.components, one.dtype.itemsize)
            if one.boundary or not direct:
                self._rest.append((one, u))
                continue
            target = ReadTarget.prepare(one, u)
            self.done.append(target)
            if one.offset is None:
                boxes.append(target)
            else:
                self._read_bytes(target)
        self._read_boxes(boxes)

    @property
    def is_summed(self) -> bool:
        """Whether all was read without other ranks, and has checksums; the same on all ranks."""
        return not self._rest and all(one.checksum is not None for one in self._info.datasets)

    def read_rest(self) -> None:
        """Read what ranks have to exchange. *Collective*."""
        if not self._rest:
            return
        with closing(Slabs()) as slabs:
            for one, u in self._rest:
                target = ReadTarget.prepare_wide(one, u)
                self.done.append(target)
                raw, size = target.raw, one.dtype.itemsize
                if one.offset is None:
                    with agreed(self._comm, "load"):  # one rank may have no memory for it
                        self._read_boxes([target])
                elif is_direct(raw.extent.layout, raw.components, size):
                    with agreed(self._comm, "load"):
                        self._read_bytes(target)
                else:
                    slabs.fill(raw, partial(self._read_slab, target))

    def _read_slab(self, target: ReadTarget, slab: PencilArray) -> None:
        self._read_bytes(target._replace(raw=slab))

    def _read_bytes(self, target: ReadTarget) -> None:
        file = self._file
        if file is not None:
            self.sums[target.dataset.name] = target.read_bytes(file, self._moved)
            file.raise_error()

    def _read_boxes(self, targets: Sequence[ReadTarget]) -> None:
        path = self._info.path
        if any(target.dataset.nbytes for target in targets):
            reader = format_of(path)
            with reader.opened(path) as opened:
                for target in targets:
                    self.sums[target.dataset.name] = target.read_box(reader, opened)


class ReadTarget(NamedTuple):
    """Where one field is read to: `raw` has the points and dtype of the file, `u` is the user's.

    Both are the same array, unless points or elements have to be converted.
    """

    dataset: DatasetInfo
    raw: PencilArray
    u: PencilArray

    @classmethod
    def prepare(cls, dataset: DatasetInfo, u: PencilArray) -> ReadTarget:
        """Allocate memory for a field without boundary, unless its bytes need no conversion."""
        if dataset.dtype == u.dtype:
            return cls(dataset, u, u)
        raw = PencilArray.allocated(u.pencil, dataset.dtype, u.components, u.singletons)
        return cls(dataset, raw, u)

    @classmethod
    def prepare_wide(cls, dataset: DatasetInfo, u: PencilArray) -> ReadTarget:
        """Do the same for a field that may have boundary points. *Collective*."""
        pencil = widened(u.pencil, dataset.boundary) if dataset.boundary else u.pencil
        if dataset.boundary and dataset.dtype == u.dtype and has_room(u, dataset.boundary):
            return cls(dataset, with_boundary(u, pencil, dataset.boundary), u)
        with agreed(pencil.topology.comm, "load"):  # one rank may have no memory for it
            if not dataset.boundary:
                return cls.prepare(dataset, u)
            raw = PencilArray.allocated(pencil, dataset.dtype, u.components, u.singletons)
        return cls(dataset, raw, u)

    @property
    def is_summed(self) -> bool:
        """Whether the part that this rank reads counts in the checksum."""
        layout = self.raw.extent.layout
        return self.dataset.checksum is not None and layout.is_first_replica(self.raw.pencil.rank)

    def read_bytes(self, file: SharedFile, moved: OnProgress) -> int:
        """Read this rank's points; return their part of the checksum."""
        dataset, raw = self.dataset, self.raw
        start = (0,) * len(raw.components) + raw.extent.box.start
        place = Place(dataset.offset or 0, dataset.shape, start)
        return read_points(file, place, raw.local, summed=self.is_summed, moved=moved)

    def read_box(self, reader: Format, file: Any) -> int:
        """Read this rank's box of an open file; return its part of the checksum."""
        raw, where = self.raw, self.raw.local_slices
        if not raw.local.size:
            return 0
        name, nbytes = self.dataset.name, raw.local.nbytes
        read = partial(reader.read_box, summed=self.dataset.checksum is not None)
        box = timed("I/O", read, file, name, where, nbytes=nbytes)
        raw.local[...] = box
        if not self.is_summed:
            return 0
        # Not of `raw.local`: gaps between members of records were not copied.
        return checksum_box(box, [part.start for part in where], self.dataset.shape)

    def convert(self) -> None:
        """Convert points and elements, if they were not read into place."""
        dataset, raw, u = self
        if raw is not u and not np.may_share_memory(raw.local, u.padded):
            if dataset.boundary:
                copy_common(raw, u, dataset.boundary)
            else:
                np.copyto(u.local, raw.local, casting="same_kind")
        if checks.on:
            u.mark_written()
