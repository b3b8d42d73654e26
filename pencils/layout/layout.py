"""Layout: which rank owns each point of a global grid, for any number of ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import and_
from typing import NamedTuple, TypeVar

from pencils.layout.box import Box
from pencils.layout.split import Split

T = TypeVar("T")

_WHOLE = (0, 1)  # origin of a dimension of which all points are there


@dataclass(frozen=True, slots=True)
class ProcessGrid:
    """Ranks from 0 to ``size - 1`` laid out in C order: the last axis of the grid is fastest.

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
        steps, step = [], 1
        for extent in reversed(self.shape):
            steps.append(step)
            step *= extent
        return tuple(reversed(steps))

    def coords(self, rank: int) -> tuple[int, ...]:
        """Coordinates of a rank."""
        found = []
        for extent in reversed(self.shape):
            rank, coord = divmod(rank, extent)
            found.append(coord)
        return tuple(reversed(found))

    def rank(self, coords: Sequence[int]) -> int:
        """Rank at the given coordinates."""
        return sum(c * stride for c, stride in zip(coords, self.strides, strict=True))


@dataclass(frozen=True, slots=True)
class Layout:
    """A global shape, a process grid over some of its dimensions, and how each is cut.

    A layout needs no communicator and describes the blocks of all ranks; the cost of a query does
    not grow with their number. `pencils.layout.build_layout` makes one from user arguments.

    Parameters
    ----------
    grid : ProcessGrid
        The process grid.
    decomp : tuple of int
        Decomposed dimensions: ``decomp[i]`` lies on axis ``i`` of the grid.
    splits : tuple of Split
        How each dimension is cut; one part along dimensions that are not decomposed.
    order : tuple of int
        Memory order of the dimensions, slowest first.
    periodic : tuple of bool
        Whether each dimension wraps around.
    origins : tuple of (int, int)
        For a section, the index of its first point in the whole, and the step to the next one,
        along each dimension; empty for the whole, where all are ``(0, 1)``.
    coarsened : tuple of (int, str)
        For a level of a finer grid, the factor between both and what is centred, "cell" or
        "vertex", along each dimension: see `pencils.layout.levels`. Else empty.
    """

    grid: ProcessGrid
    decomp: tuple[int, ...]
    splits: tuple[Split, ...]
    order: tuple[int, ...]
    periodic: tuple[bool, ...]
    origins: tuple[tuple[int, int], ...] = ()
    coarsened: tuple[tuple[int, str], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return tuple(split.points for split in self.splits)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.splits)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.grid.size

    @property
    def all_origins(self) -> tuple[tuple[int, int], ...]:
        """The origin of each dimension, for the whole, too."""
        return self.origins or (_WHOLE,) * self.ndim

    @property
    def process_shape(self) -> tuple[int, ...]:
        """Processes along each dimension; 1 where it is not decomposed."""
        return tuple(split.parts for split in self.splits)

    @property
    def strides(self) -> tuple[int, ...]:
        """Step in rank to the next block along each dimension; 0 if there is one block only."""
        steps = dict(zip(self.decomp, self.grid.strides, strict=True))
        return tuple(steps[dim] if split.parts > 1 else 0 for dim, split in enumerate(self.splits))

    @property
    def replicated_axes(self) -> tuple[int, ...]:
        """Axes of the process grid along which every rank holds the same points."""
        return tuple(axis for axis, dim in enumerate(self.decomp) if self.splits[dim].replicated)

    @property
    def split_specs(self) -> list[str | tuple[int, ...]]:
        """The argument `splits` of `build_layout`: a rule name, or bounds, for each dimension."""
        return [split.rule if split.is_formula else split.cuts for split in self.splits]

    @property
    def split_rules(self) -> list[str]:
        """The rule of each dimension, for another shape or grid; "first" where it is no formula."""
        return [split.rule if split.is_formula else "first" for split in self.splits]

    @property
    def signature(self) -> dict[str, object]:
        """Values that must be equal on all ranks, by name."""
        return {
            "shape": self.shape,
            "decomp": self.decomp,
            "grid": self.grid.shape,
            "periodic": self.periodic,
            "order": self.order,
            "splits": self.split_specs,
            "origins": self.origins,
            "coarsened": self.coarsened,
        }

    def parts(self, rank: int) -> tuple[int, ...]:
        """Position of `rank` among the processes along each dimension."""
        parts = [0] * self.ndim
        for dim, coord in zip(self.decomp, self.grid.coords(rank), strict=True):
            parts[dim] = coord
        return tuple(parts)

    def box(self, rank: int) -> Box:
        """Return the own block of `rank`, in global indices."""
        bounds = [
            split.bounds(part) for split, part in zip(self.splits, self.parts(rank), strict=True)
        ]
        start, stop = zip(*bounds, strict=True)
        return Box(start, stop)

    def extent(self, rank: int) -> Extent:
        """Return the layout and the own block of `rank`, with their shapes."""
        box = self.box(rank)
        return Extent(self, box, self.shape, box.shape)

    def rank(self, parts: Sequence[int]) -> int:
        """Rank at the given position along each dimension."""
        return self.grid.rank([parts[dim] for dim in self.decomp])

    def owner(self, index: Sequence[int]) -> int:
        """Return the rank that owns a global index; the first replica for singleton dimensions.

        Raises
        ------
        IndexError
            If the index lies outside ``[0, shape)``.
        """
        if len(index) != self.ndim or tuple(index) not in Box.of_shape(self.shape):
            raise IndexError(f"index {tuple(index)} is outside the global shape {self.shape}")
        return self.rank([split.owner(i) for split, i in zip(self.splits, index, strict=True)])

    def neighbor(self, rank: int, offset: Sequence[int]) -> int | None:
        """Return the rank whose block is `offset` blocks away along each dimension.

        Diagonal offsets are allowed. Returns None beyond an edge that is not periodic.
        """
        parts = []
        along = zip(self.parts(rank), offset, self.splits, self.periodic, strict=True)
        for here, step, split, wraps in along:
            there = (here + step) % split.parts if wraps else here + step
            if not 0 <= there < split.parts:
                return None
            parts.append(there)
        return self.rank(parts)

    def with_singletons(self, dims: Collection[int]) -> Layout:
        """Give the dimensions `dims` extent 1, replicated over the processes along them."""
        splits = tuple(
            Split(1, split.parts, "replicated") if dim in dims else split
            for dim, split in enumerate(self.splits)
        )
        origins = (_WHOLE if dim in dims else origin for dim, origin in enumerate(self.origins))
        return replace(self, splits=splits, origins=_origins(origins))

    def without_wrapping(self, dims: Collection[int]) -> Layout:
        """Make `dims` non-periodic."""
        periodic = (wraps and dim not in dims for dim, wraps in enumerate(self.periodic))
        return replace(self, periodic=tuple(periodic))

    def staggered(self, dims: Collection[int]) -> Layout:
        """Return the layout of the faces between points along `dims`: one more, in the last block.

        Face ``i`` is on the low side of point ``i``. Along periodic dimensions the last face is
        the first one, and there are as many as points.
        """
        splits = tuple(
            split.extended(1) if dim in dims and not wraps else split
            for dim, (split, wraps) in enumerate(zip(self.splits, self.periodic, strict=True))
        )
        same = all(self.periodic[dim] for dim in dims)
        return replace(self, splits=splits, coarsened=self.coarsened if same else ())

    def section(self, ranges: Sequence[range]) -> Layout:
        """Return the layout of ``array[ranges]``: every point keeps its rank.

        Dimensions of which points are left out do not wrap around.

        Parameters
        ----------
        ranges : sequence of range
            Global indices kept along each dimension, rising where it is cut.
        """
        whole = [kept == range(n) for kept, n in zip(ranges, self.shape, strict=True)]
        if all(whole):
            return self
        return replace(
            self,
            splits=tuple(map(Split.section, self.splits, ranges)),
            periodic=tuple(map(and_, self.periodic, whole)),
            origins=_origins(map(_moved, self.all_origins, ranges)),
            coarsened=(),
        )

    def along(self, dims: Collection[int], other: Layout) -> Layout:
        """Return the layout that is `other` along `dims`, and this one along the rest.

        Both have the same process grid over the same dimensions.
        """

        def joined(mine: Sequence[T], others: Sequence[T]) -> tuple[T, ...]:
            pairs = enumerate(zip(mine, others, strict=True))
            return tuple(theirs if dim in dims else own for dim, (own, theirs) in pairs)

        return replace(
            self,
            splits=joined(self.splits, other.splits),
            periodic=joined(self.periodic, other.periodic),
            origins=_origins(joined(self.all_origins, other.all_origins)),
            coarsened=self.coarsened if self.coarsened == other.coarsened else (),
        )

    def __str__(self) -> str:
        """Arguments of `build_layout` for this layout, without those that are the default.

        Plans for different layouts are distinguished by it: other layouts have other texts.
        """
        extras = f", periodic={self.periodic}" if any(self.periodic) else ""
        if self.order != tuple(range(self.ndim)):
            extras += f", order={self.order}"
        if any(split.rule != "first" for split in self.splits):
            texts = [split.table if split.rule == "bounds" else str(split) for split in self.splits]
            extras += f", splits={texts}"
        known = ((s.kept.start, s.kept.step) if s.kept else _WHOLE for s in self.splits)
        if self.origins != _origins(known):  # transposed, for instance
            extras += f", origins={self.origins}"
        if self.coarsened:
            extras += f", coarsened={self.coarsened}"
        return f"{self.shape}, decomp={self.decomp}, grid={self.grid.shape}{extras}"

    def describe(self, rank: int) -> str:
        """Describe the layout, and the block of `rank`, in five lines; six for a section or level."""
        box = self.box(rank)
        owned = ", ".join(f"{lo}:{hi}" for lo, hi in zip(box.start, box.stop, strict=True))
        along = " and ".join(
            f"dimension {dim} over {count}"
            for dim, count in zip(self.decomp, self.grid.shape, strict=True)
        )
        wrapped = [f"dimension {dim}" for dim, wraps in enumerate(self.periodic) if wraps]
        processes = "1 process" if self.size == 1 else f"{self.size} processes"
        points = [
            f"{start}:{start + n * step}:{step}".removesuffix(":1")
            for (start, step), n in zip(self.origins, self.shape, strict=False)
        ]
        levels = ", ".join(f"by {factor} ({centred})" for factor, centred in self.coarsened)
        return "\n".join(
            (
                f"Pencil of {' x '.join(map(str, self.shape))} points on {processes}",
                *([f"  section:    [{', '.join(points)}] of the whole"] if points else []),
                *([f"  coarsened:  {levels}"] if levels else []),
                f"  decomposed: {along}",
                f"  periodic:   {', '.join(wrapped) or 'nowhere'}",
                f"  in memory:  dimensions {self.order}, slowest first",
                f"  rank {rank} at {self.grid.coords(rank)} owns [{owned}]: {box.volume} points",
            )
        )

    def same_blocks(self, other: Layout) -> bool:
        """Whether every rank owns the same points of the whole in both layouts.

        Memory order, edges and coarser levels do not matter, nor do axes of the grid with one
        process.
        """
        return self is other or (
            self.strides == other.strides
            and self.origins == other.origins
            and self.splits == other.splits
        )

    def shares_blocks(self, other: Layout) -> bool:
        """Whether blocks of both begin at the same points, as those of staggered layouts do.

        Only the last block along a dimension may be longer, by one point, in one of them.
        """
        return (
            self.strides == other.strides
            and self.origins == other.origins
            and all(map(Split.begins_like, self.splits, other.splits))
        )

    def is_first_replica(self, rank: int) -> bool:
        """Whether `rank` is the first of its replicas; True without singleton dimensions."""
        coords = self.grid.coords(rank)
        return all(coords[axis] == 0 for axis in self.replicated_axes)


class Extent(NamedTuple):
    """A layout and one block of it, with their shapes, which are computed once."""

    layout: Layout
    box: Box
    shape: tuple[int, ...]
    local_shape: tuple[int, ...]


def _moved(origin: tuple[int, int], kept: range) -> tuple[int, int]:
    """Origin of the points `kept`, of a dimension with an origin."""
    if not kept:
        return _WHOLE
    start, step = origin
    return start + step * kept.start, step * kept.step if len(kept) > 1 else 1


def _origins(origins: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the origins of all dimensions, or none for the whole."""
    found = tuple(origins)
    return found if any(origin != _WHOLE for origin in found) else ()
