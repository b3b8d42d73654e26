"""Shared memory: each rank of a node copies blocks from the memory of its peers.

Each rank writes the address of its source to a table in shared memory: that of the array if it is
in shared memory, else that of a staging block into which the rank packs its blocks. The table is
read after a barrier, so ranks need not agree which arrays are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import ClassVar

import numpy as np

from pencils.comm.failure import wait_all
from pencils.comm.memory import Bytes, array_at, fence
from pencils.comm.methods.messages import Messages
from pencils.comm.methods.method import (
    Array,
    ChunkPlan,
    Method,
    PreparedMethod,
    Started,
    find_starts,
    one_each,
    publish_starts,
)
from pencils.comm.mpi import MPI
from pencils.comm.pack import MessageBlock, PackPlan, no_op, prepare_copies
from pencils.comm.recording import timed
from pencils.comm.shared_memory import synchronize
from pencils.comm.staging import (
    IN_PLACE,
    NEEDS_STAGING,
    STAGED,
    STATE,
    AddressTable,
    SharedMemoryGroup,
)
from pencils.layout import Traffic


class _PreparedShared(PreparedMethod):
    def __init__(
        self,
        method: Shared,
        sources: Sequence[Array],
        targets: Sequence[Array],
        *,
        aliased: bool,
    ) -> None:
        pool = method.plan.topology.shared
        self._method = method
        self._group = method.group
        self._arrays = sources, targets
        self._aliased = aliased
        self._far: PreparedMethod | None = None
        if method.far is not None:
            self._far = method.far.prepare(sources, targets, aliased=aliased)
        self._places = [None if aliased else pool.find(source) for source in sources]
        self._number = len(self._places)
        self._sends = method.plan.sends_of(sources)
        # Where the staging block of each array begins in that of all of them, and where that ends.
        sizes = one_each(method.staging_bytes, sources)
        self._bases = np.cumsum([0, *sizes]).tolist()
        self._token = object()  # identifies the contents of the rows of this rank
        # Valid while the table has the contents for which they were made.
        self._seen = b""
        self._window = 0
        self._unpack: Callable[[], None] = no_op
        # Valid for one staging block.
        self._staging: Bytes | None = None
        self._pack: Callable[[], None] = no_op

    def reserve(self) -> None:
        """Allocate what messages need."""
        if self._far is not None:
            self._far.reserve()

    def run(self, own: Callable[[], None]) -> None:
        """Send messages; pack and publish addresses, barrier, copy from peers, barrier."""
        comm = self.run_open(own)
        if comm is not None:
            timed("wait", comm.Barrier)

    def run_open(self, own: Callable[[], None]) -> MPI.Intracomm | None:
        """Run, but without the last barrier if peers read the sources in place."""
        readers = None
        receive = None if self._far is None else timed("pack", self._far.start, calls=0)
        table = self._group.take_table(self._number)
        if table is None:
            self._prepared_fallback().run(own)
        else:
            own()
            timed("pack", self._publish, table, calls=0)
            synchronize(self._group.comm)
            readers = self._finish(table)
        if receive is not None:
            receive()
        return readers

    def start(self) -> Started:
        """Send messages, pack and publish addresses; completing waits for the peers."""
        receive = Started(no_op) if self._far is None else self._far.start()
        table = self._group.take_table(self._number)
        if table is None:
            copy_from_peers = self._prepared_fallback().start()
        else:
            self._publish(table)
            fence()
            arrival = self._group.comm.Ibarrier()
            copy_from_peers = Started(partial(self._wait, arrival, table), [arrival])

        def complete() -> None:
            copy_from_peers()
            receive()

        return Started(complete, [*copy_from_peers.requests, *receive.requests])

    def _wait(self, request: MPI.Request, table: AddressTable) -> None:
        wait_all([request])
        fence()
        readers = self._finish(table)
        if readers is not None:
            timed("wait", readers.Barrier)

    def _prepared_fallback(self) -> PreparedMethod:
        return self._method.fallback.prepare(*self._arrays, aliased=self._aliased)

    def _publish(self, table: AddressTable) -> None:
        """Take a staging block if needed, pack sources into it, and write the rows of this rank."""
        if self._group.stages and table.staging is None:
            self._method.find_starts()
            table.staging = self._group.take_staging(self._bases[-1])
        if table.staging is not self._staging:
            self._staging = table.staging
            self._pack = self._prepare_packing(table.staging)
            self._token = object()
        self._pack()
        if table.writer is not self._token:
            table.writer = self._token
            rows = np.array(list(self._rows(table)), np.int64)
            table.rows[self._group.comm.rank] = rows.reshape(table.rows.shape[1:])

    def _prepare_packing(self, staging: Bytes | None) -> Callable[[], None]:
        """Prepare to pack the blocks of each source that other ranks cannot read."""
        if staging is None:
            return no_op
        pairs = []
        for base, place, (sends, source) in self._sources():
            for number, view in enumerate(sends.views(source) if place is None else []):
                pairs.append((sends.window(staging, number, base + sends.starts[number]), view))
        return prepare_copies(pairs)

    def _sources(self) -> Iterator[tuple[int, tuple[int, int] | None, tuple[PackPlan, Array]]]:
        """Offset in the staging block, place in shared memory if any, and each source itself."""
        return zip(self._bases[:-1], self._places, self._sends, strict=True)

    def _rows(self, table: AddressTable) -> Iterator[tuple[int, ...]]:
        """Yield the row of each source."""
        staging = None if table.staging is None else self._group.pool.find(table.staging)
        for base, place, (sends, source) in self._sources():
            strides = (*source.strides, *(0,) * (self._method.plan.axes - source.ndim))
            if not sends.packed:
                yield STAGED, table.window, 0, *strides  # not read by any rank
            elif place is not None:
                yield IN_PLACE, *place, *strides
            elif staging is None:
                yield NEEDS_STAGING, table.window, 0, *strides
            else:
                yield STAGED, staging[0], staging[1] + base, *strides

    def _finish(self, table: AddressTable) -> MPI.Intracomm | None:
        """Copy from the peers, after all of them have written their rows.

        Returns the ranks to meet before sources are written, unless this was done: memory of peers
        is not read after it.
        """
        known = table.rows.tobytes() == self._seen and table.window == self._window
        unpack = self._unpack if known else self._prepare_unpacking(table)
        unpack()
        fence()
        staged = table.staging is not None  # the same on all ranks
        if staged:  # the next exchange may use the same block
            timed("wait", self._group.comm.Barrier)
        self._group.give_table(table)
        return None if staged else self._group.comm

    def _prepare_unpacking(self, table: AddressTable) -> Callable[[], None]:
        """Find the blocks in the memory of the peers, after a change of the table."""
        method = self._method
        if (table.rows[..., STATE] == NEEDS_STAGING).any() and not self._stage(table):
            prepared = self._prepared_fallback()
            return lambda: prepared.run(no_op)
        pairs = []
        targets = self._arrays[1]
        starts = one_each(method.starts, targets)
        for number, (recvs, target) in enumerate(method.plan.recvs_of(targets)):
            senders = [self._group.ranks[peer] for peer in recvs.peers]
            rows = table.rows[senders, number].tolist()
            for block, view in enumerate(recvs.views(target)):
                if view.size:
                    start = starts[number][block] if rows[block][STATE] == STAGED else 0
                    pairs.append((view, self._at_peer(recvs, block, start, rows[block])))
        self._unpack = method.plan.unpack(pairs)
        self._seen, self._window = table.rows.tobytes(), table.window
        return self._unpack

    def _at_peer(self, recvs: PackPlan, block: int, staged: int, row: list[int]) -> Array:
        """View block number `block` at its sender; `staged` is its offset there if packed."""
        shape = recvs.shapes[block]
        topology, group, peer = self._method.plan.topology, self._group, recvs.peers[block]
        state, window, offset, *strides = row
        if state == STAGED:
            memory = group.pool.memory(group.ranks[peer], window)
            return array_at(memory, shape, recvs.dtype, offset + staged)
        memory = topology.shared.memory(topology.on_node[peer], window)
        strides = strides[: len(shape)]
        steps = zip(recvs.blocks[block].start, strides[len(recvs.lead) :], strict=True)
        start = offset + sum(i * stride for i, stride in steps)
        return array_at(memory, shape, recvs.dtype, start, strides)

    def _stage(self, table: AddressTable) -> bool:
        """Take staging blocks on all ranks, because one needs it; False if there is no room."""
        self._method.find_starts()
        table.staging = self._group.take_staging(self._bases[-1])
        if table.staging is None:
            return False
        self._group.stages = True
        timed("wait", self._group.comm.Barrier)  # all have read the table; now it may change
        self._publish(table)
        synchronize(self._group.comm)
        return True


class Shared(Method):
    """For blocks between ranks of one node only, unless messages for other ones are given as `far`.

    Ranks of the group wait for each other. For each pack plan, `starts` is where blocks for this
    rank begin in the staging block of their sender, once there are any, and `staging_bytes` the
    size of a staging block for one array, equal on all ranks of the group.
    """

    name = "shared"
    prepared = _PreparedShared

    def __init__(
        self,
        plan: ChunkPlan,
        group: SharedMemoryGroup,
        staging_bytes: Sequence[int],
    ) -> None:
        super().__init__(plan)
        self.group = group
        self.staging_bytes = staging_bytes
        self.starts: list[list[int]] = []
        self.far: Method | None = None
        self._fallback: Messages | None = None

    @classmethod
    def for_chunks(cls, plans: Sequence[ChunkPlan]) -> Sequence[Shared]:
        """Make a method for each chunk; all have the same group. *Collective*."""
        first = plans[0]
        pack_plans = [pack_plan for plan in plans for pack_plan in (*plan.sends, *plan.recvs)]
        peers = {peer for pack_plan in pack_plans for peer in pack_plan.peers}
        nbytes = [sends.packed for plan in plans for sends in plan.sends]
        group = SharedMemoryGroup(first.topology, peers, first.axes, first.buffers, nbytes)
        most = iter(group.most)
        return [cls(plan, group, list(islice(most, len(plan.sends)))) for plan in plans]

    def find_starts(self) -> None:
        """Set `starts`, unless they are known. *Collective* over the group."""
        if not self.starts:
            self.starts = _starts_at_peers(self.plan, self.group)

    def off_node(self) -> Traffic:
        """Count what this rank sends to other nodes: messages only go there."""
        return super().off_node() if self.far is None else self.far.off_node()

    def has_room(self) -> bool:
        """Whether there is shared memory on all nodes. *Collective*."""
        return self.group.has_room()

    def free(self) -> None:
        """Free the messages."""
        for messages in (self.far, self._fallback):
            if messages is not None:
                messages.free()

    @property
    def fallback(self) -> Messages:
        """Messages, for calls that find no room for staging blocks."""
        if self._fallback is None:
            self._fallback = Messages(self.plan)
        return self._fallback


class Hybrid(Shared):
    """Shared memory between ranks of a node; messages between nodes and for contiguous blocks."""

    name = "hybrid"
    between: ClassVar[type[Method]] = Messages  # what moves the other blocks

    @classmethod
    def for_chunks(cls, plans: Sequence[ChunkPlan]) -> Sequence[Shared]:
        """Make a method for each chunk. *Collective*."""
        methods = super().for_chunks([_part(plan, near=True) for plan in plans])
        for method, plan in zip(methods, plans, strict=True):
            method.far = cls.between(_part(plan, near=False))
        return methods


def is_near(block: MessageBlock, on_node: Collection[int]) -> bool:
    """Whether `Hybrid` moves a block through shared memory."""
    return block.peer in on_node and not block.contiguous


def _part(plan: ChunkPlan, *, near: bool) -> ChunkPlan:
    """Plan of the blocks that are moved through shared memory, or of the other ones."""
    on_node = plan.topology.on_node
    return plan.select(lambda block: is_near(block, on_node) == near)


def _starts_at_peers(plan: ChunkPlan, group: SharedMemoryGroup) -> list[list[int]]:
    """Where blocks begin in the staging blocks of their senders. *Collective*."""
    first = np.zeros((group.comm.size, len(plan.sends)), np.int64)
    publish_starts(first, plan.sends, [0] * len(plan.sends), group.ranks)
    ahead = np.empty_like(first)
    group.comm.Alltoall(first, ahead)
    return find_starts(plan.recvs, ahead, group.ranks)
