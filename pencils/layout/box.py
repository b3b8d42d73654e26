"""N-D boxes of global indices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Box:
    """The indices ``start[d] <= i[d] < stop[d]`` of every dimension ``d``; may be empty.

    Examples
    --------
    >>> box = Box((0, 4), (3, 8)) & Box((2, 0), (9, 6))
    >>> box, box.shape, box.volume
    (Box(start=(2, 4), stop=(3, 6)), (1, 2), 2)
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]

    @classmethod
    def of_shape(cls, shape: Sequence[int]) -> Box:
        """Box of all indices of an array of this shape."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.start)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent along every dimension."""
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))

    @property
    def volume(self) -> int:
        """Number of indices inside."""
        return prod(self.shape)

    def __and__(self, other: Box) -> Box:
        """Intersect with another box; the result is empty if they have no common index."""
        start = tuple(map(max, self.start, other.start))
        stop = tuple(map(max, start, map(min, self.stop, other.stop)))
        return Box(start, stop)

    def __contains__(self, index: Sequence[int]) -> bool:
        """Whether the index lies inside."""
        return all(lo <= i < hi for lo, i, hi in zip(self.start, index, self.stop, strict=True))

    def shift(self, offset: Sequence[int]) -> Box:
        """Move by `offset`."""
        return Box(
            tuple(i + o for i, o in zip(self.start, offset, strict=True)),
            tuple(i + o for i, o in zip(self.stop, offset, strict=True)),
        )

    def grow(self, widths: Sequence[tuple[int, int]]) -> Box:
        """Widen by ``(lo, hi)`` along every dimension."""
        return Box(
            tuple(i - lo for i, (lo, _) in zip(self.start, widths, strict=True)),
            tuple(i + hi for i, (_, hi) in zip(self.stop, widths, strict=True)),
        )

    def slices(self, origin: Sequence[int] | None = None) -> tuple[slice, ...]:
        """Index an array whose first element has the global index `origin` (default: zero)."""
        if origin is None:
            return tuple(map(slice, self.start, self.stop))
        return tuple(
            slice(lo - o, hi - o) for lo, hi, o in zip(self.start, self.stop, origin, strict=True)
        )

    def without(self, inner: Box) -> Iterator[Box]:
        """Yield disjoint boxes, none of them empty, that hold the indices outside `inner`.

        There are at most two per dimension; those of the first dimensions are the longest.
        """
        hole = self & inner
        if hole.volume == 0:
            if self.volume:
                yield self
            return
        start, stop = list(self.start), list(self.stop)
        for d, (low, high) in enumerate(zip(hole.start, hole.stop, strict=True)):
            for first, last in ((start[d], low), (high, stop[d])):
                if first < last:
                    yield Box(
                        (*start[:d], first, *start[d + 1 :]), (*stop[:d], last, *stop[d + 1 :])
                    )
            start[d], stop[d] = low, high

    def pieces(self, most: int) -> Iterator[Box]:
        """Cut into boxes of at most `most` indices, consecutive in C order."""
        if self.volume == 0:
            return
        if self.volume <= most:
            yield self
            return
        axis = next(d for d, extent in enumerate(self.shape) if extent > 1)
        rows = max(1, most * self.shape[axis] // self.volume)
        for low in range(self.start[axis], self.stop[axis], rows):
            high = min(low + rows, self.stop[axis])
            slab = Box(
                (*self.start[:axis], low, *self.start[axis + 1 :]),
                (*self.stop[:axis], high, *self.stop[axis + 1 :]),
            )
            yield from slab.pieces(most)
