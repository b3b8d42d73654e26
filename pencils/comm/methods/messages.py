"""Nonblocking point-to-point messages between ranks that exchange blocks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from pencils.comm import memory
from pencils.comm.failure import wait_all
from pencils.comm.memory import Bytes, byte_chunks, round_up
from pencils.comm.methods.method import Array, ChunkPlan, Method, PreparedMethod, Started
from pencils.comm.mpi import MPI
from pencils.comm.pack import PackPlan, Unpacker, no_op, prepare_copies

TAG = 1


# For each message: the rank, the blocks, and whether it is sent or received without packing.
_ByMessage: TypeAlias = list[tuple[int, list[Array], bool]]


class Requests:
    """Persistent requests for messages in one buffer, with what packs or unpacks them.

    Small buffers make one batch, which needs fewer calls of MPI. Each message of a large buffer is
    a batch of its own: one is packed, or unpacked, while others are on their way. `init` makes a
    request of a buffer, a rank and a tag, and `copy` prepares to pack, or unpack, pairs of a block
    of an array and one of the buffer. A message to a rank among `far` has a request for each part
    that MPI sends at once.
    """

    def __init__(
        self,
        buffer: Bytes,
        messages: _ByMessage,
        init: Callable[[Bytes, int, int], MPI.Prequest],
        copy: Unpacker,
        far: Collection[int] = (),
    ) -> None:
        self.buffer = buffer
        each, end = [], 0
        for peer, views, alone in messages:
            data, copies = views[0], no_op
            if not alone:
                windows, start = [], round_up(end)
                for view in views:
                    at, end = round_up(end), round_up(end) + view.nbytes
                    windows.append(buffer[at:end].view(view.dtype).reshape(view.shape))
                data = buffer[start:end]
                copies = copy(list(zip(views, windows, strict=True)))
            parts = byte_chunks(data, memory.EAGER if peer in far else None)
            each.append(([init(part, peer, TAG) for part in parts], copies))
        self.all = [request for requests, _ in each for request in requests]
        self.batches = [(self.all, [copies for _, copies in each])]
        if buffer.nbytes >= memory.ALONE:
            self.batches = [(requests, [copies]) for requests, copies in each]
        self.free = weakref.finalize(self, _free, self.all)


def _by_message(
    pairs: Sequence[tuple[PackPlan, Array]], on_node: Collection[int], *, in_place: bool
) -> _ByMessage:
    """Group blocks by message, with equal results on both sides: sizes and nodes decide."""
    messages: list[tuple[int, list[Array]]] = []
    small: dict[int, list[Array]] = {}
    for pack_plan, array in pairs:
        for peer, view in zip(pack_plan.peers, pack_plan.views(array), strict=True):
            if view.nbytes >= memory.ALONE:
                pieces = [view] if peer in on_node else _pieces(view)
                messages += [(peer, [piece]) for piece in pieces]
                continue
            if peer not in small:
                small[peer] = []
                messages.append((peer, small[peer]))
            small[peer].append(view)
    return [
        (peer, views, in_place and len(views) == 1 and views[0].flags.c_contiguous)
        for peer, views in messages
    ]


def _pieces(view: Array) -> list[Array]:
    """Divide a large block along its first axis, into whole cache lines of any memory order."""
    if view.nbytes <= 2 * memory.PIECE:
        return [view]
    line = max(1, memory.LINE // view.itemsize)
    if len(view) <= line and view.ndim > 1:
        return [piece for part in view for piece in _pieces(part)]
    rows = max(line, memory.PIECE * len(view) // view.nbytes)
    return [view[start : start + rows] for start in range(0, len(view), rows)]


def _buffer_size(messages: _ByMessage) -> int:
    return sum(round_up(view.nbytes) for _, views, alone in messages if not alone for view in views)


def _pack(pairs: Sequence[tuple[Array, Array]]) -> Callable[[], None]:
    return prepare_copies([(window, view) for view, window in pairs])


def _free(requests: Sequence[MPI.Prequest]) -> None:
    """Free inactive requests; local."""
    if not MPI.Is_finalized():
        for request in requests:
            request.Free()


class _PreparedMessages(PreparedMethod):
    """Messages of the arrays of a call, and their requests in the buffers of the latest call."""

    def __init__(
        self, method: Messages, sources: Sequence[Array], targets: Sequence[Array], *, aliased: bool
    ) -> None:
        plan, comm = method.plan, method.comm
        self._method, self._buffers = method, plan.buffers
        # Contiguous blocks that are sent alone need no buffer, unless they may be overwritten.
        unpacked = not aliased and plan.unpack is prepare_copies
        on_node = plan.topology.on_node
        recvs = _by_message(plan.recvs_of(targets), on_node, in_place=unpacked)
        sends = _by_message(plan.sends_of(sources), on_node, in_place=not aliased)
        far = {peer for peer, _, _ in (*recvs, *sends)}.difference(on_node)
        self._sides = (
            (recvs, comm.Recv_init, plan.unpack, far),
            (sends, comm.Send_init, _pack, far),
        )
        self._sizes = _buffer_size(recvs), _buffer_size(sends)
        self._latest: tuple[Requests, Requests] | None = None
        self._idle = not (recvs or sends)
        self.nbytes = max(self._sizes)

    def reserve(self) -> None:
        """Allocate buffers and make requests."""
        latest = self._latest
        ready = latest and all(self._buffers.has(requests.buffer) for requests in latest)
        if self._idle or ready:
            return
        for requests in self._requests():
            self._buffers.give(requests.buffer)

    def start(self) -> Started:
        """Post all receives, so that no message is copied by MPI; pack and send.

        Exchanges that are under way keep their buffers, and with them their requests: no active
        request is started.
        """
        if self._idle:
            return Started(no_op)
        recvs, sends = self._requests()
        MPI.Prequest.Startall(recvs.all)
        for requests, packs in sends.batches:
            for pack in packs:
                pack()
            MPI.Prequest.Startall(requests)

        def complete() -> None:
            for requests, unpacks in recvs.batches:
                wait_all(requests)
                for unpack in unpacks:
                    unpack()
            wait_all(sends.all)
            self._buffers.give(sends.buffer)
            self._buffers.give(recvs.buffer)

        return Started(complete, [*sends.all, *recvs.all])

    def _requests(self) -> tuple[Requests, Requests]:
        """Take buffers, and requests in them: the same ones as before if their buffer is idle."""
        recvs, sends = self._latest or (None, None)
        self._latest = self._take(0, recvs), self._take(1, sends)
        return self._latest

    def _take(self, side: int, latest: Requests | None) -> Requests:
        buffer = self._buffers.take(self._sizes[side], None if latest is None else latest.buffer)
        if latest is None or latest.buffer is not buffer:
            latest = Requests(buffer, *self._sides[side])
            self._method.requests.add(latest)
        return latest


class Messages(Method):
    """One message for each peer, and others for large blocks, or their pieces between nodes.

    Small blocks for one peer are packed into one buffer. A block that is large, or the only one, is
    sent from the source, or received in the target, without packing if it is contiguous there.
    """

    name = "messages"
    prepared = _PreparedMessages

    def __init__(self, plan: ChunkPlan) -> None:
        super().__init__(plan)
        self.comm = plan.topology.comm
        self.requests: weakref.WeakSet[Requests] = weakref.WeakSet()

    def free(self) -> None:
        """Free all requests: MPI libraries require that before a communicator is freed."""
        for requests in self.requests:
            requests.free()
