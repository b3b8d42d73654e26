"""What a halo exchange does, step by step; the adjoint does the same steps in reverse.

1. Copy the ghosts that stay on this rank: periodic dimensions that are not decomposed. They come
   first, so that the messages include them, in long runs of memory.
2. For each phase: send own points to the ranks that need them, receive ghosts.

Small exchanges within a node (`pencils.comm.methods.pull`) do it the other way round, because
nothing may change before all ranks have agreed: ghosts of other ranks come first.

The adjoint adds ghosts to the points they are copies of, then sets them to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array, Widths, memory_axes
from pencils.array.pencil_array import PencilArray
from pencils.comm import memory
from pencils.comm.exchange import AUTO, Exchange, Handle, PreparedExchange
from pencils.comm.methods.pull import MOST_STAGED, PreparedPull, Pull
from pencils.comm.pack import (
    MessageBlock,
    MessageSpec,
    no_op,
    prepare_additions,
    prepare_copies,
)
from pencils.comm.recording import timed
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology
from pencils.layout import Box, Layout, halo_room
from pencils.layout import halo as layout_halo
from pencils.layout.halo import HaloMessage
from pencils.layout.halo import Round as Phase


class HaloByPhases:
    """Copies of this rank, and an exchange for each phase, with the steps of `PreparedExchange`."""

    def __init__(
        self,
        topology: Topology,
        phases: Sequence[PreparedExchange],
        *,
        before: Callable[[], None] = no_op,
        after: Callable[[], None] = no_op,
    ) -> None:
        self.topology = topology
        self._before = before
        self._after = after
        self._phases = phases
        self._first, *self._others = phases
        self._most = max(phase.nbytes for phase in phases) if self._others else 0

    def reserve(self) -> None:
        """Allocate what the next call needs."""
        if self._most:
            # Two buffers that are large enough for all phases, before one takes smaller ones.
            buffers = self._first.exchange.buffers
            for buffer in [buffers.take(self._most) for _ in range(2)]:
                buffers.give(buffer)
        for phase in self._phases:
            phase.reserve()

    def pack(self) -> None:
        """Do nothing: ghosts are packed while they are sent."""

    def run(self) -> None:
        """Complete older exchanges, and do all steps. *Collective*."""
        self.topology.complete()
        timed("copy", self._before)
        self._first.move()
        self._after_first()

    run_agreed = run

    def start(self, result: None) -> Handle[None]:
        """Start the first phase; the others follow when it is complete. *Collective*."""
        timed("copy", self._before)
        return self._first.start(result, self._after_first)

    def _after_first(self) -> None:
        for phase in self._others:
            phase.move()
        timed("copy", self._after)


# An exchange of ghosts of given fields, prepared.
PreparedHalo: TypeAlias = PreparedPull | HaloByPhases


def make_ready(halo: PreparedHalo) -> None:
    """Do what comes before the agreement on a call; local. No ghost changes."""
    halo.reserve()
    halo.pack()


Key = tuple[slice, ...]

# Bytes of a padded block whose periodic copies are made at once; the lines touched are fewer.
SLAB = 2**20
ROUTES = {"direct": layout_halo.direct, "sweeps": layout_halo.sweeps}


class HaloSpec(NamedTuple):
    """What a plan depends on of each field it exchanges."""

    layout: Layout  # of the pencil
    singletons: frozenset[int]
    halo: Widths
    trimmed: frozenset[int]
    components: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @classmethod
    def of(cls, u: PencilArray) -> HaloSpec:
        """Return the spec of a field."""
        return cls(u.pencil.layout, u.singletons, u.halo, u.trimmed, u.components, u.dtype)

    def __str__(self) -> str:
        text = f"{self.dtype}"
        text += f" components {self.components}" if self.components else ""
        text += f" singleton along {sorted(self.singletons)}" if self.singletons else ""
        text += f" halo {self.halo}"
        return text + (f" trimmed along {sorted(self.trimmed)}" if self.trimmed else "")


class HaloOptions(NamedTuple):
    """How fields are exchanged."""

    corners: bool
    route: str  # a key of `ROUTES`, or "auto" or "measure"
    method: str
    private: bool  # whether any field is not in memory that other ranks of the node can read


class PaddedBlock:
    """The padded block of a rank, and the slices of it that are exchanged, in memory order."""

    def __init__(self, spec: HaloSpec, rank: int, *, contiguous: bool) -> None:
        self._mark_contiguous = contiguous  # large runs are better sent by messages of their own
        # Along trimmed dimensions there is no room for ghosts across the periodic boundary.
        self._layout = spec.layout.with_singletons(spec.singletons).without_wrapping(spec.trimmed)
        self._spec = spec
        self._rank = rank
        self._messages: dict[Phase, tuple[list[HaloMessage], list[HaloMessage]]] = {}

    def local_phases(self, *, corners: bool, last: bool) -> list[Phase]:
        """List the phases without messages, the same for all ranks; after those with, or before.

        The slowest dimension comes last, so that the others can be copied slab by slab.
        """
        order, parts = self._layout.order, self._layout.process_shape
        dims = [dim for dim in reversed(order) if parts[dim] == 1]
        reached = [dim for dim in order if parts[dim] > 1] if last else []
        return layout_halo.sweeps(dims, reached) if corners else layout_halo.star(dims)

    def local_copies(self, phase: Phase) -> list[tuple[Key, Key]]:
        """List ghosts, and the points of this block that they are copies of."""
        arriving = self._messages_of(phase)[1]
        return [(self._here(g.box), self._here(g.box.shift(g.wrap))) for g in arriving]

    def ghosts(self, phase: Phase) -> list[Key]:
        """List the ghosts that a phase fills."""
        return [self._here(g.box) for g in self._messages_of(phase)[1]]

    def message_spec(self, phase: Phase, *, adjoint: bool) -> MessageSpec:
        """List what a phase sends and receives of this block."""
        sends, recvs = self._messages_of(phase)
        owned = [self._block(g.dest, g.box.shift(g.wrap), g.box) for g in sends]
        filled = [self._block(g.source, g.box, g.box.shift(g.wrap)) for g in recvs]
        away, home = (filled, owned) if adjoint else (owned, filled)
        return MessageSpec(away, home, self._spec.components, self._spec.dtype)

    def _messages_of(self, phase: Phase) -> tuple[list[HaloMessage], list[HaloMessage]]:
        if phase not in self._messages:
            found = layout_halo.exchange(self._layout, self._spec.halo, self._rank, phase)
            self._messages[phase] = found
        return self._messages[phase]

    def _block(self, peer: int, here: Box, there: Box) -> MessageBlock:
        """Make a message block, whose points have other global indices on the peer."""
        contiguous = self._mark_contiguous and all(
            self._is_large_run(here.shape, rank) for rank in (self._rank, peer)
        )
        start = tuple(part.start for part in self._slices(there, peer))
        return MessageBlock(peer, self._here(here), start, contiguous=contiguous)

    def _is_large_run(self, shape: Sequence[int], rank: int) -> bool:
        """Whether part of the block of a rank is one large contiguous run of memory."""
        spec, layout = self._spec, self._layout
        if spec.dtype.itemsize * prod(shape) < memory.ALONE or prod(spec.components) != 1:
            return False
        whole = self._padded(rank).shape
        return is_run([shape[dim] for dim in layout.order], [whole[dim] for dim in layout.order])

    def _here(self, box: Box) -> Key:
        return self._slices(box, self._rank)

    def _slices(self, box: Box, rank: int) -> Key:
        """Index the padded block of a rank for a box of global indices."""
        slices = box.slices(self._padded(rank).start)
        return tuple(slices[dim] for dim in self._layout.order)

    def _padded(self, rank: int) -> Box:
        """Return the padded block of a rank, in global indices."""
        own, spec = self._layout.box(rank), self._spec
        return own.grow(halo_room(own, self._layout.shape, spec.halo, spec.trimmed))


class HaloSchedule:
    """The steps for fields of given specs; in reverse if `adjoint`. Making one is *Collective*.

    `meets`: all ranks may meet in each call, so that small exchanges are pulled.
    """

    def __init__(
        self,
        topology: Topology,
        specs: Sequence[HaloSpec],
        options: HaloOptions,
        buffers: Buffers,
        *,
        adjoint: bool = False,
        meets: bool = True,
    ) -> None:
        self._specs = specs
        self._adjoint = adjoint
        self._topology = topology
        contiguous = options.private and options.method == AUTO
        self._blocks = [PaddedBlock(spec, topology.rank, contiguous=contiguous) for spec in specs]
        self._corners = options.corners
        self.exchanges: list[Exchange] = []
        self.pull = None
        usual = options.method == AUTO and options.route != "sweeps"
        # An estimate that is the same on all ranks, before they tell each other what is exact.
        small = sum(map(ghost_bytes, specs)) <= 2 * MOST_STAGED
        if usual and meets and small and not adjoint:
            (phase,) = message_phases(specs[0].layout, None, corners=options.corners)
            self.pull = Pull.find(topology, self._message_specs(phase))
        far = message_phases(specs[0].layout, options.route, corners=options.corners)
        local = self._local_phases()
        self._local = [
            [pair for phase in phases for pair in block.local_copies(phase)]
            for block, phases in zip(self._blocks, local, strict=True)
        ]
        self._ghosts = [
            [key for phase in (*phases, *far) for key in block.ghosts(phase)] if adjoint else []
            for block, phases in zip(self._blocks, local, strict=True)
        ]
        if self.pull is None:
            # Ranks that wait for their neighbours only need not all get a core in turn.
            crowded = usual and options.private and topology.crowded
            self.exchanges = [
                Exchange(
                    topology,
                    self._message_specs(phase),
                    axes=specs[0].layout.ndim,
                    method="messages" if crowded else options.method,
                    buffers=buffers,
                    unpack=prepare_additions if adjoint else prepare_copies,
                )
                for phase in (reversed(far) if adjoint else far)
            ]

    def _message_specs(self, phase: Phase) -> list[MessageSpec]:
        return [block.message_spec(phase, adjoint=self._adjoint) for block in self._blocks]

    def _local_phases(self) -> list[list[Phase]]:
        last = self.pull is not None
        return [block.local_phases(corners=self._corners, last=last) for block in self._blocks]

    def bind(self, blocks: Sequence[Array]) -> PreparedHalo:
        """Prepare the steps for padded blocks, in logical order; local."""
        arrays = [
            block.transpose(memory_axes(spec.layout.order, len(spec.components)))
            for spec, block in zip(self._specs, blocks, strict=True)
        ]
        pairs = [
            (_part(array, into), _part(array, out))
            for spec, array, keys in zip(self._specs, arrays, self._local, strict=True)
            for into, out in by_slabs(keys, array, len(spec.components))
        ]
        if self.pull is not None:
            return self.pull.prepare(arrays, arrays, after=pairs)
        phases = [exchange.prepare(arrays, arrays, disjoint=True) for exchange in self.exchanges]
        if not self._adjoint:
            return HaloByPhases(self._topology, phases, before=prepare_copies(pairs))
        filled = zip(arrays, self._ghosts, strict=True)
        cleared = [_part(array, key) for array, keys in filled for key in keys]
        add = prepare_additions([(out, into) for into, out in reversed(pairs)])

        def add_and_clear() -> None:
            add()
            for ghosts in cleared:
                ghosts[...] = 0

        return HaloByPhases(self._topology, phases, after=add_and_clear)

    @property
    def method(self) -> str:
        """How data move between ranks; phases along different dimensions may differ."""
        if self.pull is not None:
            return Pull.name
        return " and ".join(dict.fromkeys(exchange.method for exchange in self.exchanges))

    def free(self) -> None:
        """Release what the exchanges hold. *Collective* if anything is under way."""
        for exchange in self.exchanges:
            exchange.free()


def message_phases(layout: Layout, route: str | None, *, corners: bool) -> list[Phase]:
    """List the phases between ranks for fields of a pencil; there is at least one.

    Without a route, there is one phase, which sends own points only.
    """
    local = [dim for dim in range(layout.ndim) if layout.process_shape[dim] == 1]
    decomposed = [dim for dim in range(layout.ndim) if dim not in local]
    if not corners:
        return layout_halo.star(decomposed)
    if route is None:
        return layout_halo.direct(decomposed) or [()]
    return ROUTES[route](decomposed, local) or [()]


def ghost_bytes(spec: HaloSpec) -> int:
    """Bytes of the ghosts of the first rank that may be points of others."""
    layout, shape = spec.layout, spec.layout.box(0).shape
    whole = [
        n + (sum(width) if parts > 1 else 0)
        for n, width, parts in zip(shape, spec.halo, layout.process_shape, strict=True)
    ]
    return (prod(whole) - prod(shape)) * spec.dtype.itemsize * prod(spec.components)


def is_run(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether part of a block is contiguous: whole along all axes faster than its first one.

    Examples
    --------
    >>> is_run((1, 2, 8), (4, 4, 8)), is_run((2, 2, 8), (4, 4, 8))
    (True, False)
    """
    full = True
    for points, every in zip(reversed(shape), reversed(whole), strict=True):
        if not full and points != 1:
            return False
        full = full and points == every
    return True


def by_slabs(pairs: Sequence[tuple[Key, Key]], array: Array, axis: int) -> list[tuple[Key, Key]]:
    """Cut copies along the slowest dimension, so that each line is still in cache for the next one.

    Each pair is a target and a source in `array`, whose slowest dimension is `axis`. Copies along
    that dimension stay whole and come last. Without copies along the fastest one, nothing is cut.
    """
    along = [pair for pair in pairs if pair[0][0] == pair[1][0]]
    if all(into[-1] == out[-1] for into, out in along):
        return list(pairs)
    across = [pair for pair in pairs if pair[0][0] != pair[1][0]]
    whole, rows = along[0][0][0], max(1, SLAB * array.shape[axis] // max(1, array.nbytes))
    slabs = [slice(i, min(i + rows, whole.stop)) for i in range(whole.start, whole.stop, rows)]
    cut = [((slab, *into[1:]), (slab, *out[1:])) for slab in slabs for into, out in along]
    return cut + across


def _part(array: Array, key: Key) -> Array:
    """Index the last axes."""
    every: Any = (..., *key)
    return np.asarray(array[every])
