"""Serial transforms of the own block, piece by piece: what is to be done, and in which pieces.

A kernel (`scipy_kernel`, `fftw_kernel`) transforms one piece, which stays in the cache of a core.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.comm.memory import same_view
from pencils.comm.pack import no_op
from pencils.fft.options import AxisTransform

# Bytes of a piece: what is read, and what is written, shall stay in the cache of a core.
PIECE = 2**18

Key = tuple[slice, ...]


class Job(NamedTuple):
    """What is to be done with a block: the same for all of its pieces.

    Axes, components included, are in memory order; `lines` come with their axes, in the order of
    the way forward; `factor` is applied once.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    dtype: np.dtype[Any]
    dtype_after: np.dtype[Any]
    lines: tuple[tuple[int, AxisTransform], ...]
    forward: bool
    orthogonal: bool
    factor: np.floating[Any]

    @property
    def whole(self) -> frozenset[int]:
        """Axes that are transformed."""
        return frozenset(place for place, _ in self.lines)

    def of_piece(self, size: Sequence[int]) -> Job:
        """Return the job of a piece of this size along axes that are not transformed."""
        before, after = (
            tuple(n if axis in self.whole else size[axis] for axis, n in enumerate(shape))
            for shape in (self.before, self.after)
        )
        return self._replace(before=before, after=after)


class Kernel(Protocol):
    """A serial transform of pieces of at most one shape."""

    nbytes: int  # that it keeps between calls

    def __call__(self, piece: Array, out: Array) -> None:
        """Transform `piece` into `out`, which may be the same array; else `piece` is kept."""
        ...


def pieces_of(job: Job) -> tuple[Job | None, list[Key]]:
    """Cut a block into pieces: the job of the largest, if there is any, and where they are."""
    itemsize = max(job.dtype.itemsize, job.dtype_after.itemsize)
    size = chunk_shape(tuple(map(max, job.before, job.after)), job.whole, PIECE // itemsize)
    if not prod(job.before):
        return None, []
    return job.of_piece(size), list(chunk_keys(job.before, size, job.whole))


def trial(job: Job, make: Callable[[Job], Kernel]) -> Callable[[], None]:
    """Return a call that transforms one piece of a block, of zeros."""
    piece, _ = pieces_of(job)
    if piece is None:
        return lambda: None
    return partial(
        make(piece), np.zeros(piece.before, job.dtype), np.empty(piece.after, job.dtype_after)
    )


class BlockTransform:
    """Serial transforms of whole blocks.

    Parameters
    ----------
    job : Job
        What to do.
    order : sequence of int
        Memory order of the space dimensions.
    make : callable
        Makes a `Kernel` from the job of a piece.
    """

    def __init__(self, job: Job, order: Sequence[int], make: Callable[[Job], Kernel]) -> None:
        self._axes = memory_axes(order, len(job.before) - len(order))
        self._piece, self._keys = pieces_of(job)
        self._make = make
        self._kernel: Kernel | None = None

    def prepare(self) -> None:
        """Make the kernel; local."""
        self._kernel = None if self._piece is None else self._make(self._piece)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept between calls."""
        return 0 if self._kernel is None else self._kernel.nbytes

    def bind(self, source: Array, target: Array) -> Callable[[], None]:
        """Prepare to transform one own block into another, which may share memory; local."""
        if self._kernel is None:
            return no_op
        if same_view(source, target):
            return partial(self._transform_in_place, target.transpose(self._axes))
        if np.may_share_memory(source, target):
            return partial(self._transform_overlapping, source, target)
        return partial(self._transform, source, target)

    def _transform_in_place(self, block: Array) -> None:
        assert self._kernel is not None
        for key in self._keys:
            piece = block[key]
            self._kernel(piece, piece)

    def _transform_overlapping(self, source: Array, target: Array) -> None:
        """Copy first: pieces would be written before they are read."""
        self._transform(source.copy("K"), target)

    def _transform(self, source: Array, target: Array) -> None:
        assert self._kernel is not None
        here, there = source.transpose(self._axes), target.transpose(self._axes)
        for key in self._keys:
            self._kernel(here[key], there[key])


def chunk_shape(shape: Sequence[int], whole: Collection[int], most: int) -> tuple[int, ...]:
    """Choose pieces of a block in memory order that hold about `most` elements.

    Parameters
    ----------
    shape : sequence of int
        Shape of the block, slowest axis first.
    whole : collection of int
        Axes that are not cut.
    most : int
        Elements that a piece may have, unless one line along `whole` has more.

    Returns
    -------
    tuple of int
        Shape of the pieces; the last ones along an axis may be smaller.

    Examples
    --------
    >>> chunk_shape((10, 9, 8), {2}, 40)
    (1, 5, 8)
    """
    chosen = [n if axis in whole else 1 for axis, n in enumerate(shape)]
    for axis in reversed(range(len(shape))):
        room = most // max(1, prod(chosen))
        if axis in whole or shape[axis] == 0:
            continue
        if room < shape[axis]:
            pieces = -(-shape[axis] // max(1, room))
            chosen[axis] = -(-shape[axis] // pieces)
            break
        chosen[axis] = shape[axis]
    return tuple(chosen)


def chunk_keys(shape: Sequence[int], chunk: Sequence[int], whole: Collection[int]) -> Iterator[Key]:
    """Yield slices of every piece; those along `whole` take everything there is.

    Examples
    --------
    >>> list(chunk_keys((3, 8), (2, 8), {1}))
    [(slice(0, 2, None), slice(None, None, None)), (slice(2, 3, None), slice(None, None, None))]
    """
    along = [
        [slice(None)] if axis in whole else [slice(i, min(n, i + size)) for i in range(0, n, size)]
        for axis, (n, size) in enumerate(zip(shape, chunk, strict=True))
    ]
    yield from product(*along)


def truncate(spectrum: Array, axis: int, line: AxisTransform, out: Array) -> None:
    """Keep the waves of the resolution.

    The waves n/2 and -n/2 of an even number of points are one: what both hold is added.
    """
    n = line.resolution
    middle = _at(axis, n // 2)
    if line.transform == "r2c":
        out[...] = spectrum[_at(axis, slice(0, line.waves))]
        if n % 2 == 0:
            out[middle] += out[middle].conj()
        return
    rising = (n + 1) // 2
    out[_at(axis, slice(0, rising))] = spectrum[_at(axis, slice(0, rising))]
    out[_at(axis, slice(rising, n))] = spectrum[_at(axis, slice(line.modes - n // 2, None))]
    if n % 2 == 0:
        out[middle] += spectrum[middle]


def pad(waves: Array, axis: int, line: AxisTransform, out: Array) -> None:
    """Undo `truncate`: half of a wave n/2 goes to n/2, half to -n/2, and the rest is zero."""
    n = line.resolution
    middle = _at(axis, n // 2)
    if line.transform == "r2c":
        out[_at(axis, slice(0, line.waves))] = waves
        out[_at(axis, slice(line.waves, None))] = 0
        if n % 2 == 0:  # it stands for both halves: their imaginary parts cancel
            out[middle] = 0.5 * out[middle].real
        return
    rising, falling = (n + 1) // 2, line.modes - n // 2
    out[_at(axis, slice(0, rising))] = waves[_at(axis, slice(0, rising))]
    out[_at(axis, slice(rising, falling))] = 0
    out[_at(axis, slice(falling, None))] = waves[_at(axis, slice(rising, n))]
    if n % 2 == 0:
        out[_at(axis, falling)] *= 0.5
        out[middle] = out[_at(axis, falling)]


def drop(spectrum: Array, axis: int, line: AxisTransform) -> None:
    """Zero the waves that the 2/3 rule drops, in place."""
    spectrum[_at(axis, line.dropped)] = 0


def _at(axis: int, where: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, where)
