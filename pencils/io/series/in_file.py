"""A series in one file, to which all ranks append together.

Every dataset has an unlimited time axis, and a chunk holds one snapshot of a field or a part of it.
To append, rank 0 lets h5py extend the datasets of a `CapturedFile`. HDF5 allocates the new chunks
at once and returns their addresses, where all ranks write the points. Then h5py writes the values,
the time among them, and `pencils.io.seal.switch` brings the file to its next state. New bytes are
written behind the record of the old state; HDF5's own changes are the only ones in place.
"""

from __future__ import annotations

import os
import weakref
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.errors import CheckpointError
from pencils.io.captured_file import CapturedFile, Change, changing
from pencils.io.checksum import add_sums, carry_sums
from pencils.io.chunks import count_chunks
from pencils.io.commit import clean, commit, discard, made, make_temporary, set_aside
from pencils.io.file_access import from_root, open_regular, open_to_write
from pencils.io.file_info import TIME, Access, Stored
from pencils.io.manifest import (
    END_AT,
    Extent,
    Listed,
    Manifest,
    Record,
    aligned,
    changed_pages,
    check_manifest,
    complement,
    end_of,
    page_digests,
    read_head,
)
from pencils.io.options import already_there
from pencils.io.ready import ReadyMoves
from pencils.io.seal import END_FIELD, differences, repair, seal_again, switch
from pencils.io.series.state import SUMS, Column, SeriesState
from pencils.io.slabs import FileBlocks, Slabs, moving
from pencils.io.writer_lock import WriterLock
from pencils.io.writers import write_part

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# A record lists that many extents outside its sum, and refers to an earlier record for others.
_LISTED = 64


class InFile:
    """A series in one file. Everything but `abandon` is *Collective*.

    Parameters are a private communicator, the path as all ranks find it, attributes of a new file,
    the lock to take on rank 0, and the arguments `mode` and `edited` of `TimeSeries`.
    """

    summed = True

    def __init__(
        self,
        comm: MPI.Intracomm,
        path: str,
        attrs: Mapping[str, Any],
        *,
        lock: WriterLock,
        mode: str,
        edited: bool = False,
    ) -> None:
        self._comm = comm
        self._attrs = attrs
        self.path = path
        self._file: OneFile | None = None  # on rank 0
        # Removes, on rank 0, a new series that never takes the place of the old one.
        self._remove: weakref.finalize[Any, Any] | None = None
        with agreed(comm, "TimeSeries"):
            if comm.rank == 0:
                lock.take(Path(path))
                self._file = self._open(mode, edited=edited)

    @property
    def state(self) -> SeriesState | None:
        """What the series holds, on rank 0."""
        return None if self._file is None else self._file.state

    def prepare(self, agree: agreed, fields: Mapping[str, PencilArray]) -> ReadyMoves:
        """Prepare to append fields, within the agreement about that; local."""
        return ReadyMoves.within(agree, moving(fields[name] for name in sorted(fields)))

    def append(
        self,
        time: float,
        step: int,
        fields: Mapping[str, PencilArray],
        values: Mapping[str, Stored],
        ready: ReadyMoves,
    ) -> None:
        """Add a snapshot, for which `prepare` has made `ready`."""

        def place() -> tuple[str, dict[str, FileBlocks]]:
            assert self._file is not None
            return self._file.path, self._file.place()

        path, places = from_root(self._comm, place)
        targets = {name: (fields[name], places[name]) for name in sorted(places)}
        sums = _write(self._comm, path, step, targets, ready)
        with agreed(self._comm, "append"):
            if self._file is not None:
                row: dict[str, Any] = {name: value.data for name, value in values.items()}
                row |= {SUMS + name: sums[name] for name in fields}
                with self._file.state.changing(), self._taking_place(self._file):
                    self._file.commit({TIME: time, **row}, places)

    def truncate(self, count: int) -> None:
        """Keep the first snapshots only."""
        with agreed(self._comm, "truncate"):
            if self._file is not None:
                with self._file.state.changing():
                    self._file.cut(count)

    def set_aside(self) -> None:
        """Rename the file, and go on with a new one."""
        with agreed(self._comm, "set_aside"):
            if self._file is not None:
                with self._file.state.changing():
                    set_aside(Path(self.path))
                    self._file = self._open("a")

    def close(self) -> None:
        """End appending."""
        with agreed(self._comm, "close"):
            if self._file is not None and (self._remove is None or self._remove.alive):
                with self._taking_place(self._file):
                    self._file.close()

    def abandon(self) -> None:
        """Leave what was there before, if there is nothing to replace it. Local."""
        if self._remove is not None:
            if self._file is not None:
                self._file.close()
            self._remove()

    def _open(self, mode: str, *, edited: bool = False) -> OneFile:
        from pencils.io.series import tree  # only rank 0 needs h5py

        target, state = Path(self.path), SeriesState(dict(self._attrs))
        if not target.exists():
            with made(target, alone=True) as temporary:
                tree.create(str(temporary), state)
        elif mode == "x":
            raise already_there(self.path)
        elif mode == "w":  # under a temporary name, which it keeps until its first snapshot
            clean(target)
            temporary = make_temporary(target)
            self._remove = weakref.finalize(self, discard, temporary)
            try:
                tree.create(str(temporary), state)
                return OneFile(str(temporary))
            except BaseException:
                self._remove()
                raise
        return OneFile(self.path, edited=edited)

    @contextmanager
    def _taking_place(self, file: OneFile) -> Iterator[None]:
        """Let a new series take the place of the old one when the block has written to it."""
        if self._remove is None:
            yield
            return
        try:
            yield
            commit(Path(file.path), Path(self.path), alone=True)
        except BaseException:
            file.close()
            self._remove()
            raise
        file.path = self.path
        self._remove.detach()
        self._remove = None


class OneFile:
    """The file of a series, which `tree.create` has made. On rank 0 only.

    If a process was killed while it changed the file, the change is completed. Raises
    CheckpointError if there is a file that is no series, damaged, or changed by another program.
    """

    def __init__(self, path: str, *, edited: bool = False) -> None:
        from pencils.io.series import tree

        self.path = path
        repair(path)
        self._head = self._read_head()  # first: an append of another process shows in it
        self.state, checked, raw = tree.read(path, Access(edited=edited))
        if checked is None:  # another program has changed the file
            seal_again(path, self.state.entries(), raw)
            self._head = self._read_head()
            checked = check_manifest(path)
            assert checked is not None
        self._record = checked
        self._pages = dict(checked.pages)
        self._outside = list(checked.outside)  # all extents outside the sum
        self._listed = list(checked.manifest.outside)  # those that the record lists
        self._earlier = checked.manifest.earlier
        self._captured: CapturedFile | None = None  # between `place` and `commit`

    def place(self) -> dict[str, FileBlocks]:
        """Extend all datasets in memory; return the places of the new snapshot of every field.

        Raises CheckpointError if another process has written to the file.
        """
        from pencils.io.series import tree

        count = len(self.state.times)
        if count == 0:
            with self.state.changing():
                with changing(self._begin()) as file:
                    tree.write_datasets(file, self.state)
                self._end(())
        with changing(self._begin()) as file:
            for column in self.state.columns.values():
                file[column.name].resize(count + 1, axis=0)
            return {column.name: self._find(file, column) for column in self.state.fields}

    def commit(self, row: Mapping[str, Any], places: Mapping[str, FileBlocks]) -> None:
        """Add a snapshot whose fields are written at `places`: its time, values and checksums.

        Raises CheckpointError if another process has written to the file.
        """
        from pencils.io.series import tree

        assert self._captured is not None
        self.state.record(row)
        with changing(self._captured) as file:
            for name, value in row.items():
                if np.size(value):
                    file[name][-1] = np.asarray(value, self.state.columns[name].dtype)
            tree.write_totals(file, self.state)
        self._end([(start, place.nbytes) for place in places.values() for start in place.starts])

    def cut(self, count: int) -> None:
        """Keep the first snapshots only."""
        from pencils.io.series import tree

        self.state.cut(count)
        with changing(self._begin()) as file:
            for column in self.state.columns.values():
                file[column.name].resize(count, axis=0)
            tree.write_totals(file, self.state)
        self._end(())

    def close(self) -> None:
        """Release what an append that has failed has left."""
        if self._captured is not None:
            self._captured.close()

    def _begin(self) -> CapturedFile:
        """Start to change the file in memory; new bytes get places behind the record."""
        self.close()
        self._check_alone()
        self._captured = CapturedFile(self.path)
        for patch in self._record.manifest.patches:  # another process may have changed the bytes
            self._captured.poke(*patch)
        self._captured.poke(END_AT, aligned(self._record.stop).to_bytes(8, "little"))
        return self._captured

    def _end(self, raw: Iterable[Extent]) -> None:
        """Write the changes; `raw` are extents of the points of fields that were added."""
        assert self._captured is not None
        captured = self._captured
        old, behind = self._record.manifest, aligned(self._record.stop)
        size = end_of(captured.peek(0, 96)) or 0
        changes = captured.changes()
        self._leave_out([(old.size, behind - old.size), *raw])
        self._take_in([change for change in changes if change[0] < behind])
        spans = [changed_pages(at, len(data)) for at, data in changes]
        for start, stop in [*spans, changed_pages(old.size, size - old.size)]:
            self._pages |= page_digests(captured, self._outside, start, min(stop, size))
        with open_to_write(self.path) as handle:
            self._check_alone()
            manifest = Manifest(
                {entry.name: Listed.of(entry) for entry in self.state.entries()},
                size,
                sum(self._pages.values()) % 2**64,
                self._listed,
                self._earlier,
                differences(handle, changes, behind),
            )
            start = aligned(size)
            new = [change for change in changes if change[0] >= behind]
            stop = switch(handle, manifest, start, new)
        self._record = Record(manifest, start, stop)
        self._head = self._read_head()
        self.close()

    def _leave_out(self, extents: Iterable[Extent]) -> None:
        """Take extents, which are behind all others, out of the sum."""
        if len(self._listed) >= _LISTED:
            self._earlier, self._listed = self._record.place, []
        joined: list[Extent] = []
        for offset, count in sorted(extents):
            start = joined.pop()[0] if joined and sum(joined[-1]) == offset else offset
            joined.append((start, offset + count - start))
        self._listed = [*self._listed, *joined]
        self._outside += joined

    def _take_in(self, changes: Iterable[Change]) -> None:
        """Sum up changes of extents that were out of the sum: HDF5 has used freed space again."""
        changed = [(at, len(data)) for at, data in changes]
        if any(self._overlaps(*extent) for extent in changed):
            rest = [extent for extent in self._outside if extent != END_FIELD]
            found = [gap for at, count in rest for gap in complement(changed, at, at + count)]
            self._outside = [END_FIELD, *found]
            self._listed, self._earlier = self._outside, (0, 0, 0)

    def _overlaps(self, offset: int, count: int) -> bool:
        near = self._outside[: bisect(self._outside, (offset + count,))][-2:]
        return any(sum(extent) > offset and extent != END_FIELD for extent in near)

    def _find(self, file: Any, column: Column) -> FileBlocks:
        """Find the chunks of the last snapshot of a field."""
        if not column.nbytes:
            return FileBlocks((), 1)
        dataset, chunk = file[column.name].id, file[column.name].chunks
        starts = []
        for index in np.ndindex(*count_chunks(column.shape, chunk[1:])):
            at = (i * extent for i, extent in zip(index, chunk[1:], strict=True))
            found = dataset.get_chunk_info_by_coord((dataset.shape[0] - 1, *at))
            starts.append(found.byte_offset)
        if min(starts) < self._record.stop:
            raise RuntimeError(
                "this version of HDF5 allocates chunks in another way than pencils expects"
            )
        return FileBlocks(tuple(starts), prod(chunk) * column.dtype.itemsize)

    def _check_alone(self) -> None:
        if self._read_head() != self._head:
            raise CheckpointError(
                f"{self.path} was changed by another process; make a new TimeSeries to continue it"
            )

    def _read_head(self) -> bytes:
        handle = open_regular(self.path)
        try:
            return read_head(handle)
        finally:
            os.close(handle)


def _write(
    comm: MPI.Intracomm,
    path: str,
    step: int,
    targets: Mapping[str, tuple[PencilArray, FileBlocks]],
    ready: ReadyMoves,
) -> dict[str, int]:
    """Write fields at new places; return their checksums, as part of all snapshots."""
    file, sums = SharedFile(path, write=True), dict.fromkeys(targets, 0)
    with closing(file), closing(Slabs(file.raise_error, ready=ready)) as slabs:
        for name, (u, place) in targets.items():
            slab = slabs.of(u)
            write = partial(write_part, file, slab, place, first=step * slab.size)
            sums[name] = file.attempt(write) or 0
        file.sync()
    with agreed(comm, "append") as agree:
        file.raise_error()
        carry_sums(agree, sums)
    return add_sums(comm, sums, agree)
