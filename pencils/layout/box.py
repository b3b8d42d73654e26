"""Sets of global indices: boxes, and what basic keys select of an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from operator import sub

from pencils.layout.integers import to_int


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
        return tuple(map(sub, self.stop, self.start))

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
        return self.grow([(-step, step) for step in offset])

    def grow(self, widths: Sequence[tuple[int, int]]) -> Box:
        """Widen by ``(lo, hi)`` along every dimension."""
        return Box(
            tuple([i - lo for i, (lo, _) in zip(self.start, widths, strict=True)]),
            tuple([i + hi for i, (_, hi) in zip(self.stop, widths, strict=True)]),
        )

    def slices(self, origin: Sequence[int] | None = None) -> tuple[slice, ...]:
        """Index an array whose first element has the global index `origin` (default: zero)."""
        if origin is None:
            return tuple(map(slice, self.start, self.stop))
        return tuple(map(slice, map(sub, self.start, origin), map(sub, self.stop, origin)))

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

    def pieces(self, most: int, axes: Sequence[int] | None = None) -> Iterator[Box]:
        """Cut into boxes of at most `most` indices, consecutive in C order.

        `axes`: all dimensions in another order; the first ones are cut first.
        """
        if self.volume == 0:
            return
        if self.volume <= most:
            yield self
            return
        axis = next(d for d in axes or range(self.ndim) if self.shape[d] > 1)
        rows = max(1, most * self.shape[axis] // self.volume)
        for low in range(self.start[axis], self.stop[axis], rows):
            high = min(low + rows, self.stop[axis])
            slab = Box(
                (*self.start[:axis], low, *self.start[axis + 1 :]),
                (*self.stop[:axis], high, *self.stop[axis + 1 :]),
            )
            yield from slab.pieces(most, axes)


@dataclass(frozen=True, slots=True)
class Selection:
    """The global indices that a basic key selects along each axis.

    Parameters
    ----------
    ranges : tuple of range
        Selected indices of every axis of the indexed array.
    dropped : tuple of bool
        Whether the axis was indexed by an integer and vanishes from the result.
    """

    ranges: tuple[range, ...]
    dropped: tuple[bool, ...]

    @classmethod
    def from_key(cls, key: object, shape: Sequence[int]) -> Selection:
        """Convert integers, slices and one Ellipsis, with the rules of NumPy.

        Raises
        ------
        IndexError
            If an integer is out of range or there are more indices than axes.
        TypeError
            If the key holds anything else than integers, slices and Ellipsis.

        Examples
        --------
        >>> Selection.from_key((..., slice(None, None, 2), -1), (4, 5, 6)).shape
        (4, 3)
        """
        entries = key if isinstance(key, tuple) else (key,)
        filled = _fill(entries, len(shape))
        ranges = []
        for axis, (entry, extent) in enumerate(zip(filled, shape, strict=True)):
            ranges.append(_to_range(entry, extent, axis))
        dropped = tuple(not isinstance(entry, slice) for entry in filled)
        return cls(tuple(ranges), dropped)

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape of the selection."""
        return tuple(
            len(kept) for kept, drop in zip(self.ranges, self.dropped, strict=True) if not drop
        )

    def rising(self) -> Selection:
        """Return the same points with all steps positive."""
        ranges = tuple(kept if kept.step > 0 else kept[::-1] for kept in self.ranges)
        return Selection(ranges, self.dropped)

    def local(self, box: Box) -> tuple[int | slice, ...] | None:
        """Key of the selected part of the block `box`.

        Returns None if an integer selects a plane that lies outside the box.
        """
        key: list[int | slice] = []
        for kept, drop, lo, hi in zip(self.ranges, self.dropped, box.start, box.stop, strict=True):
            if drop:
                if not lo <= kept.start < hi:
                    return None
                key.append(kept.start - lo)
                continue
            key.append(local_slice(kept, lo, hi))
        return tuple(key)

    def part(self, box: Box) -> tuple[slice, ...]:
        """Key of the *selection* for its part inside `box`, one slice per axis that is kept."""
        return tuple(
            slice(*positions(kept, lo, hi))
            for kept, drop, lo, hi in zip(
                self.ranges, self.dropped, box.start, box.stop, strict=True
            )
            if not drop
        )


def positions(kept: range, lo: int, hi: int) -> tuple[int, int]:
    """Positions in `kept` of its members inside ``[lo, hi)``, as a half-open interval."""
    if kept.step > 0:
        first, last = (-((kept.start - bound) // kept.step) for bound in (lo, hi))
    else:
        first, last = ((kept.start - bound) // -kept.step + 1 for bound in (hi, lo))
    first = min(max(first, 0), len(kept))
    return first, min(max(last, first), len(kept))


def local_slice(kept: range, lo: int, hi: int, room: int = 0) -> slice:
    """Slice that picks the members of `kept` in ``[lo, hi)`` from an array that starts at `lo`.

    `room`: points before `lo` in the array.
    """
    first, last = positions(kept, lo, hi)
    return as_slice(kept[first:last], lo - room)


def composed(base: range, kept: range) -> range:
    """Return the members of `base` at the positions `kept`; of fewer than two, the step is 1.

    Examples
    --------
    >>> composed(range(1, 20, 3), range(1, 6, 2)), composed(range(10), range(4, 5, 7))
    (range(4, 22, 6), range(4, 5))
    """
    start = base.start + base.step * kept.start
    step = base.step * kept.step if len(kept) > 1 else 1
    return range(start, start + step * len(kept), step)


def _fill(entries: tuple[object, ...], ndim: int) -> list[object]:
    """Expand Ellipsis and missing trailing axes to full slices."""
    ellipses = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have one Ellipsis (...)")
    given = len(entries) - len(ellipses)
    if given > ndim:
        raise IndexError(f"{given} indices for an array of {ndim} dimensions")
    at = ellipses[0] if ellipses else given
    full: list[object] = [slice(None)] * (ndim - given)
    return [*entries[:at], *full, *entries[at + len(ellipses) :]]


def _to_range(entry: object, extent: int, axis: int) -> range:
    if isinstance(entry, slice):
        return range(extent)[entry]
    at = to_int(entry)
    if at is None:
        raise TypeError(_not_basic(entry))
    if not -extent <= at < extent:
        raise IndexError(
            f"index {at} is out of bounds for axis {axis} with global size {extent}; "
            f"use {-extent}..{extent - 1}"
            if extent
            else f"index {at} is out of bounds for axis {axis}, which has no points"
        )
    at %= extent
    return range(at, at + 1)


def _not_basic(entry: object) -> str:
    """Explain what to write instead of an index that is no integer, slice or Ellipsis."""
    given = f"global indices are integers, slices and one Ellipsis, not {type(entry).__name__}; "
    if entry is None:
        return given + "np.stack([u]) adds an axis of components; axes of space cannot be added"
    if isinstance(entry, bool) or str(getattr(entry, "dtype", "")) == "bool":
        return given + "a mask is a boolean field or array of the global shape, as in u[mask] = 0"
    if isinstance(entry, str):
        return given + "points are u[...]; their waves are another field, plan.forward(u)"
    if isinstance(entry, float):
        return given + "round or convert it"
    return given + (
        "points are read and written by u.take_points(index) and u.put_points(index, values)"
    )


def as_slice(kept: range, origin: int = 0) -> slice:
    """Slice that picks `kept` from an array starting at `origin`; None guards a stop below 0."""
    if not kept:
        return slice(0, 0)
    start, stop = kept.start - origin, kept.stop - origin
    return slice(start, stop if stop >= 0 else None, kept.step)
