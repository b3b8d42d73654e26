"""Write fields into an HDF5 file by plain system calls, where HDF5 has made room for them."""

from __future__ import annotations

from collections import deque

from pencils.array.pencil_array import PencilArray
from pencils.comm.file import SharedFile
from pencils.io.chunked import ChunkedWriter
from pencils.io.file_access import OnProgress, ignore
from pencils.io.file_info import DatasetInfo
from pencils.io.slabs import FileBlocks, Slabs, runs
from pencils.io.temp_file import TempFile
from pencils.io.writers import Part, write_run


class HDF5Writer:
    """Writes datasets of one piece as slabs, and chunked datasets chunk by chunk.

    Parameters
    ----------
    file : SharedFile
        The file, open on all ranks.
    temp : TempFile
        Its layout.
    slabs : Slabs
        Moves fields to slabs, in which every rank writes one run of bytes per component.
    moved : callable, optional
        Called with the number of bytes after every piece.
    """

    def __init__(
        self, file: SharedFile, temp: TempFile, slabs: Slabs, moved: OnProgress = ignore
    ) -> None:
        self.file = file
        self.summed = temp.summed
        self.moved = moved
        self._slabs = slabs
        self._chunked = ChunkedWriter(file, temp, moved)

    def take(self, field: PencilArray, entry: DatasetInfo) -> Part:
        """Move a field to the ranks that write it. *Collective*."""
        if entry.chunks:
            return self._chunked.take(field, entry)
        return _Slab(self, self._slabs.of(field), FileBlocks((entry.offset or 0,), entry.nbytes))

    def close(self) -> None:
        """Release the memory of slabs."""
        self._slabs.close()


class _Slab:
    """One slab; its memory is released when it is written."""

    def __init__(self, writer: HDF5Writer, slab: PencilArray, place: FileBlocks) -> None:
        self._writer = writer
        self._place = place
        self._sum = 0
        mine = slab.extent.layout.is_first_replica(slab.pencil.rank)
        self._runs = deque(runs(slab) if mine else ())

    def work(self) -> None:
        writer = self._writer
        while self._runs:
            run = self._runs.popleft()
            self._sum += write_run(
                writer.file, self._place, run, summed=writer.summed, moved=writer.moved
            )
        writer.file.complain()

    def finish(self) -> int:
        return self._sum % 2**64
