"""Basic indices as data: the global indices that ``array[key]`` selects, and the local part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pencils.layout.box import Box
from pencils.layout.integers import to_int


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
            first, last = positions(kept, lo, hi)
            key.append(_to_slice(kept[first:last], lo))
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


def _fill(entries: tuple[object, ...], ndim: int) -> list[object]:
    """Expand Ellipsis and missing trailing axes to full slices."""
    ellipses = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(ellipses) > 1:
        msg = "an index can only have one Ellipsis (...)"
        raise IndexError(msg)
    given = len(entries) - len(ellipses)
    if given > ndim:
        msg = f"{given} indices for an array of {ndim} dimensions"
        raise IndexError(msg)
    at = ellipses[0] if ellipses else given
    full: list[object] = [slice(None)] * (ndim - given)
    return [*entries[:at], *full, *entries[at + len(ellipses) :]]


def _to_range(entry: object, extent: int, axis: int) -> range:
    if isinstance(entry, slice):
        return range(extent)[entry]
    at = to_int(entry)
    if at is None:
        msg = (
            f"global indices are integers, slices and Ellipsis, not {type(entry).__name__}; "
            "index u.local for anything else of the local block"
        )
        raise TypeError(msg)
    if not -extent <= at < extent:
        msg = (
            f"index {at} is out of bounds for axis {axis} with global size {extent}; "
            f"use {-extent}..{extent - 1}"
            if extent
            else f"index {at} is out of bounds for axis {axis}, which has no points"
        )
        raise IndexError(msg)
    at %= extent
    return range(at, at + 1)


def _to_slice(kept: range, origin: int) -> slice:
    """Slice that picks `kept` from an array starting at `origin`; None guards a stop below 0."""
    if not kept:
        return slice(0, 0)
    start, stop = kept.start - origin, kept.stop - origin
    return slice(start, stop if stop >= 0 else None, kept.step)
