"""Which points of an axis each part of it gets: shifted, reversed, near its block, or by index."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.functions.arguments import Line
from pencils.layout.split import Split


class Mapping(NamedTuple):
    """Which points each part gets along an axis; without arguments, those of its own block."""

    shift: int = 0  # point ``i`` goes to point ``i + shift``, modulo the number of points
    reverse: bool = False  # to point ``n - 1 - i``; own blocks are given in reverse order
    # Only so many points before each block that has some, and after it, if there are so many.
    window: tuple[int, int] | None = None

    def wanted(self, split: Split, part: int) -> list[tuple[int, int]]:
        """Ranges of points that a part gets, in the order of its array."""
        points, (start, stop) = split.points, split.bounds(part)
        if start == stop:
            return []
        if self.window is not None:
            before, after = self.window
            return [(max(0, start - before), start), (stop, min(points, stop + after))]
        if self.reverse:
            return [(points - stop, points - start)]
        low = (start - self.shift) % points
        over = max(0, low + stop - start - points)
        return [(low, low + stop - start - over), (0, over)]

    def extent(self, line: Line) -> int:
        """Points of the array that a rank fills."""
        return sum(stop - start for start, stop in self.wanted(line.split, line.part))

    def gets(self, line: Line) -> list[tuple[int, int, int, int]]:
        """Pieces that this rank gets: owner, place here, place there, and points."""
        return self.pieces(line.split, line.part)

    def pieces(self, split: Split, part: int) -> list[tuple[int, int, int, int]]:
        """Consecutive points that a part gets: owner, place here, place there, and their number."""
        found, place = [], 0
        for low, high in self.wanted(split, part):
            for owner, lo, hi in split.overlaps(low, high):
                start, stop = split.bounds(owner)
                there, here = (stop - hi, high - hi) if self.reverse else (lo - start, lo - low)
                found.append((owner, place + here, there, hi - lo))
            place += high - low
        return found

    def sends(self, line: Line) -> list[tuple[int, int, int, int]]:
        """Pieces of the own block: part that gets it, place here, place there, and points."""
        split, points, (start, stop) = line.split, line.split.points, line.bounds
        if start == stop:
            return []
        if self.window is not None:
            before, after = self.window
            reach = [(max(0, start - after), min(points, stop + before))]
        elif self.reverse:
            reach = [(points - stop, points - start)]
        else:
            reach = Mapping(-self.shift).wanted(split, line.part)
        parts = {part for low, high in reach for part, *_ in split.overlaps(low, high)}
        return [
            (part, here, there, count)
            for part in sorted(parts)
            for owner, there, here, count in self.pieces(split, part)
            if owner == line.part
        ]


class Indexed(NamedTuple):
    """Which points each part of another split gets along an axis, by an index for each point."""

    target: Line  # of the result along this axis
    places: bytes  # of 64-bit integers: which point lies there, -1 if none does
    # Whether points are fetched to their places in the result. Their indices then rise, so that no
    # part gets one twice. Otherwise all are points, and a part gets in order those that it needs.
    direct: bool
    more: int = 0  # points behind those of its block that a part gets, too; if `direct`

    @property
    def reverse(self) -> bool:
        """Whether blocks are given in reverse order."""
        return False

    def points(self, part: int) -> Array:
        """Return the indices of a part."""
        start, stop = self.target.split.bounds(part)
        return np.frombuffer(self.places, np.int64)[start : stop + self.more * (start < stop)]

    @property
    def own(self) -> Array:
        """Places in the fetched array of all own points of the result, unless it is `direct`."""
        points = self.points(self.target.part)
        return np.searchsorted(np.unique(points), points)

    def extent(self, line: Line) -> int:  # noqa: ARG002 - as that of `Mapping`
        """Points of the array that this rank fills."""
        points = self.points(self.target.part)
        return len(points if self.direct else np.unique(points))

    def gets(self, line: Line) -> list[tuple[int, int, int, int]]:
        """Pieces that this rank gets: owner, place here, place there, and points."""
        return self._pieces(line.split, self.target.part)

    def _pieces(self, split: Split, part: int) -> list[tuple[int, int, int, int]]:
        points = self.points(part)
        wanted = points[points >= 0] if self.direct else np.unique(points)
        places = np.flatnonzero(points >= 0) if self.direct else np.arange(len(wanted))
        breaks = np.flatnonzero((np.diff(wanted) != 1) | (np.diff(places) != 1)) + 1
        found = []
        for first, last in pairwise([0, *breaks.tolist(), len(wanted)]):
            if first < last:
                low, place = int(wanted[first]), int(places[first])
                for owner, lo, hi in split.overlaps(low, low + last - first):
                    found.append((owner, place + lo - low, lo - split.bounds(owner)[0], hi - lo))
        return found

    def sends(self, line: Line) -> list[tuple[int, int, int, int]]:
        """Pieces of the own block: part that gets it, place here, place there, and points."""
        # Of what is replicated, each rank gives to itself.
        parts = range(self.target.split.parts) if line.is_cut else [self.target.part]
        return [
            (part if line.is_cut else line.part, here, there, count)
            for part in parts
            for owner, there, here, count in self._pieces(line.split, part)
            if owner == line.part
        ]
