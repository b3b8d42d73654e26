"""Chunks of fields: the ranks that get them, and the filters of HDF5 that compress them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.io.chunks import count_chunks, cut_points, whole_chunks
from pencils.io.file_info import DatasetInfo
from pencils.io.slabs import ReadyMoves, file_plan
from pencils.pencil import Pencil
from pencils.plans import Freeable, kept_plan, kept_plans
from pencils.transposition.plan import Transposition

# Chunks that follow each other in the file are written together, up to about this number of bytes.
_RUN_BYTES = 2**23


def tile(u: PencilArray, extents: tuple[int, ...]) -> Pencil:
    """Make the pencil whose points are the chunks of a field. *Collective*.

    Chunks stay where they are if no rank has a part of one and no rank is a mere replica of
    others; else they are distributed so that as many ranks as possible have some.
    """
    pencil, layout = u.pencil, u.extent.layout
    dims, shape = range(pencil.ndim), count_chunks(u.extent.shape, extents)
    whole: dict[str, Any] = {"shape": shape, "periodic": False, "order": dims}
    found = [whole_chunks(*pair) for pair in zip(layout.splits, extents, strict=True)]
    cuts = [cut for cut in found if cut is not None]
    if len(cuts) == len(found) and not layout.replicated_axes:
        return pencil.with_(**whole, decomp=pencil.decomp, grid=pencil.grid, splits=cuts)
    return pencil.with_(**whole, decomp=dims, grid=[0] * pencil.ndim, splits="first")


class ChunkMove(Freeable):
    """Moves fields like `u` to the ranks that have their chunks. Making it is *Collective*.

    Attributes
    ----------
    tiles : Pencil
        What `tile` makes.
    plan : Transposition
        What moves the points.
    """

    def __init__(self, u: PencilArray, extents: tuple[int, ...]) -> None:
        pencil = u.pencil
        self.tiles = tiles = tile(u, extents)
        along = enumerate(zip(tiles.layout.splits, extents, pencil.shape, strict=True))
        cuts = ["first" if dim in u.singletons else cut_points(*cut) for dim, cut in along]
        order = range(pencil.ndim)
        self._target = pencil.with_(decomp=tiles.decomp, grid=tiles.grid, splits=cuts, order=order)
        self.plan = file_plan(pencil, self._target, FieldSpec.of(u))

    @classmethod
    def of(cls, u: PencilArray, extents: tuple[int, ...]) -> ChunkMove:
        """Find the one that was used before. *Collective*."""
        key = _key(u, extents)
        found: ChunkMove = kept_plan(u.pencil.topology, key, lambda: cls(u, extents))
        return found

    @classmethod
    def kept_plan_of(cls, u: PencilArray, extents: tuple[int, ...]) -> Transposition | None:
        """Return the plan by which a field moves, if it is there; local."""
        found: ChunkMove | None = kept_plans(u.pencil.topology).get(_key(u, extents))
        return None if found is None else found.plan

    def __call__(
        self, u: PencilArray, check: Callable[[], object], ready: ReadyMoves
    ) -> PencilArray:
        """Copy a field; what `check` raises on one rank, all raise. *Collective*.

        It is checked later if the field is ready.
        """
        block = ready.move(u, self.plan)
        if block is not None:
            return block
        with agreed(u.pencil.topology.comm, "save"):  # one rank may have no memory for it
            check()
            block = PencilArray.allocated(self._target, *FieldSpec.of(u))
            move = self.plan.prepared_one(u, block)
        move.run()
        return block

    def free(self) -> None:
        """Free the plan."""
        self.plan.free()


def _key(u: PencilArray, extents: tuple[int, ...]) -> object:
    return "chunks", u.pencil, FieldSpec.of(u), extents


def joined(chunks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytearray]]:
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


class Packer(Freeable):
    """Sends the chunks of one dataset through its filters, one after the other.

    `compression` has the filters as keywords of h5py's ``create_dataset``.
    """

    def __init__(self, entry: DatasetInfo, compression: Mapping[str, Any]) -> None:
        import h5py

        from pencils.io.create import make_chunked

        self._all = h5py.h5s.ALL
        self._chunk = np.zeros(entry.chunks, entry.dtype)
        # Without its cache HDF5 runs the filters in every call.
        self._file = h5py.File(uuid4().hex, "w", driver="core", backing_store=False, rdcc_nbytes=0)
        try:
            one = replace(entry, shape=entry.chunks)
            self._dataset = make_chunked(self._file, one, compression).id
        except BaseException:
            self._file.close()
            raise
        self._kind = self._dataset.get_type()  # the bytes as they are, whatever HDF5 calls them

    def pack(self, values: Array) -> tuple[bytes, int]:
        """Filter a chunk; return its bytes, and the mask of the filters that left it alone.

        If it has fewer points than the others, zeros are added at its ends.
        """
        if values.shape != self._chunk.shape:
            self._chunk = np.zeros_like(self._chunk)
        self._chunk[tuple(map(slice, values.shape))] = values
        self._dataset.write(self._all, self._all, self._chunk, self._kind)
        mask, data = self._dataset.read_direct_chunk((0,) * self._chunk.ndim)
        return data, mask

    def unpack(self) -> Array:
        """Return what readers will find in the chunk that was packed last; it is overwritten."""
        self._dataset.read(self._all, self._all, self._chunk, self._kind)
        return self._chunk

    def free(self) -> None:
        """Release the memory."""
        self._file.close()


def check_filters(entries: Iterable[DatasetInfo], compression: Mapping[str, Any]) -> None:
    """Raise ArgumentError or TypeError if HDF5 cannot filter the chunks of all chunked datasets.

    There may be no such filter here, or it does not take these options or elements.
    """
    for entry in entries:
        if not entry.chunks:
            continue
        try:
            with Packer(entry, compression):
                pass
        except (TypeError, ValueError, KeyError, OSError, RuntimeError) as error:
            msg = f"fields[{entry.name!r}] cannot be stored with {dict(compression)}: {error}"
            kind = TypeError if isinstance(error, TypeError) else ArgumentError
            raise kind(msg) from error
