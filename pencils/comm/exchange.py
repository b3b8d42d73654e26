"""Exchanges: move blocks of source arrays to blocks of target arrays on other ranks.

All communication of transposes, halos, indexers and imported arrays goes through this file, but for
small exchanges within a node: `pencils.comm.methods.pull`.

Glossary
--------
message block
    A rectangular block of a local array, and the rank to which it is sent or from which it is
    received: `MessageBlock`.
message spec
    All blocks that this rank sends and receives of arrays of one shape and dtype: `MessageSpec`.
pack plan
    Shapes of the blocks of one direction and their offsets in a buffer: `PackPlan`.
chunk
    Part of an exchange that is completed before the next part is packed, so that buffers stay
    small: `ChunkPlan`. Usually there is one.
exchange
    The plan: message specs and a method, for any arrays that fit. *Collective* to make.
prepared exchange
    An exchange for given arrays: all blocks are sliced, all copies prepared. Local to make.
method
    How blocks are moved: by messages, collectives, or shared memory. `pencils.comm.methods` has
    the table `METHODS`, and a file for each.
handle
    An exchange that was started, and must be completed by `wait`.

What happens
------------
A schedule (`pencils.layout`) lists boxes of global indices. Its caller makes message blocks of
them. `Exchange` divides these by chunk into pack plans, and chooses a method. `prepare` slices the
arrays. Then each call does this:

1. *Complete* older exchanges among the same processes (`PreparedExchange.run`).
2. *Save* blocks that stay on this rank, if the target may overwrite them.
3. *Pack and send*: write blocks to a buffer and start its messages, or publish the address of the
   source if other ranks can read it (`PreparedMethod.start`).
4. *Copy* blocks that stay on this rank.
5. *Receive and unpack*: wait, and write blocks to the target; or copy them from the memory of
   other ranks (the function that `PreparedMethod.start` returns).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import accumulate, product
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm import progress
from pencils.comm.agree import agreed
from pencils.comm.failure import raise_lost
from pencils.comm.memory import Bytes, round_up, same_view
from pencils.comm.methods import METHODS, Hybrid, Messages, Method, Shared
from pencils.comm.methods.method import ChunkPlan, PreparedMethod, Started
from pencils.comm.methods.shared import is_near
from pencils.comm.mpi import MPI, Uncopied
from pencils.comm.pack import (
    MessageSpec,
    Pairs,
    Unpacker,
    in_order,
    no_op,
    one_each,
    own_blocks,
    pack_plans,
    prepare_copies,
)
from pencils.comm.recording import Recorder, current, timed
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.layout import Traffic
from pencils.layout.integers import MOST

Array = NDArray[Any]
T = TypeVar("T")

AUTO = "auto"


class Exchange:
    """Plan of an exchange, for any arrays that fit. Making, starting and waiting are *Collective*.

    There is a spec for each array, or a single one for any number of arrays, which may then be
    moved in several chunks. Blocks slice the last `axes` axes of arrays. `method` is a name from
    `METHODS`, or "auto", which usually chooses the fastest one for the nodes of the ranks. Plans
    that do not run at the same time may share `buffers`. `unpack` is how received blocks are
    written: `prepare_copies` or `prepare_additions`.
    """

    def __init__(
        self,
        topology: Topology,
        specs: Sequence[MessageSpec],
        *,
        axes: int,
        method: str = AUTO,
        chunks: int = 1,
        buffers: Buffers | None = None,
        unpack: Unpacker = prepare_copies,
    ) -> None:
        rank, size = topology.rank, topology.comm.size
        self.topology = topology
        self.buffers = Buffers() if buffers is None else buffers
        self._unpack = unpack
        self._own = [own_blocks(rank, spec) for spec in specs]
        columns = axes + max(len(spec.lead) for spec in specs)
        sends, recvs = zip(*(pack_plans(spec, rank, size, chunks) for spec in specs), strict=True)
        by_chunk = zip(zip(*sends, strict=True), zip(*recvs, strict=True), strict=True)
        plans = [ChunkPlan(topology, *both, columns, self.buffers, unpack) for both in by_chunk]
        # Bytes that this rank sends and receives in a call for one array of each spec.
        self.sent = sum(sum(each.nbytes) for plan in plans for each in plan.sends)
        self.received = sum(sum(each.nbytes) for plan in plans for each in plan.recvs)
        self.single = len(specs) == 1
        self._methods = make_methods(check_method(method), plans)
        self.method = self._methods[0].name
        self.chunks = chunks
        topology.exchanges.add(self)

    def prepare(
        self, sources: Sequence[Array], targets: Sequence[Array], *, disjoint: bool = False
    ) -> PreparedExchange:
        """Prepare to move ``sources[i]`` to ``targets[i]``, all at once; local.

        Arrays have any strides. A target may share memory with any source if there is one chunk.
        `disjoint`: no element is both read and written, even if arrays share memory.
        """
        every = product(sources, targets)
        aliased = not disjoint and any(np.may_share_memory(*pair) for pair in every)
        if aliased and len(self._methods) > 1:
            raise ArgumentError(
                "source and target share memory, so the exchange needs a buffer for all data; "
                "leave out max_buffer_bytes="
            )
        pairs = list(zip(sources, targets, strict=True))
        calls = [(sources, targets)]
        if len(self._methods) > 1:  # one array after the other, to keep buffers small
            calls = [([source], [target]) for source, target in pairs] or calls
        prepared = [
            method.prepare(*arrays, aliased=aliased) for arrays in calls for method in self._methods
        ]
        own = [
            (target[into], source[key])
            for (source, target), keys in zip(pairs, one_each(self._own, targets), strict=True)
            for key, into in keys
        ]
        times = len(sources) if self.single else 1
        return PreparedExchange(self, own, prepared, self._unpack, times, aliased=aliased)

    def off_node(self) -> Traffic:
        """Count what all ranks send to other nodes in a call for one array of each spec.

        *Collective*.
        """
        counts = zip(*(method.off_node() for method in self._methods), strict=True)
        most = MOST // self.topology.comm.size
        sent = np.array([min(sum(count), most) for count in counts], np.int64)
        self.topology.comm.Allreduce(MPI.IN_PLACE, sent)
        return Traffic(*sent.tolist())

    @property
    def freed(self) -> bool:
        """Whether the exchange was freed."""
        return not self._methods

    def free(self) -> None:
        """Complete what was started here, and release MPI objects. *Collective* if anything was."""
        for handle in [each for each in self.topology.under_way if each.exchange is self]:
            handle.wait()
        for method in self._methods:
            method.free()
        self._methods = []
        self.buffers = Buffers()  # a freed plan that is still referenced keeps no memory


class PreparedExchange:
    """An exchange for given arrays; runs any number of times.

    A call that all ranks agree on reserves and packs before the agreement, and does the rest after
    it by `run_agreed`; any other call runs, or starts.

    `own` are the targets and sources of blocks that stay on this rank, `prepared` has a method for
    each chunk, `times` is the number of arrays of each spec. `aliased`: some target shares memory
    with some source.
    """

    def __init__(
        self,
        exchange: Exchange,
        own: Pairs,
        prepared: Sequence[PreparedMethod],
        unpack: Unpacker,
        times: int,
        *,
        aliased: bool,
    ) -> None:
        self.exchange = exchange
        self._under_way = exchange.topology.under_way
        # Blocks of this rank must be saved if the target may be written before they are read.
        # If nothing else is moved, a part may do without.
        copied: Pairs | None = own
        if aliased:
            alone = unpack is prepare_copies and not (exchange.sent or exchange.received)
            copied = in_order(own) if alone else None
        self._kept = [pair for pair in own if not same_view(*pair)] if copied is None else []
        *self._starts, self._kept_bytes = accumulate(
            (round_up(source.nbytes) for _, source in self._kept), initial=0
        )
        # Room for the saved blocks in the latest call, and the copies to it and from it.
        self._room: Bytes | None = None
        self._saves: Callable[[], None] = no_op
        self._restores: Callable[[], None] = no_op
        self._own = unpack(copied or [])
        # Bytes of a call, for profiles.
        self._sent, self._received = times * exchange.sent, times * exchange.received
        self._copied = sum(target.nbytes for target, _ in self._kept or (own if copied else []))
        self._first, *self._others = prepared

    @property
    def nbytes(self) -> int:
        """Bytes of the larger one of the buffers to send from and to receive in."""
        return max(prepared.nbytes for prepared in (self._first, *self._others))

    def reserve(self) -> None:
        """Allocate what the next call needs; local. Ranks can still agree that one has failed."""
        room = self._take_room() if self._kept else None
        self._first.reserve()
        for prepared in self._others:
            prepared.reserve()
        if room is not None:
            self.exchange.buffers.give(room)

    def pack(self) -> None:
        """Do nothing: sources are packed while they are sent."""

    def run(self) -> None:
        """Complete older exchanges, and move the data. *Collective*."""
        if self._under_way:
            self.exchange.topology.complete()
        self.move()

    run_agreed = run  # a `PreparedPull` packs when it runs, but not here

    def move(self) -> None:
        """Move the data; the caller has completed older exchanges if needed. *Collective*."""
        recorder: Recorder | None = current.recorder
        if recorder is None:
            self._move(self._own)
        else:
            recorder.run("unpack", self._move, self._counted(recorder), nbytes=self._received)

    def _move(self, own: Callable[[], None]) -> None:
        saved = self._save() if self._kept else None
        self._first.run(own)
        for prepared in self._others:
            prepared.run(no_op)
        if saved is not None:
            timed("copy", saved, calls=0)

    def _counted(self, recorder: Recorder) -> Callable[[], None]:
        """Count what a call packs in a profile; return what copies and counts the rest."""
        recorder.count("pack", self._sent)
        return partial(recorder.run, "copy", self._own, nbytes=self._copied)

    def run_open(self) -> MPI.Intracomm | None:
        """Run, but return the ranks that may still read sources of this one, if any. *Collective*.

        The caller meets them before a source, or the target of the same exchange, is written.
        """
        if self._under_way:
            self.exchange.topology.complete()
        if self._kept or self._others:
            self.move()
            return None
        recorder: Recorder | None = current.recorder
        if recorder is None:
            return self._first.run_open(self._own)
        own = self._counted(recorder)
        return recorder.run("unpack", self._first.run_open, own, nbytes=self._received)

    def start(
        self,
        result: T,
        after: Callable[[], None] = no_op,
        *,
        sources: object = None,
        agreed: bool = True,  # noqa: ARG002
    ) -> Handle[T]:
        """Start; no array may be used before ``wait`` of the returned handle. *Collective*.

        ``wait`` calls `after` last, and returns `result`. The handle keeps `sources` alive.
        """
        saved = self._save() if self._kept else no_op
        started = timed("pack", self._first.start, nbytes=self._sent)
        timed("copy", self._own, nbytes=self._copied)

        def complete() -> None:
            started.complete()
            for prepared in self._others:
                prepared.run(no_op)
            timed("copy", saved, calls=0)

        def finish() -> None:
            timed("unpack", complete, nbytes=self._received)
            after()

        return Handle(self.exchange, Started(finish, started.requests), result, sources)

    def _save(self) -> Callable[[], None]:
        """Save blocks; return the function that writes them to the target."""
        room = self._take_room()
        timed("copy", self._saves, calls=0)
        restores = self._restores

        def restore() -> None:
            restores()
            self.exchange.buffers.give(room)

        return restore

    def _take_room(self) -> Bytes:
        """Take a buffer for the saved blocks: the same one as before if it is idle."""
        buffers = self.exchange.buffers
        room = buffers.take(self._kept_bytes, self._room)
        if room is not self._room:
            saved = [
                room[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
                for start, (_, source) in zip(self._starts, self._kept, strict=True)
            ]
            pairs = list(zip(saved, self._kept, strict=True))
            self._saves = prepare_copies([(part, source) for part, (_, source) in pairs])
            self._restores = prepare_copies([(target, part) for part, (target, _) in pairs])
            self._room = room
        return room


class Handle(Uncopied, Generic[T]):
    """An exchange that was started; `wait` completes it and returns its result."""

    __slots__ = ("_failure", "_result", "_sources", "_started", "exchange")

    def __init__(self, exchange: Exchange, started: Started, result: T, sources: object) -> None:
        self.exchange = exchange
        self._started: Started | None = started
        self._failure: MPI.Exception | None = None
        self._result = result
        self._sources = sources
        exchange.topology.under_way.append(self)
        progress.begin(exchange.topology.comm)

    @classmethod
    def completed(cls, result: T) -> Handle[T]:
        """Return the handle of what was complete when it was started."""
        handle = object.__new__(cls)
        handle._started = None
        handle._result = result
        return handle

    def wait(self) -> T:
        """Complete the exchange; a second call returns at once. *Collective*.

        Exchanges among the same processes complete in the order in which they were started, which
        must be the same on all of them; ranks may wait for them in any order. Exchanges among other
        processes are not affected, even if some processes take part in both.

        Returns
        -------
        object
            The target of the exchange, as the method that started it describes.
        """
        while self._started is not None:
            self.exchange.topology.under_way.popleft().finish()
        return self._result

    def test(self) -> bool:
        """Let MPI move data; return whether the messages under way have arrived. Local.

        Messages that `wait` starts later, such as bundles of method "gathered" and further chunks,
        do not count. `wait` must be called all the same: it unpacks, and meets ranks that share
        memory. It also raises errors of the exchange.
        """
        if self._started is None:
            return True
        requests = self._started.requests
        try:
            # The last one to arrive is tested first: large messages have thousands of requests.
            return not requests or (requests[-1].Test() and MPI.Request.Testall(requests))
        except MPI.Exception as error:
            self._failure = error
            return True

    def finish(self) -> None:
        """Complete this exchange, the oldest one among its processes. *Collective*."""
        started, self._started = self._started, None
        assert started is not None
        progress.end(self.exchange.topology.comm)
        if self._failure is not None:
            raise_lost(self._failure)
        started.complete()
        self._sources = None


def check_method(method: str) -> str:
    """Return `method` if it is a name from `METHODS` or "auto", or raise."""
    if method not in [AUTO, *METHODS]:  # a list also accepts values that cannot be hashed
        raise ArgumentError(
            f"method {method!r} is unknown; methods are {', '.join((AUTO, *METHODS))}"
        )
    return method


def make_methods(name: str, plans: Sequence[ChunkPlan]) -> Sequence[Method]:
    """Make the method of each chunk; messages if there is no shared memory. *Collective*."""
    if name == Messages.name:  # no agreement with other ranks is needed
        return Messages.for_chunks(plans)
    topology = plans[0].topology
    with agreed(topology.comm, "Exchange") as agree:
        on_node = topology.on_node
        _check_suitable(name, plans, on_node)
        blocks = [block for plan in plans for sends in plan.sends for block in sends.blocks]
        near = [is_near(block, on_node) for block in blocks]
        agree.flag(up=any(near))
        agree.defer(up=not all(near))
    kind = METHODS.get(name)
    if kind is None:  # shared memory wherever possible: it saves a copy even if packing is needed
        kind = Messages
        if agree.flagged:
            kind = Hybrid if agree.deferred or topology.nodes > 1 else Shared
    methods = kind.for_chunks(plans)
    return methods if methods[0].has_room() else Messages.for_chunks(plans)


def _check_suitable(name: str, plans: Sequence[ChunkPlan], on_node: Collection[int]) -> None:
    """Raise if the method does not reach all peers, or cannot move what is planned."""
    every = [pack_plan for plan in plans for pack_plan in (*plan.sends, *plan.recvs)]
    far = {peer for pack_plan in every for peer in pack_plan.peers if peer not in on_node}
    if name == Shared.name and far:
        raise ArgumentError(
            f"method 'shared' does not reach rank {min(far)} on another node; use 'hybrid'"
        )
    simple = all(len(plan.sends) == 1 and plan.unpack is prepare_copies for plan in plans)
    if name in METHODS and not (simple or METHODS[name].versatile):
        raise ArgumentError(f"method {name!r} copies, and treats all arrays alike; use another one")
