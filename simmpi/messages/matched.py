"""Messages that a probe has taken from the queue, to be received by a handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simmpi.collectives.slots import loads
from simmpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from simmpi.exceptions import ERR_REQUEST, MPIError
from simmpi.messages.matching import Receiving, Sending, mailbox_of
from simmpi.messages.operation import Status
from simmpi.messages.requests import Request
from simmpi.types.buffers import as_buffer
from simmpi.world import active

if TYPE_CHECKING:
    from simmpi.types.buffers import Buffer
    from simmpi.world import Context


def loaded(data: Any) -> Any:
    """Unpickle the object of a message; None if there was no message."""
    return None if data is None else loads(data)


class Message:
    """A message that `Mprobe` has taken from the queue, to be received by this handle."""

    def __init__(self, message: Message | None = None) -> None:
        self._send: Sending | None = None if message is None else message._send
        self._context: Context | None = None if message is None else message._context
        self._from_no_process: bool = message is not None and message._from_no_process

    @classmethod
    def of(cls, context: Context | None, send: Sending | None) -> Message:
        """Make the handle of a message that was found; None: from PROC_NULL."""
        message = cls()
        message._context, message._send, message._from_no_process = context, send, send is None
        return message

    def __bool__(self) -> bool:
        return self._send is not None or self._from_no_process

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._send is other._send and self._from_no_process == other._from_no_process

    __hash__ = None  # type: ignore[assignment]

    def _receive(self, call: str, buffer: Buffer | None) -> Receiving:
        world = active()
        context = world.all if self._context is None and world is not None else self._context
        if not self or context is None:
            raise MPIError(ERR_REQUEST, f"{call}: the message is null, or was received before")
        context.world.scheduler.step(call)
        receive = Receiving(call, context, PROC_NULL, ANY_TAG, buffer)
        if self._send is not None:
            mailbox_of(context, self._send.dest).give(self._send)
            receive.match(self._send)
        self._send, self._from_no_process = None, False
        return receive

    @classmethod
    def Probe(
        cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message:
        """Wait for a message, and take it from the queue."""
        message: Message = comm.Mprobe(source, tag, status)
        return message

    @classmethod
    def Iprobe(
        cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message | None:
        """Take a message from the queue, if there is one."""
        message: Message | None = comm.Improbe(source, tag, status)
        return message

    probe, iprobe = Probe, Iprobe

    def Recv(self, buf: Any, status: Status | None = None) -> None:
        """Receive the message."""
        self._receive("Mrecv", as_buffer(buf, writes=True)).wait(status)

    def Irecv(self, buf: Any) -> Request:
        """Start to receive the message."""
        return Request.of(self._receive("Imrecv", as_buffer(buf, writes=True)))

    def recv(self, status: Status | None = None) -> Any:
        """Receive an object."""
        return loaded(self._receive("mrecv", None).wait(status))

    def irecv(self) -> Request:
        """Start to receive an object."""
        return Request.of(self._receive("imrecv", None), loaded)
