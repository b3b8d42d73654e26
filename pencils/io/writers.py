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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pencils.array.pencil_array import PencilArray
from pencils.bars import BYTES, OnProgress, ignore, shown
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.io.checksum import add_sums, carry_sums, checksum_box
from pencils.io.chunked import ChunkMove, Packer, joined
from pencils.io.chunks import chunk_box
from pencils.io.commit import (
    allocate,
    check_unlocked,
    check_visible_on_all_hosts,
    clean,
    commit,
    discard,
    make_temporary,
)
from pencils.io.contents import Contents
from pencils.io.direct import DIRECT_BYTES, Place, write_points
from pencils.io.file_access import from_root, system, through_root
from pencils.io.file_info import DatasetInfo
from pencils.io.manifest import Extent, seal_new
from pencils.io.slabs import FileBlocks, ReadyMoves, Slabs, is_slab, kept_plan_of, run_bytes

if TYPE_CHECKING:
    from pencils.comm.topology import Topology
    from pencils.transposition.plan import Transposition


Ints = NDArray[np.int64]

# Runs that several nodes write side by side: as long as the stripes of parallel file systems.
_STRIPE_BYTES = 2**22


class Part(Protocol):
    """The points of one field that this rank writes."""

    def work(self) -> None:
        """Compute, and write what already has its place in the file. Local, as are its errors."""

    def finish(self) -> int:
        """Write the rest; return this rank's part of the checksum, modulo ``2**64``. *Collective*.

        Errors of writing are kept by the file.
        """


class HDF5Writer:
    """A new HDF5 file under a temporary name, open on all ranks. *Collective*.

    HDF5 makes room for the fields; the bytes are written by plain system calls. Parameters are the
    topology of all ranks, the name that the file is to have (that on rank 0 counts), and what it
    contains. Raises TypeError if HDF5 has no such element type or attribute, OSError if the file
    cannot be written, on every rank.
    """

    def __init__(self, topology: Topology, path: str, contents: Contents) -> None:
        comm = topology.comm
        self.summed, self.align = contents.summed, contents.align
        self.compression = contents.chunking.compression
        self._comm = comm
        self._rank = comm.rank  # of a communicator that may be freed later
        self._chunks: list[Extent] = []  # on rank 0: where chunks are
        self._attribute_offsets: Mapping[str, int] | None = None  # on rank 0: see `create.lay_out`
        found = from_root(comm, lambda: self._begin(path, contents))
        self.target, self.temporary, self.entries, self._values, self._place = found
        if self._rank != 0:
            self.file = SharedFile(str(self.temporary), write=True)
        try:
            check_visible_on_all_hosts(topology, "save", self.target, self.temporary)
        except BaseException:
            self.close()
            self.discard()
            raise

    def _begin(self, path: str, contents: Contents) -> tuple[Any, ...]:
        """Lay out the file under its temporary name, on rank 0; return what others are to know."""
        from pencils.io import create

        with system("save", path):
            target = Path(os.path.realpath(path))
            check_unlocked(target)
            clean(target)
            temporary = make_temporary(target)
            try:
                fields, values, self._attribute_offsets = create.lay_out(str(temporary), contents)
                allocate(temporary)
                self.file = SharedFile(str(temporary), write=True)
                self.file.raise_error()
            except BaseException:
                discard(temporary)
                raise
        return target, temporary, fields, values, self.file.place()

    def write(self, fields: Mapping[str, PencilArray], ready: ReadyMoves) -> None:
        """Write one field after the other, and give the file its name. *Collective*.

        `ready` is what `ready_fields` has made for these fields, or nothing. Raises OSError on
        every rank, if writing has failed on any; then the file is removed.
        """
        share = sum(entry.nbytes for entry in self.entries) // self._comm.size
        sums = dict.fromkeys((entry.name for entry in self.entries if self.summed), 0)
        try:
            nodes = _count_nodes(fields.values())
            stays = partial(is_written_directly, nodes=nodes)
            slabs = Slabs(self.file.raise_error, stays, ready)
            bar = shown(f"save {self.target.name}", share, rank=self._rank, unit=BYTES)
            with bar as moved, closing(slabs):
                for entry in self.entries:
                    if entry.nbytes:
                        part = self.take(fields[entry.name], entry, slabs, moved)
                        self.file.attempt(part.work)
                        total = part.finish()
                        if self.summed:
                            sums[entry.name] = total
                self.end(sums)
        except BaseException:
            self.discard()
            raise
        finally:
            self.close()

    def _flush(self) -> None:
        """Close the file, unless this is rank 0. Local.

        What this rank has written is then on the disk, or in the memory of the system on which rank
        0 will bring all of it to the disk at once.
        """
        if self._rank == 0:
            return
        if self._place is None or self.file.place() != self._place:
            self.file.sync()
        self.file.close()
        self.file.raise_error()

    def _to_disk(self, _temporary: Path) -> None:
        self.file.sync()
        self.file.close()
        self.file.raise_error()

    def take(
        self, u: PencilArray, entry: DatasetInfo, slabs: Slabs, moved: OnProgress = ignore
    ) -> Part:
        """Move a field, which has points, to the ranks that write it. *Collective*.

        `slabs` moves fields to slabs, in which every rank writes one run of bytes per component;
        chunked fields are written chunk by chunk. `moved` is called with the bytes of every piece.
        """
        if entry.chunks:
            return _ChunkedPart(self, u, entry, slabs.ready, moved)
        return _FieldPart(self, slabs.of(u), entry, moved)

    def place_chunks(self, entry: DatasetInfo, table: Ints) -> Ints:
        """Find room for all chunks of a field, by their sizes and masks. On rank 0 only."""
        from pencils.io import create  # of all ranks, only this one needs h5py

        with system("save", self.target):
            places = create.place_chunks(str(self.temporary), entry, table, align=self.align)
        pairs = zip(places.ravel().tolist(), table[0].ravel().tolist(), strict=True)
        self._chunks.extend(pairs)
        return places

    def end(self, sums: Mapping[str, int]) -> None:
        """Seal the file, which is whole, and give it its name. *Collective*.

        `sums` are this rank's parts of the checksums of fields.
        """
        with agreed(self._comm, "save") as agree:
            self.file.raise_error()
            self._flush()
            carry_sums(agree, sums)
        totals = add_sums(self._comm, sums, agree)
        with agreed(self._comm, "save"), system("save", self.target):
            if self._rank == 0:
                entries = self._values + [
                    replace(entry, checksum=totals.get(entry.name, 0)) if self.summed else entry
                    for entry in self.entries
                ]
                self._seal(entries)
                commit(self.temporary, self.target, self._to_disk)

    def _seal(self, entries: Sequence[DatasetInfo]) -> None:
        """Add what is known at the end: checksums, the list of contents, and that it is whole."""
        from pencils.io import create

        path = str(self.temporary)
        offsets = None if self._chunks else self._attribute_offsets
        fields = [one for one in entries if not one.kind and one.checksum is not None]
        create.note_complete(path, {one.name: one.checksum or 0 for one in fields}, offsets)
        summed = [entry for entry in entries if not entry.kind or entry.checksum is not None]
        whole = [(entry.offset, entry.nbytes) for entry in summed if entry.offset is not None]
        seal_new(path, entries, [*whole, *self._chunks])

    def close(self) -> None:
        """Close the file; what was written and is not on the disk stays where it is. Local."""
        self.file.close()

    def discard(self) -> None:
        """Remove the file, if it has not got its name. Local, even if the communicator is gone."""
        if self._rank == 0:
            discard(self.temporary)


class _FieldPart:
    """The points of one rank that need no other rank to be written."""

    def __init__(
        self, writer: HDF5Writer, u: PencilArray, entry: DatasetInfo, moved: OnProgress
    ) -> None:
        self._writer = writer
        self._blocks = FileBlocks((entry.offset or 0,), entry.nbytes)
        self._u: PencilArray | None = u  # until it is written
        self._moved = moved
        self._sum = 0

    def work(self) -> None:
        u, self._u = self._u, None
        if u is not None:
            file, summed = self._writer.file, self._writer.summed
            self._sum = write_part(file, u, self._blocks, summed=summed, moved=self._moved)

    def finish(self) -> int:
        return self._sum


class _ChunkedPart:
    """The chunks that one rank has of a field: filtered, and then written where HDF5 wants them.

    HDF5 assigns the place of a chunk when it knows its size. So rank 0 lets HDF5 write as many
    bytes into a `CapturedFile`, which drops them, and all ranks write theirs to the places that
    result. Meanwhile nothing else may change the file through HDF5.
    """

    def __init__(
        self,
        writer: HDF5Writer,
        u: PencilArray,
        entry: DatasetInfo,
        ready: ReadyMoves,
        moved: OnProgress,
    ) -> None:
        extents = entry.chunks[len(u.components) :]
        self._writer = writer
        self._entry = entry
        self._moved = moved
        move = ChunkMove.of(u, extents)
        self._tiles = move.tiles
        self._components = u.components
        self._block: PencilArray | None = move(u, writer.file.raise_error, ready)
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
        comm = self._tiles.topology.comm
        starts = through_root(comm, self._sizes, self._place)
        self._writer.file.attempt(lambda: self._write(starts))
        return self._sum % 2**64

    def _sizes(self) -> Ints:
        """Return the sizes and masks of the chunks of this rank."""
        self._writer.file.raise_error()
        pairs = [(len(data), mask) for data, mask in self._packed]
        return np.array(pairs, np.int64).reshape(-1, 2).T

    def _place(self, sizes: list[Ints]) -> list[Ints]:
        """Find room for the chunks of all ranks; return where those of each begin. On rank 0."""
        table = np.zeros((2, *self._components, *self._tiles.shape), np.int64)
        keys: list[Any] = [(..., *self._tiles.box(rank).slices()) for rank in range(len(sizes))]
        for key, own in zip(keys, sizes, strict=True):
            table[key] = own.reshape(table[key].shape)
        places = self._writer.place_chunks(self._entry, table)
        return [places[key] for key in keys]

    def _write(self, starts: Ints) -> None:
        file, chunks = self._writer.file, (data for data, _ in self._packed)
        for start, run in joined(zip(starts.ravel().tolist(), chunks, strict=True)):
            file.write(start, np.frombuffer(run, np.uint8))
        file.raise_error()


def write_part(
    file: SharedFile,
    u: PencilArray,
    blocks: FileBlocks,
    *,
    first: int = 0,
    summed: bool = True,
    moved: OnProgress = ignore,
) -> int:
    """Write this rank's points of a field to the blocks of it in a file. Local.

    Returns their checksum, as part of an array in which the field begins at element `first`; zero
    with ``summed=False``. Raises OSError on this rank only.
    """
    total = 0
    if u.extent.layout.is_first_replica(u.pencil.rank):
        start = (0,) * len(u.components) + u.extent.box.start
        place = Place(first * u.dtype.itemsize, u.shape, start)
        total = write_points(file, blocks, place, u.local, summed=summed, moved=moved)
    file.raise_error()
    return total


def is_written_directly(u: PencilArray, *, nodes: int) -> bool:
    """Whether ranks write their own points: each has one run, or long ones.

    Several nodes that write into each other's pages or stripes wait for each other, so that their
    runs must be longer. The answer is the same on all ranks.
    """
    layout = u.extent.layout
    least = DIRECT_BYTES if nodes == 1 else _STRIPE_BYTES
    return is_slab(layout) or run_bytes(layout, u.dtype.itemsize) >= least


def ready_fields(agree: agreed, contents: Contents) -> ReadyMoves:
    """Prepare the fields that `HDF5Writer.write` will move first, within an agreement; local."""
    return ReadyMoves.within(agree, _moving(contents))


def _moving(contents: Contents) -> Iterator[tuple[PencilArray, Transposition | None]]:
    """Yield the fields that other ranks write, and the plans that move them, if they are there."""
    for entry in contents.entries:
        u = contents.fields[entry.name]
        nodes = u.pencil.topology.known_nodes
        if not entry.nbytes:
            continue
        if entry.chunks:
            yield u, ChunkMove.kept_plan_of(u, entry.chunks[len(u.components) :])
        elif nodes is None and not is_slab(u.extent.layout):
            yield u, None
        elif not is_written_directly(u, nodes=nodes or 1):
            yield u, kept_plan_of(u)


def _count_nodes(fields: Iterable[PencilArray]) -> int:
    """Count the nodes, if any field is not in slabs; else say 1. *Collective*."""
    cut = (u for u in fields if not is_slab(u.extent.layout))
    return next((u.pencil.topology.nodes for u in cut), 1)
