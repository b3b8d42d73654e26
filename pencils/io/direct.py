"""Points of a block in the bytes of a file: their runs and checksum, reading and writing them.

Long runs are read to where they belong. Of short ones several are read together, with the bytes of
other ranks between them, and then copied. All is summed up while it is in the cache.

The checksum is the sum over all words of ``mix(word + K * position)``, modulo 2**64: parts can be
computed in any order by any process. A word that changes, moves or is lost changes the sum; `mix`
is not linear, so that several such changes do not cancel, as two flipped signs in a plain sum.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.bars import OnProgress, ignore
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.pack import compiled, copy
from pencils.comm.reduce import carried_total
from pencils.layout import Box, Layout

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# Runs of this length are read one by one, to where they belong (measured; see benchmarks/io.py).
DIRECT_BYTES = 2**16
# What moves at once: it stays in the cache of the processor until it is summed up and copied.
_PIECE_BYTES = 2**19
# Bytes that a rank may read for each one that it needs; beyond that, ranks exchange slabs.
_MOST_READ = 4
# Odd numbers without pattern, from the generator "splitmix64", and other constants of `mix`.
_STEP = 0x9E3779B97F4A7C15
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_HIGH, _LOW = np.uint64(32), np.uint64(29)
_WORD_BYTES = 8
# Words that NumPy mixes at once: their buffers fit into the cache.
_PIECE = 2**14


class FileBlocks(NamedTuple):
    """Where a field is in a file: blocks of `nbytes` bytes, in C order, begin at `starts`."""

    starts: tuple[int, ...]
    nbytes: int

    def pieces(self, at: int, data: Array) -> Iterator[tuple[int, Array]]:
        """Cut bytes from position `at` of the field on at the ends of blocks, with their places."""
        while data.size:
            number, rest = divmod(at, self.nbytes)
            count = min(data.size, self.nbytes - rest)
            yield self.starts[number] + rest, data[:count]
            at, data = at + count, data[count:]


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from an index to the next along each axis of an array in C order."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def runs(
    ranges: Sequence[range], shape: Sequence[int], axis: int, most: int
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Cut a box of an array, which may have strides before `axis`, at that axis.

    Yields the position of each piece in the array, and its key in the box: `most` indices.
    """
    steps = strides(shape)
    origin = sum(kept.start * step for kept, step in zip(ranges, steps, strict=True))
    apart = [kept.step * step for kept, step in zip(ranges, steps, strict=True)]
    for index in np.ndindex(*map(len, ranges[:axis])):
        first = origin + sum(i * step for i, step in zip(index, apart, strict=False))
        for low in range(0, len(ranges[axis]), most):
            yield first + low * steps[axis], (*index, slice(low, low + most))


def longest_runs(
    ranges: Sequence[range], shape: Sequence[int]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Cut a box as `runs` does, as rarely as possible; the key has one axis more, of extent 1."""
    axis = 0
    for dim, (kept, n) in enumerate(zip(ranges, shape, strict=True)):
        if kept.step != 1 and len(kept) > 1:
            axis = dim + 1
        elif len(kept) < n:
            axis = dim
    if all(map(len, ranges)):
        whole = [*shape, 1]
        yield from runs([*ranges, range(1)], whole, axis, whole[axis])


def _cut_axes(
    shape: Sequence[int], counts: Sequence[int], itemsize: int, *, alone: bool = False
) -> tuple[int, int]:
    """Return the last axis that is cut, and that where pieces, or runs `alone`, begin."""
    steps = strides(shape)
    cut = [axis for axis, count in enumerate(counts) if count < shape[axis]]
    run = piece = cut[-1] if cut else 0
    while piece and not alone and counts[piece] * steps[piece] * itemsize < DIRECT_BYTES:
        piece -= 1
    while run <= piece < len(shape) - 1 and steps[piece] * itemsize > _PIECE_BYTES:
        piece += 1
    return run, piece


def is_direct(layout: Layout, components: Sequence[int], itemsize: int) -> bool:
    """Whether all ranks read their points directly; an answer that all ranks have alike."""
    shape = (*components, *layout.shape)
    parts = [1] * len(components) + [
        split.parts if split.points > 1 else 1 for split in layout.splits
    ]
    counts = [-(-n // part) for n, part in zip(shape, parts, strict=True)]
    run, piece = _cut_axes(shape, counts, itemsize)
    return prod(parts[piece + 1 : run + 1]) <= _MOST_READ


def read_points(
    file: SharedFile,
    offset: int,
    shape: Sequence[int],
    start: Sequence[int],
    target: Array,
    *,
    summed: bool,
    progress: OnProgress = ignore,
) -> int:
    """Read a block, from index `start` on, of an array of this `shape` at `offset` of a file.

    Returns its checksum, modulo ``2**64``, or zero unless `summed`. Errors are kept by the file.
    """
    itemsize, total = target.itemsize, 0
    run, axis = _cut_axes(shape, target.shape, itemsize)
    steps = strides(shape)[axis:]
    apart = [step * itemsize for step in steps]
    scratch = np.empty(0, np.uint8)
    for first, key in _pieces(shape, start, target, axis):
        part = target[key]
        in_place = run <= axis and part.flags.c_contiguous  # no bytes of other ranks between
        if in_place:
            span = part.reshape(-1).view(np.uint8)
        else:
            nbytes = itemsize + sum((n - 1) * gap for n, gap in zip(part.shape, apart, strict=True))
            if nbytes > len(scratch):
                scratch = np.empty(nbytes, np.uint8)
            span = scratch[:nbytes]
        file.read(offset + first * itemsize, span)
        if summed:
            total += sum_box(span, part.dtype, part.shape, first, steps, apart=apart)
        if not in_place:
            copy(part, np.ndarray(part.shape, part.dtype, span, strides=apart))
        progress(part.nbytes)
    return total % 2**64


def _pieces(
    shape: Sequence[int], start: Sequence[int], block: Array, axis: int
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    if not block.size:
        return iter(())
    ranges = [range(lo, lo + n) for lo, n in zip(start, block.shape, strict=True)]
    most = max(1, _PIECE_BYTES // (strides(shape)[axis] * block.itemsize))
    return runs(ranges, shape, axis, most)


def write_part(
    file: SharedFile,
    u: PencilArray,
    blocks: FileBlocks,
    *,
    first: int = 0,
    summed: bool = True,
    progress: OnProgress = ignore,
) -> int:
    """Write this rank's points of a field to the blocks of it in a file. Local.

    Returns their checksum, as part of an array in which the field begins at element `first`; zero
    with ``summed=False``. Raises OSError on this rank only.
    """
    source, itemsize, total = u.local, u.dtype.itemsize, 0
    if u.extent.layout.is_first_replica(u.pencil.rank):
        start = (0,) * len(u.components) + u.extent.box.start
        axis = _cut_axes(u.shape, source.shape, itemsize, alone=True)[1]
        steps = strides(u.shape)[axis:]
        apart = [step * itemsize for step in steps]
        for at, key in _pieces(u.shape, start, source, axis):
            part = source[key]
            piece = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            if summed:
                total += sum_box(piece, part.dtype, part.shape, first + at, steps, apart=apart)
            for place, data in blocks.pieces(at * itemsize, piece):
                file.write(place, data)
            progress(part.nbytes)
    file.raise_error()
    return total % 2**64


def checksum(data: NDArray[Any], first: int = 0) -> int:
    """Compute the checksum of consecutive elements of an array, of which `first` is the position.

    The elements are in C order, and of any type without Python objects; their bytes count. The sum
    is to be added modulo ``2**64`` to those of other parts.
    """
    flat, kernels = np.ascontiguousarray(data).reshape(-1), _kernels()
    if kernels is None:
        return checksum_box(flat, (first,), (first + flat.size,))
    width = gcd(data.itemsize, _WORD_BYTES)
    return int(kernels.mixed_sum(flat.view(np.uint8), width, first * _words_each(data.dtype)))


def checksum_box(data: NDArray[Any], start: Sequence[int], shape: Sequence[int]) -> int:
    """Compute the checksum of a box that begins at index `start` of an array of this `shape`."""
    steps, total = strides(shape), 0
    in_one = data.flags.c_contiguous and _kernels() is not None  # which needs no memory
    most = data.size if in_one else _PIECE // _words_each(data.dtype)
    for piece in Box.of_shape(data.shape).pieces(max(1, most)):
        index = (at + lo for at, lo in zip(piece.start, start, strict=True))
        first = sum(i * step for i, step in zip(index, steps, strict=True))
        part: tuple[Any, ...] = (*piece.slices(), ...)  # an array even of a single element
        box = np.ascontiguousarray(data[part]).reshape(-1).view(np.uint8)
        apart = [step * data.itemsize for step in strides(piece.shape)]
        total += sum_box(box, data.dtype, piece.shape, first, steps, apart=apart)
    return total % 2**64


def sum_box(
    memory: NDArray[np.uint8],
    dtype: np.dtype[Any],
    shape: Sequence[int],
    first: int,
    steps: Sequence[int],
    *,
    apart: Sequence[int],
) -> int:
    """Compute the checksum of a box of elements, which begins at position `first` of an array.

    `memory` begins with its first element. Neighbours along each axis are `steps` positions of the
    array and `apart` bytes of the memory from each other, in both the least along the last axis.
    """
    each, width, size = _words_each(dtype), gcd(dtype.itemsize, _WORD_BYTES), dtype.itemsize
    kernels = _kernels()
    if kernels is None:
        # As bytes: a copy of elements leaves out the gaps between their parts.
        box = np.ndarray((*shape, size), np.uint8, memory, strides=(*apart, 1))
        words = np.ascontiguousarray(box).reshape(-1).view(f"<u{width}")
        mixed = _ramp((*shape, each), (*(each * step for step in steps), 1)).copy()
        mixed += np.uint64((first * each + 1) * _STEP % 2**64)
        mixed += words
        mixed ^= mixed >> _HIGH
        mixed *= _FACTOR
        mixed ^= mixed >> _LOW
        return int(mixed.sum())
    row, axis = 1, len(shape) - 1
    while axis >= 0 and (shape[axis] == 1 or (steps[axis] == row and apart[axis] == row * size)):
        row, axis = row * shape[axis], axis - 1
    if axis < 0:
        return int(kernels.mixed_sum(memory, width, first * each, row * each))
    rows = row * each, shape[axis], steps[axis] * each, apart[axis]
    total = 0
    for index in np.ndindex(*shape[:axis]):
        at = first + sum(i * step for i, step in zip(index, steps, strict=False))
        skip = sum(i * distance for i, distance in zip(index, apart, strict=False))
        total += kernels.mixed_sum(memory[skip:], width, at * each, *rows)
    return total


def _kernels() -> Any:
    """Return the module of the compiled kernels, or None where NumPy computes."""
    return compiled() if sys.byteorder == "little" else None


def _words_each(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize // gcd(dtype.itemsize, _WORD_BYTES)


@lru_cache(maxsize=8)
def _ramp(shape: tuple[int, ...], steps: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return ``_STEP`` times the positions in a box, which are `steps` apart along each axis."""
    ramp = np.zeros((), np.uint64)
    for n, step in zip(shape, steps, strict=True):
        ramp = ramp[..., np.newaxis] + np.arange(n, dtype=np.uint64) * np.uint64(step)
    return ramp.reshape(-1) * np.uint64(_STEP)


def add_up(
    comm: MPI.Intracomm, call: str, work: Callable[[agreed], Mapping[str, int]]
) -> dict[str, int]:
    """Agree that `work` has ended well, and add the checksums that it returns. *Collective*."""
    with agreed(comm, call) as agree:
        sums = work(agree)
        parts = np.array(list(sums.values()), np.uint64)
        if sums:
            agree.carry(parts, added=True)
    totals = carried_total(comm, agree, parts, np.add) if sums else parts
    return dict(zip(sums, map(int, totals), strict=True))
