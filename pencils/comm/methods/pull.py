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
from itertools import accumulate
from typing import ClassVar, TypeVar

import numpy as np

from pencils.comm.agree import agreed, waiting
from pencils.comm.exchange import Handle
from pencils.comm.memory import Bytes
from pencils.comm.pack import (
    Array,
    MessageSpec,
    PackPlan,
    Pairs,
    find_starts,
    in_order,
    no_op,
    one_each,
    own_blocks,
    pack_plans,
    prepare_ordered_copies,
)
from pencils.comm.recording import current, timed
from pencils.comm.topology import Topology, attribute

T = TypeVar("T")
_Blocks = tuple[list[PackPlan], list[PackPlan], list[int]]

# Bytes that ranks stage on average: larger exchanges gain more from reading arrays in place. A
# staging block has room for that of several ranks, because some send more than others.
MOST_STAGED = 2**19
RANKS_STAGED = 2
TURNS = 2


class _StagingBlocks:
    """The staging blocks of all ranks of a communicator, which all exchanges of it share."""

    def __init__(self) -> None:
        self.turn = 0  # equal on all ranks between two calls
        self.meet: Callable[[], object] = no_op  # wait for all ranks
        self._blocks: Sequence[Bytes] = ()  # of each rank, for all turns; none without room
        self._made = False

    def make(self, topology: Topology) -> bool:
        """Allocate the blocks, unless they exist; False if there is no room. *Collective*."""
        if not self._made:
            self._made = True
            self.meet = waiting(topology.comm)
            self._blocks = topology.shared.allocate_each(TURNS * RANKS_STAGED * MOST_STAGED) or ()
        return bool(self._blocks)

    def block(self, rank: int, turn: int) -> Bytes:
        """Return the block of a rank for a turn."""
        nbytes = RANKS_STAGED * MOST_STAGED
        return self._blocks[rank][turn * nbytes : (turn + 1) * nbytes]

    def clear(self) -> None:
        """Release the blocks."""
        self._blocks = ()


_staging = attribute(_StagingBlocks)


class Pull:
    """Plan of an exchange by staging blocks; made by `find`. Preparing it is local.

    There is a spec for each array, or a single one for any number of arrays.
    """

    name: ClassVar[str] = "pull"

    def __init__(self, topology: Topology, specs: Sequence[MessageSpec]) -> None:
        self.topology = topology
        self.freed = False
        self.staging = _staging(topology)
        rank, size = topology.rank, topology.comm.size
        self._own = [own_blocks(rank, spec) for spec in specs]
        plans = [pack_plans(spec, rank, size) for spec in specs]
        self._sends = [sends for (sends,), _ in plans]
        self._recvs = [recvs for _, (recvs,) in plans]
        self.single = len(specs) == 1
        self.sent = sum(sum(sends.nbytes) for sends in self._sends)  # for one array of each spec
        self.received = sum(sum(recvs.nbytes) for recvs in self._recvs)
        # Where blocks of each spec begin: in the staging block of this rank, and, for those that it
        # receives, in that of their sender. Where the staging block of every rank ends.
        self._bases = [*accumulate((sends.packed for sends in self._sends), initial=0)]
        bases = zip(self._sends, self._bases, strict=False)
        self._send_starts = [[base + start for start in sends.starts] for sends, base in bases]
        self._recv_starts: list[list[int]] = []
        self._ends = [0] * size
        self.most = 0  # the largest of them

    @classmethod
    def find(cls, topology: Topology, specs: Sequence[MessageSpec]) -> Pull | None:
        """Make the plan; None on all ranks if this method is not for the exchange. *Collective*."""
        comm = topology.comm
        if comm.size > 1 and (topology.nodes > 1 or not _staging(topology).make(topology)):
            return None
        pull, error = None, None
        blocks: _Blocks = [], [], [-1] * (len(specs) + 1)
        try:
            pull = cls(topology, specs)
            blocks = pull._sends, pull._recvs, pull._bases
        except Exception as mistake:  # noqa: BLE001 - raised below, on all ranks
            error = mistake
        starts, ends = find_starts(comm, *blocks, range(comm.size))
        if min(ends) < 0:
            with agreed(comm, "pull"):
                if error is not None:
                    raise error
        assert pull is not None
        pull._recv_starts, pull._ends, pull.most = starts, ends, max(ends)
        return pull if pull.fits(1) else None

    def free(self) -> None:
        """Note that no call may use the plan any more; all memory belongs to the communicator."""
        self.freed = True

    def fits(self, arrays: int, mean: int | None = None) -> bool:
        """Whether this number of arrays is exchanged at once; for plans with one spec.

        `mean`: the most bytes that ranks send on average, by default `MOST_STAGED`.
        """
        limit = (MOST_STAGED if mean is None else mean) * len(self._ends)
        return arrays * max(sum(self._ends), self.most * len(self._ends) // RANKS_STAGED) <= limit

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
        own = zip(sources, targets, one_each(self._own, targets), strict=True)
        kept = [(target[into], source[key]) for source, target, keys in own for key, into in keys]
        saved: Pairs = []
        copied = in_order(kept) if aliased else kept
        if copied is None:
            saved = [(np.empty(source.shape, source.dtype), source) for _, source in kept]
            copied = [(target, room) for (room, _), (target, _) in zip(saved, kept, strict=True)]
        packs, pulls = [], []
        for turn in range(TURNS):
            sent = self._staged(turn, self._sends, self._send_starts, sources, self.topology.rank)
            packs.append(prepare_ordered_copies([*saved, *sent], read_elsewhere=True))
            received = self._staged(turn, self._recvs, self._recv_starts, targets)
            pulled = [(view, window) for window, view in received]
            pulls.append(prepare_ordered_copies([*copied, *pulled, *after]))
        return PreparedPull(self, packs, pulls, kept, len(sources) if self.single else 1)

    def _staged(
        self,
        turn: int,
        plans: Sequence[PackPlan],
        starts: list[list[int]],
        arrays: Sequence[Array],
        owner: int | None = None,
    ) -> Pairs:
        """Pair the room of each block in the staging block of its sender with the block itself."""
        pairs = []
        for number, array in enumerate(arrays):
            spec = 0 if self.single else number
            plan, before = plans[spec], number if self.single else 0
            for block, view in enumerate(plan.views(array)):
                sender = plan.peers[block] if owner is None else owner
                start = starts[spec][block] + before * self._ends[sender]
                pairs.append((plan.window(self.staging.block(sender, turn), block, start), view))
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
        self.pack()
        timed("wait", self.staging.meet)
        self.run_agreed()

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
            self.run_agreed()
        else:
            self.run()
        after()
        return Handle.completed(result)

    def run_agreed(self) -> None:
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
