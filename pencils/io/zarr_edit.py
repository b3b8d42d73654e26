"""Write into arrays of a Zarr folder in place: whole chunks, or shards, each by one rank.

An object is replaced at once, when the new one is on the disk. So a process that dies leaves each
chunk as it was or as it was written, and what was synchronised stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.errors import CheckpointError
from pencils.errors.missing import needs
from pencils.io.commit import sync
from pencils.io.direct import checksum_box
from pencils.io.file_access import system
from pencils.io.file_info import RESERVED
from pencils.io.slabs import chunk_box
from pencils.io.zarr_read import SUMS, Replacing, opened, put_root, read_box, store_at
from pencils.io.zarr_write import WrittenObjects, writable
from pencils.layout import Selection, Split
from pencils.layout.box import local_slice, positions
from pencils.transposition.transpose import transpose

with needs("Zarr"):
    import zarr


def check_editable(path: str) -> None:
    """Raise CheckpointError if a folder is a series; on rank 0."""
    with opened(path) as folder:
        if RESERVED + "series" in folder.attrs:
            raise CheckpointError(
                f"{path} is a series, whose snapshots can only be read; use 'r', or "
                "TimeSeries.truncate to drop the last ones"
            )


def bring(u: PencilArray, selection: Selection, unit: Sequence[int]) -> PencilArray:
    """Move the values of a selection to the ranks that write its chunks. *Collective*."""
    along = zip(selection.ranges, unit, selection.dropped, strict=True)
    left = [(kept, extent) for kept, extent, drop in along if not drop][len(u.components) :]
    splits: list[Any] = ["first"] * u.pencil.ndim
    for dim, (split, pair) in enumerate(zip(u.extent.layout.splits, left, strict=True)):
        if dim not in u.singletons:
            splits[dim] = (*_whole_cuts(split, *pair)[:-1], u.pencil.shape[dim])
    there = u.pencil.with_(decomp=u.pencil.decomp, grid=u.pencil.grid, splits=splits)
    return u if there == u.pencil else transpose(u, there)


def _whole_cuts(split: Split, kept: range, extent: int) -> list[int]:
    """Move the cuts of a split of some indices to the nearest ends of chunks of so many."""
    cuts = [*split.cuts]
    for part, cut in enumerate(cuts):
        if 0 < cut < len(kept):
            first = kept[cut] // extent * extent
            low, high = positions(kept, first, first + extent)
            cuts[part] = low if cut - low < high - cut else high
    return cuts


def write_box(
    path: str, name: str, ranges: Sequence[range], values: Array, written: WrittenObjects
) -> int:
    """Write values to indices along all axes of an array; return the change of its checksum."""
    change = 0
    with opened(path) as folder, system("write", path):
        store = Replacing(store_at(path, write=True))
        array = writable(zarr.open_array(store, path=name, mode="r+"))
        unit = array.shards or array.chunks
        pairs = zip(ranges, unit, strict=True)
        for index in product(*(range(min(r) // n, max(r) // n + 1) for r, n in pairs)):
            box = chunk_box(index, unit, array.shape)
            along = [*zip(ranges, box.start, box.stop, strict=True)]
            part = values[tuple(slice(*positions(*one)) for one in along)]
            if not part.size:
                continue
            new = (old := read_box(folder, name, box.slices())).copy()
            new[tuple(local_slice(*one) for one in along)] = part
            array[box.slices()] = new
            written.note(f"{name}/{array.metadata.encode_chunk_key(index)}")
            for sign, data in ((1, new), (-1, old)):
                change += sign * checksum_box(data, box.start, array.shape)
    return change


def reseal(path: str, sums: Mapping[str, int]) -> None:
    """Correct the checksums of fields, all at once; afterwards the root is on the disk."""
    with opened(path) as folder, system("write", path):
        attrs = {**folder.attrs, SUMS: {**folder.attrs[SUMS], **sums}}
        put_root(store_at(path, write=True), {**folder.root, "attributes": attrs})
        sync(Path(path))
