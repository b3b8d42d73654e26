"""What a halo exchange does, step by step: local copies, then rounds between ranks; or backwards.

Dimensions that are not decomposed are wrapped around first, so that what travels afterwards takes
their ghosts along, in long runs of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pencils.array.allocation import Array
from pencils.comm.buffers import Buffers
from pencils.comm.exchange import Bound, Exchange, Handle
from pencils.comm.methods import nothing
from pencils.comm.pack import Additions, Copies
from pencils.comm.topology import Topology
from pencils.halo.block import Block, HaloKind, Key, by_slabs, slab_rows
from pencils.layout import Layout
from pencils.layout import halo as layout_halo
from pencils.layout.halo import Round

T = TypeVar("T")

ROUTES = {"direct": layout_halo.direct, "sweeps": layout_halo.sweeps}


def far_rounds(layout: Layout, route: str, *, corners: bool) -> list[Round]:
    """List the rounds between ranks for fields of a pencil; there is at least one."""
    local = [dim for dim in range(layout.ndim) if layout.process_shape[dim] == 1]
    far = [dim for dim in range(layout.ndim) if dim not in local]
    return (ROUTES[route](far, local) or [()]) if corners else layout_halo.star(far)


class Rounds:
    """The steps for fields of some kinds. Making them is *Collective*.

    Parameters
    ----------
    topology : Topology
        The ranks.
    kinds : sequence of HaloKind
        Of each field.
    far : sequence of Round
        What comes after what between ranks.
    corners : bool
        Whether ghosts beyond several dimensions are filled.
    method : str
        How data travel between ranks.
    buffers : Buffers
        Where to take memory from.
    straight : bool
        Whether messages are better for large contiguous pieces than shared memory.
    backwards : bool
        Whether ghosts are added to the points they are copies of, last round first.
    """

    def __init__(
        self,
        topology: Topology,
        kinds: Sequence[HaloKind],
        *,
        far: Sequence[Round],
        corners: bool,
        method: str,
        buffers: Buffers,
        straight: bool,
        backwards: bool,
    ) -> None:
        self._kinds = kinds
        self._backwards = backwards
        self._topology = topology
        blocks = [Block(kind, topology.rank, straight=straight) for kind in kinds]
        local = [block.local_rounds(corners=corners) for block in blocks]
        self._local = [
            [pair for faces in rounds for pair in block.pairs(faces)]
            for block, rounds in zip(blocks, local, strict=True)
        ]
        self._ghosts: list[list[Key]] = []
        if backwards:
            self._ghosts = [
                [key for faces in (*rounds, *far) for key in block.ghost_keys(faces)]
                for block, rounds in zip(blocks, local, strict=True)
            ]
        self.exchanges = [
            Exchange(
                topology,
                [block.cargo(faces, backwards=backwards) for block in blocks],
                axes=kinds[0].layout.ndim,
                method=method,
                buffers=buffers,
                arrive=Additions if backwards else Copies,
            )
            for faces in (reversed(far) if backwards else far)
        ]

    def bind(self, blocks: Sequence[Array]) -> BoundRounds:
        """Prepare the steps for padded blocks, in logical order; local."""
        arrays = [kind.arranged(block) for kind, block in zip(self._kinds, blocks, strict=True)]
        local = zip(self._kinds, arrays, self._local, strict=True)
        pairs = [
            (_part(array, into), _part(array, out))
            for kind, array, keys in local
            for into, out in by_slabs(keys, slab_rows(array, len(kind.components)))
        ]
        far = [exchange.bind(arrays, arrays, disjoint=True) for exchange in self.exchanges]
        if not self._backwards:
            return BoundRounds(self._topology, far, before=Copies(pairs))
        filled = zip(arrays, self._ghosts, strict=True)
        cleared = [_part(a, key) for a, keys in filled for key in keys]
        add = Additions([(out, into) for into, out in reversed(pairs)])
        return BoundRounds(self._topology, far, after=lambda: _settle(add, cleared))

    @property
    def method(self) -> str:
        """How data travel between ranks; sweeps along different dimensions may differ."""
        return " and ".join(dict.fromkeys(exchange.method for exchange in self.exchanges))

    def free(self) -> None:
        """Release what the exchanges hold. *Collective* if anything is under way."""
        for exchange in self.exchanges:
            exchange.free()


class BoundRounds:
    """The steps and the fields they work on."""

    def __init__(
        self,
        topology: Topology,
        far: Sequence[Bound],
        *,
        before: Callable[[], None] = nothing,
        after: Callable[[], None] = nothing,
    ) -> None:
        self._topology = topology
        self._before = before
        self._after = after
        self._first, *self._others = far

    def reserve(self) -> None:
        """Allocate what the next call needs, unless a thread is at work here; local."""
        if self._topology.worker is None:
            every = (self._first, *self._others)
            # Two buffers that are large enough for all rounds, before one takes smaller ones.
            buffers, most = self._first.exchange.buffers, max(bound.nbytes for bound in every)
            for buffer in [buffers.take(most) for _ in range(2 if most and self._others else 0)]:
                buffers.give(buffer)
            for bound in every:
                bound.reserve()

    def run(self) -> None:
        """Do all steps. *Collective*."""
        self._topology.complete()
        self._move()

    def _move(self) -> None:
        """Do all steps; nothing else is under way. *Collective*."""
        self._before()
        self._first.move()
        self._finish()

    def start(self, result: T) -> Handle[T]:
        """Start; the fields may be read, not written, before ``wait`` is called. *Collective*."""
        worker = self._topology.worker
        if worker is not None:
            self._topology.complete()  # one after the other
            return Handle(self._first.exchange, worker.submit(self._move).result, result)
        self._before()
        return self._first.start(result, self._finish)

    def _finish(self) -> None:
        for bound in self._others:
            bound.move()
        self._after()


def _part(array: Array, key: Key) -> Array:
    """Index the last axes."""
    every: Any = (..., *key)
    part: Array = array[every]
    return part


def _settle(add: Additions, cleared: Sequence[Array]) -> None:
    """Add ghosts whose points are here, and leave none behind."""
    add()
    for ghost in cleared:
        ghost[...] = 0
