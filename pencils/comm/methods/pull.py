"""Pull: small exchanges within a node, for which the agreement on a call is the only barrier.

1. *Pack*: each rank writes its blocks to a staging block of its own in shared memory.
2. *Meet*: all ranks of the communicator agree on the call, or wait for each other.
3. *Pull*: each rank copies its blocks from the staging blocks of its peers.

Each rank has two staging blocks, used by turns, so that no barrier is needed after pulling: before
a rank packs into a block again, it has met all ranks once more, after they pulled from that block.
A turn ends with the meeting. Where that raises, it raises on all ranks: none of them has pulled,
and all pack into the same block again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import numpy as np

from pencils.comm.agree import raise_noticed, waiting
from pencils.comm.exchange import Handle
from pencils.comm.memory import Bytes
from pencils.comm.methods.method import (
    Array,
    find_starts,
    one_each,
    own_blocks,
    pack_plans,
    publish_starts,
)
from pencils.comm.pack import MessageSpec, Pairs, no_op, prepare_ordered_copies
from pencils.comm.recording import current, timed
from pencils.comm.staging import Segment
from pencils.comm.topology import Attribute, Topology

T = TypeVar("T")

# Bytes of a staging block. Larger exchanges gain more from reading arrays in place.
MOST_STAGED = 2**19
TURNS = 2


class _Staging:
    """The staging blocks of all ranks of a communicator, which all exchanges of it share."""

    def __init__(self) -> None:
        self.turn = 0  # equal on all ranks between two calls
        self.meet: Callable[[], object] = no_op  # wait for all ranks
        self.segment: Segment | None = None  # None if there is no room
        self._made = False
        self._blocks: dict[int, list[Bytes]] = {}  # by rank: those that were needed

    def make(self, topology: Topology) -> bool:
        """Allocate the blocks, unless they exist; False if there is no room. *Collective*."""
        if not self._made:
            self._made = True
            self.meet = waiting(topology.comm)
            self.segment = Segment.allocate(topology, TURNS * MOST_STAGED)
        return self.segment is not None

    def blocks(self, rank: int) -> list[Bytes]:
        """Return the blocks of a rank, by turn; local."""
        found = self._blocks.get(rank)
        if found is None:
            assert self.segment is not None
            found = self._blocks[rank] = np.split(self.segment.of(rank), TURNS)
        return found

    def clear(self) -> None:
        """Release the blocks."""
        self.segment, self._blocks = None, {}


_staging = Attribute(_Staging)


class Pull:
    """Plan of an exchange by staging blocks. Making it is *Collective*, preparing it local.

    There is a spec for each array, or a single one for any number of arrays.
    """

    name: ClassVar[str] = "pull"

    def __init__(self, topology: Topology, specs: Sequence[MessageSpec]) -> None:
        self.topology = topology
        self.staging = _staging(topology)
        rank, size = topology.rank, topology.comm.size
        self._own = [own_blocks(rank, spec) for spec in specs]
        plans = [pack_plans(spec, rank, size) for spec in specs]
        self._sends = [sends for (sends,), _ in plans]
        self._recvs = [recvs for _, (recvs,) in plans]
        self.sent = sum(sum(sends.nbytes) for sends in self._sends)  # for one array of each spec
        self.received = sum(sum(recvs.nbytes) for recvs in self._recvs)
        # Where the blocks of each array begin in the staging block of this rank, and where they
        # end. That of every rank, and where blocks for this rank begin there, by array.
        self._bases = np.cumsum([0, *(sends.packed for sends in self._sends)]).tolist()
        self._ends = [0] * size
        self._starts: list[list[int]] = []

    @classmethod
    def find(cls, topology: Topology, specs: Sequence[MessageSpec]) -> Pull | None:
        """Make the plan; None on all ranks if this method is not for the exchange. *Collective*."""
        size = topology.comm.size
        if size > 1 and (topology.nodes > 1 or not _staging(topology).make(topology)):
            return None
        error, pull = None, None
        try:
            pull = cls(topology, specs)
        except Exception as mistake:  # noqa: BLE001 - raised below, on all ranks
            error = mistake
        first = np.full((size, len(specs) + 1), -1, np.int64)
        ahead = np.empty_like(first)
        if pull is not None:
            publish_starts(first, pull._sends, pull._bases, range(size))
            first[:, -1] = pull._bases[-1]
        topology.comm.Alltoall(first, ahead)
        ends = ahead[:, -1].tolist()
        if min(ends) < 0:
            raise_noticed(topology.comm, "pull", error)
        assert pull is not None
        pull._ends = ends
        pull._starts = find_starts(pull._recvs, ahead, range(size))
        if not pull.fits(1):
            return None
        return pull

    @property
    def sends_any(self) -> bool:
        """Whether any rank sends anything."""
        return max(self._ends) > 0

    def fits(self, arrays: int) -> bool:
        """Whether so many arrays are exchanged at once; for plans with one spec."""
        return arrays * max(self._ends) <= MOST_STAGED

    def prepare(
        self,
        sources: Sequence[Array],
        targets: Sequence[Array],
        *,
        aliased: bool = False,
        after: Pairs = (),
    ) -> PreparedPull:
        """Prepare to move ``sources[i]`` to ``targets[i]``, then to copy the pairs `after`; local.

        `aliased`: some target shares memory with some source that is not sent before.
        """
        packed: list[tuple[Array, Array]] = []
        kept = [
            (target[into], source[key])
            for source, target, keys in zip(
                sources, targets, one_each(self._own, targets), strict=True
            )
            for key, into in keys
        ]
        if aliased:
            saved = [np.empty(source.shape, source.dtype) for _, source in kept]
            packed = [(room, source) for room, (_, source) in zip(saved, kept, strict=True)]
            kept = [(target, room) for room, (target, _) in zip(saved, kept, strict=True)]
        turns = range(TURNS)
        packs = [
            prepare_ordered_copies([*packed, *self._packing(turn, sources)], read_elsewhere=True)
            for turn in turns
        ]
        pulls = [
            prepare_ordered_copies([*self._pulling(turn, targets), *kept, *after]) for turn in turns
        ]
        times = len(sources) if len(self._sends) == 1 else 1
        return PreparedPull(self, packs, pulls, kept, times)

    def _packing(self, turn: int, sources: Sequence[Array]) -> Pairs:
        """Pair blocks of the sources with their room in the staging block of this rank."""
        pairs = []
        rank = self.topology.rank
        for number, source in enumerate(sources):
            single = len(self._sends) == 1
            sends = self._sends[0 if single else number]
            base = number * self._bases[-1] if single else self._bases[number]
            for block, view in enumerate(sends.views(source)):
                mine = self.staging.blocks(rank)[turn]
                pairs.append((sends.window(mine, block, base + sends.starts[block]), view))
        return pairs

    def _pulling(self, turn: int, targets: Sequence[Array]) -> Pairs:
        """Pair blocks of the targets with where they are in the staging blocks of the peers."""
        pairs = []
        for number, target in enumerate(targets):
            single = len(self._recvs) == 1
            recvs = self._recvs[0 if single else number]
            starts = self._starts[0 if single else number]
            for block, view in enumerate(recvs.views(target)):
                peer, start = recvs.peers[block], starts[block]
                if single:
                    start += number * self._ends[peer]
                theirs = self.staging.blocks(peer)[turn]
                pairs.append((view, recvs.window(theirs, block, start)))
        return pairs


class PreparedPull:
    """The exchange for given arrays, with the steps of a `PreparedExchange`.

    Attributes
    ----------
    packs, pulls : sequence of callable
        The copies before and after the meeting, by turn.
    """

    __slots__ = ("_kept", "_times", "packs", "plan", "pulls", "staging")

    def __init__(
        self,
        plan: Pull,
        packs: Sequence[Callable[[], None]],
        pulls: Sequence[Callable[[], None]],
        kept: Pairs,
        times: int,
    ) -> None:
        self.plan = plan
        self._kept, self._times = kept, times  # for profiles: blocks of this rank, and arrays
        self.staging = plan.staging
        self.packs = packs
        self.pulls = pulls

    def reserve(self) -> None:
        """Do nothing: all memory is allocated."""

    def pack(self) -> None:
        """Write what this rank sends to its staging block; local."""
        pack = self.packs[self.staging.turn]
        recorder = current.recorder
        if recorder is None:
            pack()
        else:
            recorder.run("pack", pack, calls=0)  # counted when it has been pulled

    def run(self) -> None:
        """Complete older exchanges, pack, wait for all ranks, and pull. *Collective*."""
        topology = self.plan.topology
        if topology.under_way:
            topology.complete()
        if current.recorder is not None:
            self.pack()
            timed("wait", self.staging.meet)
            self.finish()
            return
        turn = self.staging.turn
        self.packs[turn]()
        self.staging.meet()
        self.staging.turn = 1 - turn
        self.pulls[turn]()

    def run_open(self) -> None:
        """Run; no rank reads the sources afterwards. *Collective*."""
        self.run()

    def start(
        self,
        result: T,
        after: Callable[[], None] = no_op,
        *,
        sources: object = None,  # noqa: ARG002
        agreed: bool = True,
    ) -> Handle[T]:
        """Move the data: there is nothing to wait for. *Collective*."""
        if agreed:
            self.finish()
        else:
            self.run()
        after()
        return Handle.completed(result)

    def finish(self) -> None:
        """Copy what this rank receives, after all ranks have packed and met; local."""
        turn = self.staging.turn
        self.staging.turn = 1 - turn
        recorder = current.recorder
        if recorder is None:
            self.pulls[turn]()
        else:
            recorder.count("pack", self._times * self.plan.sent)
            recorder.count("copy", sum(target.nbytes for target, _ in self._kept))
            recorder.run("unpack", self.pulls[turn], nbytes=self._times * self.plan.received)
