"""Shared memory: each rank of a node copies blocks from the memory of its peers.

Each rank writes the address of its source to a table in shared memory: that of the array if it is
in shared memory, else that of a staging block into which the rank packs its blocks. The table is
read after a barrier, so ranks need not agree which arrays are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import token
from pencils.comm.failure import wait_all
from pencils.comm.memory import Bytes, array_at, fence
from pencils.comm.methods.messages import Messages
from pencils.comm.methods.method import Array, Arrays, ChunkPlan, Method, PreparedMethod, Started
from pencils.comm.mpi import MPI
from pencils.comm.pack import (
    MessageBlock,
    PackPlan,
    find_starts,
    no_op,
    one_each,
    prepare_ordered_copies,
)
from pencils.comm.recording import timed
from pencils.comm.shared_memory import Buffers, SharedPool, synchronize
from pencils.comm.topology import Topology, split
from pencils.layout import Traffic
from pencils.layout.integers import MOST

# Divisions of a node into groups that are kept for each communicator; the number of communicators
# of MPI libraries is limited.
MOST_GROUPS = 16

# Bytes that a rank stages at once: more travel in turns, so that the staging block is a small part
# of the arrays. The ranks wait for each other twice in each turn, which takes time for fewer bytes.
MOST_AT_ONCE = 3 << 23
TURNS = 10
_ALIGNED = 8  # points between cuts: other ones divide lines of the cache

# State of a source: it needs a staging block, and one for all blocks at once because it shares
# memory with a target; can be read in place; or was packed in a staging block.
NEEDS_STAGING, NEEDS_WHOLE, IN_PLACE, STAGED = range(4)
# Columns of an address table; strides follow.
STATE, WINDOW, OFFSET, STRIDES = range(4)


@dataclass(slots=True, eq=False)
class AddressTable:
    """Where the sources of all ranks of a group are: a row for each rank and array.

    The rows are the same memory on all ranks, kept alive by `block`, in window number `window`.
    """

    rows: NDArray[np.int64]
    block: Bytes
    window: int
    staging: Bytes | None = None  # of this rank, for the exchange under way
    writer: object = None  # token of the contents of this rank's rows


class SharedMemoryGroup:
    """Ranks of a node that exchange blocks, with their address tables and staging blocks.

    It is the whole node, unless the node divides into groups in which every rank exchanges blocks
    with every other one: the rows, or columns, of a process grid. Then barriers are of the group.
    Making one is *Collective* over the node; `peers` are ranks on it that this rank sends to or
    receives from, `numbers` some numbers, as many on every rank. `comm` is the private communicator
    of the group, `pool` the memory that it shares, `ranks` the rank in the group of each member, by
    rank in the topology, and `most` the largest of each of the numbers in the group.
    """

    def __init__(
        self,
        topology: Topology,
        peers: Iterable[int],
        axes: int,
        buffers: Buffers,
        numbers: Sequence[int] = (),
    ) -> None:
        self.topology = topology
        self._columns = STRIDES + axes
        self.buffers = buffers
        self._idle: dict[int, list[AddressTable]] = {}  # by number of arrays
        node, on_node = topology.node, topology.on_node
        members = sorted({topology.rank, *peers})
        # There may be plans for arrays that are too large to exist.
        counted = (min(number, MOST) for number in numbers)
        mine = np.array([members[0], token(members), *counted], np.int64)
        table = np.empty((node.size, len(mine)), np.int64)
        timed("wait", node.Allgather, mine, table)
        first, key = table[:, 0], table[:, 0].tobytes()
        divided = _is_divided(table, on_node)
        if divided and key not in topology.groups and len(topology.groups) < MOST_GROUPS:
            with suppress(MemoryError):  # on this node: the others do not wait
                comm = split(node, members[0])
                topology.groups[key] = comm, SharedPool(comm, len(np.unique(first)))
        self.comm, self.pool, self.ranks = node, topology.shared, on_node
        if divided and key in topology.groups:
            self.comm, self.pool = topology.groups[key]
            self.ranks = {member: number for number, member in enumerate(members)}
            table = table[first == members[0]]
        self.most: list[int] = table[:, 2:].max(0).tolist()

    def take_table(self, arrays: int) -> AddressTable | None:
        """Return an idle address table. *Collective* over the group if there is none.

        None on every rank if there is no room for one.
        """
        idle = self._idle.get(arrays)
        if idle:
            return idle.pop()
        return self._table(arrays, self.pool.allocate_common(self._nbytes(arrays)))

    def give_table(self, table: AddressTable) -> None:
        """Take back an address table, and its staging block."""
        if table.staging is not None:
            self.buffers.give_shared(self.pool, table.staging)
            table.staging = None
        self._idle.setdefault(table.rows.shape[1], []).append(table)

    def has_room(self) -> bool:
        """Whether all ranks of the topology have shared memory. *Collective*.

        To be called once, before any table is taken.
        """
        slot, made = self.pool.slot(self._columns, self._nbytes(1))
        table = self._table(1, slot)
        if table is not None:
            self.give_table(table)
        # On one node `made` is the same on all ranks.
        if self.topology.nodes == 1 and not made:
            return True
        room = not self.topology.any_of([table is None])[0]
        if not room:  # somewhere: all ask for it again the next time
            self.pool.forget_slots(self._columns)
        return room

    def _nbytes(self, arrays: int) -> int:
        return self.comm.size * arrays * self._columns * np.dtype(np.int64).itemsize

    def _table(self, arrays: int, made: tuple[Bytes, Bytes] | None) -> AddressTable | None:
        """Make a table in common memory, which is that of the first rank; local."""
        if made is None:
            return None
        block, common = made
        found = self.pool.find(block)
        assert found is not None
        rows = common.view(np.int64).reshape(self.comm.size, arrays, self._columns)
        return AddressTable(rows, block, found[0])


def _is_divided(table: NDArray[np.int64], on_node: Iterable[int]) -> bool:
    """Whether ranks with the same first member, of several, have exactly each other as members."""
    ranks, firsts = np.array(list(on_node)), np.unique(table[:, 0])
    for first in firsts:
        together = table[:, 0] == first
        if (table[together, 1] != token(sorted(ranks[together].tolist()))).any():
            return False
    return len(firsts) > 1


class _PreparedShared(PreparedMethod):
    def __init__(self, method: Shared, sources: Arrays, targets: Arrays, *, aliased: bool) -> None:
        self._method = method
        self._group = method.group
        self._arrays = sources, targets
        self._aliased = aliased
        self._far: PreparedMethod | None = None
        if method.far is not None:
            self._far = method.far.prepare(sources, targets, aliased=aliased)
        # Of each source: where it begins in the staging block of all of them, and its place in
        # shared memory, if peers can read it there.
        sizes = one_each(method.staging_bytes, sources)
        *bases, self._staged_bytes = np.cumsum([0, *sizes]).tolist()
        pool = method.plan.topology.shared
        places = [None if aliased else pool.find(source) for source in sources]
        self._sources = list(zip(bases, places, method.plan.sends_of(sources), strict=True))
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
        far = None if self._far is None else timed("pack", self._far.start, calls=0)
        table = self._group.take_table(len(self._sources))
        if table is None:
            self._prepared_fallback().run(own)
        else:
            own()
            timed("pack", self._publish, table, calls=0)
            synchronize(self._group.comm)
            readers = self._finish(table)
        if far is not None:
            far.complete()
        return readers

    def start(self) -> Started:
        """Send messages, pack and publish addresses; completing waits for the peers."""
        far = Started(no_op) if self._far is None else self._far.start()
        table = self._group.take_table(len(self._sources))
        if table is None:
            near = self._prepared_fallback().start()
        else:
            self._publish(table)
            fence()
            arrival = self._group.comm.Ibarrier()
            near = Started(partial(self._wait, arrival, table), [arrival])

        def complete() -> None:
            near.complete()
            far.complete()

        return Started(complete, [*near.requests, *far.requests])

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
        if self._method.stages and table.staging is None:
            self._take_staging(table)
        if table.staging is not self._staging:
            self._staging, self._pack = table.staging, no_op
            if table.staging is not None:
                pairs = list(self._packing(table.staging))
                much = self._method.parts is not None
                self._pack = prepare_ordered_copies(pairs, read_elsewhere=much)
            self._token = object()
        self._pack()
        if table.writer is not self._token:
            table.writer = self._token
            rows = np.array(list(self._rows(table)), np.int64)
            table.rows[self._group.comm.rank] = rows.reshape(table.rows.shape[1:])

    def _packing(self, staging: Bytes) -> Iterator[tuple[Array, Array]]:
        """Pair the blocks that other ranks cannot read with their room in a staging block."""
        for base, place, (sends, source) in self._sources:
            for number, view in enumerate(sends.views(source) if place is None else []):
                yield sends.window(staging, number, base + sends.starts[number]), view

    def _take_staging(self, table: AddressTable) -> None:
        """Take a staging block, of which the starts are known, if there is room. *Collective*."""
        self._method.find_starts()
        group = self._group
        table.staging = group.buffers.take_shared(group.pool, self._staged_bytes)

    def _rows(self, table: AddressTable) -> Iterator[tuple[int, ...]]:
        """Yield the row of each source."""
        staging = None if table.staging is None else self._group.pool.find(table.staging)
        for base, place, (sends, source) in self._sources:
            strides = (*source.strides, *(0,) * (self._method.plan.axes - source.ndim))
            if not sends.packed:
                yield STAGED, table.window, 0, *strides  # not read by any rank
            elif place is not None:
                yield IN_PLACE, *place, *strides
            elif staging is None:
                yield NEEDS_WHOLE if self._aliased else NEEDS_STAGING, table.window, 0, *strides
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
        states = table.rows[..., STATE]
        if (states < IN_PLACE).any():  # one needs a staging block: all take one
            turns = method.turns(self._staged_bytes)
            if turns and not (states == NEEDS_WHOLE).any():
                parts = [turn.prepare(*self._arrays, aliased=False) for turn in turns]
                self._unpack = partial(_run_all, parts)
                self._seen, self._window = table.rows.tobytes(), table.window
                return self._unpack
            self._take_staging(table)
            if table.staging is None:  # no room: they send messages
                prepared = self._prepared_fallback()
                return lambda: prepared.run(no_op)
            method.stages = not turns
            timed("wait", self._group.comm.Barrier)  # all have read the table; now it may change
            self._publish(table)
            synchronize(self._group.comm)
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


def _run_all(parts: Sequence[PreparedMethod]) -> None:
    for part in parts:
        part.run(no_op)


def _part(block: MessageBlock, turn: int) -> MessageBlock:
    """Cut the part that is moved in a turn from a block.

    An axis in the middle is cut, if it has enough points: the first one or the last one is often
    the fastest axis of the source or of the target, of which short pieces would be copied.
    """
    extents = [s.stop - s.start for s in block.key]
    inner = range(1, len(extents) - 1)
    axis = max(range(len(extents)), key=lambda axis: (min(extents[axis], TURNS), axis in inner))
    low, high = (_cut(extents[axis], end) for end in (turn, turn + 1))
    key, start = list(block.key), list(block.start)
    start[axis] += low
    key[axis] = slice(key[axis].start + low, key[axis].start + high)
    return block._replace(key=tuple(key), start=tuple(start))


def _cut(extent: int, turn: int) -> int:
    """Find where the part of a turn begins."""
    at = extent * turn // TURNS
    return at if turn == TURNS or extent < TURNS * _ALIGNED else at - at % _ALIGNED


class Shared(Method):
    """For blocks between ranks of one node only, unless messages for other ones are given as `far`.

    Ranks of the group wait for each other. For each pack plan, `starts` is where blocks for this
    rank begin in the staging block of their sender, once there are any, and `staging_bytes` the
    size of a staging block for one array, equal on all ranks of the group.
    """

    name = "shared"
    prepared = _PreparedShared

    def __init__(
        self, plan: ChunkPlan, group: SharedMemoryGroup, staging_bytes: Sequence[int]
    ) -> None:
        super().__init__(plan)
        self.group = group
        self.staging_bytes = staging_bytes
        self.starts: list[list[int]] = []
        self.stages = False  # whether calls begin with a staging block; equal on all ranks
        self.far: Method | None = None
        self._fallback: Messages | None = None
        self.parts: list[Shared] | None = None  # in turns, once known

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
            plan, bases = self.plan, [0] * (len(self.plan.sends) + 1)
            self.starts, _ = find_starts(
                self.group.comm, plan.sends, plan.recvs, bases, self.group.ranks
            )

    def turns(self, nbytes: int) -> list[Shared]:
        """Return what moves a part of each block, if a staging block of `nbytes` is too large.

        *Collective* over the group the first time.
        """
        if nbytes <= MOST_AT_ONCE:
            return []
        if self.parts is None:
            parts = [self.plan.cut(partial(_part, turn=turn)) for turn in range(TURNS)]
            most = np.array([[sends.packed for sends in part.sends] for part in parts], np.int64)
            timed("wait", self.group.comm.Allreduce, MPI.IN_PLACE, most, MPI.MAX)
            each = zip(parts, most.tolist(), strict=True)
            self.parts = [Shared(part, self.group, sizes) for part, sizes in each]
            for turn in self.parts:
                turn.parts = []  # none is cut again
        return self.parts

    def off_node(self) -> Traffic:
        """Count what this rank sends to other nodes: messages only go there."""
        return super().off_node() if self.far is None else self.far.off_node()

    def has_room(self) -> bool:
        """Whether there is shared memory on all nodes. *Collective*."""
        return self.group.has_room()

    def free(self) -> None:
        """Free the messages."""
        for method in (self.far, self._fallback, *(self.parts or ())):
            if method is not None:
                method.free()

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

        def part(plan: ChunkPlan, *, near: bool) -> ChunkPlan:
            on_node = plan.topology.on_node
            return plan.select(lambda block: is_near(block, on_node) == near)

        methods = super().for_chunks([part(plan, near=True) for plan in plans])
        for method, plan in zip(methods, plans, strict=True):
            method.far = cls.between(part(plan, near=False))
        return methods


def is_near(block: MessageBlock, on_node: Collection[int]) -> bool:
    """Whether `Hybrid` moves a block through shared memory."""
    return block.peer in on_node and not block.contiguous
