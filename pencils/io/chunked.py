"""Chunks that every rank filters on its own, at the places that HDF5 gives them.

HDF5 assigns the place of a chunk when it has its bytes, and the bytes are on the rank that has the
points. So each rank runs the filters on its chunks in memory; rank 0 lets HDF5 write as many
bytes into a `CapturedFile`, which drops them; and all ranks write theirs to the places that result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.creation import empty
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.distribute.gather import gather
from pencils.distribute.partition import partition
from pencils.io.checksum import checksum_box
from pencils.io.chunks import chunk_box, count_chunks, cut_points, whole_chunks
from pencils.io.file_access import OnProgress, ignore
from pencils.io.file_info import DatasetInfo
from pencils.io.slabs import STAGING_BYTES
from pencils.io.temp_file import TempFile
from pencils.io.writers import Part
from pencils.pencil import Pencil
from pencils.transposition.plan import Transposition

if TYPE_CHECKING:
    from pencils.io.filters import Packed

# Chunks that follow each other in the file are written together, up to about this number of bytes.
_RUN_BYTES = 2**23


class ChunkedWriter:
    """Writes chunked fields; every rank filters and writes whole chunks.

    Meanwhile no one else may change the file through HDF5.

    Parameters
    ----------
    file : SharedFile
        Where to write.
    temp_file : TempFile
        What has been laid out there.
    moved : callable, optional
        Called with the number of bytes after every chunk.
    """

    def __init__(self, file: SharedFile, temp_file: TempFile, moved: OnProgress = ignore) -> None:
        self.file = file
        self.temp_file = temp_file
        self.moved = moved

    def take(self, field: PencilArray, entry: DatasetInfo) -> Part:
        """Copy a field to where each rank has whole chunks of it. *Collective*."""
        extents = entry.chunks[len(field.components) :]
        tiles = tile(field, extents)
        return _ChunkedPart(self, entry, tiles, _bring(field, tiles, extents))


def tile(field: PencilArray, extents: tuple[int, ...]) -> Pencil:
    """Make the pencil whose points are the chunks of a field. *Collective*.

    Chunks stay where they are if no rank has a part of one and no rank is a mere replica of
    others; else they are dealt out so that as many ranks as possible have some.

    Parameters
    ----------
    field : PencilArray
        The field.
    extents : tuple of int
        Extents of a chunk along each dimension.
    """
    pencil, layout = field.pencil, field.extent.layout
    dims = range(pencil.ndim)
    whole: dict[str, Any] = {
        "shape": count_chunks(field.extent.shape, extents),
        "periodic": False,
        "order": dims,
    }
    found = [whole_chunks(*pair) for pair in zip(layout.splits, extents, strict=True)]
    cuts = [cut for cut in found if cut is not None]
    if len(cuts) == len(found) and not layout.replicated_axes:
        return pencil.with_(**whole, decomp=pencil.decomp, grid=pencil.grid, splits=cuts)
    return pencil.with_(**whole, decomp=dims, grid=[0] * pencil.ndim, splits="first")


def _bring(field: PencilArray, tiles: Pencil, extents: tuple[int, ...]) -> PencilArray:
    """Copy a field to the ranks that have its chunks. *Collective*."""
    pencil = field.pencil
    along = zip(tiles.layout.splits, extents, pencil.shape, strict=True)
    target = pencil.with_(
        decomp=tiles.decomp,
        grid=tiles.grid,
        splits=[
            "first" if dim in field.singletons else cut_points(*cut)
            for dim, cut in enumerate(along)
        ],
        order=range(pencil.ndim),
    )
    kind: dict[str, Any] = {
        "dtype": field.dtype,
        "components": field.components,
        "dims": [dim for dim in range(pencil.ndim) if dim not in field.singletons],
    }
    with agreed(pencil.topology.comm, "save"):  # one rank may have no memory for it
        block = empty(target, **kind)
    with Transposition(pencil, target, **kind, max_buffer_bytes=STAGING_BYTES, check=False) as plan:
        return plan(field, block)


class _ChunkedPart:
    """The chunks that one rank has of a field, on their way to the file."""

    def __init__(
        self, writer: ChunkedWriter, entry: DatasetInfo, tiles: Pencil, block: PencilArray
    ) -> None:
        self._writer = writer
        self._entry = entry
        self._tiles = tiles
        self._components = block.components
        self._block: PencilArray | None = block
        self._packed: list[Packed] = []
        self._sum = 0

    def work(self) -> None:
        block, self._block = self._block, None
        if block is None or self._tiles.box().volume == 0:
            return
        from pencils.io.filters import Packer

        entry = self._entry
        components = (0,) * len(self._components)
        origin, first = components + block.extent.box.start, components + self._tiles.box().start
        with Packer(entry, self._writer.temp_file.compression) as packer:
            for index in np.ndindex(*self._components, *self._tiles.local_shape):
                chunk = tuple(map(sum, zip(first, index, strict=True)))
                box = chunk_box(chunk, entry.chunks, entry.shape)
                self._packed.append(packer.pack(block.local[box.slices(origin)]))
                if self._writer.temp_file.summed:
                    found = packer.unpack()[tuple(map(slice, box.shape))]
                    self._sum += checksum_box(found, box.start, entry.shape)
                self._writer.moved(box.volume * entry.dtype.itemsize)

    def finish(self) -> int:
        writer, comm = self._writer, self._tiles.topology.comm
        facts = empty(self._tiles, dtype=np.int64, components=(2, *self._components))
        pairs = [(len(packed.data), packed.mask) for packed in self._packed]
        facts.local[...] = np.array(pairs, np.int64).reshape(-1, 2).T.reshape(facts.local.shape)
        table, places = gather(facts), None
        with agreed(comm, "save"):
            if table is not None:
                from pencils.io import create

                temp_file = writer.temp_file
                places = create.place_chunks(
                    temp_file.path, self._entry, table, align=temp_file.align
                )
                sizes = table[0].ravel().tolist()
                temp_file.note_chunks(zip(places.ravel().tolist(), sizes, strict=True))
        mine = partition(self._tiles, places, root=0)
        chunks = (packed.data for packed in self._packed)
        for place, data in _joined(zip(mine.local.flat, chunks, strict=True)):
            writer.file.write(place, np.frombuffer(data, np.uint8))
        writer.file.check()
        return self._sum % 2**64


def _joined(chunks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytearray]]:
    """Join chunks that follow each other in the file."""
    start, run = 0, bytearray()
    for place, data in chunks:
        if run and (place != start + len(run) or len(run) >= _RUN_BYTES):
            yield start, run
            run = bytearray()
        if not run:
            start = int(place)
        run += data
    if run:
        yield start, run
