"""The function `plan`: which process grid is best, before there are processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import as_dtype
from pencils.errors import ArgumentError
from pencils.layout import Layout, Traffic, build_layout
from pencils.layout.build import change_layout, factorizations
from pencils.layout.halo import direct, star
from pencils.layout.integers import as_dims, as_int, as_ints
from pencils.layout.stages import changed_shape, plan_stages, staged
from pencils.tables import text_bytes, text_seconds, text_table
from pencils.tools.planning.counts import Counts, Ints, count_halo, count_redistribution, volumes
from pencils.tools.planning.links import Links

_KNOWN = "'fft', 'halo:2' (of width 2), 'halo:2:faces' (without corners) or 'transpose:0,2'"


class Redistribution(NamedTuple):
    """A field moves to another layout."""

    source: Layout
    target: Layout
    itemsize: int

    def sent(self, ranks: Ints, per_node: int) -> Counts:
        """Count what ranks send."""
        return count_redistribution(self.source, self.target, ranks, per_node)

    def memory(self, ranks: Ints, counts: Counts) -> Ints:
        """Return the bytes of the target, and of what is packed to send and to receive."""
        arriving = volumes(self.target, ranks)
        leaving = volumes(self.source, ranks)
        return (leaving + 2 * (arriving - counts.own) + counts.own) * self.itemsize


class HaloRound(NamedTuple):
    """Ghosts are filled in one round, with corners or without."""

    source: Layout
    width: int
    corners: bool
    itemsize: int

    def sent(self, ranks: Ints, per_node: int) -> Counts:
        """Count what ranks send."""
        parts = self.source.process_shape
        cut = [dim for dim, count in enumerate(parts) if count > 1]
        whole = [dim for dim, count in enumerate(parts) if count == 1]
        (faces,) = (direct(cut, whole) if self.corners else star(cut)) or [()]
        return count_halo(self.source, self.width, faces, ranks, per_node)

    def memory(self, ranks: Ints, counts: Counts) -> Ints:
        """Return the bytes of what is packed to send and to receive."""
        halo = volumes(self.source, ranks, self.width) - volumes(self.source, ranks)
        packed: Ints = counts.near[1] + counts.far[1]
        return np.asarray((packed + np.minimum(packed, halo)) * self.itemsize)


Move: TypeAlias = Redistribution | HaloRound


class Operation(NamedTuple):
    """An operation, by the text that names it."""

    text: str
    width: int  # of the halo that it needs
    moves: Callable[[Layout, np.dtype[np.generic]], Sequence[Move]]


def as_operation(text: str) -> Operation:
    """Read the text of an operation.

    Raises
    ------
    ArgumentError
        If it is not known.

    Examples
    --------
    >>> as_operation("halo:2").width
    2
    """
    name, *options = str(text).split(":")
    if name == "fft" and not options:
        return Operation(text, 0, _transform)
    if name == "halo" and options[:1] and options[0].isdecimal() and int(options[0]) > 0:
        width, corners = int(options[0]), options[1:] != ["faces"]
        if not corners or len(options) == 1:
            return Operation(
                text,
                width,
                lambda layout, dtype: [HaloRound(layout, width, corners, dtype.itemsize)],
            )
    dims = options[0].split(",") if name == "transpose" and len(options) == 1 else []
    if dims and all(map(str.isdecimal, dims)):
        return Operation(text, 0, _transpose_to(as_ints("transpose", list(map(int, dims)))))
    raise ArgumentError(f"operation {text!r} is unknown; use {_KNOWN}")


def _transpose_to(decomp: tuple[int, ...]) -> Callable[[Layout, np.dtype[np.generic]], list[Move]]:
    def moves(layout: Layout, dtype: np.dtype[np.generic]) -> list[Move]:
        return [Redistribution(layout, change_layout(layout, decomp=decomp), dtype.itemsize)]

    return moves


def _transform(layout: Layout, dtype: np.dtype[np.generic]) -> list[Move]:
    """List the transposes of a Fourier transform along all dimensions, as `PencilFFT` makes them.

    Real data are halved along the last dimension.
    """
    axes = range(layout.ndim)[::-1]
    first = None if dtype.kind == "c" else axes[0]
    waves = list(layout.shape)
    if first is not None:
        waves[first] = waves[first] // 2 + 1
    moves: list[Move] = []
    here = layout
    for stage in plan_stages(waves, layout.decomp, layout.grid.shape, axes, first=first):
        if moves or stage.decomp != layout.decomp or stage.grid != layout.grid.shape:
            there = staged(here, stage)
            moves.append(Redistribution(here, there, dtype.itemsize))
            here = there
        if first in stage.axes:
            shape = [waves[dim] if dim == first else n for dim, n in enumerate(here.shape)]
            here = changed_shape(here, shape, [first])
            dtype = np.result_type(dtype, "F")
    return moves


# Grids that are compared, those with the least surface, each by a sample of its ranks; and the
# ranks of the best grids that are counted.
_MOST_GRIDS = 128
_SAMPLE = 1024
_COUNTED = 2**14
_MOST_BYTES = 2**56  # of a field: sums over all ranks are 64-bit integers
_HEAD = "grid", "decomp", "imbalance", "empty", "memory"


class Load(NamedTuple):
    """The messages of an operation on a process grid.

    Attributes
    ----------
    operation : str
        As given.
    near, far : Traffic
        Most messages, and most bytes, that any rank sends to other ranks of its node, and to other
        nodes.
    off_node : Traffic or None
        What all ranks together send to other nodes, as ``off_node()`` of plans counts it; None if
        not all ranks were counted.
    seconds : float
        Predicted time of the messages.
    """

    operation: str
    near: Traffic
    far: Traffic
    off_node: Traffic | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process grid and its predicted costs.

    Parameters
    ----------
    decomp, grid : tuple of int
        For `pencils.Pencil`.
    imbalance : float
        Points of the largest block over those of an average one; of the worst layout on the way.
    empty : int
        Ranks without points, in the worst layout on the way.
    memory : int
        Bytes of the rank that needs most: a field with its halo, and what an operation takes
        besides, which is a target, and blocks packed to send and to receive.
    loads : tuple of Load
        One for each operation.
    """

    decomp: tuple[int, ...]
    grid: tuple[int, ...]
    imbalance: float
    empty: int
    memory: int
    loads: tuple[Load, ...]

    @property
    def seconds(self) -> float:
        """Predicted time of all operations, one after another."""
        return sum(load.seconds for load in self.loads)


@dataclass(frozen=True, slots=True)
class Candidates(Sequence[Candidate]):
    """The result of `plan`, best first; ``print`` shows a table.

    Parameters
    ----------
    shape : tuple of int
        Of the fields.
    ranks, per_node : int
        Number of processes, and of those on a node.
    counted : int
        Ranks that were counted for these figures: all of them, but at most 16384.
    links : Links
        The latencies and bandwidths in use.
    found : tuple of Candidate
        The process grids.
    """

    shape: tuple[int, ...]
    ranks: int
    per_node: int
    counted: int
    links: Links
    found: tuple[Candidate, ...]

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        which = "any rank" if self.counted == self.ranks else f"{self.counted} ranks"
        head = f"{shape} points on {self.ranks} ranks, {self.per_node} on a node; most of {which}"
        return f"{head}\n{text_table(self._rows(), left=(0, 1, 5))}\ntimes: {self.links}"

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            (*_HEAD, "operation", "on node", "bytes", "off node", "bytes", "time")
        ]
        for each in self.found:
            about: tuple[str, ...] = (
                " x ".join(map(str, each.grid)),
                ",".join(map(str, each.decomp)),
                f"{each.imbalance:.3f}",
                str(each.empty),
                text_bytes(each.memory),
            )
            for load in each.loads:
                near, far = (
                    (str(traffic.messages), text_bytes(traffic.nbytes))
                    for traffic in (load.near, load.far)
                )
                rows.append((*about, load.operation, *near, *far, text_seconds(load.seconds)))
                about = ("",) * len(about)
        return rows


def plan(
    shape: Sequence[int] | int,
    ranks: int,
    operations: Sequence[str] | str | None = None,
    *,
    per_node: int | None = None,
    dtype: DTypeLike = float,
    decomp: Sequence[int] | int | None = None,
    periodic: bool | Sequence[bool] = False,
    links: Links | None = None,
    most: int = 10,
) -> Candidates:
    """Predict which process grids suit a computation best; local, for any number of ranks.

    Messages and bytes are those of plans that are made on these grids, with method "messages" or
    any other one that sends one message for each pair of ranks. Times are those of messages only,
    without congestion, and without work on the data. Beyond 16384 ranks, as many are counted: the
    first ones, which have the largest blocks, and others at random, the same in each call.

    Parameters
    ----------
    shape : sequence of int
        Global points along each dimension.
    ranks : int
        Number of processes.
    operations : str or sequence of str, optional
        "fft": a forward transform along all dimensions. "halo:2": fill a halo of width 2;
        "halo:2:faces" without corners. "transpose:0,2": move to the pencil that decomposes these
        dimensions. Default: "halo:1" and, for real and complex types, "fft".
    per_node : int, optional
        Ranks on a node, which are consecutive; default: all.
    dtype : dtype, optional
        Element type.
    decomp : sequence of int, optional
        Decomposed dimensions; default: the first one, the first two, and so on, are compared.
    periodic : bool or sequence of bool, optional
        Whether dimensions wrap around.
    links : Links, optional
        Latencies and bandwidths; default: those of a usual cluster, which ``print`` shows.
    most : int, optional
        Candidates to return.

    Returns
    -------
    Candidates
        A sequence of `Candidate`, the fastest first.

    Raises
    ------
    ArgumentError, TypeError
        If an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> best = pencils.plan((256, 256, 256), 64, ["fft", "halo:1"], per_node=8)[0]
    >>> best.grid, best.empty, best.loads[0].near.messages
    ((64,), 0, 7)
    """
    size = as_int("ranks", ranks, least=1)
    on_node = size if per_node is None else as_int("per_node", per_node, least=1)
    element, used = as_dtype(dtype), links or Links()
    if operations is None:
        operations = ["halo:1", "fft"] if element.kind in "fc" else "halo:1"
    texts = [operations] if isinstance(operations, str) else list(operations)
    wanted = [as_operation(text) for text in texts]
    count = as_int("most", most, least=1)
    if not wanted:
        raise ArgumentError("operations must name one or more; for example ['fft', 'halo:1']")
    if "fft" in texts and element.kind not in "fc":
        raise ArgumentError(f"dtype {element} cannot be transformed; use a real or complex type")
    layouts = _layouts(shape, size, decomp, periodic)
    if prod(layouts[0].shape) * element.itemsize > _MOST_BYTES:
        raise ArgumentError(f"fields of shape {layouts[0].shape} have more than 2**56 bytes")
    task = _Task(wanted, element, on_node, used)
    best = sorted((task.judge(each, _ranks(size, _SAMPLE)) for each in layouts), key=_order)[:count]
    ranks_counted = _ranks(size, _COUNTED)
    if size > _SAMPLE:
        by_grid = {(layout.decomp, layout.grid.shape): layout for layout in layouts}
        best = [task.judge(by_grid[each.decomp, each.grid], ranks_counted) for each in best]
        best.sort(key=_order)
    return Candidates(layouts[0].shape, size, on_node, len(ranks_counted), used, tuple(best))


def _ranks(size: int, most: int) -> Ints:
    """Choose the ranks to count: all, or the first ones and some others."""
    if size <= most:
        return np.arange(size)
    others = np.random.default_rng(most).integers(0, size, most // 2)
    return np.unique(np.concatenate([np.arange(most // 2), others]))


def _order(candidate: Candidate) -> tuple[float, ...]:
    return candidate.seconds, candidate.empty, candidate.imbalance, candidate.memory


def _layouts(
    shape: Sequence[int] | int,
    ranks: int,
    decomp: Sequence[int] | int | None,
    periodic: bool | Sequence[bool],  # noqa: FBT001 - as the argument of plan()
) -> list[Layout]:
    """List the layouts to compare; of too many those with the fewest empty ranks and cuts."""
    extents = as_ints("shape", shape)
    if 0 in extents:
        raise ArgumentError(f"shape={extents} has no points to plan for")
    every = [tuple(range(count)) for count in range(1, len(extents) + 1)]
    chosen = every if decomp is None else [as_dims("decomp", decomp, len(extents))]
    grids = [
        (dims, grid)
        for dims in chosen
        for grid in factorizations(ranks, (0,) * len(dims))
        if decomp is not None or len(dims) == 1 or 1 not in grid
    ]

    def cost(case: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[int, float]:
        dims, grid = case
        pairs = [(extents[dim], parts) for dim, parts in zip(dims, grid, strict=False)]
        return -prod(min(pair) for pair in pairs), sum((parts - 1) / n for n, parts in pairs)

    some = sorted(grids, key=cost)[:_MOST_GRIDS]
    return [
        build_layout(extents, ranks, decomp=dims, grid=grid, periodic=periodic)
        for dims, grid in some
    ]


class _Task(NamedTuple):
    """What is to be done on each process grid."""

    operations: Sequence[Operation]
    dtype: np.dtype[np.generic]
    per_node: int
    links: Links

    def judge(self, layout: Layout, ranks: Ints) -> Candidate:
        """Count what ranks do; of some ranks, sums are too small, and maxima may be."""
        width = max(operation.width for operation in self.operations)
        memories, loads = [np.zeros_like(ranks)], []
        passed = {layout}
        for operation in self.operations:
            moved: list[Ints] = [np.zeros((2, len(ranks)), np.int64) for _ in range(2)]
            seconds = 0.0
            for move in operation.moves(layout, self.dtype):
                counts = move.sent(ranks, self.per_node)
                scale = np.array([[1], [move.itemsize]])
                near, far = counts.near * scale, counts.far * scale
                seconds += self._seconds(near, far, layout.size)
                memories.append(move.memory(ranks, counts))
                moved = [moved[0] + near, moved[1] + far]
                passed.update(each for each in move if isinstance(each, Layout))
            most, off = (Traffic(*part.max(-1).tolist()) for part in moved)
            complete = len(ranks) == layout.size
            total = Traffic(*moved[1].sum(-1).tolist()) if complete else None
            loads.append(Load(operation.text, most, off, total, seconds))
        field = volumes(layout, ranks, width) * self.dtype.itemsize
        return Candidate(
            layout.decomp,
            layout.grid.shape,
            max(map(_imbalance, passed)),
            max(each.size - prod(split.filled for split in each.splits) for each in passed),
            int((field + np.max(memories, 0)).max()),
            tuple(loads),
        )

    def _seconds(self, near: Ints, far: Ints, size: int) -> float:
        """Return the time of the slowest rank; the ranks of a node share its bandwidth."""
        links, sharing = self.links, min(self.per_node, size)
        times = (
            near[0] * links.node_latency
            + near[1] / links.node_bandwidth
            + far[0] * links.latency
            + far[1] * sharing / links.bandwidth
        )
        return float(times.max())


def _imbalance(layout: Layout) -> float:
    largest = prod(split.longest for split in layout.splits)
    return largest * layout.size / prod(layout.shape)
