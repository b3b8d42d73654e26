"""Communicators made of others: of some of their ranks, and with a grid or graph of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from simmpi.collectives.slots import Call, Slot
from simmpi.constants import CART, DIST_GRAPH, GRAPH, PROC_NULL, UNDEFINED
from simmpi.exceptions import ERR_DIMS, MPIError

if TYPE_CHECKING:
    from simmpi.world import Context


class Grid(NamedTuple):
    """A Cartesian grid of ranks; the last dimension is fastest."""

    dims: tuple[int, ...]
    periods: tuple[bool, ...]

    @property
    def kind(self) -> int:
        """Kind of the topology."""
        return CART

    def rank(self, coords: Sequence[int]) -> int:
        """Rank at coordinates; PROC_NULL outside of a dimension that is not periodic."""
        rank = 0
        for at, extent, periodic in zip(coords, self.dims, self.periods, strict=True):
            if not (periodic or 0 <= at < extent):
                return PROC_NULL
            rank = rank * extent + at % extent
        return rank

    def coords(self, rank: int) -> list[int]:
        """Coordinates of a rank."""
        found = []
        for extent in reversed(self.dims):
            rank, at = divmod(rank, extent)
            found.append(at)
        return found[::-1]

    def shifted(self, rank: int, dim: int, by: int) -> int:
        """Rank that is `by` further along a dimension."""
        coords = self.coords(rank)
        coords[dim] += by
        return self.rank(coords)

    def sources(self, rank: int) -> list[int]:
        """Neighbours in the order of the collectives."""
        return [self.shifted(rank, dim, by) for dim in range(len(self.dims)) for by in (-1, 1)]

    def targets(self, rank: int) -> list[int]:
        """Neighbours in the order of the collectives: the same ones."""
        return self.sources(rank)


class Edges(NamedTuple):
    """A graph of ranks: for each rank, those it receives from and sends to, and weights."""

    incoming: list[list[int]]
    outgoing: list[list[int]]
    weights: list[tuple[list[int], list[int]]] | None
    kind: int = DIST_GRAPH

    def sources(self, rank: int) -> list[int]:
        """Ranks that a rank receives from."""
        return self.incoming[rank]

    def targets(self, rank: int) -> list[int]:
        """Ranks that a rank sends to."""
        return self.outgoing[rank]


# ---- the parts of ranks in the collectives that make such communicators ----


def cart(size: int, dims: Sequence[int], periods: Sequence[bool] | None) -> Call:
    """Make a communicator with a Cartesian grid of ranks."""
    extents = (dims,) if isinstance(dims, int) else tuple(dims)
    cyclic = False if periods is None else periods
    each = [cyclic] * len(extents) if isinstance(cyclic, (bool, int)) else cyclic
    wrapped = tuple(map(bool, each))
    if prod(extents) > size:
        raise MPIError(
            ERR_DIMS, f"dims={list(extents)} need {prod(extents)} ranks; there are {size}"
        )
    grid = Grid(extents, wrapped)
    same = (f"dims={list(extents)}", f"periods={list(wrapped)}")
    return Call("Create_cart", partial(_first, size=prod(extents), topology=grid), same=same)


def graph(index: Sequence[int], edges: Sequence[int]) -> Call:
    """Make a communicator with a graph of ranks, which all ranks pass whole."""
    if index[0] == 0 and index[-1] == len(edges):  # where edges start, not where they end
        index = index[1:]
    starts = [0, *index]
    outgoing = [list(edges[a:b]) for a, b in pairwise(starts)]
    # Neighbours of such a graph are the same in both directions.
    whole = Edges(outgoing, outgoing, None, GRAPH)
    finish = partial(_first, size=len(index), topology=whole)
    return Call("Create_graph", finish, same=(list(index), list(edges)))


def _first(slot: Slot, number: int, *, size: int, topology: Any) -> Context | None:
    """Return a communicator of the first ranks, if this one is among them."""
    if number >= size:
        return None
    return slot.once(
        lambda: slot.context.world.context(slot.context.ranks[:size], topology=topology)
    )


def adjacent(
    sources: Sequence[int],
    destinations: Sequence[int],
    sourceweights: Sequence[int] | None,
    destweights: Sequence[int] | None,
) -> Call:
    """Make a communicator with a graph, of which each rank passes its neighbours."""
    both = _weights(sourceweights), _weights(destweights)
    weights = None if None in both else both
    return Call(
        "Create_dist_graph_adjacent", _adjacent, (list(sources), list(destinations), weights)
    )


def _adjacent(slot: Slot, number: int) -> Context:  # noqa: ARG001
    def compute() -> Context:
        every = [slot.given[rank] for rank in range(slot.context.size)]
        sources, targets, weights = zip(*every, strict=True)
        known = None if None in weights else list(weights)
        edges = Edges(list(sources), list(targets), known)
        return slot.context.world.context(slot.context.ranks, topology=edges)

    return slot.once(compute)


def distributed(
    sources: Sequence[int],
    degrees: Sequence[int],
    destinations: Sequence[int],
    weights: Sequence[int] | None,
) -> Call:
    """Make a communicator with a graph, of which ranks pass any edges."""
    edges, at, known = [], 0, _weights(weights)
    for source, degree in zip(sources, degrees, strict=True):
        edges += [
            (source, destinations[place], 1 if known is None else known[place])
            for place in range(at, at + degree)
        ]
        at += degree
    return Call("Create_dist_graph", partial(_distributed, weighted=known is not None), edges)


def _weights(weights: Sequence[int] | int | None) -> list[int] | None:
    """Take weights; None for `UNWEIGHTED` and `WEIGHTS_EMPTY`, which are numbers."""
    return None if weights is None or isinstance(weights, int) else list(weights)


def _distributed(slot: Slot, number: int, *, weighted: bool) -> Context:  # noqa: ARG001
    def compute() -> Context:
        size = slot.context.size
        incoming: list[list[int]] = [[] for _ in range(size)]
        outgoing: list[list[int]] = [[] for _ in range(size)]
        weights: list[tuple[list[int], list[int]]] = [([], []) for _ in range(size)]
        for rank in range(size):
            for source, target, weight in slot.given[rank]:
                outgoing[source].append(target)
                incoming[target].append(source)
                weights[source][1].append(weight)
                weights[target][0].append(weight)
        edges = Edges(incoming, outgoing, weights if weighted else None)
        return slot.context.world.context(slot.context.ranks, topology=edges)

    return slot.once(compute)


def sub_grids(slot: Slot, number: int, *, part: Grid) -> Context:
    """Return the communicator of the ranks with the same fixed coordinates."""

    def compute() -> dict[tuple[int, ...], Context]:
        ranks: dict[tuple[int, ...], list[int]] = {}
        for rank in range(slot.context.size):
            ranks.setdefault(slot.given[rank], []).append(slot.context.ranks[rank])
        world = slot.context.world
        return {fixed: world.context(some, topology=part) for fixed, some in ranks.items()}

    return slot.once(compute)[slot.given[number]]


# ---- without a topology of their own ----


def duplicate(slot: Slot, number: int) -> Context:  # noqa: ARG001
    """Return a communicator of the same ranks."""
    context = slot.context
    return slot.once(
        lambda: context.world.context(context.ranks, f"a copy of {context.name}", context.topology)
    )


def divide(slot: Slot, number: int) -> Context | None:
    """Return the communicator of the color of a rank."""

    def compute() -> dict[int, Context]:
        ranks = slot.context.ranks
        members: dict[int, list[tuple[int, int]]] = {}
        for rank in range(len(ranks)):
            color, key = slot.given[rank]
            if color != UNDEFINED:
                members.setdefault(color, []).append((key, rank))
        return {
            color: slot.context.world.context([ranks[rank] for _, rank in sorted(each)])
            for color, each in members.items()
        }

    return slot.once(compute).get(slot.given[number][0])


def of_group(slot: Slot, number: int) -> Context | None:
    """Return the communicator of the group that a rank has passed."""
    ranks = slot.given[number]
    if slot.context.ranks[number] not in ranks:
        return None
    made = slot.once(dict[tuple[int, ...], "Context"])
    if ranks not in made:
        made[ranks] = slot.context.world.context(list(ranks))
    return made[ranks]
