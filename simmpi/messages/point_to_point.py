"""Point-to-point methods of communicators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simmpi.collectives.slots import pickled
from simmpi.constants import ANY_SOURCE, ANY_TAG, LARGEST_TAG, PROC_NULL
from simmpi.exceptions import ERR_BUFFER, ERR_RANK, ERR_TAG, MPIError
from simmpi.messages.matched import Message, loaded
from simmpi.messages.matching import (
    BUFFERED,
    READY,
    STANDARD,
    SYNCHRONOUS,
    Exchange,
    Receiving,
    Sending,
    mailbox_of,
)
from simmpi.messages.operation import Status
from simmpi.messages.requests import Prequest, Request
from simmpi.ranks import Waiting
from simmpi.types.buffers import as_buffer

if TYPE_CHECKING:
    from simmpi.types.buffers import Buffer
    from simmpi.world import Context


def _check(context: Context, rank: int, tag: int, *, receives: bool) -> None:
    special = (ANY_SOURCE, PROC_NULL) if receives else (PROC_NULL,)
    if rank not in special and not 0 <= rank < context.size:
        what = "source" if receives else "dest"
        raise MPIError(ERR_RANK, f"{what}={rank}; {context.name} has ranks 0 to {context.size - 1}")
    if not (0 <= tag <= LARGEST_TAG or (receives and tag == ANY_TAG)):
        raise MPIError(ERR_TAG, f"tag={tag}; allowed are 0 to {LARGEST_TAG}")


def _sends(mode: str, prefix: str) -> tuple[Callable[..., Any], ...]:
    """Make the methods that send in one mode: of buffers, started, persistent, and of objects."""
    name = f"{prefix}send"

    def start(comm: PointToPoint, call: str, content: Any, dest: int, tag: int) -> Sending:
        context = comm._enter(call)
        _check(context, dest, tag, receives=False)
        if mode == BUFFERED and context.world.rank.number not in context.world.attached:
            raise MPIError(ERR_BUFFER, f"{call}: no buffer is attached; call MPI.Attach_buffer")
        return Sending(call, context, dest, tag, content, mode)

    def blocking(comm: PointToPoint, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a buffer."""
        start(comm, name.capitalize(), as_buffer(buf), dest, tag).wait()

    def nonblocking(comm: PointToPoint, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start to send a buffer."""
        return Request.of(start(comm, f"I{name}", as_buffer(buf), dest, tag))

    def persistent(comm: PointToPoint, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Make a request that sends a buffer each time it is started."""
        buffer, call = as_buffer(buf), f"{name.capitalize()}_init"
        _check(comm._alive(), dest, tag, receives=False)
        return Prequest.starting(lambda: start(comm, call, buffer, dest, tag))

    def send_object(comm: PointToPoint, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object."""
        start(comm, name, pickled(obj), dest, tag).wait()

    def isend_object(comm: PointToPoint, obj: Any, dest: int, tag: int = 0) -> Request:
        """Start to send an object."""
        return Request.of(start(comm, f"i{name}", pickled(obj), dest, tag), lambda _: None)

    return blocking, nonblocking, persistent, send_object, isend_object


class PointToPoint:
    """Point-to-point methods of a communicator."""

    _enter: Callable[[str], Context]
    _alive: Callable[[], Context]

    Send, Isend, Send_init, send, isend = _sends(STANDARD, "")
    Ssend, Issend, Ssend_init, ssend, issend = _sends(SYNCHRONOUS, "s")
    Bsend, Ibsend, Bsend_init, bsend, ibsend = _sends(BUFFERED, "b")
    Rsend, Irsend, Rsend_init = _sends(READY, "r")[:3]

    def _start_receive(self, call: str, buffer: Buffer | None, source: int, tag: int) -> Receiving:
        context = self._enter(call)
        _check(context, source, tag, receives=True)
        return Receiving(call, context, source, tag, buffer)

    def Recv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> None:
        """Receive into a buffer."""
        self._start_receive("Recv", as_buffer(buf, writes=True), source, tag).wait(status)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Start to receive into a buffer."""
        return Request.of(self._start_receive("Irecv", as_buffer(buf, writes=True), source, tag))

    def Recv_init(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Prequest:
        """Make a request that receives into a buffer each time it is started."""
        buffer = as_buffer(buf, writes=True)
        _check(self._alive(), source, tag, receives=True)
        return Prequest.starting(lambda: self._start_receive("Recv_init", buffer, source, tag))

    def recv(
        self,
        buf: Any = None,  # noqa: ARG002 - a place for pickled bytes, which is not needed
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Receive an object."""
        return loaded(self._start_receive("recv", None, source, tag).wait(status))

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:  # noqa: ARG002
        """Start to receive an object."""
        return Request.of(self._start_receive("irecv", None, source, tag), loaded)

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Send a buffer and receive into another one."""
        content, buffer = as_buffer(sendbuf), as_buffer(recvbuf, writes=True)
        self._sendrecv("Sendrecv", content, (dest, sendtag), buffer, (source, recvtag), status)

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Send a buffer, and receive into it."""
        buffer, to = as_buffer(buf, writes=True), (dest, sendtag)
        content = buffer.pack().tobytes()
        self._sendrecv("Sendrecv_replace", content, to, buffer, (source, recvtag), status)

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,  # noqa: ARG002
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Send an object, and receive one."""
        content, to = pickled(sendobj), (dest, sendtag)
        return loaded(self._sendrecv("sendrecv", content, to, None, (source, recvtag), status))

    def _sendrecv(
        self,
        call: str,
        content: Buffer | bytes,
        to: tuple[int, int],
        buffer: Buffer | None,
        source: tuple[int, int],
        status: Status | None,
    ) -> Any:
        send, receive = self._start_both(call, content, to, buffer, source)
        received = receive.wait(status)
        send.wait()
        return received

    def _start_both(
        self,
        call: str,
        content: Buffer | bytes,
        to: tuple[int, int],
        buffer: Buffer | None,
        source: tuple[int, int],
    ) -> tuple[Sending, Receiving]:
        context = self._enter(call)
        _check(context, *to, receives=False)
        _check(context, *source, receives=True)
        receive = Receiving(call, context, *source, buffer)
        return Sending(call, context, *to, content, types=buffer), receive

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Request:
        """Start to send a buffer and to receive into another one."""
        content, buffer = as_buffer(sendbuf), as_buffer(recvbuf, writes=True)
        call, to = "Isendrecv", (dest, sendtag)
        both = self._start_both(call, content, to, buffer, (source, recvtag))
        return Request.of(Exchange(call, *both))

    def Isendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Request:
        """Start to send a buffer, and to receive into it."""
        buffer = as_buffer(buf, writes=True)
        call, content, to = "Isendrecv_replace", buffer.pack().tobytes(), (dest, sendtag)
        both = self._start_both(call, content, to, buffer, (source, recvtag))
        return Request.of(Exchange(call, *both))

    # ---- probes ----

    def _find(self, call: str, source: int, tag: int) -> tuple[Context, Sending | None]:
        context = self._alive()
        _check(context, source, tag, receives=True)
        scheduler = context.world.scheduler
        box = mailbox_of(context, context.number_of(scheduler.step(call, progress=False)))
        message = box.find(source, tag) if scheduler.prompt() else None
        if message is None:
            scheduler.poll(call)
            message = box.find(source, tag)
        return context, message

    def _await(self, call: str, source: int, tag: int) -> tuple[Context, Sending | None]:
        context = self._enter(call)
        _check(context, source, tag, receives=True)
        if source == PROC_NULL:
            return context, None
        rank = context.world.scheduler.running(call)
        box = mailbox_of(context, context.number_of(rank))
        box.probing = True
        missing = [context.ranks[source]] if source != ANY_SOURCE else []
        context.world.scheduler.wait(
            lambda: box.find(source, tag) is not None,
            Waiting(call, lambda: f"on {context.name}", lambda: missing),
        )
        box.probing = False
        return context, box.find(source, tag)

    def Probe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> bool:
        """Wait for a message, without receiving it."""
        _, message = self._await("Probe", source, tag)
        _describe(message, status)
        return True

    def Iprobe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> bool:
        """Whether there is a message."""
        if source == PROC_NULL:
            _describe(None, status)
            return True
        _, message = self._find("Iprobe", source, tag)
        if message is not None:
            _describe(message, status)
        return message is not None

    probe, iprobe = Probe, Iprobe

    def Mprobe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message:
        """Wait for a message, and take it from the queue."""
        context, message = self._await("Mprobe", source, tag)
        return _take(context, message, status)

    def Improbe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message | None:
        """Take a message from the queue, if there is one."""
        if source == PROC_NULL:
            return _take(self._alive(), None, status)
        context, message = self._find("Improbe", source, tag)
        return None if message is None else _take(context, message, status)

    mprobe, improbe = Mprobe, Improbe


def _describe(message: Sending | None, status: Status | None) -> None:
    if status is not None and message is None:
        status.set(PROC_NULL, ANY_TAG, 0)
    elif status is not None and message is not None:
        status.set(message.source, message.tag, len(message.data))


def _take(context: Context, message: Sending | None, status: Status | None) -> Message:
    _describe(message, status)
    if message is not None:
        mailbox_of(context, message.dest).take(message)
    return Message.of(context, message)
