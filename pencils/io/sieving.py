"""Read a block of a field that lies in a file in C order, row by row or many rows at once.

A row is what the block has in one piece of the file. Long rows are read one by one. Of short ones
many are read at once, with what lies between them, and then picked out: data sieving, as MPI-IO
calls it. It moves a multiple of the block, but no other rank takes part.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array import PencilArray
from pencils.comm.file import SharedFile
from pencils.io.checksum import checksum, checksum_rows
from pencils.io.progress import Told
from pencils.layout import Box, Layout
from pencils.storage import Array

# Rows of this length are read one by one (this and the next: measured; see benchmarks/io.py).
ROW_BYTES = 2**16
# Shorter ones are read together if that moves at most so many times what is wanted.
MOST_SIEVED = 4
# What is read of them at once: it stays in the cache until the rows are picked out.
SIEVE_BYTES = 2**18
# What is read of a long row, summed up and reported at once.
PIECE_BYTES = 2**26


class Rows(NamedTuple):
    """Rows at equal distances: ``block[i]`` begins at byte ``offset + i * step`` of the field."""

    offset: int
    step: int
    block: Array


def is_read_by_rows(layout: Layout, itemsize: int) -> bool:
    """Whether reading blocks as they are beats reading slabs; the same for all ranks.

    Examples
    --------
    >>> from pencils.layout import make_layout
    >>> [is_read_by_rows(make_layout((64, 64), ranks, decomp=1), 8) for ranks in (2, 16)]
    [True, False]
    """
    cut = [dim for dim, split in enumerate(layout.splits) if split.parts > 1 and split.points > 1]
    last = cut[-1] if cut else 0
    parts = layout.process_shape[last]
    return parts <= MOST_SIEVED or prod(layout.shape[last:]) * itemsize >= parts * ROW_BYTES


def rows_of(field: PencilArray) -> Iterator[Rows]:
    """Yield all rows of this rank's block in C order."""
    box, shape, itemsize = field.extent.box, field.extent.shape, field.dtype.itemsize
    if field.local.size == 0:
        return
    strides = [prod(shape[dim + 1 :]) * itemsize for dim in range(len(shape))]
    start = sum(lo * stride for lo, stride in zip(box.start, strides, strict=True))
    cut = [dim for dim, points in enumerate(shape) if box.shape[dim] < points]
    lead = box.shape[: cut[-1] if cut else 0]
    for number, component in enumerate(np.ndindex(*field.components)):
        origin, block = number * prod(shape) * itemsize + start, field.local[component]
        if not lead:
            yield Rows(origin, prod(shape) * itemsize, block[np.newaxis])
            continue
        for index in np.ndindex(*lead[:-1]):
            ahead = sum(i * stride for i, stride in zip(index, strides, strict=False))
            yield Rows(origin + ahead, strides[len(lead) - 1], block[index])


def read_rows(file: SharedFile, start: int, rows: Rows, *, summed: bool, moved: Told) -> int:
    """Fill rows of a field whose bytes begin at `start`. Local.

    Returns
    -------
    int
        Their share of the checksum; zero without ``summed``.
    """
    row_bytes = rows.block[0].size * rows.block.dtype.itemsize
    at_once = 1 if row_bytes >= ROW_BYTES else max(1, SIEVE_BYTES // rows.step)
    total = 0
    for first in range(0, len(rows.block), at_once):
        part = Rows(rows.offset + first * rows.step, rows.step, rows.block[first : first + at_once])
        read = _read_row if len(part.block) == 1 else _read_sieved
        total += read(file, start, part, summed=summed)
        moved(part.block.nbytes)
    return total % 2**64


def _read_row(file: SharedFile, start: int, rows: Rows, *, summed: bool) -> int:
    block, offset, total = rows.block[0], rows.offset, 0
    itemsize = block.dtype.itemsize
    for box in Box.of_shape(block.shape).pieces(max(1, PIECE_BYTES // itemsize)):
        index: tuple[Any, ...] = (*box.slices(), ...)  # an array even of a single element
        part = block[index]
        piece = part if part.flags.c_contiguous else np.empty(part.shape, part.dtype)
        file.read(start + offset, piece)
        if summed:
            total += checksum(piece, offset // itemsize)
        if piece is not part:
            np.copyto(part, piece)
        offset += piece.nbytes
    return total


def _read_sieved(file: SharedFile, start: int, rows: Rows, *, summed: bool) -> int:
    count, *inner = rows.block.shape
    itemsize, length = rows.block.dtype.itemsize, prod(inner)
    step = rows.step // itemsize
    span = np.empty((count - 1) * step + length, rows.block.dtype)
    file.read(start + rows.offset, span)
    strides = [prod(inner[dim + 1 :]) * itemsize for dim in range(len(inner))]
    found: Array = np.ndarray(rows.block.shape, span.dtype, span, strides=[rows.step, *strides])
    np.copyto(rows.block, found)
    return checksum_rows(span, length, step, rows.offset // itemsize) if summed else 0
