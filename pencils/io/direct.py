"""Move the points of this rank straight from or to the bytes of a file. No communication.

Points that follow each other in the file are a *run*. Long runs are read to where they belong. Of
short ones several are read together, with the bytes of other ranks between them, and then copied.
What is read or written is summed up at the same time, while it is in the cache of the processor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.bars import OnProgress, ignore
from pencils.comm.file import SharedFile
from pencils.comm.pack import copy
from pencils.io.checksum import strides, sum_box
from pencils.io.slabs import FileBlocks
from pencils.layout import Layout

# Runs of this length are read one by one, to where they belong (measured; see benchmarks/io.py).
DIRECT_BYTES = 2**16
# What moves at once: it stays in the cache of the processor until it is summed up and copied.
_PIECE_BYTES = 2**19
# Bytes that a rank may read for each one that it needs; beyond that, ranks exchange slabs.
_MOST_READ = 4


class Place(NamedTuple):
    """Where a block is in an array that a file holds from `offset` on, in C order."""

    offset: int
    shape: tuple[int, ...]  # of the array
    start: tuple[int, ...]  # index of the first point of the block


class _Levels(NamedTuple):
    """Axes at which a block is cut: `run` is the last one of which it has only a part.

    Pieces are several indices along `piece`, and one index along each axis before.
    """

    run: int
    piece: int

    @classmethod
    def of(
        cls, shape: Sequence[int], counts: Sequence[int], itemsize: int, *, alone: bool = False
    ) -> _Levels:
        """Choose where reads are cut; with `alone`, no piece spans bytes of other ranks."""
        steps = strides(shape)
        cut = [axis for axis, count in enumerate(counts) if count < shape[axis]]
        run = piece = cut[-1] if cut else 0
        while piece and not alone and counts[piece] * steps[piece] * itemsize < DIRECT_BYTES:
            piece -= 1
        last = len(shape) - 1
        while run <= piece < last and steps[piece] * itemsize > _PIECE_BYTES:
            piece += 1
        return cls(run, piece)


def is_direct(layout: Layout, components: Sequence[int], itemsize: int) -> bool:
    """Whether all ranks read their points directly; an answer that all ranks have alike."""
    shape = (*components, *layout.shape)
    parts = [1] * len(components) + [
        split.parts if split.points > 1 else 1 for split in layout.splits
    ]
    counts = [-(-n // part) for n, part in zip(shape, parts, strict=True)]
    run, piece = _Levels.of(shape, counts, itemsize)
    return prod(parts[piece + 1 : run + 1]) <= _MOST_READ


def read_points(
    file: SharedFile, place: Place, target: Array, *, summed: bool, moved: OnProgress = ignore
) -> int:
    """Read a block of an array; return its checksum, modulo ``2**64``, or zero unless `summed`.

    Errors are kept by the file.
    """
    if not target.size:
        return 0
    itemsize, total = target.itemsize, 0
    run, axis = _Levels.of(place.shape, target.shape, itemsize)
    steps = strides(place.shape)[axis:]
    apart = [step * itemsize for step in steps]
    scratch = np.empty(0, np.uint8)
    for first, part in _pieces(place, target, axis):
        in_place = run <= axis and part.flags.c_contiguous  # no bytes of other ranks between
        if in_place:
            span = part.reshape(-1).view(np.uint8)
        else:
            nbytes = itemsize + sum((n - 1) * gap for n, gap in zip(part.shape, apart, strict=True))
            if nbytes > len(scratch):
                scratch = np.empty(nbytes, np.uint8)
            span = scratch[:nbytes]
        file.read(place.offset + first * itemsize, span)
        if summed:
            total += sum_box(span, part.dtype, part.shape, first, steps, apart=apart)
        if not in_place:
            copy(part, np.ndarray(part.shape, part.dtype, span, strides=apart))
        moved(part.nbytes)
    return total % 2**64


def _pieces(place: Place, target: Array, axis: int) -> Iterator[tuple[int, Array]]:
    """Cut a block at an axis; yield the position in the array of each piece, and the piece."""
    steps = strides(place.shape)
    origin = sum(at * step for at, step in zip(place.start, steps, strict=True))
    extent = target.shape[axis]
    most = max(1, _PIECE_BYTES // (steps[axis] * target.itemsize))
    for index in np.ndindex(target.shape[:axis]):
        first = origin + sum(at * step for at, step in zip(index, steps, strict=False))
        for low in range(0, extent, most):
            key: tuple[Any, ...] = (*index, slice(low, min(low + most, extent)))
            yield first + low * steps[axis], target[key]


def write_points(
    file: SharedFile,
    blocks: FileBlocks,
    place: Place,
    source: Array,
    *,
    summed: bool,
    moved: OnProgress = ignore,
) -> int:
    """Write a block of an array; return its checksum, as `read_points` does.

    The elements of the file are in `blocks`; the first one of the array has position
    ``place.offset``, in bytes, among those that the checksum is about.
    """
    if not source.size:
        return 0
    itemsize, total = source.itemsize, 0
    axis = _Levels.of(place.shape, source.shape, itemsize, alone=True).piece
    steps = strides(place.shape)[axis:]
    apart = [step * itemsize for step in steps]
    for at, part in _pieces(place, source, axis):
        piece = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        if summed:
            first = place.offset // itemsize + at
            total += sum_box(piece, part.dtype, part.shape, first, steps, apart=apart)
        for start, data in blocks.pieces(at * itemsize, piece):
            file.write(start, data)
        moved(part.nbytes)
    return total % 2**64
