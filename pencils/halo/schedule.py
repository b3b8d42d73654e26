"""The steps of a halo exchange; the adjoint does the same steps in reverse.

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
from pencils.comm.pack import MessageBlock, MessageSpec, no_op, prepare_additions, prepare_copies
from pencils.comm.recording import timed
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology
from pencils.layout import Box, Layout, halo_room
from pencils.layout import halo as layout_halo
from pencils.layout.halo import Round as Phase

Key = tuple[slice, ...]

# Bytes of a padded block whose periodic copies are made at once; the lines touched are fewer.
SLAB = 2**20
# Bytes of ghosts that are packed although other ranks can read the fields in place: one more
# synchronization takes as long as to copy them twice.
MOST_COPIED = 2**16
ROUTES = {"direct": layout_halo.direct, "sweeps": layout_halo.sweeps}


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
        self._before, self._after = before, after
        self._phases = phases

    def reserve(self) -> None:
        """Allocate what the next call needs."""
        if len(self._phases) > 1:
            # Two buffers that are large enough for all phases, before one takes smaller ones.
            buffers = self._phases[0].exchange.buffers
            most = max(phase.nbytes for phase in self._phases)
            for buffer in [buffers.take(most) for _ in range(2)] if most else ():
                buffers.give(buffer)
        for phase in self._phases:
            phase.reserve()

    def pack(self) -> None:
        """Do nothing: ghosts are packed while they are sent."""

    def run(self) -> None:
        """Complete older exchanges, and do all steps. *Collective*."""
        self.topology.complete()
        timed("copy", self._before)
        self._phases[0].move()
        self._finish()

    run_agreed = run

    def start(self, result: None) -> Handle[None]:
        """Start the first phase; the others follow when it is complete. *Collective*."""
        timed("copy", self._before)
        return self._phases[0].start(result, self._finish)

    def _finish(self) -> None:
        for phase in self._phases[1:]:
            phase.move()
        timed("copy", self._after)


# An exchange of ghosts of given fields, prepared.
PreparedHalo: TypeAlias = PreparedPull | HaloByPhases


def make_ready(halo: PreparedHalo) -> None:
    """Do what comes before the agreement on a call; local. No ghost changes."""
    halo.reserve()
    halo.pack()


class GhostCopy(NamedTuple):
    """Ghosts of rank `dest` that are copies of `points` of rank `source`, maybe the same rank.

    Both are slices of the padded blocks of these ranks, in memory order.
    """

    source: int
    points: Key
    dest: int
    ghosts: Key


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

    def copies(self, rank: int, phase: Phase) -> tuple[list[GhostCopy], list[GhostCopy]]:
        """List the ghosts that points of a rank go to in a phase, and those that it gets."""
        # Along trimmed dimensions there is no room for ghosts across the periodic boundary.
        layout = self.layout.with_singletons(self.singletons).without_wrapping(self.trimmed)

        def key(box: Box, owner: int) -> Key:
            own = layout.box(owner)
            room = halo_room(own, layout.shape, self.halo, self.trimmed)
            slices = box.slices(own.grow(room).start)
            return tuple(slices[dim] for dim in layout.order)

        sent, received = (
            [
                GhostCopy(g.source, key(g.box.shift(g.wrap), g.source), g.dest, key(g.box, g.dest))
                for g in messages
            ]
            for messages in layout_halo.exchange(layout, self.halo, rank, phase)
        )
        return sent, received

    def is_large_run(self, key: Key, rank: int) -> bool:
        """Whether part of the padded block of a rank is one large contiguous run of memory."""
        shape = [part.stop - part.start for part in key]
        if self.dtype.itemsize * prod(shape) < memory.ALONE or prod(self.components) != 1:
            return False
        layout = self.layout.with_singletons(self.singletons)
        own = layout.box(rank)
        whole = own.grow(halo_room(own, layout.shape, self.halo, self.trimmed)).shape
        return is_run(shape, [whole[dim] for dim in layout.order])

    def ghost_bytes(self) -> int:
        """Bytes of the ghosts of the first rank that may be points of others."""
        shape = self.layout.box(0).shape
        whole = [
            n + (sum(width) if parts > 1 else 0)
            for n, width, parts in zip(shape, self.halo, self.layout.process_shape, strict=True)
        ]
        return (prod(whole) - prod(shape)) * self.dtype.itemsize * prod(self.components)


class HaloOptions(NamedTuple):
    """How fields are exchanged."""

    corners: bool
    route: str  # a key of `ROUTES`, or "auto" or "measure"
    method: str
    private: bool  # whether any field is not in memory that other ranks of the node can read


class HaloSchedule:
    """The steps for fields of given specs; in reverse if `adjoint`. Making one is *Collective*.

    `synchronizes`: all ranks may meet in each call, so that small exchanges are pulled.
    """

    def __init__(
        self,
        topology: Topology,
        specs: Sequence[HaloSpec],
        options: HaloOptions,
        buffers: Buffers,
        *,
        adjoint: bool = False,
        synchronizes: bool = True,
    ) -> None:
        self._specs, self._adjoint, self._topology = specs, adjoint, topology
        self._mark_contiguous = options.private and options.method == AUTO
        layout, rank = specs[0].layout, topology.rank
        usual = options.method == AUTO and options.route != "sweeps"
        self.exchanges: list[Exchange] = []
        self.pull: Pull | None = None
        # An estimate that is the same on all ranks, before they tell each other what is exact.
        most = 2 * MOST_STAGED if options.private else MOST_COPIED
        small = sum(spec.ghost_bytes() for spec in specs) <= most
        if usual and synchronizes and small and not adjoint:
            (phase,) = message_phases(layout, None, corners=options.corners)
            self.pull = Pull.find(topology, self._messages(phase))
        far = message_phases(layout, options.route, corners=options.corners)
        last = self.pull is not None
        # Of each field: the ghosts that stay on this rank, and all ghosts that the adjoint clears.
        self._local: list[list[GhostCopy]] = []
        self._cleared: list[list[Key]] = []
        for spec in specs:
            near = local_phases(spec.layout, corners=options.corners, last=last)
            self._local.append([copy for phase in near for copy in spec.copies(rank, phase)[1]])
            distant = [copy for phase in far if adjoint for copy in spec.copies(rank, phase)[1]]
            self._cleared.append([copy.ghosts for copy in (*self._local[-1], *distant)])
        if self.pull is None:
            # Ranks that wait for their neighbours only need not all get a core in turn.
            crowded = usual and options.private and topology.crowded
            self.exchanges = [
                Exchange(
                    topology,
                    self._messages(phase),
                    axes=layout.ndim,
                    method="messages" if crowded else options.method,
                    buffers=buffers,
                    unpack=prepare_additions if adjoint else prepare_copies,
                )
                for phase in (reversed(far) if adjoint else far)
            ]

    def _messages(self, phase: Phase) -> list[MessageSpec]:
        """List what a phase sends and receives of each field."""
        found = []
        for spec in self._specs:
            sent, received = spec.copies(self._topology.rank, phase)
            points = [self._block(spec, c.points, c.dest, c.ghosts) for c in sent]
            ghosts = [self._block(spec, c.ghosts, c.source, c.points) for c in received]
            away, home = (ghosts, points) if self._adjoint else (points, ghosts)
            found.append(MessageSpec(away, home, spec.components, spec.dtype))
        return found

    def _block(self, spec: HaloSpec, here: Key, peer: int, there: Key) -> MessageBlock:
        # Large runs are better sent by messages of their own.
        contiguous = self._mark_contiguous and all(
            spec.is_large_run(key, rank)
            for key, rank in ((here, self._topology.rank), (there, peer))
        )
        return MessageBlock(peer, here, tuple(part.start for part in there), contiguous=contiguous)

    def bind(self, blocks: Sequence[Array]) -> PreparedHalo:
        """Prepare the steps for padded blocks, in logical order; local."""
        arrays = [
            block.transpose(memory_axes(spec.layout.order, len(spec.components)))
            for spec, block in zip(self._specs, blocks, strict=True)
        ]
        pairs = [
            (_part(array, into), _part(array, out))
            for spec, array, copies in zip(self._specs, arrays, self._local, strict=True)
            for into, out in by_slabs(
                [(copy.ghosts, copy.points) for copy in copies], array, len(spec.components)
            )
        ]
        if self.pull is not None:
            return self.pull.prepare(arrays, arrays, after=pairs)
        phases = [exchange.prepare(arrays, arrays, disjoint=True) for exchange in self.exchanges]
        if not self._adjoint:
            return HaloByPhases(self._topology, phases, before=prepare_copies(pairs))
        filled = zip(arrays, self._cleared, strict=True)
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


def local_phases(layout: Layout, *, corners: bool, last: bool) -> list[Phase]:
    """List the phases without messages, the same for all ranks; after those with, or before.

    The slowest dimension comes last, so that the others can be copied slab by slab.
    """
    order, parts = layout.order, layout.process_shape
    dims = [dim for dim in reversed(order) if parts[dim] == 1]
    reached = [dim for dim in order if parts[dim] > 1] if last else []
    return layout_halo.sweeps(dims, reached) if corners else layout_halo.star(dims)


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
