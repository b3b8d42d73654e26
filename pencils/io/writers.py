"""Write fields to a new HDF5 file: rank 0 lays it out, all ranks write, rank 0 gives it its name.

`save` completes the `Part` of one field before it takes the next one, so that one at a time exists
twice; `Saving` takes all fields first, and works on their parts in a thread.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pencils.array.pencil_array import PencilArray
from pencils.bars import BYTES, OnProgress, ignore, shown
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.io.commit import (
    allocate,
    check_seen,
    check_unlocked,
    check_visible_on_all_hosts,
    clean,
    commit,
    discard,
    make_temporary,
    naming_hosts,
)
from pencils.io.contents import Contents
from pencils.io.describe import tell
from pencils.io.direct import FileBlocks, add_up, checksum_box, write_part
from pencils.io.file_access import from_root, system
from pencils.io.file_info import DatasetInfo
from pencils.io.manifest import ByteRange, seal_new
from pencils.io.slabs import FileMoves, find_plan, own_chunks
from pencils.pencil import Bounded

if TYPE_CHECKING:
    from pencils.comm.topology import Topology

Ints = NDArray[np.int64]

# Chunks that follow each other are written together, up to about this number of bytes.
_RUN_BYTES = 2**23


class Writer(ABC):
    """A new file under a temporary name, laid out by rank 0 and open on all. *Collective*."""

    path: str
    target: Path
    temporary: Path
    file: SharedFile
    entries: list[DatasetInfo]
    _find_hosts: Callable[[], object]

    def __init__(self, topology: Topology, contents: Contents) -> None:
        self.summed = contents.summed
        self.errors: dict[str, float] = {}  # the largest ones, of fields with a bound
        self.comm, self._rank = topology.comm, topology.rank  # it may be freed later

    def naming_hosts(self) -> AbstractContextManager[None]:
        """Make a block up to the first agreement, whose error names hosts without the file."""
        return naming_hosts(self._find_hosts)

    @abstractmethod
    def part(
        self, u: PencilArray, entry: DatasetInfo, moves: FileMoves, progress: OnProgress = ignore
    ) -> Part:
        """Bring a field to where it is written. *Collective*."""

    def write(self, fields: Mapping[str, PencilArray], moves: FileMoves) -> None:
        """Write the fields, and give the file its name, or remove it. *Collective*."""
        share = sum(entry.nbytes for entry in self.entries) // self.comm.size
        sums: dict[str, int] = {}
        try:
            bar = shown(f"save {self.target.name}", share, rank=self._rank, unit=BYTES)
            with self.naming_hosts(), bar as progress, closing(moves):
                for entry in self.entries:
                    if entry.nbytes:
                        part = self.part(fields[entry.name], entry, moves, progress)
                        self.file.attempt(part.work)
                        sums[entry.name] = part.finish()
                self.end(sums)
        except BaseException:
            self.discard()
            raise
        finally:
            self.close()

    def end(self, sums: Mapping[str, int]) -> None:
        """Add checksums, seal the file, which is whole, and give it its name. *Collective*."""

        def end_writing(_: object) -> dict[str, int]:
            self.file.raise_error()
            self._end_rank()
            return {one.name: sums.get(one.name, 0) for one in self.entries if self.summed}

        totals = add_up(self.comm, "save", end_writing)
        with agreed(self.comm, "save"), system("save", self.path):
            if self._rank == 0:
                self._commit(totals)

    def _end_rank(self) -> None:
        """Bring what this rank has written to the disk. Local."""
        self._close(to_disk=True)

    @abstractmethod
    def _commit(self, sums: Mapping[str, int]) -> None:
        """Seal the file with its checksums, and give it its name. On rank 0."""

    def _close(self, *, to_disk: bool) -> None:
        if to_disk:
            self.file.sync()
        self.file.close()
        self.file.raise_error()

    def close(self) -> None:
        """Close the file without bringing the rest of the data to the disk. Local."""
        self.file.close()

    def discard(self) -> None:
        """Remove the file, if it has not got its name. Local, even if the communicator is gone."""
        if self._rank == 0:
            discard(self.temporary)


class HDF5Writer(Writer):
    """A new HDF5 file, of which all ranks write the bytes of fields. *Collective*."""

    def __init__(self, topology: Topology, path: str, contents: Contents) -> None:
        super().__init__(topology, contents)
        self.align, self.compression = contents.align, contents.compression
        # On rank 0: where chunks are, what `create.lay_out` has returned, and what `tell` has.
        self._chunks: list[ByteRange] = []
        self._offsets: Mapping[str, list[int]] | None = None
        self._values: list[DatasetInfo] = []
        self._about: Mapping[str, Any] | None = None
        target, temporary, offsets, self._cache_id = from_root(
            self.comm, lambda: self._begin(path, contents)
        )
        self.path, self.target, self.temporary = target, Path(target), Path(temporary)
        pairs = zip(contents.entries, offsets, strict=True)
        self.entries = [replace(entry, offset=offset) for entry, offset in pairs]
        if self._rank != 0:
            self.file = SharedFile(temporary, write=True)
            self.file.attempt(partial(check_seen, topology, self.temporary))
        self._find_hosts = partial(
            check_visible_on_all_hosts, topology, "save", self.target, self.temporary
        )

    def _begin(self, path: str, contents: Contents) -> tuple[Any, ...]:
        """Lay out the file under its temporary name, on rank 0; return its description."""
        from pencils.io import create  # without compression only this rank needs h5py

        with system("save", path):
            target = Path(os.path.realpath(path))
            check_unlocked(target)
            clean(target)
            temporary = make_temporary(target)
            try:
                made = create.lay_out(str(temporary), contents, _kept_for(contents))
                allocate(temporary)
                self.file = SharedFile(str(temporary), write=True)
                self.file.raise_error()
            except BaseException:
                discard(temporary)
                raise
        self._offsets, self._values = made.offsets, made.values
        # Now: the user may change attributes that are arrays.
        self._about = tell(made.values + made.fields, contents.attrs, contents.step_and_time)
        offsets = [entry.offset for entry in made.fields]
        return str(target), str(temporary), offsets, self.file.place()

    def part(
        self, u: PencilArray, entry: DatasetInfo, moves: FileMoves, progress: OnProgress = ignore
    ) -> Part:
        """Bring a field to where it is written. *Collective*."""
        return HDF5Part(self, u, entry, moves, progress)

    def place_chunks(self, entry: DatasetInfo, table: Ints) -> Ints:
        """Find room for all chunks of a field, by their sizes and masks. On rank 0 only."""
        from pencils.io import create

        with system("save", self.target):
            places = create.place_chunks(str(self.temporary), entry, table, align=self.align)
        self._chunks += zip(places.ravel().tolist(), table[0].ravel().tolist(), strict=True)
        return places

    def _end_rank(self) -> None:
        if self._rank != 0:
            # In the memory of the same system, rank 0 will bring all of it to the disk at once.
            self._close(to_disk=self._cache_id is None or self.file.place() != self._cache_id)

    def _commit(self, sums: Mapping[str, int]) -> None:
        self._seal(sums)
        commit(self.temporary, self.target, lambda _: self._close(to_disk=True))

    def _seal(self, sums: Mapping[str, int]) -> None:
        """Write the checksums, the note that the file is complete, and the list of contents."""
        from pencils.io import create

        path = str(self.temporary)
        offsets = None if self._chunks else self._offsets
        create.note_complete(path, sums, offsets, self.errors)
        fields = [replace(entry, checksum=sums.get(entry.name)) for entry in self.entries]
        data = fields + [one for one in self._values if one.checksum is not None]
        whole = [(one.offset, one.nbytes) for one in data if one.offset is not None]
        seal_new(path, self._values + fields, [*whole, *self._chunks], self._about)


def _kept_for(contents: Contents) -> Bounded:
    """Return where the bytes of HDF5 are kept for files with these fields."""
    pencils = (u.pencil for u in contents.fields.values())
    return next((pencil.kept["layout of a file"] for pencil in pencils), Bounded())


class Part(ABC):
    """The points of a field that this rank writes. Making it is *Collective*: they move."""

    def __init__(
        self,
        writer: Writer,
        u: PencilArray,
        entry: DatasetInfo,
        moves: FileMoves,
        progress: OnProgress = ignore,
    ) -> None:
        self._writer, self._entry, self._progress = writer, entry, progress
        self._components = u.components
        extents = entry.chunks[len(u.components) :]
        # Until it is written or packed.
        self._block: PencilArray | None = moves.of(u, extents, writer.file.raise_error)
        self._tiles = find_plan(u, extents).tiles if extents else u.pencil
        self._sum = 0
        self._error = 0.0

    @abstractmethod
    def work(self) -> None:
        """Write points, or pack chunks. Local: it may run in a thread."""

    def finish(self) -> int:
        """Write the rest; return this rank's part of the checksum. *Collective*."""
        if self._entry.tolerance is not None:
            errors = self._tiles.topology.comm.allgather(self._error)
            self._writer.errors[self._entry.name] = max(errors)
        return self._sum % 2**64


class HDF5Part(Part):
    """The points of a field that this rank writes to an HDF5 file.

    HDF5 assigns the place of a chunk when it knows its size. So rank 0 lets HDF5 write as
    many bytes into a `CapturedFile`, which drops them, and all ranks write to the places it finds.
    """

    _writer: HDF5Writer

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._packed: list[tuple[bytes, int]] = []

    def work(self) -> None:
        """Write plain bytes, or pack chunks. Local: it may run in a thread."""
        block, self._block = self._block, None
        entry, writer = self._entry, self._writer
        if block is not None and not entry.chunks:
            blocks, progress = FileBlocks((entry.offset or 0,), entry.nbytes), self._progress
            self._sum = write_part(
                writer.file, block, blocks, summed=writer.summed, progress=progress
            )
        elif block is not None and self._tiles.box().volume:
            from pencils.io.create import Packer

            with Packer(entry, writer.compression) as packer:
                for _, box, values in own_chunks(block, self._tiles, entry.chunks):
                    self._packed.append(packer.pack(values))
                    if writer.summed:
                        found = packer.unpack()[tuple(map(slice, box.shape))]
                        self._sum += checksum_box(found, box.start, entry.shape)
                    self._progress(box.volume * entry.dtype.itemsize)
                self._error = packer.largest_error

    def finish(self) -> int:
        """Write the rest; return this rank's part of the checksum. *Collective*."""
        if self._entry.chunks:
            comm, file = self._tiles.topology.comm, self._writer.file
            found = comm.gather(file.attempt(self._sizes))
            places = from_root(comm, partial(self._find_places, found))
            if places is not None:
                own: Any = (..., *self._tiles.box().slices())
                file.attempt(lambda: self._write(places[own]))
        return super().finish()

    def _sizes(self) -> Ints:
        """Return the sizes and masks of the chunks of this rank."""
        pairs = [(len(data), mask) for data, mask in self._packed]
        return np.array(pairs, np.int64).reshape(-1, 2).T

    def _find_places(self, found: list[Ints | None] | None) -> Ints | None:
        """Find room for the chunks of all ranks; None if one has failed. On rank 0."""
        table = np.zeros((2, *self._components, *self._tiles.shape), np.int64)
        for rank, sizes in enumerate(found or ()):
            if sizes is None:
                return None  # `HDF5Writer.end` raises the error
            key: Any = (..., *self._tiles.box(rank).slices())
            table[key] = sizes.reshape(table[key].shape)
        return self._writer.place_chunks(self._entry, table)

    def _write(self, starts: Ints) -> None:
        file, run, begin = self._writer.file, bytearray(), 0  # of chunks that follow each other
        for start, (data, _) in zip(starts.ravel().tolist(), self._packed, strict=True):
            if run and (start != begin + len(run) or len(run) >= _RUN_BYTES):
                file.write(begin, np.frombuffer(run, np.uint8))
                run = bytearray()
            begin = begin if run else start
            run += data
        if run:
            file.write(begin, np.frombuffer(run, np.uint8))
        file.raise_error()
