"""One pass of serial transforms over the block of a rank, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.comm.memory import same_view
from pencils.fft.chunks import Key, chunk_keys, chunk_shape
from pencils.fft.lines import Line

# Bytes of a piece: what is read, and what is written, shall stay in the cache of a core.
PIECE = 2**18

Transform = Callable[[Array], Array]


class Job(NamedTuple):
    """What is to be done with a block: the same for all of its pieces.

    Axes, components included, are in memory order; `lines` come with their axes, in the order of
    the way forward; `factor` is applied once.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    dtype: np.dtype[Any]
    dtype_after: np.dtype[Any]
    lines: tuple[tuple[int, Line], ...]
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


class Pass:
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

    def __call__(self, source: Array, target: Array) -> None:
        """Transform the own block `source` into the own block `target`, wherever they lie."""
        kernel = self._kernel
        if kernel is None:
            return
        if same_view(source, target):
            here = target.transpose(self._axes)
            for key in self._keys:
                piece = here[key]
                kernel(piece, piece)
            return
        if np.may_share_memory(source, target):  # pieces would be written before they are read
            source = source.copy("K")
        here = source.transpose(self._axes)
        there = target.transpose(self._axes)
        for key in self._keys:
            kernel(here[key], there[key])
