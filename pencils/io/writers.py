"""Write fields to a new file: rank 0 lays it out, all ranks write, rank 0 gives it its name.

Each field takes three steps:

1. `HDF5Writer.take` moves the values to the ranks that write them. It communicates.
2. `Part.work` computes and writes. It never waits for another rank, so it may run in a thread.
3. `Part.finish` communicates again and returns the checksum of this rank's points.

`HDF5Writer.write`, of `save`, runs all steps for one field before it takes the next field: only one
field at a time exists twice. `pencils.io.save.Saving` takes all fields first, works on them in a
thread, and finishes them in `wait`.

Another file format has a class with the methods of `HDF5Writer` and parts of its own: `save` and
`Saving` use nothing else of a format. For reading see `pencils.io.readers.Format`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pencils.array.creation import empty
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.distribute.gather import gather
from pencils.distribute.partition import partition
from pencils.io.checksum import add_sums, checksum, checksum_box
from pencils.io.chunked import Packer, bring, check_filters, joined, tile
from pencils.io.chunks import chunk_box
from pencils.io.commit import allocate, clean, commit, discard, make_temporary
from pencils.io.contents import Contents
from pencils.io.file_access import OnProgress, ignore, on_root, shown, system
from pencils.io.file_info import DatasetInfo
from pencils.io.manifest import Extent
from pencils.io.seal import seal_new
from pencils.io.slabs import FileBlocks, Slabs, runs

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Part(Protocol):
    """The points of one field that this rank writes."""

    def work(self) -> None:
        """Compute, and write what already has its place in the file. Local, as are its errors."""

    def finish(self) -> int:
        """Write the rest; return this rank's part of the checksum, modulo ``2**64``. *Collective*.

        Raises OSError on every rank, if writing in this step has failed on any.
        """


class HDF5Writer:
    """A new HDF5 file under a temporary name, open on all ranks. *Collective*.

    HDF5 makes room for the fields; the bytes are written by plain system calls. Parameters are a
    private communicator, the name that the file is to have (that on rank 0 counts), and what it
    contains. Raises ArgumentError or TypeError if HDF5 has no such filter, element type or
    attribute, OSError if the file cannot be written, on every rank.
    """

    def __init__(self, comm: MPI.Intracomm, path: str, contents: Contents) -> None:
        self.summed, self.align = contents.summed, contents.align
        self.compression = contents.chunking.compression
        self._comm = comm
        self._rank = comm.rank  # of a communicator that may be freed later
        self._chunks: list[Extent] = []  # on rank 0: where chunks are
        if any(entry.chunks for entry in contents.entries):
            with agreed(comm, "save"):
                check_filters(contents.entries, self.compression)
        found = on_root(comm, "save", lambda: _begin(path, contents))
        self.target, self.temporary, self.entries, self._values = found
        try:
            self.file = SharedFile(comm, str(self.temporary), write=True)
        except BaseException:
            self.discard()
            raise

    def write(self, fields: Mapping[str, PencilArray]) -> None:
        """Write one field after the other, and give the file its name. *Collective*.

        Raises OSError on every rank, if writing has failed on any; then the file is removed.
        """
        share = sum(entry.nbytes for entry in self.entries) // self._comm.size
        sums = {}
        try:
            with (
                shown("save", str(self.target), share, rank=self._rank) as moved,
                self.file,
                closing(Slabs()) as slabs,
            ):
                for entry in self.entries:
                    if entry.nbytes:
                        part = self.take(fields[entry.name], entry, slabs, moved)
                        with agreed(self._comm, "save"):
                            part.work()
                        sums[entry.name] = part.finish()
            self.finish(sums)
        except BaseException:
            self.discard()
            raise

    def take(
        self, u: PencilArray, entry: DatasetInfo, slabs: Slabs, moved: OnProgress = ignore
    ) -> Part:
        """Move a field, which has points, to the ranks that write it. *Collective*.

        `slabs` moves fields to slabs, in which every rank writes one run of bytes per component;
        chunked fields are written chunk by chunk. `moved` is called with the bytes of every piece.
        """
        if entry.chunks:
            return _ChunkedPart(self, u, entry, moved)
        return _SlabPart(self, slabs.of(u), entry, moved)

    def place_chunks(self, entry: DatasetInfo, table: np.ndarray) -> np.ndarray:
        """Find room for all chunks of a field, by their sizes and masks. On rank 0 only."""
        from pencils.io import create  # of all ranks, only this one needs h5py

        places = create.place_chunks(str(self.temporary), entry, table, align=self.align)
        pairs = zip(places.ravel().tolist(), table[0].ravel().tolist(), strict=True)
        self._chunks.extend(pairs)
        return places

    def finish(self, sums: Mapping[str, int]) -> None:
        """Seal the file, which is whole, and give it its name. *Collective*.

        `sums` are this rank's parts of the checksums of fields.
        """
        totals = add_sums(self._comm, sums)
        with agreed(self._comm, "save"), system("save", self.target):
            if self._rank == 0:
                entries = self._values + [
                    replace(entry, checksum=totals.get(entry.name, 0)) if self.summed else entry
                    for entry in self.entries
                ]
                _finish(self.temporary, self.target, entries, self._chunks)

    def discard(self) -> None:
        """Remove the file, if it has not got its name. Local, even if the communicator is gone."""
        if self._rank == 0:
            discard(self.temporary)


class _SlabPart:
    """The slab of a field; its memory is released when it is written."""

    def __init__(
        self, writer: HDF5Writer, slab: PencilArray, entry: DatasetInfo, moved: OnProgress
    ) -> None:
        self._writer = writer
        self._blocks = FileBlocks((entry.offset or 0,), entry.nbytes)
        self._slab: PencilArray | None = slab
        self._moved = moved
        self._sum = 0

    def work(self) -> None:
        slab, self._slab = self._slab, None
        if slab is not None:
            file, summed = self._writer.file, self._writer.summed
            self._sum = write_slab(file, slab, self._blocks, summed=summed, moved=self._moved)

    def finish(self) -> int:
        return self._sum


class _ChunkedPart:
    """The chunks that one rank has of a field: filtered, and then written where HDF5 wants them.

    HDF5 assigns the place of a chunk when it knows its size. So rank 0 lets HDF5 write as many
    bytes into a `CapturedFile`, which drops them, and all ranks write theirs to the places that
    result. Meanwhile nothing else may change the file through HDF5.
    """

    def __init__(
        self, writer: HDF5Writer, u: PencilArray, entry: DatasetInfo, moved: OnProgress
    ) -> None:
        extents = entry.chunks[len(u.components) :]
        self._writer = writer
        self._entry = entry
        self._moved = moved
        self._tiles = tile(u, extents)
        self._components = u.components
        self._block: PencilArray | None = bring(u, self._tiles, extents)
        self._packed: list[tuple[bytes, int]] = []
        self._sum = 0

    def work(self) -> None:
        block, self._block = self._block, None
        if block is None or self._tiles.box().volume == 0:
            return
        entry, writer = self._entry, self._writer
        components = (0,) * len(self._components)
        origin, first = components + block.extent.box.start, components + self._tiles.box().start
        with Packer(entry, writer.compression) as packer:
            for index in np.ndindex(*self._components, *self._tiles.local_shape):
                chunk = tuple(map(sum, zip(first, index, strict=True)))
                box = chunk_box(chunk, entry.chunks, entry.shape)
                self._packed.append(packer.pack(block.local[box.slices(origin)]))
                if writer.summed:
                    found = packer.unpack()[tuple(map(slice, box.shape))]
                    self._sum += checksum_box(found, box.start, entry.shape)
                self._moved(box.volume * entry.dtype.itemsize)

    def finish(self) -> int:
        writer, comm = self._writer, self._tiles.topology.comm
        with agreed(comm, "save"):  # one rank may have no memory for it
            mine = empty(self._tiles, dtype=np.int64, components=(2, *self._components))
            pairs = [(len(data), mask) for data, mask in self._packed]
            mine.local[...] = np.array(pairs, np.int64).reshape(-1, 2).T.reshape(mine.local.shape)
        table, places = gather(mine), None
        with agreed(comm, "save"):
            if table is not None:
                places = writer.place_chunks(self._entry, table)
        starts = partition(self._tiles, places, root=0)
        with agreed(comm, "save"):
            chunks = (data for data, _ in self._packed)
            for start, run in joined(zip(starts.local.flat, chunks, strict=True)):
                writer.file.write(start, np.frombuffer(run, np.uint8))
            writer.file.raise_error()
        return self._sum % 2**64


def write_slab(
    file: SharedFile,
    slab: PencilArray,
    blocks: FileBlocks,
    *,
    first: int = 0,
    summed: bool = True,
    moved: OnProgress = ignore,
) -> int:
    """Write this rank's points of a slab to the blocks of the field in a file. Local.

    Returns their checksum, as part of an array in which the field begins at element `first`; zero
    with ``summed=False``. Raises OSError on this rank only.
    """
    total = 0
    for run in runs(slab) if slab.extent.layout.is_first_replica(slab.pencil.rank) else ():
        for start, at, piece in blocks.pieces(run):
            file.write(start, piece)
            if summed:
                total += checksum(piece, first + at // piece.itemsize)
            moved(piece.nbytes)
    file.raise_error()
    return total % 2**64


def _begin(
    path: str, contents: Contents
) -> tuple[Path, Path, list[DatasetInfo], list[DatasetInfo]]:
    """Lay out a file under a temporary name; describe its fields and values."""
    from pencils.io import create

    with system("save", path):
        target = Path(os.path.realpath(path))
        clean(target)
        temporary = make_temporary(target)
        try:
            fields, values = create.lay_out(str(temporary), contents)
            allocate(temporary)
        except BaseException:
            discard(temporary)
            raise
    return target, temporary, fields, values


def _finish(
    temporary: Path, target: Path, entries: Sequence[DatasetInfo], chunks: Sequence[Extent]
) -> None:
    from pencils.io import create

    path = str(temporary)
    sums = {one.name: one.checksum for one in entries if not one.kind and one.checksum is not None}
    create.seal(path, sums)
    summed = [entry for entry in entries if not entry.kind or entry.checksum is not None]
    whole = [(entry.offset, entry.nbytes) for entry in summed if entry.offset is not None]
    seal_new(path, entries, [*whole, *chunks])
    commit(temporary, target)
