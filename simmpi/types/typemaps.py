"""Typemaps: where the bytes of a datatype are in memory, and copies from and to packed bytes.

A typemap is a list of pieces. A piece is a run of bytes, repeated along axes with constant strides,
and at irregular offsets where there are some: NumPy copies it in one call. Each piece has its place
in the packed bytes, so that the order of pieces is free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simmpi.types.memory import Bytes, view

Ints = NDArray[np.int64]
Axis = tuple[int, int, int]  # length, stride in memory, stride in the packed bytes
Atoms = tuple[tuple[Any, int], ...]  # code of a basic type or atoms of a type, and how often
Signature = tuple[tuple[str, int], ...]

# NumPy copies items of these sizes by one move if they are integers, or complex numbers.
MOVES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
LONGEST_ITEM = 4096  # bytes; longer runs are copied one by one, or as bytes
MOST_AXES = 16


@dataclass(frozen=True, eq=False)
class Piece:
    """Runs of `length` bytes at `start` + an offset of the table + multiples of the strides."""

    start: int
    place: int  # of the first run in the packed bytes
    length: int
    axes: tuple[Axis, ...] = ()
    table: Ints | None = None  # irregular offsets in memory, and in the packed bytes: shape (2, n)

    def shifted(self, start: int, place: int) -> Piece:
        """Return the piece at another offset."""
        if start == 0 == place:
            return self
        return replace(self, start=self.start + start, place=self.place + place)

    def repeated(self, count: int, stride: int, pitch: int) -> Piece:
        """`count` pieces, `stride` bytes apart in memory and `pitch` in the packed bytes."""
        if count == 1:
            return self
        if not self.axes and stride == pitch == self.length:
            return replace(self, length=count * self.length)
        if self.axes:
            inner, near, dense = self.axes[0]
            if (stride, pitch) == (inner * near, inner * dense):
                return replace(self, axes=((count * inner, near, dense), *self.axes[1:]))
        if len(self.axes) >= MOST_AXES:
            steps = np.arange(count)
            return self.spread(steps * stride, steps * pitch)
        return replace(self, axes=((count, stride, pitch), *self.axes))

    def spread(self, starts: Ints, places: Ints) -> Piece:
        """One piece for each of some offsets; those at equal distances are an axis."""
        first = self.shifted(int(starts[0]), int(places[0]))
        if len(starts) == 1:
            return first
        table = np.stack((starts - starts[0], places - places[0]))
        steps = np.diff(table)
        if np.array_equal(steps, np.broadcast_to(steps[:, :1], steps.shape)):
            return first.repeated(len(starts), int(steps[0, 0]), int(steps[1, 0]))
        return replace(first, table=_outer(table, self.table))

    @cached_property
    def offsets(self) -> Ints:
        """Offsets of all runs in memory and in the packed bytes, in any order: shape (2, n)."""
        every = np.zeros((2, 1), np.int64) if self.table is None else self.table
        for count, stride, pitch in reversed(self.axes):
            steps = np.arange(count, dtype=np.int64)
            every = _outer(np.stack((steps * stride, steps * pitch)), every)
        return np.add(every, np.array([[self.start], [self.place]], np.int64))

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Offset of the lowest byte in memory, and the offset after the highest one."""
        reach = [(count - 1) * stride for count, stride, _ in self.axes]
        low = self.start + sum(step for step in reach if step < 0)
        high = self.start + sum(step for step in reach if step > 0) + self.length
        if self.table is None:
            return low, high
        return low + int(self.table[0].min()), high + int(self.table[0].max())

    def copy(self, memory: Bytes, low: int, packed: Bytes, *, unpack: bool) -> None:
        """Copy the bytes of the piece from memory that begins at offset `low`, or to it."""
        if self.table is not None:
            self._copy_irregular(memory, low, packed, unpack=unpack)
            return
        start, length = self.start - low, self.length
        shape = tuple(count for count, _, _ in self.axes)
        if not shape:
            here = memory[start : start + length]
            there = packed[self.place : self.place + length]
        else:
            near = tuple(stride for _, stride, _ in self.axes)
            dense = tuple(pitch for _, _, pitch in self.axes)
            dtype = np.dtype(MOVES.get(length) or f"V{length}")
            if length > LONGEST_ITEM:
                shape, near, dense, dtype = (*shape, length), (*near, 1), (*dense, 1), _BYTE
            here = np.ndarray(shape, dtype, memory, start, near)
            there = np.ndarray(shape, dtype, packed, self.place, dense)
        if unpack:
            np.copyto(here, there)
        else:
            np.copyto(there, here)

    def _copy_irregular(self, memory: Bytes, low: int, packed: Bytes, *, unpack: bool) -> None:
        """Copy runs at irregular offsets: all of them by one index, or long ones one by one."""
        if self.length > LONGEST_ITEM:
            for start, place in self.offsets.T.tolist():
                here = memory[start - low : start - low + self.length]
                there = packed[place : place + self.length]
                np.copyto(here, there) if unpack else np.copyto(there, here)
            return
        (first, here_step, here_index), (origin, there_step, there_index) = self.items
        here = self._view_items(memory, first - low, here_step)
        there = self._view_items(packed, origin, there_step)
        if unpack:
            here[here_index] = there[there_index]
        else:
            there[there_index] = here[here_index]

    @cached_property
    def items(self) -> list[tuple[int, int, Ints | slice]]:
        """First offset, distance of items and their index, in memory and in the packed bytes."""
        found: list[tuple[int, int, Ints | slice]] = []
        for offsets in self.offsets:
            first = int(offsets.min())
            steps = offsets - first
            step = 1 if (steps % self.length).any() else self.length
            index = steps // step
            whole = np.array_equal(index, np.arange(len(index)))
            found.append((first, step, slice(len(index)) if whole else index))
        return found

    def _view_items(self, data: Bytes, first: int, step: int) -> NDArray[Any]:
        """View bytes as all items of the length of a run that can begin at a distance."""
        dtype = np.dtype(MOVES.get(self.length) or f"V{self.length}")
        count = (data.size - first - self.length) // step + 1
        return np.ndarray((count,), dtype, data, first, (step,))


_BYTE = np.dtype(np.uint8)


def _outer(slow: Ints, fast: Ints | None) -> Ints:
    """Add all pairs of offsets."""
    if fast is None:
        return slow
    return (slow[:, :, None] + fast[:, None, :]).reshape(2, -1)


def _count(atoms: Atoms) -> Signature:
    """Count equal basic types in sequence."""
    found: list[tuple[str, int]] = []
    for kind, count in atoms:
        part: Signature = ((kind, count),) if isinstance(kind, str) else _count(kind)
        if len(part) == 1 and not isinstance(kind, str):
            part = ((part[0][0], part[0][1] * count),)
        elif not isinstance(kind, str):
            part *= count
        for code, number in part:
            if found and found[-1][0] == code:
                found[-1] = (code, found[-1][1] + number)
            elif number:
                found.append((code, number))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Typemap:
    """Bytes of one element of a datatype, its bounds, and its basic types."""

    size: int
    lb: int
    ub: int
    alignment: int
    pieces: tuple[Piece, ...]
    atoms: Atoms

    @property
    def extent(self) -> int:
        """Distance between elements that follow each other."""
        return self.ub - self.lb

    @cached_property
    def signature(self) -> Signature:
        """Codes of the basic types in order, equal ones in sequence counted."""
        return _count(self.atoms)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Offset of the lowest byte, and the offset after the highest one."""
        if not self.pieces:
            return 0, 0
        lows, highs = zip(*(piece.bounds for piece in self.pieces), strict=True)
        return min(lows), max(highs)

    @cached_property
    def is_plain(self) -> bool:
        """Whether elements that follow each other are one run of bytes without gaps."""
        return self.size == self.extent and self.is_run

    @property
    def is_run(self) -> bool:
        """Whether an element is one run of bytes."""
        return len(self.pieces) == 1 and self.pieces[0].length == self.size

    @cached_property
    def runs(self) -> tuple[Ints, Ints]:
        """Offsets and lengths of runs of bytes in the order of packing, merged if adjacent."""
        if not self.pieces:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        offsets = np.concatenate([piece.offsets for piece in self.pieces], axis=1)
        sizes = [np.full(piece.offsets.shape[1], piece.length) for piece in self.pieces]
        order = np.argsort(offsets[1])
        return merged(offsets[0][order], np.concatenate(sizes)[order])

    def repeated(self, count: int, stride: int) -> Typemap:
        """`count` elements, `stride` bytes apart."""
        if count == 1:
            return self
        if count == 0:
            return EMPTY
        reach = (count - 1) * stride
        return Typemap(
            self.size * count,
            self.lb + min(0, reach),
            self.ub + max(0, reach),
            self.alignment,
            tuple(piece.repeated(count, stride, self.size) for piece in self.pieces),
            ((self.atoms, count),),
        )

    def resized(self, lb: int, extent: int) -> Typemap:
        """Describe the same bytes with other bounds."""
        return replace(self, lb=lb, ub=lb + extent)

    def copy(self, address: int, packed: Bytes, *, unpack: bool) -> None:
        """Copy all bytes of an element at an address into packed bytes, or from them."""
        low, high = self.bounds
        memory = view(address + low, high - low, readonly=not unpack)
        for piece in self.pieces:
            piece.copy(memory, low, packed, unpack=unpack)

    def copy_first(self, address: int, packed: Bytes) -> None:
        """Unpack the first bytes of an element only."""
        low, high = self.bounds
        memory = view(address + low, high - low)
        starts, lengths = self.runs
        ends = np.cumsum(lengths)
        whole = int(np.searchsorted(ends, packed.size, side="right"))
        rest = packed.size - (int(ends[whole - 1]) if whole else 0)
        sizes = lengths[: whole + bool(rest)].copy()
        if rest:
            sizes[-1] = rest
        for piece in runs_of(starts[: len(sizes)], sizes):
            piece.copy(memory, low, packed, unpack=True)


EMPTY = Typemap(0, 0, 0, 1, (), ())


def basic(code: str, nbytes: int, alignment: int) -> Typemap:
    """Typemap of a basic type."""
    return Typemap(nbytes, 0, nbytes, alignment, (Piece(0, 0, nbytes),), ((code, 1),))


def merged(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Join runs that follow each other without a gap."""
    if len(starts) < 2:  # noqa: PLR2004
        return starts, lengths
    first = np.flatnonzero(np.append(True, starts[1:] != starts[:-1] + lengths[:-1]))
    return starts[first], np.add.reduceat(lengths, first)


def runs_of(starts: Ints, lengths: Ints) -> tuple[Piece, ...]:
    """Pieces of runs that are packed in order: one piece for each length."""
    starts, lengths = merged(starts, lengths)
    places = np.cumsum(lengths) - lengths
    return tuple(
        Piece(0, 0, int(length)).spread(starts[lengths == length], places[lengths == length])
        for length in np.unique(lengths)
    )


def indexed(kind: Typemap, counts: Sequence[int], offsets: Sequence[int]) -> Typemap:
    """Blocks of some numbers of elements of one type, at offsets in bytes."""
    number = np.asarray(counts, np.int64).reshape(-1)
    starts = np.asarray(offsets, np.int64).reshape(-1)[number > 0]
    number = number[number > 0]
    if not len(number):
        return EMPTY
    reach = (number - 1) * kind.extent
    total = int(number.sum())
    pieces: tuple[Piece, ...]
    if kind.is_plain:
        pieces = runs_of(starts + kind.pieces[0].start, number * kind.size)
    else:
        pieces = _blocks(kind, number, starts)
    return Typemap(
        kind.size * total,
        int((starts + np.minimum(reach, 0)).min()) + kind.lb,
        int((starts + np.maximum(reach, 0)).max()) + kind.ub,
        kind.alignment,
        pieces,
        ((kind.atoms, total),),
    )


def _blocks(kind: Typemap, number: Ints, starts: Ints) -> tuple[Piece, ...]:
    """Pieces of blocks of elements that have gaps: some for each number of elements."""
    places = (np.cumsum(number) - number) * kind.size
    return tuple(
        piece.spread(starts[number == count], places[number == count])
        for count in np.unique(number)
        for piece in kind.repeated(int(count), kind.extent).pieces
    )


def struct(counts: Sequence[int], offsets: Sequence[int], kinds: Sequence[Typemap]) -> Typemap:
    """Blocks of elements of different types; the extent is a multiple of the alignment."""
    blocks = [
        (kind.repeated(count, kind.extent), offset)
        for count, offset, kind in zip(counts, offsets, kinds, strict=True)
        if count > 0
    ]
    if not blocks:
        return EMPTY
    lb = min(block.lb + offset for block, offset in blocks)
    ub = max(block.ub + offset for block, offset in blocks)
    alignment = max(block.alignment for block, _ in blocks)
    ub = lb + math.ceil((ub - lb) / alignment) * alignment
    pieces: list[Piece] = []
    place = 0
    for block, offset in blocks:
        pieces += (piece.shifted(offset, place) for piece in block.pieces)
        place += block.size
    atoms = tuple((block.atoms, 1) for block, _ in blocks)
    return Typemap(place, lb, ub, alignment, tuple(_joined(pieces)), atoms)


def subarray(
    kind: Typemap,
    sizes: Sequence[int],
    subsizes: Sequence[int],
    starts: Sequence[int],
    *,
    c_order: bool,
) -> Typemap:
    """Elements of a box in an array; the extent is that of the array."""
    step, offset, found = kind.extent, 0, kind
    axes = list(zip(sizes, subsizes, starts, strict=True))
    for size, subsize, start in reversed(axes) if c_order else axes:
        found = found.repeated(subsize, step)
        offset += start * step
        step *= size
    pieces = tuple(piece.shifted(offset, 0) for piece in found.pieces)
    return replace(found, lb=0, ub=step, pieces=pieces)


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Join single runs that follow each other without a gap."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if (
            last is not None
            and not (last.axes or piece.axes)
            and last.table is None is piece.table
            and last.start + last.length == piece.start
            and last.place + last.length == piece.place
        ):
            found[-1] = replace(last, length=last.length + piece.length)
        else:
            found.append(piece)
    return found
