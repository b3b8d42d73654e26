"""Where the points of each block go along one axis, as plain data for any rank.

Each rank finds the pieces that it sends and receives by intersecting bounds; the cost follows their
number. A mapping belongs to one axis: `Rolled`, `Flipped` and `Window`. Pieces are listed in the
order of their places in the target, so that two ranks with several pieces for each other list them
in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pencils.functions.axes import Line
from pencils.layout.split import Split


class Piece(NamedTuple):
    """Consecutive points along one axis that move from one block to another.

    Attributes
    ----------
    part : int
        Part of the other rank.
    here, there : int
        Place of the first point in the array of this rank, and in that of the other one.
    points : int
        Number of points.
    """

    part: int
    here: int
    there: int
    points: int


class Mapping(Protocol):
    """Where points go along one axis. Equal mappings are equal, and have a hash."""

    def extent(self, line: Line) -> int:
        """Points of the array that this rank fills."""

    def sends(self, line: Line) -> list[Piece]:
        """Pieces of the own block, which go to other parts and to this one."""

    def recvs(self, line: Line) -> list[Piece]:
        """Pieces of the array that this rank fills."""


@dataclass(frozen=True, slots=True)
class Rolled:
    """Point ``i`` goes to point ``i + shift``, modulo the number of points."""

    shift: int = 0

    def extent(self, line: Line) -> int:
        """Points of the own block."""
        start, stop = line.bounds
        return stop - start

    def sends(self, line: Line) -> list[Piece]:
        """Pieces of the own block, by their places in other ones."""
        return sorted(_rolled(line, self.shift), key=lambda piece: (piece.part, piece.there))

    def recvs(self, line: Line) -> list[Piece]:
        """Pieces of the new block, by their places there."""
        return sorted(_rolled(line, -self.shift), key=lambda piece: piece.here)


def _rolled(line: Line, shift: int) -> Iterator[Piece]:
    """Yield the pieces of the own block after it was moved; places are those before."""
    points = line.split.points
    start, stop = line.bounds
    if start == stop:
        return
    shift %= points
    low, high = start + shift, stop + shift
    for first, last in ((low, min(high, points)), (max(low, points) - points, high - points)):
        for part, lo, hi in line.split.overlaps(first, last):
            here = (lo - shift) % points - start
            yield Piece(part, here, lo - line.split.bounds(part)[0], hi - lo)


@dataclass(frozen=True, slots=True)
class Flipped:
    """Point ``i`` goes to point ``n - 1 - i``; the own block is given in reverse order."""

    def extent(self, line: Line) -> int:
        """Points of the own block."""
        start, stop = line.bounds
        return stop - start

    def sends(self, line: Line) -> list[Piece]:
        """Pieces of the own block in reverse order."""
        points = line.split.points
        start, stop = line.bounds
        low = points - stop
        return [
            Piece(part, lo - low, lo - line.split.bounds(part)[0], hi - lo)
            for part, lo, hi in line.split.overlaps(low, points - start)
        ]

    def recvs(self, line: Line) -> list[Piece]:
        """Pieces of the new block."""
        points = line.split.points
        start, stop = line.bounds
        found = [
            Piece(part, points - hi - start, line.split.bounds(part)[1] - hi, hi - lo)
            for part, lo, hi in line.split.overlaps(points - stop, points - start)
        ]
        return found[::-1]


@dataclass(frozen=True, slots=True)
class Window:
    """The `before` points before each block and the `after` ones after it, if there are so many.

    Blocks without points have no window.
    """

    before: int
    after: int

    def sides(self, split: Split, part: int) -> tuple[int, int]:
        """Points of the window on both sides of a block."""
        start, stop = split.bounds(part)
        if start == stop:
            return 0, 0
        return min(self.before, start), min(self.after, split.points - stop)

    def extent(self, line: Line) -> int:
        """Points of the window."""
        return sum(self.sides(line.split, line.part))

    def sends(self, line: Line) -> list[Piece]:
        """Pieces of the own block that are in windows of other ones."""
        split = line.split
        start, stop = line.bounds
        found = []
        for part, *_ in split.overlaps(max(0, start - self.after), start) if stop > start else ():
            end = split.bounds(part)[1]
            before, _ = self.sides(split, part)
            count = min(stop, end + self.after) - start
            found.append(Piece(part, 0, before + start - end, count))
        last = min(split.points, stop + self.before)
        for part, *_ in split.overlaps(stop, last) if stop > start else ():
            begin = split.bounds(part)[0]
            before, _ = self.sides(split, part)
            low = max(start, begin - self.before)
            found.append(Piece(part, low - start, low - (begin - before), stop - low))
        return found

    def recvs(self, line: Line) -> list[Piece]:
        """Pieces of the window."""
        split = line.split
        start, stop = line.bounds
        before, after = self.sides(split, line.part)
        found = []
        for first, last, shift in (
            (start - before, start, before - start),
            (stop, stop + after, before - stop),
        ):
            for part, lo, hi in split.overlaps(first, last):
                found.append(Piece(part, lo + shift, lo - split.bounds(part)[0], hi - lo))
        return found
