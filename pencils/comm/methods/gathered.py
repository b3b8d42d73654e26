"""One message from each node to each other one, for small pieces.

A piece is what one rank sends to another. Pieces from one node to another are a *bundle*.

1. *Pack*: each rank writes its pieces to the bundles of its node, in shared memory.
2. The ranks of the node meet.
3. *Carry*: for each other node, one rank sends the bundle, and receives that from there.
4. The ranks meet again.
5. *Unpack*: each rank copies its pieces from the bundles that have come.

Many bundles are divided into *stages*. Those of one stage travel while ranks pack the next one, or
unpack the one before. Each node begins with the node after it.

An exchange that is started packs its first stage, and does the rest when it is completed: bundles
do not travel while a program computes. Larger pieces do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby, pairwise
from math import sqrt
from operator import itemgetter
from typing import ClassVar

import numpy as np

from pencils.comm.agree import agreed
from pencils.comm.failure import wait_all
from pencils.comm.memory import Bytes, fence, round_up
from pencils.comm.methods.messages import Messages, Requests
from pencils.comm.methods.method import Array, ChunkPlan, Method, PreparedMethod, Started
from pencils.comm.methods.shared import Hybrid
from pencils.comm.mpi import MPI
from pencils.comm.pack import MessageBlock, PackPlan, Pairs, prepare_copies
from pencils.comm.recording import timed
from pencils.comm.shared_memory import synchronize
from pencils.comm.topology import Topology
from pencils.layout import Traffic

# Pieces travel in bundles if those that the ranks of a node send at the same time, one each, have
# at most this many bytes: a network adapter moves these in less than a microsecond, which is what
# a message costs a rank. Larger pieces keep adapters busy in any case: benchmarks/README.md.
TOGETHER = 2**13
# There are as many stages as the square root of the bytes of a node, in this unit. With n stages,
# the n-th part of all packing and unpacking is done while no bundles travel, but each stage takes a
# few microseconds: benchmarks/README.md.
STAGE = 2**17


class _NodeBundles:
    """The bundles that one node sends, or receives, in one block of shared memory.

    `every` has for each rank of the node the bytes for each rank of other nodes, or from it.
    `starts` is where the piece for, or from, each other rank begins, `bundles` where each bundle
    begins and ends, by other node, and `nbytes` the size of all of them. `stages` are the other
    nodes of each stage: what a node sends in its first one, others receive in theirs, if all send
    as many bytes.
    """

    def __init__(
        self, topology: Topology, every: Sequence[Mapping[int, int]], *, sent: bool
    ) -> None:
        node_of = topology.node_of
        # In the order of nodes, senders and receivers, which both nodes know.
        entries = sorted(
            (int(node_of[far]), *((near, far) if sent else (far, near)), nbytes)
            for near, known in zip(topology.on_node, every, strict=True)
            for far, nbytes in known.items()
        )
        self.starts: dict[int, int] = {}
        self.bundles: dict[int, tuple[int, int]] = {}
        self.nbytes = 0
        for node, group in groupby(entries, itemgetter(0)):
            start = end = round_up(self.nbytes)
            for _, source, target, nbytes in group:
                near, far = (source, target) if sent else (target, source)
                if near == topology.rank:
                    self.starts[far] = end
                end += nbytes
            self.bundles[node] = start, end
            self.nbytes = end
        here = min(topology.on_node)
        # From the next node on, to which bundles go; they come from the previous one first.
        order = sorted(self.bundles, key=lambda node: (node < here, node))
        self.stages = in_stages(order if sent else order[::-1], self.nbytes)
        stage_of = {node: number for number, nodes in enumerate(self.stages) for node in nodes}
        self._stage_of = {far: stage_of[int(node_of[far])] for far in self.starts}

    def pairs(self, memory: Bytes, blocks: Sequence[tuple[PackPlan, Array]]) -> Sequence[Pairs]:
        """Pair the bytes of each block in the bundles with the block in its array, by stage."""
        found: list[list[tuple[Array, Array]]] = [[] for _ in self.stages]
        starts = dict(self.starts)
        for pack_plan, array in blocks:
            for number, view in enumerate(pack_plan.views(array)):
                peer = pack_plan.peers[number]
                window = pack_plan.window(memory, number, starts[peer])
                found[self._stage_of[peer]].append((window, view))
                starts[peer] += view.nbytes
        return found


def in_stages(nodes: Sequence[int], nbytes: int) -> list[Sequence[int]]:
    """Divide other nodes into one stage or more, by the bytes of their bundles."""
    count = max(1, min(round(sqrt(nbytes / STAGE)), len(nodes)))
    cuts = [len(nodes) * number // count for number in range(count + 1)]
    return [nodes[start:end] for start, end in pairwise(cuts)]


class _PreparedBundles(PreparedMethod):
    def __init__(
        self, method: Bundles, sources: Sequence[Array], targets: Sequence[Array], *, aliased: bool
    ) -> None:
        self._method = method
        self._large = method.large.prepare(sources, targets, aliased=aliased)
        self._every: PreparedMethod | None = None
        self._arrays = sources, targets, aliased
        self._fits = len(sources) == len(method.plan.sends)
        if self._fits and method.made:
            small = method.small
            packs = method.sends.pairs(method.sent, small.sends_of(sources))
            if aliased:  # what comes from other ranks may overwrite what is not packed yet
                packs = [[*chain(*packs)], *([] for _ in packs[1:])]
            self._packs = [prepare_copies(pairs) for pairs in packs]
            unpacks = method.recvs.pairs(method.received, small.recvs_of(targets))
            self._unpacks = [
                small.unpack([(view, window) for window, view in pairs]) for pairs in unpacks
            ]

    def reserve(self) -> None:
        """Allocate what messages need: of a busy method, also for bundles, which may come free."""
        if self._fits and self._method.made:
            self._large.reserve()
        if not self._bundled:
            self._messages.reserve()

    @property
    def _bundled(self) -> bool:
        """Whether bundles are there for this call; equal on all ranks."""
        return self._fits and self._method.made and not self._method.busy

    @property
    def _messages(self) -> PreparedMethod:
        """Messages for pieces of any size."""
        if self._every is None:
            sources, targets, aliased = self._arrays
            self._every = self._method.every.prepare(sources, targets, aliased=aliased)
        return self._every

    def start(self) -> Started:
        """Send large pieces, pack small ones, and announce that; completing does the rest."""
        if not self._bundled:
            return self._messages.start()
        method = self._method
        node = method.plan.topology.node
        large = self._large.start()
        method.busy = True
        self._packs[0]()
        fence()
        meeting = node.Ibarrier()

        def complete() -> None:
            try:
                wait_all([meeting])
                fence()
                self._carry(node)
            finally:
                method.busy = False
            large.complete()

        return Started(complete, [meeting, *large.requests])

    def _carry(self, node: MPI.Intracomm) -> None:
        """Send each stage, and pack the next one; unpack each that has come."""
        method = self._method
        for requests in method.receiving:
            MPI.Prequest.Startall(requests.all)
        MPI.Prequest.Startall(method.sending[0].all)
        for pack, requests in zip(self._packs[1:], method.sending[1:], strict=True):
            timed("pack", pack, calls=0)
            synchronize(node)
            MPI.Prequest.Startall(requests.all)
        for unpack, awaited in zip(self._unpacks, method.awaited, strict=True):
            wait_all(awaited)
            synchronize(node)
            unpack()
        fence()


class Bundles(Method):
    """Bundles of small pieces; messages for all others.

    There is memory for one call with one array of each pack plan. Calls with more arrays, or while
    another one is under way, send messages only.
    """

    name = "bundles"
    prepared = _PreparedBundles

    def __init__(self, plan: ChunkPlan) -> None:
        super().__init__(plan)
        topology = plan.topology
        most = TOGETHER // topology.most(topology.node.size)
        self.made = False
        self.busy = False
        self.every = self.large = Messages(plan)
        self._sizes: list[int] = []  # of the bundles that this rank sends
        # For the bundles that this rank carries in each stage; those that come in a stage are
        # awaited, and in the last one also all that were sent.
        self.sending: list[Requests] = []
        self.receiving: list[Requests] = []
        self.awaited: list[list[MPI.Prequest]] = []
        _ = topology.node_of  # may communicate: not within the agreement
        with agreed(topology.comm, "Exchange") as agree:
            pieces = _small(plan.sends, topology, most), _small(plan.recvs, topology, most)
            agree.flag(up=bool(pieces[0]))
        if agree.flagged:
            self._make(*pieces)

    def _make(self, sends: Mapping[int, int], recvs: Mapping[int, int]) -> None:
        """Allocate bundles, and divide the blocks. *Collective*."""
        topology = self.plan.topology
        every = topology.node.allgather((sends, recvs))
        with agreed(topology.comm, "Exchange"):  # one rank may have no memory
            sent, received = zip(*every, strict=True)
            self.sends = _NodeBundles(topology, sent, sent=True)
            self.recvs = _NodeBundles(topology, received, sent=False)
            end = round_up(self.sends.nbytes)
        room = topology.shared.allocate_common(end + self.recvs.nbytes)
        try:
            with agreed(topology.comm, "Exchange") as agree:
                agree.flag(up=room is None)
                if room is not None:
                    self._kept, memory = room
                    self.sent, self.received = memory[:end], memory[end:]
                    self._divide(sends, recvs)
        except BaseException:
            self.free()
            raise
        self.made = not agree.flagged
        if agree.flagged:
            self.free()
            self.large, self._sizes = self.every, []
            self.sending, self.receiving, self.awaited = [], [], []

    def _divide(self, sends: Mapping[int, int], recvs: Mapping[int, int]) -> None:
        """Divide the blocks into small and large ones, and make requests for bundles; local."""
        plan = self.plan

        def small(peers: Mapping[int, int], *, wanted: bool) -> Callable[[MessageBlock], bool]:
            return lambda block: (block.peer in peers) == wanted

        self.small = plan.select(small(sends, wanted=True), small(recvs, wanted=True))
        self.large = Messages(plan.select(small(sends, wanted=False), small(recvs, wanted=False)))
        comm = plan.topology.comm
        for received in self._carried(self.recvs, self.received):
            requests = Requests(self.received, received, comm.Recv_init, plan.unpack)
            self.receiving.append(requests)
        for sent in self._carried(self.sends, self.sent):
            self.sending.append(Requests(self.sent, sent, comm.Send_init, plan.unpack))
            self._sizes += [bundle.nbytes for _, (bundle,), _ in sent if bundle.nbytes]
        self.awaited = [requests.all for requests in self.receiving]
        # Before the last meeting: afterwards other ranks may pack again.
        self.awaited[-1] = [*chain(*(each.all for each in self.sending)), *self.awaited[-1]]

    def _carried(
        self, side: _NodeBundles, memory: Bytes
    ) -> list[list[tuple[int, list[Array], bool]]]:
        """List by stage the bundles that this rank carries, and the carriers of other nodes."""
        topology = self.plan.topology
        node_of = topology.node_of
        here = int(node_of[topology.rank])
        numbers = {node: number for number, node in enumerate(np.unique(node_of).tolist())}

        def carrier(node: int, other: int) -> int:
            members = np.flatnonzero(node_of == node)
            return int(members[numbers[other] % len(members)])  # all ranks take turns

        return [
            [
                (carrier(node, here), [memory[slice(*side.bundles[node])]], True)
                for node in stage
                if carrier(here, node) == topology.rank
            ]
            for stage in side.stages
        ]

    def off_node(self) -> Traffic:
        """Count the bundles that this rank sends, and other messages to other nodes."""
        messages, nbytes = self.large.off_node()
        return Traffic(messages + len(self._sizes), nbytes + sum(self._sizes))

    def free(self) -> None:
        """Free all requests."""
        for requests in (*self.sending, *self.receiving):
            requests.free()
        for messages in {self.every, self.large}:
            messages.free()


def _small(plans: Sequence[PackPlan], topology: Topology, most: int) -> dict[int, int]:
    """Bytes of each piece for other nodes, or from them, that has at most so many."""
    pieces = Counter[int]()
    for plan in plans:
        for peer, nbytes in zip(plan.peers, plan.nbytes, strict=True):
            pieces[peer] += nbytes
    on_node = topology.on_node
    return {
        peer: nbytes for peer, nbytes in pieces.items() if peer not in on_node and nbytes <= most
    }


class Gathered(Hybrid):
    """As `Hybrid`, but small pieces for another node travel in one message."""

    name = "gathered"
    between: ClassVar[type[Method]] = Bundles
