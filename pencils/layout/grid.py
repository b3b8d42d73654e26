"""Process grids: coordinates and neighbours of ranks, and the best grid for a shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt, prod

from pencils.errors import ArgumentError
from pencils.layout.split import Rule, Split


@dataclass(frozen=True, slots=True)
class ProcessGrid:
    """Ranks ``0 .. size - 1`` laid out in C order: the last axis of the grid is fastest.

    Examples
    --------
    >>> grid = ProcessGrid((2, 3))
    >>> grid.coords(4), grid.rank((1, 1))
    ((1, 1), 4)
    """

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Step in rank from one coordinate to the next, along every axis."""
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def coords(self, rank: int) -> tuple[int, ...]:
        """Coordinates of a rank."""
        return tuple(
            rank // stride % extent for stride, extent in zip(self.strides, self.shape, strict=True)
        )

    def rank(self, coords: Sequence[int]) -> int:
        """Rank at the given coordinates."""
        return sum(c * stride for c, stride in zip(coords, self.strides, strict=True))

    def neighbor(self, rank: int, offset: Sequence[int], periodic: Sequence[bool]) -> int | None:
        """Rank at `offset` from `rank`, along diagonals too; None beyond a non-periodic edge."""
        coords = []
        for here, step, extent, wrap in zip(
            self.coords(rank), offset, self.shape, periodic, strict=True
        ):
            there = (here + step) % extent if wrap else here + step
            if not 0 <= there < extent:
                return None
            coords.append(there)
        return self.rank(coords)


def choose_grid(
    points: Sequence[int], ranks: int, fixed: Sequence[int] = (), rules: Sequence[Rule] = ()
) -> tuple[int, ...]:
    """Choose how many processes go along each dimension of a grid of `points`.

    Of all factorisations of `ranks`, takes those that leave the fewest ranks without points, then
    the one whose cuts through the grid have the least surface; ties go to the smaller largest
    block, then to more processes along the earlier (slower) dimensions.

    Parameters
    ----------
    points : sequence of int
        Points along each decomposed dimension.
    ranks : int
        Number of processes to place.
    fixed : sequence of int, optional
        Required number of processes along each dimension; 0 leaves the choice open.
    rules : sequence of str, optional
        Split rule of each dimension (see `Split`); "ceil" may leave more ranks without points
        than "first", the default.

    Returns
    -------
    tuple of int
        Processes along each dimension; their product is `ranks`.

    Raises
    ------
    ArgumentError
        If the required numbers do not divide `ranks`.

    Examples
    --------
    >>> choose_grid((64, 64), 6), choose_grid((4, 1000), 6), choose_grid((64, 64), 6, (0, 3))
    ((3, 2), (1, 6), (2, 3))
    """
    wanted = tuple(fixed) or (0,) * len(points)
    divisors = _divisors(ranks)
    first: list[Rule] = ["first"] * len(points)
    cuts = [
        {p: Split(n, p, rule) for p in divisors}
        for n, rule in zip(points, rules or first, strict=True)
    ]
    longest = [{p: split.longest for p, split in along.items()} for along in cuts]
    filled = [{p: split.filled for p, split in along.items()} for along in cuts]

    across = [prod(points[:axis]) * prod(points[axis + 1 :]) for axis in range(len(points))]

    def cost(grid: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        blocks = [along[p] for along, p in zip(filled, grid, strict=True)]
        surface = sum((count - 1) * area for count, area in zip(blocks, across, strict=True))
        largest = prod(along[p] for along, p in zip(longest, grid, strict=True))
        return -prod(blocks), surface, largest, tuple(-p for p in grid)

    best = min(factorizations(ranks, wanted), key=cost, default=None)
    if best is None:
        msg = (
            f"grid {wanted} cannot hold {ranks} processes: the product of its entries must be "
            f"{ranks} (0 leaves an entry open; explicit splits fix it)"
        )
        raise ArgumentError(msg)
    return best


def factorizations(number: int, wanted: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to write `number` as one factor per entry of `wanted`, 0 being any factor.

    Examples
    --------
    >>> list(factorizations(6, (0, 0)))
    [(1, 6), (2, 3), (3, 2), (6, 1)]
    """
    return _factorizations(number, wanted, _divisors(number))


def _factorizations(
    number: int, wanted: Sequence[int], divisors: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    if len(wanted) == 1:
        if wanted[0] in (0, number):
            yield (number,)
        return
    for first in divisors if wanted[0] == 0 else wanted[:1]:
        if first > 0 and number % first == 0:
            for rest in _factorizations(number // first, wanted[1:], divisors):
                yield (first, *rest)


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
