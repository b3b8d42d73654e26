"""Nonblocking point-to-point messages between ranks that exchange blocks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from pencils.comm import memory
from pencils.comm.memory import Bytes, byte_chunks, round_up
from pencils.comm.methods.method import Array, ChunkPlan, Method, PreparedMethod
from pencils.comm.mpi import MPI
from pencils.comm.pack import PackPlan, Unpacker, no_op, prepare_copies
from pencils.comm.shared_memory import Buffers

TAG = 1


class _Requests:
    """Persistent requests for messages in one buffer, with what packs or unpacks them.

    Small buffers make one batch, which needs fewer calls of MPI. Each message of a large buffer is
    a batch of its own: one is packed, or unpacked, while others are on their way.
    """

    def __init__(
        self, buffer: Bytes, each: list[tuple[list[MPI.Prequest], Callable[[], None]]]
    ) -> None:
        self.buffer = buffer
        self.all = [request for requests, _ in each for request in requests]
        self.batches = [(self.all, [copies for _, copies in each])]
        if buffer.nbytes >= memory.ALONE:
            self.batches = [(requests, [copies]) for requests, copies in each]
        self.free = weakref.finalize(self, _free, self.all)


class _Direction:
    """All messages of one direction, and their requests in the buffer of the latest call.

    `init` makes a persistent request of a buffer, a rank and a tag, and `copy` prepares to pack, or
    unpack, pairs of a block of an array and one of the buffer. `in_place`: contiguous blocks that
    are sent alone need no buffer.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[PackPlan, Array]],
        method: Messages,
        init: Callable[[Bytes, int, int], MPI.Prequest],
        copy: Unpacker,
        *,
        in_place: bool,
    ) -> None:
        self._method = method
        self._init = init
        self._copy = copy
        self.messages = [
            (peer, views, in_place and len(views) == 1 and views[0].flags.c_contiguous)
            for peer, views in _by_message(pairs)
        ]
        packed = [views for _, views, alone in self.messages if not alone]
        self.nbytes = sum(round_up(view.nbytes) for views in packed for view in views)
        self._latest: _Requests | None = None

    def requests(self, buffers: Buffers) -> _Requests:
        """Take a buffer and its requests: the same ones as before if that buffer is idle."""
        latest = self._latest
        buffer = buffers.take(self.nbytes, None if latest is None else latest.buffer)
        if latest is None or latest.buffer is not buffer:
            latest = self._latest = self._make_requests(buffer)
            self._method.requests.add(latest)
        return latest

    def is_ready(self, buffers: Buffers) -> bool:
        """Whether `requests` allocates nothing."""
        return self._latest is not None and buffers.has(self._latest.buffer)

    def _make_requests(self, buffer: Bytes) -> _Requests:
        each, end = [], 0
        for peer, views, alone in self.messages:
            data, copies = views[0], no_op
            if not alone:
                windows, start = [], round_up(end)
                for view in views:
                    at, end = round_up(end), round_up(end) + view.nbytes
                    windows.append(buffer[at:end].view(view.dtype).reshape(view.shape))
                data = buffer[start:end]
                copies = self._copy(list(zip(views, windows, strict=True)))
            requests = [self._init(part, peer, TAG) for part in byte_chunks(data)]
            each.append((requests, copies))
        return _Requests(buffer, each)


def _by_message(pairs: Sequence[tuple[PackPlan, Array]]) -> list[tuple[int, list[Array]]]:
    """Group blocks by message, with equal results on both sides, because only sizes decide."""
    messages: list[tuple[int, list[Array]]] = []
    small: dict[int, list[Array]] = {}
    for pack_plan, array in pairs:
        for peer, view in zip(pack_plan.peers, pack_plan.views(array), strict=True):
            if view.nbytes >= memory.ALONE:
                messages.append((peer, [view]))
                continue
            if peer not in small:
                small[peer] = []
                messages.append((peer, small[peer]))
            small[peer].append(view)
    return messages


def _pack(pairs: Sequence[tuple[Array, Array]]) -> Callable[[], None]:
    return prepare_copies([(window, view) for view, window in pairs])


def _free(requests: Sequence[MPI.Prequest]) -> None:
    """Free inactive requests; local."""
    if not MPI.Is_finalized():
        for request in requests:
            request.Free()


class _PreparedMessages(PreparedMethod):
    def __init__(
        self,
        method: Messages,
        sources: Sequence[Array],
        targets: Sequence[Array],
        *,
        aliased: bool,
    ) -> None:
        plan, comm = method.plan, method.comm
        self._buffers = plan.buffers
        in_place = not aliased
        sends, recvs = plan.sends_of(sources), plan.recvs_of(targets)
        self._sends = _Direction(sends, method, comm.Send_init, _pack, in_place=in_place)
        in_place = in_place and plan.unpack is prepare_copies
        self._recvs = _Direction(recvs, method, comm.Recv_init, plan.unpack, in_place=in_place)
        self._idle = not (self._recvs.messages or self._sends.messages)
        self.nbytes = max(self._recvs.nbytes, self._sends.nbytes)

    def reserve(self) -> None:
        """Allocate buffers and make requests."""
        directions = self._recvs, self._sends
        if self._idle or all(direction.is_ready(self._buffers) for direction in directions):
            return
        for requests in [direction.requests(self._buffers) for direction in directions]:
            self._buffers.give(requests.buffer)

    def start(self) -> Callable[[], None]:
        """Post all receives, pack and post all sends.

        Exchanges that are under way keep their buffers, and with them their requests: no active
        request is started.
        """
        if self._idle:
            return no_op
        recvs, sends = self._recvs.requests(self._buffers), self._sends.requests(self._buffers)
        MPI.Prequest.Startall(recvs.all)
        for requests, packs in sends.batches:
            for pack in packs:
                pack()
            MPI.Prequest.Startall(requests)

        def complete() -> None:
            for requests, unpacks in recvs.batches:
                MPI.Request.Waitall(requests)
                for unpack in unpacks:
                    unpack()
            MPI.Request.Waitall(sends.all)
            self._buffers.give(sends.buffer)
            self._buffers.give(recvs.buffer)

        return complete


class Messages(Method):
    """One message for each peer, and others for large blocks.

    Small blocks for one peer are packed into one buffer. A block that is large, or the only one, is
    sent from the source, or received in the target, without packing if it is contiguous there.
    """

    name = "messages"
    prepared = _PreparedMessages

    def __init__(self, plan: ChunkPlan) -> None:
        super().__init__(plan)
        self.comm = plan.topology.comm
        self.requests: weakref.WeakSet[_Requests] = weakref.WeakSet()

    def free(self) -> None:
        """Free all requests: MPI libraries require that before a communicator is freed."""
        for requests in self.requests:
            requests.free()
