"""Split: the points of one dimension in consecutive blocks, one per process along it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pencils.errors import ArgumentError
from pencils.layout.box import composed, positions

Rule = Literal["first", "last", "floor", "ceil", "bounds", "replicated", "section"]


# First index of a block by each rule: of `n` points in `p` parts, for part `i`, or for an array.
_CUTS: dict[str, Callable[[int, int, Any], Any]] = {
    "first": lambda n, p, i: i * (n // p) + i - (i > n % p) * (i - n % p),
    "last": lambda n, p, i: i * (n // p) + (i > p - n % p) * (i - p + n % p),
    "floor": lambda n, p, i: i * (n // p) + i * (n % p) // p,
    "ceil": lambda n, p, i: n - (n > (k := -(-n // p) * i)) * (n - k),
}
RULES = tuple(_CUTS)
# Rules whose blocks follow from no formula of points and parts alone.
_TABLES = frozenset({"bounds", "section"})


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """``points`` indices cut into ``parts`` consecutive blocks, some of which may be empty.

    The named rules are closed formulas, so a split over a million processes costs no memory, nor
    does a section of one; only explicit bounds keep a table. Splits with equal blocks are equal, by
    whatever rule.

    Parameters
    ----------
    points : int
        Number of indices, ``0 .. points - 1``.
    parts : int
        Number of blocks, at least 1.
    rule : {"first", "last", "floor", "ceil", "bounds", "replicated", "section"}
        ``first``: the first ``points % parts`` blocks get one more (`numpy.array_split`).
        ``last``: the last ones do. ``floor``: block p starts at ``p * points // parts``.
        ``ceil``: equal blocks of ``ceil(points / parts)``, the last ones shorter or empty.
        ``bounds``: see `table`. ``replicated``: every part holds all points. ``section``: see
        `base`.
    table : tuple of int
        For ``bounds``: ``parts + 1`` non-decreasing cut points from 0 to ``points``.
    base, kept : Split, range
        For ``section``: every index of `kept` is in the part that it has in `base`.
    every : int
        For ``section``: only each so many-th part has points, also those of the parts up to the
        next one that has some.

    Examples
    --------
    >>> [Split(10, 4).bounds(part) for part in range(4)]
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    >>> [Split(10, 4, "ceil").bounds(part) for part in range(4)]
    [(0, 3), (3, 6), (6, 9), (9, 10)]
    """

    points: int
    parts: int
    rule: Rule = "first"
    table: tuple[int, ...] = ()
    base: Split | None = None
    kept: range = range(0)
    every: int = 1

    @classmethod
    def from_bounds(cls, table: Sequence[int]) -> Split:
        """Cut at explicit bounds: part ``p`` holds ``table[p] .. table[p + 1] - 1``.

        Raises
        ------
        ArgumentError
            If there are fewer than two, or they do not start at 0, or decrease somewhere.
        """
        bounds = tuple(table)
        rising = all(low <= high for low, high in pairwise(bounds))
        if bounds[1:] == () or bounds[0] != 0 or not rising:
            raise ArgumentError(
                f"bounds {bounds!r} must start at 0, end at the number of points and never "
                "decrease, like (0, 3, 3, 8) for three blocks"
            )
        return cls(bounds[-1], len(bounds) - 1, "bounds", bounds)

    def section(self, kept: range) -> Split:
        """Return the split of some of the points, each of which keeps its part.

        Parameters
        ----------
        kept : range
            Rising indices; they may also fall where there is one part.

        Examples
        --------
        >>> inner = Split(10, 4).section(range(1, 9))
        >>> [inner.bounds(part) for part in range(4)], str(inner)
        ([(0, 2), (2, 5), (5, 7), (7, 8)], 'first of 10[1:9:1]')
        """
        if kept == range(self.points):
            return self
        if self.replicated:
            return Split(len(kept), self.parts, "replicated")
        base = self.base or self
        kept = composed(range(self.points) if self.base is None else self.kept, kept)
        return Split(len(kept), self.parts, "section", base=base, kept=kept, every=self.every)

    def coarsened(self, step: int, every: int = 1, first: int = 0) -> Split:
        """Return the split of each so many-th point from the first on.

        See `every`, a multiple of that of this split.

        Examples
        --------
        >>> [Split(16, 4).coarsened(2, 2).bounds(part) for part in range(4)]
        [(0, 4), (4, 4), (4, 8), (8, 8)]
        """
        even = self.is_formula and self.points % (self.parts * step) == 0
        if every == 1 and even and not self.replicated:
            return Split(self.points // step, self.parts, self.rule)
        found = self.section(range(first, self.points, step))
        if every == self.every:
            return found
        base, kept = found.base or found, found.kept if found.base else range(found.points)
        return Split(found.points, self.parts, "section", base=base, kept=kept, every=every)

    @property
    def cuts(self) -> tuple[int, ...]:
        """First index of each block, and the number of points: the table of explicit bounds."""
        if self.rule == "bounds":
            return self.table
        return (0, *map(self.cut, range(1, self.parts)), self.points)

    def chunk_cuts(self, chunk: int) -> tuple[int, ...]:
        """Cut the chunks of the points so that each is in the part that has most of its points.

        Parameters
        ----------
        chunk : int
            Points of a chunk; the last one may have fewer.

        Returns
        -------
        tuple of int
            First chunk of each part, and the number of chunks. No other cut moves fewer points.

        Examples
        --------
        >>> Split(10, 3).chunk_cuts(3)  # the parts have 4, 3 and 3 points
        (0, 1, 2, 4)
        """
        if self.is_formula and not self.replicated:
            cuts = _CUTS[self.rule](self.points, self.parts, np.arange(self.parts + 1))
        else:
            cuts = np.array((0,) * self.parts + (self.points,) if self.replicated else self.cuts)
        part = np.flatnonzero(np.diff(cuts))  # others have no points
        # The first and the last chunk of each part, in order: no other ones can be cut.
        ends = np.stack([cuts[part] // chunk, (cuts[part + 1] - 1) // chunk], axis=1)
        begin, part, number = chunk * ends, part[:, np.newaxis], ends.ravel()
        points = np.minimum(cuts[part + 1], begin + chunk) - np.maximum(cuts[part], begin)
        # Of these chunks, the first part that has most of the points.
        starts, shared = _changes(number), points.ravel()
        most = np.maximum.reduceat(shared, starts) if starts.size else shared
        best = np.flatnonzero(shared == np.repeat(most, np.diff(starts, append=shared.size)))
        owner = part[best[_changes(number[best])] // 2, 0]
        found = cuts // chunk
        inside = np.flatnonzero((cuts % chunk > 0) & (cuts < self.points))
        found[inside] += owner[np.searchsorted(number[starts], found[inside])] < inside
        found[cuts == self.points] = -(-self.points // chunk)
        return tuple(found.tolist())

    @property
    def is_formula(self) -> bool:
        """Whether the blocks follow from the rule, the points and the parts."""
        return self.rule not in _TABLES

    @property
    def replicated(self) -> bool:
        """Whether every part holds all points."""
        return self.rule == "replicated"

    @property
    def longest(self) -> int:
        """Number of points in the longest block."""
        if not self.is_formula:
            return max(hi - lo for lo, hi in map(self.bounds, range(self.parts)))
        return self.points if self.replicated else -(-self.points // self.parts)

    @property
    def filled(self) -> int:
        """Number of blocks that are not empty."""
        if self.points == 0:
            return 0
        match self.rule:
            case "bounds" | "section":
                return sum(lo < hi for lo, hi in map(self.bounds, range(self.parts)))
            case "replicated":
                return self.parts
            case "ceil":
                return -(-self.points // self.longest)
        return min(self.points, self.parts)

    def extended(self, extra: int) -> Split:
        """Give the last block that is not empty `extra` points more; the first, if all are empty.

        All blocks but empty ones begin where they did.

        Examples
        --------
        >>> longer = Split(4, 6).extended(1)
        >>> [longer.bounds(part) for part in range(6)]
        [(0, 1), (1, 2), (2, 3), (3, 5), (5, 5), (5, 5)]
        """
        if self.parts == 1 and self.rule != "bounds":  # any rule means the same
            return Split(self.points + extra, 1, self.rule if self.is_formula else "first")
        last = self.owner(self.points - 1) if self.points else 0
        return Split.from_bounds([cut + extra * (p > last) for p, cut in enumerate(self.cuts)])

    def begins_like(self, other: Split) -> bool:
        """Whether the splits are equal, or differ by one point more in the last block."""
        few, many = sorted((self, other), key=lambda split: split.points)
        # Splits into one block could differ by any number of points; only one point is allowed.
        if many.points - few.points != 1 or few.replicated or many.replicated:
            return few == many
        return few.extended(1) == many

    def bounds(self, part: int) -> tuple[int, int]:
        """First index of block `part` and the one after its last."""
        if self.parts == 1 or self.rule == "replicated":
            return 0, self.points
        return self.cut(part), self.cut(part + 1)

    def owner(self, index: int) -> int:
        """Return the part that holds `index`, in ``[0, points)``; the first one if replicated."""
        if self.parts == 1 or self.rule == "replicated":
            return 0
        if self.base is not None:
            return self.base.owner(self.kept[index]) // self.every * self.every
        return bisect_right(range(self.parts + 1), index, key=self.cut) - 1

    def overlaps(
        self, start: int, stop: int, only: int | None = None
    ) -> Iterator[tuple[int, int, int]]:
        """Yield ``(part, lo, hi)`` for every block that shares ``[lo, hi)`` with ``[start, stop)``.

        Empty blocks are skipped, so the cost follows the number of blocks found. `only` restricts
        the search to one block.
        """
        if start >= stop:
            return
        if only is not None:
            lo, hi = self.bounds(only)
            lo, hi = max(lo, start), min(hi, stop)
            if lo < hi:
                yield only, lo, hi
            return
        if self.rule == "replicated":
            yield from ((part, start, stop) for part in range(self.parts))
            return
        part = self.owner(start)
        while start < stop:
            end = self.cut(part + 1)
            if end <= start:  # the next block is empty, and possibly a million more
                part = self.owner(start)
                end = self.cut(part + 1)
            yield part, start, min(end, stop)
            start, part = end, part + 1

    def canonical_form(self) -> object:
        """Return a value that is equal for splits with equal blocks, by whatever rule."""
        if self.replicated:
            return self.points, self.parts, self.rule
        cuts = self.cuts if self.rule != "first" else ()
        for name, rule in _CUTS.items():
            if name == self.rule or all(
                rule(self.points, self.parts, part) == here for part, here in enumerate(cuts[:-1])
            ):
                return self.points, self.parts, name
        return self.points, cuts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Split):
            return NotImplemented
        mine = self.points, self.parts, self.replicated
        if mine != (other.points, other.parts, other.replicated):
            return False
        cut = self.rule, self.table, self.kept, self.every
        if cut == (other.rule, other.table, other.kept, other.every) and (
            self.base is other.base or self.base == other.base
        ):
            return True
        if self.is_formula and other.is_formula and self.points % self.parts == 0:
            return True  # all rules cut equal blocks
        return all(self.bounds(part) == other.bounds(part) for part in range(self.parts))

    def __hash__(self) -> int:
        return hash((self.points, self.parts, self.replicated))

    def __str__(self) -> str:
        """Return the rule, the bounds, or the rule and the points that are kept."""
        if self.base is not None:
            kept = self.kept
            whole = f"{self.base.rule} of {self.base.points}" if self.base.is_formula else self.base
            text = f"{whole}[{kept.start}:{kept.stop}:{kept.step}]"
            return text if self.every == 1 else f"{text} on each {self.every}th part"
        return str(self.table) if self.rule == "bounds" else self.rule

    def cut(self, part: int) -> int:
        """First index of block `part`; the number of points for the one after the last."""
        if self.rule == "bounds":
            return self.table[part]
        if self.base is not None:
            part = min(self.parts, -(-part // self.every) * self.every)
            return positions(self.kept, 0, self.base.cut(part))[1]
        found: int = _CUTS[self.rule](self.points, self.parts, part)
        return found


def _changes(numbers: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the places of the first of each number in rising ones."""
    return np.flatnonzero(np.diff(numbers, prepend=-1))
