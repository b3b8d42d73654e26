"""Functions that move points along axes, with the signatures of NumPy. All are *Collective*.

Each point is sent once, in one exchange, to the rank that has its new place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
from pencils.array.operands import FieldSpec, check_field, signature, topology_among
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange, PreparedExchange
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.errors import ArgumentError
from pencils.functions.arguments import Line, one_axis
from pencils.layout.integers import as_dims, as_ints
from pencils.layout.split import Split
from pencils.plans import Agreement, kept_plan, kept_plans, plan_buffers, prepare_together


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


# The mapping of each axis that has one; points stay where they are along all others.
Mappings = dict[int, Mapping]


def fetch_boxes(
    call: str,
    u: Field,
    plan: Callable[[Agreement], Sequence[Mappings]],
    prepare: Callable[[Sequence[Array]], None] = lambda _: None,
) -> tuple[Array, ...]:
    """Agree on a call of a function, and move parts of a field. *Collective*.

    Parameters
    ----------
    call : str
        Name of the function.
    u : PencilArray
        The field, which is checked here.
    plan : callable
        Checks the other arguments, records what all ranks must agree on, and returns the mappings
        of each array to be filled; may be called twice.
    prepare : callable, optional
        Allocates what will be needed to use the arrays, which are not yet filled: so far all ranks
        raise if one of them has no memory. May be called twice.

    Returns
    -------
    tuple of ndarray
        New arrays, contiguous in the memory order of the pencil.
    """
    topology = topology_among(u)
    key: object = None
    moves: list[Mappings] = []

    def bind(agree: Agreement) -> tuple[PreparedExchange, list[Array]] | None:
        nonlocal key, moves
        check_field("a", u)
        agree(**signature(u))
        moves = list(plan(agree))
        axes = tuple(tuple(sorted(each.items())) for each in moves)
        key = "boxes", u.pencil, FieldSpec.of(u), axes
        exchange: Exchange | None = kept_plans(topology).get(key)
        if exchange is None:
            return None
        targets = [_target(u, each) for each in moves]
        order = memory_axes(u.pencil.order, len(u.components))
        sources = [_source(u, each).transpose(order) for each in moves]
        prepared = exchange.prepare(
            sources, [target.transpose(order) for target in targets], disjoint=True
        )
        prepared.reserve()
        prepare(targets)
        return prepared, targets

    def make_missing() -> None:
        kept_plan(topology, key, lambda: _exchange(u, moves))

    prepared, targets = prepare_together(agreed(topology.comm, call), bind, make_missing)
    kept_plans(topology).move_to_end(key)
    prepared.run()
    return tuple(targets)


class Computation(NamedTuple):
    """What a rank computes from arrays once they are filled."""

    runs: Sequence[Callable[[], object]]
    reserved: bool  # whether it needs no more memory; the same on all ranks


def fetch_and_compute(
    call: str,
    u: Field,
    plan: Callable[[Agreement], Sequence[Mappings]],
    prepare: Callable[[Sequence[Array]], Computation],
) -> None:
    """Do what `fetch_boxes` does, and compute from the arrays by `prepare`. *Collective*."""
    computation = Computation((), reserved=True)

    def prepare_and_keep(arrays: Sequence[Array]) -> None:
        nonlocal computation
        computation = prepare(arrays)

    fetch_boxes(call, u, plan, prepare_and_keep)
    with nullcontext() if computation.reserved else agreed(u.pencil.topology.comm, call):
        for run in computation.runs:
            run()


def _exchange(u: Field, moves: Sequence[Mappings]) -> Exchange:
    """Make the exchange. *Collective*."""
    topology = u.pencil.topology
    specs = [MessageSpec(*_blocks(u, each), (), u.dtype) for each in moves]
    return Exchange(topology, specs, axes=u.ndim, buffers=plan_buffers(topology))


class _Side(NamedTuple):
    """Pieces along each axis, and the steps in rank to other parts."""

    pieces: list[list[Piece]]
    lines: list[Line]

    def blocks(self, rank: int) -> list[MessageBlock]:
        """All boxes of pieces."""
        found = []
        for box in product(*self.pieces):
            steps = zip(box, self.lines, strict=True)
            peer = rank + sum((piece.part - line.part) * line.stride for piece, line in steps)
            key = tuple(slice(piece.here, piece.here + piece.points) for piece in box)
            found.append(MessageBlock(peer, key, tuple(piece.there for piece in box)))
        return found


def _blocks(u: Field, mappings: Mappings) -> tuple[list[MessageBlock], list[MessageBlock]]:
    """List what this rank sends and receives, axes in the memory order of the pencil."""
    order = memory_axes(u.pencil.order, len(u.components))
    lines = [Line.of(u, axis) for axis in order]
    along = [mappings.get(axis, Rolled()) for axis in order]
    pairs = list(zip(along, lines, strict=True))
    sends = _Side([mapping.sends(line) for mapping, line in pairs], lines)
    recvs = _Side([mapping.recvs(line) for mapping, line in pairs], lines)
    return sends.blocks(u.pencil.rank), recvs.blocks(u.pencil.rank)


def _source(u: Field, mappings: Mappings) -> Array:
    """Own block, in reverse order along axes that are flipped."""
    flipped = [isinstance(mappings.get(axis), Flipped) for axis in range(u.ndim)]
    key: Any = tuple(slice(None, None, -1 if each else None) for each in flipped)
    block: Array = u.local[key]
    return block


def _target(u: Field, mappings: Mappings) -> Array:
    """Allocate the array to be filled."""
    shape = list(u.local_shape)
    for axis, mapping in mappings.items():
        shape[axis] = mapping.extent(Line.of(u, axis))
    return u.frame.make(tuple(shape), u.dtype)


def roll(a: Field, shift: Any, axis: int | Sequence[int] | None = None) -> Field:
    """Move points along axes, those at the end to the beginning, as `numpy.roll`. *Collective*.

    One message to each rank that has new places of own points; where the axis is not cut, points
    are copied on their rank. `u.shift` is faster for short ways in loops.

    Parameters
    ----------
    a : PencilArray
        The field. Whether the pencil is periodic does not matter.
    shift : int or sequence of int
        Points by which each axis is moved.
    axis : int or sequence of int, optional
        Axes of the global shape; may be left out if there is only one.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis, or there are more shifts than axes.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 10 * x + y)
    >>> np.roll(u, 1, axis=0).local[:, 0]
    array([30,  0, 10, 20])
    """

    def plan(agree: Agreement) -> list[Mappings]:
        axes = [one_axis("roll", a, None)] if axis is None else as_ints("axis", axis)
        numbers = [as_dims("axis", each, a.ndim)[0] for each in axes]
        pairs = np.broadcast(shift, numbers)
        if pairs.ndim > 1:
            raise ArgumentError(f"shift={shift} must be an integer, or a sequence of them")
        shifts: dict[int, int] = {}
        for step, number in pairs:
            shifts[number] = shifts.get(number, 0) + int(step)
        agree(shifts=shifts)
        return [{number: Rolled(step % max(1, a.shape[number])) for number, step in shifts.items()}]

    return _moved("roll", a, plan)


def flip(m: Field, axis: int | Sequence[int] | None = None) -> Field:
    """Reverse the order of points along axes, as `numpy.flip`. *Collective*.

    One message to each rank that has new places of own points; where the axis is not cut, points
    are copied on their rank.

    Parameters
    ----------
    m : PencilArray
        The field.
    axis : int or sequence of int, optional
        Axes of the global shape; default: all, components included.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo; not a view as in NumPy.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 10 * x + y)
    >>> np.flip(u, axis=0).local[:, 0]
    array([30, 20, 10,  0])
    """

    def plan(agree: Agreement) -> list[Mappings]:
        axes = range(m.ndim) if axis is None else sorted(as_dims("axis", axis, m.ndim))
        agree(axis=axes)
        return [dict.fromkeys(axes, Flipped())]

    return _moved("flip", m, plan)


def fliplr(m: Field) -> Field:
    """Reverse the order of points along axis 1, as `numpy.fliplr`. *Collective*."""
    return flip(m, 1)


def flipud(m: Field) -> Field:
    """Reverse the order of points along axis 0, as `numpy.flipud`. *Collective*."""
    return flip(m, 0)


def _moved(call: str, u: Field, plan: Callable[[Agreement], list[Mappings]]) -> Field:
    (block,) = fetch_boxes(call, u, plan)
    return u.in_frame(u.pencil, u.frame.bare, block)
