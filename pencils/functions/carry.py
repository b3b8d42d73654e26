"""Moves of boxes of the own block to arrays of other ranks, by one exchange; plans are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import product
from typing import Any, NamedTuple

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
from pencils.array.operands import FieldSpec, check_field, signature, topology_among
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange, PreparedExchange
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.functions.axes import Line
from pencils.functions.mappings import Flipped, Mapping, Piece, Rolled
from pencils.plans import Agreement, kept_plan, kept_plans, plan_buffers, prepare_together

# The mapping of each axis that has one; points stay where they are along all others.
Mappings = dict[int, Mapping]


def carry(
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
        key = "carry", u.pencil, FieldSpec.of(u), axes
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

    def set_up() -> None:
        kept_plan(topology, key, lambda: _exchange(u, moves))

    prepared, targets = prepare_together(agreed(topology.comm, call), bind, set_up)
    kept_plans(topology).move_to_end(key)
    prepared.run()
    return tuple(targets)


class Computation(NamedTuple):
    """What a rank computes from arrays once they are filled."""

    runs: Sequence[Callable[[], object]]
    reserved: bool  # whether it needs no more memory; the same on all ranks


def carry_and_compute(
    call: str,
    u: Field,
    plan: Callable[[Agreement], Sequence[Mappings]],
    prepare: Callable[[Sequence[Array]], Computation],
) -> None:
    """Do what `carry` does, and compute from the arrays what `prepare` returns. *Collective*."""
    computation = Computation((), reserved=True)

    def prepare_and_keep(arrays: Sequence[Array]) -> None:
        nonlocal computation
        computation = prepare(arrays)

    carry(call, u, plan, prepare_and_keep)
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
