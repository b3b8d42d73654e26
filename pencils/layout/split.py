"""Split: the points of one dimension in consecutive blocks, one per process along it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pencils.errors import ArgumentError

Rule = Literal["first", "last", "floor", "ceil", "bounds", "replicated"]


# First index of a block by each rule: of `n` points in `p` parts, for part `i`.
_CUTS: dict[str, Callable[[int, int, int], int]] = {
    "first": lambda n, p, i: i * (n // p) + min(i, n % p),
    "last": lambda n, p, i: i * (n // p) + max(0, i - p + n % p),
    "floor": lambda n, p, i: i * n // p,
    "ceil": lambda n, p, i: min(n, i * -(-n // p)),
}
RULES = tuple(_CUTS)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """``points`` indices cut into ``parts`` consecutive blocks, some of which may be empty.

    The named rules are closed formulas, so a split over a million processes costs no memory; only
    explicit bounds keep a table. Splits with equal blocks are equal, by whatever rule.

    Parameters
    ----------
    points : int
        Number of indices, ``0 .. points - 1``.
    parts : int
        Number of blocks, at least 1.
    rule : {"first", "last", "floor", "ceil", "bounds", "replicated"}
        ``first``: the first ``points % parts`` blocks get one more (`numpy.array_split`).
        ``last``: the last ones do. ``floor``: block p starts at ``p * points // parts``.
        ``ceil``: equal blocks of ``ceil(points / parts)``, the last ones shorter or empty.
        ``bounds``: see `table`. ``replicated``: every part holds all points.
    table : tuple of int
        For ``bounds``: ``parts + 1`` non-decreasing cut points from 0 to ``points``.

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

    @property
    def replicated(self) -> bool:
        """Whether every part holds all points."""
        return self.rule == "replicated"

    @property
    def longest(self) -> int:
        """Number of points in the longest block."""
        if self.rule == "bounds":
            return max(hi - lo for lo, hi in map(self.bounds, range(self.parts)))
        return self.points if self.replicated else -(-self.points // self.parts)

    @property
    def filled(self) -> int:
        """Number of blocks that are not empty."""
        if self.points == 0:
            return 0
        match self.rule:
            case "bounds":
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
        if self.parts == 1:  # any rule means the same
            return Split(self.points + extra, 1, "first" if self.rule == "bounds" else self.rule)
        last = self.owner(self.points - 1) if self.points else 0
        cuts = map(self._cut, range(self.parts + 1))
        return Split.from_bounds([cut + extra * (p > last) for p, cut in enumerate(cuts)])

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
        return self._cut(part), self._cut(part + 1)

    def owner(self, index: int) -> int:
        """Return the part that holds `index`, in ``[0, points)``; the first one if replicated."""
        if self.rule == "replicated":
            return 0
        return bisect_right(range(self.parts + 1), index, key=self._cut) - 1

    def overlaps(
        self, start: int, stop: int, only: int | None = None
    ) -> Iterator[tuple[int, int, int]]:
        """Yield ``(part, lo, hi)`` for every block that shares ``[lo, hi)`` with ``[start, stop)``.

        Empty blocks are skipped, so the cost follows the number of blocks found. `only` restricts
        the search to one block.
        """
        if only is not None:
            lo, hi = self.bounds(only)
            lo, hi = max(lo, start), min(hi, stop)
            if lo < hi:
                yield only, lo, hi
            return
        if self.rule == "replicated":
            if start < stop:
                yield from ((part, start, stop) for part in range(self.parts))
            return
        part = self.owner(start)
        while start < stop:
            end = self._cut(part + 1)
            if end <= start:  # the next block is empty, and possibly a million more
                part = self.owner(start)
                end = self._cut(part + 1)
            yield part, start, min(end, stop)
            start, part = end, part + 1

    def canonical_form(self) -> object:
        """Return a value that is equal for splits with equal blocks, by whatever rule."""
        if self.replicated:
            return self.points, self.parts, self.rule
        cuts = [self._cut(part) for part in range(self.parts)] if self.rule != "first" else []
        for name, cut in _CUTS.items():
            if name == self.rule or all(
                cut(self.points, self.parts, part) == here for part, here in enumerate(cuts)
            ):
                return self.points, self.parts, name
        return self.points, self.table

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Split):
            return NotImplemented
        mine = self.points, self.parts, self.replicated
        if mine != (other.points, other.parts, other.replicated):
            return False
        if (self.rule, self.table) == (other.rule, other.table):
            return True
        if "bounds" not in {self.rule, other.rule} and self.points % self.parts == 0:
            return True  # all rules cut equal blocks
        return all(self.bounds(part) == other.bounds(part) for part in range(self.parts))

    def __hash__(self) -> int:
        return hash((self.points, self.parts, self.replicated))

    def _cut(self, part: int) -> int:
        if self.rule == "bounds":
            return self.table[part]
        return _CUTS[self.rule](self.points, self.parts, part)
